"""Who leads a partition, and when that has to be written."""

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import ZERO_UUID
from barnabas.controller.leaders import StateChange, due_states, next_state
from barnabas.metadata.image import BrokerChanged, ClusterImage, Partition, RegisteredBroker, Topic, TopicChanged
from barnabas.metadata.znodes import NO_LEADER, PartitionState

EPOCH = 7


def registered(**epochs: int) -> dict[int, RegisteredBroker]:
    return {int(name[1:]): RegisteredBroker(int(name[1:]), epoch, ()) for name, epoch in epochs.items()}


def partition(*replicas: int, leader: int, epochs: tuple[int, ...], leader_epoch: int = 3) -> Partition:
    return Partition(
        0, replicas, leader=leader, leader_epoch=leader_epoch, isr=replicas, partition_epoch=5, isr_epochs=epochs
    )


def test_grant_that_names_the_registration_stays() -> None:
    assert next_state(partition(1, leader=1, epochs=(10,)), registered(b1=10), EPOCH) is None


@pytest.mark.parametrize("epochs", [(10,), ()])
def test_broker_that_came_back_leads_in_the_next_epoch(epochs: tuple[int, ...]) -> None:
    state = next_state(partition(1, leader=1, epochs=epochs), registered(b1=11), EPOCH)
    assert state == PartitionState(1, 4, (1,), EPOCH, isr_epochs=(11,))


def test_partition_without_a_live_replica_has_no_leader_and_keeps_its_isr() -> None:
    state = next_state(partition(1, leader=1, epochs=(10,)), registered(b2=12), EPOCH)
    assert state == PartitionState(NO_LEADER, 4, (1,), EPOCH, isr_epochs=(10,))


def test_without_a_leader_nothing_is_written_until_a_replica_is_back() -> None:
    offline = partition(1, leader=NO_LEADER, epochs=(10,))
    assert next_state(offline, registered(b2=12), EPOCH) is None
    assert next_state(offline, registered(b1=13), EPOCH) == PartitionState(1, 4, (1,), EPOCH, isr_epochs=(13,))


def test_next_replica_in_sync_takes_over() -> None:
    state = next_state(partition(1, 2, 3, leader=1, epochs=(10, 11, 12)), registered(b2=11, b3=12), EPOCH)
    assert state == PartitionState(2, 4, (1, 2, 3), EPOCH, isr_epochs=(10, 11, 12))


def test_replica_that_is_not_in_sync_is_not_elected() -> None:
    one = Partition(0, (1, 2), leader=1, leader_epoch=3, isr=(1,), partition_epoch=5, isr_epochs=(10,))
    assert next_state(one, registered(b2=11), EPOCH) == PartitionState(NO_LEADER, 4, (1,), EPOCH, isr_epochs=(10,))


def test_only_partitions_of_the_brokers_in_question_are_looked_at() -> None:
    gone = [partition(1, leader=1, epochs=(10,)), partition(2, leader=2, epochs=(20,))]
    unwritten = Partition(2, (1,))
    topic = Topic("orders", ZERO_UUID, (gone[0], gone[1], unwritten))
    image = ClusterImage().apply([TopicChanged(topic), BrokerChanged(RegisteredBroker(3, 30, ()))])
    assert [one.state.isr for one in due_states(image, EPOCH)] == [(1,), (2,)]
    assert list(due_states(image, EPOCH, [1])) == [
        StateChange(TopicPartition("orders", 0), PartitionState(NO_LEADER, 4, (1,), EPOCH, isr_epochs=(10,)), 5)
    ]


@pytest.mark.parametrize(("broker_id", "epoch", "is_granted"), [(1, 10, True), (1, 11, False), (2, 10, False)])
def test_grant_is_to_one_registration(broker_id: int, epoch: int, is_granted: bool) -> None:
    assert partition(1, leader=1, epochs=(10,)).is_granted_to(broker_id, epoch) is is_granted
