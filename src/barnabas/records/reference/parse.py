"""One record after the other out of a records section; the format of a record is in
`barnabas.records.builder`.

As in Apache Kafka a varint has at most 5 bytes (varlong: 10), bits beyond 32 (64) are dropped, any negative
key or value length is null, record attributes are ignored, and timestamps wrap around like Java's long.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.base.errors import InvalidRecords

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10


class ParsedRecord(NamedTuple):
    """A record, as views into the section it came from."""

    whole: memoryview
    """All of it, from its length on."""
    attributes: int
    timestamp_delta: int
    after_timestamp: memoryview
    """What follows the timestamp delta, which rewriting it leaves as it is."""
    offset_delta: int
    key: memoryview | None
    value: memoryview | None
    headers: list[tuple[memoryview, memoryview | None]]


def wrap_int64(number: int) -> int:
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def unzigzag(bits: int, bytes_max: int) -> int:
    """The number behind the bits of a varint of at most `bytes_max` bytes."""
    bits &= 0xFFFF_FFFF if bytes_max == VARINT_BYTES_MAX else 0xFFFF_FFFF_FFFF_FFFF
    return (bits >> 1) ^ -(bits & 1)


def parse_records(records: memoryview, count: int) -> Iterator[ParsedRecord]:
    """Exactly `count` records that fill the section; each is yielded before the next one is looked at."""
    if count < 0:
        raise InvalidRecords("the record count is negative")
    position = 0
    for index in range(count):
        cursor = _Cursor(records, position, len(records), index)
        length = cursor.read_varint(VARINT_BYTES_MAX)
        body = cursor.position
        if not 1 <= length <= len(records) - body:
            raise InvalidRecords(f"record {index}: a length reaches beyond what contains it")
        cursor.end = body + length
        yield _parse_body(cursor, records[position : cursor.end])
        position = cursor.end
    if position != len(records):
        raise InvalidRecords("bytes are left over after the last record")


def _parse_body(cursor: "_Cursor", whole: memoryview) -> ParsedRecord:
    attributes = cursor.records[cursor.position]
    cursor.position += 1
    timestamp_delta = cursor.read_varint(VARLONG_BYTES_MAX)
    after_timestamp = cursor.records[cursor.position : cursor.end]
    offset_delta = cursor.read_varint(VARINT_BYTES_MAX)
    key = cursor.read_bytes()
    value = cursor.read_bytes()
    header_count = cursor.read_varint(VARINT_BYTES_MAX)
    if not 0 <= header_count <= (cursor.end - cursor.position) // 2:
        raise InvalidRecords(f"record {cursor.index}: the header count is impossible")
    headers = []
    for _ in range(header_count):
        header_key = cursor.read_bytes()
        if header_key is None:
            raise InvalidRecords(f"record {cursor.index}: a header is cut off or has no key")
        headers.append((header_key, cursor.read_bytes()))
    if cursor.position != cursor.end:
        raise InvalidRecords(f"record {cursor.index}: the fields do not fill the record's length")
    return ParsedRecord(whole, attributes, timestamp_delta, after_timestamp, offset_delta, key, value, headers)


class _Cursor:
    """Takes fields from the bytes of one record, never beyond its end."""

    __slots__ = ("end", "index", "position", "records")

    def __init__(self, records: memoryview, position: int, end: int, index: int) -> None:
        self.records = records
        self.position = position
        self.end = end
        self.index = index

    def read_varint(self, bytes_max: int) -> int:
        bits = 0
        for shift in range(0, 7 * bytes_max, 7):
            if self.position >= self.end:
                break
            byte = self.records[self.position]
            self.position += 1
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                return unzigzag(bits, bytes_max)
        raise InvalidRecords(f"record {self.index}: a varint is cut off or too long")

    def read_bytes(self) -> memoryview | None:
        length = self.read_varint(VARINT_BYTES_MAX)
        if length < 0:
            return None
        start = self.position
        if length > self.end - start:
            raise InvalidRecords(f"record {self.index}: a length reaches beyond what contains it")
        self.position = start + length
        return self.records[start : self.position]
