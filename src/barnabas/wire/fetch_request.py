"""FetchRequest, versions 4 to 18, by hand.

```
[replica id int32, before 15] | max wait int32 | min bytes int32 | max bytes int32 | isolation level int8
[session id int32, session epoch int32, from 7] | topics | [forgotten topics, from 7] | [rack id string, from 11]
[tagged: 0 cluster id nullable string, from 12; 1 replica id int32 and epoch int64, from 15]

topic            name string, from version 13 topic id uuid | partitions
partition        index int32 | [current leader epoch int32, from 9] | fetch offset int64
                 [last fetched epoch int32, from 12] | [log start offset int64, from 5] | max bytes int32
                 [tagged: 0 replica directory id uuid, from 17; 1 high watermark int64, from 18]
forgotten topic  name or topic id | partition indexes int32
```

Flexible from version 12. A field that a version lacks has its default when it is read, and is left out when it is
written. The classes are not frozen, nor named tuples, because both take longer to make than the request to read.
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
    INT32,
    INT64,
    NO_TAGGED_FIELDS,
    UNREADABLE,
    UUID_BYTES,
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
    uuid_of,
)

FLEXIBLE_FROM: Final = APIS[ApiKey.FETCH].flexible_from
LOG_START_FROM: Final = 5
SESSION_FROM: Final = 7
LEADER_EPOCH_FROM: Final = 9
RACK_FROM: Final = 11
TOPIC_ID_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15
REPLICA_DIRECTORY_FROM: Final = 17
HIGH_WATERMARK_FROM: Final = 18

NO_HIGH_WATERMARK: Final = 2**63 - 1
"""The follower does not tell which high watermark it knows."""

_START: Final = Struct(">iiiib")
_SESSION_START: Final = Struct(">iiiibii")
_REPLICA_STATE_START: Final = Struct(">iiibii")
_PARTITION_4: Final = Struct(">iqi")
_PARTITION_5: Final = Struct(">iqqi")
_PARTITION_9: Final = Struct(">iiqqi")
_PARTITION_12: Final = Struct(">iiqiqi")
_REPLICA_STATE: Final = Struct(">iq")


@dataclass(slots=True)
class FetchPartition:
    index: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    """Of a follower's log."""
    bytes_max: int
    replica_directory_id: UUID = ZERO_UUID
    high_watermark: int = NO_HIGH_WATERMARK


@dataclass(slots=True)
class FetchTopic:
    name: str
    """Empty from version 13 on."""
    topic_id: UUID
    """Zero before version 13."""
    partitions: Sequence[FetchPartition]


@dataclass(slots=True)
class ForgottenTopic:
    name: str
    topic_id: UUID
    partitions: Sequence[int]


@dataclass(slots=True)
class FetchRequest:
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: Sequence[FetchTopic] = ()
    forgotten_topics: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    replica_id: int = -1
    replica_epoch: int = -1
    cluster_id: str | None = None


# --- the broker's side ------------------------------------------------------------------------------------


def decode_fetch_request(version: int, body: memoryview) -> FetchRequest:
    try:
        return _decode(version, body)
    except UNREADABLE as problem:
        raise MalformedRequest(f"FetchRequest version {version}: {problem}") from None


def _decode(version: int, data: memoryview) -> FetchRequest:
    is_flexible = version >= FLEXIBLE_FROM
    request, position = _decode_start(version, data)
    count, position = read_count(data, position, is_flexible)
    topics = []
    for _ in range(count):
        topic, position = _decode_topic(version, data, position)
        topics.append(topic)
    request.topics = topics
    if version >= SESSION_FROM:
        if is_flexible and data[position] == 1:
            position += 1
        else:
            request.forgotten_topics, position = _decode_forgotten(version, data, position)
    if version >= RACK_FROM:
        if is_flexible and data[position] == 1:
            position += 1
        else:
            request.rack_id, position = read_string(data, position, is_flexible)
    if is_flexible and data[position] != 0:
        tagged, _ = read_tagged_fields(data, position)
        if 0 in tagged:
            request.cluster_id, _ = read_nullable_string(tagged[0], 0, True)
        if 1 in tagged and version >= REPLICA_STATE_FROM:
            request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(tagged[1])
            skip_tagged_fields(tagged[1], _REPLICA_STATE.size)  # its own, which may be damaged, too
    return request


