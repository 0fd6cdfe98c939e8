"""The embedded store: the contract over both of its tables, and what is its own (files, reopening, failures)."""

import asyncio
import errno
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DirectoryLocked, DiskFailed, DiskFull
from barnabas.base.filesystem import LocalFileSystem
from barnabas.metadata import embedded
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.errors import CorruptMetadata, NodeExists, OutcomeUnknown, SessionLost, SessionSuspended
from barnabas.metadata.store import Create, MetadataStore, SessionState, SetData
from barnabas.metadata.table import FILE_NAME, MemoryTable, SqliteTable
from barnabas.metadata.tree import TreeNode
from tests.support.refusing_table import RefusingTable
from tests.support.store_contract import StoreContract
from tests.support.store_contract_sessions import InterruptionContract
from tests.support.store_scenario import CannotHappen, Ensemble, reached


def open_store(directory: Path) -> "asyncio.Future[EmbeddedMetadata]":
    return asyncio.ensure_future(EmbeddedMetadata.open(str(directory), LocalFileSystem(), ManualClock()))


class _Sessions:
    """Its sessions are suspended all together, while the file cannot be opened again."""

    def __init__(self, store: EmbeddedMetadata) -> None:
        self._store = store
        self._restore = store._restore
        self._may_restore = asyncio.Event()

    async def session(self) -> EmbeddedSession:
        return self._store.session()

    async def suspend(self, store: MetadataStore) -> None:
        self._may_restore.clear()
        self._store._restore = self._restore_later  # type: ignore[method-assign]
        self._store._become_lost(DiskFailed("write", "file", OSError(errno.EIO, "broken")))

    async def resume(self, store: MetadataStore) -> None:
        self._may_restore.set()
        await reached(store, SessionState.CONNECTED)

    async def expire(self, store: MetadataStore) -> None:
        raise CannotHappen("sessions of the embedded store end with their process, or when they are closed")

    async def lose_answers(self, store: MetadataStore) -> None:
        raise CannotHappen("there is no connection that could break between a write and its answer")

    async def _restore_later(self) -> None:
        await self._may_restore.wait()
        await self._restore()


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_RETRY_SECONDS_MIN", 0.001)


class TestEmbedded(StoreContract, InterruptionContract):
    @asynccontextmanager
    async def ensemble(self, directory: Path) -> AsyncIterator[Ensemble]:
        async with await open_store(directory) as store:
            yield _Sessions(store)
            store.check_invariants()


class TestEmbeddedInMemory(StoreContract, InterruptionContract):
    @asynccontextmanager
    async def ensemble(self, directory: Path) -> AsyncIterator[Ensemble]:
        async with EmbeddedMetadata.in_memory(ManualClock()) as store:
            yield _Sessions(store)
            store.check_invariants()


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
        table = RefusingTable()
        session = EmbeddedMetadata.in_memory(ManualClock(), table).session()
        await asyncio.gather(*(session.create(f"/{number}") for number in range(100)))
        assert table.commits == 1
        assert len(await session.children("/")) == 100

    asyncio.run(main())


def test_commit_without_space_refuses_its_group_and_heals() -> None:
    async def main() -> None:
        table = RefusingTable()
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


def test_failed_disk_suspends_every_session_until_the_store_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        table = RefusingTable()
        store = EmbeddedMetadata.in_memory(ManualClock(), table)
        one, two = store.session(), store.session()
        await one.create("/kept", b"1")
        await one.create("/alive", ephemeral=True)
        states: asyncio.Queue[SessionState] = asyncio.Queue()
        two.add_session_listener(states.put_nowait)
        events: list[object] = []
        await two.children("/", events.append)
        table.error = DiskFailed("write", "file", OSError(errno.EIO, "broken"))
        outcomes = await asyncio.gather(one.create("/a"), two.create("/b"), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [DiskFailed] * 2
        assert await states.get() is SessionState.SUSPENDED
        assert store.is_lost
        assert store.problem == "cannot write file: broken"
        for refused in (two.create("/c"), one.get("/kept")):
            with pytest.raises(SessionSuspended, match="suspended: cannot write file: broken"):
                await refused
        table.error = None
        assert await states.get() is SessionState.CONNECTED
        assert (store.is_lost, store.problem) == (False, None)
        assert await one.children("/") == ["alive", "kept"], "what failed has not happened"
        await two.create("/c")
        assert events == [], "watches are gone"
        store.check_invariants()
        await store.close()

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if "unavailable until it can be reopened" in text] == said[:1]
    assert said[1:] == ["the metadata store is writable again"]


