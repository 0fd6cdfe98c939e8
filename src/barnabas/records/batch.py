"""The header of a record batch (magic 2), read and patched in place.

```
position  bytes  field
       0      8  base offset             patched by the log on append
       8      4  batch length            bytes after this field
      12      4  partition leader epoch  patched by the log on append
      16      1  magic                   2
      17      4  CRC-32C                 of everything from the attributes on
      21      2  attributes              0-2 codec, 3 log-append time, 4 transactional, 5 control, 6 delete horizon
      23      4  last offset delta
      27      8  base timestamp          or the delete horizon, when attribute bit 6 is set
      35      8  max timestamp
      43      8  producer id
      51      2  producer epoch
      53      4  base sequence
      57      4  record count
      61         records, compressed as one block when a codec is set
```

Because base offset and leader epoch lie before the CRC, the log assigns both without touching the checksum.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from barnabas.base.buffers import Buffer
from barnabas.base.errors import CorruptBatch
from barnabas.base.ids import NO_PRODUCER, NO_SEQUENCE
from barnabas.base.named_tuples import new_tuple

MAGIC = 2
HEADER_BYTES = 61
PREFIX_BYTES = 12
"""Base offset and batch length: what must be read to know where the next batch begins."""
CRC_START = 21
"""The checksum covers the batch from here to its end."""
SEQUENCE_MAX = 2**31 - 1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_HEADER = Struct(">qiibIhiqqqhii")
_ASSIGNED = Struct(">qii")


class Codec(IntEnum):
    """Compression codecs by their number in the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """The thirteen fields of a batch header. A plain tuple, because millions are made."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides a method of tuple that nobody needs here

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, prefix included."""
        return self.length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return advance_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec_number(self) -> int:
        """The codec's number, which on hostile input need not be one of `Codec`."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones of this batch may go; compaction stores it in place of the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    def pack(self) -> bytes:
        return _HEADER.pack(*self)


def advance_sequence(sequence: int, increment: int) -> int:
    """Sequence numbers wrap from 2^31 - 1 to 0."""
    return (sequence + increment) & SEQUENCE_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Only the fixed part must be there; nothing is checked."""
    return BatchHeader._make(_HEADER.unpack_from(buffer, position))


def check_header(header: BatchHeader, available_bytes: int) -> None:
    """Refuses a header that cannot be one, given how many bytes there are from its start."""
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic}, not {MAGIC}")
    if header.length < HEADER_BYTES - PREFIX_BYTES:
        raise CorruptBatch(f"batch length {header.length} is less than a header")
    if header.size_bytes > available_bytes:
        raise CorruptBatch(f"batch of {header.size_bytes} bytes, but only {available_bytes} are there")


def split_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a buffer that holds whole batches and nothing else, as (header, view of the batch)."""
    view = memoryview(buffer)
    position, end = 0, len(view)
    while position < end:
        if end - position < HEADER_BYTES:
            raise CorruptBatch(f"{end - position} bytes are left over, less than a header")
        header = read_header(view, position)
        check_header(header, end - position)
        yield header, view[position : position + header.size_bytes]
        position += header.size_bytes


def assign(header: BatchHeader, batch: memoryview, base_offset: int, leader_epoch: int) -> BatchHeader:
    """Patches what the log assigns into a batch, in place; the checksum stays valid. Returns the new header."""
    length = header.length
    _ASSIGNED.pack_into(batch, 0, base_offset, length, leader_epoch)
    return new_tuple(BatchHeader, (base_offset, length, leader_epoch, *header[3:]))