def _decode_start(version: int, data: memoryview) -> tuple[FetchRequest, int]:
    if version >= REPLICA_STATE_FROM:
        return FetchRequest(*_REPLICA_STATE_START.unpack_from(data)), _REPLICA_STATE_START.size
    layout = _SESSION_START if version >= SESSION_FROM else _START
    replica_id, *start = layout.unpack_from(data)
    request = FetchRequest(*start)
    request.replica_id = replica_id
    return request, layout.size


def _decode_topic(version: int, data: memoryview, position: int) -> tuple[FetchTopic, int]:
    is_flexible = version >= FLEXIBLE_FROM
    name, topic_id = "", ZERO_UUID
    if version >= TOPIC_ID_FROM:
        topic_id = uuid_of(data[position : position + UUID_BYTES].tobytes())
        position += UUID_BYTES
    else:
        name, position = read_string(data, position, is_flexible)
    count, position = read_count(data, position, is_flexible)
    if not is_flexible:
        layout = _legacy_layout(version)
        size = layout.size
        end = position + count * size
        if end > len(data):
            raise ValueError(f"{count} partitions in {len(data) - position} bytes")
        partitions = [_legacy_partition(version, layout, data, start) for start in range(position, end, size)]
        return FetchTopic(name, topic_id, partitions), end
    partitions = []
    for _ in range(count):
        partition = FetchPartition(*_PARTITION_12.unpack_from(data, position))
        position += _PARTITION_12.size
        if data[position] == 0:
            position += 1
        else:
            position = _decode_partition_tags(version, partition, data, position)
        partitions.append(partition)
    return FetchTopic(name, topic_id, partitions), skip_tagged_fields(data, position)


def _legacy_layout(version: int) -> Struct:
    if version < LOG_START_FROM:
        return _PARTITION_4
    return _PARTITION_5 if version < LEADER_EPOCH_FROM else _PARTITION_9


def _legacy_partition(version: int, layout: Struct, data: memoryview, position: int) -> FetchPartition:
    leader_epoch, log_start_offset = -1, -1
    if version < LOG_START_FROM:
        index, fetch_offset, bytes_max = layout.unpack_from(data, position)
    elif version < LEADER_EPOCH_FROM:
        index, fetch_offset, log_start_offset, bytes_max = layout.unpack_from(data, position)
    else:
        index, leader_epoch, fetch_offset, log_start_offset, bytes_max = layout.unpack_from(data, position)
    return FetchPartition(index, leader_epoch, fetch_offset, -1, log_start_offset, bytes_max)


def _decode_partition_tags(version: int, partition: FetchPartition, data: memoryview, position: int) -> int:
    tagged, position = read_tagged_fields(data, position)
    if 0 in tagged and version >= REPLICA_DIRECTORY_FROM:
        partition.replica_directory_id, _ = read_uuid(tagged[0], 0)
    if 1 in tagged and version >= HIGH_WATERMARK_FROM:
        (partition.high_watermark,) = INT64.unpack_from(tagged[1])
    return position


