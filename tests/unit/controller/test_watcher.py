"""The image follows the store."""

import asyncio
from itertools import pairwise

import pytest

from barnabas.controller.watcher import MetadataWatcher
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.identity import ensure_layout, register_broker
from barnabas.metadata.store import SessionState, Watch
from barnabas.metadata.znodes import TOPICS, PartitionState
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


def test_waiter_for_an_image_hears_that_the_watcher_ended() -> None:
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


def interrupt(cluster: MetadataCluster) -> None:
    """The session loses its watches."""
    cluster.session.change_state(SessionState.SUSPENDED)
    cluster.session.change_state(SessionState.CONNECTED)


def test_watcher_reads_everything_again_after_an_interruption() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("kept", 2)
        await cluster.create("deleted")
        cluster.session.watches.clear()
        await cluster.writer.delete("deleted")
        await cluster.writer.create(cluster.writer.plan(cluster.watcher.image, "new", 1, 1))
        await cluster.session.set(PartitionState.path_of("kept", 1), PartitionState(1, 9, (1,), 1).encode())
        await cluster.settle()
        assert set(cluster.watcher.image.topics) == {"kept", "deleted"}
        interrupt(cluster)
        image = await cluster.watcher.wait_for(lambda image: "new" in image.topics)
        assert set(image.topics) == {"kept", "new"}
        assert image.topics["kept"].partitions[1].leader_epoch == 9

    run_in_cluster(scenario)


def test_interruption_in_the_middle_of_a_read_leaves_nothing_unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is on its way to the reader when the watch that it left is lost."""

    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("kept", 2)
        children = cluster.session.children
        interruptions = 0

        async def interrupted(path: str, watch: Watch | None = None) -> list[str]:
            nonlocal interruptions
            names = await children(path, watch)
            if path == TOPICS and not interruptions:
                interruptions += 1
                interrupt(cluster)
            return names

        monkeypatch.setattr(cluster.session, "children", interrupted)
        await cluster.create("new")
        await cluster.settle()
        assert interruptions == 1
        await cluster.session.set(PartitionState.path_of("kept", 1), PartitionState(1, 9, (1,), 1).encode())
        await cluster.settle()
        assert cluster.watcher.image.topics["kept"].partitions[1].leader_epoch == 9

    run_in_cluster(scenario)


def test_interruption_between_load_and_run_is_noticed() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        watcher = MetadataWatcher(cluster.session)
        await watcher.load()
        interrupt(cluster)
        await cluster.create("new")
        following = asyncio.create_task(watcher.run())
        await watcher.wait_for(lambda image: "new" in image.topics)
        following.cancel()

    run_in_cluster(scenario)
