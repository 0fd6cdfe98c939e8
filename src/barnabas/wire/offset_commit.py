"""OffsetCommit, versions 2 to 10, by hand: every consumer sends one for every few records it has worked through.

```
request    group id | generation int32 | member id | from 7 instance id, nullable | to 4 retention int64 | topics
topic      name, from version 10 topic id | partitions
partition  index int32 | offset int64 | from 6 leader epoch int32 | metadata, nullable
response   from 3 throttle time int32 | topics: name or id | partitions: index int32, error code int16
```

Flexible from version 8. Equal to kio's codec, which a test holds.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from barnabas.base.ids import NO_EPOCH
from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.primitives import (
    ELEMENTS_MAX,
    INT32,
    INT64,
    NO_TAGGED_FIELDS,
    UNREADABLE,
    UUID_BYTES,
    array_count,
    nullable_string,
    read_count,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
    uuid_of,
)

FLEXIBLE_FROM: Final = APIS[ApiKey.OFFSET_COMMIT].flexible_from
THROTTLE_FROM: Final = 3
RETENTION_UNTIL: Final = 4
LEADER_EPOCH_FROM: Final = 6
INSTANCE_ID_FROM: Final = 7
TOPIC_ID_FROM: Final = 10
NO_RETENTION: Final = -1
_NAMES_REMEMBERED: Final = 4096

_INDEX_AND_OFFSET: Final = Struct(">iq")
_INDEX_OFFSET_EPOCH: Final = Struct(">iqi")
_INDEX_OFFSET_EPOCH_AND_BYTE: Final = Struct(">iqiB")
_INDEX_AND_ERROR: Final = Struct(">ih")
_INDEX_ERROR_AND_TAGS: Final = Struct(">ihB")

CommittedPartition: TypeAlias = tuple[int, int, int, str | None]
"""Index, offset, leader epoch, metadata. A plain tuple: these are made by the thousand."""
PartitionResult: TypeAlias = tuple[int, ErrorCode]
"""Index and error."""


class CommittedTopic(NamedTuple):
    name: str
    """Empty from version 10 on."""
    topic_id: UUID
    """Zero before version 10."""
    partitions: list[CommittedPartition]


class OffsetCommitRequest(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    """`NO_RETENTION` means that the broker decides."""
    topics: list[CommittedTopic]


class TopicResult(NamedTuple):
    name: str
    topic_id: UUID
    partitions: list[PartitionResult]


def decode_offset_commit_request(version: int, body: memoryview) -> OffsetCommitRequest:
    try:
        if version >= FLEXIBLE_FROM:
            return _decode_flexible(version, body)
        return _decode_legacy(version, body)
    except UNREADABLE as problem:
        raise MalformedRequest(f"OffsetCommitRequest version {version}: {problem}") from None


def _decode_flexible(version: int, data: memoryview) -> OffsetCommitRequest:
    # Lengths that are nearly always one byte are read in place: a call costs more than all that it does. A slice that
    # reaches beyond the end comes out short without a word, but then the read that follows it raises.
    group_id, position = _read_text(data, 0)
    (generation,) = INT32.unpack_from(data, position)
    member_id, position = _read_text(data, position + 4)
    instance_id = None
    if data[position] == 0:
        position += 1
    else:
        instance_id, position = read_nullable_string(data, position, True)
    topic_count, position = read_count(data, position, True)
    left = ELEMENTS_MAX - topic_count
    topics = []
    for _ in range(topic_count):
        name, topic_id = "", ZERO_UUID
        if version >= TOPIC_ID_FROM:
            topic_id = uuid_of(data[position : position + UUID_BYTES].tobytes())
            position += UUID_BYTES
        else:
            name, position = _read_text(data, position)
        partition_count, position = read_count(data, position, True)
        left -= partition_count
        if left < 0:
            raise ValueError("too many offsets")
        partitions: list[CommittedPartition] = []
        for _ in range(partition_count):
            index, offset, leader_epoch, length = _INDEX_OFFSET_EPOCH_AND_BYTE.unpack_from(data, position)
            position += _INDEX_OFFSET_EPOCH_AND_BYTE.size
            if length < 2:  # nearly nobody leaves a note
                metadata = "" if length else None
            else:
                metadata, position = read_nullable_string(data, position - 1, True)
            position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
            partitions.append((index, offset, leader_epoch, metadata))
        position = position + 1 if data[position] == 0 else skip_tagged_fields(data, position)
        topics.append(CommittedTopic(name, topic_id, partitions))
    skip_tagged_fields(data, position)
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, NO_RETENTION, topics)


def _read_text(data: memoryview, position: int) -> tuple[str, int]:
    length = data[position]
    if not 0 < length < 0x80:
        return read_string(data, position, True)
    end = position + length
    return str(data[position + 1 : end], "utf-8", "replace"), end


def _decode_legacy(version: int, data: memoryview) -> OffsetCommitRequest:
    group_id, position = read_string(data, 0, False)
    (generation,) = INT32.unpack_from(data, position)
    member_id, position = read_string(data, position + 4, False)
    instance_id, retention_ms = None, NO_RETENTION
    if version >= INSTANCE_ID_FROM:
        instance_id, position = read_nullable_string(data, position, False)
    elif version <= RETENTION_UNTIL:
        (retention_ms,) = INT64.unpack_from(data, position)
        position += 8
    topic_count, position = read_count(data, position, False)
    left = ELEMENTS_MAX - topic_count
    topics = []
    for _ in range(topic_count):
        name, position = read_string(data, position, False)
        count, position = read_count(data, position, False)
        left -= count
        if left < 0:
            raise ValueError("too many offsets")
        partitions: list[CommittedPartition] = []
        for _ in range(count):
            leader_epoch = NO_EPOCH
            if version >= LEADER_EPOCH_FROM:
                index, offset, leader_epoch = _INDEX_OFFSET_EPOCH.unpack_from(data, position)
                position += _INDEX_OFFSET_EPOCH.size
            else:
                index, offset = _INDEX_AND_OFFSET.unpack_from(data, position)
                position += _INDEX_AND_OFFSET.size
            metadata, position = read_nullable_string(data, position, False)
            partitions.append((index, offset, leader_epoch, metadata))
        topics.append(CommittedTopic(name, ZERO_UUID, partitions))
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, retention_ms, topics)


def encode_offset_commit_response(version: int, topics: Sequence[TopicResult], throttle_ms: int = 0) -> bytes:
    if version >= FLEXIBLE_FROM:
        return _encode_flexible(version, topics, throttle_ms)
    encoded = [INT32.pack(throttle_ms)] if version >= THROTTLE_FROM else []
    encoded.append(array_count(len(topics), False))
    for name, _, partitions in topics:
        encoded.append(nullable_string(name, False))
        encoded.append(array_count(len(partitions), False))
        encoded += [_INDEX_AND_ERROR.pack(index, error) for index, error in partitions]
    return b"".join(encoded)


def _encode_flexible(version: int, topics: Sequence[TopicResult], throttle_ms: int) -> bytes:
    encoded = [INT32.pack(throttle_ms), array_count(len(topics), True)]
    for name, topic_id, partitions in topics:
        encoded.append(topic_id.bytes if version >= TOPIC_ID_FROM else _compact_name(name))
        encoded.append(array_count(len(partitions), True))
        encoded += [_INDEX_ERROR_AND_TAGS.pack(index, error, 0) for index, error in partitions]
        encoded.append(NO_TAGGED_FIELDS)
    encoded.append(NO_TAGGED_FIELDS)
    return b"".join(encoded)


@lru_cache(maxsize=_NAMES_REMEMBERED)
def _compact_name(name: str) -> bytes:
    return nullable_string(name, True)
