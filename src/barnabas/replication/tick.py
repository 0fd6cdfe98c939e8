"""One write for all that was appended in a tick of the event loop.

Handlers stage appends and say what to do when they are in the log; at the end of the tick every log that took something
is written once, and then everybody is told. Where a topic asks for it (`flush.messages`, `flush.ms`), one sync in a
worker thread stands between, for all appends of the tick: group commit.

A tick that fails for one partition fails for that one alone. Owner: the broker's event loop.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeAlias

from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFailed
from barnabas.base.ids import Offset
from barnabas.base.metric_table import FLUSH_SECONDS
from barnabas.base.metrics import Histogram
from barnabas.base.tasks import Tasks
from barnabas.replication.partition import Partition


class DiskFailureHandler(Protocol):
    def __call__(self, partition: Partition, error: DiskFailed) -> None: ...


WhenAppended: TypeAlias = Callable[[DiskFailed | None], None]


Waiting: TypeAlias = list[tuple[Offset, WhenAppended]]


class AppendTick:
    """Gathers the appends of a tick."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        workers: Executor,
        on_failure: DiskFailureHandler,
        after_write: Callable[[], None],
        flush_seconds: Histogram | None = None,
    ) -> None:
        """`after_write` is called when everybody has been told: the replies may go.

        `workers` run the flushes. `flush_seconds` takes the times of flushes, if somebody wants to know.
        """
        self._loop = loop
        self._clock = clock
        self._workers = workers
        self._on_failure = on_failure
        self._after_write = after_write
        self._flush_seconds = Histogram(FLUSH_SECONDS.bounds) if flush_seconds is None else flush_seconds
        self._staged: dict[Partition, Waiting] = {}
        self._tasks = Tasks(loop)
        self._flushing: dict[Partition, None] = {}
        self._unflushed: dict[Partition, Waiting] = {}
        """Appends that came while a flush was running: the next one is for all of them."""

    def add(self, partition: Partition, last_offset: Offset, when_appended: WhenAppended) -> None:
        """`when_appended` is called once the record at `last_offset` is in the log, or with the reason why not."""
        if not self._staged:
            self._loop.call_soon(self._write)
        waiting = self._staged.get(partition)
        if waiting is None:
            self._staged[partition] = [(last_offset, when_appended)]
        else:
            waiting.append((last_offset, when_appended))

    def _write(self) -> None:
        staged, self._staged = self._staged, {}
        for partition, waiting in staged.items():
            try:
                partition.log.write()
            except DiskFailed as failure:
                self._fail(partition, waiting, failure)
                continue
            if partition in self._flushing:
                self._unflushed.setdefault(partition, []).extend(waiting)
            elif partition.log.must_flush(self._clock.steady_ms()):
                self._flushing[partition] = None
                self._tasks.start(self._flush(partition, waiting))
            else:
                _finish(partition, waiting, partition.log.end_offset)
            partition.log.forget_written()
        self._after_write()

    async def _flush(self, partition: Partition, waiting: Waiting) -> None:
        """Syncs as long as appends keep coming that must be, each time for all that came meanwhile."""
        log = partition.log
        try:
            while waiting:
                waiting += self._write_staged(partition)
                try:
                    plan = log.plan_flush()
                    try:
                        await self._loop.run_in_executor(self._workers, plan.run)
                    except DiskFailed:
                        log.abandon_flush(plan)
                        raise
                    log.finish_flush(plan)
                except DiskFailed as failure:
                    self._fail(partition, waiting + self._unflushed.pop(partition, []), failure)
                    self._after_write()
                    return
                self._flush_seconds.observe(plan.seconds)
                _finish(partition, waiting, plan.end_offset)
                self._after_write()
                waiting = self._unflushed.pop(partition, [])
                if waiting and not log.must_flush(self._clock.steady_ms()):
                    _finish(partition, waiting, log.end_offset)
                    self._after_write()
                    return
        finally:
            del self._flushing[partition]

    def _write_staged(self, partition: Partition) -> Waiting:
        """Writes what this tick has staged so far, because a flush covers whole writes; returns who is to be told."""
        waiting = self._staged.pop(partition, [])
        if waiting:
            try:
                partition.log.write()
            except DiskFailed as failure:
                self._fail(partition, waiting, failure)
                return []
            partition.log.forget_written()  # it is told after the flush, from the file
        return waiting

    def _fail(self, partition: Partition, waiting: Waiting, error: DiskFailed) -> None:
        """Tells everybody; the owner of the directories decides what becomes of the log."""
        for _, when_appended in waiting:
            when_appended(error)
        self._on_failure(partition, error)

    async def drain(self) -> None:
        """Waits until nothing is on its way to the disk any more."""
        if self._staged:
            self._write()
        await self._tasks.drain()


def _finish(partition: Partition, waiting: Waiting, durable_end: Offset) -> None:
    partition.commit(durable_end)
    for _, when_appended in waiting:
        when_appended(None)
