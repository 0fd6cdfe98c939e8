"""A cluster's nodes, rebuilt from the log directories of its one broker. Pure. (`cluster_rebuild`: of several.)

| node | comes from |
|---|---|
| cluster id | `meta.properties` |
| topics, their ids and partitions | the partitions' directories and their `partition.metadata` |
| leader epochs | `leader-epoch-checkpoint`, plus one, to tell new records from the existing ones |
| `cleanup.policy` | `cleaner-offset-checkpoint` names the partitions that were compacted |
| producer ids | snapshots, and the clock: none that any producer has had is given out again |

No file holds the other settings of a topic. A topic whose settings are unknown keeps all its records
(`retention.ms=-1`, `retention.bytes=-1`): the defaults would delete records that were meant to stay.

A topic that was deleted may have left directories beside those of a later topic of the same name. The later one counts;
directories of the other are left out, so that the broker treats them as partitions that the cluster does not know.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_EPOCH, NO_PRODUCER, LeaderEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.base.uuid import new_uuid, uuid_text
from barnabas.metadata.paths import parent_of, with_parents
from barnabas.metadata.store import NO_OWNER, Create
from barnabas.metadata.tree import Draft, Tree, WriteContext
from barnabas.metadata.znodes import (
    CLUSTER_ID,
    NO_LEADER,
    PERSISTENT_PATHS,
    PRODUCER_ID_BLOCK,
    PRODUCER_ID_BLOCK_SIZE,
    ClusterId,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
    encode_configs,
    topic_config_path,
)

KEEP_EVERYTHING: Final = {"retention.ms": "-1", "retention.bytes": "-1"}

GIVEN_PRODUCER_ID_MAX: Final = 2**53
"""No broker has given out this many ids: a client that sends a higher one made it up."""

_MISSING_MAX: Final = 10_000
"""More than this is not a lost directory, but a partition number that no topic has had."""


class CannotRebuild(BarnabasError):  # noqa: N818 - a fact about directories, named as one
    """The directories contradict each other; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """What one partition's directory says."""

    name: TopicPartition
    topic_id: UUID | None
    """None when `partition.metadata` is missing or damaged."""
    created_ms: TimestampMs
    """When `partition.metadata` was written; 0 without it."""
    leader_epoch: LeaderEpoch
    """The newest one in the log's history."""
    path: str = ""


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """What all log directories of a broker say together."""

    cluster_id: str | None
    node_id: int
    partitions: Sequence[FoundPartition]
    compacted: frozenset[str] = frozenset()
    """Topics that were compacted at some time."""
    producer_id_max: ProducerId = NO_PRODUCER
    strays: Sequence[FoundPartition] = ()
    """What was set aside because the metadata did not have it."""


NO_CONTROLLER_EPOCH: Final = 0
"""In a state that no controller has written: nobody has led the partition since it was rebuilt."""


@dataclass(frozen=True, slots=True)
class RebuiltPartition:
    replicas: tuple[int, ...]
    """Nobody, when it was not found: it is offline then."""
    leader_epoch: LeaderEpoch

    @property
    def state(self) -> PartitionState:
        """Of several replicas nobody knows who has everything: the controller asks them, and the longest log leads."""
        if len(self.replicas) == 1:
            return PartitionState(self.replicas[0], self.leader_epoch, self.replicas, NO_CONTROLLER_EPOCH)
        return PartitionState(NO_LEADER, self.leader_epoch, (), NO_CONTROLLER_EPOCH)


@dataclass(frozen=True, slots=True)
class RebuiltTopic:
    name: str
    id: UUID
    partitions: Sequence[RebuiltPartition]
    configs: Mapping[str, str]

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def assignment(self) -> TopicAssignment:
        alike = {one.replicas: ReplicaAssignment(one.replicas) for one in self.partitions}
        return TopicAssignment(self.name, self.id, tuple([alike[one.replicas] for one in self.partitions]))

    def creates(self) -> Iterator[Create]:
        """All its nodes. The settings come first: what is left of a topic must not have those that delete records."""
        assignment = self.assignment
        yield Create(topic_config_path(self.name), encode_configs(self.configs))
        yield Create(assignment.path, assignment.encode())
        yield Create(TopicAssignment.partitions_path_of(self.name))
        for index in range(self.partition_count):
            yield from self.partition_creates(index)

    def partition_creates(self, index: int) -> Iterator[Create]:
        path = PartitionState.path_of(self.name, index)
        yield Create(parent_of(path))
        yield Create(path, self.partitions[index].state.encode())


