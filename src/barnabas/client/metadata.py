"""What a client knows of a cluster: brokers, topics, and who leads which partition. Pure; every change is a new view.

Each Metadata reply adds to a view (`merged`), and Produce and Fetch replies that report a moved leader correct it
(`with_leader`, KIP-951). It may be out of date at any time: the brokers' answers decide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import ZERO_UUID
from barnabas.client.errors import UnknownTopic
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import LeaderAndEpoch, NodeEndpoint
from barnabas.wire.messages import Message

NO_NODE: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: UUID
    """Zero where the broker is too old to have ids."""
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]
    """In the order of their indexes."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    cluster_id: str | None = None
    controller_id: int = NO_NODE
    brokers: Mapping[int, NodeEndpoint] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    problems: Mapping[str, ErrorCode] = field(default_factory=dict)
    """Why a topic that was asked for is not among the topics."""

    def topic(self, name: str) -> TopicMetadata:
        """UnknownTopic when it is not in this view, or the error that the broker gave for it."""
        topic = self.topics.get(name)
        if topic is not None:
            return topic
        problem = self.problems.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if problem == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(f"topic '{name}' does not exist")
        raise KafkaError(problem, f"topic '{name}' cannot be used")

    def partition(self, partition: TopicPartition) -> PartitionMetadata:
        """UnknownTopic when it is not in this view."""
        topic = self.topic(partition.topic)
        if not 0 <= partition.partition < len(topic.partitions):
            count = len(topic.partitions)
            raise UnknownTopic(f"topic '{topic.name}' has partitions 0 to {count - 1}, not {partition.partition}")
        return topic.partitions[partition.partition]

    def leader(self, partition: TopicPartition) -> PartitionMetadata:
        """The partition with a leader that can be reached; LEADER_NOT_AVAILABLE while there is none."""
        metadata = self.partition(partition)
        if metadata.leader_id not in self.brokers:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return metadata

    def merged(self, reply: Message, asked: Sequence[str] | None) -> "ClusterView":
        """With the brokers of a Metadata reply and its topics; those that were asked for and are not there go.

        `asked` is None when all topics were asked for.
        """
        known = {} if asked is None else {name: topic for name, topic in self.topics.items() if name not in asked}
        problems = {}
        for topic in reply.topics:
            if topic.error_code.value == ErrorCode.NONE:
                known[topic.name] = _topic(topic)
            else:
                problems[topic.name] = ErrorCode.of(topic.error_code.value)
        brokers = {
            broker.node_id: NodeEndpoint(broker.node_id, broker.host, broker.port, getattr(broker, "rack", None))
            for broker in reply.brokers
        }
        return ClusterView(
            getattr(reply, "cluster_id", None) or self.cluster_id,
            getattr(reply, "controller_id", NO_NODE),
            brokers,
            known,
            problems,
        )

    def with_leader(
        self, partition: TopicPartition, leader: LeaderAndEpoch, endpoints: Sequence[NodeEndpoint]
    ) -> "ClusterView":
        """With a newer leader of a partition; itself when that is nothing new."""
        topic = self.topics.get(partition.topic)
        if topic is None or leader.leader_id < 0 or not 0 <= partition.partition < len(topic.partitions):
            return self
        known = topic.partitions[partition.partition]
        brokers = {**self.brokers, **{endpoint.node_id: endpoint for endpoint in endpoints}}
        if leader.leader_epoch <= known.leader_epoch or leader.leader_id not in brokers:
            return self
        led = replace(known, leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
        before, after = topic.partitions[: known.index], topic.partitions[known.index + 1 :]
        changed = replace(topic, partitions=(*before, led, *after))
        return replace(self, brokers=brokers, topics={**self.topics, topic.name: changed})


def _topic(reply: Message) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(
            partition.partition_index,
            partition.leader_id,
            getattr(partition, "leader_epoch", -1),
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(getattr(partition, "offline_replicas", ())),
        )
        for partition in sorted(reply.partitions, key=lambda partition: partition.partition_index)
    )
    topic_id = getattr(reply, "topic_id", None) or ZERO_UUID
    return TopicMetadata(reply.name, topic_id, bool(getattr(reply, "is_internal", False)), partitions)
