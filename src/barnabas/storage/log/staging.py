"""What goes into a log and comes out of it: the small results of `Log`, and the appends that wait for their write."""

from typing import NamedTuple

from barnabas.base.buffers import Buffer
from barnabas.base.ids import NO_EPOCH, LeaderEpoch, Offset, TimestampMs
from barnabas.storage.log.epochs import EpochEntry
from barnabas.storage.producers.producers import CompletedTransaction, Savepoint
from barnabas.storage.segment.segment import BatchMark, Room
from barnabas.storage.segment.slices import FileSlice


class Appended(NamedTuple):
    """Where an append went. Final once `Log.write` has returned."""

    base_offset: Offset
    last_offset: Offset
    append_time_ms: TimestampMs
    """Set when the topic uses log-append time, else `NO_TIMESTAMP`."""
    is_duplicate: bool = False


class LogRead(NamedTuple):
    """What a read found: a range of a file, or nothing yet. The caller releases the slice."""

    slice: FileSlice | None

    @property
    def length(self) -> int:
        return self.slice.length if self.slice else 0


class Staged:
    """What `append` has accepted and `write` has not yet written, with what undoes it."""

    __slots__ = (
        *("aborted", "base_offset", "buffers", "epochs", "leader_epoch"),
        *("marks", "messages", "room", "savepoint", "size_bytes"),
    )

    def __init__(self, base_offset: Offset, room: Room, savepoint: Savepoint, epochs: tuple[EpochEntry, ...]) -> None:
        self.base_offset = base_offset
        self.room = room
        """What the segment takes of it."""
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        """Of the last batch."""
        self.buffers: list[Buffer] = []
        self.marks: list[BatchMark] = []
        self.aborted: list[CompletedTransaction] = []
        self.size_bytes = 0
        self.messages = 0
        self.savepoint = savepoint
        self.epochs = epochs
