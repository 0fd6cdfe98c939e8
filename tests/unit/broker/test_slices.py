"""Long requests share a few milliseconds of each turn of the event loop."""

import asyncio
from collections.abc import Generator

import pytest

from barnabas.base.clock import ManualClock
from barnabas.broker.slices import SLICE_SECONDS, Slices
from barnabas.wire.errors import ErrorCode, KafkaError

PIECE_MS = 1
PIECES_PER_SLICE = int(SLICE_SECONDS * 1000) // PIECE_MS


def _pieces(clock: ManualClock, name: str, count: int, done: list[str]) -> Generator[None, None, None]:
    """Work of which each piece takes a millisecond."""
    for _ in range(count):
        clock.advance(PIECE_MS)
        done.append(name)
        yield


async def _work(slices: Slices, clock: ManualClock, name: str, count: int, done: list[str]) -> None:
    await slices.begin()
    async for _ in slices.each(_pieces(clock, name, count, done)):
        pass


def test_long_work_takes_a_slice_of_each_turn() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        slices = Slices(asyncio.get_running_loop(), clock)
        done: list[str] = []
        turns: list[int] = []
        task = asyncio.create_task(_work(slices, clock, "long", 20, done))
        while not task.done():
            before = len(done)
            await asyncio.sleep(0)
            turns.append(len(done) - before)
        assert max(turns) <= PIECES_PER_SLICE + 2  # the piece before the clock is looked at, and the one after it
        assert len(done) == 20

    asyncio.run(scenario())


def test_many_long_requests_share_the_slice_and_none_is_left_behind() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        slices = Slices(asyncio.get_running_loop(), clock)
        done: list[str] = []
        tasks = [asyncio.create_task(_work(slices, clock, str(number), 5, done)) for number in range(40)]
        longest = 0
        while not all(task.done() for task in tasks):
            before = len(done)
            await asyncio.sleep(0)
            longest = max(longest, len(done) - before)
        # Each that is woken does a piece at least; a request that comes meanwhile waits behind them.
        assert longest <= 16 + 2 * PIECES_PER_SLICE
        assert sorted(done) == sorted(str(number) for number in range(40) for _ in range(5))

    asyncio.run(scenario())


def test_those_that_wait_are_not_overtaken_by_a_stream_of_newcomers() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        slices = Slices(asyncio.get_running_loop(), clock)
        done: list[str] = []
        first = asyncio.create_task(_work(slices, clock, "first", 50, done))
        newcomers = []
        for _ in range(1000):
            if first.done():
                break
            newcomers.append(asyncio.create_task(_work(slices, clock, "newcomer", 5, done)))
            await asyncio.sleep(0)
        assert first.done()
        await asyncio.gather(*newcomers)

    asyncio.run(scenario())


def test_request_that_begins_passes_the_long_ones() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        slices = Slices(asyncio.get_running_loop(), clock)
        done: list[str] = []
        long = [asyncio.create_task(_work(slices, clock, "long", 100, done)) for _ in range(50)]
        for _ in range(20):
            await asyncio.sleep(0)
        short = asyncio.create_task(_work(slices, clock, "short", 1, done))
        turns = 0
        while not short.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns < 10
        await asyncio.gather(*long)

    asyncio.run(scenario())


def test_short_work_does_not_wait() -> None:
    async def scenario() -> None:
        slices = Slices(asyncio.get_running_loop(), ManualClock())
        done: list[str] = []
        task = asyncio.create_task(_work(slices, ManualClock(), "short", 100, done))
        await asyncio.sleep(0)
        assert task.done()

    asyncio.run(scenario())


def test_one_that_is_cancelled_while_it_waits_does_not_hold_up_the_others() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        slices = Slices(asyncio.get_running_loop(), clock)
        done: list[str] = []
        tasks = [asyncio.create_task(_work(slices, clock, str(number), 5, done)) for number in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [task.cancelled() for task in tasks] == [False, True, False]

    asyncio.run(scenario())


def test_result_of_steps_is_returned() -> None:
    async def scenario() -> None:
        clock = ManualClock()

        def steps():  # type: ignore[no-untyped-def]
            for _ in range(10):
                clock.advance(PIECE_MS)
                yield
            return "done"

        assert await Slices(asyncio.get_running_loop(), clock).finish(steps(), lambda: None) == "done"

    asyncio.run(scenario())


def test_work_that_nobody_wants_any_more_ends_at_its_next_turn() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        done: list[str] = []

        def refuse() -> None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

        with pytest.raises(KafkaError):
            await Slices(asyncio.get_running_loop(), clock).finish(_pieces(clock, "long", 100, done), refuse)
        assert len(done) <= PIECES_PER_SLICE + 2

    asyncio.run(scenario())
