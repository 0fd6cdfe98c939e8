"""Creates, grows and deletes topics: the controller's writes to the store, which reach brokers through their watches.

Each operation is one conditional `multi`, so two callers who race cannot both win, and a crash leaves all or nothing of
it. Only a topic with more than 250 partitions needs several, each of which takes the event loop a few milliseconds (and
a `multi` of ZooKeeper has to fit into 1 MiB):

- created, its first `multi` has the topic and as many partitions as fit; the rest has no leader until its own one;
- deleted, it is first marked in `/admin/delete_topics`, and counts as gone from then on.

The id of a deleted topic is remembered as long as brokers may have files of it (`barnabas.metadata.deletions`).

`finish_interrupted` completes both after a crash. The leader of a new partition is its first replica, in epoch 0, and
all replicas that are registered are in sync: they are equally empty.

Mistakes of the caller raise `KafkaError`. The caller checks configs before passing them in.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID

from barnabas.base.ids import TopicPartition, topic_name_problem
from barnabas.base.texts import shortened
from barnabas.base.uuid import new_uuid
from barnabas.controller.controllership import Controllership
from barnabas.controller.placement import Replicas, assigned_replicas, check_count, place_replicas
from barnabas.controller.replication_rules import RulesOf, default_rules
from barnabas.metadata.deletions import DeletedTopic
from barnabas.metadata.errors import BadVersion, NodeExists, NoNode, NotEmpty
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.paths import parent_of
from barnabas.metadata.store import Create, Delete, MetadataStore, Operation, SetData
from barnabas.metadata.znodes import (
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    encode_configs,
    topic_config_path,
)
from barnabas.metadata.znodes_admin import DELETE_TOPICS, delete_topic_path
from barnabas.wire.errors import ErrorCode, KafkaError

_PARTITIONS_TOGETHER_MAX: Final = 250
_ATTEMPTS_MAX: Final = 16
_LOOKED_AT_TOGETHER: Final = 1000

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that could be created: all that is left to do is to write it."""

    assignment: TopicAssignment
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicWriter:
    def __init__(
        self,
        controllership: Controllership,
        source: random.Random,
        current_image: Callable[[], ClusterImage] = ClusterImage,
        rules_of: RulesOf = default_rules,
    ) -> None:
        """`current_image` tells by which registrations the replicas of a new partition are in sync."""
        self._controllership = controllership
        self._current_image = current_image
        self._rules_of = rules_of
        self._store: MetadataStore = controllership.store
        self._random = source
        self._alike: tuple[ClusterImage, dict[str, str]] = ClusterImage(), {}

    def plan(
        self,
        image: ClusterImage,
        name: str,
        partition_count: int,
        replication_factor: int,
        configs: Mapping[str, str] | None = None,
    ) -> TopicPlan:
        """A new topic with its partitions spread over the live brokers. Writes nothing."""
        self._check_name(image, name)
        brokers = sorted(image.brokers)
        start, shift = (self._random.randrange(max(1, len(brokers))) for _ in range(2))
        placed = place_replicas(brokers, partition_count, replication_factor, start=start, shift=shift)
        return self._plan(name, placed, configs)

    def plan_assigned(
        self,
        image: ClusterImage,
        name: str,
        assignments: Mapping[int, Sequence[int]],
        configs: Mapping[str, str] | None = None,
    ) -> TopicPlan:
        """A new topic with the replicas that somebody asked for. Writes nothing."""
        self._check_name(image, name)
        return self._plan(name, assigned_replicas(assignments, sorted(image.brokers)), configs)

    def _plan(self, name: str, placed: Iterable[Replicas], configs: Mapping[str, str] | None) -> TopicPlan:
        return TopicPlan(TopicAssignment(name, new_uuid(self._random), _assignments(placed)), dict(configs or {}))

    def _check_name(self, image: ClusterImage, name: str) -> None:
        if (problem := topic_name_problem(name)) is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name in image.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' exists already")
        # Names of metrics cannot tell the two apart.
        if ("." in name or "_" in name) and (other := self._names_alike(image).get(alike_name(name))) is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"topic '{name}' collides with '{other}': '.' and '_' count as the same",
            )

    def _names_alike(self, image: ClusterImage) -> dict[str, str]:
        """The topics of an image by what is left of their names; worked out once for each image."""
        known, names = self._alike
        if known is not image:
            names = {alike_name(name): name for name in image.topics}
            self._alike = image, names
        return names

    async def create(self, plan: TopicPlan) -> None:
        topic = plan.assignment
        partitions_path = TopicAssignment.partitions_path_of(topic.topic)
        await asyncio.sleep(0)  # planning may have taken as long as one turn of the event loop should
        groups = self._new_states(topic, 0, plan.configs)
        first, data = next(groups), topic.encode()
        for _ in range(_ATTEMPTS_MAX):
            if await self._store.exists(topic.path) is not None:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{topic.topic}' exists already")
            operations = [
                Create(topic.path, data),
                Create(partitions_path),
                await self._put(topic_config_path(topic.topic), encode_configs(plan.configs)),
            ]
            try:
                await self._controllership.multi([*operations, *first])
            except (NodeExists, NoNode):  # a racing caller: look again
                continue
            break
        else:
            raise too_busy(topic.topic)
        for states in groups:
            await self._controllership.multi(states)

    async def delete(self, name: str, topic_id: UUID | None = None) -> None:
        """Deletes the topic of this name; with an id, only if it is still the one."""
        for _ in range(_ATTEMPTS_MAX):
            topic, version = await read_assignment(self._store, name)
            if topic_id not in (None, topic.topic_id):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic '{name}' now has a different id")
            try:
                await self._delete(topic, version)
            except (BadVersion, NoNode, NodeExists, NotEmpty):
                continue
            return
        raise too_busy(name)

    async def add_partitions(
        self,
        image: ClusterImage,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicAssignment:
        """Makes the topic `count` partitions long; `assignments` says where the new ones go."""
        for _ in range(_ATTEMPTS_MAX):
            topic, version = await read_assignment(self._store, name)
            grown = _grown(topic, sorted(image.brokers), count, assignments)
            if validate_only:
                return grown
            await asyncio.sleep(0)  # planning may have taken as long as one turn of the event loop should
            groups = self._new_states(grown, len(topic.partitions), self._current_image().configs_of_topic(name))
            try:
                await self._controllership.multi([SetData(topic.path, grown.encode(), version), *next(groups)])
            except (BadVersion, NoNode):
                continue
            for states in groups:
                await self._controllership.multi(states)
            return grown
        raise too_busy(name)

    async def finish_interrupted(self, image: ClusterImage) -> None:
        """Completes what a crash left half done: marked topics are deleted, partitions without a state get one."""
        for name in await self._store.children(DELETE_TOPICS):
            try:
                await self.delete(name)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                await self._controllership.multi([Delete(delete_topic_path(name))])
        partitions = ((topic.name, one) for topic in image.topics.values() for one in topic.partitions)
        for looked_at, (name, one) in enumerate(partitions, 1):
            if looked_at % _LOOKED_AT_TOGETHER == 0:
                await asyncio.sleep(0)
            if one.partition_epoch < 0 and await self._store.exists(PartitionState.path_of(name, one.index)) is None:
                await self._add_state(TopicPartition(name, one.index), one.replicas, image.configs_of_topic(name))

    async def _add_state(self, partition: TopicPartition, replicas: Replicas, configs: Mapping[str, str]) -> None:
        state_path = PartitionState.path_of(*partition)
        missing = [state_path]
        while await self._store.exists(parent_of(missing[-1])) is None:
            missing.append(parent_of(missing[-1]))
        folders = [Create(path) for path in reversed(missing[1:])]
        await self._controllership.multi([*folders, Create(state_path, self._new_state(replicas, configs).encode())])

    async def _delete(self, topic: TopicAssignment, version: int) -> None:
        marker = delete_topic_path(topic.topic)
        partitions_path = TopicAssignment.partitions_path_of(topic.topic)
        has_partitions = await self._store.exists(partitions_path) is not None
        numbers = await self._store.children(partitions_path) if has_partitions else []
        *groups, last = _together([f"{partitions_path}/{number}" for number in numbers])
        if groups and await self._store.exists(marker) is None:
            await self._controllership.multi([Create(marker), *await self._remember(topic)])
        for folders in groups:
            await self._controllership.multi(await self._deletes(folders))
        others = [
            path
            for path in (partitions_path, topic_config_path(topic.topic), marker)
            if await self._store.exists(path) is not None
        ]
        deletes = [*await self._deletes(last), *(Delete(path) for path in others)]
        await self._controllership.multi([*deletes, Delete(topic.path, version), *await self._remember(topic)])

    async def _deletes(self, folders: Sequence[str]) -> list[Operation]:
        """The end of partitions: of their states, where they have one, and of their folders."""
        states = await self._store.get_many([f"{folder}/state" for folder in folders])
        operations: list[Operation] = []
        for folder, state in zip(folders, states, strict=True):
            if state is not None:
                operations.append(Delete(f"{folder}/state"))
            operations.append(Delete(folder))
        return operations

    async def _remember(self, topic: TopicAssignment) -> list[Operation]:
        """In the same write as what makes the topic count as gone: brokers remove only what they find there."""
        deleted = DeletedTopic.of(topic)
        return [] if await self._store.exists(deleted.path) else [Create(deleted.path, deleted.encode())]

    async def _put(self, path: str, data: bytes) -> Operation:
        """Overwrites what an earlier topic of this name may have left."""
        return Create(path, data) if await self._store.exists(path) is None else SetData(path, data)

    def _new_states(
        self, topic: TopicAssignment, first_partition: int, configs: Mapping[str, str]
    ) -> Iterator[list[Operation]]:
        """The nodes of new partitions, in groups that fit into a `multi`; at least one group."""
        alike: dict[Replicas, bytes] = {}
        for indexes in _together(range(first_partition, len(topic.partitions))):
            operations: list[Operation] = []
            for index in indexes:
                replicas = topic.partitions[index].replicas
                if replicas not in alike:
                    alike[replicas] = self._new_state(replicas, configs).encode()
                path = PartitionState.path_of(topic.topic, index)
                operations.append(Create(parent_of(path)))
                operations.append(Create(path, alike[replicas]))
            yield operations

    def _new_state(self, replicas: Replicas, configs: Mapping[str, str]) -> PartitionState:
        """Of a topic with these configs. A broker that is gone since the replicas were placed is not in sync."""
        image = self._current_image()
        isr = tuple([one for one in replicas if one in image.brokers])
        return PartitionState(
            isr[0] if isr else replicas[0],
            0,
            isr or replicas,
            self._controllership.epoch,
            isr_epochs=tuple([image.brokers[one].epoch for one in isr]),
            min_insync_replicas=max(1, min(self._rules_of(image, configs).min_insync_replicas, len(replicas))),
        )


async def read_assignment(store: MetadataStore, name: str) -> tuple[TopicAssignment, int]:
    """Of a topic as it is now, with the version to write over. UNKNOWN_TOPIC_OR_PARTITION when there is none."""
    node = None
    if topic_name_problem(name) is None:  # nothing else is part of a path
        [node] = await store.get_many([TopicAssignment.path_of(name)])
    if node is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{shortened(name)}'")
    return TopicAssignment.decode(name, node.data), node.stat.version


def alike_name(name: str) -> str:
    """What is left of a topic's name in those of metrics: two topics must not have it in common."""
    return name.replace(".", "_")


def _assignments(placed: Iterable[Replicas]) -> tuple[ReplicaAssignment, ...]:
    alike: dict[Replicas, ReplicaAssignment] = {}
    return tuple([alike.get(one) or alike.setdefault(one, ReplicaAssignment(one)) for one in placed])


def _grown(
    topic: TopicAssignment, broker_ids: list[int], count: int, assignments: Sequence[Sequence[int]] | None
) -> TopicAssignment:
    have = len(topic.partitions)
    if count <= have:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"the partition count of topic '{topic.topic}' is {have}; {count} would not add any",
        )
    check_count(count - have)
    replicas = next((one.replicas for one in topic.partitions if one.replicas), ())  # a lost partition has none
    factor = max(1, len(replicas))
    if assignments is None:
        # Goes on where the topic's first partition says that placing began.
        start = broker_ids.index(replicas[0]) if replicas and replicas[0] in broker_ids else 0
        placed = place_replicas(broker_ids, count - have, factor, start=start, shift=start, first_partition=have)
    elif len(assignments) != count - have:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{count - have} new partitions need as many assignments, not {len(assignments)}",
        )
    else:
        numbered = dict(enumerate(assignments, have))
        placed = assigned_replicas(numbered, broker_ids, first_partition=have, replication_factor=factor)
    return TopicAssignment(topic.topic, topic.topic_id, topic.partitions + _assignments(placed))


def _together(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    """At least one group, if only an empty one."""
    size = _PARTITIONS_TOGETHER_MAX
    return [items[start : start + size] for start in range(0, max(1, len(items)), size)]


def too_busy(name: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"topic '{name}' was changed by others at the same time: try again")
