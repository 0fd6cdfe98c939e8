"""Which states are due by the image: of whom, and by which rules."""

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import ZERO_UUID
from barnabas.controller.leaders import StateChange, due_state, due_states
from barnabas.controller.replication_rules import ReplicationRules, default_rules
from barnabas.metadata.image import BrokerChanged, ClusterImage, Partition, RegisteredBroker, Topic, TopicChanged
from barnabas.metadata.znodes import NO_LEADER, PartitionState

EPOCH = 7


def registered(**epochs: int) -> dict[int, RegisteredBroker]:
    return {int(name[1:]): RegisteredBroker(int(name[1:]), epoch, ()) for name, epoch in epochs.items()}


def partition(
    *replicas: int, leader: int, epochs: tuple[int, ...], minimum: int | None = 1, elr: tuple[int, ...] = ()
) -> Partition:
    """With as many in sync as there are epochs."""
    return Partition(
        0,
        replicas,
        leader=leader,
        leader_epoch=3,
        isr=replicas[: len(epochs)],
        partition_epoch=5,
        isr_epochs=epochs,
        elr=elr,
        elr_epochs=tuple([10 * one for one in elr]),
        min_insync_replicas=minimum,
    )


def due(one: Partition, brokers: dict[int, RegisteredBroker], rules: ReplicationRules) -> StateChange | None:
    return due_state(Topic("orders", ZERO_UUID, (one,)), one, brokers, rules, EPOCH)


def due_of(one: Partition, brokers: dict[int, RegisteredBroker], rules: ReplicationRules) -> PartitionState:
    change = due(one, brokers, rules)
    assert change is not None
    return change.state


ONE = ReplicationRules()
TWO = ReplicationRules(2)


def test_grant_that_names_the_registration_stays() -> None:
    assert due(partition(1, leader=1, epochs=(10,)), registered(b1=10), ONE) is None


def test_broker_that_came_back_leads_in_the_next_epoch() -> None:
    state = due_of(partition(1, leader=1, epochs=(10,)), registered(b1=11), ONE)
    assert state == PartitionState(1, 4, (1,), EPOCH, isr_epochs=(11,), min_insync_replicas=1)


def test_partition_whose_only_broker_is_gone_is_offline_and_says_who_is_eligible() -> None:
    change = due(partition(1, leader=1, epochs=(10,)), registered(b2=12), ONE)
    assert change is not None
    assert change.state == PartitionState(NO_LEADER, 4, (), EPOCH, elr=(1,), elr_epochs=(10,), min_insync_replicas=1)
    assert change.ends_leadership
    assert due(change.after, registered(b2=12), ONE) is None, "nothing is written until a replica is back"
    assert due_of(change.after, registered(b1=13), ONE).leader == 1


def test_state_takes_over_the_minimum_that_the_topic_has_now() -> None:
    known = partition(1, 2, leader=1, epochs=(10, 20), minimum=None)
    brokers = registered(b1=10, b2=20)
    change = due(known, brokers, TWO)
    assert change is not None
    assert change.state == PartitionState(1, 3, (1, 2), EPOCH, isr_epochs=(10, 20), min_insync_replicas=2)
    assert not change.ends_leadership
    assert not change.is_unclean
    assert due(change.after, brokers, TWO) is None


def test_lower_minimum_counts_after_the_election_and_empties_the_eligible() -> None:
    offline = partition(1, 2, 3, leader=NO_LEADER, epochs=(), minimum=2, elr=(2, 3))
    state = due_of(offline, registered(b2=20), ONE)
    assert state == PartitionState(2, 4, (2,), EPOCH, isr_epochs=(20,), min_insync_replicas=1)
    waiting = due_of(offline, registered(b1=10), ONE)
    assert (waiting.leader, waiting.elr) == (NO_LEADER, (2, 3)), "nobody acknowledges anything meanwhile"


def test_topic_may_allow_the_election_of_a_replica_that_is_not_in_sync() -> None:
    known = partition(1, 2, leader=1, epochs=(10,))
    assert due_of(known, registered(b2=20), ONE).leader == NO_LEADER
    change = due(known, registered(b2=20), ReplicationRules(is_unclean_allowed=True))
    assert change is not None
    assert (change.state.leader, change.state.isr, change.is_unclean) == (2, (2,), True)


def test_due_states_are_those_of_all_partitions_that_have_a_state() -> None:
    gone = [partition(1, leader=1, epochs=(10,)), partition(2, leader=2, epochs=(20,))._replace(index=1)]
    unwritten = Partition(2, (1,))
    topic = Topic("orders", ZERO_UUID, (gone[0], gone[1], unwritten))
    image = ClusterImage().apply([TopicChanged(topic), BrokerChanged(RegisteredBroker(3, 30, ()))])
    found = list(due_states(image, default_rules, EPOCH))
    assert [(one.partition, one.version) for one in found] == [
        (TopicPartition("orders", 0), 5),
        (TopicPartition("orders", 1), 5),
    ]


@pytest.mark.parametrize(("broker_id", "epoch", "is_granted"), [(1, 10, True), (1, 11, False), (2, 10, False)])
def test_grant_is_to_one_registration(broker_id: int, epoch: int, is_granted: bool) -> None:
    assert partition(1, leader=1, epochs=(10,)).is_granted_to(broker_id, epoch) is is_granted
