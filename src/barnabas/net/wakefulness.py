"""Stays awake for a moment after each request, because the next one mostly follows at once.

A process that sleeps in `epoll` is woken by its scheduler, which takes tens of microseconds, more on a virtual machine:
for a client that waits for each answer before it sends again, half of the round trip. So the loop polls for a moment
after it has received something, instead of sleeping at once. On a machine with one processor this would only keep the
client from running; an idle broker sleeps.
"""

import asyncio
from collections.abc import Callable


class Wakefulness:
    """Owner: the event loop. `stir` it when something comes; receiving does the same without the call."""

    __slots__ = ("_loop", "_now", "_seconds", "_until", "is_awake", "is_stirred")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float], seconds: float) -> None:
        """`now` is a fine clock: the loop's own goes by milliseconds."""
        assert seconds > 0
        self._loop = loop
        self._now = now
        self._seconds = seconds
        self._until = 0.0
        self.is_awake = False
        self.is_stirred = False

    def stir(self) -> None:
        """Something is going on."""
        self.is_stirred = True
        if not self.is_awake:
            self.wake()

    def wake(self) -> None:
        self.is_awake = True
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Runs once in each turn of the loop, which does not sleep as long as there is something to call."""
        now = self._now()
        if self.is_stirred:
            self.is_stirred = False
            self._until = now + self._seconds
        if now < self._until:
            self._loop.call_soon(self._look)
        else:
            self.is_awake = False
