"""How far a group is behind: in records, and in time by the timestamps in the log.

*Lag* counts the offsets between the committed one and the end. *Behind* is the age of the first record that the group
has not read yet: now minus its timestamp. That record is fetched, one bounded read for each partition that has a lag;
the result for an offset is cached, so that `barnabas group watch` asks again only for what moved.

| the committed offset | lag | behind |
|---|---|---|
| none | unknown | unknown |
| at the end | 0 | 0 |
| followed by nothing but transaction markers | 0 | 0 |
| was compacted away | to the end | from the next record that is there |
| before the start of the log (it was deleted) | from the start on | from the first record on; a note counts the lost |
| beyond the end (the topic was recreated) | unknown | unknown; a note says so |

Timestamps are the producer's, unless the topic says `message.timestamp.type=LogAppendTime`; one in the future counts as
now. With READ_COMMITTED the end is where the first open transaction begins.
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from barnabas.base.errors import CorruptBatch
from barnabas.base.ids import NO_TIMESTAMP, Offset, TimestampMs, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.errors import UnknownTopic
from barnabas.client.metadata import TopicMetadata
from barnabas.client.offsets import EARLIEST, Isolation, end_offsets, start_offsets
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.client.reading.fetched import FetchedRun
from barnabas.wire.errors import KafkaError

_FETCH_SECONDS_MAX: Final = 5.0
_PARTITION_BYTES_MAX: Final = 16 << 10
"""A broker sends at least one whole batch, however big; that is enough."""
_BYTES_MAX: Final = 4 << 20
_EMPTY_RUNS_MAX: Final = 16
"""Runs without a record of their own (markers, aborted transactions) after which the search ends."""
_REMEMBERED_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class PartitionLag:
    partition: TopicPartition
    committed: Offset | None
    start: Offset | None
    end: Offset | None
    """Start and end are None when the partition does not exist any more, or has no leader."""
    lag: int | None
    """None: unknown, and so is `behind_ms`."""
    behind_ms: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class _FirstUnread:
    """What the log holds from an offset on: a record's timestamp, or nothing up to the end."""

    timestamp_ms: TimestampMs | None
    is_caught_up: bool = False
    searched_to: Offset = 0
    """`is_caught_up` holds as long as the log ends here."""


class LagMeter:
    """Measures one group repeatedly; caches what the log says about an offset."""

    def __init__(self, cluster: Cluster, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._remembered: dict[tuple[TopicPartition, Offset], _FirstUnread] = {}

    async def measure(
        self, committed: Mapping[TopicPartition, Offset | None], now_ms: TimestampMs
    ) -> list[PartitionLag]:
        """In the order of the partitions' names and numbers."""
        usable = await self._usable(committed)
        starts = await start_offsets(self._cluster, usable)
        ends = await end_offsets(self._cluster, usable, self._isolation)
        counted = [
            count_lag(partition, committed[partition], starts.get(partition), ends.get(partition))
            for partition in sorted(committed)
        ]
        wanted = {
            lag.partition: max(lag.committed, lag.start)
            for lag in counted
            if lag.lag and lag.committed is not None and lag.start is not None
        }
        found = await self._first_unread(wanted, ends)
        return [with_time(lag, found[lag.partition], now_ms) if lag.partition in found else lag for lag in counted]

    async def _usable(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those that exist and have a leader: no broker can answer for the others."""
        topics: dict[str, TopicMetadata] = {}
        for name in sorted({partition.topic for partition in partitions}):
            with contextlib.suppress(UnknownTopic):
                topics[name] = await self._cluster.topic(name)
        brokers = self._cluster.view.brokers
        led = {
            TopicPartition(name, one.index)
            for name, topic in topics.items()
            for one in topic.partitions
            if one.leader_id in brokers
        }
        return [partition for partition in partitions if partition in led]

    async def _first_unread(
        self, wanted: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, _FirstUnread]:
        found = {}
        missing = {}
        for partition, offset in wanted.items():
            known = self._remembered.get((partition, offset))
            if known is None or (known.is_caught_up and known.searched_to < ends[partition]):
                missing[partition] = offset
            else:
                found[partition] = known
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.clear()
        if missing:
            for partition, unread in (await self._fetch(missing, ends)).items():
                self._remembered[partition, missing[partition]] = unread
                found[partition] = unread
        return found

    async def _fetch(
        self, offsets: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, _FirstUnread]:
        """Whatever could be found in the time; the others are unknown, and asked for again the next time."""
        options = ConsumerOptions(
            self._isolation,
            bytes_max=_BYTES_MAX,
            partition_bytes_max=_PARTITION_BYTES_MAX,
            out_of_range=EARLIEST,
        )
        found: dict[TopicPartition, _FirstUnread] = {}
        empty_runs = dict.fromkeys(offsets, 0)
        async with Consumer(self._cluster, options) as consumer:
            consumer.assign(offsets)
            with contextlib.suppress(TimeoutError, KafkaError, CorruptBatch):
                async with asyncio.timeout(_FETCH_SECONDS_MAX):
                    while consumer.positions:
                        for run in await consumer.poll():
                            unread = _look_into(run, ends[run.partition])
                            empty_runs[run.partition] += 1
                            if unread is not None:
                                found[run.partition] = unread
                            if unread is not None or empty_runs[run.partition] > _EMPTY_RUNS_MAX:
                                consumer.drop(run.partition)
        return found


def count_lag(
    partition: TopicPartition, committed: Offset | None, start: Offset | None, end: Offset | None
) -> PartitionLag:
    """All but the time. Pure."""
    unknown = PartitionLag(partition, committed, start, end, None, None)
    if start is None or end is None:
        return replace(unknown, note="the partition was deleted, or has no leader")
    if committed is None:
        return replace(unknown, note="nothing is committed")
    if committed > end:
        return replace(unknown, note=f"the log ends before the committed offset, at {end}; was the topic recreated?")
    if committed == end:
        return replace(unknown, lag=0, behind_ms=0)
    if committed < start:
        lost = f"{start - committed:,} offset{'' if start - committed == 1 else 's'} deleted before being read"
        return replace(unknown, lag=end - start, behind_ms=0 if start == end else None, note=lost)
    return replace(unknown, lag=end - committed)


def with_time(lag: PartitionLag, unread: _FirstUnread, now_ms: TimestampMs) -> PartitionLag:
    if unread.is_caught_up:
        return replace(lag, lag=0, behind_ms=0)
    if unread.timestamp_ms is None:
        return lag
    return replace(lag, behind_ms=max(0, now_ms - unread.timestamp_ms))


def _look_into(run: FetchedRun, end: Offset) -> _FirstUnread | None:
    """None when the run has no record of its own, and more may follow."""
    try:
        columns = run.columns(with_headers=False)
    except CorruptBatch:
        return _FirstUnread(None)
    if columns.count:
        timestamp_ms = memoryview(columns.timestamps).cast("B").cast("q")[0]
        return _FirstUnread(None if timestamp_ms == NO_TIMESTAMP else timestamp_ms)
    return _FirstUnread(None, is_caught_up=True, searched_to=end) if run.next_offset >= end else None


def total_lag(lags: Collection[PartitionLag]) -> int | None:
    """None when nothing is known of any partition."""
    known = [lag.lag for lag in lags if lag.lag is not None]
    return sum(known) if known else None


def longest_behind_ms(lags: Collection[PartitionLag]) -> int | None:
    """None when a partition has a lag whose time is unknown, or when nothing is known."""
    known = [lag for lag in lags if lag.lag is not None]
    times = [lag.behind_ms for lag in known if lag.behind_ms is not None]
    return max(times) if times and len(times) == len(known) else None
