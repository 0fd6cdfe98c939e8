"""Long requests in slices: together they get a few milliseconds of each turn of the event loop, so that others wait no
longer than that for their produce, fetch or heartbeat, whatever a request names.

Work that may be long asks after every piece of it (`each`, `finish`), and waits for another turn when this one's time
is over. Two lines wait: requests that begin (`begin`), most of which are short, and those that go on. Each turn lets a
few of both continue, and each of these runs for a moment at least. So a short request passes the long ones, and no
long one stands still. While there is little to do nobody waits, and the only cost is a look at the clock.

On the loop and not in a thread: a thread that computes takes the interpreter away from the loop at every system call
that the loop makes, and the loop has to wait each time.

Owner: the broker's event loop.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

from barnabas.base.clock import Clock
from barnabas.wire.steps import Steps

SLICE_SECONDS: Final = 0.002
"""Of a turn, for all of them."""
_MOMENT_SECONDS: Final = 0.000_2
"""What each gets that continues, even if the turn's time is over: enough for a short request."""
_BEGIN_TOGETHER: Final = 8
_GO_ON_TOGETHER: Final = 4

_LONG_AGO: Final = float("-inf")

_Element = TypeVar("_Element")
_Result = TypeVar("_Result")


class Slices:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._monotonic = clock.monotonic  # not the loop's time, which stands still during a turn
        self._worked = clock.worked
        self._ends: float | None = None
        """When this turn's time is over; None while nobody uses it."""
        self._is_next_due = False
        self._beginning: deque[asyncio.Future[None]] = deque()
        self._going_on: deque[asyncio.Future[None]] = deque()

    async def begin(self) -> None:
        """Called before a request is begun."""
        if self._beginning or self._is_over(_LONG_AGO):
            await self._wait(self._beginning)

    async def each(self, elements: Iterable[_Element]) -> AsyncIterator[_Element]:
        """The elements of a list that may be long."""
        since = self._monotonic()
        for element in elements:
            yield element
            self._worked(1)
            if self._is_over(since):
                await self._wait(self._going_on)
                since = self._monotonic()

    async def finish(self, steps: Steps[_Result], check: Callable[[], None]) -> _Result:
        """Takes all steps of long work, and returns its result. `check` may end it with an exception after a wait."""
        since = self._monotonic()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: _Result = end.value
                return result
            self._worked(1)
            if self._is_over(since):
                await self._wait(self._going_on)
                check()
                since = self._monotonic()

    def _is_over(self, since: float) -> bool:
        """Whether the time of this turn is over for work that goes on since then."""
        now = self._monotonic()
        if self._ends is None:
            self._ends = now + SLICE_SECONDS
            self._expect_next()
        return now >= self._ends and now - since >= _MOMENT_SECONDS

    async def _wait(self, line: deque[asyncio.Future[None]]) -> None:
        turn = self._loop.create_future()
        line.append(turn)
        self._expect_next()
        await turn

    def _expect_next(self) -> None:
        if not self._is_next_due:
            self._is_next_due = True
            self._loop.call_soon(self._begin_turn)

    def _begin_turn(self) -> None:
        self._is_next_due = False
        self._ends = None
        _wake(self._beginning, _BEGIN_TOGETHER)
        _wake(self._going_on, _GO_ON_TOGETHER)
        if self._beginning or self._going_on:
            self._expect_next()


def _wake(line: deque[asyncio.Future[None]], count: int) -> None:
    for _ in range(min(len(line), count)):
        turn = line.popleft()
        if not turn.done():  # a cancelled one
            turn.set_result(None)
