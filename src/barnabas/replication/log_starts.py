"""Makes new log start offsets durable: records that a client has deleted must not come back after a kill.

There is one write at a time. Callers that come while it runs wait for the next one, which serves all of them
together, however many requests they came with.

Owner: the broker's event loop.
"""

import asyncio
from collections.abc import Collection
from concurrent.futures import Executor

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Tasks
from barnabas.replication.workers import perform
from barnabas.storage.directories.manager import LogManager
from barnabas.wire.errors import ErrorCode, KafkaError


class LogStarts:
    def __init__(self, loop: asyncio.AbstractEventLoop, logs: LogManager, workers: Executor) -> None:
        self._loop = loop
        self._logs = logs
        self._workers = workers
        self._wanted: dict[TopicPartition, None] = {}
        self._next: asyncio.Future[dict[TopicPartition, BarnabasError]] | None = None
        """Tells those who wait for the write that has not begun which partitions it failed for."""
        self._tasks = Tasks(loop)
        self._is_writing = False

    async def store(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, BarnabasError]:
        """Returns when the starts of these logs, as they are now, are durable; with those for which that failed."""
        if self._next is None:
            self._next = self._loop.create_future()
        self._wanted.update(dict.fromkeys(partitions))
        if not self._is_writing:
            self._is_writing = True
            self._tasks.start(self._write())
        failures = await asyncio.shield(self._next)
        return {partition: failures[partition] for partition in partitions if partition in failures}

    async def _write(self) -> None:
        while self._next is not None:
            wanted, self._wanted = self._wanted, {}
            told, self._next = self._next, None
            failures: dict[TopicPartition, BarnabasError] = {
                name: KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is no longer served by this broker")
                for name in wanted
            }
            for job, partitions in self._logs.storing_starts(wanted):
                await perform(job, self._workers)
                for partition in partitions:
                    del failures[partition]
                    if job.error is not None:
                        failures[partition] = job.error
            told.set_result(failures)
        self._is_writing = False

    async def drain(self) -> None:
        """Waits until nothing is being written."""
        await self._tasks.drain()
