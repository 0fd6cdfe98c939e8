"""Where time comes from. Everything above `base` receives a `Clock` or a `now_ms`, never asks the system."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970, for record timestamps and retention."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations and deadlines."""
        ...

    def sleep(self, seconds: float) -> None:
        """Blocks a worker thread (never the event loop)."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Called twice for every request, so there is no function of ours around it."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that stands still until it is told to move: for tests and simulation."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def sleep(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)

    def advance(self, milliseconds: int) -> None:
        self._now_ms += milliseconds
