"""Compacted segments that take the place of the ones they were made of.

```
.cleaned  complete and synced          removed by recovery
.swap     announced                    completed by recovery, once every new segment has this name
(none)    in the log                   the old ones are `.deleted`
```

`announce` renames; the directory must be synced then, by a worker; `complete` does the rest. A crash at any moment
leaves one set or the other; old segments that a power loss brings back beside a new one are removed by recovery,
because it holds their offsets. So that the two never mean different records, retention waits meanwhile, and a
truncation takes the new ones back.
"""

from collections.abc import Sequence
from typing import Final

from barnabas.base.ids import Offset
from barnabas.storage.log.flush import Flushing
from barnabas.storage.producers.snapshots import Snapshots
from barnabas.storage.segment.doomed import DoomedSegments
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.segments import Segments

SWAP_SUFFIX: Final = ".swap"
CLEANED_SUFFIX: Final = ".cleaned"


class Replacement:
    """The one that is under way in a log, if any. Owner: the log."""

    __slots__ = ("_doomed", "_flushing", "_handles", "_new", "_segments", "_snapshots")

    def __init__(
        self, segments: Segments, snapshots: Snapshots, handles: Handles, doomed: DoomedSegments, flushing: Flushing
    ) -> None:
        self._segments = segments
        self._snapshots = snapshots
        self._handles = handles
        self._doomed = doomed
        self._flushing = flushing
        self._new: tuple[Segment, ...] = ()

    @property
    def is_announced(self) -> bool:
        return bool(self._new)

    def announce(self, new: Sequence[Segment]) -> None:
        """Begins with segments that are complete and synced under `.cleaned`."""
        assert not self._new
        self._new = tuple(new)
        for segment in reversed(new):
            segment.rename(SWAP_SUFFIX)

    def complete(self, old: Sequence[Segment], delete_delay_ms: int) -> None:
        """The new segments are announced, durably: they take the place of the old ones."""
        new, self._new = self._new, ()
        self._doomed.doom(old, delete_delay_ms)
        for segment in new:
            segment.attach(self._handles)
            segment.rename("")
            self._segments.add(segment)
        self._flushing.has_new_names = True
        first, last = old[0].base_offset, old[-1].base_offset
        kept = {segment.base_offset for segment in new}
        self._snapshots.remove_where(lambda taken: first < taken <= last and taken not in kept)

    def forget(self) -> list[Offset]:
        """Nothing comes of what was announced; returns the base offsets of the files that its owner must remove."""
        new, self._new = self._new, ()
        return [segment.base_offset for segment in new]
