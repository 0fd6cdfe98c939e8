"""Segments that left their log: renamed to `.deleted` at once, removed after `file.delete.delay.ms`.

Readers may still send from them. The log's owner renames; a worker thread removes. Crash: recovery removes whatever is
called `.deleted`.
"""

from collections.abc import Callable, Iterable
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.ids import SteadyMs
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.segments import Segments

DELETED_SUFFIX: Final = ".deleted"


class DoomedSegments:
    """Those of one log. Owner: the log."""

    __slots__ = ("_clock", "_doomed", "_segments")

    def __init__(self, segments: Segments, clock: Clock) -> None:
        self._segments = segments
        self._clock = clock
        self._doomed: list[tuple[SteadyMs, Segment]] = []

    def doom(self, leaving: Iterable[Segment], delay_ms: int) -> None:
        """Takes segments out of the log, in this order."""
        for segment in leaving:
            self._segments.remove(segment)
            segment.drop_handles()  # first: a disk that fails in the renaming must not leave them open
            segment.rename(DELETED_SUFFIX)
            self.add(segment, delay_ms)

    def add(self, segment: Segment, delay_ms: int) -> None:
        """One that has left the log already, and is renamed."""
        self._doomed.append((self._clock.steady_ms() + delay_ms, segment))

    def take(self, now_ms: SteadyMs) -> list[Callable[[], None]]:
        """The removals that are due, each for a worker thread to call."""
        if not self._doomed:
            return []
        due = [segment for due_ms, segment in self._doomed if due_ms <= now_ms]
        self._doomed = [(due_ms, segment) for due_ms, segment in self._doomed if due_ms > now_ms]
        return [segment.remove_files for segment in due]
