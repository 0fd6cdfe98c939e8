"""ProduceRequest, versions 3 to 13, by hand: the records stay where they arrived.

```
transactional id nullable string | acks int16 | timeout int32 | topics
topic      name string, from version 13 topic id uuid | partitions
partition  index int32 | records nullable bytes
```

Versions differ only in the encoding (flexible from 9) and in how a topic is named. Decoded records are slices of the
frame, without a copy, so they are valid as long as the frame's buffer is left alone. The slices may hold anything:
nobody here looks into them.

The classes are not frozen, nor named tuples, because both take longer to make than the whole request to read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final
from uuid import UUID

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import MalformedRequest
from barnabas.wire.primitives import (
    ELEMENTS_MAX,
    INT32,
    NO_TAGGED_FIELDS,
    UNREADABLE,
    UUID_BYTES,
    Buffer,
    array_count,
    nullable_string,
    read_compact_length,
    read_count,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
    uuid_of,
)

FLEXIBLE_FROM: Final = APIS[ApiKey.PRODUCE].flexible_from
TOPIC_ID_FROM: Final = 13

_ACKS_AND_TIMEOUT: Final = Struct(">hi")
_FLEXIBLE_START: Final = Struct(">BhiB")
"""When the transactional id is null and the topics are few."""
_INDEX_AND_LENGTH: Final = Struct(">ii")
_INDEX_AND_TWO_BYTES: Final = Struct(">iBB")


@dataclass(slots=True)
class ProducePartition:
    index: int
    records: Buffer | None


@dataclass(slots=True)
class ProduceTopic:
    name: str
    """Empty from version 13 on."""
    topic_id: UUID
    """Zero before version 13."""
    partitions: Sequence[ProducePartition]


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: Sequence[ProduceTopic]


def decode_produce_request(version: int, body: memoryview) -> ProduceRequest:
    try:
        if version >= FLEXIBLE_FROM:
            return _decode_flexible(version, body)
        return _decode_legacy(body)
    except UNREADABLE as problem:
        raise MalformedRequest(f"ProduceRequest version {version}: {problem}") from None


def _decode_flexible(version: int, data: memoryview) -> ProduceRequest:
    # Lengths that are nearly always one byte are read in place: a call costs more than all that it does. A slice that
    # reaches beyond the end comes out short without a word, but then the read that follows it raises.
    has_topic_ids = version >= TOPIC_ID_FROM
    transactional_length, acks, timeout_ms, topic_count = _FLEXIBLE_START.unpack_from(data)
    if transactional_length == 0 and 0 < topic_count < 0x80:
        transactional_id, topic_count, position = None, topic_count - 1, _FLEXIBLE_START.size
    else:
        transactional_id, position = read_nullable_string(data, 0, True)
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(data, position)
        topic_count, position = read_count(data, position + _ACKS_AND_TIMEOUT.size, True)
    left = ELEMENTS_MAX - topic_count
    topics = []
    for _ in range(topic_count):
        name, topic_id = "", ZERO_UUID
        if has_topic_ids:
            topic_id = uuid_of(data[position : position + UUID_BYTES].tobytes())
            position += UUID_BYTES
        elif 0 < data[position] < 0x80:
            start, position = position + 1, position + data[position]
            name = data[start:position].tobytes().decode("utf-8", "replace")
        else:
            name, position = read_string(data, position, True)
        partition_count = data[position] - 1
        if 0 <= partition_count < 0x7F:
            position += 1
        else:
            partition_count, position = read_count(data, position, True)
        left -= partition_count
        if left < 0:
            raise ValueError("too many partitions")
        partitions = []
        for _ in range(partition_count):
            index, low, high = _INDEX_AND_TWO_BYTES.unpack_from(data, position)
            position += _INDEX_AND_TWO_BYTES.size
            if low >= 0x80 and high < 0x80:  # the length of most small batches
                length = (low & 0x7F | high << 7) - 1
            else:
                length, position = read_compact_length(data, position - 2)
            records = None
            if length >= 0:
                start, position = position, position + length
                records = data[start:position]
            position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
            partitions.append(ProducePartition(index, records))
        position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
        topics.append(ProduceTopic(name, topic_id, partitions))
    skip_tagged_fields(data, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_legacy(data: memoryview) -> ProduceRequest:
    size = len(data)
    transactional_id, position = read_nullable_string(data, 0, False)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(data, position)
    topic_count, position = read_count(data, position + _ACKS_AND_TIMEOUT.size, False)
    left = ELEMENTS_MAX - topic_count
    topics = []
    for _ in range(topic_count):
        name, position = read_string(data, position, False)
        partition_count, position = read_count(data, position, False)
        left -= partition_count
        if left < 0:
            raise ValueError("too many partitions")
        partitions = []
        for _ in range(partition_count):
            index, length = _INDEX_AND_LENGTH.unpack_from(data, position)
            position += _INDEX_AND_LENGTH.size
            records = None
            if length >= 0:
                start, position = position, position + length
                if position > size:
                    raise ValueError("records are cut off")
                records = data[start:position]
            partitions.append(ProducePartition(index, records))
        topics.append(ProduceTopic(name, ZERO_UUID, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_produce_request(version: int, request: ProduceRequest) -> list[Buffer]:
    """The body in pieces, to be sent one after the other: the records are pieces of their own, not copied."""
    is_flexible = version >= FLEXIBLE_FROM
    pieces: list[Buffer] = []
    written = bytearray(nullable_string(request.transactional_id, is_flexible))
    written += _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms)
    written += array_count(len(request.topics), is_flexible)
    for topic in request.topics:
        written += topic.topic_id.bytes if version >= TOPIC_ID_FROM else nullable_string(topic.name, is_flexible)
        written += array_count(len(topic.partitions), is_flexible)
        for partition in topic.partitions:
            records = partition.records
            written += INT32.pack(partition.index)
            written += array_count(-1 if records is None else len(records), is_flexible)
            if records:
                pieces += (written, records)
                written = bytearray()
            if is_flexible:
                written += NO_TAGGED_FIELDS
        if is_flexible:
            written += NO_TAGGED_FIELDS
    if is_flexible:
        written += NO_TAGGED_FIELDS
    pieces.append(written)
    return pieces
