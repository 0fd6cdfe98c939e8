"""Syncs of logs that somebody waits for, run in a worker as soon as they are wanted.

Planning, syncing and what follows is the log manager's (`LogManager.flush_if_due`), for these and for those of its
housekeeping alike: a log has one flush at a time, and its end is told to the partition whoever began it
(`LogManager.on_flushed`). Appends that are written meanwhile wait for the next one, which is for all of them: group
commit.

Owner: the broker's event loop.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from barnabas.base.ids import TopicPartition
from barnabas.replication.workers import perform
from barnabas.storage.manager import LogManager


class Flusher:
    """See the module's text."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        logs: LogManager,
        workers: Executor,
        on_bug: Callable[[BaseException], None],
    ) -> None:
        """`on_bug` is called with an exception that no flush should raise: our own mistake, which ends the broker."""
        self._loop = loop
        self._logs = logs
        self._workers = workers
        self._on_bug = on_bug
        self._running: dict[asyncio.Task[None], None] = {}

    def flush(self, partition: TopicPartition) -> None:
        """Begins to sync the partition's log, if its settings ask for it and no flush of it is under way."""
        work = self._logs.flush_if_due(partition)
        if work is not None:
            task = self._loop.create_task(perform(work, self._workers))
            self._running[task] = None
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._on_bug(bug)

    async def drain(self) -> None:
        """Waits until no log is being synced, nor any more because of it."""
        while self._running:
            await asyncio.wait(list(self._running))
