"""Client batches that take long to check: compressed ones, large ones, ones that must be recompressed.

The usual batch is staged at once (`Partition.append_usual`). Every other one comes here and is checked on the event
loop as far as that takes a few milliseconds in each turn of the loop; what takes longer goes to a worker thread, and
is staged when it is back. Whatever a request holds, nobody else waits for it.

```
                     within this turn's budget
admit ── checked ─────────────────────────────────> staged ──> AppendTick
           │                                          ^
           └─ more ──> line of its partition ──> worker (CHECKERS_MAX of them, for all partitions)
```

A partition takes its batches in order of arrival: while one of them is away, later ones wait in the partition's line
(`Partition.is_admitting`). Other partitions do not wait. The lines take turns; the limit on unanswered requests of
connections bounds their length. A batch that comes back when its partition is no longer served is refused, and so are
those that wait behind it. The owner of a staged batch waits for it with `Partition.when_committed`.

Owner: the broker's event loop. A worker touches nothing but the one batch.
"""

import asyncio
from collections import deque
from concurrent.futures import Executor
from typing import Final, NamedTuple, Protocol

from barnabas.base.buffers import Buffer
from barnabas.base.errors import BarnabasError
from barnabas.base.tasks import Tasks
from barnabas.replication.partition import Partition
from barnabas.storage.log.staging import Appended
from barnabas.storage.log.validate import BatchCheck

BATCH_COST_MAX: Final = 1 << 20
"""What one batch may cost on the loop (`BatchCheck.advance`): a millisecond or two, about four with gzip."""
TURN_COST_MAX: Final = 2 << 20
"""And all of one turn of the loop together, before the rest of them goes to the workers."""
USUAL_BYTES_MAX: Final = 4 << 20
"""What requests for many partitions may stage at once in one turn of the loop, of batches that need no check here."""
_USUAL_COST_MIN: Final = 16 << 10
"""What such a batch counts for, however small it is: writing it costs a system call."""
CHECKERS_MAX: Final = 2
"""Workers that check at a time: flushes and housekeeping need threads, too, and a checker may need 128 MiB."""


class Admitted(Protocol):
    """The owner of an append. One of the two is called, once."""

    def staged(self, appended: Appended) -> None:
        """The batch is staged, and is written with this tick."""
        ...

    def refuse(self, error: BarnabasError) -> None:
        """The batch is not staged, and will not be."""
        ...


class _Waiting(NamedTuple):
    batch: Buffer
    check: BatchCheck | None
    """Begun already, and too long for the loop."""
    owner: Admitted


class Admission:
    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor) -> None:
        self._loop = loop
        self._workers = workers
        self._spent = 0
        """Cost of what this turn of the loop has checked."""
        self._usual_bytes = 0
        """And of what it has staged without."""
        self._lines: dict[Partition, deque[_Waiting]] = {}
        self._due: deque[Partition] = deque()
        """Partitions whose first batch in line no checker has taken yet."""
        self._tasks = Tasks(loop)
        self._checkers = 0
        """Those that will look for another line."""

    def takes_usual(self, size_bytes: int) -> bool:
        """Whether a batch of a request for many partitions may be staged at once: this turn has had few of them."""
        if not self._usual_bytes:
            self._loop.call_soon(self._begin_turn)
        self._usual_bytes += max(size_bytes, _USUAL_COST_MIN)
        return self._usual_bytes <= USUAL_BYTES_MAX

    def admit(self, partition: Partition, batch: Buffer, owner: Admitted) -> None:
        """Stages the batch now or later, or refuses it; its owner is told."""
        line = self._lines.get(partition)
        if line is not None:
            line.append(_Waiting(batch, None, owner))
            return
        check = None
        if self._spent < TURN_COST_MAX:
            try:
                check = partition.check(batch)
                appended = partition.append_checked(check.accepted) if self._advance(check) else None
            except BarnabasError as error:
                owner.refuse(error)
                return
            if appended is not None:
                owner.staged(appended)
                return
        self._lines[partition] = deque([_Waiting(batch, check, owner)])
        partition.is_admitting = True
        self._due.append(partition)
        if self._checkers < CHECKERS_MAX:
            self._checkers += 1
            self._tasks.start(self._check_lines())

    def _advance(self, check: BatchCheck) -> bool:
        """Whether the batch could be checked within what is left of this turn."""
        if not self._spent:
            self._loop.call_soon(self._begin_turn)
        left = min(BATCH_COST_MAX, TURN_COST_MAX - self._spent)
        cost = check.advance(left)
        self._spent += left if cost is None else cost
        return cost is not None

    def _begin_turn(self) -> None:
        self._spent = self._usual_bytes = 0

    async def _check_lines(self) -> None:
        """One checker: takes the first batch of one line after the other, until there is none."""
        while self._due:
            partition = self._due.popleft()
            line = self._lines[partition]
            waiting = line[0]
            try:
                appended = await self._append(partition, waiting)
            except BarnabasError as error:
                waiting.owner.refuse(error)
            else:
                waiting.owner.staged(appended)
            line.popleft()
            if line:
                self._due.append(partition)
            else:
                del self._lines[partition]
                partition.is_admitting = False
        self._checkers -= 1

    async def _append(self, partition: Partition, waiting: _Waiting) -> Appended:
        check, is_done = waiting.check, False
        if check is None:
            check = partition.check(waiting.batch)
            is_done = self._spent < TURN_COST_MAX and self._advance(check)
        if not is_done:
            await self._loop.run_in_executor(self._workers, check.finish)
        return partition.append_checked(check.accepted)

    async def drain(self) -> None:
        """Waits until no batch is away and none waits in line."""
        await self._tasks.drain()
