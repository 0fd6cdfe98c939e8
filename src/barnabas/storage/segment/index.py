"""The two sparse indexes of a segment: offset to position, and timestamp to offset.

```
.index      8 bytes an entry: offset - base offset (int32), position of the batch (int32)
.timeindex 12 bytes an entry: largest timestamp so far (int64), offset of that batch - base offset (int32)
```

Big-endian, both columns increasing, one entry per `index.interval.bytes` of log. An offset entry names the *last*
offset of the batch at its position, as Kafka's does.

New entries gather in memory and reach the file in blocks, or when the log is flushed, rolled or closed. A crash may
lose entries: those above the recovery point are rebuilt by recovery, those below it were synced with the log. Lookups
search the file through a read-only map, or the entries still in memory. What they find is a hint, no more: see
`barnabas.storage.segment.hints`.
"""

from collections.abc import Iterator
from errno import ENOENT
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import NO_TIMESTAMP, Offset, Position, TimestampMs
from barnabas.records import kernel
from barnabas.storage.segment.handles import Handles

_BLOCK_BYTES: Final = 4096
_DOUBTFUL_BYTES: Final = 2 * _BLOCK_BYTES
"""After a crash, what a flush may have found in memory and something else has put into the file."""
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class OffsetPosition(NamedTuple):
    """The batch at `position` ends with `offset`."""

    offset: Offset
    position: Position


class TimestampOffset(NamedTuple):
    """No record before `offset` has a timestamp above `timestamp`; that of `offset`'s batch is the largest so far."""

    timestamp: TimestampMs
    offset: Offset


class CorruptIndex(BarnabasError):  # noqa: N818 - a fact about bytes, named as one
    """An index file that cannot be one: it is rebuilt from the log."""


class Column(NamedTuple):
    """Where a number lies in an entry, and whether it has eight bytes or four."""

    start: int
    is_wide: bool


