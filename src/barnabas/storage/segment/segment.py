"""One segment of a log: a file of record batches, its two sparse indexes and its index of aborted transactions.

```
00000000000000001000.log        the batches, whole ones, back to back, from offset 1000 on
00000000000000001000.index      last offset of a batch -> its position            (OffsetIndex)
00000000000000001000.timeindex  largest timestamp so far -> offset                (TimeIndex)
00000000000000001000.txnindex   aborted transactions whose markers lie here       (TransactionIndex)
```

Owner: the log. Only the newest segment grows; the others change by truncation, replacement or deletion alone.
Invariants: `size` is the end of the last whole batch, and bytes past it (a torn write, preallocated space) are never
read; base offset <= every offset in the segment < base offset + 2^31.
Crash: bytes after the last sync may be missing or torn; `segment_recovery` cuts at the first batch
that is not whole and valid, and rebuilds the indexes from there.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from barnabas.base.buffers import Buffer
from barnabas.base.errors import CorruptBatch, DiskFailed, DiskFull
from barnabas.base.filesystem import File, FileSystem
from barnabas.base.ids import NO_TIMESTAMP, Offset, Position, TimestampMs
from barnabas.base.settings import LONG_MAX
from barnabas.records import kernel
from barnabas.records.batch import HEADER_BYTES, MAGIC, PREFIX_BYTES, BatchHeader, check_header, read_header
from barnabas.storage.segment import hints
from barnabas.storage.segment.handles import Handles, SharedFile
from barnabas.storage.segment.index import (
    RELATIVE_OFFSET_MAX,
    CorruptIndex,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from barnabas.storage.segment.segment_cut import SegmentCut
from barnabas.storage.segment.slices import FileSlice
from barnabas.storage.segment.timestamp_lookup import TimestampLookup
from barnabas.storage.segment.transaction_index import CorruptTransactionIndex, TransactionIndex

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

_NEVER: Final = -2
"""Below every offset and every timestamp: nothing more is taken."""
_SEEK_BYTES: Final = 4096 + HEADER_BYTES
_PATIENCE_BYTES: Final = 256 * 1024
"""A walk that goes further asks the index again whether it should have ended."""
_BEGINNING: Final = Struct(">qi4xb6xi")
"""Of a batch: base offset, length, magic, last offset delta."""
_HEADERS_BYTES: Final = 16 * 1024
_NO_WRITE: Final = (-1, 0)


class BatchPosition(NamedTuple):
    position: Position
    header: BatchHeader


BatchMark: TypeAlias = tuple[Offset, int, TimestampMs, int]
"""Last offset, bytes, largest timestamp and count of records of a batch. A plain tuple: each append has one."""


def mark_of(header: BatchHeader) -> BatchMark:
    return header.last_offset, header.size_bytes, header.max_timestamp, header.count


class Room(NamedTuple):
    """What a segment may take before it is rolled: bytes, and up to which last offset and timestamp of a batch."""

    size_bytes: int
    last_offset_max: Offset
    timestamp_max: TimestampMs


class Segment:
    """`size` bytes of the file belong to the log."""

    __slots__ = (
        "_bytes_since_entry",
        "_files",
        "_first_timestamp",
        "_handles",
        "_is_index_full",
        "_is_largest_sure",
        "_largest",
        "_last_write",
        "base_offset",
        "batch_bytes_max",
        "created_ms",
        "directory",
        "distrusted",
        "is_distrusted",
        "offset_index",
        "roll_jitter_ms",
        "size",
        "slices",
        "suffix",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        files: FileSystem,
        handles: Handles,
        directory: str,
        base_offset: Offset,
        *,
        index_bytes_max: int,
        created_ms: int,
        suffix: str = "",
    ) -> None:
        self._files = files
        self._handles = handles
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.created_ms = created_ms
        self.roll_jitter_ms = 0
        """How much before its time this segment rolls, so that not all segments of a broker roll at once."""
        self.size = 0
        self.batch_bytes_max = 0
        """No batch is larger; not known for a segment that was there before."""
        self.slices: list[FileSlice] = []
        self._bytes_since_entry = 0
        self._first_timestamp: TimestampMs | None = None
        self._is_index_full: bool | None = None
        """None: not known since the indexes changed."""
        self._largest: TimestampOffset | None = None
        self._is_largest_sure = True
        """Whether the log has confirmed it."""
        self.is_distrusted = False
        """Whether an index was found to contradict the log."""
        self.distrusted: list[Segment] = []
        """The segments of the log whose indexes must be rebuilt; all segments share this list."""
        self._last_write: tuple[Offset, Position] = _NO_WRITE
        """Where the last write began."""
        self.offset_index = OffsetIndex(files, handles, self.path(INDEX_SUFFIX), base_offset, index_bytes_max)
        self.time_index = TimeIndex(files, handles, self.path(TIME_INDEX_SUFFIX), base_offset, index_bytes_max)
        self.transaction_index = TransactionIndex(files, self.path(TRANSACTION_INDEX_SUFFIX), base_offset)

    # -- files ---------------------------------------------------------------------------------------------------

    def path(self, kind: str) -> str:
        return os.path.join(self.directory, f"{self.base_offset:020d}{kind}{self.suffix}")

    def create(self, preallocate_bytes: int = 0) -> None:
        """Makes the files of a new, empty segment, or none: a stray one would end the log when it is opened next."""
        try:
            for index in (self.offset_index, self.time_index):
                index.reset()
            with closing(self._open(create=True)) as file:
                file.truncate(0)
                if preallocate_bytes:
                    file.allocate(preallocate_bytes)
        except DiskFailed:
            with suppress(DiskFailed):
                self.remove_files()
            raise

    def load(self) -> None:
        """Takes over existing files. Raises `CorruptIndex` when an index is missing or cannot be one."""
        self.size = self._files.size(self.path(LOG_SUFFIX))
        self.batch_bytes_max = self.size
        self._is_largest_sure = False
        self.offset_index.load()
        self.time_index.load()
        last = self.offset_index.last()
        if self.offset_index.count and last.position >= self.size:
            raise CorruptIndex(f"{self.offset_index.path} points past the end of the log")
        self.transaction_index.check()
        for transaction in self.transaction_index:
            if not hints.is_true_transaction(self, transaction):
                raise CorruptTransactionIndex(f"{self.transaction_index.path}: the log has no such {transaction}")

    def _open(self, create: bool = False) -> File:
        return self._files.open(self.path(LOG_SUFFIX), write=True, create=create)

    def shared(self) -> SharedFile:
        return self._handles.file(self, self._open)

    @property
    def file(self) -> File:
        return self._handles.file(self, self._open).file

    def rename(self, suffix: str) -> None:
        """Gives every file of the segment another suffix, the log's file last: it is the one that counts."""
        old = {kind: self.path(kind) for kind in SEGMENT_SUFFIXES}
        self.suffix = suffix
        self.offset_index.move(self.path(INDEX_SUFFIX))
        self.time_index.move(self.path(TIME_INDEX_SUFFIX))
        self.transaction_index.move(self.path(TRANSACTION_INDEX_SUFFIX))
        self._files.rename(old[LOG_SUFFIX], self.path(LOG_SUFFIX))

    def drop_handles(self) -> None:
        self._handles.drop(self)
        self.offset_index.drop_handle()
        self.time_index.drop_handle()

    def complete(self) -> None:
        """Nothing more is appended: the last timestamp is indexed, and no spare space is kept."""
        if self.largest.timestamp >= 0:
            self.time_index.add(*self.largest)
        self.store_indexes()
        self.cut_spare_bytes()

    def store_indexes(self) -> None:
        self.offset_index.store()
        self.time_index.store()
        self.transaction_index.store()

    def store_indexes_if_room(self) -> None:
        """On a full disk entries wait in memory; a flush that covers the segment stores them first."""
        with suppress(DiskFull):
            self.store_indexes()

    @property
    def has_unstored_entries(self) -> bool:
        indexes = (self.offset_index, self.time_index, self.transaction_index)
        return any(index.has_unstored_entries for index in indexes)

    def store_index_blocks(self) -> None:
        """Moves index entries to their files when a block is full. A full disk only means that they wait in memory."""
        for index in (self.offset_index, self.time_index):
            if index.has_block:
                with suppress(DiskFull):
                    index.store()

    def index_paths(self) -> list[str]:
        """The files of the indexes, to be synced. One that was emptied counts: a crash must not fill it again."""
        paths = [self.offset_index.path, self.time_index.path]
        has_transactions = self._files.exists(self.transaction_index.path)
        return [*paths, self.transaction_index.path] if has_transactions else paths

    def attach(self, handles: Handles) -> None:
        """Moves the segment from the private handles it was opened or created with to those of its log's owner."""
        self.drop_handles()
        self._handles = handles
        self.offset_index.attach(handles)
        self.time_index.attach(handles)

    def cut_spare_bytes(self) -> bool:
        """Gives back preallocated space, or removes what a failed write left. Says whether there was any."""
        has_spare_bytes = self.file.size() > self.size
        if has_spare_bytes:
            self.file.truncate(self.size)
        return has_spare_bytes

    def sync(self) -> None:
        """Makes the whole segment durable. Blocks: not on the event loop."""
        self.file.sync()
        for path in self.index_paths():
            with closing(self._files.open(path, write=True)) as file:
                file.sync()

    def remove_files(self) -> None:
        """May block on big files: not on the event loop."""
        remove_segment_files(self._files, self.directory, self.base_offset, self.suffix)

    # -- appending -----------------------------------------------------------------------------------------------

    def append(
        self, buffers: Sequence[Buffer], base_offset: Offset, marks: Sequence[BatchMark], index_interval_bytes: int
    ) -> None:
        """Writes batches in one call, then indexes them. On failure nothing has changed."""
        try:
            self.file.write_at(buffers, self.size)
        except DiskFailed:
            # What was written of it must not come back after a crash: the caller learns that the append failed.
            with suppress(DiskFailed):
                if self.cut_spare_bytes():
                    self.file.sync()
            raise
        self._last_write = (base_offset, self.size)
        self.note(marks, index_interval_bytes)

    def note(self, marks: Iterable[BatchMark], index_interval_bytes: int) -> None:
        """Takes account of batches whose bytes stand at the end of the segment, one after the other."""
        base_offset, size = self.base_offset, self.size
        since_entry, batch_bytes_max = self._bytes_since_entry, self.batch_bytes_max
        largest = self._largest or self.largest
        largest_timestamp = largest.timestamp
        for last_offset, size_bytes, max_timestamp, count in marks:
            assert 0 <= last_offset - base_offset <= RELATIVE_OFFSET_MAX
            if not size:
                self._first_timestamp = max_timestamp
            # The timestamp of a batch that compaction has emptied is that of no record any more.
            if max_timestamp > largest_timestamp and count:
                largest_timestamp = max_timestamp
                largest = self._largest = TimestampOffset(max_timestamp, last_offset)
            if since_entry > index_interval_bytes:
                self.offset_index.add(last_offset, size)
                self.time_index.add(*largest)
                since_entry = 0
                self._is_index_full = None
            if size_bytes > batch_bytes_max:
                batch_bytes_max = size_bytes
            since_entry += size_bytes
            size += size_bytes
        self._bytes_since_entry, self.batch_bytes_max = since_entry, batch_bytes_max
        self.size = size

    def accepts(self, last_offset: Offset) -> bool:
        """Whether indexes and relative offsets have room for one more batch."""
        if self._is_index_full is None:
            self._is_index_full = self.offset_index.is_full or self.time_index.is_full
        return not self._is_index_full and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def room(self, bytes_max: int, roll_after_ms: int, now_ms: TimestampMs) -> Room:
        """What the segment may still take. It is full at `bytes_max` and rolls after `roll_after_ms`, by its records'
        time where they have one. An empty one takes any first batch."""
        if not self.size:
            return Room(bytes_max, self.base_offset + RELATIVE_OFFSET_MAX, LONG_MAX)
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp
        roll_after_ms -= self.roll_jitter_ms
        if first >= 0:
            timestamp_max = first + roll_after_ms
        else:
            timestamp_max = LONG_MAX if now_ms - self.created_ms <= roll_after_ms else _NEVER
        last_offset_max = self.base_offset + RELATIVE_OFFSET_MAX if self.accepts(self.base_offset) else _NEVER
        return Room(bytes_max - self.size, last_offset_max, timestamp_max)

    @property
    def first_timestamp(self) -> TimestampMs:
        if self._first_timestamp is None:
            first = next(self.headers(0), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.header.max_timestamp
        return self._first_timestamp

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of the first batch that has it: as the time index says."""
        if self._largest is None:
            self._largest = self.time_index.last()
        return self._largest

    @property
    def is_largest_sure(self) -> bool:
        return self._is_largest_sure

    def sure_largest(self) -> TimestampOffset:
        """`largest`, confirmed by the log."""
        if not self._is_largest_sure:
            self._largest = hints.largest_timestamp(self)
            self._is_largest_sure = True
        return self.largest

    # -- reading -------------------------------------------------------------------------------------------------

    def headers(self, position: Position) -> Iterator[BatchPosition]:
        """Every batch header from `position` on, without reading the records."""
        while position < self.size:
            chunk = self.file.read_at(min(_HEADERS_BYTES, self.size - position), position)
            start = position
            while position - start + HEADER_BYTES <= len(chunk):
                header = read_header(chunk, position - start)
                check_header(header, self.size - position)
                yield BatchPosition(position, header)
                position += header.size_bytes
            if position == start:
                raise CorruptBatch(f"{self.path(LOG_SUFFIX)}: {self.size - position} stray bytes at {position}")

    def position_of(self, offset: Offset) -> Position | None:
        """Where the first batch begins that holds `offset` or a later one; None when there is none."""
        written_offset, written_position = self._last_write
        if offset == written_offset:  # what everybody asks for who waits at the end
            return written_position
        known_offset, position = self.offset_index.lookup(offset)
        size = self.size
        if 0 < position <= size - HEADER_BYTES:
            chunk = self.file.read_at(min(_SEEK_BYTES, size - position), position)
            if len(chunk) >= HEADER_BYTES:
                base_offset, length, magic, delta = _BEGINNING.unpack_from(chunk)
                size_bytes = length + PREFIX_BYTES
                if (
                    base_offset + delta == known_offset
                    and magic == MAGIC
                    and delta >= 0
                    and HEADER_BYTES <= size_bytes <= size - position
                ):
                    if known_offset == offset:
                        return position
                    if known_offset == offset - 1:  # a reader goes on behind an indexed batch
                        position += size_bytes
                        return position if position < size else None
                    advance, is_found = kernel.seek_offset(chunk, offset)
                    return position + advance if is_found else self._walk(position + advance, offset)
        return self._walk(hints.true_start(self, offset) if position else 0, offset)

    def _walk(self, position: Position, offset: Offset) -> Position | None:
        """Goes from batch to batch until one reaches the offset."""
        size, patience = self.size, position + _PATIENCE_BYTES
        while position < size:
            chunk = self.file.read_at(min(_SEEK_BYTES, size - position), position)
            advance, is_found = kernel.seek_offset(chunk, offset)
            if not advance and not is_found:
                raise CorruptBatch(f"{self.path(LOG_SUFFIX)}: {size - position} stray bytes at {position}")
            position += advance
            if is_found:
                return position
            if position > patience:
                patience = size
                position = hints.better_start(self, offset, position)
        if position > size:
            raise CorruptBatch(f"{self.path(LOG_SUFFIX)}: the last batch ends {position - size} bytes behind the end")
        return None

    def header_at(self, position: Position) -> BatchHeader:
        return read_header(self.file.read_at(HEADER_BYTES, position))

    def slice(self, position: Position, length: int) -> FileSlice:
        assert 0 <= position <= position + length <= self.size
        return FileSlice(self.slices, self.shared(), position, length)

    def place_of_search(self, target: TimestampMs, first_offset: Offset) -> Position:
        """About where `find_timestamp` will read, by the indexes alone."""
        start = max(self.time_index.lookup(target).offset, first_offset)
        return max(0, min(self.offset_index.lookup(start).position, self.size))

    def look_for_timestamp(self, target: TimestampMs, first_offset: Offset) -> TimestampLookup | None:
        """The first batch that may have a record at or after `first_offset` whose timestamp is at least `target`."""
        start = self.position_of(max(hints.offset_before(self, target), first_offset))
        for position, header in self.headers(self.size if start is None else start):
            if header.max_timestamp >= target and header.last_offset >= first_offset:
                batch = self.file.read_at(header.size_bytes, position)
                return TimestampLookup(header, batch, target, first_offset)
        return None

    def next_offset(self) -> Offset:
        """One past the last offset here, read from the last index entry on. Mostly that confirms `largest`, too."""
        end, newest, last = self.base_offset, NO_TIMESTAMP, self.time_index.last()
        is_there = False
        for _, header in self.headers(hints.last_true_position(self)):
            end = header.next_offset
            if header.count and header.max_timestamp >= newest:
                newest = header.max_timestamp
                is_there = is_there or (newest == last.timestamp and end == last.offset + 1)
        if is_there and newest == last.timestamp and not self._is_largest_sure:
            self._largest, self._is_largest_sure = last, True
        return end

    # -- cutting and repairing -----------------------------------------------------------------------------------

    def largest_timestamp_or_modified_ms(self) -> TimestampMs:
        """How old the segment is for retention, also when its records have no timestamps."""
        largest = self.largest.timestamp
        return largest if largest >= 0 else self._files.modified_ms(self.path(LOG_SUFFIX))

    def revoke_slices(self, from_position: Position = 0) -> None:
        """Ends the sends that reach beyond a position where other bytes may be written."""
        for taken in self.slices:
            if taken.position + taken.length > from_position:
                taken.is_revoked = True

    def cut_to(self, offset: Offset) -> SegmentCut | None:
        """Removes every batch that holds `offset` or a later one, in memory; a worker runs what is returned.

        None when there is none. Until the cut has run, nothing may be appended, and no index stored.
        """
        position = self.position_of(offset)
        if position is None:
            return None
        self.revoke_slices(position)
        indexes = (self.offset_index, self.time_index, self.transaction_index)
        longer = tuple((index.path, index.stored_bytes) for index in indexes if index.forget_from(offset))
        self.size = position
        self._forget_scan_state()
        return SegmentCut(longer, self.path(LOG_SUFFIX), position)

    def _forget_scan_state(self) -> None:
        """Re-reads what is known of the tail after a cut: the batches after the last index entry are looked at."""
        self._bytes_since_entry = 0
        self._is_index_full = None
        self._last_write = _NO_WRITE
        self._first_timestamp = None
        self._largest = self.time_index.last()
        for _, header in self.headers(hints.last_true_position(self)):
            if header.count and header.max_timestamp > self._largest.timestamp:
                self._largest = TimestampOffset(header.max_timestamp, header.last_offset)
            self._bytes_since_entry += header.size_bytes

    def begin_scan(self, entry: OffsetPosition, index_interval_bytes: int) -> None:
        """Forgets everything from an index entry on, to `note` it again. The entry is also made again, as at first."""
        if entry.position:
            self.offset_index.truncate_to(entry.offset)
            self.time_index.truncate_to(entry.offset)
        else:
            self.offset_index.reset()
            self.time_index.reset()
        self.size = entry.position
        self.batch_bytes_max = max(self.batch_bytes_max, entry.position)
        self._bytes_since_entry = index_interval_bytes + 1 if entry.position else 0
        self._first_timestamp = None
        self._is_index_full = None
        self._largest = self.time_index.last()
        self._is_largest_sure = True

    def adopt_indexes(self, other: "Segment") -> None:
        """Takes over indexes that were rebuilt from this segment's log."""
        self.offset_index.replace(other.offset_index)
        self.time_index.replace(other.time_index)
        self._largest, self._is_largest_sure = other.largest, True
        self.is_distrusted = False

    def check_invariants(self) -> None:
        self.offset_index.check_invariants()
        self.time_index.check_invariants()
        assert all(taken.is_revoked or taken.position + taken.length <= self.size for taken in self.slices)


def seek_batch(file: File, position: Position, end: Position, offset: Offset) -> Position | None:
    """Where the first batch begins, from the one at `position` on, that holds `offset` or a later one."""
    while position < end:
        chunk = file.read_at(min(_SEEK_BYTES, end - position), position)
        advance, is_found = kernel.seek_offset(chunk, offset)
        if not advance and not is_found:
            raise CorruptBatch(f"{file.path}: {end - position} stray bytes at {position}")
        position += advance
        if is_found:
            return position
    if position > end:
        raise CorruptBatch(f"{file.path}: a batch ends {position - end} bytes after the segment")
    return None


def remove_segment_files(files: FileSystem, directory: str, base_offset: Offset, suffix: str) -> None:
    """The indexes first: a log without indexes is rebuilt, an index without a log is stray."""
    for kind in reversed(SEGMENT_SUFFIXES):
        files.remove(os.path.join(directory, f"{base_offset:020d}{kind}{suffix}"))
