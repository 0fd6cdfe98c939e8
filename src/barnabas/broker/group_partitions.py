"""Partitions of internal topics as the group coordinator sees them, over the partitions that this broker serves."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import Buffer
from barnabas.base.ids import Offset
from barnabas.groups.partitions import WhenFailed
from barnabas.replication.partition import Partition
from barnabas.replication.tick import AppendTick
from barnabas.storage.producer_state import Origin


class ServedLeadership:
    """A `LedPartition`: one partition in one leader epoch."""

    __slots__ = ("_epoch", "_partition", "_tick", "_watchers", "workers")

    def __init__(self, partition: Partition, tick: AppendTick, workers: Executor) -> None:
        self._partition = partition
        self.workers = workers
        self._epoch = partition.leader_epoch
        self._tick = tick
        self._watchers: dict[Callable[[], None], Callable[[Partition], None]] = {}

    def is_of(self, partition: Partition) -> bool:
        """Whether this is that partition's leadership as it is now."""
        return partition is self._partition and self.is_led

    @property
    def index(self) -> int:
        return self._partition.name.partition

    @property
    def leader_epoch(self) -> int:
        return self._epoch

    @property
    def is_led(self) -> bool:
        return not self._partition.is_closed and self._partition.leader_epoch == self._epoch

    @property
    def start_offset(self) -> Offset:
        return self._partition.log.log_start_offset

    @property
    def end_offset(self) -> Offset:
        return self._partition.log.end_offset

    @property
    def high_watermark(self) -> Offset:
        return self._partition.log.high_watermark

    @property
    def batch_bytes_max(self) -> int:
        config = self._partition.log.config
        return min(config.max_message_bytes, config.segment_bytes)

    def expect_append(self) -> None:
        # The coordinator's callback is in the loop's queue already. A tick that begins here writes after it, in the
        # same turn of the loop; one that has begun finds nothing staged yet, and the append begins the next.
        self._tick.add(self._partition, self._partition.log.end_offset, _ignore)

    def append(self, batch: bytearray, when_failed: WhenFailed) -> Offset:
        partition = self._partition
        partition.check_in_sync()
        last_offset = partition.append(batch, Origin.COORDINATOR).last_offset

        def when_appended(error: DiskFailed | None) -> None:
            if error is not None:
                when_failed(error)

        self._tick.add(partition, last_offset, when_appended)
        return last_offset

    def watch(self, on_change: Callable[[], None]) -> None:
        def watcher(partition: Partition) -> None:
            on_change()

        self._watchers[on_change] = watcher
        self._partition.watchers[watcher] = None

    def unwatch(self, on_change: Callable[[], None]) -> None:
        watcher = self._watchers.pop(on_change, None)
        if watcher is not None:
            self._partition.watchers.pop(watcher, None)

    async def read(self, offset: Offset, max_bytes: int) -> Buffer:
        with self._partition.reporting():
            found = self._partition.log.read(offset, max_bytes).slice
            if found is None:
                return b""
            try:
                return await asyncio.get_running_loop().run_in_executor(self.workers, found.read)
            finally:
                found.release()


def _ignore(error: DiskFailed | None) -> None:
    """Whoever appends is told by their own call."""
