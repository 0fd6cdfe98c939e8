"""What the indexes of a segment say, checked against the log they point into.

An index is a hint: a flipped bit in it may cost time, never a record. So nothing it says is used before the log has
confirmed it:

| hint | believed when |
|---|---|
| offset entry | a batch begins at its position and ends with its offset (or, in indexes of older Kafka followers, which name the end of several batches, ends before it and has the right checksum) |
| time entry | the batch of its offset has exactly its timestamp, and it lies before the entry that follows, in both columns |
| last time entry | besides, no batch behind it is newer |
| aborted transaction | its marker, and its first batch if that is there, are its producer's |

Binary search stays useful in a damaged index: whatever the order of the entries, the one it ends at does not lie beyond
what was looked for. When that one is not true, the search goes on without it; in the worst case the segment is walked
from its start. A search by time begins an entry earlier than it needs to, so that one false entry cannot hide a record.

A false entry is logged once for each segment, and the indexes are rebuilt (`barnabas.storage.log.reindexing`).
`Segment.position_of` does the same for the usual case, without these detours.
"""  # noqa: E501 - the table

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import CorruptBatch
from barnabas.base.ids import NO_TIMESTAMP, Offset, Position, TimestampMs
from barnabas.records import kernel
from barnabas.records.batch import HEADER_BYTES, BatchHeader, check_header, read_header
from barnabas.storage.segment.index import OffsetPosition, TimestampOffset
from barnabas.storage.segment.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from barnabas.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

_ENTRIES_TRIED_MAX: Final = 16
_TAIL_BYTES_MAX: Final = 1 << 20
"""Up to this much of a segment is read to see whether its largest timestamp is the one in the index."""


def distrust(segment: "Segment", problem: str) -> None:
    """An index of the segment is damaged: logged once, and noted so that it is rebuilt."""
    if not segment.is_distrusted:
        segment.is_distrusted = True
        segment.distrusted.append(segment)
        logger.warning(
            "%s/%020d: the indexes are wrong and will be rebuilt: %s", segment.directory, segment.base_offset, problem
        )


# Offsets


def header_at(segment: "Segment", position: Position) -> BatchHeader | None:
    """The header of the batch that begins at a position; None when none can begin there."""
    if not 0 <= position <= segment.size - HEADER_BYTES:
        return None
    chunk = segment.file.read_at(HEADER_BYTES, position)
    if len(chunk) < HEADER_BYTES:
        return None
    header = read_header(chunk)
    try:
        check_header(header, segment.size - position)
    except CorruptBatch:
        return None
    return header if header.base_offset >= segment.base_offset and header.last_offset_delta >= 0 else None


def is_true_offset(segment: "Segment", entry: OffsetPosition) -> bool:
    header = header_at(segment, entry.position)
    if header is None or header.last_offset > entry.offset:
        return False
    if header.last_offset == entry.offset:
        return True
    scan = kernel.scan_batches(segment.file.read_at(header.size_bytes, entry.position))
    return scan.problem is None and scan.valid_bytes == header.size_bytes


def true_start(segment: "Segment", offset: Offset) -> Position:
    """Where to begin looking for an offset, by the last entry at or before it that is true; 0 when none is found."""
    index = segment.offset_index
    end = index.count
    for _ in range(_ENTRIES_TRIED_MAX):
        number = index.floor(offset, 0, end)
        if number < 0:
            break
        entry = index.entry(number)
        if entry.position == 0 or is_true_offset(segment, entry):
            return entry.position
        distrust(segment, f"no batch at position {entry.position} ends with offset {entry.offset}")
        end = number
    return 0


def better_start(segment: "Segment", offset: Offset, reached: Position) -> Position:
    """Where to go on looking for an offset that was not found up to `reached`, though it should have been."""
    index = segment.offset_index
    following = index.floor(offset, 0, index.count) + 1
    if following >= index.count or index.entry(following).position >= reached:
        return reached
    distrust(segment, f"offset {offset} is not before position {index.entry(following).position}")
    number = index.floor(offset, following + 1, index.count)
    if number > following and is_true_offset(segment, entry := index.entry(number)):
        return max(reached, entry.position)
    return reached


