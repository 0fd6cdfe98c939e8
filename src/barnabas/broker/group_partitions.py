"""Partitions of internal topics as the group coordinator sees them, over the partitions that this broker serves."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from barnabas.base.buffers import Buffer
from barnabas.base.ids import Offset
from barnabas.groups.partitions import WhenCommitted
from barnabas.replication.partition import Partition
from barnabas.replication.waiting import ALL_ACKS
from barnabas.storage.producers.producer_state import Origin


class ServedLeadership:
    """A `LedPartition`: one partition in one leader epoch."""

    __slots__ = ("_partition", "_watchers", "workers")

    def __init__(self, partition: Partition, workers: Executor) -> None:
        self._partition = partition
        self.workers = workers
        self._watchers: dict[Callable[[], None], Callable[[Partition], None]] = {}

    def is_of(self, partition: Partition) -> bool:
        """Whether this is that partition's leadership."""
        return partition is self._partition

    @property
    def index(self) -> int:
        return self._partition.name.partition

    @property
    def leader_epoch(self) -> int:
        return self._partition.leader_epoch

    @property
    def is_led(self) -> bool:
        return not self._partition.is_closed

    @property
    def start_offset(self) -> Offset:
        return self._partition.log_start_offset

    @property
    def end_offset(self) -> Offset:
        return self._partition.end_offset

    @property
    def high_watermark(self) -> Offset:
        return self._partition.high_watermark

    @property
    def batch_bytes_max(self) -> int:
        return self._partition.batch_bytes_max

    def append(self, batch: bytearray) -> Offset:
        partition = self._partition
        partition.check_in_sync()
        return partition.append(batch, Origin.COORDINATOR).last_offset

    def when_committed(self, last_offset: Offset, deadline: float, callback: WhenCommitted) -> None:
        self._partition.when_committed(last_offset, ALL_ACKS, deadline, callback)

    def watch(self, on_end: Callable[[], None]) -> None:
        def watcher(partition: Partition) -> None:
            on_end()

        self._watchers[on_end] = watcher
        self._partition.end_watchers[watcher] = None

    def unwatch(self, on_end: Callable[[], None]) -> None:
        watcher = self._watchers.pop(on_end, None)
        if watcher is not None:
            self._partition.end_watchers.pop(watcher, None)

    async def read(self, offset: Offset, max_bytes: int) -> Buffer:
        found = self._partition.read_all(offset, max_bytes)
        if found is None:
            return b""
        with self._partition.reporting():
            try:
                return await asyncio.get_running_loop().run_in_executor(self.workers, found.read)
            finally:
                found.release()