@dataclass(slots=True)
class RebuiltMetadata:
    tree: Tree
    cluster_id: str
    topics: list[RebuiltTopic] = field(default_factory=list)
    missing: list[TopicPartition] = field(default_factory=list)
    """Partitions that must have existed, because later ones do. The broker will make them, empty."""
    left_out: list[TopicPartition] = field(default_factory=list)
    """Directories of an earlier topic of the same name."""
    new_ids: list[str] = field(default_factory=list)
    """Topics that got a new id, because none of their directories has one."""
    guessed: list[str] = field(default_factory=list)
    """Topics whose settings are not known."""


def rebuild_metadata(
    found: FoundLogs, known_configs: Mapping[str, Mapping[str, str]], source: random.Random, now_ms: TimestampMs
) -> RebuiltMetadata:
    """`known_configs` has the settings, by topic, of those topics whose settings the caller knows."""
    cluster_id = found.cluster_id or uuid_text(new_uuid(source))
    rebuilt = RebuiltMetadata(Tree(), cluster_id)
    creates = [Create(path) for path in with_parents(PERSISTENT_PATHS) if path != PRODUCER_ID_BLOCK]
    creates.append(Create(CLUSTER_ID, ClusterId.encode(cluster_id)))
    block = used_producer_ids(found.node_id, found.producer_id_max, now_ms)
    creates.append(Create(PRODUCER_ID_BLOCK, block.encode()))
    for name, partitions in by_topic(found.partitions).items():
        topic = _topic(rebuilt, found, name, partitions, known_configs.get(name), source)
        rebuilt.topics.append(topic)
        creates += topic.creates()
    draft = Draft(rebuilt.tree)
    # Positions never come back, so they go on above any that the lost store can have come to by counting writes.
    draft.run(creates, WriteContext(now_ms, now_ms, NO_OWNER))
    draft.merge()
    return rebuilt


def by_topic(partitions: Iterable[FoundPartition]) -> dict[str, list[FoundPartition]]:
    """In the order of their names and numbers."""
    topics: dict[str, list[FoundPartition]] = {}
    for partition in sorted(partitions, key=lambda one: one.name):
        topics.setdefault(partition.name.topic, []).append(partition)
    return topics


def used_producer_ids(node_id: int, id_max: ProducerId, now_ms: TimestampMs) -> ProducerIdBlock:
    """Ids are given out at less than one a millisecond, so the time is above all of them; unless the clock is wrong."""
    first_free = max(id_max + 1, now_ms)
    last = first_free + -first_free % PRODUCER_ID_BLOCK_SIZE + PRODUCER_ID_BLOCK_SIZE - 1
    return ProducerIdBlock(node_id, last - PRODUCER_ID_BLOCK_SIZE + 1, last)


def guessed_configs(*, was_compacted: bool) -> Mapping[str, str]:
    """Of a topic whose settings are not known."""
    return {"cleanup.policy": "compact", **KEEP_EVERYTHING} if was_compacted else KEEP_EVERYTHING


def check_partition_count(topic: str, count: int, found: int) -> None:
    if count - found > _MISSING_MAX:
        raise CannotRebuild(
            f"{topic}-{count - 1} was found, but only {found} of the {count} partitions that the topic must then "
            "have; if a log directory is missing, give it too, else move that partition's directory elsewhere"
        )


def _topic(
    rebuilt: RebuiltMetadata,
    found: FoundLogs,
    topic: str,
    partitions: Sequence[FoundPartition],
    known_configs: Mapping[str, str] | None,
    source: random.Random,
) -> RebuiltTopic:
    newest = max(partitions, key=lambda one: (one.topic_id is not None, one.created_ms))
    topic_id = newest.topic_id
    if topic_id is None:
        topic_id = new_uuid(source)
        rebuilt.new_ids.append(topic)
    epochs = {one.name.partition: one.leader_epoch for one in partitions if one.topic_id in (None, topic_id)}
    rebuilt.left_out += [one.name for one in partitions if one.name.partition not in epochs]
    count = max(epochs) + 1
    check_partition_count(topic, count, len(epochs))
    rebuilt.missing += [TopicPartition(topic, index) for index in range(count) if index not in epochs]
    configs = known_configs
    if configs is None:
        rebuilt.guessed.append(topic)
        configs = guessed_configs(was_compacted=topic in found.compacted)
    replicas = (found.node_id,)
    made = [RebuiltPartition(replicas, epochs.get(index, NO_EPOCH) + 1) for index in range(count)]
    return RebuiltTopic(topic, topic_id, made, configs)
