"""How far the groups of this broker are behind: in records, and in time by the timestamps in the logs.

Measured when somebody asks for the metrics, never otherwise. Committed offsets and high watermarks are in memory. The
timestamp of the first record that a group has not committed is in the log, perhaps far from its end: a worker thread
reads it, and it is remembered until the group moves on. With many groups other work gets its turn in between.

| the committed offset | lag |
|---|---|
| at the end | 0 |
| before the start of the log (records were deleted) | from the start on |
| beyond the end (the topic was recreated) | unknown |
| of a partition that is not led here | not shown |

Owner: the broker's event loop.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from barnabas.base.ids import NO_TIMESTAMP, Offset, TimestampMs
from barnabas.base.metrics import LabelValues
from barnabas.base.tasks import Tasks
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.records.batch import BatchHeader
from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas

MEASURED_MAX: Final = 20_000
"""Committed partitions, of all groups; a group that does not fit any more is left out as a whole."""
_LOOKED_AT_TOGETHER: Final = 200
_SEARCHED_TOGETHER: Final = 64
"""Searches that keep files open at the same time."""
_REFRESH_SECONDS_MAX: Final = 5.0
"""On a disk that does not answer, the metrics come without new timestamps."""

_Place: TypeAlias = tuple[Partition, Offset]


class GroupLag(NamedTuple):
    """One partition of one group."""

    labels: LabelValues
    """Group, topic, partition."""
    committed: Offset
    records: int | None
    """None: unknown."""
    unread: _Place | None
    """The first record that is not committed; None when there is none, or the lag is unknown."""


class _Round:
    """A measurement that goes on."""

    def __init__(self) -> None:
        self.lags: list[GroupLag] = []
        self.unmeasured = 0
        self.timestamps: dict[_Place, TimestampMs] = {}
        self.missing: dict[_Place, None] = {}
        """Places whose timestamps must be looked for."""


class GroupLags:
    """What was measured last: `lags`, and how many committed partitions were left out."""

    def __init__(self, coordinator: GroupCoordinator, replicas: Replicas, workers: Executor) -> None:
        self._coordinator = coordinator
        self._replicas = replicas
        self._workers = workers
        self._last = _Round()
        self._tasks = Tasks(asyncio.get_running_loop())
        self._measuring: asyncio.Task[None] | None = None

    @property
    def lags(self) -> Sequence[GroupLag]:
        return self._last.lags

    @property
    def unmeasured(self) -> int:
        return self._last.unmeasured

    def unread_ms(self, lag: GroupLag) -> TimestampMs | None:
        """The timestamp of the first record that is not committed; None when there is none, or it is unknown."""
        return None if lag.unread is None else self._last.timestamps.get(lag.unread)

    async def refresh(self) -> None:
        """Measures again. If that takes too long, it goes on, and the previous lags are shown until it is done."""
        if self._measuring is None or self._measuring.done():
            self._measuring = self._tasks.start(self._measure())
        with suppress(TimeoutError):
            async with asyncio.timeout(_REFRESH_SECONDS_MAX):
                await asyncio.shield(self._measuring)

    async def close(self) -> None:
        await self._tasks.stop()

    async def _measure(self) -> None:
        found = _Round()
        for steps, _ in enumerate(self._look(found), start=1):
            if steps % _LOOKED_AT_TOGETHER == 0:
                await asyncio.sleep(0)
        missing = list(found.missing)
        for start in range(0, len(missing), _SEARCHED_TOGETHER):
            places = missing[start : start + _SEARCHED_TOGETHER]
            for place, header in zip(places, await self._search(places), strict=True):
                if header is not None and (timestamp := _timestamp_at(header, place[1])) != NO_TIMESTAMP:
                    found.timestamps[place] = timestamp
        self._last = found

    def _look(self, found: _Round) -> Iterator[None]:
        """All but the timestamps that are not known yet, in small steps."""
        known = self._last.timestamps
        for group_id, state in self._coordinator.groups():
            yield
            count = state.offset_count(group_id)
            if len(found.lags) + count > MEASURED_MAX:
                found.unmeasured += count
                continue
            for topic, index, committed in state.committed_offsets(group_id):
                yield
                partition = self._replicas.get(topic, index)
                if partition is None:
                    continue
                lag = _count(group_id, partition, committed)
                found.lags.append(lag)
                if lag.unread is None:
                    continue
                timestamp = known.get(lag.unread)
                if timestamp is None:
                    found.missing[lag.unread] = None
                else:
                    found.timestamps[lag.unread] = timestamp

    async def _search(self, places: Sequence[_Place]) -> list[BatchHeader | None]:
        searches = [partition.search_batch(offset) for partition, offset in places]

        def run() -> list[BatchHeader | None]:
            return [None if search is None else search.run() for search in searches]

        def release(_: object) -> None:
            for search in searches:
                if search is not None:
                    search.release()

        running = asyncio.get_running_loop().run_in_executor(self._workers, run)
        running.add_done_callback(release)  # the worker has ended, also when nobody waits for it any more
        return await asyncio.shield(running)


def _count(group_id: str, partition: Partition, committed: Offset) -> GroupLag:
    topic, index = partition.name
    labels = (group_id, topic, str(index))
    end = partition.high_watermark
    if committed > end:
        return GroupLag(labels, committed, None, None)
    unread = max(committed, partition.log_start_offset)
    return GroupLag(labels, committed, end - unread, (partition, unread) if unread < end else None)


def _timestamp_at(header: BatchHeader, offset: Offset) -> TimestampMs:
    """That of the first record is exact; within a batch they are taken to be evenly spread."""
    first, last = header.base_timestamp, header.max_timestamp
    if header.is_log_append_time or header.delete_horizon_ms is not None or first == NO_TIMESTAMP:
        return last
    passed = max(0, offset - header.base_offset)
    return first + (last - first) * passed // (header.last_offset_delta + 1)
