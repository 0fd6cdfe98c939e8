"""The cluster as one broker sees it at a moment: immutable, so that a request reads one consistent state. Pure.

`ClusterImage.apply` makes the next image from a run of changes. It copies a dictionary of references for each kind of
thing that changed, once for the whole run; brokers, topics and partitions that stayed are shared between images.

Lookups are dictionary or tuple accesses: nothing is copied or searched for a request. Readers must not change the
mappings. An image knows which topics differ from the one before it: following a change costs nothing for all others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from barnabas.base.ids import NO_EPOCH, LeaderEpoch, TopicPartition
from barnabas.metadata.znodes import (
    NO_LEADER,
    BrokerRegistration,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
)
from barnabas.wire.steps import Steps, finish

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__barnabas_group_history"}
)

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A live broker: one that is registered."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    previous_epoch: int | None = None
    intact_since: int | None = None
    """As in its registration: what the controller needs to know of its past."""

    @classmethod
    def of(cls, registration: BrokerRegistration, epoch: int) -> "RegisteredBroker":
        return cls(
            registration.broker_id,
            epoch,
            registration.endpoints,
            registration.rack,
            registration.previous_epoch,
            registration.intact_since,
        )

    def is_intact_since(self, broker_epoch: int) -> bool:
        """Whether nothing is lost of what the broker had written in that earlier registration."""
        if self.previous_epoch is None or self.intact_since is None:
            return False
        return self.intact_since <= broker_epoch <= self.previous_epoch

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


class Partition(NamedTuple):
    """A partition's replicas, and who leads it. Without a state node yet it has no leader.

    A tuple, because there are tens of thousands: one is made in a fifteenth of the time that a frozen dataclass takes.
    """

    index: int  # type: ignore[assignment] # a tuple's method, which nobody needs here
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: LeaderEpoch = NO_EPOCH
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    """The version of the state node: a leader names it when it changes the ISR."""
    is_recovering: bool = False
    isr_epochs: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    elr_epochs: tuple[int, ...] = ()
    min_insync_replicas: int | None = None
    offline: tuple[int, ...] = ()
    offline_epochs: tuple[int, ...] = ()
    """These six as in the state node."""

    @classmethod
    def of(
        cls, index: int, assignment: "ReplicaAssignment | Partition", state: PartitionState | None, version: int = -1
    ) -> "Partition":
        """Without a state no broker leads it."""
        if state is None:
            return cls(index, assignment.replicas, assignment.adding, assignment.removing)
        return cls(
            index,
            assignment.replicas,
            assignment.adding,
            assignment.removing,
            state.leader,
            state.leader_epoch,
            state.isr,
            version,
            state.is_recovering,
            state.isr_epochs,
            state.elr,
            state.elr_epochs,
            state.min_insync_replicas,
            state.offline,
            state.offline_epochs,
        )

    def with_state(self, state: PartitionState | None, version: int = -1) -> "Partition":
        return Partition.of(self.index, self, state, version)

    def is_granted_to(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether this registration of the broker may lead it: a leadership ends with the registration."""
        if self.leader != broker_id or broker_id not in self.isr:
            return False
        place = self.isr.index(broker_id)
        return place < len(self.isr_epochs) and self.isr_epochs[place] == broker_epoch

    def is_offline_in(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the replica's log directory has failed, in this registration of the broker or in a later one."""
        return broker_id in self.offline and broker_epoch <= self.offline_epochs[self.offline.index(broker_id)]


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: UUID
    partitions: tuple[Partition, ...]
    """By number: partition 3 is `partitions[3]`."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    def with_partitions(self, changed: Iterable[Partition]) -> "Topic":
        partitions = list(self.partitions)
        for partition in changed:
            partitions[partition.index] = partition
        return replace(self, partitions=tuple(partitions))


@dataclass(frozen=True, slots=True)
class BrokerChanged:
    broker: RegisteredBroker


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """New, or different in any way; also one that was deleted and made again under another id."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Some partitions of a topic that is there, and stays the same otherwise."""

    name: str
    topic_id: UUID
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    name: str


@dataclass(frozen=True, slots=True)
class TopicConfigsChanged:
    """All that are set for the topic; none takes the entry away."""

    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BrokerConfigsChanged:
    """All that are set for the broker, or for every broker (None)."""

    broker_id: int | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    broker_id: int | None


Change: TypeAlias = (
    BrokerChanged
    | BrokerRemoved
    | TopicChanged
    | PartitionsChanged
    | TopicRemoved
    | TopicConfigsChanged
    | BrokerConfigsChanged
    | ControllerChanged
)


class _Origin(NamedTuple):
    """What the topics of an image were made of."""

    topics: Mapping[str, Topic]
    changed: Sequence[str]
    """The names of those that differ."""


@dataclass(frozen=True, slots=True)
class ClusterImage:
    controller_id: int | None = None
    brokers: Mapping[int, RegisteredBroker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, Topic] = field(default_factory=dict)
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_configs: Mapping[int | None, Mapping[str, str]] = field(default_factory=dict)
    origin: _Origin | None = field(default=None, compare=False, repr=False)

    def broker(self, broker_id: int) -> RegisteredBroker | None:
        return self.brokers.get(broker_id)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where clients of this listener find a broker; None when it is not alive or has no such listener."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoint(listener)

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> Partition | None:
        found = self.topics.get(topic)
        return None if found is None else found.partition(index)

    def topic_id_of(self, partition: TopicPartition, broker_id: int) -> UUID | None:
        """The topic's id, if it has the partition and the broker is one of its replicas."""
        topic = self.topics.get(partition.topic)
        found = None if topic is None else topic.partition(partition.partition)
        return topic.id if topic is not None and found is not None and broker_id in found.replicas else None

    def configs_of_topic(self, name: str) -> Mapping[str, str]:
        return self.topic_configs.get(name, _NOTHING)

    def configs_of_broker(self, broker_id: int | None) -> Mapping[str, str]:
        """None gives the defaults for every broker."""
        return self.broker_configs.get(broker_id, _NOTHING)

    def topics_changed_since(self, before: "ClusterImage") -> Sequence[str]:
        """The names of the topics that came, went or differ. It is a search only if that was not the image before."""
        if self.topics is before.topics:
            return ()
        if self.origin is not None and self.origin.topics is before.topics:
            return self.origin.changed
        names = {**before.topics, **self.topics}
        return [name for name in names if before.topics.get(name) is not self.topics.get(name)]

    def topics_gone_since(self, before: "ClusterImage") -> list[Topic]:
        """The topics that no longer exist, even if others have their names now."""
        pairs = ((before.topics.get(name), self.topics.get(name)) for name in self.topics_changed_since(before))
        return [old for old, new in pairs if old is not None and (new is None or new.id != old.id)]

    def apply(self, changes: Iterable[Change]) -> "ClusterImage":
        """The next image; this one when nothing is different."""
        return self.follow(changes)[0]

    def follow(self, changes: Iterable[Change]) -> tuple["ClusterImage", list[Change]]:
        """The next image, and what of the changes made a difference."""
        return finish(self.follow_in_steps(changes))

    def follow_in_steps(self, changes: Iterable[Change]) -> Steps[tuple["ClusterImage", list[Change]]]:
        """The same with a pause after each change."""
        draft = _Draft(self)
        made: list[Change] = []
        for change in changes:
            if (difference := draft.apply(change)) is not None:
                made.append(difference)
            yield
        return draft.image(), made

    def replaced_by(self, changes: Iterable[Change]) -> Steps["ClusterImage"]:
        """The image that these changes make of nothing, with a pause after each of them.

        What it has in common with this one stays the same object.
        """
        whole, _ = yield from ClusterImage().follow_in_steps(changes)
        gone: list[Change] = [BrokerRemoved(broker_id) for broker_id in self.brokers if broker_id not in whole.brokers]
        gone += [TopicRemoved(name) for name in self.topics if name not in whole.topics]
        gone += [TopicConfigsChanged(name, {}) for name in self.topic_configs if name not in whole.topic_configs]
        gone += [BrokerConfigsChanged(owner, {}) for owner in self.broker_configs if owner not in whole.broker_configs]
        image, _ = yield from self.follow_in_steps(chain(gone, whole.as_changes()))
        return image

    def as_changes(self) -> Iterator[Change]:
        """What makes this image of nothing."""
        yield ControllerChanged(self.controller_id)
        yield from map(BrokerChanged, self.brokers.values())
        yield from map(TopicChanged, self.topics.values())
        yield from (TopicConfigsChanged(name, configs) for name, configs in self.topic_configs.items())
        yield from (BrokerConfigsChanged(owner, configs) for owner, configs in self.broker_configs.items())

    def check_invariants(self) -> None:
        for topic_id, topic in self.topics_by_id.items():
            assert topic.id == topic_id
            assert self.topics[topic.name] is topic
        for name, topic in self.topics.items():
            assert topic.name == name
            assert topic.id in self.topics_by_id
            assert [partition.index for partition in topic.partitions] == list(range(len(topic.partitions)))
        assert all(broker.id == broker_id for broker_id, broker in self.brokers.items())
        assert all(self.topic_configs.values())
        assert all(self.broker_configs.values())


class _CopyOnWrite(Generic[_Key, _Value]):
    """A mapping that is copied at its first change."""

    __slots__ = ("_own", "before", "changed", "current")

    def __init__(self, before: Mapping[_Key, _Value]) -> None:
        self.before = self.current = before
        self.changed: dict[_Key, None] = {}
        self._own: dict[_Key, _Value] | None = None

    def put(self, key: _Key, value: _Value | None) -> bool:
        """None takes the entry away. Whether that made a difference."""
        if self.current.get(key) == value:
            return False
        if self._own is None:
            self.current = self._own = dict(self.current)
        self.changed[key] = None
        if value is None:
            del self._own[key]
        else:
            self._own[key] = value
        return True


class _Draft:
    """An image in the making."""

    __slots__ = ("_before", "broker_configs", "brokers", "controller_id", "topic_configs", "topics", "topics_by_id")

    def __init__(self, image: ClusterImage) -> None:
        self._before = image
        self.controller_id = image.controller_id
        self.brokers = _CopyOnWrite(image.brokers)
        self.topics = _CopyOnWrite(image.topics)
        self.topics_by_id = _CopyOnWrite(image.topics_by_id)
        self.topic_configs = _CopyOnWrite(image.topic_configs)
        self.broker_configs = _CopyOnWrite(image.broker_configs)

    def apply(self, change: Change) -> Change | None:
        """What of the change made a difference: of a topic that was known, the partitions that are others."""
        match change:
            case TopicChanged(topic):
                known = self.topics.current.get(topic.name)
                if known is None or known.id != topic.id or len(known.partitions) != len(topic.partitions):
                    return change if self._replace_topic(topic.name, topic) else None
                pairs = zip(known.partitions, topic.partitions, strict=True)
                changed = tuple([new for old, new in pairs if old != new])
                if not changed:
                    return None
                self._replace_topic(topic.name, known.with_partitions(changed))
                return PartitionsChanged(topic.name, topic.id, changed)
            case PartitionsChanged(name, topic_id, partitions):
                known = self.topics.current.get(name)
                if known is None or known.id != topic_id:
                    return None
                is_other = self._replace_topic(name, known.with_partitions(partitions))
            case TopicRemoved(name):
                is_other = self._replace_topic(name, None)
            case BrokerChanged(broker):
                is_other = self.brokers.put(broker.id, broker)
            case BrokerRemoved(broker_id):
                is_other = self.brokers.put(broker_id, None)
            case TopicConfigsChanged(name, configs):
                is_other = self.topic_configs.put(name, configs or None)
            case BrokerConfigsChanged(owner, configs):
                is_other = self.broker_configs.put(owner, configs or None)
            case ControllerChanged(controller_id):
                is_other = self.controller_id != controller_id
                self.controller_id = controller_id
        return change if is_other else None

    def image(self) -> ClusterImage:
        before = self._before
        image = ClusterImage(
            controller_id=self.controller_id,
            brokers=self.brokers.current,
            topics=self.topics.current,
            topics_by_id=self.topics_by_id.current,
            topic_configs=self.topic_configs.current,
            broker_configs=self.broker_configs.current,
            origin=_Origin(self.topics.before, list(self.topics.changed)) if self.topics.changed else before.origin,
        )
        is_same = self.controller_id == before.controller_id and all(
            getattr(image, name) is getattr(before, name)
            for name in ("brokers", "topics", "topic_configs", "broker_configs")
        )
        return before if is_same else image

    def _replace_topic(self, name: str, topic: Topic | None) -> bool:
        old = self.topics.current.get(name)
        if old == topic:
            return False
        self.topics.put(name, topic)
        # A name may come back with another id, and an id belongs to the last topic that had it.
        is_renumbered = old is not None and (topic is None or topic.id != old.id)
        if old is not None and is_renumbered and self.topics_by_id.current.get(old.id) is old:
            self.topics_by_id.put(old.id, None)
        if topic is not None:
            self.topics_by_id.put(topic.id, topic)
        return True
