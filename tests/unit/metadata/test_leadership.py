"""Leader epochs, raised at the start of a broker."""

import pytest

from barnabas.metadata.errors import BadVersion
from barnabas.metadata.leadership import raise_leader_epochs
from barnabas.metadata.store import SetData
from barnabas.metadata.znodes import PartitionState
from tests.support.metadata_cluster import MetadataCluster, run_in_cluster


def test_epochs_of_what_the_broker_leads_rise_and_nothing_else_changes() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("orders", 4, 2)
        before = cluster.watcher.image.topics["orders"].partitions
        await raise_leader_epochs(cluster.controllership, cluster.watcher.image, 1)
        await cluster.settle()
        after = cluster.watcher.image.topics["orders"].partitions
        assert {one.leader for one in before} == {1, 2}
        for old, new in zip(before, after, strict=True):
            is_led = old.leader == 1
            assert (new.leader, new.isr, new.replicas) == (old.leader, old.isr, old.replicas)
            assert new.leader_epoch - old.leader_epoch == new.partition_epoch - old.partition_epoch == is_led

    run_in_cluster(scenario, broker_ids=(1, 2))


def test_thousands_of_partitions_are_raised_in_few_writes() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("orders", 2500)
        await cluster.watcher.wait_for(lambda image: image.topics["orders"].partitions[-1].leader == 1)
        writes = []
        multi = cluster.session.multi

        async def count(operations):  # type: ignore[no-untyped-def]
            writes.append(len(operations) - 1)  # one is for the controller's epoch
            return await multi(operations)

        cluster.session.multi = count  # type: ignore[method-assign]
        await raise_leader_epochs(cluster.controllership, cluster.watcher.image, 1)
        assert writes == [1000, 1000, 500]
        await cluster.watcher.wait_for(
            lambda image: {one.leader_epoch for one in image.topics["orders"].partitions} == {1}
        )

    run_in_cluster(scenario)


def test_state_that_has_changed_meanwhile_is_not_overwritten() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("orders")
        image = cluster.watcher.image
        moved = PartitionState(2, 5, (2,), 1).encode()
        await cluster.controllership.multi([SetData(PartitionState.path_of("orders", 0), moved)])
        with pytest.raises(BadVersion):
            await raise_leader_epochs(cluster.controllership, image, 1)

    run_in_cluster(scenario)
