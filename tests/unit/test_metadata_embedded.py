"""The embedded store: the contract over both of its tables, and what is its own (files, reopening, failures)."""

import asyncio
import errno
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DirectoryLocked, DiskFailed, DiskFull
from barnabas.base.filesystem import LocalFileSystem
from barnabas.metadata.embedded import EmbeddedMetadata, EmbeddedSession
from barnabas.metadata.errors import CorruptMetadata, NodeExists, SessionLost
from barnabas.metadata.store import Create, SessionState, SetData
from barnabas.metadata.table import FILE_NAME, MemoryTable
from barnabas.metadata.tree import TreeNode
from tests.support.store_contract import Ensemble, StoreContract


def open_store(directory: Path) -> "asyncio.Future[EmbeddedMetadata]":
    return asyncio.ensure_future(EmbeddedMetadata.open(str(directory), LocalFileSystem(), ManualClock()))


class _Sessions:
    def __init__(self, store: EmbeddedMetadata) -> None:
        self._store = store

    async def session(self) -> EmbeddedSession:
        return self._store.session()


class TestEmbedded(StoreContract):
    @asynccontextmanager
    async def ensemble(self, directory: Path) -> AsyncIterator[Ensemble]:
        async with await open_store(directory) as store:
            yield _Sessions(store)
            store.check_invariants()


class TestEmbeddedInMemory(StoreContract):
    @asynccontextmanager
    async def ensemble(self, directory: Path) -> AsyncIterator[Ensemble]:
        async with EmbeddedMetadata.in_memory(ManualClock()) as store:
            yield _Sessions(store)
            store.check_invariants()


class FailingTable(MemoryTable):
    """Refuses commits with the error it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.error: DiskFailed | None = None
        self.commits = 0

    def commit(self, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
        if self.error is not None:
            raise self.error
        self.commits += 1
        super().commit(zxid, nodes)


def test_reopened_store_has_everything_but_ephemerals(tmp_path: Path) -> None:
    async def main() -> None:
        async with await open_store(tmp_path) as store:
            session = store.session()
            await session.create("/a", b"1")
            await session.set("/a", b"2")
            await session.create("/a/e-", ephemeral=True, sequential=True)
            await session.create("/a/b")
            await session.delete("/a/b")
            await session.create("/a/c", b"\x00\xff")
            before = await session.get("/a/c")
            zxid = (await session.get("/a")).stat.pzxid
        async with await open_store(tmp_path) as store:
            session = store.session()
            assert await session.children("/a") == ["c"]
            assert await session.get("/a/c") == before
            assert (await session.get("/a")).data == b"2"
            assert (await session.get("/a")).stat.version == 1
            # Neither positions nor sequential numbers come back.
            assert await session.create("/a/e-", sequential=True) == "/a/e-0000000003"
            assert (await session.get("/a/e-0000000003")).stat.czxid > zxid
            store.check_invariants()

    asyncio.run(main())


def test_position_of_an_ephemeral_is_not_given_again_after_a_crash(tmp_path: Path) -> None:
    """A broker's epoch is the position of its registration."""

    async def main() -> None:
        table = MemoryTable()
        epochs = []
        for _ in range(3):  # the store is not closed: nothing tells it that the session ends
            session = EmbeddedMetadata.in_memory(ManualClock(), table).session()
            await session.create("/broker", ephemeral=True)
            epochs.append((await session.get("/broker")).stat.czxid)
        assert epochs == sorted(set(epochs))

    asyncio.run(main())


def test_second_process_is_kept_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with await open_store(tmp_path):
            with pytest.raises(DirectoryLocked):
                await open_store(tmp_path)
        async with await open_store(tmp_path):
            pass

    asyncio.run(main())


def test_file_that_is_no_database_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 1000)

    async def main() -> None:
        for _ in range(2):  # the lock was given back
            with pytest.raises(CorruptMetadata, match=FILE_NAME):
                await open_store(tmp_path)

    asyncio.run(main())


def test_file_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CorruptMetadata, match="version 99"):
        asyncio.run(EmbeddedMetadata.open(str(tmp_path), LocalFileSystem(), ManualClock()))


def test_writes_that_wait_are_committed_together() -> None:
    async def main() -> None:
        table = FailingTable()
        session = EmbeddedMetadata.in_memory(ManualClock(), table).session()
        await asyncio.gather(*(session.create(f"/{number}") for number in range(100)))
        assert table.commits == 1
        assert len(await session.children("/")) == 100

    asyncio.run(main())


def test_commit_without_space_refuses_its_group_and_heals() -> None:
    async def main() -> None:
        table = FailingTable()
        session = EmbeddedMetadata.in_memory(ManualClock(), table).session()
        await session.create("/a")
        events: list[object] = []
        await session.children("/", events.append)
        table.error = DiskFull("write", "file", OSError(errno.ENOSPC, "no space"))
        writes = [session.create("/b"), session.create("/b"), session.set("/a", b"1")]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        # The second `create` was refused for the first, which did not happen: it must not say that the node exists.
        assert [type(outcome) for outcome in outcomes] == [DiskFull] * 3
        assert events == []
        assert await session.children("/") == ["a"]
        assert session.state is SessionState.CONNECTED
        table.error = None
        await session.create("/b")
        assert len(events) == 1

    asyncio.run(main())


def test_failed_disk_ends_every_session(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        table = FailingTable()
        store = EmbeddedMetadata.in_memory(ManualClock(), table)
        one, two = store.session(), store.session()
        states: list[SessionState] = []
        two.add_session_listener(states.append)
        table.error = DiskFailed("write", "file", OSError(errno.EIO, "broken"))
        first = asyncio.ensure_future(one.create("/a"))
        with pytest.raises(DiskFailed):
            await first
        assert states == [SessionState.LOST]
        with pytest.raises(SessionLost):
            await two.create("/b")
        with pytest.raises(SessionLost):
            await one.get("/")
        await store.close()

    asyncio.run(main())
    assert "lost until it is opened again" in caplog.text


def test_cancelled_caller_leaves_the_write_and_the_others_alone() -> None:
    async def main() -> None:
        session = EmbeddedMetadata.in_memory(ManualClock()).session()
        cancelled = asyncio.ensure_future(session.create("/a"))
        other = asyncio.ensure_future(session.create("/b"))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await other == "/b"
        assert await session.children("/") == ["a", "b"]

    asyncio.run(main())


def test_close_finishes_writes_that_wait(tmp_path: Path) -> None:
    async def main() -> None:
        store = await open_store(tmp_path)
        session = store.session()
        writes = [asyncio.ensure_future(session.create(f"/{number}")) for number in range(10)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*writes)
        async with await open_store(tmp_path) as again:
            assert len(await again.session().children("/")) == 10

    asyncio.run(main())


def test_refused_write_of_a_group_leaves_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with await open_store(tmp_path) as store:
            session = store.session()
            outcomes = await asyncio.gather(
                session.create("/a", b"1"),
                session.multi([SetData("/a", b"lost"), Create("/a")]),
                session.set("/a", b"2", 0),
                return_exceptions=True,
            )
            assert isinstance(outcomes[1], NodeExists)
            assert await session.get("/a") == (b"2", outcomes[2])

    asyncio.run(main())
