"""A single broker's directory that becomes that of a cluster's first broker, also when it is killed on the way."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError, DirectoryLocked
from barnabas.base.filesystem import FileSystem, LocalFileSystem
from barnabas.broker.app import Broker
from barnabas.broker.metadata_source import EmbeddedSource
from barnabas.broker.parts import BrokerParts
from barnabas.broker.rebuilding import MetadataLost, require_metadata
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.taking_in import CannotTakeIn, is_begun, is_single, require_takeable, take_in
from barnabas.metadata.construction import StoreInUse
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.identity import ensure_layout, register_broker
from barnabas.metadata.table import FILE_NAME, TAKEN_IN_NAME, MemoryTable
from barnabas.metadata.tree import Tree
from barnabas.metadata.znodes import BROKER_SEQUENCE, CLUSTER_ID, ClusterId, PartitionState, decode_configs
from barnabas.storage.directories.meta_properties import read_meta_properties
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.dying_session import DyingSession, dying_sessions
from tests.support.failing_files import FailingFiles
from tests.support.metadata_cluster import registration

STATE = PartitionState.path_of("orders", 1)


class Cluster:
    """What ZooKeeper is in real life, and the directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.target = directory / "broker-1" / "data"
        self.table = MemoryTable()

    @property
    def tree(self) -> Tree:
        return self.table.load()

    @property
    def nodes(self) -> dict[str, bytes]:
        return {path: node.data for path, node in self.tree.nodes.items()}

    @property
    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*"))

    async def session(self) -> EmbeddedSession:
        return EmbeddedMetadata.in_memory(SystemClock(), self.table).session()

    def take_in(
        self, files: FileSystem | None = None, open_store: Callable[[], Awaitable[EmbeddedSession]] | None = None
    ) -> None:
        files = files or LocalFileSystem()
        require_takeable(files, str(self.directory), 1, str(self.target))
        take_in(files, str(self.directory), str(self.target), open_store or self.session, kept=["zookeeper"])


async def fill(broker: ServedBroker) -> None:
    await broker.create("orders", 2, retention_ms="60000")
    for index in (0, 1):
        broker.append("orders", [1, 2, 3], index)
    await broker.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000)
    await broker.broker.running.cluster.membership.store.set(BROKER_SEQUENCE, b"")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("single")

    async def main() -> None:
        async with served_broker(directory, has_metadata_file=True) as broker:
            await fill(broker)

    asyncio.run(main())
    return directory


@pytest.fixture
def cluster(template: Path, tmp_path: Path) -> Cluster:
    return fresh(template, tmp_path)


def fresh(template: Path, place: Path) -> Cluster:
    directory = place / "data"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(template, directory)
    (directory / "zookeeper").mkdir()
    return Cluster(directory)


def run_alone(directory: Path, work: Callable[[ServedBroker], Awaitable[None]]) -> None:
    async def main() -> None:
        async with served_broker(directory, has_metadata_file=True) as broker:
            await work(broker)

    asyncio.run(main())


def assert_taken(cluster: Cluster) -> None:
    """In one place, with one truth."""
    assert not is_single(LocalFileSystem(), str(cluster.directory))
    assert sorted(path.name for path in cluster.directory.iterdir()) == ["broker-1", "zookeeper"]
    assert (cluster.target / TAKEN_IN_NAME).exists()
    assert not (cluster.target / FILE_NAME).exists()
    with pytest.raises(MetadataLost, match="was taken into a cluster"):
        require_metadata(LocalFileSystem(), [str(cluster.target)])
    assert not [path for path in cluster.nodes if "construction" in path]


