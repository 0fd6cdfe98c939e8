"""One write for all that was appended in a tick of the event loop.

A partition that stages a batch adds itself; at the end of the tick each of them writes its log once
(`Partition.write`), and then the replies may go. Who waits for what is the partitions' own business: the tick only
writes. A write that fails for one partition fails for that one alone.

Somebody who has more to stage before the tick writes says so with `before_write`, and is called at its beginning.

Owner: the broker's event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from barnabas.base.clock import Clock
from barnabas.base.ids import SteadyMs


class Writable(Protocol):
    """What a tick writes: a partition."""

    def write(self, now_ms: SteadyMs) -> None:
        """Writes what is staged, and tells those who wait for it. Failures of the disk are handled inside."""
        ...


class Replies(Protocol):
    """The replies to requests that are answered in a tick."""

    is_expected: bool
    """Set while a tick answers, which flushes at its end."""

    def flush(self) -> None:
        """Sends those that are ready."""
        ...


class AppendTick:
    """Gathers the appends of a tick."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, replies: Replies) -> None:
        self._loop = loop
        self._clock = clock
        self._replies = replies
        self._staged: list[Writable] = []
        self._before: list[Callable[[], None]] = []
        self._is_due = False

    def add(self, partition: Writable) -> None:
        """The partition has staged something. It adds itself once for each write."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.write)
        self._staged.append(partition)

    def before_write(self, callback: Callable[[], None]) -> None:
        """Has `callback` called at the end of this tick, before anything is written: it may stage more."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.write)
        self._before.append(callback)

    def write(self) -> None:
        """Writes now what the tick has so far."""
        self._replies.is_expected = True
        before, self._before = self._before, []
        for callback in before:
            callback()
        staged, self._staged = self._staged, []
        self._is_due = False
        now_ms = round(self._clock.monotonic() * 1000)
        for partition in staged:
            partition.write(now_ms)
        self._clock.worked(len(before) + len(staged))
        self._replies.flush()
        if self._before and not self._is_due:  # asked for by one that was just called: the next tick's
            self._is_due = True
            self._loop.call_soon(self.write)

    # -- for partitions whose records wait for more than the write -------------------------------------------------

    def told(self) -> None:
        """Somebody was told outside of a write: the replies may go."""
        self._replies.flush()

    def call_at(self, deadline: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Has `callback` called when `Clock.monotonic` has reached the deadline."""
        return self._loop.call_later(max(0.0, deadline - self._clock.monotonic()), callback)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def steady_ms(self) -> SteadyMs:
        return self._clock.steady_ms()
