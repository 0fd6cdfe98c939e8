"""What the coordinator needs of a partition of its internal topics: to append, to read back, and to be told.

`broker` implements it over replicated partitions; the coordinator knows no more of them. A partition is one leadership:
when another broker leads, or this one in a later epoch, it is another object.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Protocol, TypeAlias

from barnabas.base.buffers import Buffer
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Offset

OFFSETS_TOPIC: Final = "__consumer_offsets"

_HASH_MASK: Final = 0xFFFF_FFFF
_HASH_SIGN: Final = 0x8000_0000

FOREVER: Final = float("inf")
"""A deadline that never comes."""

WhenCommitted: TypeAlias = Callable[[BarnabasError | None], None]


class LedPartition(Protocol):
    """A partition that this broker leads, for as long as it leads it in this epoch."""

    @property
    def index(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_led(self) -> bool:
        """Whether it is still so."""
        ...

    @property
    def workers(self) -> Executor:
        """Threads for work on its batches that takes long."""
        ...

    @property
    def start_offset(self) -> Offset: ...

    @property
    def end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def batch_bytes_max(self) -> int:
        """The largest batch that `append` takes."""
        ...

    def append(self, batch: bytearray) -> Offset:
        """Stages a batch and returns the offset of its last record. An exception says that nothing is written."""
        ...

    def when_committed(self, last_offset: Offset, deadline: float, callback: WhenCommitted) -> None:
        """Has `callback` called once the record is on every in-sync replica; in the order of the offsets.

        Or with an error: REQUEST_TIMED_OUT when the time (of the steady clock, in seconds) is over and it may still
        come, NOT_LEADER_OR_FOLLOWER when nobody will know here any more, and what the disk says.
        """
        ...

    def watch(self, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the partition is not led here any more."""
        ...

    def unwatch(self, on_end: Callable[[], None]) -> None: ...

    async def read(self, offset: Offset, max_bytes: int) -> Buffer:
        """Batches from the one that holds `offset` on; the first one whole, the last one perhaps cut short."""
        ...


def partition_of(group_id: str, partition_count: int) -> int:
    """Which partition of `__consumer_offsets` a group belongs to: by the hash that Java has for its name."""
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(encoded), 2):
        value = (31 * value + (encoded[position] << 8 | encoded[position + 1])) & _HASH_MASK
    if value == _HASH_SIGN:
        return 0  # its absolute value does not fit into Java's int
    if value & _HASH_SIGN:
        value = _HASH_MASK + 1 - value
    return value % partition_count
