"""Topics of a cluster whose ZooKeeper has lost them, from what its brokers' log directories say. Pure.

Brokers may be on several machines, so not all of them need to be there at once: what is found is added to what the
store has. The rules of `barnabas.metadata.rebuild` hold, and besides:

| found | becomes |
|---|---|
| a topic that the store does not have | a new one, with its id |
| a partition of a topic that the store has with the same id | added to it, with the next leader epoch |
| a partition that the store has on this broker | left as it is; its leader epoch is raised to that of the log |
| a partition on several brokers | replicas: the controller asks them all, and the longest log leads |
| a partition that was not found, though later ones of its topic were | offline, with no replica, until it is found |
| a stray log | as if it were not set aside, where nothing contradicts; else it stays stray |
| a log of a topic that the store records as deleted | nothing: its broker will remove it |

Where the directories contradict each other, nothing is guessed: a topic with two ids needs a choice (`chosen_ids`). A
replica that turns up when the others are led already is refused: it may have what they cut off.
"""

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from uuid import UUID

from barnabas.base.ids import NO_EPOCH, TimestampMs, TopicPartition
from barnabas.base.uuid import new_uuid, uuid_text
from barnabas.base.wording import first_few
from barnabas.metadata.rebuild import (
    NO_CONTROLLER_EPOCH,
    CannotRebuild,
    FoundLogs,
    FoundPartition,
    RebuiltPartition,
    RebuiltTopic,
    by_topic,
    check_partition_count,
    guessed_configs,
    used_producer_ids,
)
from barnabas.metadata.store import Create, Operation, SetData
from barnabas.metadata.znodes import (
    BROKER_SEQUENCE,
    PRODUCER_ID_BLOCK,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    topic_config_path,
)

_IDS_GENERATED_MAX: Final = 10_000
"""More brokers without an id of their own no cluster has had: the number is somebody's choice."""


@dataclass(frozen=True, slots=True)
class PresentTopic:
    """A topic that the store has."""

    assignment: TopicAssignment
    version: int
    states: Mapping[int, tuple[PartitionState, int]]
    """By partition, with the versions of their nodes; those that are missing are left out."""


@dataclass(frozen=True, slots=True)
class PresentCluster:
    """What the store has."""

    cluster_id: str | None = None
    topics: Mapping[str, PresentTopic] = field(default_factory=dict)
    configured: frozenset[str] = frozenset()
    """Names with configs of a topic, which may be there without it."""
    deleted_ids: frozenset[UUID] = frozenset()
    producer_ids: ProducerIdBlock | None = None
    broker_ids_generated: int = 0


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    chosen_ids: Mapping[str, UUID] = field(default_factory=dict)
    """Of topics for which several were found."""
    known_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    allow_missing: bool = False
    """Whether partitions that were not found are created, empty, on the brokers that are given."""
    reserved_broker_id_max: int = 1000


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One topic, as it will be, and what is written for that."""

    topic: RebuiltTopic
    is_new: bool
    found: int
    """Partitions whose logs were found."""
    added: int
    """Partitions that get their replica."""
    raised: int
    """Partitions whose leader epoch is raised."""
    operations: Sequence[Operation]


@dataclass(slots=True)
class ClusterRebuild:
    """What will be written, and what a person should know about it."""

    sets_cluster_id: bool
    """Whether the store is not that of the cluster yet."""
    topics: list[TopicChange] = field(default_factory=list)
    others: list[Operation] = field(default_factory=list)
    """Of nodes that are not a topic's."""
    missing: list[TopicPartition] = field(default_factory=list)
    """Offline, because nobody was found to have them."""
    emptied: list[TopicPartition] = field(default_factory=list)
    """Created empty."""
    revived: list[str] = field(default_factory=list)
    """Paths of stray logs that will be served again."""
    strays: list[str] = field(default_factory=list)
    """Paths of those that stay stray."""
    deleted: list[str] = field(default_factory=list)
    """Paths of logs whose topics were deleted."""
    left_out: list[str] = field(default_factory=list)
    """Paths of logs of another topic of the same name than the chosen one."""
    new_ids: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    """Topics whose settings are not known."""

    @property
    def operations(self) -> Iterator[Operation]:
        yield from self.others
        for change in self.topics:
            yield from change.operations


