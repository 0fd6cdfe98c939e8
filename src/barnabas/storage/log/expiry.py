"""Applies retention to a log: takes the segments out of it that its topic does not keep any longer.

`barnabas.storage.log.retention` decides which; their files are removed later (`barnabas.storage.segment.doomed`).

Each leaves only when a power loss could not take more with it:

- the name of a segment that stays is durable: else recovery might find no segment, and begin again at offset 0;
- where the log will start is durable, in the checkpoint file: some of those that left may come back without others
  between them, and a reader there would miss records. Without that, one segment may leave at a time, until the
  directory is synced: that leaves no gap.

The log starts behind those that have left, and not behind those that must wait: after a kill it begins with the first
segment that is there, and must not begin earlier than somebody has seen. For what waits, housekeeping stores the start,
syncs the directory and tries again a second later.
"""

import logging
from itertools import islice

from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFull
from barnabas.base.ids import Offset, TimestampMs
from barnabas.storage.log.log import Log
from barnabas.storage.log.retention import Expiry, due_for_deletion

logger = logging.getLogger(__name__)


def delete_due_segments(log: Log, clock: Clock, *, stored_start: Offset, count_max: int | None = None) -> int:
    """The oldest first; returns how many segments were taken out of the log.

    `stored_start` is where the log starts by the checkpoint file, 0 without one.
    """
    if log.replacement.is_announced or log.is_truncating:
        return 0
    log.write_early()
    now_ms = clock.settled_ms()
    due = _due(log, now_ms, count_max)
    if log.config.is_deleted and log.config.retention_ms >= 0:
        # A damaged index must neither delete a segment early nor keep it for ever: those that decide are asked.
        while unsure := [one for one in log.segments.first(due.count + 1) if not one.is_largest_sure]:
            for segment in unsure:
                segment.sure_largest()
            due = _due(log, now_ms, count_max)
    count = due.count
    if count == len(log.segments):
        try:
            log.roll()
        except DiskFull:
            count -= 1  # the active one stays for now; without the others there is room again
    log.expired_before = log.segments[count].base_offset
    leaving = _may_leave(log, count, stored_start)
    if leaving:
        log.delete_records_before(max(log.log_start_offset, log.segments[leaving].base_offset))
        log.remove_oldest(leaving)
        logger.info("%s: deleted segments: %d (%s)", log.partition, leaving, due.reason)
    return leaving


def _due(log: Log, now_ms: TimestampMs, count_max: int | None) -> Expiry:
    return due_for_deletion(
        islice(log.segments.facts(log.end_offset), count_max),
        log.config,
        size_bytes=log.size_bytes,
        now_ms=now_ms,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
    )


def _may_leave(log: Log, due_count: int, stored_start: Offset) -> int:
    """How many of the oldest segments may leave the log now: see the module."""
    segments, names = log.segments, log.names
    named = min(due_count, max(0, segments.slot_of(names.last_offset)))
    without_gap = min(named, 0 if names.has_unsynced_departures(segments) else 1)
    return max(without_gap, min(named, segments.slot_of(stored_start)))
