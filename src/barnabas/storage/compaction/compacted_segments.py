"""Writes the segments that take the place of a group of old ones.

They carry the suffix `.cleaned` until the log takes them over, and are complete and synced before. Mostly there is one
to a group; more when a delete horizon has made the records longer. Together they cover every offset of the old ones:
each begins where the one before ends.

Owner: a worker thread, until the log takes them. Crash: opening the log removes every `.cleaned` file.
"""

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

from barnabas.base.buffers import Buffer
from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset, Position, TimestampMs
from barnabas.storage.compaction.compacted_batches import CleanedBatch
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.replacement import CLEANED_SUFFIX, SWAP_SUFFIX
from barnabas.storage.segment.segment import LOG_SUFFIX, Segment, mark_of, remove_segment_files
from barnabas.storage.settings import LogConfig

_HANDLES_MAX: Final = 8


class CleanedSegments:
    """The new segments of one group, written front to back."""

    __slots__ = (
        "_buffers",
        "_config",
        "_created_ms",
        "_directory",
        "_files",
        "_io_bytes",
        "_next_offset",
        "_on_write",
        "_written",
        "segments",
    )

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        config: LogConfig,
        base_offset: Offset,
        *,
        created_ms: TimestampMs,
        io_bytes: int,
        on_write: Callable[[int], None],
    ) -> None:
        """`on_write` is called with the size of each write, and may sleep, or raise to end the work."""
        self._files = files
        self._directory = directory
        self._config = config
        self._created_ms = created_ms
        self._io_bytes = io_bytes
        self._on_write = on_write
        self._next_offset = base_offset
        self._buffers: list[Buffer] = []
        self._written: Position = 0
        self.segments: list[Segment] = []

    def add(self, cleaned: CleanedBatch) -> None:
        segment = self.segments[-1] if self.segments else self._begin()
        if not self._has_room(segment, cleaned):
            self._seal()
            segment = self._begin()
        segment.note((mark_of(cleaned.header),), self._config.index_interval_bytes)
        if cleaned.aborted is not None:
            segment.transaction_index.append(cleaned.aborted)
        self._buffers.append(cleaned.batch)
        self._next_offset = cleaned.header.next_offset
        if segment.size - self._written >= self._io_bytes:
            self._write()

    def finish(self) -> None:
        """Makes everything complete and durable."""
        if not self.segments:
            self._begin()  # the old segments were empty, and so is the new one
        self._seal()

    def discard(self) -> None:
        """They are of no use. A file that stays although it should not goes when the log is opened."""
        for segment in self.segments:
            segment.drop_handles()
            for suffix in (CLEANED_SUFFIX, SWAP_SUFFIX):
                with suppress(DiskFailed):
                    remove_segment_files(self._files, self._directory, segment.base_offset, suffix)
        self.segments = []

    def _has_room(self, segment: Segment, cleaned: CleanedBatch) -> bool:
        if not segment.size:
            return True
        size_bytes_max = self._config.segment_bytes_max
        return segment.size + len(cleaned.batch) <= size_bytes_max and segment.accepts(cleaned.header.last_offset)

    def _begin(self) -> Segment:
        segment = Segment(
            self._files,
            Handles(_HANDLES_MAX),
            self._directory,
            self._next_offset,
            index_bytes_max=self._config.segment_index_bytes,
            created_ms=self._created_ms,
            suffix=CLEANED_SUFFIX,
        )
        self.segments.append(segment)
        self._written = 0
        segment.create()
        return segment

    def _write(self) -> None:
        segment = self.segments[-1]
        size_bytes = segment.size - self._written
        if size_bytes:
            segment.file.write_at(self._buffers, self._written)
            self._written += size_bytes
            self._buffers.clear()
            self._on_write(size_bytes)

    def _seal(self) -> None:
        self._write()
        segment = self.segments[-1]
        segment.complete()
        for path in (segment.path(LOG_SUFFIX), *segment.index_paths()):
            with closing(self._files.open(path, write=True)) as file:
                file.sync()
        segment.drop_handles()
