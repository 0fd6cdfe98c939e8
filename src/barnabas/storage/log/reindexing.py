"""Rebuilds the indexes of a segment when they contradict its log (`storage.segment.hints`), while readers use it.

```
 owner                        worker
 takes path and size  ------> walks the headers; writes and syncs OFFSET.index.tmp and OFFSET.timeindex.tmp
 renames them         <------ if the segment is still there, and as long as it was
```

Only complete segments: an active one is rolled before. The log is neither changed nor judged: if its batches cannot be
followed to the end, the old indexes stay; no entry of theirs is believed unchecked anyway.
Crash: the next opening of the log removes what ends in `.tmp`.
"""

import logging
from contextlib import closing
from typing import Final

from barnabas.base.filesystem import FileSystem
from barnabas.storage.log.log import Log
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.index import OffsetPosition
from barnabas.storage.segment.segment import LOG_SUFFIX, Segment
from barnabas.storage.segment.segment_recovery import note_batches, note_end

logger = logging.getLogger(__name__)

TEMPORARY_SUFFIX: Final = ".tmp"
_HANDLES: Final = 4


class Reindexing:
    """One segment. Made and finished by the log's owner, run by a worker."""

    def __init__(self, files: FileSystem, log: Log, segment: Segment) -> None:
        assert segment is not log.segments.active, "it still grows"
        self._files = files
        self._log = log
        self._segment = segment
        self._path = segment.path(LOG_SUFFIX)
        self._size = segment.size
        self._interval_bytes = log.config.index_interval_bytes
        self._handles = Handles(_HANDLES)
        self._scratch = Segment(
            files,
            self._handles,
            segment.directory,
            segment.base_offset,
            index_bytes_max=segment.offset_index.bytes_max,
            created_ms=segment.created_ms,
            suffix=TEMPORARY_SUFFIX,
        )
        self._problem: str | None = None

    def run(self) -> None:
        scratch = self._scratch
        self._handles.file(scratch, lambda: self._files.open(self._path))  # it has indexes of its own, but no log
        try:
            scratch.begin_scan(OffsetPosition(scratch.base_offset, 0), self._interval_bytes)
            self._problem = note_batches(scratch, self._size, self._interval_bytes, [], verify=False)
            note_end(scratch)
            scratch.offset_index.store()
            scratch.time_index.store()
        finally:
            scratch.drop_handles()
        for index in (scratch.offset_index, scratch.time_index):
            with closing(self._files.open(index.path, write=True)) as file:
                file.sync()

    def finish(self) -> None:
        segment, scratch = self._segment, self._scratch
        is_same = segment in self._log.segments and segment.size == self._size and not segment.suffix
        if is_same and self._problem is None:
            segment.adopt_indexes(scratch)
            logger.info("%s: rebuilt the indexes of the segment at %d", self._log.partition, segment.base_offset)
            return
        scratch.remove_files()
        if self._problem is not None:
            logger.error("%s: cannot rebuild its indexes: %s", self._path, self._problem)
