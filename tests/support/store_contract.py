"""What every `MetadataStore` must do. An implementation subclasses `StoreContract` and says how to open sessions.

Events may arrive a little later than the write that caused them was acknowledged, but never after the answer to a later
read of the same session: `Recorder.settled` reads once and returns what has come.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from barnabas.metadata.errors import (
    BadVersion,
    InvalidPath,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionLost,
    StoreError,
)
from barnabas.metadata.store import (
    NO_OWNER,
    Check,
    Create,
    Delete,
    EventType,
    MetadataStore,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
    ensure_paths,
)


class Ensemble(Protocol):
    """Something that sessions can be opened on; they all see the same tree."""

    async def session(self) -> MetadataStore: ...


class Recorder:
    """A watch that keeps its events."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._events: list[WatchEvent] = []

    def __call__(self, event: WatchEvent) -> None:
        self._events.append(event)

    async def settled(self) -> list[tuple[EventType, str]]:
        await self._store.exists("/")
        events, self._events = self._events, []
        return [(event.type, event.path) for event in events]


Scenario = Callable[["StoreContract", Ensemble], Awaitable[None]]


def scenario(test: Scenario) -> Callable[["StoreContract", Path], None]:
    """Runs an async test method with a new, empty ensemble."""

    def run(self: "StoreContract", tmp_path: Path) -> None:
        async def main() -> None:
            async with self.ensemble(tmp_path) as ensemble:
                await test(self, ensemble)

        asyncio.run(main())

    run.__name__ = test.__name__  # type: ignore[attr-defined]
    return run


