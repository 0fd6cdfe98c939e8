"""Which log to compact, how far, and which of its segments become one: decisions about facts.

```
 log start          first dirty                 first uncleanable        active segment
     |  compacted before  |  dirty: compacted next     |  not yet             |
-----+--------------------+----------------------------+----------------------+--->  offsets
```

A pass remembers the newest offset of every key in the dirty part and then rewrites everything from the first segment
to the end of what it remembered. Compaction stays below the first uncleanable offset, which is the first segment that

- is the active one, or
- holds an offset that may still be undone: at or above the high watermark, the last stable offset (an open
  transaction may be aborted), or the recovery point (a power cut may take a record, so it must not have cost an older
  one its life), or
- is younger than `min.compaction.lag.ms`.

It is always a segment's base, so a segment is compacted whole or not at all. A log is due when the dirty part of what
could be compacted is larger than `min.cleanable.dirty.ratio`, or when something dirty is older than
`max.compaction.lag.ms`.

Pure: no I/O, no clock. What the segments' properties have to read is their business, and asked for only when needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from barnabas.base.ids import Offset, TimestampMs
from barnabas.base.settings import LONG_MAX
from barnabas.storage.segment.index import RELATIVE_OFFSET_MAX
from barnabas.storage.settings import LogConfig

NEVER_MS: Final = LONG_MAX
_GROUP_LENGTH_MAX: Final = 50
"""Segments that become one at a time: their owner renames the files of each when they are replaced."""


class CompactableSegment(Protocol):
    """What these decisions need to know of a segment."""

    base_offset: Offset
    size: int

    @property
    def first_timestamp(self) -> TimestampMs: ...

    def largest_timestamp_or_modified_ms(self) -> TimestampMs: ...


@dataclass(frozen=True, slots=True)
class Cleanable:
    """How far a log could be compacted now, and how much there is to gain."""

    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Something dirty is older than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, dirty_ratio_min: float) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > dirty_ratio_min)


def first_dirty_offset(checkpoint: Offset | None, log_start_offset: Offset, end_offset: Offset) -> Offset:
    """Where compaction goes on. A checkpoint that is not within the log says nothing about it."""
    if checkpoint is None or not log_start_offset <= checkpoint <= end_offset:
        return log_start_offset
    return checkpoint


def find_cleanable(
    segments: Sequence[CompactableSegment],
    config: LogConfig,
    *,
    first_dirty: Offset,
    stable_offset: Offset,
    now_ms: TimestampMs,
) -> Cleanable:
    """`segments` are all of the log's, the active one last; nothing at or above `stable_offset` is final."""
    bases = [segment.base_offset for segment in segments]
    dirty_slot = max(0, sum(base <= first_dirty for base in bases) - 1)
    limit_slot = min(len(segments) - 1, max(0, sum(base <= stable_offset for base in bases) - 1))
    if config.min_compaction_lag_ms > 0:
        limit_slot = _first_young(segments, dirty_slot, limit_slot, now_ms - config.min_compaction_lag_ms)
    dirty = segments[dirty_slot:limit_slot]
    return Cleanable(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=max(first_dirty, bases[limit_slot]),
        clean_bytes=sum(segment.size for segment in segments[:dirty_slot]),
        dirty_bytes=sum(segment.size for segment in dirty),
        is_overdue=any(_is_overdue(segment, config, now_ms) for segment in dirty),
    )


def _first_young(
    segments: Sequence[CompactableSegment], dirty_slot: int, limit_slot: int, young_after_ms: TimestampMs
) -> int:
    for slot in range(dirty_slot, limit_slot):
        if segments[slot].largest_timestamp_or_modified_ms() > young_after_ms:
            return slot
    return limit_slot


def _is_overdue(segment: CompactableSegment, config: LogConfig, now_ms: TimestampMs) -> bool:
    if config.max_compaction_lag_ms >= NEVER_MS or not segment.size:
        return False
    return 0 < segment.first_timestamp < now_ms - config.max_compaction_lag_ms


def is_roll_due(active: CompactableSegment, config: LogConfig, now_ms: TimestampMs) -> bool:
    """Whether the active segment keeps a record from compaction for longer than `max.compaction.lag.ms`.

    Appends roll it in time; this is for a log that gets none.
    """
    return config.is_compacted and _is_overdue(active, config, now_ms)


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """The room that a segment takes."""

    base_offset: Offset
    end_offset: Offset
    size_bytes: int
    index_bytes: int
    """Of the larger one of its two indexes."""


def group_segments(extents: Sequence[SegmentExtent], segment_bytes_max: int, index_bytes_max: int) -> list[range]:
    """Neighbours that fit into one segment, judged by what they have now. Every slot is in one group."""
    groups: list[range] = []
    start = 0
    size_bytes = index_bytes = 0
    for slot, extent in enumerate(extents):
        size_bytes += extent.size_bytes
        index_bytes += extent.index_bytes
        is_too_much = (
            slot - start >= _GROUP_LENGTH_MAX
            or size_bytes > segment_bytes_max
            or index_bytes > index_bytes_max
            or extent.end_offset - 1 - extents[start].base_offset > RELATIVE_OFFSET_MAX
        )
        if slot > start and is_too_much:
            groups.append(range(start, slot))
            start = slot
            size_bytes, index_bytes = extent.size_bytes, extent.index_bytes
    if extents:
        groups.append(range(start, len(extents)))
    return groups
