"""The clock of a simulated node: the loop's virtual time, with a wall clock that may jump and drift."""

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.base.clock import Moment, SettledTime
from barnabas.sim.world.process import PROCESS

STEP_SECONDS: Final = 1e-6
"""How long a step of a loop takes, of those that report their steps."""
START_MS: Final = 1_700_000_000_000


class NodeClock:
    def __init__(self, loop: asyncio.AbstractEventLoop, on_work: Callable[[int], object] = lambda count: None) -> None:
        self._loop = loop
        self._on_work = on_work
        self._ahead_ms = 0
        self._drift = 0.0
        self._drift_since = 0.0
        self._settled = SettledTime(self.moment())

    def now_ms(self) -> int:
        now = self._loop.time()
        return START_MS + self._ahead_ms + int(now * 1000 + (now - self._drift_since) * self._drift * 1000)

    def steady_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def moment(self) -> Moment:
        return Moment(self.now_ms(), self.steady_ms())

    def settled_ms(self) -> int:
        return self._settled.at(self.moment())

    def monotonic(self) -> float:
        """The loop's time, and in a callback also what it has worked so far."""
        process = PROCESS.get()
        return self._loop.time() if process is None else self._loop.time() + process.worked * STEP_SECONDS

    def worked(self, steps: int, /) -> object:
        return self._on_work(steps)

    def sleep(self, seconds: float) -> None:
        process = PROCESS.get()
        assert process is not None, "nobody sleeps but processes"
        assert process.job_seconds is not None, "only a worker thread may sleep"
        process.job_seconds += seconds

    def jump(self, milliseconds: int) -> None:
        """Somebody sets the wall clock ahead, or back."""
        self._ahead_ms += milliseconds

    def set_drift(self, drift: float) -> None:
        """From now on the wall clock is too fast by this share, or too slow."""
        self._ahead_ms = self.now_ms() - START_MS - int(self._loop.time() * 1000)
        self._drift, self._drift_since = drift, self._loop.time()

    def restart(self) -> None:
        """A new process knows nothing of jumps before its start."""
        self._settled = SettledTime(self.moment())
