"""The producer snapshots of one log: `OFFSET.snapshot` holds what was known of the producers before that offset.

One is taken at each roll and at a clean stop; opening a log loads the newest and replays the batches after it. They are
written without a sync (the next flush does that): a torn one fails its checksum, is removed, and an older one with a
longer replay takes its place.
"""

import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset
from barnabas.storage.producers.producer_snapshot import CorruptSnapshot, encode_snapshot, read_snapshot
from barnabas.storage.producers.producer_state import ProducerState

SNAPSHOT_SUFFIX: Final = ".snapshot"


class Snapshots:
    """Knows which snapshots are there, so that nobody lists the directory again. Owner: the log."""

    __slots__ = ("_directory", "_files", "_offsets", "_unsynced")

    def __init__(self, files: FileSystem, directory: str, offsets: Iterable[Offset] = ()) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)
        self._unsynced: list[Offset] = []

    def copy(self) -> "Snapshots":
        """For a worker, which removes and reads files; `take_over` brings back what is left of them."""
        copied = Snapshots(self._files, self._directory, self._offsets)
        copied._unsynced = list(self._unsynced)
        return copied

    def take_over(self, copied: "Snapshots") -> None:
        self._offsets = copied._offsets
        self._unsynced = copied._unsynced

    @property
    def offsets(self) -> tuple[Offset, ...]:
        return tuple(self._offsets)

    def path(self, offset: Offset) -> str:
        return os.path.join(self._directory, f"{offset:020d}{SNAPSHOT_SUFFIX}")

    def take(self, offset: Offset, states: Iterable[ProducerState]) -> None:
        """Writes the snapshot for `offset`, unless there is one already."""
        slot = bisect_left(self._offsets, offset)
        if self._offsets[slot : slot + 1] == [offset]:
            return
        content = encode_snapshot(states)
        file = self._files.open(self.path(offset), write=True, create=True)
        try:
            file.write_at([content], 0)
            file.truncate(len(content))
        finally:
            file.close()
        insort(self._offsets, offset)
        self._unsynced.append(offset)

    def load_at_or_below(self, offset: Offset) -> tuple[Offset, list[ProducerState]] | None:
        """The newest readable snapshot that covers no more than the records before `offset`.

        Those that cannot be read are removed on the way.
        """
        for candidate in reversed(self._offsets[: bisect_right(self._offsets, offset)]):
            try:
                return candidate, read_snapshot(self._files, self.path(candidate))
            except CorruptSnapshot:
                self._remove([candidate])
        return None

    @property
    def unsynced(self) -> tuple[Offset, ...]:
        """The snapshots that are not known to be durable."""
        return tuple(self._unsynced)

    def mark_synced(self, offsets: Iterable[Offset]) -> None:
        """These are durable now. One that was removed meanwhile does not matter."""
        self._unsynced = [offset for offset in self._unsynced if offset not in offsets]

    def remove_where(self, is_stale: Callable[[Offset], bool]) -> None:
        self._remove([offset for offset in self._offsets if is_stale(offset)])

    def _remove(self, offsets: list[Offset]) -> None:
        for offset in offsets:
            self._files.remove(self.path(offset))
            self._offsets.remove(offset)
            if offset in self._unsynced:
                self._unsynced.remove(offset)
