"""Builds one record batch, record by record.

```
bytes     field of a record
varint    length             of what follows
1         attributes         0, none are defined
varlong   timestamp delta    from the batch's base timestamp
varint    offset delta       from the batch's base offset
varint    key length, key    -1: null
varint    value length, value
varint    header count, then per header: key length, key (UTF-8), value length (-1: null), value
```

All varints are zigzag coded. This is the plain way, for control records, tools and tests; whatever moves many
records uses `barnabas.records.kernel`.
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.base.buffers import Buffer
from barnabas.base.ids import NO_EPOCH, NO_PRODUCER, NO_SEQUENCE, NO_TIMESTAMP
from barnabas.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
)
from barnabas.records.checksum import compute_crc
from barnabas.records.compression import compress

NO_PRODUCER_EPOCH = -1


class Header(NamedTuple):
    """A record's header. A key that is not UTF-8 keeps its bytes as lone surrogates ("surrogateescape")."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp: int
    offset: int


class BatchBuilder:
    """Collects records and turns them into the bytes of a batch, with header and checksum.

    With `append_time_ms` the batch has log-append time. With `delete_horizon_ms` the field of the base
    timestamp holds the horizon and the deltas count from it, as Kafka's cleaner writes it.
    """

    def __init__(
        self,
        *,
        codec: Codec = Codec.NONE,
        compression_level: int | None = None,
        base_offset: int = 0,
        leader_epoch: int = NO_EPOCH,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
    ) -> None:
        self._codec = codec
        self._compression_level = compression_level
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._append_time_ms = append_time_ms
        self._attributes = (
            int(codec)
            | (LOG_APPEND_TIME if append_time_ms is not None else 0)
            | (TRANSACTIONAL if is_transactional else 0)
            | (CONTROL if is_control else 0)
            | (DELETE_HORIZON if delete_horizon_ms is not None else 0)
        )
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._next_offset = base_offset
        self._count = 0
        self._records = bytearray()

    @property
    def count(self) -> int:
        return self._count

    @property
    def size_bytes(self) -> int:
        """What the batch would have without compression: exact for `Codec.NONE`, an estimate otherwise."""
        return HEADER_BYTES + len(self._records)

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
        offset: int | None = None,
    ) -> int:
        """Adds a record and returns its offset: the next one, or a later one that the caller names."""
        if offset is None:
            offset = self._next_offset
        assert offset >= self._next_offset, f"offset {offset} after {self._next_offset - 1}"
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        body = bytearray(b"\x00")
        body += encode_varint(timestamp - self._base_timestamp)
        body += encode_varint(offset - self._base_offset)
        _append_bytes(body, key)
        _append_bytes(body, value)
        encoded_headers = [(name.encode("utf-8", "surrogateescape"), content) for name, content in headers]
        body += encode_varint(len(encoded_headers))
        for name, content in encoded_headers:
            _append_bytes(body, name)
            _append_bytes(body, content)
        self._records += encode_varint(len(body))
        self._records += body
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._next_offset = offset + 1
        self._count += 1
        return offset

    def build(self, last_offset: int | None = None, max_timestamp: int | None = None) -> bytearray:
        """The batch; with what compaction keeps of the original one: its last offset and largest timestamp.

        Without records it is a bare header, of no codec, because Kafka cannot decompress nothing.
        """
        if last_offset is None:
            last_offset = self._next_offset - 1
        assert last_offset >= max(self._next_offset - 1, self._base_offset), "a batch covers an offset"
        if max_timestamp is None:
            max_timestamp = self._max_timestamp if self._append_time_ms is None else self._append_time_ms
        records = compress(self._codec, self._records, self._compression_level) if self._count else b""
        batch = bytearray(self._header(last_offset, max_timestamp, len(records)).pack())
        batch += records
        batch[CRC_START - 4 : CRC_START] = compute_crc(batch).to_bytes(4, "big")
        return batch

    def _header(self, last_offset: int, max_timestamp: int, records_bytes: int) -> BatchHeader:
        return BatchHeader(
            base_offset=self._base_offset,
            length=HEADER_BYTES - PREFIX_BYTES + records_bytes,
            leader_epoch=self._leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=self._attributes if self._count else self._attributes & ~CODEC_MASK,
            last_offset_delta=last_offset - self._base_offset,
            base_timestamp=NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._base_sequence,
            count=self._count,
        )


def encode_varint(number: int) -> bytes:
    """A signed number of up to 64 bits, zigzag coded (the 32-bit form of a small number is the same)."""
    remaining = number << 1 if number >= 0 else (~number << 1) | 1
    assert remaining < 1 << 64, f"{number} has more than 64 bits"
    encoded = bytearray()
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


def _append_bytes(body: bytearray, content: Buffer | None) -> None:
    if content is None:
        body += encode_varint(-1)
    else:
        body += encode_varint(len(content))
        body += content
