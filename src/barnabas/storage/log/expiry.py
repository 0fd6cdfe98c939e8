"""Applies retention to a log: takes the segments out of it that its topic does not keep any longer.

`barnabas.storage.log.retention` decides which; their files are removed later (`barnabas.storage.segment.doomed`).
"""

import logging
from itertools import islice

from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFull
from barnabas.base.ids import TimestampMs
from barnabas.storage.log.log import Log
from barnabas.storage.log.retention import Expiry, due_for_deletion

logger = logging.getLogger(__name__)


def delete_due_segments(log: Log, clock: Clock, count_max: int | None = None) -> int:
    """The oldest first; returns how many segments were taken out of the log."""
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
    if count:
        _delete_oldest(log, count, due.reason)
    return count


def _due(log: Log, now_ms: TimestampMs, count_max: int | None) -> Expiry:
    return due_for_deletion(
        islice(log.segments.facts(log.end_offset), count_max),
        log.config,
        size_bytes=log.size_bytes,
        now_ms=now_ms,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
    )


def _delete_oldest(log: Log, count: int, reason: str) -> None:
    leaving = log.segments.first(count)
    first_offset = log.segments[count].base_offset
    log.delete_records_before(max(log.log_start_offset, first_offset))
    log.doomed.doom(leaving, log.config.file_delete_delay_ms)
    log.snapshots.remove_where(lambda offset: offset < first_offset)
    logger.info("%s: deleted segments: %d (%s)", log.partition, count, reason)
