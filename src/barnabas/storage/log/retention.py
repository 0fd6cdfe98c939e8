"""Which segments may go: by age, by size, or because the log now starts later.

Pure: decisions about facts, whether or not anyone read the records. Segments go whole and oldest first; a segment stays
while it holds anything at or above the high watermark. When even the active segment is due, the log rolls a new one
first, so that offsets go on from where they were.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.base.ids import Offset, TimestampMs
from barnabas.storage.settings import LogConfig


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    end_offset: Offset
    """The base offset of the next segment, or the end of the log."""
    size_bytes: int
    largest_timestamp: TimestampMs
    """Of its records; the file's modification time when they have none."""
    is_active: bool


@dataclass(frozen=True, slots=True)
class Expiry:
    """The oldest `count` segments are due, the last of them for this reason."""

    count: int
    reason: str


def due_for_deletion(
    segments: Iterable[SegmentFacts],
    config: LogConfig,
    *,
    size_bytes: int,
    now_ms: TimestampMs,
    log_start_offset: Offset,
    high_watermark: Offset,
) -> Expiry:
    """How many of the segments, oldest first, may be deleted now; `size_bytes` is that of the log.

    Those behind the first one that stays are not asked for.
    """
    excess_bytes = size_bytes - config.retention_bytes
    by_policy = config.is_deleted
    reason = ""
    count = 0
    for segment in segments:
        if segment.end_offset > high_watermark or (segment.is_active and not segment.size_bytes):
            return Expiry(count, reason)
        if not segment.is_active and segment.end_offset <= log_start_offset:
            reason = f"the log starts at {log_start_offset}"
        elif by_policy and 0 <= config.retention_ms < now_ms - segment.largest_timestamp:
            reason = f"retention.ms={config.retention_ms}"
        elif by_policy and config.retention_bytes >= 0 and excess_bytes >= segment.size_bytes:
            reason = f"retention.bytes={config.retention_bytes}"
        else:
            return Expiry(count, reason)
        excess_bytes -= segment.size_bytes
        count += 1
    return Expiry(count, reason)
