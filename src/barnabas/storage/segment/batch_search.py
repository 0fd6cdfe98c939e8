"""Which batch holds an offset, found by a worker thread: far from the end of a log, looking means waiting for the disk.

```
owner                                  worker
search = search_batch(segments, ...)   search.run()    reads batch headers through files that the search keeps open
search.release()                       the header, or None
```

The owner looks up where to begin in the offset index, as a fetch does.
"""

from itertools import islice
from typing import Final

from barnabas.base.errors import CorruptBatch, DiskFailed
from barnabas.base.ids import Offset
from barnabas.records.batch import HEADER_BYTES, BatchHeader, check_header, read_header
from barnabas.storage.segment.segment import seek_batch
from barnabas.storage.segment.segments import Segments
from barnabas.storage.segment.slices import FileSlice

_SEGMENTS_MAX: Final = 2
"""When compaction has left nothing behind the offset in its own segment, the next one begins with the batch."""
_BATCHES_MAX: Final = 16
"""Batches without records of a client's (markers, batches that compaction emptied) after which the search ends."""


class BatchSearch:
    """Made by `search_batch`, run once anywhere, released by the owner when it has run."""

    __slots__ = ("_offset", "_places", "_upper")

    def __init__(self, places: list[FileSlice], offset: Offset, upper: Offset) -> None:
        self._places = places
        self._offset = offset
        self._upper = upper

    def run(self) -> BatchHeader | None:
        """The first batch with a record at the offset or after it; None when there is none, or it is unreadable."""
        try:
            for place in self._places:
                position = seek_batch(place.file, place.position, place.position + place.length, self._offset)
                if position is not None:
                    return self._first_with_records(place, position)
        except (CorruptBatch, DiskFailed):
            return None  # a read of the records reports it
        return None

    def _first_with_records(self, place: FileSlice, position: int) -> BatchHeader | None:
        end = place.position + place.length
        for _ in range(_BATCHES_MAX):
            if position + HEADER_BYTES > end:
                return None
            header = read_header(place.file.read_at(HEADER_BYTES, position))
            check_header(header, end - position)
            if header.base_offset >= self._upper:
                return None
            if header.count and not header.is_control:
                return header
            position += header.size_bytes
        return None

    def release(self) -> None:
        for place in self._places:
            place.release()


def search_batch(segments: Segments, offset: Offset, upper: Offset) -> BatchSearch:
    """A search for the first record from `offset` on, below `upper`. DiskFailed when a file cannot be opened."""
    search = BatchSearch(places := [], offset, upper)
    try:
        for segment in islice(segments.since(offset), _SEGMENTS_MAX):
            position = segment.offset_index.lookup(offset).position
            if 0 <= position < segment.size:
                places.append(segment.slice(position, segment.size - position))
    except DiskFailed:
        search.release()
        raise
    return search
