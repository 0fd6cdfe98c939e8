"""What a request is answered with, and the slot that keeps its place in line.

Requests of a connection may be answered in any order; the replies leave in the order of the requests. A slot is
completed exactly once: with a reply, or with None where the protocol has none (a produce request with acks=0).
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from barnabas.base.buffers import BUFFER_TYPES, Buffer
from barnabas.base.errors import BarnabasError


class SendableFile(Protocol):
    path: str

    def fileno(self) -> int: ...

    def read_at(self, length: int, position: int) -> bytes: ...


class SendableRange(Protocol):
    """Bytes of a file that are sent without passing through this process. `release` is called exactly once.

    When `is_revoked` is set, the bytes at this place may become others: what is not sent by then must not be.
    """

    position: int
    length: int
    is_revoked: bool

    @property
    def file(self) -> SendableFile: ...

    def is_resident(self) -> bool:
        """Whether sending would not wait for the disk, as far as a cheap look tells."""
        ...

    def read_resident(self) -> Buffer | None:
        """The bytes, if all of them can be had without waiting for the disk."""
        ...

    def load(self, ahead_bytes: int = 0) -> None:
        """Brings the range, and some of what follows, into memory. Blocks: for a worker thread."""
        ...

    def release(self) -> None: ...


ReplyPiece: TypeAlias = Buffer | SendableRange
Reply: TypeAlias = Buffer | Sequence[ReplyPiece]
"""One frame with its length before it, as `barnabas.wire.framing` makes it. The buffers must not change afterwards."""


def release_ranges(reply: Reply | None) -> None:
    """Gives back what a reply holds that nobody will send."""
    if reply is None or isinstance(reply, BUFFER_TYPES):
        return
    for piece in reply:
        if not isinstance(piece, BUFFER_TYPES):
            piece.release()


class SlotOwner(Protocol):
    """The connection, as its slots see it."""

    @property
    def is_closed(self) -> bool: ...

    def slot_completed(self, slot: "ReplySlot") -> None: ...

    def request_failed(self, error: BarnabasError) -> None: ...


class ReplySlot:
    """One request's place in the line of replies. `frame_bytes` is what the request weighs until it is answered."""

    __slots__ = ("_owner", "frame_bytes", "is_completed", "reply")

    def __init__(self, owner: SlotOwner, frame_bytes: int) -> None:
        self._owner = owner
        self.frame_bytes = frame_bytes
        self.is_completed = False
        self.reply: Reply | None = None

    @property
    def is_abandoned(self) -> bool:
        """Nobody waits for the answer any more."""
        return self._owner.is_closed

    def complete(self, reply: Reply | None) -> None:
        """Answers the request; after the connection's end this only gives back the reply's ranges."""
        assert not self.is_completed, "a request is answered once"
        self.is_completed = True
        self.reply = reply
        self._owner.slot_completed(self)

    def fail(self, error: BarnabasError) -> None:
        """There is no answer to this request but a closed connection."""
        assert not self.is_completed, "a request is answered once"
        self.is_completed = True
        self._owner.request_failed(error)
