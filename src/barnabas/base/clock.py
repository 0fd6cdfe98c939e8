"""Where time comes from. Everything above `base` receives a `Clock` or a `now_ms`, never asks the system.

There are three times, and mixing them is a mistake: an operator, NTP or a restored machine may set the wall clock back
or ahead by any amount while the broker runs.

| time | for |
|---|---|
| `now_ms` | timestamps: of records, of commits, of what people read |
| `steady_ms`, `monotonic` | intervals, timeouts and deadlines: sessions, flushes, housekeeping |
| `settled_ms` | deciding that something is old enough to be deleted, by comparing it with a timestamp |
"""

import logging
import time
from threading import Lock
from typing import Final, NamedTuple, Protocol

from barnabas.base.logs import RepeatedWarning
from barnabas.base.named_tuples import new_tuple

logger = logging.getLogger(__name__)

JUMP_MS: Final = 60_000
"""A smaller step is what NTP does every day."""
SETTLING_MS: Final = 3_600_000
"""How long a jump ahead must last before anything is deleted because of it."""
_WARNING_SECONDS: Final = 600.0


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970. Two calls may be any time apart, and the second may be earlier."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds since some moment that pass evenly, whatever happens to the wall clock."""
        ...

    def moment(self) -> "Moment":
        """`now_ms` and `steady_ms`."""
        ...

    def settled_ms(self) -> int:
        """Wall-clock time that follows a jump ahead only after an hour, so that a wrong clock deletes nothing."""
        ...

    def monotonic(self) -> float:
        """`steady_ms` in seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Blocks a worker thread (never the event loop)."""
        ...

    def worked(self, steps: int, /) -> object:
        """Told by loops on the event loop whose length grows with data, for each step or for several.

        Real clocks move by themselves and ignore it. A simulated one moves by it: work takes time there, too, and a
        callback that takes too much of it is found.
        """
        ...


class Moment(NamedTuple):
    """One moment by two clocks."""

    wall_ms: int
    steady_ms: int


class SettledTime:
    """Tells when the wall clock was set: it has gained or lost against the steady one since the last look.

    A clock set back counts at once, because it only keeps things longer. One set ahead counts when it has stayed there
    for `SETTLING_MS`; until then time goes on from before. May be asked from any thread.
    """

    def __init__(self, start: Moment) -> None:
        self._lock = Lock()
        self._lead_ms = start.wall_ms - start.steady_ms
        """By how much the wall clock that counts is ahead of the steady one."""
        self._doubted_lead_ms = self._lead_ms
        self._doubted_since_ms: int | None = None
        self._warning = RepeatedWarning(logger, time.monotonic, _WARNING_SECONDS)

    def __getstate__(self) -> dict[str, object]:
        """Without the lock: a copy, of a simulated machine for example, has one of its own."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._lock = Lock()

    def at(self, moment: Moment) -> int:
        with self._lock:
            return moment.steady_ms + self._settle(moment.wall_ms - moment.steady_ms, moment.steady_ms)

    def _settle(self, lead_ms: int, steady_ms: int) -> int:
        known_ms = self._lead_ms
        if lead_ms <= known_ms + JUMP_MS:
            if lead_ms < known_ms - JUMP_MS:
                self._warning.warn("the system clock was set back by %d seconds", (known_ms - lead_ms) // 1000)
            return self._trust(lead_ms)
        if self._doubted_since_ms is None or abs(lead_ms - self._doubted_lead_ms) > JUMP_MS:
            self._doubted_since_ms = steady_ms
            self._warning.warn(
                "the system clock was set ahead by %d seconds; retention by age is paused until the new time has "
                "held for %d minutes",
                (lead_ms - known_ms) // 1000,
                SETTLING_MS // 60_000,
            )
        self._doubted_lead_ms = lead_ms
        if steady_ms - self._doubted_since_ms >= SETTLING_MS:
            return self._trust(lead_ms)
        return known_ms

    def _trust(self, lead_ms: int) -> int:
        self._doubted_since_ms = None
        self._lead_ms = lead_ms
        return lead_ms


class SystemClock:
    def __init__(self) -> None:
        self._settled = SettledTime(self.moment())

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """Called twice for every request, so there is no function of ours around it."""

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def moment(self) -> Moment:
        return new_tuple(Moment, (time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000))

    def settled_ms(self) -> int:
        return self._settled.at(self.moment())

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    worked = staticmethod(abs)
    """Does nothing, without a function of ours: requests call it."""


class ManualClock:
    """A clock that stands still until it is moved by hand: for tests and simulation."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = self._steady_ms = now_ms
        self._settled = SettledTime(self.moment())

    def now_ms(self) -> int:
        return self._now_ms

    def steady_ms(self) -> int:
        return self._steady_ms

    def moment(self) -> Moment:
        return Moment(self._now_ms, self._steady_ms)

    def settled_ms(self) -> int:
        return self._settled.at(self.moment())

    def monotonic(self) -> float:
        return self._steady_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(int(seconds * 1000))

    def worked(self, steps: int, /) -> object: ...

    def advance(self, milliseconds: int) -> None:
        """Lets time pass."""
        self._now_ms += milliseconds
        self._steady_ms += milliseconds

    def set_ahead(self, milliseconds: int) -> None:
        """Somebody sets the wall clock ahead; back when negative. No time passes."""
        self._now_ms += milliseconds
