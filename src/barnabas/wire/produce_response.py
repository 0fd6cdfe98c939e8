"""ProduceResponse, versions 3 to 13, by hand: one is sent for every produce request.

```
topics | throttle time int32 | [node endpoints, tag 0, from version 10]
topic      name string, from version 13 topic id uuid | partitions
partition  index int32 | error int16 | base offset int64 | log append time int64
           [log start offset int64, from 5] [record errors (index int32, message), error message, from 8]
           [current leader, tag 0, from 10]
```

Flexible from version 9. Values that a version has no room for are left out when it is written, and have their default
when it is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final
from uuid import UUID

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.errors import MalformedResponse
from barnabas.wire.leaders import (
    NO_LEADER,
    LeaderAndEpoch,
    NodeEndpoint,
    decode_endpoints,
    decode_leader,
    encode_endpoints,
    encode_leader,
)
from barnabas.wire.primitives import (
    INT32,
    NO_TAGGED_FIELDS,
    UNREADABLE,
    Buffer,
    array_count,
    nullable_string,
    read_count,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
    tagged_fields,
)
from barnabas.wire.produce_request import FLEXIBLE_FROM, TOPIC_ID_FROM

LOG_START_FROM: Final = 5
RECORD_ERRORS_FROM: Final = 8
LEADER_FROM: Final = 10

_PARTITION: Final = Struct(">ihqq")
_PARTITION_WITH_LOG_START: Final = Struct(">ihqqq")
_PARTITION_WITHOUT_ERRORS: Final = Struct(">ihqqqBBB")
"""Flexible: no record errors, no message, no tagged fields."""
_LAST_PARTITION_WITHOUT_ERRORS: Final = Struct(">ihqqqBBBBiB")
"""... and after it the end of the only topic, and of the response."""
_ONE_ENTRY: Final = b"\x02"
_EMPTY_ARRAY: Final = 1
_NULL: Final = 0


@dataclass(slots=True)
class RecordError:
    index: int
    """Of the record in its batch."""
    message: str | None


@dataclass(slots=True)
class ProducePartitionReply:
    index: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: LeaderAndEpoch = NO_LEADER


@dataclass(slots=True)
class ProduceTopicReply:
    name: str
    topic_id: UUID
    partitions: Sequence[ProducePartitionReply]


@dataclass(slots=True)
class ProduceResponse:
    topics: Sequence[ProduceTopicReply]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


# --- the broker's side ------------------------------------------------------------------------------------


def encode_produce_response(version: int, response: ProduceResponse) -> bytes:
    is_flexible = version >= FLEXIBLE_FROM
    encode_partition = _encode_flexible_partition if is_flexible else _encode_legacy_partition
    topics = response.topics
    if is_flexible and len(topics) == 1 and len(topics[0].partitions) == 1 and not response.node_endpoints:
        partition = topics[0].partitions[0]
        if _is_plain(partition):
            return _encode_sole_partition(version, topics[0], partition, response.throttle_time_ms)
    encoded = [array_count(len(topics), is_flexible)]
    for topic in topics:
        partitions = topic.partitions
        encoded.append(topic.topic_id.bytes if version >= TOPIC_ID_FROM else nullable_string(topic.name, is_flexible))
        encoded.append(array_count(len(partitions), is_flexible))
        for partition in partitions:
            encoded.append(encode_partition(version, partition))
        if is_flexible:
            encoded.append(NO_TAGGED_FIELDS)
    encoded.append(INT32.pack(response.throttle_time_ms))
    if is_flexible:
        if response.node_endpoints and version >= LEADER_FROM:
            encoded.append(tagged_fields([(0, encode_endpoints(response.node_endpoints))]))
        else:
            encoded.append(NO_TAGGED_FIELDS)
    return b"".join(encoded)


def _is_plain(partition: ProducePartitionReply) -> bool:
    """Nothing but the fixed fields, as in nearly every answer."""
    return partition.current_leader is NO_LEADER and partition.error_message is None and not partition.record_errors


def _encode_sole_partition(
    version: int, topic: ProduceTopicReply, partition: ProducePartitionReply, throttle_time_ms: int
) -> bytes:
    """The usual answer, to a small request for one partition, in one step."""
    end = _LAST_PARTITION_WITHOUT_ERRORS.pack(
        partition.index,
        partition.error_code,
        partition.base_offset,
        partition.log_append_time_ms,
        partition.log_start_offset,
        _EMPTY_ARRAY,
        _NULL,
        0,
        0,
        throttle_time_ms,
        0,
    )
    name = topic.topic_id.bytes if version >= TOPIC_ID_FROM else nullable_string(topic.name, is_compact=True)
    return b"".join((_ONE_ENTRY, name, _ONE_ENTRY, end))


def _encode_flexible_partition(version: int, partition: ProducePartitionReply) -> bytes:
    leader = partition.current_leader
    if _is_plain(partition):
        return _PARTITION_WITHOUT_ERRORS.pack(
            partition.index,
            partition.error_code,
            partition.base_offset,
            partition.log_append_time_ms,
            partition.log_start_offset,
            _EMPTY_ARRAY,
            _NULL,
            0,
        )
    has_leader = version >= LEADER_FROM and leader != NO_LEADER
    return b"".join(
        (
            _encode_fixed(version, partition),
            _encode_record_errors(partition.record_errors, is_flexible=True),
            nullable_string(partition.error_message, is_compact=True),
            tagged_fields([(0, encode_leader(leader))]) if has_leader else NO_TAGGED_FIELDS,
        )
    )


def _encode_legacy_partition(version: int, partition: ProducePartitionReply) -> bytes:
    encoded = _encode_fixed(version, partition)
    if version < RECORD_ERRORS_FROM:
        return encoded
    return (
        encoded
        + _encode_record_errors(partition.record_errors, is_flexible=False)
        + nullable_string(partition.error_message, is_compact=False)
    )


def _encode_fixed(version: int, partition: ProducePartitionReply) -> bytes:
    start = (partition.index, partition.error_code, partition.base_offset, partition.log_append_time_ms)
    if version < LOG_START_FROM:
        return _PARTITION.pack(*start)
    return _PARTITION_WITH_LOG_START.pack(*start, partition.log_start_offset)


def _encode_record_errors(record_errors: Sequence[RecordError], is_flexible: bool) -> bytes:
    encoded = [array_count(len(record_errors), is_flexible)]
    for error in record_errors:
        encoded += (INT32.pack(error.index), nullable_string(error.message, is_flexible))
        if is_flexible:
            encoded.append(NO_TAGGED_FIELDS)
    return b"".join(encoded)


# --- the client's side ------------------------------------------------------------------------------------


def decode_produce_response(version: int, body: Buffer) -> ProduceResponse:
    try:
        return _decode(version, body)
    except UNREADABLE as problem:
        raise MalformedResponse(f"ProduceResponse version {version}: {problem}") from None


def _decode(version: int, data: Buffer) -> ProduceResponse:
    is_flexible = version >= FLEXIBLE_FROM
    topic_count, position = read_count(data, 0, is_flexible)
    topics = []
    for _ in range(topic_count):
        name, topic_id = "", ZERO_UUID
        if version >= TOPIC_ID_FROM:
            topic_id, position = read_uuid(data, position)
        else:
            name, position = read_string(data, position, is_flexible)
        partition_count, position = read_count(data, position, is_flexible)
        partitions = []
        for _ in range(partition_count):
            partition, position = _decode_partition(version, data, position)
            partitions.append(partition)
        if is_flexible:
            position = skip_tagged_fields(data, position)
        topics.append(ProduceTopicReply(name, topic_id, partitions))
    (throttle_time_ms,) = INT32.unpack_from(data, position)
    endpoints: tuple[NodeEndpoint, ...] = ()
    if is_flexible:
        tagged, _ = read_tagged_fields(data, position + 4)
        if 0 in tagged and version >= LEADER_FROM:
            endpoints = decode_endpoints(tagged[0])
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _decode_partition(version: int, data: Buffer, position: int) -> tuple[ProducePartitionReply, int]:
    is_flexible = version >= FLEXIBLE_FROM
    layout = _PARTITION if version < LOG_START_FROM else _PARTITION_WITH_LOG_START
    partition = ProducePartitionReply(*layout.unpack_from(data, position))
    position += layout.size
    if version < RECORD_ERRORS_FROM:
        return partition, position
    error_count, position = read_count(data, position, is_flexible)
    record_errors = []
    for _ in range(error_count):
        (index,) = INT32.unpack_from(data, position)
        message, position = read_nullable_string(data, position + 4, is_flexible)
        if is_flexible:
            position = skip_tagged_fields(data, position)
        record_errors.append(RecordError(index, message))
    error_message, position = read_nullable_string(data, position, is_flexible)
    leader = NO_LEADER
    if is_flexible:
        tagged, position = read_tagged_fields(data, position)
        if 0 in tagged and version >= LEADER_FROM:
            leader = decode_leader(tagged[0])
    partition.record_errors, partition.error_message, partition.current_leader = record_errors, error_message, leader
    return partition, position
