"""Keeps background work on the disk below a rate, so that it does not starve the appends.

A token bucket that holds what a tenth of a second allows: a thread that takes more than is left sleeps until the debt
is paid. Any number of threads share one; they pay for each other. The rate may change at any time, also for threads
that sleep, so that raising a rate set too low by mistake wakes them soon.
"""

from collections.abc import Callable
from threading import Lock
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.settings import DOUBLE_MAX

_BURST_SECONDS: Final = 0.1
_NAP_SECONDS: Final = 0.1
"""A sleeper checks this often whether it was cancelled."""


class Throttle:
    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        assert bytes_per_second > 0
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._available_bytes = bytes_per_second * _BURST_SECONDS
        self._refilled = clock.monotonic()
        self._lock = Lock()

    def limit(self, bytes_per_second: float) -> None:
        """Changes the rate."""
        assert bytes_per_second > 0
        with self._lock:
            if bytes_per_second != self._bytes_per_second:
                self._bytes_per_second = bytes_per_second
                self._available_bytes = bytes_per_second * _BURST_SECONDS
                self._refilled = self._clock.monotonic()

    @property
    def is_limited(self) -> bool:
        return self._bytes_per_second < DOUBLE_MAX

    def take(self, size_bytes: int, is_cancelled: Callable[[], bool]) -> None:
        """Sleeps as long as reading or writing `size_bytes` takes at the allowed rate."""
        if not self.is_limited:
            return
        debt_bytes = self._charge(size_bytes)
        while debt_bytes > 0 and not is_cancelled():
            nap_seconds = min(debt_bytes / self._bytes_per_second, _NAP_SECONDS)
            self._clock.sleep(nap_seconds)
            debt_bytes -= nap_seconds * self._bytes_per_second

    def _charge(self, size_bytes: int) -> float:
        """Takes what is there; returns how much is missing."""
        with self._lock:
            now = self._clock.monotonic()
            rate = self._bytes_per_second
            refilled_bytes = self._available_bytes + (now - self._refilled) * rate
            self._refilled = now
            self._available_bytes = min(rate * _BURST_SECONDS, refilled_bytes) - size_bytes
            return max(0.0, -self._available_bytes)