def last_true_position(segment: "Segment") -> Position:
    """Where the last batch begins that the index leads to."""
    last = segment.offset_index.last()
    if last.position == 0 or is_true_offset(segment, last):
        return last.position
    return true_start(segment, last.offset)


# Timestamps


def is_true_timestamp(segment: "Segment", entry: TimestampOffset) -> bool:
    return _end_of_batch(segment, entry) is not None


def _end_of_batch(segment: "Segment", entry: TimestampOffset) -> Position | None:
    """Where the batch ends that has an entry's timestamp; None when the entry is not true.

    Kafka indexes batches that compaction has emptied, too; their timestamps stand for records before them.
    """
    position = segment.position_of(entry.offset) if entry.offset >= segment.base_offset else None
    header = None if position is None else header_at(segment, position)
    if position is None or header is None or not header.count or header.max_timestamp != entry.timestamp:
        return None
    return position + header.size_bytes


def offset_before(segment: "Segment", target: TimestampMs) -> Offset:
    """An offset before which no record has a timestamp of `target` or more."""
    index = segment.time_index
    end = index.count
    for _ in range(_ENTRIES_TRIED_MAX):
        number = index.floor(target, 0, end)
        if number <= 0:
            break
        earlier, found = index.entry(number - 1), index.entry(number)
        is_ordered = earlier.timestamp < found.timestamp and earlier.offset < found.offset
        if is_ordered and is_true_timestamp(segment, earlier):
            return earlier.offset
        distrust(segment, f"timestamp {earlier.timestamp} is not that of offset {earlier.offset}")
        end = number
    return segment.base_offset


def largest_timestamp(segment: "Segment") -> TimestampOffset:
    """The largest timestamp of the segment: the last of its index, or, where the log contradicts, by a walk."""
    last = segment.time_index.last()
    if not segment.size or (last.timestamp > NO_TIMESTAMP and _is_largest(segment, last)):
        return last
    largest = TimestampOffset(NO_TIMESTAMP, segment.base_offset)
    with suppress(CorruptBatch):  # what cannot be read has no say
        for _, header in segment.headers(0):
            if header.count and header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
    if largest.timestamp != last.timestamp:
        distrust(segment, f"the largest timestamp is {largest.timestamp}, not {last.timestamp}")
    return largest


def is_true_transaction(segment: "Segment", transaction: AbortedTransaction) -> bool:
    """Compaction may have taken the first batch, never the marker."""
    try:
        position, first = segment.position_of(transaction.last_offset), segment.position_of(transaction.first_offset)
    except CorruptBatch:
        return True  # the log itself is damaged; nothing contradicts the index
    marker = None if position is None else header_at(segment, position)
    if marker is None or not marker.is_control or marker.last_offset != transaction.last_offset:
        return False
    if marker.producer_id != transaction.producer_id:
        return False
    begin = None if first is None else header_at(segment, first)
    if begin is None or begin.base_offset > transaction.first_offset:
        return True  # the first batch is in an earlier segment, or gone
    return begin.base_offset == transaction.first_offset and begin.producer_id == transaction.producer_id


def _is_largest(segment: "Segment", last: TimestampOffset) -> bool:
    """Looks at what follows its batch; in a long segment whose newest record comes early, only at the end."""
    try:
        position = _end_of_batch(segment, last)
        if position is None:
            return False
        if segment.size - position > _TAIL_BYTES_MAX:
            position = last_true_position(segment)
        return all(
            header.max_timestamp <= last.timestamp or not header.count for _, header in segment.headers(position)
        )
    except CorruptBatch:
        return True  # the log itself is damaged; nothing contradicts the index
