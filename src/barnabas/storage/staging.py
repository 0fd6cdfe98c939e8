"""What goes into a log and comes out of it: the small results of `Log`, and the appends that wait for their write."""

from typing import NamedTuple

from barnabas.base.filesystem import Buffer
from barnabas.base.ids import Offset, TimestampMs
from barnabas.records.batch import BatchHeader
from barnabas.storage.epochs import EpochEntry
from barnabas.storage.producers import CompletedTransaction, Savepoint
from barnabas.storage.slices import FileSlice


class Appended(NamedTuple):
    """Where an append went. Final once `Log.write` has returned."""

    base_offset: Offset
    last_offset: Offset
    append_time_ms: TimestampMs
    """Set when the topic uses log-append time, else `NO_TIMESTAMP`."""
    is_duplicate: bool = False


class LogRead(NamedTuple):
    """What a read found: a range of a file, or nothing yet. Whoever asked releases the slice."""

    slice: FileSlice | None

    @property
    def length(self) -> int:
        return self.slice.length if self.slice else 0


class Staged:
    """What `append` has accepted and `write` has not yet written, with what undoes it."""

    __slots__ = ("aborted", "buffers", "epochs", "headers", "messages", "savepoint", "size_bytes")

    def __init__(self, savepoint: Savepoint, epochs: tuple[EpochEntry, ...]) -> None:
        self.buffers: list[Buffer] = []
        self.headers: list[BatchHeader] = []
        self.aborted: list[CompletedTransaction] = []
        self.size_bytes = 0
        self.messages = 0
        self.savepoint = savepoint
        self.epochs = epochs
