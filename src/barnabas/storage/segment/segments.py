"""The segments of one log, ordered by base offset, found by binary search, and what is read across them.

Owner: the log.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from barnabas.base.errors import CorruptBatch
from barnabas.base.ids import Offset, TimestampMs
from barnabas.storage.log.retention import SegmentFacts
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.slices import FileSlice
from barnabas.storage.segment.timestamp_lookup import TimestampLookup
from barnabas.storage.segment.transaction_index import AbortedTransaction

_SEARCHED_BYTES: Final = 1 << 20
"""More than lies between two entries of the index, and a batch of the usual largest size."""


class Segments:
    """At least one segment once the log is open; the last one is the active one."""

    __slots__ = ("_bases", "_segments", "distrusted", "has_changed")

    def __init__(self) -> None:
        self._bases: list[Offset] = []
        self._segments: list[Segment] = []
        self.distrusted: list[Segment] = []
        """Those whose indexes contradict their log, until these are rebuilt."""
        self.has_changed = False
        """Whether a segment came or went, since its owner last cleared this."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, slot: int) -> Segment:
        return self._segments[slot]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def slot_of(self, offset: Offset) -> int:
        """The slot of the segment that would hold `offset`; -1 when it lies before the first one."""
        return bisect_right(self._bases, offset) - 1

    def first(self, count: int) -> list[Segment]:
        return self._segments[:count]

    def floor(self, offset: Offset) -> Segment | None:
        slot = self.slot_of(offset)
        return self._segments[slot] if slot >= 0 else None

    def since(self, offset: Offset) -> list[Segment]:
        """The segment that would hold `offset`, and all later ones."""
        return self._segments[max(0, self.slot_of(offset)) :]

    def starting_at_or_after(self, offset: Offset) -> list[Segment]:
        return self._segments[bisect_left(self._bases, offset) :]

    def end_of(self, slot: int, log_end_offset: Offset) -> Offset:
        """Every offset in the segment lies below this: the next one's base, or the end of the log."""
        return self._bases[slot + 1] if slot + 1 < len(self._bases) else log_end_offset

    def add(self, segment: Segment) -> None:
        slot = bisect_left(self._bases, segment.base_offset)
        assert slot == len(self._bases) or self._bases[slot] != segment.base_offset, "two segments with one base offset"
        self._bases.insert(slot, segment.base_offset)
        self._segments.insert(slot, segment)
        segment.distrusted = self.distrusted
        self.has_changed = True

    def remove(self, segment: Segment) -> None:
        slot = bisect_left(self._bases, segment.base_offset)
        assert self._segments[slot] is segment
        del self._bases[slot], self._segments[slot]
        self.has_changed = True
        if segment in self.distrusted:
            self.distrusted.remove(segment)

    # -- reading -------------------------------------------------------------------------------------------------

    def read(
        self, offset: Offset, max_bytes: int, upper: Offset, end_offset: Offset, *, at_least_one: bool
    ) -> FileSlice | None:
        """The range of one segment that begins with the batch that holds `offset`: see `Log.read`."""
        slot = self.slot_of(offset)
        while offset < upper and slot < len(self._segments):
            segment = self._segments[slot]
            start = segment.position_of(offset)
            if start is not None:
                end = segment.size
                if upper < self.end_of(slot, end_offset):
                    cut = segment.position_of(upper)
                    end = segment.size if cut is None else cut
                length = min(max_bytes, end - start)
                if length < end - start and length < segment.batch_bytes_max:
                    first = segment.header_at(start).size_bytes
                    if first > end - start:
                        raise CorruptBatch(f"a batch of {first} bytes, of which {end - start} are there")
                    if length < first:
                        length = first if at_least_one else 0
                return segment.slice(start, length) if length > 0 else None
            slot += 1  # compaction has left nothing at or after the offset in this segment
        return None

    def look_for_timestamp(self, target: TimestampMs, first_offset: Offset) -> TimestampLookup | None:
        """The first batch that may have a record at or after `first_offset` whose timestamp is at least `target`.

        When it has none, the search goes on behind it.
        """
        for segment in self._segments:
            if segment.sure_largest().timestamp >= target and (
                look := segment.look_for_timestamp(target, first_offset)
            ):
                return look
        return None

    def place_of_search(self, target: TimestampMs | None, first_offset: Offset) -> FileSlice | None:
        """About where `look_for_timestamp` will read first, by the indexes alone, for a worker to bring into memory.

        Without a target, where the largest timestamp of all is looked for.
        """
        if target is None:
            target = max(segment.largest.timestamp for segment in self._segments)
        for segment in self._segments:
            if segment.largest.timestamp >= target:
                position = segment.place_of_search(target, first_offset)
                length = min(_SEARCHED_BYTES, segment.size - position)
                return segment.slice(position, length) if length > 0 else None
        return None

    @property
    def largest_timestamp(self) -> TimestampMs:
        """Negative when no record has one."""
        return max(segment.sure_largest().timestamp for segment in self._segments)

    def aborted_transactions(self, offset: Offset, upper_offset: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of this range must leave out."""
        found: list[AbortedTransaction] = []
        for segment in self.since(offset):
            collected = segment.transaction_index.collect(offset, upper_offset)
            found += collected.transactions
            if collected.is_complete:
                break
        return found

    def facts(self, end_offset: Offset) -> Iterator[SegmentFacts]:
        """What retention has to know, the oldest first."""
        for slot, segment in enumerate(self._segments):
            yield SegmentFacts(
                end_offset=self.end_of(slot, end_offset),
                size_bytes=segment.size,
                largest_timestamp=segment.largest_timestamp_or_modified_ms(),
                is_active=segment is self.active,
            )

    def check_invariants(self) -> None:
        assert self._bases == sorted(set(self._bases))
        assert self._bases == [segment.base_offset for segment in self._segments]
        for segment in self._segments:
            segment.check_invariants()
