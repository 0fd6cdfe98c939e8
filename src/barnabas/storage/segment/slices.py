"""The result of a read: a range of a segment's file, which stays valid whatever happens to the segment."""

from typing import Final

from barnabas.base.filesystem import File
from barnabas.base.ids import Position
from barnabas.storage.segment.handles import SharedFile

_LOAD_BYTES: Final = 1024 * 1024


class FileSlice:
    """A range of a segment's file that somebody reads or sends, until `release`.

    The file stays open and readable whatever happens to the segment, with one exception: a truncation below the
    slice's end revokes it, because other bytes may be written there. A sender checks `is_revoked` before each
    piece and drops the connection when it is set.
    """

    __slots__ = ("_shared", "_taken", "is_revoked", "length", "position")

    def __init__(self, taken: "list[FileSlice]", shared: SharedFile, position: Position, length: int) -> None:
        """`taken` are the slices of the segment that are in use; this one is among them until its release."""
        self._taken = taken
        self._shared = shared.retain()
        self.position = position
        self.length = length
        self.is_revoked = False
        taken.append(self)

    @property
    def file(self) -> File:
        return self._shared.file

    def read(self) -> bytes:
        return self.file.read_at(self.length, self.position)

    def is_resident(self) -> bool:
        """Whether the page cache holds the slice, as far as its first and last page tell."""
        return self.file.is_resident(self.position, self.length)

    def read_resident(self) -> bytes | bytearray | None:
        """The bytes, if they can be had without waiting for the disk."""
        return self.file.read_resident(self.length, self.position)

    def load(self, ahead_bytes: int = 0) -> None:
        """Brings the slice, and what follows it, into the page cache. Blocks: for a worker thread."""
        self.file.prefetch(self.position, self.length + ahead_bytes)
        for position in range(self.position, self.position + self.length, _LOAD_BYTES):
            self.file.read_at(min(_LOAD_BYTES, self.position + self.length - position), position)

    def release(self) -> None:
        self._taken.remove(self)
        self._shared.release()
