"""Which leader epoch began at which offset: the history by which replicas find where their logs part.

Pure: no I/O. `LeaderEpochs` is the history of one partition, owned by its log. Entry N covers the offsets
from its start to the start of entry N + 1, and the last one covers the rest of the log. Both epochs and start
offsets strictly increase; an entry that would break this replaces the ones it contradicts, because the newest
word of a leader counts.

`checkpoints` has the file. Who writes it takes `entries`, writes them, and then says `mark_written(entries)`:
what changed meanwhile keeps the history dirty. A crash may leave a file that is older than the log (recovery
assigns again what it finds in the batches) or ahead of it (recovery cuts it at the log's end).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from barnabas.base.ids import NO_EPOCH, LeaderEpoch, Offset

NO_OFFSET: Final = -1

_EPOCH = itemgetter(0)
_START_OFFSET = itemgetter(1)


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of the first record written in it."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """The answer to "where did this epoch end?": the largest epoch not above the asked one, and its end."""

    epoch: LeaderEpoch
    end_offset: Offset


UNKNOWN_END: Final = EpochEnd(NO_EPOCH, NO_OFFSET)


class LeaderEpochs:
    """The history of one partition, beginning with what its file says. One task owns it."""

    __slots__ = ("_entries", "_written")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: tuple[EpochEntry, ...] = ()
        self._written = tuple(entries)
        for entry in self._written:
            self.assign(*entry)

    entries: tuple[EpochEntry, ...] = property(attrgetter("_entries"))  # type: ignore[assignment] # without a call

    @property
    def is_dirty(self) -> bool:
        """Whether the file says something else."""
        return self._entries != self._written

    def mark_written(self, entries: tuple[EpochEntry, ...]) -> None:
        """These entries are in the file now."""
        self._written = entries

    @property
    def earliest(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    @property
    def latest(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        return self._entries[-1].epoch if self._entries else None

    def previous(self, epoch: LeaderEpoch) -> EpochEntry | None:
        """The entry of the largest epoch below this one."""
        index = bisect_left(self._entries, epoch, key=_EPOCH)
        return self._entries[index - 1] if index else None

    def next(self, epoch: LeaderEpoch) -> EpochEntry | None:
        """The entry of the smallest epoch above this one."""
        index = bisect_right(self._entries, epoch, key=_EPOCH)
        return self._entries[index] if index < len(self._entries) else None

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch | None:
        """In which epoch the record at this offset was written; None below the first entry."""
        index = bisect_right(self._entries, offset, key=_START_OFFSET)
        return self._entries[index - 1].epoch if index else None

    def end_offset_for(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochEnd:
        """The end of an epoch, as a leader answers a follower that asks how far its own history is shared.

        An epoch between two known ones ends, like the known one below it, where the one above it starts. One
        below all known ones ends where they start; one above them is unknown.
        """
        if epoch == NO_EPOCH:
            return UNKNOWN_END
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        index = bisect_right(self._entries, epoch, key=_EPOCH)
        if index == len(self._entries):
            return UNKNOWN_END
        end_offset = self._entries[index].start_offset
        return EpochEnd(self._entries[index - 1].epoch if index else epoch, end_offset)

    def entries_in_range(self, start_offset: Offset, end_offset: Offset) -> tuple[EpochEntry, ...]:
        """The history of the records from `start_offset` to `end_offset`, exclusive."""
        part = LeaderEpochs(self._entries)
        part.truncate_from_start(start_offset)
        part.truncate_from_end(end_offset)
        return part.entries

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """A leader of this epoch writes from this offset on. Says whether that is news."""
        assert epoch >= 0
        assert start_offset >= 0
        entries = self._entries
        if entries:
            latest_epoch, latest_start_offset = entries[-1]
            if latest_epoch == epoch and latest_start_offset <= start_offset:
                return False
        kept = len(entries)
        while kept and (entries[kept - 1].epoch >= epoch or entries[kept - 1].start_offset >= start_offset):
            kept -= 1
        self._entries = (*self._entries[:kept], EpochEntry(epoch, start_offset))
        return True

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """The log now ends here: epochs that began there or later are gone. Says whether any did."""
        assert end_offset >= 0
        kept = bisect_left(self._entries, end_offset, key=_START_OFFSET)
        if kept == len(self._entries):
            return False
        self._entries = self._entries[:kept]
        return True

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """The log now starts here: so does the epoch this offset is in, and those before are gone."""
        index = bisect_right(self._entries, start_offset, key=_START_OFFSET)
        if not index:
            return False
        first = EpochEntry(self._entries[index - 1].epoch, start_offset)
        entries = (first, *self._entries[index:])
        if entries == self._entries:
            return False
        self._entries = entries
        return True

    def clear(self) -> None:
        self._entries = ()

    def restore(self, entries: tuple[EpochEntry, ...]) -> None:
        """Goes back to what `entries` was, because an append was undone."""
        self._entries = entries

    def check_invariants(self) -> None:
        for earlier, later in zip(self._entries, self._entries[1:], strict=False):
            assert earlier.epoch < later.epoch
            assert earlier.start_offset < later.start_offset
        assert all(entry.epoch >= 0 and entry.start_offset >= 0 for entry in self._entries)
