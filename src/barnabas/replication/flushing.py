"""Syncs of logs that somebody waits for, run in a worker as soon as they are wanted.

The log manager (`LogManager.flush_if_due`) plans them, syncs and does what follows, for these and for those of its
housekeeping alike: a log has one flush at a time, and the partition is notified of its end, no matter what started it
(`LogManager.on_flushed`). Appends that are written meanwhile wait for the next one, which covers all of them: group
commit.

Owner: the broker's event loop.
"""

import asyncio
from concurrent.futures import Executor

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Tasks
from barnabas.replication.workers import perform
from barnabas.storage.directories.manager import LogManager


class Flusher:
    def __init__(self, loop: asyncio.AbstractEventLoop, logs: LogManager, workers: Executor) -> None:
        self._logs = logs
        self._workers = workers
        self._tasks = Tasks(loop)

    def flush(self, partition: TopicPartition) -> None:
        """Begins to sync the partition's log, if its settings ask for it and no flush of it is under way."""
        work = self._logs.flush_if_due(partition)
        if work is not None:
            self._tasks.start(perform(work, self._workers))

    async def drain(self) -> None:
        """Waits until no log is being synced, nor any more because of it."""
        await self._tasks.drain()
