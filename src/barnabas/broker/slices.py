"""Long requests in slices: together they get a few milliseconds of each turn of the event loop, so that others wait no
longer than that for their produce, fetch or heartbeat, whatever a request names.

Work that may be long asks after every piece of it (`each`, `finish`), and waits for the next turn when this one's
time is over. Those who wait go on in their order, each with a piece at least, and a request that comes meanwhile waits
behind them (`begin`). A request that is short never waits, and pays for a look at the clock.

On the loop and not in a thread: a thread that computes takes the interpreter away from the loop at every system call
that this makes, and the loop waits for each anew.

Owner: the broker's event loop.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

from barnabas.base.clock import Clock
from barnabas.wire.steps import Steps

SLICE_SECONDS: Final = 0.002
_WOKEN_TOGETHER: Final = 16
"""Most need little more than a piece."""

_Element = TypeVar("_Element")
_Result = TypeVar("_Result")


class Slices:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._monotonic = clock.monotonic  # not the loop's time, which stands still during a turn
        self._ends: float | None = None
        """When this turn's time is over; None while nobody uses it."""
        self._is_next_due = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def begin(self) -> None:
        """Called before a request is begun."""
        if self._waiting or self._is_over():
            await self._wait()

    async def each(self, elements: Iterable[_Element]) -> AsyncIterator[_Element]:
        """The elements of a list that may be long."""
        for element in elements:
            yield element
            if self._is_over():
                await self._wait()

    async def finish(self, steps: Steps[_Result]) -> _Result:
        """Takes all steps of long work, and returns its result."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: _Result = end.value
                return result
            if self._is_over():
                await self._wait()

    def _is_over(self) -> bool:
        now = self._monotonic()
        if self._ends is None:
            self._ends = now + SLICE_SECONDS
            self._expect_next()
        return now >= self._ends

    async def _wait(self) -> None:
        turn = self._loop.create_future()
        self._waiting.append(turn)
        self._expect_next()
        await turn

    def _expect_next(self) -> None:
        if not self._is_next_due:
            self._is_next_due = True
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_next_due = False
        self._ends = None
        waiting = self._waiting
        for _ in range(min(len(waiting), _WOKEN_TOGETHER)):
            turn = waiting.popleft()
            if not turn.done():  # a cancelled one
                turn.set_result(None)
        if waiting:
            self._expect_next()
