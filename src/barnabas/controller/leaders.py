"""Who leads a partition, decided by the controller from the image alone. Pure.

A leadership is a grant to one registration of a broker: the state names the broker epoch of its leader. It ends with
that registration, whether the broker died or came back.

| the leader's registration | what the controller writes |
|---|---|
| is the one that the state names | nothing |
| is gone, and another replica in sync is registered | that one leads, in the next epoch |
| is gone, and none is | nobody leads, in the next epoch; the replicas in sync stay as they are |
| is another one: the broker came back | the first replica in sync that is registered, in the next epoch |

So every start of a broker is a new leadership, alone too: a broker may have lost the end of its log and write other
records at the same offsets, and consumers and followers find out by the epoch.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.metadata.image import ClusterImage, Partition, RegisteredBroker, Topic
from barnabas.metadata.znodes import NO_LEADER, PartitionState


class StateChange(NamedTuple):
    """A state to write, if the node still has the version that was decided on."""

    partition: TopicPartition
    state: PartitionState
    version: int


def due_states(
    image: ClusterImage, controller_epoch: int, brokers: Collection[int] | None = None
) -> Iterator[StateChange]:
    """The states that are due: of all partitions, or of those with a replica on one of these brokers."""
    for topic in image.topics.values():
        for one in topic.partitions:
            change = due_state(topic, one, image.brokers, controller_epoch, brokers)
            if change is not None:
                yield change


def due_state(
    topic: Topic,
    one: Partition,
    registered: Mapping[int, RegisteredBroker],
    controller_epoch: int,
    brokers: Collection[int] | None = None,
) -> StateChange | None:
    """Of one partition."""
    if one.partition_epoch < 0 or (brokers is not None and not any(broker in brokers for broker in one.replicas)):
        return None  # its state is not there yet: who creates the topic writes it
    state = next_state(one, registered, controller_epoch)
    return None if state is None else StateChange(TopicPartition(topic.name, one.index), state, one.partition_epoch)


def next_state(
    partition: Partition, registered: Mapping[int, RegisteredBroker], controller_epoch: int
) -> PartitionState | None:
    """None when the state is right as it is."""
    if _is_granted(partition, registered):
        return None
    leader = next((one for one in partition.replicas if one in partition.isr and one in registered), NO_LEADER)
    if leader == partition.leader == NO_LEADER:
        return None
    known = dict(zip(partition.isr, partition.isr_epochs, strict=False))
    epochs = [registered[one].epoch if one in registered else known.get(one, -1) for one in partition.isr]
    return partition.led_by(leader, controller_epoch, tuple(epochs))


def _is_granted(partition: Partition, registered: Mapping[int, RegisteredBroker]) -> bool:
    broker = registered.get(partition.leader)
    return broker is not None and partition.is_granted_to(broker.id, broker.epoch)
