"""The virtual loop: time that jumps, work of threads, processes that are held or dead, and what it says when stuck."""

import asyncio
from random import Random

import pytest

from barnabas.sim.world.loop import Deadlock, Spinning, TimeIsUp, VirtualLoop
from barnabas.sim.world.process import Process
from barnabas.sim.world.world import World


def test_a_year_of_sleep_takes_no_time_and_ends_when_it_should() -> None:
    world = World(1, seconds_max=1e9)

    async def sleep() -> float:
        await asyncio.sleep(31_536_000)
        return world.loop.time()

    assert world.run(sleep()) == 31_536_000


def test_wait_that_nothing_can_end_is_reported_with_who_waits_and_where() -> None:
    world = World(1)

    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await world.spawn(world.process("broker-7/1"), wait_for_nothing())

    with pytest.raises(Deadlock, match=r"broker-7/1: .*wait_for_nothing:\d+ > Event\.wait"):
        world.run(main())


def test_history_that_takes_too_long_is_ended() -> None:
    world = World(1, seconds_max=10.0)

    async def tick_for_ever() -> None:
        while True:  # noqa: ASYNC110 - it is to take long
            await asyncio.sleep(1)

    with pytest.raises(TimeIsUp, match="after 10 s of virtual time"):
        world.run(tick_for_ever())
    assert world.loop.time() == pytest.approx(11)


def test_callbacks_without_end_at_one_moment_are_ended() -> None:
    world = World(1)

    async def spin() -> None:
        while True:  # noqa: ASYNC110 - it is to spin
            await asyncio.sleep(0)

    with pytest.raises(Spinning, match=r"at 0\.000000 s"):
        world.run(spin())


def test_work_of_threads_runs_later_in_an_order_that_the_seed_decides() -> None:
    def order_of(seed: int) -> list[int]:
        loop, done = VirtualLoop(Random(seed), 10.0), []

        async def main() -> None:
            await asyncio.gather(*(asyncio.to_thread(done.append, number) for number in range(6)))

        loop.run_until_complete(main())
        loop.close()
        assert 0 < loop.time() < 0.01
        return done

    assert order_of(1) == order_of(1)
    assert len({tuple(order_of(seed)) for seed in range(10)}) > 5


def test_error_of_a_thread_reaches_the_one_who_waits() -> None:
    def fail() -> None:
        raise OSError("the disk")

    async def main() -> None:
        with pytest.raises(OSError, match="the disk"):
            await asyncio.to_thread(fail)

    World(1).run(main())


def test_thread_that_sleeps_answers_when_it_has_slept() -> None:
    world = World(1)
    clock = world.clock()

    async def work() -> float:
        await asyncio.to_thread(clock.sleep, 5.0)
        return world.loop.time()

    async def main() -> float:
        return await world.spawn(world.process("broker"), work())

    assert 5 < world.run(main()) < 5.01


def test_held_process_does_everything_at_once_when_it_goes_on_but_what_was_cancelled() -> None:
    world = World(1)
    process, seen = world.process("broker"), []

    async def tick() -> None:
        for number in range(4):
            await asyncio.sleep(1)
            seen.append((number, world.loop.time()))

    async def main() -> None:
        world.spawn(process, tick())
        handles = [world.loop.call_later(2.5, seen.append, what, context=process.context()) for what in ("a", "b")]
        world.loop.call_later(2.4, handles[1].cancel, context=process.context())
        await asyncio.sleep(1.5)
        world.loop.hold(process, 2.0)
        await asyncio.sleep(1.9)
        assert seen == [(0, 1)]
        await asyncio.sleep(3)

    world.run(main())
    assert seen == [(0, 1), "a", (1, 3.5), (2, 4.5), (3, 5.5)]  # what a timer wakes has its turn after it


def test_dead_process_does_nothing_any_more() -> None:
    world = World(1)
    process, seen = world.process("broker"), []

    async def tick() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append(world.loop.time())
        finally:
            seen.append("the end")

    async def main() -> None:
        world.spawn(process, tick())
        await asyncio.sleep(2.5)
        process.die()
        await asyncio.sleep(10)
        assert seen == [1, 2]

    world.run(main())
    assert process.unfinished() == []


def test_timers_and_tasks_belong_to_the_process_that_made_them() -> None:
    world = World(1)
    process = world.process("broker")

    async def main() -> None:
        task = world.spawn(process, asyncio.sleep(5))
        timer = world.loop.call_later(9, print, context=process.context())
        await asyncio.sleep(1)
        assert process.unfinished() == [task]
        assert len(world.loop.timers_of(process)) == 2
        timer.cancel()
        assert len(world.loop.timers_of(process)) == 1
        assert world.loop.timers_of(Process("other")) == []
        await task

    world.run(main())


def test_callback_that_works_too_much_is_found_and_its_clock_moves() -> None:
    world = World(1)
    clock = world.clock()

    async def work(steps: int) -> float:
        began = clock.monotonic()
        for _ in range(steps):
            clock.worked(1)
        return clock.monotonic() - began

    async def main() -> None:
        process = world.process("broker-1/1")
        assert await world.spawn(process, work(2_000)) == pytest.approx(0.002)
        assert world.violations == []
        await world.spawn(process, work(20_001))
        await world.spawn(process, asyncio.to_thread(work_in_a_thread))

    def work_in_a_thread() -> None:
        clock.worked(1_000_000)

    world.run(main())
    (violation,) = world.violations
    assert violation.startswith("broker-1/1 took more than 20000 steps in one callback")
