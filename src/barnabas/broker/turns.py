"""Keeps a storm of slow requests from holding the event loop: each turn runs a limited number, later turns the others.

Ten thousand members that join at once would otherwise all be handled before the loop looks at a socket again, and
everybody else's produce and fetch would wait for them. Waiting requests run in order. Waiting costs a place in a
queue and no more: the requests of a storm are received together, and a task for each would hold the loop by itself.

Owner: the broker's event loop. The task that runs waiting requests ends by itself when there are none.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from barnabas.base.tasks import Tasks

TOGETHER_MAX: Final = 8
"""About a millisecond of work."""


class Turns:
    """`turns.call(work)` for each piece of slow work."""

    def __init__(self, loop: asyncio.AbstractEventLoop, together_max: int = TOGETHER_MAX) -> None:
        self._tasks = Tasks(loop)
        self._together_max = together_max
        self._done = 0
        """Pieces of this turn."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._task: asyncio.Task[None] | None = None

    def call(self, work: Callable[[], None]) -> None:
        """Does this at once while there is little to do, or else when its turn comes."""
        if self._task is None:
            self._start()
        if self._done < self._together_max and not self._waiting:
            self._done += 1
            work()
        else:
            self._waiting.append(work)

    def _start(self) -> None:
        self._task = self._tasks.start(self._run())
        self._task.add_done_callback(self._ended)

    async def _run(self) -> None:
        """Begins in the next turn of the loop, and looks into the queue once in each."""
        waiting = self._waiting
        while waiting or self._done:
            self._done = 0
            while waiting and self._done < self._together_max:
                self._done += 1
                waiting.popleft()()
            await asyncio.sleep(0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._waiting and not task.cancelled():  # it came after the task's last look
            self._start()
