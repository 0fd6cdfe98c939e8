"""The timer wheel: never early, at most a tick late, and cheap to move."""

import asyncio
from random import Random

from barnabas.base.clock import SystemClock
from barnabas.base.timers import LoopTimers, Timer, TimerWheel


class Calls:
    def __init__(self) -> None:
        self.names: list[str] = []

    def timer(self, name: str) -> Timer:
        return Timer(lambda: self.names.append(name))


def test_timer_is_called_at_its_deadline_and_not_before() -> None:
    wheel, calls = TimerWheel(tick_ms=10), Calls()
    timer = calls.timer("one")
    wheel.set(timer, 105)

    assert wheel.advance(104) == 0
    assert wheel.advance(110) == 1
    assert calls.names == ["one"]
    assert not timer.is_set
    assert wheel.next_ms is None


def test_timer_moved_later_is_called_once_at_its_new_deadline() -> None:
    wheel, calls = TimerWheel(tick_ms=10), Calls()
    timer = calls.timer("one")
    for beat in range(0, 1000, 30):
        wheel.set(timer, beat + 100)
        wheel.advance(beat)
        wheel.check_invariants()

    assert calls.names == []
    assert len(wheel) == 1
    wheel.advance(2000)
    assert calls.names == ["one"]


def test_timer_moved_earlier_is_called_once_at_its_new_deadline() -> None:
    wheel, calls = TimerWheel(tick_ms=10), Calls()
    timer = calls.timer("one")
    wheel.set(timer, 1000)
    wheel.set(timer, 50)

    wheel.advance(60)
    assert calls.names == ["one"]
    wheel.advance(2000)
    assert calls.names == ["one"]


def test_timer_moved_earlier_and_later_again_is_called_at_the_last_deadline() -> None:
    wheel, calls = TimerWheel(tick_ms=10), Calls()
    timer = calls.timer("one")
    wheel.set(timer, 1000)
    wheel.set(timer, 50)
    wheel.set(timer, 1500)

    wheel.advance(1400)
    assert calls.names == []
    wheel.advance(1500)
    assert calls.names == ["one"]


def test_cancelled_timer_is_not_called_and_can_be_set_again() -> None:
    wheel, calls = TimerWheel(tick_ms=10), Calls()
    timer = calls.timer("one")
    wheel.set(timer, 50)
    wheel.cancel(timer)
    wheel.advance(100)
    assert calls.names == []

    wheel.set(timer, 150)
    wheel.advance(200)
    assert calls.names == ["one"]


def test_callback_that_sets_its_own_timer_is_called_in_the_next_round() -> None:
    wheel, names = TimerWheel(tick_ms=10), []

    def again() -> None:
        names.append("again")
        wheel.set(timer, 1000)

    timer = Timer(again)
    wheel.set(timer, 10)
    assert wheel.advance(500) == 1
    assert wheel.advance(999) == 0
    assert wheel.advance(1000) == 1  # where it is set to what is due already, which waits for the next round
    assert wheel.advance(1010) == 1
    assert names == ["again"] * 3


def test_any_order_of_changes_calls_each_timer_at_its_last_deadline() -> None:
    random = Random(3)
    wheel, now = TimerWheel(tick_ms=10), 0
    due: dict[int, int] = {}
    called: list[tuple[int, int]] = []
    timers = [Timer(lambda index=index: called.append((index, now))) for index in range(20)]
    for _ in range(3000):
        index = random.randrange(20)
        if random.random() < 0.2:
            wheel.cancel(timers[index])
            due.pop(index, None)
        else:
            due[index] = now + random.randrange(1, 400)
            wheel.set(timers[index], due[index])
        now += random.randrange(0, 30)
        wheel.advance(now)
        wheel.check_invariants()
        for done, moment in called:
            assert due.pop(done) <= moment
        called.clear()
        assert all(deadline > now - 20 for deadline in due.values())


def test_earliest_moment_is_told_when_it_moves_forward() -> None:
    told: list[int] = []
    wheel = TimerWheel(tick_ms=10, on_earlier=told.append)
    first, second, third = (Timer(lambda: None) for _ in range(3))
    wheel.set(first, 500)
    wheel.set(second, 700)
    wheel.set(third, 200)

    assert told == [500, 200]


def test_loop_calls_timers_and_stops() -> None:
    async def scenario() -> None:
        timers = LoopTimers(asyncio.get_running_loop(), SystemClock())
        done = asyncio.Event()
        names: list[str] = []

        def later() -> None:
            names.append("later")
            done.set()

        timers.start(Timer(later), 30)
        timers.start(Timer(lambda: names.append("sooner")), 10)
        cancelled = Timer(lambda: names.append("cancelled"))
        timers.start(cancelled, 20)
        timers.cancel(cancelled)
        await asyncio.wait_for(done.wait(), 120)
        assert names == ["sooner", "later"]
        timers.stop()

    asyncio.run(scenario())
