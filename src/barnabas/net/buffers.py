"""Memory that bytes are received into: blocks shared by all connections, and bodies for frames that come in parts.

A loop reads one socket at a time, so every connection receives into the tail of the same block, and a connection that
waits for a request holds no memory at all. What was received is handed on as views of the block; the block's next
bytes go behind them. Only a frame that has not come whole gets a buffer of its own.

A buffer is used again when nobody can see it any more. That is not left to a promise: every view, and every C function
that works on one, keeps a reference to the buffer, so the reference count tells. A view that is kept by mistake
costs memory, never somebody's bytes. `RECYCLED_BYTES_MAX` bounds what is kept for reuse.

Large bodies are anonymous maps: a peer that announces 100 MB and sends ten bytes costs one page.
"""

import mmap
from collections import deque
from collections.abc import Callable
from sys import getrefcount
from typing import Final, Generic, TypeVar

BLOCK_BYTES: Final = 64 << 10
_TAIL_BYTES_MIN: Final = 4 << 10
_BLOCKS_KEPT: Final = 16

_SMALL_BODY_BYTES_MAX: Final = 16 << 10
# Size of a body and how many are kept of it: requests of clients are mostly up to 1 MB.
_BODIES_KEPT: Final = ((64 << 10, 16), (256 << 10, 16), (1 << 20, 4))

RECYCLED_BYTES_MAX: Final = BLOCK_BYTES * _BLOCKS_KEPT + sum(size * count for size, count in _BODIES_KEPT)

_PROBES_MAX: Final = 4

_Kept = TypeVar("_Kept", bytearray, mmap.mmap)


def _references_to_first(kept: "deque[_Kept]") -> int:
    return getrefcount(kept[0])


# One more would be somebody's view. Counted by the very code that asks, because what counts differs between Pythons:
# since 3.14 a variable that is only read adds nothing.
_REFERENCES_WITHOUT_VIEWS: Final = _references_to_first(deque([bytearray(1)]))


class _Recycled(Generic[_Kept]):
    """Buffers of one size, in the order in which they were last given out."""

    __slots__ = ("_kept", "_make")

    def __init__(self, make: Callable[[], _Kept], kept_max: int) -> None:
        self._make: Callable[[], _Kept] = make
        self._kept: deque[_Kept] = deque(maxlen=kept_max)

    def take(self) -> _Kept:
        kept = self._kept
        for _ in range(min(len(kept), _PROBES_MAX)):
            is_unseen = _references_to_first(kept) == _REFERENCES_WITHOUT_VIEWS
            kept.rotate(-1)
            if is_unseen:
                return kept[-1]
        buffer = self._make()
        kept.append(buffer)  # a full deque forgets its oldest, which then lives as long as its views
        return buffer

    @property
    def kept(self) -> int:
        return len(self._kept)


class ReceiveBuffers:
    """Belongs to one event loop. `tail` is what the next `recv` may fill; `take` cuts off what it filled."""

    __slots__ = ("_blocks", "_bodies", "tail")

    def __init__(self) -> None:
        self._blocks = _Recycled(lambda: bytearray(BLOCK_BYTES), _BLOCKS_KEPT)
        self._bodies = [(size, _Recycled(_map_of(size), kept)) for size, kept in _BODIES_KEPT]
        self.tail = memoryview(self._blocks.take())

    def take(self, count: int) -> memoryview:
        tail = self.tail
        data = tail[:count]
        self.tail = tail[count:] if len(tail) - count >= _TAIL_BYTES_MIN else memoryview(self._blocks.take())
        return data

    def body(self, length: int) -> memoryview:
        """Room for the `length` bytes of a frame that comes in parts."""
        if length <= _SMALL_BODY_BYTES_MAX:
            return memoryview(bytearray(length))
        for size, recycled in self._bodies:
            if length <= size:
                return memoryview(recycled.take())[:length]
        return memoryview(mmap.mmap(-1, length))

    @property
    def kept_bytes(self) -> int:
        return self._blocks.kept * BLOCK_BYTES + sum(size * recycled.kept for size, recycled in self._bodies)


def _map_of(size: int) -> Callable[[], mmap.mmap]:
    return lambda: mmap.mmap(-1, size)
