"""Brokers whose store has lost their cluster, or a part of it, and get it back from their logs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.broker.app import Broker
from barnabas.broker.cluster_rebuilding import BrokerDirectories, ClusterRebuilding, survey_brokers
from barnabas.broker.membership import WrongCluster
from barnabas.broker.metadata_source import EmbeddedSource
from barnabas.broker.parts import BrokerParts
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.cluster_rebuild import ClusterRebuild, RebuildOptions
from barnabas.metadata.construction import StoreInUse
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.identity import ensure_layout
from barnabas.metadata.rebuild import CannotRebuild
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.znodes import CLUSTER_ID, ClusterId, TopicAssignment
from tests.support.broker_parts import ServedBroker
from tests.support.dying_session import OpenSession, dying_sessions

PARTITIONS = 4


class Machines:
    """Two brokers with directories of their own, and the store that they share."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self._seed = seed
        self.directories = {1: root / "one", 2: root / "two"}
        self.table = MemoryTable()
        self._running: EmbeddedMetadata | None = None

    @asynccontextmanager
    async def running(self, *node_ids: int) -> AsyncIterator[list[ServedBroker]]:
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(EmbeddedMetadata.in_memory(SystemClock(), self.table))
            brokers = []
            for node_id in node_ids:
                parts = BrokerParts(
                    LocalFileSystem(),
                    SystemClock(),
                    Random(self._seed + node_id),
                    metadata=EmbeddedSource(store, is_shared=True),
                )
                broker = Broker(self._settings(node_id), parts)
                brokers.append(ServedBroker(await stack.enter_async_context(broker)))
            self._running = store
            try:
                yield brokers
            finally:
                self._running = None

    def _settings(self, node_id: int) -> BrokerSettings:
        return BrokerSettings(
            {
                "node.id": str(node_id),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(self.directories.get(node_id, self.directories[1].with_name("new"))),
            }
        )

    async def session(self) -> EmbeddedSession:
        store = self._running or EmbeddedMetadata.in_memory(SystemClock(), self.table)
        return store.session()

    def rebuilding(self, *node_ids: int, replaces_id: bool = False) -> ClusterRebuilding:
        found = [BrokerDirectories([str(self.directories[node_id])]) for node_id in node_ids]
        surveyed = survey_brokers(LocalFileSystem(), found)
        return ClusterRebuilding(surveyed, RebuildOptions(), SystemClock(), Random(1), replaces_id=replaces_id)

    async def rebuild(
        self, *node_ids: int, open_session: OpenSession | None = None, replaces_id: bool = False
    ) -> ClusterRebuild:
        session = await (open_session or self.session)()
        try:
            return await self.rebuilding(*node_ids, replaces_id=replaces_id).write(session)
        finally:
            await session.close()

    def strays(self) -> list[str]:
        return [path.name for one in self.directories.values() for path in one.glob("*-stray")]


def ends(brokers: Sequence[ServedBroker]) -> list[int]:
    """The end of each partition, wherever it is led."""
    found: dict[int, int] = {}
    for broker in brokers:
        for partition in broker.broker.replicas.image.topics["orders"].partitions:
            if partition.leader == broker.broker.node_id:
                found[partition.index] = broker.partition("orders", partition.index).end_offset
    return [found[index] for index in range(PARTITIONS)]


async def until_led(brokers: Sequence[ServedBroker]) -> None:
    async with asyncio.timeout(120):
        while not all(_is_led(broker) for broker in brokers):  # noqa: ASYNC110 - images set no event
            await asyncio.sleep(0.01)


def _is_led(broker: ServedBroker) -> bool:
    topic = broker.broker.replicas.image.topics.get("orders")
    return topic is not None and all(one.leader > 0 for one in topic.partitions)


async def fill(machines: Machines) -> None:
    """Each partition has a record more than the one before it."""
    async with machines.running(1, 2) as brokers:
        await brokers[0].create("orders", PARTITIONS)
        await until_led(brokers)
        for broker in brokers:
            for partition in broker.broker.replicas.image.topics["orders"].partitions:
                if partition.leader == broker.broker.node_id:
                    broker.append("orders", list(range(partition.index + 1)), partition.index)
        assert ends(brokers) == [1, 2, 3, 4]


async def assert_served(machines: Machines) -> None:
    async with machines.running(1, 2) as brokers:
        await until_led(brokers)
        assert ends(brokers) == [1, 2, 3, 4]
        assert [broker.broker.logs.stray_count for broker in brokers] == [0, 0]


def play(root: Path, story: Callable[[Machines], Awaitable[None]]) -> None:
    machines = Machines(root)

    async def main() -> None:
        await fill(machines)
        await story(machines)

    asyncio.run(main())


def test_wiped_store_is_rebuilt_one_broker_after_the_other(tmp_path: Path) -> None:
    async def story(machines: Machines) -> None:
        machines.table = MemoryTable()
        with pytest.raises(WrongCluster, match=r"knows no cluster, .* with 'barnabas cluster rebuild'"):
            async with machines.running(1):
                pass
        first = await machines.rebuild(1)
        assert [one.partition for one in first.missing] != []
        second = await machines.rebuild(2)
        assert second.missing == []
        assert list((await machines.rebuild(1, 2)).operations) == []
        assert machines.strays() == []
        await assert_served(machines)

    play(tmp_path, story)


