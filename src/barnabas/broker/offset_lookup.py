"""Which offset a question about time, or about an end of the log, has for an answer.

| timestamp | from version | answer |
|---|---|---|
| -1 | 1 | the end: the high watermark, or the last stable offset for readers of committed records |
| -2 | 1 | the start |
| -3 | 7 | the first record with the largest timestamp |
| -4 | 8 | the start of what is stored here: the start |
| -5 | 9 | the end of what is in tiered storage: there is none |
| -6 | 11 | the first record that tiered storage has yet to get: there is none |
| 0 and more | 1 | the first record that is not older |

Records that a reader may not read yet are not found. A search reads the log at one place; when the page cache does not
hold it, a worker thread brings it in before, so that the event loop does not wait for a disk; and a worker looks into a
compressed batch, a few of them at a time.
"""

import asyncio
from concurrent.futures import Executor
from typing import Final, NamedTuple

from barnabas.base.ids import NO_EPOCH, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from barnabas.replication.partition import Partition
from barnabas.storage.segment.timestamp_lookup import FoundTimestamp, TimestampLookup
from barnabas.wire.errors import ErrorCode, KafkaError

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

NO_OFFSET: Final = -1

_LONG_TOGETHER_MAX: Final = 2
"""Compressed batches that are looked into at a time: each may expand to a hundred megabytes."""

_FROM_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


class FoundOffset(NamedTuple):
    timestamp: TimestampMs = NO_TIMESTAMP
    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_EPOCH


NOTHING: Final = FoundOffset()


def check_timestamp(timestamp: TimestampMs, version: int) -> None:
    """Refuses a special value that does not exist, or not yet in this version."""
    if timestamp < 0 and version < _FROM_VERSION.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} is not supported in version {version}")


class LookupWorkers:
    """Who looks for times: the threads for what may block, and how many of them for what takes memory."""

    def __init__(self, workers: Executor) -> None:
        self.workers = workers
        self._long = asyncio.Semaphore(_LONG_TOGETHER_MAX)

    async def run(self, look: TimestampLookup) -> FoundTimestamp | None:
        if not look.is_long:
            return look.run()
        async with self._long:
            return await asyncio.get_running_loop().run_in_executor(self.workers, look.run)


async def find_offset(
    partition: Partition, timestamp: TimestampMs, upper: Offset, workers: LookupWorkers
) -> FoundOffset:
    """`upper` is the first offset that the one who asks may not read."""
    if timestamp == LATEST:
        return FoundOffset(offset=upper, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return FoundOffset(offset=partition.log_start_offset, leader_epoch=partition.start_epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    with partition.reporting():
        await _bring_in(partition, timestamp, workers.workers)
        found = await _find(partition, timestamp, workers)
    if found is None or found.offset >= upper:
        return NOTHING
    return FoundOffset(found.timestamp, found.offset, found.leader_epoch)


async def _find(partition: Partition, timestamp: TimestampMs, workers: LookupWorkers) -> FoundTimestamp | None:
    """The log may change while a worker looks into a batch, so each step searches the log again."""
    target = partition.largest_timestamp if timestamp == MAX_TIMESTAMP else timestamp
    first_offset = partition.log_start_offset
    while target >= 0 and (look := partition.look_for_timestamp(target, first_offset)) is not None:
        if (found := await workers.run(look)) is not None:
            return found
        first_offset = look.header.next_offset
    return None


async def _bring_in(partition: Partition, timestamp: TimestampMs, workers: Executor) -> None:
    place = partition.place_of_search(None if timestamp == MAX_TIMESTAMP else timestamp)
    if place is not None:
        try:
            if not place.is_resident():
                await asyncio.get_running_loop().run_in_executor(workers, place.load)
        finally:
            place.release()
