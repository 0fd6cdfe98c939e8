"""Leaders as they are written: in few writes, only where due, and never over what somebody else has written."""

import logging

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.controller.elections import Elections
from barnabas.controller.replication_rules import ReplicationRules
from barnabas.metadata.identity import register_broker
from barnabas.metadata.store import SetData
from barnabas.metadata.znodes import NO_LEADER, BrokerRegistration, PartitionState
from tests.support.metadata_cluster import MetadataCluster, registration, run_in_cluster


async def hold(cluster: MetadataCluster, elections: Elections, *brokers: int) -> list[tuple[TopicPartition, int]]:
    image = cluster.watcher.image
    written = await elections.hold(image, image.topics.values(), brokers or None)
    return [(one.partition, one.state.leader) for one in written]


async def unregister(cluster: MetadataCluster, broker_id: int) -> None:
    await cluster.session.delete(BrokerRegistration.path_of(broker_id))
    await cluster.watcher.wait_for(lambda image: broker_id not in image.brokers)


def test_every_registration_is_granted_its_partitions_once() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("orders", 6)
        elections = Elections(cluster.controllership)
        assert len(await hold(cluster, elections)) == 6, "the states of a new topic name no registration yet"
        assert await hold(cluster, elections) == [], "they are written, whether or not the image has them"
        await cluster.settle()
        assert await hold(cluster, elections) == []
        partitions = cluster.watcher.image.topics["orders"].partitions
        brokers = cluster.watcher.image.brokers
        assert [one.isr_epochs for one in partitions] == [(brokers[one.leader].epoch,) for one in partitions]
        assert {one.leader_epoch for one in partitions} == {1}

    run_in_cluster(scenario, (1, 2, 3))


def test_partitions_go_offline_with_their_broker_and_come_back_with_it() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("orders", 3)
        elections = Elections(cluster.controllership)
        await hold(cluster, elections)
        await cluster.settle()
        [index] = [one.index for one in cluster.watcher.image.topics["orders"].partitions if one.leader == 2]
        await unregister(cluster, 2)
        assert await hold(cluster, elections, 2) == [(TopicPartition("orders", index), NO_LEADER)]
        await cluster.settle()
        await register_broker(cluster.session, registration(2))
        await cluster.settle()
        assert await hold(cluster, elections, 2) == [(TopicPartition("orders", index), 2)]
        await cluster.settle()
        partition = cluster.watcher.image.topics["orders"].partitions[index]
        assert (partition.leader, partition.leader_epoch) == (2, 3)
        assert partition.isr_epochs == (cluster.watcher.image.brokers[2].epoch,)

    run_in_cluster(scenario, (1, 2, 3))


def test_state_that_somebody_has_changed_is_left_alone_and_the_others_are_written() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("orders", 3)
        image = cluster.watcher.image
        theirs = PartitionState(1, 9, (1,), cluster.controllership.epoch)
        await cluster.session.multi([SetData(PartitionState.path_of("orders", 1), theirs.encode())])
        elections = Elections(cluster.controllership)
        written = await elections.hold(image, image.topics.values())
        assert [one.partition.partition for one in written] == [0, 2]
        await cluster.settle()
        assert [one.leader_epoch for one in cluster.watcher.image.topics["orders"].partitions] == [1, 9, 1]
        assert [partition for partition, _ in await hold(cluster, elections)] == [TopicPartition("orders", 1)]

    run_in_cluster(scenario)


def test_election_that_may_lose_records_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("orders", 1, 2)
        alone = PartitionState(1, 4, (1,), 1, isr_epochs=(cluster.watcher.image.brokers[1].epoch,))
        await cluster.session.set(PartitionState.path_of("orders", 0), alone.encode())
        await cluster.settle()
        await unregister(cluster, 1)
        elections = Elections(cluster.controllership, lambda image, configs: ReplicationRules(is_unclean_allowed=True))
        assert await hold(cluster, elections) == [(TopicPartition("orders", 0), 2)]

    with caplog.at_level(logging.ERROR):
        run_in_cluster(scenario, (1, 2))
    assert [one.getMessage() for one in caplog.records] == [
        "broker 2 leads orders-0 though it was not in sync: acknowledged records may be lost"
    ]
