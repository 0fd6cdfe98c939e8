"""Keeps background work on the disk below a rate, so that it does not starve the appends.

A token bucket that holds what a tenth of a second allows: whoever takes more than is there sleeps until the debt is
paid. Any number of threads share one; they pay for each other.
"""

from collections.abc import Callable
from threading import Lock
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.settings import DOUBLE_MAX

_BURST_SECONDS: Final = 0.1
_NAP_SECONDS: Final = 0.1
"""A sleeper looks up this often whether it is still wanted."""


class Throttle:
    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        assert bytes_per_second > 0
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._burst_bytes = bytes_per_second * _BURST_SECONDS
        self._available_bytes = self._burst_bytes
        self._refilled = clock.monotonic()
        self._lock = Lock()

    @property
    def is_limited(self) -> bool:
        return self._bytes_per_second < DOUBLE_MAX

    def take(self, size_bytes: int, is_cancelled: Callable[[], bool]) -> None:
        """Sleeps as long as it takes to have read or written so many bytes at the allowed rate."""
        if not self.is_limited:
            return
        wait_seconds = self._charge(size_bytes)
        while wait_seconds > 0 and not is_cancelled():
            nap_seconds = min(wait_seconds, _NAP_SECONDS)
            self._clock.sleep(nap_seconds)
            wait_seconds -= nap_seconds

    def _charge(self, size_bytes: int) -> float:
        with self._lock:
            now = self._clock.monotonic()
            refill_bytes = (now - self._refilled) * self._bytes_per_second
            self._refilled = now
            self._available_bytes = min(self._burst_bytes, self._available_bytes + refill_bytes) - size_bytes
            return max(0.0, -self._available_bytes / self._bytes_per_second)