class SparseIndex:
    """What both indexes share: a sorted array of entries, in a file and a tail in memory."""

    ENTRY: ClassVar[Struct]
    KEY: ClassVar[int]
    """Which column of an entry is the relative offset."""
    COLUMNS: ClassVar[tuple[Column, Column]]

    __slots__ = ("_files", "_handles", "_stored", "_tail", "base_offset", "bytes_max", "path")

    def __init__(self, files: FileSystem, handles: Handles, path: str, base_offset: Offset, bytes_max: int) -> None:
        self._files = files
        self._handles = handles
        self.path = path
        self.base_offset = base_offset
        self.bytes_max = bytes_max
        self._stored = 0
        """Entries in the file."""
        self._tail: bytes | bytearray = b""
        """Entries not yet in the file; a bytearray only when there are some, for the sake of many idle logs."""

    def load(self) -> None:
        """Takes over an existing file, when its length can be that of an index."""
        try:
            size = self._files.size(self.path)
        except DiskFailed as error:
            if error.errno == ENOENT:
                raise CorruptIndex(f"{self.path} is missing") from None
            raise
        if size % self.ENTRY.size:
            raise CorruptIndex(f"{self.path}: {size} bytes are not a whole number of {self.ENTRY.size}-byte entries")
        self._stored = size // self.ENTRY.size
        if self._stored:
            last = self._entry(self._stored - 1)
            if last == (0, 0):
                raise CorruptIndex(f"{self.path}: it ends in zeros, as Kafka's does after a crash")
            if min(last) < 0:
                raise CorruptIndex(f"{self.path}: the last entry is negative: {last}")

    @property
    def count(self) -> int:
        return self._stored + len(self._tail) // self.ENTRY.size

    @property
    def is_full(self) -> bool:
        """One entry is kept free, for the last one that closing a segment adds."""
        size = self.ENTRY.size
        return self._stored * size + len(self._tail) + size >= self.bytes_max

    def _map(self) -> memoryview:
        file = self._files.open(self.path)
        try:
            return file.map(self._stored * self.ENTRY.size)
        finally:
            file.close()

    def _entry(self, number: int) -> tuple[int, int]:
        if number >= self._stored:
            return self.ENTRY.unpack_from(self._tail, (number - self._stored) * self.ENTRY.size)
        return self.ENTRY.unpack_from(self._handles.map(self, self._map), number * self.ENTRY.size)

    def _floor(self, target: int, column: int) -> int:
        """The number of the last entry whose column is at most `target`, or -1."""
        place = self.COLUMNS[column]
        size = self.ENTRY.size
        tail = self._tail
        if tail:
            number = kernel.floor_entry(tail, size, place.start, place.is_wide, target)
            if number >= 0:
                return self._stored + number
        if not self._stored:
            return -1
        return kernel.floor_entry(self._handles.map(self, self._map), size, place.start, place.is_wide, target)

    def _floor_between(self, target: int, first: int, end: int) -> int:
        """The number of the last of some entries whose first column is at most `target`, or -1. For rare cases."""
        place, size = self.COLUMNS[0], self.ENTRY.size
        stored = self._handles.map(self, self._map) if self._stored else b""
        entries = b"".join((stored, self._tail))[first * size : end * size]
        number = kernel.floor_entry(entries, size, place.start, place.is_wide, target)
        return number + first if number >= 0 else -1

    def replace(self, other: "SparseIndex") -> None:
        """Takes over the file of another index of the same segment, which has all its entries there."""
        assert not other._tail
        self._handles.drop(self)
        self._files.rename(other.path, self.path)
        self._stored, self._tail = other._stored, b""

    def _doubtful(self, offset: Offset) -> range:
        end = self._floor(offset - self.base_offset, self.KEY) + 1
        return range(max(0, end - _DOUBTFUL_BYTES // self.ENTRY.size), end)

    def _add(self, first: int, second: int) -> None:
        if not self._tail:
            self._tail = bytearray()
        assert isinstance(self._tail, bytearray)
        self._tail += self.ENTRY.pack(first, second)

    def store(self) -> None:
        """Moves the entries in memory to the file."""
        if not self._tail and self._stored:
            return
        file = self._files.open(self.path, write=True, create=True)
        try:
            if self._tail:
                file.write_at([self._tail], self._stored * self.ENTRY.size)
        finally:
            file.close()
        self._handles.drop(self)
        self._stored += len(self._tail) // self.ENTRY.size
        self._tail = b""

    @property
    def has_unstored_entries(self) -> bool:
        return bool(self._tail)

    @property
    def has_block(self) -> bool:
        """Whether the entries in memory are enough to be worth a write."""
        return len(self._tail) >= _BLOCK_BYTES

    def _cut(self, count: int) -> None:
        """Keeps only the first `count` entries."""
        if self._forget(count):
            file = self._files.open(self.path, write=True)
            try:
                file.truncate(self.stored_bytes)
            finally:
                file.close()

    def _forget(self, count: int) -> bool:
        """`_cut` in memory alone; says whether the file has more."""
        assert 0 <= count <= self.count
        if count >= self._stored:
            self._tail = bytearray(self._tail[: (count - self._stored) * self.ENTRY.size])
            return False
        self._tail = b""
        self._handles.drop(self)
        self._stored = count
        return True

    @property
    def stored_bytes(self) -> int:
        """What the file holds, or should once it is cut."""
        return self._stored * self.ENTRY.size

    def reset(self) -> None:
        """Starts again from nothing, whatever the file holds."""
        self._handles.drop(self)
        self._tail = b""
        self._stored = 0
        file = self._files.open(self.path, write=True, create=True)
        try:
            file.truncate(0)
        finally:
            file.close()

    def drop_handle(self) -> None:
        self._handles.drop(self)

    def attach(self, handles: Handles) -> None:
        self._handles = handles

    def move(self, path: str) -> None:
        """Follows the file to a new name. A file that does not exist yet has nothing to rename."""
        if self._files.exists(self.path):
            self._files.rename(self.path, path)
        self.path = path

    def is_increasing(self) -> bool:
        """Whether every entry lies after the one before, as a crash that lost a page in the middle would break."""
        previous: tuple[int, int] = (-1, -1)
        for number in range(self.count):
            entry = self._entry(number)
            if not (entry[0] > previous[0] and entry[1] > previous[1]):
                return False
            previous = entry
        return True

    def check_invariants(self) -> None:
        assert self.is_increasing(), f"{self.path} is not increasing"


class OffsetIndex(SparseIndex):
    """Where to begin looking for an offset."""

    ENTRY = Struct(">ii")
    KEY = 0
    COLUMNS = (Column(0, is_wide=False), Column(4, is_wide=False))

    __slots__ = ()

    def add(self, offset: Offset, position: Position) -> None:
        self._add(offset - self.base_offset, position)

    def lookup(self, offset: Offset) -> OffsetPosition:
        """The last entry at or before the offset; the start of the segment when there is none."""
        number = self._floor(offset - self.base_offset, 0)
        return self.entry(number) if number >= 0 else OffsetPosition(self.base_offset, 0)

    def floor(self, offset: Offset, first: int, end: int) -> int:
        """The number of the last entry of some at or before the offset, or -1."""
        return self._floor_between(offset - self.base_offset, first, end)

    def latest_up_to(self, offset: Offset) -> list[OffsetPosition]:
        """The entries at or before the offset that a crash may have torn."""
        return [self.entry(number) for number in self._doubtful(offset)]

    def entry(self, number: int) -> OffsetPosition:
        relative_offset, position = self._entry(number)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def last(self) -> OffsetPosition:
        return self.entry(self.count - 1) if self.count else OffsetPosition(self.base_offset, 0)

    def truncate_to(self, offset: Offset) -> None:
        """Drops every entry for `offset` and above."""
        self._cut(self._floor(offset - self.base_offset - 1, 0) + 1)

    def forget_from(self, offset: Offset) -> bool:
        """`truncate_to` in memory alone; says whether the file has more than `stored_bytes`."""
        return self._forget(self._floor(offset - self.base_offset - 1, 0) + 1)

    def __iter__(self) -> Iterator[OffsetPosition]:
        return (self.entry(number) for number in range(self.count))


class TimeIndex(SparseIndex):
    """From which offset on a timestamp can be found."""

    ENTRY = Struct(">qi")
    KEY = 1
    COLUMNS = (Column(0, is_wide=True), Column(8, is_wide=False))

    __slots__ = ()

    def add(self, timestamp: TimestampMs, offset: Offset) -> None:
        """Adds the entry if it says something new: timestamps increase from entry to entry."""
        tail = self._tail
        if tail:
            last_timestamp = self.ENTRY.unpack_from(tail, len(tail) - self.ENTRY.size)[0]
        else:
            last_timestamp = self.last().timestamp
        if timestamp > last_timestamp:
            self._add(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: TimestampMs) -> TimestampOffset:
        """The last entry at or before the timestamp: records with a later one are not before its offset."""
        number = self._floor(timestamp, 0)
        return self.entry(number) if number >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def floor(self, timestamp: TimestampMs, first: int, end: int) -> int:
        """The number of the last entry of some at or before the timestamp, or -1."""
        return self._floor_between(timestamp, first, end)

    def last_at_or_before(self, offset: Offset) -> TimestampOffset:
        number = self._floor(offset - self.base_offset, self.KEY)
        return self.entry(number) if number >= 0 else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def latest_up_to(self, offset: Offset) -> list[TimestampOffset]:
        """The entries at or before the offset that a crash may have torn."""
        return [self.entry(number) for number in self._doubtful(offset)]

    def entry(self, number: int) -> TimestampOffset:
        timestamp, relative_offset = self._entry(number)
        return TimestampOffset(timestamp, self.base_offset + relative_offset)

    def last(self) -> TimestampOffset:
        return self.entry(self.count - 1) if self.count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def truncate_to(self, offset: Offset) -> None:
        """Drops every entry for `offset` and above."""
        self._cut(self._floor(offset - self.base_offset - 1, 1) + 1)

    def forget_from(self, offset: Offset) -> bool:
        """`truncate_to` in memory alone; says whether the file has more than `stored_bytes`."""
        return self._forget(self._floor(offset - self.base_offset - 1, 1) + 1)

    def __iter__(self) -> Iterator[TimestampOffset]:
        return (self.entry(number) for number in range(self.count))
