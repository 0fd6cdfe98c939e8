"""How long a broker's event loop is held in one go, measured from within.

What another client waits for is the turn of the loop that is under way when its request comes. Its processor time is
measured, not its wall time: a machine that is busy with something else makes both longer, but only the second by any
amount. A processor that is slow at the moment (one that many machines share) makes the first longer, too: `slowness`
says how much, so that a limit can allow for it; and what is slow by chance is not slow `TRIES` times in a row.
"""

import asyncio
import time
from types import TracebackType
from typing import Final, Self

TRIES: Final = 5
"""How often a measurement that missed its limit is made again: the least disturbed one counts."""

_STEPS: Final = 200_000
_STEPS_SECONDS: Final = 0.02
"""What they take on the processor that limits were chosen on, or less."""


def slowness() -> float:
    """By what factor the processor is slower now than the one that limits were chosen on; at least 1."""
    began, total = time.thread_time(), 0
    for step in range(_STEPS):
        total += step
    return max(1.0, (time.thread_time() - began) / _STEPS_SECONDS)


class LoopTurns:
    """`with LoopTurns() as turns:` looks at every turn of the running loop in between."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        self.longest_seconds = 0.0
        self.count = 0

    def __enter__(self) -> Self:
        self._began = time.thread_time()
        self._loop.call_soon(self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True

    def _look(self) -> None:
        now = time.thread_time()
        self.longest_seconds = max(self.longest_seconds, now - self._began)
        self._began = now
        self.count += 1
        if not self._is_over:
            self._loop.call_soon(self._look)
