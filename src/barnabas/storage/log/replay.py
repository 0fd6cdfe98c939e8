"""Rebuilds what a log knows of its producers from the newest snapshot and the batches after it.

The same function changes the producers on an append and on replay, so that both end in the same state.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from barnabas.base.buffers import Buffer
from barnabas.base.errors import CorruptBatch, DiskFull
from barnabas.base.ids import Offset
from barnabas.records.batch import BatchHeader
from barnabas.records.control import read_batch_marker
from barnabas.storage.producers.producers import CompletedTransaction, Producers
from barnabas.storage.producers.snapshots import Snapshots
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.segments import Segments

logger = logging.getLogger(__name__)


def track_producer(producers: Producers, header: BatchHeader, batch: Buffer) -> CompletedTransaction | None:
    """Takes note of a batch at its final offsets; returns the transaction that it ended, if any."""
    if not header.has_producer:
        return None
    if not header.is_control:
        producers.update(header, header.base_offset, header.max_timestamp)
        return None
    marker = read_batch_marker(batch)
    if marker is None:
        return None
    return producers.end_transaction(
        header,
        header.base_offset,
        header.max_timestamp,
        coordinator_epoch=marker.coordinator_epoch,
        is_abort=not marker.is_commit,
    )


def rebuild_producers(
    producers: Producers,
    segments: Segments,
    snapshots: Snapshots,
    *,
    from_offset: Offset,
    on_completed: Callable[[Segment, CompletedTransaction], None] | None = None,
) -> None:
    """Brings the producers to the state at the end of the log.

    Starts at the newest snapshot at or below `from_offset`, or at the first record when there is none, and takes the
    snapshots that are missing at the segments' bases on the way.
    """
    start = load_producers(producers, snapshots, from_offset, segments[0].base_offset)
    for segment in segments.since(start):
        if segment.base_offset > start:
            with suppress(DiskFull):  # a snapshot saves time, nothing else
                snapshots.take(segment.base_offset, producers)
        replay_segment(producers, segment, start, on_completed)


def load_producers(producers: Producers, snapshots: Snapshots, from_offset: Offset, first_offset: Offset) -> Offset:
    """Takes the newest snapshot at or below `from_offset`; returns from where on the batches must be replayed."""
    producers.clear()
    snapshot = snapshots.load_at_or_below(from_offset)
    if snapshot is None:
        return first_offset
    start, states = snapshot
    producers.load(states)
    return start


def replay_segment(
    producers: Producers,
    segment: Segment,
    start: Offset,
    on_completed: Callable[[Segment, CompletedTransaction], None] | None = None,
) -> None:
    """Takes note of the batches of a segment, from offset `start` on."""
    try:
        for header, batch in _batches_with_producers(segment, start):
            completed = track_producer(producers, header, batch)
            if completed and on_completed:
                on_completed(segment, completed)
    except CorruptBatch as problem:  # below the recovery point: the log is served as it is, all the same
        logger.warning("producers are incomplete in the segment at %d: %s", segment.base_offset, problem)


def _batches_with_producers(segment: Segment, start: Offset) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Headers are enough, but for markers, which say how a transaction ended."""
    position = segment.position_of(start) if start > segment.base_offset else 0
    if position is None:
        return
    for place, header in segment.headers(position):
        if header.has_producer:
            yield header, segment.file.read_at(header.size_bytes, place) if header.is_control else b""
