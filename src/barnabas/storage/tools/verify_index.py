"""Checks the two sparse indexes of a segment against its batches, which come by in their order.

Each check walks its index file beside the batches: as both are sorted, one pass and one entry in memory are enough.
An index that Kafka had open when it was killed ends in zeros (it is allocated whole and cut on closing); these are
padding, not entries.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from barnabas.base.filesystem import File, FileSystem
from barnabas.base.ids import NO_TIMESTAMP, Offset, Position
from barnabas.records.batch import BatchHeader
from barnabas.storage.segment.index import OffsetIndex, TimeIndex
from barnabas.storage.tools.findings import Findings

_CHUNK_ENTRIES: Final = 4096


class IndexExtent(NamedTuple):
    """How much of an index file holds entries."""

    entries: int
    padding_entries: int
    stray_bytes: int
    """What is left over after the last whole entry."""


class IndexEntry(NamedTuple):
    position: Position
    first: int
    second: int


def measure_index(file: File, entry: Struct) -> IndexExtent:
    """Finds the zeros at the end. A file of one entry has none: a record at time 0 may be its first."""
    count, stray_bytes = divmod(file.size(), entry.size)
    used = count
    while used > 1:
        first = max(0, used - _CHUNK_ENTRIES)
        content = file.read_at((used - first) * entry.size, first * entry.size)
        filled_bytes = len(content.rstrip(b"\x00"))
        if filled_bytes:
            used = first + -(-filled_bytes // entry.size)
            break
        used = first
    return IndexExtent(used, count - used, stray_bytes)


def read_index(file: File, entry: Struct, extent: IndexExtent) -> Iterator[IndexEntry]:
    """The entries as they stand in the file, offsets still relative to the segment's."""
    for number in range(0, extent.entries, _CHUNK_ENTRIES):
        count = min(_CHUNK_ENTRIES, extent.entries - number)
        content = file.read_at(count * entry.size, number * entry.size)
        whole = len(content) // entry.size * entry.size  # the file may be cut while it is read
        for slot, (first, second) in enumerate(entry.iter_unpack(content[:whole]), start=number):
            yield IndexEntry(slot * entry.size, first, second)


class _IndexCheck:
    """What both checks share: the entries, one after the other, with what is wrong with the file itself."""

    def __init__(
        self,
        files: FileSystem,
        path: str,
        base_offset: Offset,
        entry: Struct,
        findings: Findings,
        *,
        is_open: bool,
    ) -> None:
        self._path = path
        self._base_offset = base_offset
        self._findings = findings
        self._file: File | None = None
        self._entries: Iterator[IndexEntry] = iter(())
        self._next: IndexEntry | None = None
        self.is_padded = False
        self.is_whole = True
        """Whether every entry so far could be read and was in order."""
        if not files.exists(path):
            # Kafka makes the indexes of a new segment with their first entry.
            (findings.note if is_open else findings.error)(path, "the index is missing")
            self.is_whole = False
            return
        self._file = files.open(path)
        extent = measure_index(self._file, entry)
        if extent.stray_bytes:
            findings.error(
                path,
                f"{extent.stray_bytes} bytes after the last entry",
                position=(extent.entries + extent.padding_entries) * entry.size,
            )
        if extent.padding_entries:
            self.is_padded = True
            findings.note(
                path,
                f"{extent.padding_entries} entries of zeros at the end, as Kafka leaves them when it is killed",
                position=extent.entries * entry.size,
            )
        self._entries = read_index(self._file, entry, extent)
        self._advance()

    def _advance(self) -> None:
        previous, self._next = self._next, next(self._entries, None)
        if previous is None or self._next is None:
            return
        if not (self._next.first > previous.first and self._next.second > previous.second):
            self._error(self._next, f"{self._show(self._next)} does not come after {self._show(previous)}")

    def _show(self, entry: IndexEntry) -> str:
        raise NotImplementedError

    def _error(self, entry: IndexEntry, problem: str, offset: Offset | None = None) -> None:
        self.is_whole = False
        self._findings.error(self._path, problem, position=entry.position, offset=offset)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class OffsetIndexCheck(_IndexCheck):
    """Every entry points to a batch, and names its last offset."""

    def __init__(self, files: FileSystem, path: str, base_offset: Offset, findings: Findings, *, is_open: bool) -> None:
        super().__init__(files, path, base_offset, OffsetIndex.ENTRY, findings, is_open=is_open)

    def _show(self, entry: IndexEntry) -> str:
        return f"(offset {self._base_offset + entry.first}, position {entry.second})"

    def see(self, position: Position, header: BatchHeader) -> None:
        while self._next is not None and self._next.second < position:
            self._error(self._next, f"{self._show(self._next)} does not point to the beginning of a batch")
            self._advance()
        if self._next is not None and self._next.second == position:
            offset = self._base_offset + self._next.first
            if offset != header.last_offset:
                self._error(
                    self._next,
                    f"{self._show(self._next)}, but the batch there ends with offset {header.last_offset}",
                    offset,
                )
            self._advance()

    def finish(self) -> None:
        """All batches of the segment have come by."""
        while self._next is not None:
            self._error(self._next, f"{self._show(self._next)} points past the last batch")
            self._advance()


class TimeIndexCheck(_IndexCheck):
    """Every entry names the largest timestamp up to its offset, and a batch that has it."""

    def __init__(self, files: FileSystem, path: str, base_offset: Offset, findings: Findings, *, is_open: bool) -> None:
        super().__init__(files, path, base_offset, TimeIndex.ENTRY, findings, is_open=is_open)
        self._largest = NO_TIMESTAMP
        self._last_timestamp = NO_TIMESTAMP
        """Of the newest entry that has come by."""

    def _show(self, entry: IndexEntry) -> str:
        return f"(timestamp {entry.first}, offset {self._base_offset + entry.second})"

    def see(self, header: BatchHeader) -> None:
        while self._next is not None and self._base_offset + self._next.second <= header.last_offset:
            self._check(self._next, header)
            self._last_timestamp = self._next.first
            self._advance()
        if header.count:
            self._largest = max(self._largest, header.max_timestamp)

    def _check(self, entry: IndexEntry, header: BatchHeader) -> None:
        offset = self._base_offset + entry.second
        if offset < header.base_offset:
            self._error(entry, f"{self._show(entry)}, but no batch has this offset", offset)
        elif entry.first != header.max_timestamp:
            self._error(entry, f"{self._show(entry)}, but the batch there has timestamp {header.max_timestamp}", offset)
        elif entry.first < self._largest:
            self._error(entry, f"{self._show(entry)}, but a record before it has timestamp {self._largest}", offset)

    def finish(self, *, is_complete: bool) -> None:
        """All batches have come by; of a complete segment the last entry tells its largest timestamp."""
        while self._next is not None:
            self._error(self._next, f"{self._show(self._next)} names an offset past the last batch")
            self._advance()
        if is_complete and self.is_whole and not self.is_padded and self._last_timestamp < self._largest:
            self._findings.error(
                self._path, f"the last entry has timestamp {self._last_timestamp}, but a record has {self._largest}"
            )
