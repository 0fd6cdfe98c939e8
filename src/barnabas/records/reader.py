"""Reads the records of one batch as Python objects; the format of a record is in `barnabas.records.builder`.

Compressed records are decompressed in chunks while they are read, so at any moment there is one chunk and one
record in memory, and a record larger than `record_bytes_max` is refused before it is gathered.

What Apache Kafka's reader accepts is accepted (any negative length is a null, a header's key need not be
UTF-8, a number may have more varint bytes than it needs, timestamps wrap at 64 bits), and what it refuses is
refused: `InvalidRecords` when the records are not what the header says, `CorruptBatch` when the header or the
compressed data is broken. The checksum is the caller's (`compute_crc`). Whether offset deltas are in order is
checked by `kernel.walk_records`.
"""

from collections.abc import Iterator
from typing import Final

from barnabas.base.buffers import Buffer
from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.records.batch import HEADER_BYTES, BatchHeader, check_header, read_header
from barnabas.records.builder import Header, Record
from barnabas.records.compression import EXPANDED_BYTES_MAX, decompress_chunks

_VARINT_BITS: Final = 32
_VARLONG_BITS: Final = 64


def read_records(batch: Buffer, record_bytes_max: int = EXPANDED_BYTES_MAX) -> Iterator[Record]:
    """Every record of a batch, in order. Only an iteration that ends proves that the batch is well formed."""
    view = memoryview(batch)
    if len(view) < HEADER_BYTES:
        raise CorruptBatch(f"{len(view)} bytes are less than a batch header")
    header = read_header(view)
    check_header(header, len(view))
    if header.count < 0:
        raise InvalidRecords(f"a batch of {header.count} records")
    if header.count == 0:
        return iter(())
    return _read_all(header, view[HEADER_BYTES : header.size_bytes], record_bytes_max)


def _read_all(header: BatchHeader, compressed: memoryview, record_bytes_max: int) -> Iterator[Record]:
    stream = _ChunkStream(decompress_chunks(header.codec_number, compressed))
    for index in range(header.count):
        length = stream.read_varint()
        if not 0 <= length <= record_bytes_max:
            raise InvalidRecords(f"record {index} claims {length} bytes", (index,))
        body = stream.take(length)
        try:
            yield _decode_record(header, body)
        except InvalidRecords as error:
            raise InvalidRecords(f"record {index}: {error}", (index,)) from error
    if not stream.is_at_end():
        raise InvalidRecords(f"bytes are left over after {header.count} records")


def _decode_record(header: BatchHeader, body: memoryview) -> Record:
    cursor = _Cursor(body, position=1)  # the attributes of a record carry nothing
    timestamp_delta = cursor.read_varint(_VARLONG_BITS)
    offset_delta = cursor.read_varint()
    key = cursor.read_bytes()
    value = cursor.read_bytes()
    headers = _decode_headers(cursor)
    if cursor.remaining:
        raise InvalidRecords(f"{cursor.remaining} bytes are left over in it")
    if header.is_log_append_time:
        timestamp = header.max_timestamp
    else:
        timestamp = _wrap_64(header.base_timestamp + timestamp_delta)
    return Record(key, value, headers, timestamp, _wrap_64(header.base_offset + offset_delta))


def _decode_headers(cursor: "_Cursor") -> tuple[Header, ...]:
    count = cursor.read_varint()
    if not 0 <= count <= cursor.remaining:
        raise InvalidRecords(f"it claims {count} headers in {cursor.remaining} bytes")
    headers = []
    for _ in range(count):
        key = cursor.read_bytes()
        if key is None:
            raise InvalidRecords("a header without a key")
        headers.append(Header(key.decode("utf-8", "surrogateescape"), cursor.read_bytes()))
    return tuple(headers)


class _Cursor:
    """Takes fields from the bytes of one record, never beyond their end."""

    __slots__ = ("_body", "_position")

    def __init__(self, body: memoryview, position: int) -> None:
        self._body = body
        self._position = position

    @property
    def remaining(self) -> int:
        return len(self._body) - self._position

    def read_varint(self, bits: int = _VARINT_BITS) -> int:
        encoded = 0
        for shift in range(0, bits, 7):
            if self._position >= len(self._body):
                raise InvalidRecords("it ends within a number")
            byte = self._body[self._position]
            self._position += 1
            encoded |= (byte & 0x7F) << shift
            if byte < 0x80:
                return _unzigzag(encoded, bits)
        raise InvalidRecords(f"a number of more than {bits} bits")

    def read_bytes(self) -> bytes | None:
        length = self.read_varint()
        if length < 0:
            return None
        if length > self.remaining:
            raise InvalidRecords(f"a field of {length} bytes, but {self.remaining} are left")
        start = self._position
        self._position += length
        return bytes(self._body[start : self._position])


class _ChunkStream:
    """Takes whole records from data that comes in chunks."""

    __slots__ = ("_chunk", "_chunks", "_position")

    def __init__(self, chunks: Iterator[bytes | memoryview]) -> None:
        self._chunks = chunks
        self._chunk = memoryview(b"")
        self._position = 0

    def is_at_end(self) -> bool:
        return self._position == len(self._chunk) and not self._advance()

    def read_varint(self) -> int:
        encoded = 0
        for shift in range(0, _VARINT_BITS, 7):
            if self.is_at_end():
                raise InvalidRecords("the batch has fewer records than its header says")
            byte = self._chunk[self._position]
            self._position += 1
            encoded |= (byte & 0x7F) << shift
            if byte < 0x80:
                return _unzigzag(encoded, _VARINT_BITS)
        raise InvalidRecords(f"a record length of more than {_VARINT_BITS} bits")

    def take(self, length: int) -> memoryview:
        """The next `length` bytes; a copy only when they are spread over chunks."""
        start = self._position
        if length <= len(self._chunk) - start:
            self._position += length
            return self._chunk[start : start + length]
        parts = [self._chunk[start:]]
        missing = length - len(parts[0])
        while missing:
            if not self._advance():
                raise InvalidRecords(f"a record of {length} bytes, but {missing} of them are missing")
            self._position = min(missing, len(self._chunk))
            parts.append(self._chunk[: self._position])
            missing -= self._position
        return memoryview(b"".join(parts))

    def _advance(self) -> bool:
        chunk = next(filter(len, self._chunks), None)
        self._chunk = memoryview(b"" if chunk is None else chunk)
        self._position = 0
        return chunk is not None


def _unzigzag(encoded: int, bits: int) -> int:
    """The last byte of a full-length varint has bits to spare; they are dropped, as Java's shift does."""
    encoded &= (1 << bits) - 1
    return (encoded >> 1) ^ -(encoded & 1)


def _wrap_64(number: int) -> int:
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
