"""Who waits for which offset of a partition to be written, or committed: callbacks with deadlines.

```
wait ──> unwritten ── the leader has it, as the topic asks for it ──> called (acks 0 and 1), or committed already
              │                                                    └─> uncommitted ── high watermark above ──> called
              └── the write failed, the time is over, the leadership has ended: called with the error
```

Those who wait for the high watermark are called in the order of their offsets. The usual append is told by the write of
its tick, before anybody has looked at a clock: only what is left after it needs a timer, of which a partition has one.

Pure but for the callbacks. Owner: the partition.
"""

from bisect import insort
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Final, TypeAlias

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Offset

ALL_ACKS: Final = -1
FOREVER: Final = float("inf")
"""A deadline that never comes."""

WhenCommitted: TypeAlias = Callable[[BarnabasError | None], None]
Waiter: TypeAlias = tuple[Offset, int, float, WhenCommitted]
"""Last offset, acks, deadline, callback. A plain tuple: there is one for each append."""

_OFFSET: Final = itemgetter(0)
_DEADLINE: Final = itemgetter(2)


class Waiters:
    __slots__ = ("uncommitted", "unwritten")

    def __init__(self) -> None:
        self.unwritten: list[Waiter] = []
        """In the order in which they came. `Partition` goes through them after each write."""
        self.uncommitted: list[Waiter] = []
        """In the order of their offsets; all with `ALL_ACKS`."""

    def wait_for_commit(self, waiter: Waiter) -> None:
        insort(self.uncommitted, waiter, key=_OFFSET)

    def committed(self, high_watermark: Offset) -> None:
        """Everything below is on every in-sync replica."""
        count = 0
        for last_offset, _, _, _ in self.uncommitted:
            if last_offset >= high_watermark:
                break
            count += 1
        done, self.uncommitted = self.uncommitted[:count], self.uncommitted[count:]
        for _, _, _, callback in done:
            callback(None)

    def fail_from(self, offset: Offset, error: BarnabasError) -> None:
        """What was staged from `offset` on is not in the log, and will not be."""
        self._end([one for one in self.unwritten if one[0] >= offset], error)

    def fail_unwritten(self, error: BarnabasError) -> None:
        """All that the leader does not have as the topic asks for it."""
        self._end(self.unwritten, error)

    def fail_uncommitted(self, error: BarnabasError) -> None:
        """All that the leader has, and not every in-sync replica."""
        self._end(self.uncommitted, error)

    def fail_all(self, error: BarnabasError) -> None:
        self._end([*self.unwritten, *self.uncommitted], error)

    def expire(self, now: float, error: BarnabasError) -> None:
        """Those whose time is over."""
        self._end([one for one in (*self.unwritten, *self.uncommitted) if one[2] <= now], error)

    def _end(self, ending: Iterable[Waiter], error: BarnabasError) -> None:
        ended = list(ending)
        known = set(map(id, ended))
        self.unwritten = [one for one in self.unwritten if id(one) not in known]
        self.uncommitted = [one for one in self.uncommitted if id(one) not in known]
        for _, _, _, callback in ended:
            callback(error)

    @property
    def first_deadline(self) -> float:
        return min(map(_DEADLINE, (*self.unwritten, *self.uncommitted)), default=FOREVER)
