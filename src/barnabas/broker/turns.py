"""Keeps a storm of slow requests from holding the event loop: so many in one turn of it, the others in the next ones.

Ten thousand members that join at once would otherwise be worked on together, before the loop looks at a socket again,
and everybody else's produce and fetch would wait for them. Who waits is served in order.

Owner: the broker's event loop.
"""

import asyncio
from collections import deque
from typing import Final

TOGETHER_MAX: Final = 16
"""A few milliseconds of work."""


class Turns:
    """`await turns.take()` before each piece of slow work."""

    def __init__(self, loop: asyncio.AbstractEventLoop, together_max: int = TOGETHER_MAX) -> None:
        self._loop = loop
        self._together_max = together_max
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Returns at once while few want one."""
        if self._taken < self._together_max and not self._waiting:
            self._count()
            return
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        await turn

    def _count(self) -> None:
        self._taken += 1
        if self._taken == 1:
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < self._together_max:
            turn = self._waiting.popleft()
            if not turn.done():  # whoever waited may have gone
                self._count()
                turn.set_result(None)
