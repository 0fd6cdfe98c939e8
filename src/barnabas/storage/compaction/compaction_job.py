"""One pass of compaction over one log: read the dirty part, rewrite the segments, hand them over.

```
owner's thread    plan                            finish              finish                   finish  ...  done
worker thread           run: keys, first group            run: sync           run: next group
```

The worker reads the old segments through its own descriptors and writes `.cleaned` ones, complete and synced; the owner
puts them into the log, a group at a time and the oldest first, so that the disk never has to hold a second copy of more
than one group. It gives them the names that decide, the worker makes those durable, and then they are in. Of the log
the worker knows only what the plan says, which never changes. When the log has changed under the job (it was truncated,
or retention took a segment), `finish` drops the work.

Crash: the old segments or the new ones of each group, as `storage.segment.replacement` has it. A group replaced
without those after it is sound: every record that was dropped has a newer one in a later segment, old or new.
Failure: a full or failing disk leaves the old segments; the `.cleaned` files are removed, and `finish` raises.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError, CorruptBatch, DiskFailed, ExpandsTooFar
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset, Position, ProducerId
from barnabas.records import kernel
from barnabas.records.batch import HEADER_BYTES, BatchHeader
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import expanded_records
from barnabas.records.control import read_batch_marker
from barnabas.records.kernel import KeyOffsets
from barnabas.records.reader import read_records
from barnabas.storage.compaction.compacted_batches import BatchCleaner, CleanedTransactions, ProducerTail
from barnabas.storage.compaction.compacted_segments import CleanedSegments
from barnabas.storage.compaction.compaction_plan import Cleanable, SegmentExtent, group_segments
from barnabas.storage.compaction.throttle import Throttle
from barnabas.storage.log.log import Log
from barnabas.storage.segment.segment import LOG_SUFFIX, Segment
from barnabas.storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from barnabas.storage.settings import LogConfig

logger = logging.getLogger(__name__)

SECRET_BYTES: Final = 16
_KEY_BYTES: Final = 64
"""More than a key takes in the map, so that the map of a small log is small and still has room for all."""


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """An old segment as the worker may know it."""

    segment: Segment
    """For the owner, who compares and replaces it. The worker reads the file at `path` instead."""
    path: str
    extent: SegmentExtent
    dirty_position: Position
    """From here on the file holds dirty batches."""


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What the owner tells the worker."""

    sources: Sequence[SourceSegment]
    cleanable: Cleanable
    config: LogConfig
    tails: Mapping[ProducerId, ProducerTail]
    transaction_indexes: Sequence[TransactionIndex]
    """Of all complete segments: the marker of a transaction may lie behind the part that is compacted."""
    aborted_in_active: Sequence[AbortedTransaction]
    truncations: int


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """What a worker may use."""

    key_map_bytes: int
    io_bytes: int


@dataclass(slots=True)
class CleaningTotals:
    """What a pass, or several, have done so far."""

    read_bytes: int = 0
    written_bytes: int = 0
    replaced_segments: int = 0
    new_segments: int = 0
    unread_batches: int = 0
    """Kept as they are, because they expand to more than any batch may."""
    first_unread_offset: Offset | None = None

    def __add__(self, other: "CleaningTotals") -> "CleaningTotals":
        return CleaningTotals(
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
            self.replaced_segments + other.replaced_segments,
            self.new_segments + other.new_segments,
        )


class _Cancelled(Exception):  # noqa: N818 - not an error
    """Unwinds the worker."""


