"""What every `MetadataStore` promises of watches."""

import asyncio

import pytest

from barnabas.metadata.errors import NoNode
from barnabas.metadata.store import Delete, EventType, SetData, WatchEvent
from tests.support.store_scenario import Contract, Ensemble, Recorder, scenario

RACES = 200


class WatchContract(Contract):
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
        """Many times: a store that hands out answers and events by two roads passes most of them."""
        store, other = await ensemble.session(), await ensemble.session()
        await store.create("/a", b"")
        for number in range(RACES):
            events: list[WatchEvent] = []
            before = (await store.get("/a", events.append)).data
            write = asyncio.ensure_future(other.set("/a", str(number).encode()))
            while (await store.get("/a")).data == before:  # noqa: ASYNC110 - the reads are what is tested
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

        await asyncio.wait_for(asyncio.gather(follow(), change()), 120)
        assert [int(value) for value in seen] == sorted({int(value) for value in seen})
