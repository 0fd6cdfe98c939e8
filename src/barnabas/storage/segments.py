"""The segments of one log, ordered by base offset, found by binary search. Owner: the log."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from barnabas.base.ids import Offset
from barnabas.storage.segment import Segment


class Segments:
    """At least one segment once the log is open; the last one is the active one."""

    __slots__ = ("_bases", "_segments")

    def __init__(self) -> None:
        self._bases: list[Offset] = []
        self._segments: list[Segment] = []

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

    def remove(self, segment: Segment) -> None:
        slot = bisect_left(self._bases, segment.base_offset)
        assert self._segments[slot] is segment
        del self._bases[slot], self._segments[slot]

    def check_invariants(self) -> None:
        assert self._bases == sorted(set(self._bases))
        assert self._bases == [segment.base_offset for segment in self._segments]
        for segment in self._segments:
            segment.check_invariants()
