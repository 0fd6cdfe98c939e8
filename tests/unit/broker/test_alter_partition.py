"""Leaders ask the controller for another ISR, from its own broker and from another one."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from barnabas.controller.alter_partition import AskedIsr, alter_partitions
from barnabas.controller.seat import ControllerSeat
from barnabas.metadata.image import Partition
from barnabas.testing import Cluster, ClusterBroker
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.unit.testing.cluster_requests import another, ask, create, image_of, led_by, partition_in, served

TOPIC = "orders"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as one:
        assert create(one[1], TOPIC, 3, 3) is ErrorCode.NONE
        one.wait_until_ready()
        yield one


def seat_of(broker: ClusterBroker) -> ControllerSeat:
    return served(broker).running.cluster.seat


def led_partition(cluster: Cluster, leader: ClusterBroker) -> Partition:
    return partition_in(cluster.controller, TOPIC, led_by(cluster, TOPIC, leader)[0])


def proposal(cluster: Cluster, leader: ClusterBroker, *members: int) -> AskedIsr:
    """Of the leader and these."""
    one = led_partition(cluster, leader)
    epochs = dict(zip(one.isr, one.isr_epochs, strict=True))
    isr = {member: epochs[member] for member in (leader.id, *members)}
    return AskedIsr(image_of(leader).topics[TOPIC].id, one.index, one.leader_epoch, one.partition_epoch, isr)


def alter(cluster: Cluster, leader: ClusterBroker, *asked: AskedIsr) -> list[ErrorCode]:
    return cluster.home.run(alter_partitions(seat_of(leader), asked))


@pytest.mark.parametrize("is_controller", [True, False])
def test_isr_that_a_leader_proposes_is_written_and_reaches_all_brokers(cluster: Cluster, is_controller: bool) -> None:
    leader = cluster.controller if is_controller else another(cluster, cluster.controller)
    wanted = proposal(cluster, leader)
    unknown = wanted._replace(topic_id=UUID(int=7))
    assert alter(cluster, leader, unknown, wanted) == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]
    cluster.wait_until_ready()
    for broker in cluster:  # the leader may have proposed its followers again
        assert partition_in(broker, TOPIC, wanted.index).partition_epoch > wanted.partition_epoch
    assert alter(cluster, leader, wanted) == [ErrorCode.INVALID_UPDATE_VERSION]


def test_answer_has_the_state_that_was_written(cluster: Cluster) -> None:
    leader = another(cluster, cluster.controller)
    wanted, before = proposal(cluster, leader, cluster.controller.id), led_partition(cluster, leader)
    values = {
        "broker_id": leader.id,
        "broker_epoch": seat_of(leader).broker_epoch,
        "topics": [
            {
                "topic_id": wanted.topic_id,
                "partitions": [
                    {
                        "partition_index": wanted.index,
                        "leader_epoch": wanted.leader_epoch,
                        "new_isr_with_epochs": [
                            {"broker_id": one, "broker_epoch": epoch} for one, epoch in wanted.isr.items()
                        ],
                        "leader_recovery_state": 0,
                        "partition_epoch": wanted.partition_epoch,
                    }
                ],
            }
        ],
    }
    elsewhere = ask(leader, ApiKey.ALTER_PARTITION, values)
    assert ErrorCode(elsewhere.error_code) is ErrorCode.NOT_CONTROLLER
    answer = ask(cluster.controller, ApiKey.ALTER_PARTITION, values)
    assert ErrorCode(answer.error_code) is ErrorCode.NONE
    [[told]] = [topic.partitions for topic in answer.topics]
    assert ErrorCode(told.error_code) is ErrorCode.NONE
    assert (told.leader_id, told.leader_epoch, told.leader_recovery_state) == (leader.id, before.leader_epoch, 0)
    assert (set(told.isr), told.partition_epoch) == ({*wanted.isr}, before.partition_epoch + 1)


def test_broker_of_another_registration_is_refused_for_good(cluster: Cluster) -> None:
    leader = another(cluster, cluster.controller)
    wanted, seat = proposal(cluster, leader), seat_of(leader)
    seat.broker_epoch += 1
    assert alter(cluster, leader, wanted, wanted) == [ErrorCode.STALE_BROKER_EPOCH] * 2
    seat.broker_epoch -= 1
    assert alter(cluster, leader, wanted) == [ErrorCode.NONE]


def test_without_a_controller_nobody_knows(cluster: Cluster) -> None:
    leader = another(cluster, cluster.controller)
    wanted, seat = proposal(cluster, leader), seat_of(leader)

    async def ask_nobody() -> list[ErrorCode]:
        kept, seat.control_link = seat.control_link, None
        try:
            return await alter_partitions(seat, [wanted])
        finally:
            seat.control_link = kept

    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        cluster.home.run(ask_nobody())
