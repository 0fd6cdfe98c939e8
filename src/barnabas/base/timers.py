"""Many deadlines behind one timer of the event loop: set, moved and cancelled at the price of a few assignments.

```
buckets   tick number -> timers that may be due in it       (a tick is `tick_ms` long)
ticks     heap of those numbers, each once                  (the earliest is what a driver waits for)
```

A timer that moves *later*, which is what each heartbeat does to its session, only gets its new deadline: it stays in
its bucket, and when that bucket comes up it goes into the right one. So a member that beats every three seconds with a
session of forty-five is looked at twice a minute, and a beat is one assignment. A timer that moves earlier goes into an
earlier bucket at once, and its old place is found to be stale when it comes up.

Invariants: no timer is called before its deadline, each is called once for each time it was set, and at most two ticks
late. Timers that are due together are called in the order of their deadlines' ticks, then of their setting.

`TimerWheel` is pure: time comes in by `advance`. `LoopTimers` drives one from an event loop and is owned by that loop.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from barnabas.base.clock import Clock

TICK_MS: Final = 10

_LOOK_SECONDS: Final = 1.0
"""The loop's clock may not be ours (in a test ours is moved by hand), so that it is asked for no longer wait."""
_NO_TICK: Final = -1


class Timer:
    """One deadline. It belongs to the wheel that made it; `is_set` until it is due or cancelled."""

    __slots__ = ("_bucket_tick", "callback", "deadline_ms")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.deadline_ms: int | None = None
        self._bucket_tick = _NO_TICK

    @property
    def is_set(self) -> bool:
        return self.deadline_ms is not None


class TimerWheel:
    __slots__ = ("_buckets", "_tick_ms", "_tick_next", "_ticks", "on_earlier")

    def __init__(self, tick_ms: int = TICK_MS, on_earlier: Callable[[int], None] | None = None) -> None:
        """`on_earlier` is called with the moment at which `advance` is needed, when that moves earlier."""
        assert tick_ms > 0
        self._tick_ms = tick_ms
        self._buckets: dict[int, list[Timer]] = {}
        self._ticks: list[int] = []
        self._tick_next = 0
        """The first tick that `advance` has not been through: what is overdue already waits for it."""
        self.on_earlier = on_earlier

    def __len__(self) -> int:
        """Entries that are kept, stale ones included: for tests of the bound."""
        return sum(map(len, self._buckets.values()))

    @property
    def next_ms(self) -> int | None:
        """When `advance` has something to look at; None when nothing is set."""
        return self._ticks[0] * self._tick_ms if self._ticks else None

    def set(self, timer: Timer, deadline_ms: int) -> None:
        """Sets the timer, or moves it if it is set."""
        timer.deadline_ms = deadline_ms
        tick = self._tick_of(deadline_ms)
        if timer._bucket_tick == _NO_TICK or tick < timer._bucket_tick:
            self._put(timer, tick)

    def cancel(self, timer: Timer) -> None:
        """The entry stays until its bucket comes up; setting the timer again reuses it."""
        timer.deadline_ms = None

    def _tick_of(self, deadline_ms: int) -> int:
        tick = -(-deadline_ms // self._tick_ms)  # rounded up: never early
        return tick if tick > self._tick_next else self._tick_next

    def _put(self, timer: Timer, tick: int) -> None:
        timer._bucket_tick = tick
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.append(timer)
            return
        self._buckets[tick] = [timer]
        heappush(self._ticks, tick)
        if self._ticks[0] == tick and self.on_earlier is not None:
            self.on_earlier(tick * self._tick_ms)

    def advance(self, now_ms: int) -> int:
        """Calls every timer whose deadline has come; returns how many. A callback may set and cancel any timer."""
        called = 0
        now_tick = now_ms // self._tick_ms
        self._tick_next = max(self._tick_next, now_tick + 1)  # so that a callback cannot keep this going for ever
        while self._ticks and self._ticks[0] <= now_tick:
            tick = heappop(self._ticks)
            for timer in self._buckets.pop(tick):
                if timer._bucket_tick != tick:
                    continue  # it has moved earlier since, and was looked at there
                timer._bucket_tick = _NO_TICK
                deadline_ms = timer.deadline_ms
                if deadline_ms is None:
                    continue
                if deadline_ms > now_ms:
                    self._put(timer, self._tick_of(deadline_ms))
                    continue
                timer.deadline_ms = None
                called += 1
                timer.callback()
        return called

    def check_invariants(self) -> None:
        assert sorted(self._buckets) == sorted(self._ticks), "each bucket is in the heap once"
        for tick, bucket in self._buckets.items():
            assert bucket, "no bucket is empty"
            for timer in bucket:
                if timer._bucket_tick == tick and timer.deadline_ms is not None:
                    assert tick <= self._tick_of(timer.deadline_ms), "no timer waits in a later bucket than its own"


class LoopTimers:
    """A wheel on an event loop's time: `start` a timer, and its callback is called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, tick_ms: int = TICK_MS) -> None:
        self._loop = loop
        self._clock = clock
        self._wheel = TimerWheel(tick_ms, self._wake_by)
        self._handle: asyncio.TimerHandle | None = None
        self._is_advancing = False
        self._is_stopped = False

    def now_ms(self) -> int:
        """The wheel's time, which never goes back."""
        return self._clock.steady_ms()

    def start(self, timer: Timer, delay_ms: int) -> None:
        """Sets the timer, or moves it if it is set."""
        self._wheel.set(timer, self.now_ms() + delay_ms)

    def cancel(self, timer: Timer) -> None:
        self._wheel.cancel(timer)

    def stop(self) -> None:
        """No timer is called any more."""
        self._is_stopped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _wake_by(self, moment_ms: int) -> None:
        if self._is_advancing or self._is_stopped:
            return
        if self._handle is not None:
            self._handle.cancel()
        seconds = min(_LOOK_SECONDS, max(0, moment_ms - self.now_ms()) / 1000)
        self._handle = self._loop.call_later(seconds, self._advance)

    def _advance(self) -> None:
        self._handle = None
        self._is_advancing = True
        try:
            self._wheel.advance(self.now_ms())
        finally:
            self._is_advancing = False
            next_ms = self._wheel.next_ms
            if next_ms is not None:
                self._wake_by(next_ms)