@dataclass(frozen=True, slots=True)
class _Holder:
    """A partition on a broker."""

    node_id: int
    found: FoundPartition
    is_stray: bool = False

    def __str__(self) -> str:
        return f"{self.found.path} (broker {self.node_id}, newest leader epoch {self.found.leader_epoch})"


_Places: TypeAlias = dict[int, dict[int, _Holder]]
"""Who has which partition: by its number, by broker."""


def plan_cluster_rebuild(
    brokers: Sequence[FoundLogs],
    present: PresentCluster,
    options: RebuildOptions,
    source: random.Random,
    now_ms: TimestampMs,
) -> ClusterRebuild:
    """`CannotRebuild` where the directories contradict each other, or the store."""
    _require_distinct(brokers)
    plan = ClusterRebuild(sets_cluster_id=present.cluster_id != brokers[0].cluster_id)
    holders: dict[str, list[_Holder]] = {}
    for one in brokers:
        for is_stray, logs in ((False, one.partitions), (True, one.strays)):
            for name, partitions in by_topic(logs).items():
                holders.setdefault(name, []).extend(_Holder(one.node_id, found, is_stray) for found in partitions)
    compacted = frozenset().union(*(one.compacted for one in brokers))
    if unknown := sorted(name for name in options.chosen_ids if name not in holders):
        raise CannotRebuild(f"--topic-id names topics of which no log was found: {first_few(unknown)}")
    for name in sorted({*holders, *present.topics}):
        planning = _TopicPlanning(plan, present, options, name, present.topics.get(name))
        served, aside = planning.sort(holders.get(name, ()))
        topic_id = planning.id_of(served, aside)
        if topic_id is None and not served:
            plan.strays += [one.found.path for one in aside]
            continue
        if topic_id is None:
            topic_id = new_uuid(source)
            plan.new_ids.append(name)
        places = planning.place(topic_id, served, aside)
        if places or planning.present is not None:
            spare = [one.node_id for one in brokers] if options.allow_missing else []
            plan.topics.append(planning.change(topic_id, places, spare, was_compacted=name in compacted))
    plan.others += _counters(brokers, present, options, now_ms)
    return plan


def _require_distinct(brokers: Sequence[FoundLogs]) -> None:
    known: set[int] = set()
    for one in brokers:
        if one.node_id in known:
            raise CannotRebuild(
                f"two of the brokers have the id {one.node_id}: give the directories of one only, or correct "
                "meta.properties"
            )
        known.add(one.node_id)


def _counters(
    brokers: Sequence[FoundLogs], present: PresentCluster, options: RebuildOptions, now_ms: TimestampMs
) -> Iterator[Operation]:
    """What never gives a number twice must go on above all that were given."""
    id_max = max(one.producer_id_max for one in brokers)
    if present.producer_ids is None or present.producer_ids.last < id_max:
        yield SetData(PRODUCER_ID_BLOCK, used_producer_ids(brokers[0].node_id, id_max, now_ms).encode())
    generated = max(one.node_id for one in brokers) - options.reserved_broker_id_max
    if generated <= _IDS_GENERATED_MAX:
        yield from [SetData(BROKER_SEQUENCE, b"")] * (generated - present.broker_ids_generated)


