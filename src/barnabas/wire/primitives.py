"""The smallest pieces of Kafka's protocol: lengths, strings, identifiers and tagged fields.

| piece | legacy | compact (flexible versions) |
|---|---|---|
| string | int16 length, negative for null | unsigned varint of length + 1, 0 for null |
| bytes, records | int32 length, negative for null | the same |
| array | int32 count, negative for null | the same with the count |
| tagged fields | none | count, then (tag, size, value) each, all lengths unsigned varints |

A reader takes the message and a position and returns the value and the position after it. What cannot be read raises
one of `UNREADABLE`, which the codecs turn into `MalformedRequest` or `MalformedResponse`; nothing here is allocated by
a length before the message is known to be that long. As in Apache Kafka, text that is not UTF-8 is read with
replacement characters instead of being refused, and text of more than 32,767 bytes is refused even where its length
field could say more.

Writing text never fails, because an answer repeats what a peer sent: replacement characters take three bytes for one,
so what was short enough to come in may be too long to go out. It is cut at the end of a character.
"""

import struct
from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias
from uuid import UUID

from barnabas.base.buffers import Buffer
from barnabas.base.uuid import ZERO_UUID

TopicKey: TypeAlias = str | bytes
"""How a request names a topic: by its name or, in newer versions, by the sixteen bytes of its id."""

UNREADABLE: Final = (IndexError, ValueError, struct.error)
"""What the readers raise on bytes that are not what they should be."""

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")

NO_TAGGED_FIELDS: Final = b"\0"
UUID_BYTES: Final = 16
TEXT_BYTES_MAX: Final = 2**15 - 1
"""Of any text on the wire: the length is an int16 in legacy versions, and Kafka's clients refuse more in all others."""
ELEMENTS_MAX: Final = 20_000
"""Of the arrays of a message that is read at once, by hand: topics and partitions of a Produce, a Fetch or a commit."""
_TAGGED_FIELDS_MAX: Final = 1000
_UUID_CACHE_ENTRIES: Final = 4096


# --- reading ----------------------------------------------------------------------------------------------