def test_cluster_serves_what_the_single_broker_had(cluster: Cluster) -> None:
    cluster.take_in()
    assert_taken(cluster)
    nodes = cluster.nodes
    meta = read_meta_properties(LocalFileSystem(), str(cluster.target / "meta.properties"))
    assert meta is not None
    assert ClusterId.decode(nodes[CLUSTER_ID]) == meta.cluster_id
    assert decode_configs("/config/topics/orders", nodes["/config/topics/orders"]) == {"retention.ms": "60000"}
    state = PartitionState.decode(STATE, nodes[STATE])
    assert (state.leader, state.isr, state.isr_epochs) == (1, (1,), ()), "epochs of the old store mean nothing"
    assert cluster.tree.nodes[BROKER_SEQUENCE].version == 1

    async def main() -> None:
        texts = {"node.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(cluster.target)}
        async with EmbeddedMetadata.in_memory(SystemClock(), cluster.table) as store:
            source = EmbeddedSource(store, is_shared=True)
            parts = BrokerParts(LocalFileSystem(), SystemClock(), Random(1), metadata=source)
            async with Broker(BrokerSettings(texts), parts) as broker:
                served = ServedBroker(broker)
                assert [served.partition("orders", index).end_offset for index in (0, 1)] == [3, 3]
                assert served.log("orders").config.retention_ms == 60_000
                assert broker.replicas.image.topics["orders"].partitions[1].leader_epoch > state.leader_epoch

    asyncio.run(main())


def test_kill_at_any_write_to_the_store_is_taken_up(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.metadata.construction._TOGETHER_MAX", 2)
    whole = fresh(template, tmp_path)
    whole.take_in()
    wanted, files = whole.nodes, whole.files
    for is_last_done in (False, True):
        for writes in range(1, 100):
            cluster = fresh(template, tmp_path)
            sessions: list[DyingSession] = []
            try:
                cluster.take_in(open_store=dying_sessions(cluster.session, writes, is_last_done, sessions))
            except SessionLost:
                assert sessions[0].writes_left == 0
            else:
                assert writes >= 10, "there are that many writes"
                break
            assert is_single(LocalFileSystem(), str(cluster.directory))
            cluster.take_in()
            assert_taken(cluster)
            assert (cluster.nodes, cluster.files) == (wanted, files)
        else:
            raise AssertionError("it never comes to an end")


def test_kill_at_any_call_of_the_disk_is_taken_up(template: Path, tmp_path: Path) -> None:
    whole = fresh(template, tmp_path)
    whole.take_in()
    wanted, files = whole.nodes, whole.files
    begun = 0
    for number in range(1000):
        cluster = fresh(template, tmp_path)
        failing = FailingFiles()
        failing.watch(str(cluster.directory))
        failing.fail_at(number, is_lasting=True)
        try:
            cluster.take_in(failing)
        except BarnabasError:
            assert failing.failed is not None
        else:
            assert failing.failed is None
            break
        begun += is_begun(LocalFileSystem(), str(cluster.directory))
        if is_single(LocalFileSystem(), str(cluster.directory)):
            cluster.take_in()
        assert (cluster.target / TAKEN_IN_NAME).exists()
        assert cluster.nodes == wanted
        assert [name for name in cluster.files if not name.endswith(".lock")] == files
    else:
        raise AssertionError("it never comes to an end")
    assert begun > 5, "kills on both sides of the point of no return"


def test_broker_that_ran_alone_after_a_kill_is_copied_as_it_is_then(cluster: Cluster) -> None:
    with pytest.raises(SessionLost):
        cluster.take_in(open_store=dying_sessions(cluster.session, 4, True))
    assert "/brokers/topics/orders" in cluster.nodes

    async def change(broker: ServedBroker) -> None:
        topics = [{"name": "orders", "topic_id": None}]
        await broker.ask(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout_ms=1000)
        await broker.create("letters")

    run_alone(cluster.directory, change)
    cluster.take_in()
    assert_taken(cluster)
    assert "/brokers/topics/letters/partitions/0/state" in cluster.nodes
    assert not [path for path in cluster.nodes if "orders" in path]


def test_directory_that_cannot_be_taken_in_is_refused_and_left_as_it_is(cluster: Cluster) -> None:
    before = cluster.files
    lock = LocalFileSystem().lock(str(cluster.directory / ".lock"))
    with pytest.raises(DirectoryLocked):
        cluster.take_in()
    lock.release()
    with pytest.raises(CannotTakeIn, match="has the id 1, not 2"):
        require_takeable(LocalFileSystem(), str(cluster.directory), 2, str(cluster.target))
    shutil.copytree(cluster.directory / "orders-0", cluster.directory / "broker-1")
    with pytest.raises(CannotTakeIn, match="is a partition"):
        cluster.take_in()
    shutil.rmtree(cluster.directory / "broker-1")
    assert cluster.files == before
    (cluster.directory / "orders-1").rename(cluster.directory.parent / "elsewhere")
    with pytest.raises(CannotTakeIn, match=r"does not have orders-1: a broker with several log directories"):
        cluster.take_in()
    (cluster.directory / FILE_NAME).unlink()
    with pytest.raises(CannotTakeIn, match=f"has no {FILE_NAME}: start the broker alone once"):
        cluster.take_in()


def test_store_that_others_use_is_refused(cluster: Cluster) -> None:
    async def use(*, is_registered: bool) -> EmbeddedSession:
        session = await cluster.session()
        await ensure_layout(session)
        if is_registered:
            await register_broker(session, registration(7))
        elif await session.exists(CLUSTER_ID) is None:
            await session.create(CLUSTER_ID, ClusterId.encode("another"))
        return session

    with pytest.raises(StoreInUse, match="broker 7 is registered"):
        cluster.take_in(open_store=lambda: use(is_registered=True))
    with pytest.raises(CannotTakeIn, match="ZooKeeper has cluster another already"):
        cluster.take_in(open_store=lambda: use(is_registered=False))
    assert not is_begun(LocalFileSystem(), str(cluster.directory))


def test_store_that_lost_the_copy_is_refused_after_the_point_of_no_return(cluster: Cluster) -> None:
    (cluster.directory / FILE_NAME).rename(cluster.directory / TAKEN_IN_NAME)
    with pytest.raises(CannotTakeIn, match=f"begin again after renaming {TAKEN_IN_NAME} to {FILE_NAME}"):
        cluster.take_in()
    with pytest.raises(MetadataLost, match="was taken into a cluster"):
        require_metadata(LocalFileSystem(), [str(cluster.directory)])
