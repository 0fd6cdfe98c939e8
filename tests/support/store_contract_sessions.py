"""What every `MetadataStore` promises of sessions: ephemerals, ends, interruptions, and what is unknown after them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from barnabas.metadata.errors import NoChildrenForEphemerals, OutcomeUnknown, SessionLost, SessionSuspended
from barnabas.metadata.store import Check, EventType, MetadataStore, SessionState
from tests.support.store_scenario import PATIENCE_SECONDS, Contract, Ensemble, Recorder, scenario

AT_ONCE_SECONDS = 0.5


def every_call(store: MetadataStore) -> list[Coroutine[Any, Any, object]]:
    return [
        store.create("/x"),
        store.get("/"),
        store.get_many(["/"]),
        store.exists("/"),
        store.children("/"),
        store.set("/", b""),
        store.delete("/x"),
        store.multi([Check("/")]),
        store.sync(),
    ]


async def assert_refused(store: MetadataStore, kind: type[SessionLost]) -> None:
    """Every call is refused at once, and with exactly this."""
    for call in every_call(store):
        async with asyncio.timeout(AT_ONCE_SECONDS):
            with pytest.raises(SessionLost) as caught:
                await call
        assert type(caught.value) is kind


class EphemeralContract(Contract):
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

    @scenario
    async def test_sync_shows_what_others_have_written(self, ensemble: Ensemble) -> None:
        one, two = await ensemble.session(), await ensemble.session()
        await one.create("/a", b"")
        for number in range(20):
            writer, reader = (one, two) if number % 2 else (two, one)
            await reader.sync()
            await writer.set("/a", str(number).encode())
            await reader.sync()
            assert (await reader.get("/a")).data == str(number).encode()

    @scenario
    async def test_close_ends_every_call_that_is_under_way(self, ensemble: Ensemble) -> None:
        store, other = await ensemble.session(), await ensemble.session()
        calls = [asyncio.ensure_future(store.create(f"/{number}")) for number in range(300)]
        await asyncio.sleep(0)
        await store.close()
        async with asyncio.timeout(PATIENCE_SECONDS):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        await other.sync()
        present = await other.children("/")
        for number, outcome in enumerate(outcomes):
            assert isinstance(outcome, SessionLost | str), outcome
            if not isinstance(outcome, OutcomeUnknown):
                assert (str(number) in present) == isinstance(outcome, str)


class InterruptionContract(Contract):
    @scenario
    async def test_suspended_session_refuses_at_once_and_goes_on_with_its_ephemerals(self, ensemble: Ensemble) -> None:
        store, other = await ensemble.session(), await ensemble.session()
        states: list[SessionState] = []
        store.add_session_listener(states.append)
        await store.create("/e", b"x", ephemeral=True)
        session_id = store.session_id
        await ensemble.suspend(store)
        assert store.state is SessionState.SUSPENDED
        await assert_refused(store, SessionSuspended)
        await ensemble.resume(store)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert store.session_id == session_id
        assert (await store.get("/e")).stat.ephemeral_owner == session_id
        assert await store.children("/") == await other.children("/") == ["e"]
        await store.create("/a")
        await store.delete("/e")

    @scenario
    async def test_watches_are_gone_after_an_interruption(self, ensemble: Ensemble) -> None:
        store, other = await ensemble.session(), await ensemble.session()
        await store.create("/a")
        recorder = Recorder(store)
        for _ in range(2):
            await store.get("/a", recorder)
            await store.children("/", recorder)
            await store.exists("/b", recorder)
            await ensemble.suspend(store)
            await ensemble.resume(store)
            await other.set("/a", b"1")
            await other.create("/b")
            await other.delete("/b")
            assert await recorder.settled() == []
        later = Recorder(store)
        await store.get("/a", later)
        await other.set("/a", b"2")
        await store.sync()
        assert await later.settled() == [(EventType.CHANGED, "/a")]
        assert await recorder.settled() == [], "not even together with another one"

    @scenario
    async def test_calls_under_way_end_when_the_session_is_suspended(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        await store.create("/a")
        await ensemble.lose_answers(store)
        reads = [asyncio.ensure_future(store.get("/a")) for _ in range(200)]
        writes = [asyncio.ensure_future(store.create(f"/a/{number:03}")) for number in range(200)]
        await asyncio.sleep(0)
        await ensemble.suspend(store)
        async with asyncio.timeout(AT_ONCE_SECONDS):
            read = await asyncio.gather(*reads, return_exceptions=True)
            written = await asyncio.gather(*writes, return_exceptions=True)
        assert {type(outcome) for outcome in read} == {SessionSuspended}
        assert {type(outcome) for outcome in written} <= {SessionSuspended, OutcomeUnknown}
        await ensemble.resume(store)
        await store.sync()
        present = await store.children("/a")
        for number, outcome in enumerate(written):
            if not isinstance(outcome, OutcomeUnknown):
                assert f"{number:03}" not in present, "it said that nothing was changed"

    @scenario
    async def test_outcome_of_an_unanswered_write_is_unknown_and_decided_when_connected(
        self, ensemble: Ensemble
    ) -> None:
        store, other = await ensemble.session(), await ensemble.session()
        await store.create("/a", b"1")
        created = asyncio.Event()
        await other.exists("/b", lambda _event: created.set())
        await ensemble.lose_answers(store)
        write = asyncio.ensure_future(store.create("/b"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await created.wait()
        assert not write.done()
        await ensemble.suspend(store)
        with pytest.raises(OutcomeUnknown) as caught:
            await write
        assert caught.value.path == "/b"
        await ensemble.resume(store)
        await store.sync()
        assert await store.exists("/b") is not None

    @scenario
    async def test_expired_session_is_lost_for_ever(self, ensemble: Ensemble) -> None:
        store, other = await ensemble.session(), await ensemble.session()
        states: list[SessionState] = []
        await store.create("/e", ephemeral=True)
        recorder = Recorder(other)
        await other.exists("/e", recorder)
        never_called = Recorder(other)
        await store.children("/", never_called)
        store.add_session_listener(states.append)
        await ensemble.expire(store)
        assert states[-1] is SessionState.LOST
        assert store.state is SessionState.LOST
        await other.sync()
        assert await recorder.settled() == [(EventType.DELETED, "/e")]
        await other.create("/a")
        await assert_refused(store, SessionLost)
        await store.close()
        await asyncio.sleep(0.05)  # a store that connected again by itself would have
        assert states.count(SessionState.LOST) == 1
        assert states[-1] is store.state is SessionState.LOST
        assert await never_called.settled() == []

    @scenario
    async def test_suspended_session_can_be_closed(self, ensemble: Ensemble) -> None:
        store = await ensemble.session()
        states: list[SessionState] = []
        store.add_session_listener(states.append)
        await ensemble.suspend(store)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await store.close()
        assert states == [SessionState.SUSPENDED, SessionState.LOST]
        await assert_refused(store, SessionLost)
