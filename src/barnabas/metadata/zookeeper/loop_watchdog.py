"""Notices that an event loop is stuck. kazoo pings from a thread of its own, so that a stuck broker looks alive.

The loop ticks; a thread counts its own looks since the last tick. It counts looks, not seconds: when the whole process
was stopped (a suspended machine, SIGSTOP), the loop gets its chance to tick before the thread has looked often enough.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

_LOOKS: Final = 4


class LoopWatchdog:
    """`start` and `stop` on the event loop. `on_stuck` is called once, in the watchdog's thread."""

    def __init__(self, stuck_seconds: float, on_stuck: Callable[[], None]) -> None:
        self._look_seconds = stuck_seconds / _LOOKS
        self._on_stuck = on_stuck
        self._looks_since_tick = 0
        self._stopping = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.tick()
        threading.Thread(target=self._watch, name="barnabas-loop-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()

    def tick(self) -> None:
        """Called by the loop itself, twice between two looks."""
        self._looks_since_tick = 0
        self._timer = asyncio.get_running_loop().call_later(self._look_seconds / 2, self.tick)

    def look(self) -> bool:
        """Called by the thread: whether the loop is stuck, for at least `stuck_seconds`."""
        self._looks_since_tick += 1
        return self._looks_since_tick > _LOOKS

    def _watch(self) -> None:
        while not self._stopping.wait(self._look_seconds):
            if self.look():
                self._on_stuck()
                return
