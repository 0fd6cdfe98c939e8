"""Checks a segment batch by batch after a stop that was not clean, and rebuilds its indexes.

`recover_segment` believes what was synced: indexes that agree with the log, up to the recovery point. From there on
every batch is checked (whole, CRC, rising offsets and epochs), indexed as when it was appended, and the segment is cut
at the first bad one. `rebuild_segment` believes no index at all. `reindex_segment` is for records that were synced: a
damaged index is no reason to doubt them, so nothing is cut.

Crash: the next recovery starts over. Nothing that was whole is removed.
"""

from dataclasses import dataclass
from typing import Final

from barnabas.base.errors import CorruptBatch
from barnabas.base.ids import NO_EPOCH, LeaderEpoch, Offset
from barnabas.records import kernel
from barnabas.storage.segment.hints import header_at, is_true_timestamp
from barnabas.storage.segment.index import RELATIVE_OFFSET_MAX, OffsetPosition
from barnabas.storage.segment.segment import Segment, mark_of

_SCAN_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentScan:
    """What a check of a segment's batches found."""

    checked_bytes: int
    removed_bytes: int
    problem: str | None
    epochs: list[tuple[LeaderEpoch, Offset]]
    """Where the checked batches change their leader epoch."""


def recover_segment(segment: Segment, index_interval_bytes: int, from_offset: Offset) -> SegmentScan:
    """Checks every batch from `from_offset` on, rebuilds the indexes for them, and cuts at the first bad one.

    Indexes that contradict the log are not believed: the whole segment is checked instead.
    """
    file_bytes = segment.size = segment.file.size()
    entry = _last_true_entry(segment, from_offset)
    segment.begin_scan(entry, index_interval_bytes)
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    problem = note_batches(segment, file_bytes, index_interval_bytes, epochs)
    note_end(segment)
    segment.store_indexes_if_room()
    segment.cut_spare_bytes()
    return SegmentScan(segment.size - entry.position, file_bytes - segment.size, problem, epochs)


def rebuild_segment(segment: Segment, index_interval_bytes: int) -> SegmentScan:
    """Checks the whole segment without believing its indexes."""
    segment.offset_index.reset()
    segment.time_index.reset()
    return recover_segment(segment, index_interval_bytes, segment.base_offset)


def reindex_segment(segment: Segment, index_interval_bytes: int) -> SegmentScan:
    """Rebuilds the indexes from the headers of the batches; what cannot be followed stays, without an entry."""
    file_bytes = segment.size = segment.file.size()
    segment.begin_scan(OffsetPosition(segment.base_offset, 0), index_interval_bytes)
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    note_batches(segment, file_bytes, index_interval_bytes, epochs, verify=False)
    read_bytes, segment.size = segment.size, file_bytes
    note_end(segment)
    segment.store_indexes_if_room()
    segment.is_distrusted = False
    return SegmentScan(read_bytes, 0, None, epochs)


def note_end(segment: Segment) -> None:
    """All batches were noted: completes the time index."""
    if segment.largest.timestamp >= 0:
        segment.time_index.add(*segment.largest)


def _last_true_entry(segment: Segment, from_offset: Offset) -> OffsetPosition:
    """The last place at or before `from_offset` up to which both indexes are whole; the start if they are not.

    Flushes sync what the index files hold at that time. Entries that were in memory then, at most a block, may
    have been lost or torn since: they are compared with the log.
    """
    start = OffsetPosition(segment.base_offset, 0)
    if not (segment.offset_index.is_increasing() and segment.time_index.is_increasing()):
        return start
    # An entry that the time index has lost shows nowhere, so it is made again from the last one it has.
    newest = segment.time_index.last_at_or_before(from_offset)
    entry = segment.offset_index.lookup(min(from_offset, newest.offset))
    try:
        offsets_agree = all(
            (header := header_at(segment, position)) is not None and header.last_offset == offset
            for offset, position in segment.offset_index.latest_up_to(entry.offset)
        )
        times_agree = offsets_agree and all(
            is_true_timestamp(segment, time_entry) for time_entry in segment.time_index.latest_up_to(newest.offset)
        )
    except CorruptBatch:
        return start
    return entry if times_agree else start


def note_batches(
    segment: Segment,
    file_bytes: int,
    index_interval_bytes: int,
    epochs: list[tuple[LeaderEpoch, Offset]],
    *,
    verify: bool = True,
) -> str | None:
    """Takes valid batches into the segment until the file ends; says what stopped it before."""
    previous_offset = segment.base_offset - 1
    previous_epoch = NO_EPOCH
    chunk_bytes = _SCAN_BYTES
    while segment.size < file_bytes:
        chunk = segment.file.read_at(min(chunk_bytes, file_bytes - segment.size), segment.size)
        scan = kernel.scan_batches(chunk, verify=verify)
        for header in scan.headers:
            if header.base_offset <= previous_offset or header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
                return f"offset {header.base_offset} after {previous_offset}"
            previous_offset = header.last_offset
            if NO_EPOCH < header.leader_epoch < previous_epoch:
                return f"leader epoch {header.leader_epoch} after {previous_epoch} at offset {header.base_offset}"
            if header.leader_epoch > previous_epoch:
                previous_epoch = header.leader_epoch
                epochs.append((previous_epoch, header.base_offset))
            segment.note((mark_of(header),), index_interval_bytes)
        if scan.problem:
            return scan.problem
        if segment.size + scan.needed_bytes > file_bytes:
            return f"{file_bytes - segment.size} bytes of an incomplete batch"
        chunk_bytes = max(_SCAN_BYTES, scan.needed_bytes)
    return None
