"""Cutting a log: a follower drops what its leader never had, or everything when it restarts at another offset.

```
 owner                                     worker                                         owner
 the log ends at the cut, in memory  ──>   new segments of compaction are taken back ──>  producers and snapshots are
 slices beyond it are revoked              segments beyond the cut renamed `.deleted`,    the rebuilt ones; segments
 appends are refused                         the newest first; each rename synced         are removed after a delay;
                                           the last segment cut and synced                appends are taken again
                                           the producers rebuilt from the batches
```

Reads below the cut go on all the time. The recovery point that the log has after the first step must be durable before
the second begins (`LogManager.truncation` does that): recovery would believe bytes that are written twice.

Owner: the log's owner makes and finishes it. The worker has descriptors and segments of its own, and touches no log.
What it changes by name it changes under a lock; `revoke` takes that away, because a partition of the same name may be
created again once this one is deleted.
Crash: at any call the directory holds a prefix of the log that reaches at least to the cut, or, of one that restarts,
any prefix.
Failure: the log is half changed and must be reopened.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NamedTuple

from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset
from barnabas.storage.checkpoints import write_leader_epochs
from barnabas.storage.log.epochs import EpochEntry
from barnabas.storage.log.replay import load_producers, replay_segment
from barnabas.storage.producers.producers import Producers
from barnabas.storage.producers.snapshots import Snapshots
from barnabas.storage.segment.doomed import DELETED_SUFFIX
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.index import CorruptIndex
from barnabas.storage.segment.replacement import SWAP_SUFFIX
from barnabas.storage.segment.segment import Segment, remove_segment_files
from barnabas.storage.segment.segment_cut import SegmentCut
from barnabas.storage.segment.segments import Segments

_HANDLES: Final = 4


class _Revoked(Exception):  # noqa: N818 - not an error
    """Unwinds the worker."""


class KeptSegment(NamedTuple):
    base_offset: Offset
    size_bytes: int


@dataclass(slots=True)
class Truncation:
    """Made by `Log.plan_truncation` or `Log.plan_restart`, run once anywhere, given to `Log.finish_truncation`."""

    files: FileSystem
    directory: str
    epochs_path: str
    end_offset: Offset
    """Where the log ends when this has finished."""
    dropped: Sequence[Offset]
    """The base offsets of segments beyond the cut, the newest first."""
    swapped: Sequence[Offset]
    """The base offsets of compacted segments that were about to take the place of others."""
    cut: SegmentCut | None
    kept: Sequence[KeptSegment]
    epochs: tuple[EpochEntry, ...]
    snapshots: Snapshots
    """The worker's own; those that are left when it has run."""
    index_bytes_max: int
    preallocated_bytes: int
    """Of the new segment of a restart."""
    is_restart: bool = False
    """Nothing is kept, and the log starts where it ends."""
    doomed: list[Segment] = field(default_factory=list)
    """The dropped segments, once they are renamed."""
    producers: Producers = field(default_factory=Producers)
    """As they are at the cut, once it has run."""
    has_stored_epochs: bool = False
    is_revoked: bool = False
    _lock: Lock = field(default_factory=Lock)

    def revoke(self) -> None:
        """For the owner, at any time: nothing is changed by name any more. Waits for a change that has begun."""
        with self._lock:
            self.is_revoked = True

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._lock:
            if self.is_revoked:
                raise _Revoked
            yield

    def run(self) -> None:
        """For a worker thread."""
        try:
            self._drop()
            self._cut()
            self._rebuild()
        except _Revoked:
            pass
        except DiskFailed:
            if not self.is_revoked:  # else the files have gone elsewhere
                raise

    def _drop(self) -> None:
        for base_offset in self.swapped:
            with self._change():
                remove_segment_files(self.files, self.directory, base_offset, SWAP_SUFFIX)
        if self.swapped:
            self.files.sync_directory(self.directory)
        for base_offset in self.dropped:
            segment = self._segment(base_offset, Handles(_HANDLES))
            with self._change():
                segment.rename(DELETED_SUFFIX)
            self.doomed.append(segment)
            # A crash must neither leave a hole, which a compacted log may have, nor bring segments back: new records
            # might reach just to the first of them.
            self.files.sync_directory(self.directory)

    def _cut(self) -> None:
        if self.cut is not None:
            with self._change():
                log = self.cut.run(self.files)
            with closing(log):
                log.sync()
        if self.is_restart:
            with self._change():
                self._segment(self.end_offset, Handles(_HANDLES)).create(self.preallocated_bytes)
            self.files.sync_directory(self.directory)
        with self._change():
            self.snapshots.remove_where(lambda taken: self.is_restart or taken > self.end_offset)
        with suppress(DiskFull), self._change():  # the next flush does it; recovery believes the batches
            write_leader_epochs(self.files, self.epochs_path, self.epochs)
            self.has_stored_epochs = True

    def _rebuild(self) -> None:
        if self.is_restart:
            return
        with self._change():
            start = load_producers(self.producers, self.snapshots, self.end_offset, self.kept[0].base_offset)
        handles = Handles(_HANDLES)
        segments = Segments()
        for base_offset, size_bytes in self.kept:
            segment = self._segment(base_offset, handles)
            segment.size = size_bytes
            segments.add(segment)
        for segment in segments.since(start):
            try:
                if segment.base_offset < start:
                    with suppress(CorruptIndex):  # then the search takes longer
                        segment.offset_index.load()
                replay_segment(self.producers, segment, start)
            finally:
                segment.drop_handles()

    def _segment(self, base_offset: Offset, handles: Handles) -> Segment:
        return Segment(
            self.files, handles, self.directory, base_offset, index_bytes_max=self.index_bytes_max, created_ms=0
        )