def _decode_forgotten(version: int, data: Buffer, position: int) -> tuple[list[ForgottenTopic], int]:
    is_flexible = version >= FLEXIBLE_FROM
    count, position = read_count(data, position, is_flexible)
    forgotten = []
    for _ in range(count):
        name, topic_id = "", ZERO_UUID
        if version >= TOPIC_ID_FROM:
            topic_id, position = read_uuid(data, position)
        else:
            name, position = read_string(data, position, is_flexible)
        partition_count, position = read_count(data, position, is_flexible)
        end = position + partition_count * INT32.size
        if end > len(data):
            raise ValueError(f"{partition_count} forgotten partitions in {len(data) - position} bytes")
        partitions = [index for (index,) in INT32.iter_unpack(data[position:end])]
        position = skip_tagged_fields(data, end) if is_flexible else end
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten, position


# --- the client's side ------------------------------------------------------------------------------------


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    is_flexible = version >= FLEXIBLE_FROM
    limits = (request.wait_ms_max, request.bytes_min, request.bytes_max, request.isolation_level)
    session = (request.session_id, request.session_epoch)
    if version >= REPLICA_STATE_FROM:
        encoded = [_REPLICA_STATE_START.pack(*limits, *session)]
    elif version >= SESSION_FROM:
        encoded = [_SESSION_START.pack(request.replica_id, *limits, *session)]
    else:
        encoded = [_START.pack(request.replica_id, *limits)]
    encoded.append(array_count(len(request.topics), is_flexible))
    for topic in request.topics:
        encoded.append(_encode_topic(version, topic.name, topic.topic_id, len(topic.partitions)))
        encoded += [_encode_partition(version, partition) for partition in topic.partitions]
        if is_flexible:
            encoded.append(NO_TAGGED_FIELDS)
    if version >= SESSION_FROM:
        encoded.append(array_count(len(request.forgotten_topics), is_flexible))
        for forgotten in request.forgotten_topics:
            encoded.append(_encode_topic(version, forgotten.name, forgotten.topic_id, len(forgotten.partitions)))
            encoded += [INT32.pack(index) for index in forgotten.partitions]
            if is_flexible:
                encoded.append(NO_TAGGED_FIELDS)
    if version >= RACK_FROM:
        encoded.append(nullable_string(request.rack_id, is_flexible))
    if is_flexible:
        encoded.append(_encode_tags(version, request))
    return b"".join(encoded)


def _encode_topic(version: int, name: str, topic_id: UUID, partition_count: int) -> bytes:
    is_flexible = version >= FLEXIBLE_FROM
    identity = topic_id.bytes if version >= TOPIC_ID_FROM else nullable_string(name, is_flexible)
    return identity + array_count(partition_count, is_flexible)


def _encode_partition(version: int, partition: FetchPartition) -> bytes:
    index, epoch, offset = partition.index, partition.current_leader_epoch, partition.fetch_offset
    log_start, bytes_max = partition.log_start_offset, partition.bytes_max
    if version < LOG_START_FROM:
        return _PARTITION_4.pack(index, offset, bytes_max)
    if version < LEADER_EPOCH_FROM:
        return _PARTITION_5.pack(index, offset, log_start, bytes_max)
    if version < FLEXIBLE_FROM:
        return _PARTITION_9.pack(index, epoch, offset, log_start, bytes_max)
    encoded = _PARTITION_12.pack(index, epoch, offset, partition.last_fetched_epoch, log_start, bytes_max)
    tags = []
    if version >= REPLICA_DIRECTORY_FROM and partition.replica_directory_id != ZERO_UUID:
        tags.append((0, partition.replica_directory_id.bytes))
    if version >= HIGH_WATERMARK_FROM and partition.high_watermark != NO_HIGH_WATERMARK:
        tags.append((1, INT64.pack(partition.high_watermark)))
    return encoded + tagged_fields(tags)


def _encode_tags(version: int, request: FetchRequest) -> bytes:
    tags = []
    if request.cluster_id is not None:
        tags.append((0, nullable_string(request.cluster_id, is_compact=True)))
    if version >= REPLICA_STATE_FROM and (request.replica_id, request.replica_epoch) != (-1, -1):
        tags.append((1, _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + NO_TAGGED_FIELDS))
    return tagged_fields(tags)