def read_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """At most five bytes, taken as an int32 as Kafka takes it: what is larger reads as a negative number."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return (value - 0x1_0000_0000 if value & 0x8000_0000 else value), position
    raise ValueError("a varint of more than five bytes")


def read_compact_length(data: Buffer, position: int) -> tuple[int, int]:
    """The length of compact text, bytes or an array, negative for null; never more than what is left."""
    value = data[position]
    position += 1
    if value >= 0x80:  # nearly all are one byte, and a call costs more than reading it here
        value, position = read_unsigned_varint(data, position - 1)
    if value - 1 > len(data) - position:
        raise ValueError(f"a length of {value - 1}, but {len(data) - position} bytes are left")
    return value - 1, position


def read_length(data: Buffer, position: int) -> tuple[int, int]:
    """The int32 length of bytes or an array, negative for null; never more than what is left."""
    (length,) = INT32.unpack_from(data, position)
    position += 4
    if length > len(data) - position:
        raise ValueError(f"a length of {length}, but {len(data) - position} bytes are left")
    return length, position


def read_nullable_string(data: Buffer, position: int, is_compact: bool) -> tuple[str | None, int]:
    if is_compact:
        length, position = read_compact_length(data, position)
    else:
        (length,) = INT16.unpack_from(data, position)
        position += 2
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise ValueError(f"text of {length} bytes, but {len(data) - position} are left")
    if length > TEXT_BYTES_MAX:
        raise ValueError(f"text of {length} bytes, but {TEXT_BYTES_MAX} are allowed")
    return bytes(data[position:end]).decode("utf-8", "replace"), end


def read_string(data: Buffer, position: int, is_compact: bool) -> tuple[str, int]:
    text, position = read_nullable_string(data, position, is_compact)
    if text is None:
        raise ValueError("null where there must be text")
    return text, position


def read_bytes(data: Buffer, position: int, is_compact: bool) -> tuple[bytes, int]:
    """Bytes that must not be null."""
    length, position = (read_compact_length if is_compact else read_length)(data, position)
    if length < 0:
        raise ValueError("null where there must be bytes")
    end = position + length
    if end > len(data):
        raise ValueError(f"{length} bytes, of which {len(data) - position} came")
    return bytes(data[position:end]), end


def read_count(data: Buffer, position: int, is_compact: bool) -> tuple[int, int]:
    """The count of an array that must not be null."""
    if not is_compact:
        count, position = read_length(data, position)
    elif 0 < data[position] < 0x80:
        count, position = data[position] - 1, position + 1
    else:
        count, position = read_compact_length(data, position)
    if not 0 <= count <= len(data) - position:
        raise ValueError(f"an array of {count}, but {len(data) - position} bytes are left")
    return count, position


@lru_cache(maxsize=_UUID_CACHE_ENTRIES)
def uuid_of(identifier: bytes) -> UUID:
    """The identifier in these sixteen bytes. Remembered, because making one costs more than the rest of a request."""
    return UUID(bytes=identifier)


def read_uuid(data: Buffer, position: int) -> tuple[UUID, int]:
    end = position + UUID_BYTES
    return uuid_of(bytes(data[position:end])), end


def read_topic_key(data: Buffer, position: int, is_compact: bool, has_topic_ids: bool) -> tuple[TopicKey, int]:
    if not has_topic_ids:
        return read_string(data, position, is_compact)
    end = position + UUID_BYTES
    if end > len(data):
        raise ValueError("a topic id is cut off")
    return bytes(data[position:end]), end


def skip_tagged_fields(data: Buffer, position: int) -> int:
    """The position after the tagged fields, whatever they are."""
    if data[position] == 0:
        return position + 1
    return read_tagged_fields(data, position)[1]


def read_tagged_fields(data: Buffer, position: int) -> tuple[dict[int, Buffer], int]:
    """The values by tag. The caller picks those that it knows: unknown ones are what a newer peer may send."""
    count, position = read_unsigned_varint(data, position)
    if not 0 <= count <= min(len(data) - position, _TAGGED_FIELDS_MAX):
        raise ValueError(f"{count} tagged fields in {len(data) - position} bytes")
    values: dict[int, Buffer] = {}
    for _ in range(count):
        tag, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        if not 0 <= size <= len(data) - position:
            raise ValueError(f"tagged field {tag} of {size} bytes, but {len(data) - position} are left")
        values[tag] = data[position : position + size]
        position += size
    return values, position


# --- writing ----------------------------------------------------------------------------------------------

_SHORT_VARINTS: Final = tuple(bytes((value,)) for value in range(0x80))


def unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return _SHORT_VARINTS[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def nullable_string(text: str | None, is_compact: bool) -> bytes:
    if text is None:
        return b"\0" if is_compact else b"\xff\xff"
    try:
        encoded = text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as in a path that is not UTF-8
        encoded = text.encode("utf-8", "replace")
    if len(encoded) > TEXT_BYTES_MAX:
        encoded = _cut(encoded)
    if is_compact:
        return unsigned_varint(len(encoded) + 1) + encoded
    return INT16.pack(len(encoded)) + encoded


def _cut(encoded: bytes) -> bytes:
    """The beginning that fits, without a piece of a character at its end."""
    end = TEXT_BYTES_MAX
    while encoded[end] & 0xC0 == 0x80:
        end -= 1
    return encoded[:end]


def topic_key_bytes(topic: TopicKey, is_compact: bool, has_topic_ids: bool) -> bytes:
    if isinstance(topic, bytes):
        assert has_topic_ids, "a topic is named as the version names it"
        return topic
    return nullable_string(topic, is_compact)


def array_count(count: int, is_compact: bool) -> bytes:
    if not is_compact:
        return INT32.pack(count)
    return _SHORT_VARINTS[count + 1] if count < 0x7F else unsigned_varint(count + 1)


def tagged_fields(fields: list[tuple[int, bytes]]) -> bytes:
    """Tagged fields, given in the order of their tags."""
    encoded = [unsigned_varint(len(fields))]
    for tag, value in fields:
        encoded += (unsigned_varint(tag), unsigned_varint(len(value)), value)
    return b"".join(encoded)


def uuid_bytes(identifier: UUID | None) -> bytes:
    return (identifier or ZERO_UUID).bytes