def test_kill_at_any_write_is_taken_up_and_no_broker_starts_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.metadata.construction._TOGETHER_MAX", 3)

    async def story(machines: Machines) -> None:
        machines.table = MemoryTable()
        await machines.rebuild(1, 2)
        wanted = _nodes(machines)
        for is_last_done in (False, True):
            for writes in range(1, 100):
                machines.table = MemoryTable()
                try:
                    await machines.rebuild(1, 2, open_session=dying_sessions(machines.session, writes, is_last_done))
                except SessionLost:
                    if CLUSTER_ID not in _nodes(machines):
                        with pytest.raises(WrongCluster):
                            async with machines.running(1):
                                pass
                    await machines.rebuild(1, 2)
                    assert _nodes(machines) == wanted
                else:
                    assert writes > 6
                    break
            else:
                raise AssertionError("it never comes to an end")
        await assert_served(machines)

    play(tmp_path, story)


def _nodes(machines: Machines) -> dict[str, bytes]:
    nodes = {path: node.data for path, node in machines.table.load().nodes.items()}
    nodes.pop("/latest_producer_id_block", None)  # goes by the clock
    return nodes


def test_new_broker_does_not_make_another_cluster_meanwhile(tmp_path: Path) -> None:
    async def story(machines: Machines) -> None:
        machines.table = MemoryTable()
        with pytest.raises(SessionLost):
            await machines.rebuild(1, 2, open_session=dying_sessions(machines.session, 2, True))
        with pytest.raises(WrongCluster, match="is being filled"):
            async with machines.running(3):
                pass
        await machines.rebuild(1, 2)
        async with machines.running(3) as [broker]:
            assert "orders" in broker.broker.replicas.image.topics

    play(tmp_path, story)


def test_topics_that_a_restored_store_does_not_have_are_strays_until_the_rebuild(tmp_path: Path) -> None:
    async def story(machines: Machines) -> None:
        topic_id = TopicAssignment.decode("orders", _nodes(machines)["/brokers/topics/orders"]).topic_id
        cluster_id = _nodes(machines)[CLUSTER_ID]
        machines.table = MemoryTable()
        session = await machines.session()
        await ensure_layout(session)
        await session.create(CLUSTER_ID, cluster_id)
        await session.close()
        async with machines.running(1, 2) as brokers:
            assert sum(broker.broker.logs.stray_count for broker in brokers) == PARTITIONS
        assert len(machines.strays()) == PARTITIONS

        done = [await machines.rebuild(node_id) for node_id in (1, 2)]
        assert sum(len(one.revived) for one in done) == PARTITIONS
        assert TopicAssignment.decode("orders", _nodes(machines)["/brokers/topics/orders"]).topic_id == topic_id
        await assert_served(machines)
        assert machines.strays() == []

    play(tmp_path, story)


def test_broker_that_was_not_rebuilt_before_it_started_is_rebuilt_later(tmp_path: Path) -> None:
    async def story(machines: Machines) -> None:
        machines.table = MemoryTable()
        await machines.rebuild(1)
        async with machines.running(1, 2) as brokers:
            assert brokers[1].broker.logs.stray_count > 0
            with pytest.raises(StoreInUse, match="broker 1, 2 is registered"):
                await machines.rebuild(2)
        await machines.rebuild(2)
        await assert_served(machines)

    play(tmp_path, story)


def test_store_of_another_cluster_is_replaced_only_when_it_is_empty_and_that_is_wanted(tmp_path: Path) -> None:
    async def story(machines: Machines) -> None:
        machines.table = MemoryTable()
        session = await machines.session()
        await ensure_layout(session)
        await session.create(CLUSTER_ID, ClusterId.encode("another"))
        await session.close()
        with pytest.raises(
            CannotRebuild, match=r"that of cluster another, which has no topics; .*--replace-cluster-id"
        ):
            await machines.rebuild(1, 2)
        await machines.rebuild(1, 2, replaces_id=True)
        await assert_served(machines)

        session = await machines.session()
        await session.set(CLUSTER_ID, ClusterId.encode("another"))
        await session.close()
        with pytest.raises(CannotRebuild, match=r"that of cluster another, which has topics \(orders\)"):
            await machines.rebuild(1, 2, replaces_id=True)

    play(tmp_path, story)


def test_directories_of_other_brokers_clusters_or_of_nobody_are_refused(tmp_path: Path) -> None:
    async def story(machines: Machines) -> None:
        others = Machines(tmp_path / "others", seed=10)
        await fill(others)
        found = [BrokerDirectories([str(one.directories[1])]) for one in (machines, others)]
        with pytest.raises(CannotRebuild, match="belong to different clusters"):
            survey_brokers(LocalFileSystem(), found)
        (tmp_path / "empty").mkdir()
        with pytest.raises(CannotRebuild, match=r"empty has no meta\.properties"):
            survey_brokers(LocalFileSystem(), [BrokerDirectories([str(tmp_path / "empty")])])

    play(tmp_path / "own", story)