class CleaningJob:
    """`run` in a worker, then `finish` on the owner's thread, again and again while `finish` says so."""

    def __init__(
        self,
        files: FileSystem,
        clock: Clock,
        throttle: Throttle,
        log: Log,
        plan: CleaningPlan,
        settings: CleanerSettings,
        secret: bytes,
    ) -> None:
        self.log = log
        self.plan = plan
        self.totals = CleaningTotals()
        self.end_offset: Offset | None = None
        """Once the whole pass is handed over: the log is compacted up to here."""
        self.is_torn = False
        """The disk failed while the log exchanged its segments: only opening it again tells which ones it has."""
        self._files = files
        self._clock = clock
        self._throttle = throttle
        self._settings = settings
        self._secret = secret
        self._is_cancelled = False
        self._failure: BarnabasError | None = None
        self._cleaner: BatchCleaner | None = None
        self._transactions = CleanedTransactions()
        self._indexes: list[TransactionIndex] = []
        self._latest_offset: Offset = plan.cleanable.first_dirty_offset - 1
        self._groups: list[Sequence[SourceSegment]] = []
        self._output: CleanedSegments | None = None
        self._is_announced = False
        """Whether the log knows what replaces the first group; the names must be synced then."""

    @classmethod
    def plan_for(
        cls,
        log: Log,
        cleanable: Cleanable,
        *,
        files: FileSystem,
        clock: Clock,
        throttle: Throttle,
        settings: CleanerSettings,
        secret: bytes,
    ) -> "CleaningJob":
        """On the owner's thread: captures what the worker needs to know."""
        complete = [log.segments[slot] for slot in range(len(log.segments) - 1)]
        sources = [
            _source(segment, log.segments.end_of(slot, log.end_offset), cleanable.first_dirty_offset)
            for slot, segment in enumerate(complete)
            if segment.base_offset < cleanable.first_uncleanable_offset
        ]
        active = log.segments.active
        first_offset = log.segments[0].base_offset
        plan = CleaningPlan(
            sources=sources,
            cleanable=cleanable,
            config=log.config,
            tails={state.producer_id: ProducerTail.of(state) for state in log.producers},
            transaction_indexes=[
                TransactionIndex(files, segment.transaction_index.path, segment.base_offset) for segment in complete
            ],
            aborted_in_active=active.transaction_index.collect(first_offset, active.base_offset).transactions,
            truncations=log.truncations,
        )
        return cls(files, clock, throttle, log, plan, settings, secret)

    # -- the worker's side ---------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ends the job soon, from any thread; `run` returns early and `finish` hands nothing over."""
        self._is_cancelled = True

    def run(self) -> None:
        """The next group of segments; the first time after reading the dirty part. Blocks, and may sleep.

        Or, when a group is announced, what makes that durable.
        """
        try:
            self._account()
            if self._is_announced:
                self._files.sync_directory(self.log.directory)
                return
            if self._cleaner is None:
                self._cleaner = self._prepare()
            self._cleaner.now_ms = self._clock.settled_ms()
            if self._groups:
                self._clean_group(self._cleaner, self._groups[0])
        except _Cancelled:
            self._discard()
        except BarnabasError as error:
            self._failure = error
            self._discard()

    def _prepare(self) -> BatchCleaner:
        plan, config = self.plan, self.plan.config
        segment_bytes_max = config.segment_bytes_max
        self._indexes = [index for index in plan.transaction_indexes if len(index)]
        cleanable = plan.cleanable
        dirty_offsets = cleanable.first_uncleanable_offset - cleanable.first_dirty_offset
        map_bytes = min(self._settings.key_map_bytes, max(1, dirty_offsets) * _KEY_BYTES)
        newest = KeyOffsets(map_bytes, self._secret)
        self._map_keys(newest)
        cleaned = [source for source in plan.sources if source.extent.base_offset <= self._latest_offset]
        self._groups = [
            [cleaned[slot] for slot in group]
            for group in group_segments(
                [source.extent for source in cleaned], segment_bytes_max, config.segment_index_bytes
            )
        ]
        return BatchCleaner(
            newest,
            self._latest_offset,
            self._transactions,
            plan.tails,
            now_ms=0,
            delete_retention_ms=config.delete_retention_ms,
            compression_level=config.compression_level,
        )

    def _map_keys(self, newest: KeyOffsets) -> None:
        """Takes the newest offset of each key from the dirty part, until its end or until the map is full."""
        first_dirty = self.plan.cleanable.first_dirty_offset
        transactions = CleanedTransactions()
        for source in self.plan.sources:
            if source.extent.end_offset <= first_dirty:
                continue
            transactions.announce(self._aborted_in(max(first_dirty, source.extent.base_offset), source))
            for _, header, batch in self._batches(source, source.dirty_position):
                if header.is_control:
                    transactions.observe_marker(header, read_batch_marker(batch))
                    continue
                if transactions.observe_data(header) or header.last_offset < first_dirty:
                    continue
                if not _map_batch(newest, header, batch, first_dirty):
                    self._latest_offset = max(self._latest_offset, newest.last_offset)
                    return
                self._latest_offset = header.last_offset
            self._latest_offset = source.extent.end_offset - 1

    def _aborted_in(self, first_offset: Offset, source: SourceSegment) -> Iterator[AbortedTransaction]:
        """The aborted transactions that have batches in a segment, wherever their markers are."""
        end_offset = source.extent.end_offset
        for index in self._indexes:
            if index.base_offset >= source.extent.base_offset:
                collected = index.collect(first_offset, end_offset)
                yield from collected.transactions
                if collected.is_complete:
                    return
        yield from (transaction for transaction in self.plan.aborted_in_active if transaction.first_offset < end_offset)

    def _clean_group(self, cleaner: BatchCleaner, group: Sequence[SourceSegment]) -> None:
        output = self._output = CleanedSegments(
            self._files,
            self.log.directory,
            self.plan.config,
            group[0].extent.base_offset,
            created_ms=cleaner.now_ms,
            io_bytes=self._settings.io_bytes,
            on_write=lambda size_bytes: self._account(written_bytes=size_bytes),
        )
        last = max((source for source in group if source.extent.size_bytes), default=None, key=_base_offset)
        for source in group:
            self._transactions.announce(self._aborted_in(source.extent.base_offset, source))
            for end_position, header, batch in self._batches(source, 0):
                is_last = source is last and end_position == source.extent.size_bytes
                cleaned = cleaner.clean(header, batch, is_last=is_last)
                if cleaned is not None:
                    output.add(cleaned)
        output.finish()

    def _batches(self, source: SourceSegment, position: Position) -> Iterator[tuple[Position, BatchHeader, memoryview]]:
        """The batches of an old segment from `position` on, each with the position of its end."""
        size_bytes = source.extent.size_bytes
        chunk_bytes = self._settings.io_bytes
        with closing(self._files.open(source.path)) as file:
            while position < size_bytes:
                chunk = memoryview(file.read_at(min(chunk_bytes, size_bytes - position), position))
                self._account(read_bytes=len(chunk))
                scan = kernel.scan_batches(chunk)
                if scan.problem or position + scan.needed_bytes > size_bytes or not (scan.headers or scan.needed_bytes):
                    problem = scan.problem or "the file ends within a batch"
                    raise CorruptBatch(f"{source.path}, position {position + scan.valid_bytes}: {problem}")
                start = 0
                for header in scan.headers:
                    end = start + header.size_bytes
                    yield position + end, header, chunk[start:end]
                    start = end
                position += scan.valid_bytes
                chunk_bytes = max(self._settings.io_bytes, scan.needed_bytes)

    def _account(self, read_bytes: int = 0, written_bytes: int = 0) -> None:
        """Counts, pays for what was read or written, and ends the work when it is not wanted any more."""
        self.totals.read_bytes += read_bytes
        self.totals.written_bytes += written_bytes
        self._throttle.take(read_bytes + written_bytes, lambda: self._is_cancelled)
        if self._is_cancelled:
            raise _Cancelled

    def _discard(self) -> None:
        if self._output is not None:
            self._output.discard()
            self._output = None

    # -- the owner's side ----------------------------------------------------------------------------------------

    def finish(self) -> bool:
        """Takes over what `run` has made; whether there is more to run.

        Raises what stopped the worker: `DiskFailed`, or `CorruptBatch` when the log itself is damaged.
        """
        failure, self._failure = self._failure, None
        if self._is_cancelled:
            self._give_up()
            return False
        group = self._groups[0] if self._groups else self.plan.sources
        if self._has_changed(group):
            logger.info("%s: the log has changed, so its compaction starts over", self.log.partition)
            self._give_up()
            return False
        if failure is not None:
            self._give_up()
            raise failure
        if self._groups and not self._is_announced:
            self._announce()
            return True
        if self._groups:
            self._hand_over(self._groups.pop(0))
        if self._groups:
            return True
        self.end_offset = self._latest_offset + 1
        if self._cleaner is not None:
            self.totals.unread_batches = self._cleaner.unread_count
            self.totals.first_unread_offset = self._cleaner.first_unread_offset
        self._cleaner = None
        self._log_end()
        return False

    def _has_changed(self, group: Sequence[SourceSegment]) -> bool:
        segments = self.log.segments
        return self.log.truncations != self.plan.truncations or any(
            segments.floor(source.extent.base_offset) is not source.segment for source in group
        )

    def _announce(self) -> None:
        assert self._output is not None
        self._is_announced = True
        try:
            self.log.replacement.announce(self._output.segments)
        except DiskFailed:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Leaves the log as it is."""
        if self._is_announced:
            self._is_announced = False
            self.log.replacement.forget()
        self._discard()

    def _hand_over(self, group: Sequence[SourceSegment]) -> None:
        assert self._output is not None
        old = [source.segment for source in group]
        self._is_announced = False
        try:
            self.log.replacement.complete(old, self.log.config.file_delete_delay_ms)
        except DiskFailed:
            self.is_torn = self._has_changed(group)
            if not self.is_torn:
                self._discard()
            raise
        self.totals.replaced_segments += len(old)
        self.totals.new_segments += len(self._output.segments)
        self._output = None

    def _log_end(self) -> None:
        totals = self.totals
        logger.info(
            "%s: compacted offsets %d to %d, %d segments of %d bytes became %d of %d bytes",
            self.log.partition,
            self.plan.cleanable.first_dirty_offset,
            self._latest_offset,
            totals.replaced_segments,
            sum(source.extent.size_bytes for source in self.plan.sources[: totals.replaced_segments]),
            totals.new_segments,
            totals.written_bytes,
        )


def _source(segment: Segment, end_offset: Offset, first_dirty: Offset) -> SourceSegment:
    offset_index, time_index = segment.offset_index, segment.time_index
    is_split = segment.base_offset < first_dirty < end_offset
    return SourceSegment(
        segment=segment,
        path=segment.path(LOG_SUFFIX),
        extent=SegmentExtent(
            base_offset=segment.base_offset,
            end_offset=end_offset,
            size_bytes=segment.size,
            index_bytes=max(offset_index.count * offset_index.ENTRY.size, time_index.count * time_index.ENTRY.size),
        ),
        dirty_position=_dirty_position(segment, first_dirty) if is_split else 0,
    )


def _dirty_position(segment: Segment, first_dirty: Offset) -> Position:
    position = segment.position_of(first_dirty)
    return segment.size if position is None else position


def _base_offset(source: SourceSegment) -> Offset:
    return source.extent.base_offset


def _map_batch(newest: KeyOffsets, header: BatchHeader, batch: memoryview, first_dirty: Offset) -> bool:
    """Whether the map had room for every key of the batch from `first_dirty` on."""
    if not header.count:
        return True
    try:
        count, records = header.count, expanded_records(header, batch)
    except ExpandsTooFar:
        return True  # it stays as it is, and so do the older records of its keys
    if header.base_offset < first_dirty:
        # An earlier pass ended within this batch, when its map was full; taking all of it might fill this one, too.
        tail = BatchBuilder(base_offset=header.base_offset)
        for record in read_records(batch):
            if record.offset >= first_dirty:
                tail.append(record.timestamp, record.key, None, offset=record.offset)
        count = tail.count
        records = tail.build(last_offset=header.last_offset)[HEADER_BYTES:]
    return newest.add_records(records, count, header.base_offset) == count
