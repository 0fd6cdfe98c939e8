"""Which partition states are due, decided by the controller from the image alone. Pure.

A leadership is a grant to one registration of a broker: the state names the broker epoch of its leader. It ends with
that registration, whether the broker died or came back. So every start of a broker is a new leadership, alone too: a
broker may have lost the end of its log and write other records at the same offsets, and consumers and followers find
out by the epoch.

Who leads and who is in sync is decided by `barnabas.controller.in_sync`. After that the state takes over the minimum
that the topic's rules ask for, as far as there are replicas (`in_sync.due_minimum`): an election by the minimum that
was in force comes first, because a lower one empties the eligible replicas.
"""

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from barnabas.base.ids import TopicPartition
from barnabas.controller.in_sync import Registered, next_state, with_minimum
from barnabas.controller.replication_rules import ReplicationRules, RulesOf
from barnabas.metadata.image import ClusterImage, Partition, Topic
from barnabas.metadata.znodes import NO_LEADER, PartitionState


class StateChange(NamedTuple):
    """A state to write, if the node still has the version that was decided on."""

    topic: str
    topic_id: UUID
    before: Partition
    state: PartitionState

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.before.index)

    @property
    def version(self) -> int:
        return self.before.partition_epoch

    @property
    def after(self) -> Partition:
        """The partition when this is written."""
        return self.before.with_state(self.state, self.version + 1)

    def is_in(self, image: ClusterImage) -> bool:
        """Whether the image has this state or a later one; also when the topic is gone."""
        topic = image.topic_by_id(self.topic_id)
        one = None if topic is None else topic.partition(self.before.index)
        return one is None or one.partition_epoch > self.version

    @property
    def ends_leadership(self) -> bool:
        """Whether the partition is offline from now on."""
        return self.state.leader == NO_LEADER and self.state.leader_epoch != self.before.leader_epoch

    @property
    def is_unclean(self) -> bool:
        """Whether a replica is elected that may lack acknowledged records."""
        return self.state.is_recovering and self.state.leader_epoch != self.before.leader_epoch


def due_states(image: ClusterImage, rules_of: RulesOf, controller_epoch: int) -> Iterator[StateChange]:
    """The states that are due, of all partitions."""
    for topic in image.topics.values():
        rules = rules_of(image, image.configs_of_topic(topic.name))
        for one in topic.partitions:
            if (change := due_state(topic, one, image.brokers, rules, controller_epoch)) is not None:
                yield change


def due_state(
    topic: Topic, one: Partition, registered: Registered, rules: ReplicationRules, controller_epoch: int
) -> StateChange | None:
    """Of one partition."""
    if one.partition_epoch < 0:
        return None  # its state is not there yet: who creates the topic writes it
    state = next_state(one, registered, controller_epoch, is_unclean_allowed=rules.is_unclean_allowed)
    settled = one if state is None else one.with_state(state, one.partition_epoch)
    state = with_minimum(settled, rules.min_insync_replicas, controller_epoch) or state
    return None if state is None else StateChange(topic.name, topic.id, one, state)
