"""The image follows the store."""

import asyncio
from itertools import pairwise

import pytest

from barnabas.metadata.errors import SessionLost
from barnabas.metadata.identity import ensure_layout, register_broker
from barnabas.metadata.store import SessionState
from barnabas.metadata.watcher import MetadataWatcher
from barnabas.metadata.znodes import PartitionState
from tests.support.metadata_cluster import MetadataCluster, metadata_cluster, registration, run_in_cluster


def test_watcher_publishes_images_in_order_and_coalesces_bursts() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        seen = []
        cluster.watcher.subscribe(lambda old, new: seen.append((old, new)))
        plans = [cluster.writer.plan(cluster.watcher.image, f"t{number}", 2, 1) for number in range(50)]
        await asyncio.gather(*map(cluster.writer.create, plans))
        await cluster.watcher.wait_for(lambda image: len(image.topics) == 50)
        assert len(seen) < 10
        assert all(earlier[1] is later[0] for earlier, later in pairwise(seen))
        assert seen[-1][1] is cluster.watcher.image

    run_in_cluster(scenario)


def test_watcher_follows_states_brokers_and_controller() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("t", 3, 2)
        before = cluster.watcher.image
        path = PartitionState.path_of("t", 1)
        await cluster.session.set(path, PartitionState(2, 5, (2,), 1).encode())
        image = await cluster.watcher.wait_for(lambda image: image is not before)
        changed = image.topics["t"].partitions[1]
        assert (changed.leader, changed.leader_epoch, changed.isr, changed.partition_epoch) == (2, 5, (2,), 1)
        assert image.topics["t"].partitions[0] is before.topics["t"].partitions[0]
        other = cluster.store.session()
        await register_broker(other, registration(7))
        image = await cluster.watcher.wait_for(lambda image: 7 in image.brokers)
        endpoint = image.endpoint(7, "PLAINTEXT")
        assert endpoint is not None
        assert endpoint.host == "host-7"
        assert image.endpoint(7, "OTHER") is None
        await other.close()
        await cluster.watcher.wait_for(lambda image: 7 not in image.brokers)
        await cluster.session.delete("/controller")
        await cluster.watcher.wait_for(lambda image: image.controller_id is None)

    run_in_cluster(scenario, (1, 2))


def test_watcher_leaves_out_what_it_cannot_read(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("t", 2)
        await cluster.session.create("/brokers/topics/broken", b"{")
        await cluster.session.create("/brokers/ids/x", b"{}")
        await cluster.session.create("/config/brokers/x", b"{}")
        await cluster.session.set(PartitionState.path_of("t", 1), b"?")
        await cluster.settle()
        assert set(cluster.watcher.image.topics) == {"t"}
        assert [one.leader for one in cluster.watcher.image.topics["t"].partitions] == [1, -1]
        await cluster.session.set(PartitionState.path_of("t", 1), PartitionState(1, 1, (1,), 1).encode())
        await cluster.watcher.wait_for(lambda image: image.topics["t"].partitions[1].leader_epoch == 1)
        await cluster.session.delete("/brokers/topics/broken")
        await cluster.create("broken")

    run_in_cluster(scenario)
    assert "/brokers/topics/broken" in caplog.text


def test_watcher_without_layout_waits_for_it() -> None:
    async def main() -> None:
        async with metadata_cluster() as cluster:
            empty = cluster.store  # a second watcher on a store whose lists come later
            session = empty.session()
            for path in ("/brokers/topics", "/admin/delete_topics"):
                await session.delete(path)
            watcher = MetadataWatcher(session)
            await watcher.load()
            following = asyncio.create_task(watcher.run())
            await ensure_layout(session)
            await cluster.settle()
            await cluster.create("t")
            await watcher.wait_for(lambda image: "t" in image.topics)
            following.cancel()

    asyncio.run(main())


def test_watches_of_deleted_topics_do_not_pile_up() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.settle()
        before = len(cluster.session.watches)
        for _ in range(20):
            await cluster.create("t", 3)
            await cluster.writer.delete("t")
            await cluster.watcher.wait_for(lambda image: "t" not in image.topics)
        await cluster.settle()
        assert len(cluster.session.watches) == before

    run_in_cluster(scenario)


def test_whoever_waits_for_an_image_hears_that_the_watcher_ended() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        watcher = MetadataWatcher(cluster.session)
        await watcher.load()
        following = asyncio.create_task(watcher.run())
        waiting = asyncio.create_task(watcher.wait_for(lambda image: "never" in image.topics))
        await cluster.settle()
        following.cancel()
        with pytest.raises(SessionLost):
            await waiting
        with pytest.raises(SessionLost):
            await watcher.wait_for(lambda image: "never" in image.topics)
        assert await watcher.wait_for(lambda _image: True) is watcher.image

    run_in_cluster(scenario)


def test_watcher_reads_everything_again_after_an_interruption() -> None:
    """As with ZooKeeper: the old session's watches never fire, and the new one begins with none."""

    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("kept", 2)
        await cluster.create("deleted")
        cluster.session.watches.clear()
        await cluster.writer.delete("deleted")
        await cluster.writer.create(cluster.writer.plan(cluster.watcher.image, "new", 1, 1))
        await cluster.session.set(PartitionState.path_of("kept", 1), PartitionState(1, 9, (1,), 1).encode())
        await cluster.settle()
        assert set(cluster.watcher.image.topics) == {"kept", "deleted"}
        cluster.session.change_state(SessionState.SUSPENDED)
        cluster.session.change_state(SessionState.CONNECTED)
        image = await cluster.watcher.wait_for(lambda image: "new" in image.topics)
        assert set(image.topics) == {"kept", "new"}
        assert image.topics["kept"].partitions[1].leader_epoch == 9

    run_in_cluster(scenario)