class StoreContract:
    @asynccontextmanager
    async def ensemble(self, directory: Path) -> AsyncIterator[Ensemble]:
        raise NotImplementedError
        yield

    # Nodes and versions

    @scenario
    async def test_created_node_is_read_back_with_its_stat(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        assert await store.create("/a", b"data") == "/a"
        data, stat = await store.get("/a")
        assert data == b"data"
        assert (stat.version, stat.children_count, stat.ephemeral_owner) == (0, 0, NO_OWNER)
        assert stat.czxid == stat.mzxid > 0
        assert stat.created_ms == stat.modified_ms > 0
        assert await store.exists("/a") == stat

    @scenario
    async def test_set_raises_version_and_keeps_creation(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a", b"1")
        created = (await store.get("/a")).stat
        stat = await store.set("/a", b"2", 0)
        assert stat.version == 1
        assert stat.czxid == created.czxid
        assert stat.mzxid > created.mzxid
        assert (await store.set("/a", b"3")).version == 2
        assert await store.get("/a") == (b"3", await store.exists("/a"))

    @scenario
    async def test_write_with_other_version_is_refused(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a", b"1")
        await store.set("/a", b"2")
        for version in (0, 2, 100):
            with pytest.raises(BadVersion):
                await store.set("/a", b"x", version)
            with pytest.raises(BadVersion):
                await store.delete("/a", version)
        assert (await store.get("/a")).data == b"2"
        await store.delete("/a", 1)
        assert await store.exists("/a") is None

    @scenario
    async def test_missing_node_is_said(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        for attempt in (
            store.get("/a"),
            store.children("/a"),
            store.set("/a", b""),
            store.delete("/a"),
            store.create("/a/b"),
            store.multi([Check("/a")]),
        ):
            with pytest.raises(NoNode) as caught:
                await attempt
            assert caught.value.path == "/a"
        assert await store.exists("/a") is None
        assert await store.get_many(["/a", "/"]) == [None, await store.get("/")]

    @scenario
    async def test_second_create_is_refused(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a", b"1")
        for path in ("/a", "/"):
            with pytest.raises(NodeExists):
                await store.create(path, b"2")
        assert (await store.get("/a")).data == b"1"

    @scenario
    async def test_node_with_children_cannot_be_deleted(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a")
        await store.create("/a/b")
        with pytest.raises(NotEmpty):
            await store.delete("/a")
        await store.delete("/a/b")
        await store.delete("/a")
        with pytest.raises(InvalidPath):
            await store.delete("/")

    @scenario
    async def test_children_are_sorted_names(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a")
        for name in ("10", "9", "b", "B"):
            await store.create(f"/a/{name}")
        await store.create("/a/b/deeper")
        assert await store.children("/a") == ["10", "9", "B", "b"]
        assert (await store.get("/a")).stat.children_count == 4
        before = (await store.get("/a")).stat.children_version
        await store.delete("/a/9")
        assert (await store.get("/a")).stat.children_version == before + 1

    @scenario
    async def test_recreated_node_starts_anew(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a", b"1")
        await store.set("/a", b"2")
        before = (await store.get("/a")).stat
        await store.delete("/a")
        await store.create("/a", b"3")
        after = (await store.get("/a")).stat
        assert after.version == 0
        assert after.czxid > before.mzxid

    @scenario
    async def test_bad_paths_are_refused_by_every_operation(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        for path in (
            "",
            "a",
            "/a/",
            "//",
            "/a//b",
            "/.",
            "/a/..",
            "/a\x00",
            "/\x1f",
            "/\x7f",
            "/\ue000",
            "/\U0001f600",
        ):
            for attempt in (store.create(path), store.get(path), store.exists(path), store.children(path)):
                with pytest.raises(InvalidPath):
                    await attempt
            for write in (store.set(path, b""), store.delete(path), store.multi([Check(path)])):
                with pytest.raises(InvalidPath):
                    await write
        for path in ("/a.b", "/...", "/<default>", "/é", "/a b"):
            assert await store.create(path) == path

    @scenario
    async def test_sequential_names_are_never_given_twice(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a")
        assert await store.create("/a/n-", sequential=True) == "/a/n-0000000000"
        assert await store.create("/a/other") == "/a/other"
        second = await store.create("/a/n-", b"x", sequential=True)
        assert second == "/a/n-0000000002"
        await store.delete(second)
        assert await store.create("/a/n-", sequential=True) == "/a/n-0000000003"
        assert await store.create("/a/", sequential=True) == "/a/0000000004"

    @scenario
    async def test_ensure_paths_makes_what_is_missing(self, ensemble: Ensemble) -> None:
        one, two = await ensemble.session(), await ensemble.session()
        await one.create("/a", b"kept")
        await asyncio.gather(ensure_paths(one, ["/a/b/c", "/d"]), ensure_paths(two, ["/d/e", "/a/b"]))
        assert (await one.get("/a")).data == b"kept"
        assert await one.get_many(["/a/b/c", "/d/e", "/a/b/x"]) == [
            await one.get("/a/b/c"),
            await one.get("/d/e"),
            None,
        ]

    # Multi

    @scenario
    async def test_multi_does_all_at_one_position(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/gone")
        await store.create("/kept", b"1")
        results = await store.multi(
            [
                Create("/a", b"data"),
                Create("/a/b"),
                Create("/a/n-", sequential=True),
                SetData("/kept", b"2", 0),
                Check("/kept", 1),
                Delete("/gone"),
            ]
        )
        assert results[:3] == ["/a", "/a/b", "/a/n-0000000001"]
        assert isinstance(results[3], Stat)
        assert results[3].version == 1
        assert results[4:] == [None, None]
        assert await store.children("/a") == ["b", "n-0000000001"]
        assert await store.exists("/gone") is None
        stat = (await store.get("/a/b")).stat
        assert stat.czxid == (await store.get("/a")).stat.czxid == (await store.get("/kept")).stat.mzxid

    @scenario
    async def test_refused_multi_does_nothing(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a", b"1")
        before = await store.get("/")
        recorder = Recorder(store)
        await store.children("/", recorder)
        await store.get("/a", recorder)
        refusals: list[tuple[type[StoreError], Create | SetData | Delete | Check]] = [
            (NodeExists, Create("/b")),
            (NoNode, Create("/x/y")),
            (BadVersion, SetData("/a", b"3", 0)),
            (BadVersion, Check("/a", 7)),
            (NoNode, Check("/x")),
            (NoNode, Delete("/x")),
            (NotEmpty, Delete("/b")),
            (InvalidPath, Create("relative")),
        ]
        for error, operation in refusals:
            with pytest.raises(error):
                await store.multi([Create("/b"), Create("/b/c"), SetData("/a", b"2"), operation, Create("/z")])
            assert await store.get("/a") == (b"1", await store.exists("/a"))
            assert await store.children("/") == await store.children("/", recorder)
            assert await store.exists("/b") is None
        assert await store.get("/") == before
        assert await recorder.settled() == []

    @scenario
    async def test_multi_checks_see_its_own_earlier_operations(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.multi([Create("/a"), SetData("/a", b"1", 0), SetData("/a", b"2", 1), Check("/a", 2)])
        await store.multi([Create("/a/b"), Delete("/a/b"), Delete("/a"), Create("/a", b"new")])
        assert await store.get("/a") == (b"new", await store.exists("/a"))

    @scenario
    async def test_racing_conditional_writes_let_one_win(self, ensemble: Ensemble) -> None:
        sessions = [await ensemble.session() for _ in range(4)]
        await sessions[0].create("/a", b"")

        async def attempt(store: MetadataStore, number: int) -> int:
            try:
                await store.multi([SetData("/a", str(number).encode(), 0), Create(f"/won-{number}")])
            except BadVersion:
                return 0
            return 1

        outcomes = await asyncio.gather(*(attempt(store, number) for number, store in enumerate(sessions)))
        assert sum(outcomes) == 1
        winner = outcomes.index(1)
        assert (await sessions[winner].get("/a")).data == str(winner).encode()
        assert await sessions[winner].exists(f"/won-{winner}") is not None

    # Order

    @scenario
    async def test_writes_of_a_session_keep_their_order(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a")
        writes = [asyncio.ensure_future(store.create(f"/a/{number:03}")) for number in range(50)]
        writes += [asyncio.ensure_future(store.set("/a", str(number).encode())) for number in range(50)]
        await asyncio.gather(*writes)
        nodes = await store.get_many([f"/a/{number:03}" for number in range(50)])
        positions = [node.stat.czxid for node in nodes if node is not None]
        assert len(positions) == 50
        assert positions == sorted(set(positions))
        assert (await store.get("/a")).data == b"49"

    # Ephemerals and sessions

    @scenario
    async def test_ephemerals_go_with_their_session(self, ensemble: Ensemble) -> None:
        mine, other = await ensemble.session(), await ensemble.session()
        await mine.create("/a")
        await mine.create("/a/e", b"x", ephemeral=True)
        sequential = await mine.create("/a/s-", ephemeral=True, sequential=True)
        await other.create("/a/other", ephemeral=True)
        assert (await other.get("/a/e")).stat.ephemeral_owner == mine.session_id
        assert mine.session_id != other.session_id
        recorder = Recorder(other)
        await other.get("/a/e", recorder)
        await mine.close()
        assert await other.children("/a") == ["other"]
        assert await recorder.settled() == [(EventType.DELETED, "/a/e")]
        assert await other.create("/a/s-", sequential=True) > sequential

    @scenario
    async def test_ephemeral_has_no_children(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/e", ephemeral=True)
        with pytest.raises(NoChildrenForEphemerals):
            await store.create("/e/child")
        await store.delete("/e")
        await store.create("/e")
        await store.create("/e/child")

    @scenario
    async def test_closed_session_refuses_and_says_so(self, ensemble: Ensemble) -> None:
        store, other = await ensemble.session(), await ensemble.session()
        states: list[SessionState] = []
        store.add_session_listener(states.append)
        recorder = Recorder(other)
        await store.children("/", recorder)
        assert store.state is SessionState.CONNECTED
        await store.close()
        await store.close()
        assert store.state is SessionState.LOST
        assert states == [SessionState.LOST]
        for attempt in (store.get("/"), store.exists("/"), store.children("/"), store.create("/a")):
            with pytest.raises(SessionLost):
                await attempt
        await other.create("/a")
        assert await recorder.settled() == []

    @scenario
    async def test_another_session_may_delete_an_ephemeral(self, ensemble: Ensemble) -> None:
        mine, other = await ensemble.session(), await ensemble.session()
        await mine.create("/e", b"mine", ephemeral=True)
        await other.delete("/e", 0)
        await other.create("/e", b"other", ephemeral=True)
        await mine.close()
        assert (await other.get("/e")).data == b"other"

    # Watches

    @scenario
    async def test_data_watch_is_called_once(self, ensemble: Ensemble) -> None:
        store, other = await ensemble.session(), await ensemble.session()
        await store.create("/a")
        recorder = Recorder(store)
        await store.get("/a", recorder)
        await store.exists("/a", recorder)
        await other.set("/a", b"1")
        await other.set("/a", b"2")
        await store.get("/a")
        assert await recorder.settled() == [(EventType.CHANGED, "/a")]
        await store.get("/a", recorder)
        await store.delete("/a")
        await store.create("/a")
        assert await recorder.settled() == [(EventType.DELETED, "/a")]

    @scenario
    async def test_exists_watch_waits_for_creation(self, ensemble: Ensemble) -> None:
        store, other = await ensemble.session(), await ensemble.session()
        recorder = Recorder(store)
        assert await store.exists("/a", recorder) is None
        await other.create("/b")
        assert await recorder.settled() == []
        await other.create("/a")
        await other.set("/a", b"1")
        await store.exists("/a")
        assert await recorder.settled() == [(EventType.CREATED, "/a")]

    @scenario
    async def test_failed_reads_leave_no_watch(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        recorder = Recorder(store)
        for attempt in (store.get("/a", recorder), store.children("/a", recorder)):
            with pytest.raises(NoNode):
                await attempt
        assert await store.get_many(["/a"], recorder) == [None]
        await store.create("/a")
        await store.create("/a/b")
        await store.set("/a", b"1")
        assert await recorder.settled() == []

    @scenario
    async def test_children_watch_tells_of_children_only(self, ensemble: Ensemble) -> None:
        store, other = await ensemble.session(), await ensemble.session()
        await store.create("/a")
        recorder = Recorder(store)
        await store.children("/a", recorder)
        await other.set("/a", b"1")
        await other.create("/b")
        assert await recorder.settled() == []
        await other.create("/a/b")
        await other.create("/a/c")
        await store.children("/a")
        assert await recorder.settled() == [(EventType.CHILDREN, "/a")]
        await store.children("/a", recorder)
        await other.create("/a/b/deeper")
        await other.set("/a/b", b"1")
        assert await recorder.settled() == []
        await other.delete("/a/c")
        await store.children("/a")
        assert await recorder.settled() == [(EventType.CHILDREN, "/a")]

    @scenario
    async def test_children_watch_tells_of_the_nodes_end(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a")
        recorder = Recorder(store)
        await store.children("/a", recorder)
        await store.delete("/a")
        assert await recorder.settled() == [(EventType.DELETED, "/a")]

    @scenario
    async def test_get_many_watches_each_node(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        for path in ("/a", "/b", "/c"):
            await store.create(path)
        recorder = Recorder(store)
        await store.get_many(["/a", "/b", "/c"], recorder)
        await store.multi([SetData("/c", b"1"), Delete("/a")])
        assert sorted(await recorder.settled(), key=lambda event: event[1]) == [
            (EventType.DELETED, "/a"),
            (EventType.CHANGED, "/c"),
        ]
        await store.set("/b", b"1")
        assert await recorder.settled() == [(EventType.CHANGED, "/b")]

    @scenario
    async def test_watch_is_called_before_its_session_reads_the_change(self, ensemble: Ensemble) -> None:
        store, other = await ensemble.session(), await ensemble.session()
        await store.create("/a", b"0")
        events: list[WatchEvent] = []
        await store.get("/a", events.append)
        write = asyncio.ensure_future(other.set("/a", b"1"))
        while (await store.get("/a")).data == b"0":
            assert events == []
            await asyncio.sleep(0)
        assert events == [WatchEvent(EventType.CHANGED, "/a")]
        await write

    @scenario
    async def test_no_change_falls_between_read_and_watch(self, ensemble: Ensemble) -> None:
        """A reader that always watches what it reads ends with the last value."""
        reader, writer = await ensemble.session(), await ensemble.session()
        await writer.create("/a", b"0")
        is_due = asyncio.Event()
        seen: list[bytes] = []

        async def follow() -> None:
            while not seen or seen[-1] != b"40":
                is_due.clear()
                seen.append((await reader.get("/a", lambda _event: is_due.set())).data)
                if seen[-1] != b"40":
                    await is_due.wait()

        async def change() -> None:
            for number in range(1, 41):
                await writer.set("/a", str(number).encode())

        await asyncio.wait_for(asyncio.gather(follow(), change()), 30)
        assert [int(value) for value in seen] == sorted({int(value) for value in seen})