def _break_log(store: EmbeddedMetadata) -> None:
    """Every write of SQLite to its log fails until it opens the file again, as after an error of the disk."""
    assert isinstance(store._table, SqliteTable)
    (descriptor,) = [
        int(name)
        for name in os.listdir("/proc/self/fd")
        if os.path.realpath(f"/proc/self/fd/{name}") == os.path.realpath(f"{store._table.path}-wal")
    ]
    broken = os.open(os.devnull, os.O_RDONLY)
    os.dup2(broken, descriptor)
    os.close(broken)


@pytest.mark.parametrize("was_written", [False, True])
def test_file_that_failed_is_opened_again_with_all_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_written: bool
) -> None:
    async def main() -> None:
        async with await open_store(tmp_path) as store:
            session = store.session()
            await session.create("/before", b"1")
            await session.create("/alive", ephemeral=True)
            states: asyncio.Queue[SessionState] = asyncio.Queue()
            session.add_session_listener(states.put_nowait)
            if was_written:  # the commit was on the disk, and only the answer failed
                commit = store._table.commit

                def fail_after(zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
                    commit(zxid, nodes)
                    monkeypatch.undo()
                    raise DiskFailed("sync", "file", OSError(errno.EIO, "broken"))

                monkeypatch.setattr(store._table, "commit", fail_after)
            else:
                _break_log(store)
            with pytest.raises(DiskFailed):
                await session.create("/failed")
            async with asyncio.timeout(120):
                assert [await states.get() for _ in range(2)] == [SessionState.SUSPENDED, SessionState.CONNECTED]
            assert await session.children("/") == ["alive", "before"]
            await session.create("/after")
        async with await open_store(tmp_path) as store:
            assert await store.session().children("/") == ["after", "before"]
            store.check_invariants()

    asyncio.run(main())


@pytest.mark.parametrize("is_gone", [False, True])
def test_file_that_is_damaged_or_gone_is_made_again_from_memory(tmp_path: Path, is_gone: bool) -> None:
    path = tmp_path / FILE_NAME

    async def main() -> None:
        async with await open_store(tmp_path) as store:
            session = store.session()
            await session.create("/before", b"1")
            states: asyncio.Queue[SessionState] = asyncio.Queue()
            session.add_session_listener(states.put_nowait)
            _break_log(store)
            if is_gone:
                path.unlink()
            else:
                path.write_bytes(b"not a database" * 1000)
            with pytest.raises((DiskFailed, CorruptMetadata)):
                await session.create("/failed")
            async with asyncio.timeout(120):
                assert [await states.get() for _ in range(2)] == [SessionState.SUSPENDED, SessionState.CONNECTED]
            await session.create("/after")
        async with await open_store(tmp_path) as store:
            assert await store.session().children("/") == ["after", "before"]

    asyncio.run(main())
    assert (tmp_path / f"{FILE_NAME}.old1").exists() != is_gone


def test_sessions_begin_on_a_full_disk_and_are_saved_when_there_is_space() -> None:
    async def main() -> None:
        table = RefusingTable()
        async with EmbeddedMetadata.in_memory(ManualClock(), table) as store:
            await store.session().create("/epoch", b"1")
        async with EmbeddedMetadata.in_memory(ManualClock(), table) as store:
            table.error = DiskFull("write", "file", OSError(errno.ENOSPC, "no space"))
            session = store.session()
            claim = session.multi([SetData("/epoch", b"2"), Create("/controller", ephemeral=True)])
            outcomes = await asyncio.gather(claim, session.create("/refused"), return_exceptions=True)
            assert not isinstance(outcomes[0], BaseException)
            assert isinstance(outcomes[1], DiskFull)
            assert await session.children("/") == ["controller", "epoch"]
            assert (await session.get("/epoch")).data == b"2"
            assert session.state is SessionState.CONNECTED
            assert store.problem == "cannot write file: no space"
            assert not store.is_lost
            assert table.load().nodes["/epoch"].data == b"1"
            table.error = None
            assert store._retrying is not None
            await store._retrying
            assert store.problem is None
            assert table.load().nodes["/epoch"].data == b"2", "saved without another write"
            assert "/controller" not in table.load().nodes

    asyncio.run(main())


def test_bug_in_the_middle_of_a_write_leaves_its_outcome_unknown_and_ends_the_sessions() -> None:
    async def main() -> None:
        bugs: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: bugs.append(context))
        table = RefusingTable()
        session = EmbeddedMetadata.in_memory(ManualClock(), table).session()
        table.error = AssertionError("a bug")
        outcomes = await asyncio.gather(session.create("/a"), session.multi([]), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown] * 2
        assert isinstance(outcomes[0], OutcomeUnknown)
        assert outcomes[0].path == "/a"
        assert session.state is SessionState.LOST
        with pytest.raises(SessionLost):
            await session.get("/")
        assert len(bugs) == 1

    asyncio.run(main())


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