@dataclass(frozen=True, slots=True)
class _TopicPlanning:
    """The decisions about one topic name."""

    plan: ClusterRebuild
    cluster: PresentCluster
    options: RebuildOptions
    name: str
    present: PresentTopic | None

    def sort(self, holders: Iterable[_Holder]) -> tuple[list[_Holder], list[_Holder]]:
        """What is served, and what is set aside; without what belongs to deleted topics."""
        served: list[_Holder] = []
        aside: list[_Holder] = []
        for one in holders:
            if one.found.topic_id in self.cluster.deleted_ids:
                self.plan.deleted.append(one.found.path)
            else:
                (aside if one.is_stray else served).append(one)
        return served, aside

    def id_of(self, served: Sequence[_Holder], aside: Sequence[_Holder]) -> UUID | None:
        """The topic's id; None when nobody has one. Stray logs are asked only where nobody else knows."""
        present_id = None if self.present is None else self.present.assignment.topic_id
        chosen = self.options.chosen_ids.get(self.name)
        if chosen is not None:
            if present_id not in (None, chosen):
                raise CannotRebuild(
                    f"the metadata store has topic {self.name} with the id {uuid_text(_known(present_id))}, so "
                    f"{uuid_text(chosen)} cannot be chosen"
                )
            if all(one.found.topic_id != chosen for one in (*served, *aside)) and present_id is None:
                raise CannotRebuild(f"no log of topic {self.name} has the id {uuid_text(chosen)}")
            return chosen
        ids = {one.found.topic_id: None for one in served if one.found.topic_id is not None}
        if present_id is not None:
            ids.setdefault(present_id)
        if len(ids) > 1:
            raise CannotRebuild(self._two_ids(served, present_id))
        if not ids:
            aside_ids = {one.found.topic_id for one in aside if one.found.topic_id is not None}
            ids = dict.fromkeys(aside_ids) if len(aside_ids) == 1 else {}
        return next(iter(ids), None)

    def _two_ids(self, served: Sequence[_Holder], present_id: UUID | None) -> str:
        places: dict[UUID, list[object]] = {} if present_id is None else {present_id: ["the metadata store"]}
        for one in served:
            if one.found.topic_id is not None:
                places.setdefault(one.found.topic_id, []).append(one)
        described = "; ".join(f"{uuid_text(topic_id)} in {first_few(where)}" for topic_id, where in places.items())
        best = uuid_text(next(iter(places)))
        return (
            f"topic {self.name} has several ids: {described}. It was deleted and created again while a broker was "
            f"down, so only one is right: choose it with --topic-id {self.name}={best}; logs with another id are kept, "
            "but not served"
        )

    def place(self, topic_id: UUID, served: Sequence[_Holder], aside: Sequence[_Holder]) -> _Places:
        """Who has which partition. Notes what is left out."""
        places: _Places = {}
        for one in served:
            if one.found.topic_id not in (None, topic_id):
                self.plan.left_out.append(one.found.path)
                continue
            self._require_place(one)
            places.setdefault(one.found.name.partition, {})[one.node_id] = one
        served_places = frozenset(places)
        for one in aside:
            index = one.found.name.partition
            is_taken = index in served_places or one.node_id in places.get(index, {})
            is_free = not is_taken and (not self._assigned(index) or one.node_id in self._assigned(index))
            if one.found.topic_id == topic_id and is_free:
                places.setdefault(index, {})[one.node_id] = one
                self.plan.revived.append(one.found.path)
            else:
                self.plan.strays.append(one.found.path)
        return places

    def _require_place(self, one: _Holder) -> None:
        index = one.found.name.partition
        replicas, state = self._assigned(index), self._state(index)
        was_led = state is not None and state.controller_epoch != NO_CONTROLLER_EPOCH
        if replicas and one.node_id not in replicas and was_led:
            raise CannotRebuild(
                f"{one.found.name} is in {one}, but the metadata store has it on broker {first_few(replicas)}, and it "
                "was led there since; look into both with 'barnabas log dump', and move the one that is not wanted "
                "elsewhere"
            )

    def _state(self, index: int) -> PartitionState | None:
        """Of the partition in the store."""
        known = None if self.present is None else self.present.states.get(index)
        return None if known is None else known[0]

    def _assigned(self, index: int) -> tuple[int, ...]:
        """Who has the partition for the store."""
        if self.present is None or index >= len(self.present.assignment.partitions):
            return ()
        return self.present.assignment.partitions[index].replicas

    def change(self, topic_id: UUID, places: _Places, spare: Sequence[int], *, was_compacted: bool) -> TopicChange:
        """`spare` are the brokers on which partitions that nobody has are created."""
        present_count = 0 if self.present is None else len(self.present.assignment.partitions)
        count = max([present_count, *(index + 1 for index in places)])
        check_partition_count(self.name, count, len(places) + present_count)
        partitions = []
        for index in range(count):
            replicas, epoch = self._assigned(index), self._epoch(index, places)
            if index in places:
                replicas = _with_holders(replicas, places[index], index)
            elif not replicas and spare:
                replicas = (spare[index % len(spare)],)
                self.plan.emptied.append(TopicPartition(self.name, index))
            elif not replicas:
                self.plan.missing.append(TopicPartition(self.name, index))
            partitions.append(RebuiltPartition(replicas, epoch))
        configs = self.options.known_configs.get(self.name)
        if configs is None:
            configs = guessed_configs(was_compacted=was_compacted)
        topic = RebuiltTopic(self.name, topic_id, partitions, configs)
        if self.present is None:
            return self._new(topic, len(places))
        return self._changed(topic, self.present, len(places))

    def _epoch(self, index: int, places: _Places) -> int:
        """At least that of the logs, which the leader's next one is above; of a new state one more."""
        state, holders = self._state(index), places.get(index, {}).values()
        in_logs = max([one.found.leader_epoch for one in holders], default=NO_EPOCH)
        return state.leader_epoch if state is not None and state.leader_epoch >= in_logs else in_logs + 1

    def _new(self, topic: RebuiltTopic, found: int) -> TopicChange:
        creates = list(topic.creates())
        if self.name in self.cluster.configured:
            creates = [one for one in creates if one.path != topic_config_path(self.name)]
        elif self.name not in self.options.known_configs:
            self.plan.guessed.append(self.name)
        added = sum(bool(one.replicas) for one in topic.partitions)
        return TopicChange(topic, is_new=True, found=found, added=added, raised=0, operations=creates)

    def _changed(self, topic: RebuiltTopic, present: PresentTopic, found: int) -> TopicChange:
        operations: list[Operation] = []
        if len(present.states) < topic.partition_count:
            operations.append(Create(TopicAssignment.partitions_path_of(self.name)))
        replicas = list(present.assignment.partitions)
        added = raised = 0
        for index, partition in enumerate(topic.partitions):
            known = present.states.get(index)
            has_new_replicas = partition.replicas != self._assigned(index)
            added += has_new_replicas
            if index == len(replicas):
                replicas.append(ReplicaAssignment(partition.replicas))
            elif has_new_replicas:
                replicas[index] = ReplicaAssignment(partition.replicas)
            if known is None:
                operations += topic.partition_creates(index)
                continue
            state, version = known
            path = PartitionState.path_of(self.name, index)
            if has_new_replicas:
                operations.append(SetData(path, partition.state.encode(), version))
            elif state.leader_epoch < partition.leader_epoch:
                raised += 1
                higher = replace(
                    state,
                    leader_epoch=partition.leader_epoch,
                    isr_epochs=(),
                    elr=(),
                    elr_epochs=(),
                    offline=(),
                    offline_epochs=(),
                )
                operations.append(SetData(path, higher.encode(), version))
        assignment = replace(present.assignment, partitions=tuple(replicas))
        if assignment != present.assignment:  # last: a partition is one when it has a state
            operations.append(SetData(assignment.path, assignment.encode(), present.version))
        return TopicChange(topic, is_new=False, found=found, added=added, raised=raised, operations=operations)


def _with_holders(replicas: tuple[int, ...], holders: Collection[int], index: int) -> tuple[int, ...]:
    """Those that the store has, and those that were found. First leaders of a topic go round its brokers."""
    others = sorted(one for one in holders if one not in replicas)
    first = 0 if replicas else index % len(others)
    return (*replicas, *others[first:], *others[:first])


def _known(topic_id: UUID | None) -> UUID:
    assert topic_id is not None
    return topic_id
