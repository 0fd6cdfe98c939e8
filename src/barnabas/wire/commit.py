"""OffsetCommit, versions 2 to 10, as a broker reads and answers it: one for every few records a consumer works through.

```
request    group id | generation int32 | member id | from 7 instance id, nullable | to 4 retention int64 | topics
topic      name, from version 10 topic id | partitions
partition  index int32 | offset int64 | from 6 leader epoch int32 | metadata, nullable
response   from 3 throttle time int32 | topics: name or id | partitions: index int32, error code int16
```

Flexible from version 8. This is the reference codec; `_commit.pyx` reads the same request object from a whole frame and
writes the same bytes, and declines what it does not know.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from barnabas.base.ids import NO_EPOCH
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.framing import response_start
from barnabas.wire.primitives import (
    ELEMENTS_MAX,
    INT32,
    INT64,
    NO_TAGGED_FIELDS,
    UNREADABLE,
    TopicKey,
    array_count,
    read_count,
    read_nullable_string,
    read_string,
    read_topic_key,
    skip_tagged_fields,
    topic_key_bytes,
)
from barnabas.wire.steps import Steps, finish

FLEXIBLE_FROM: Final = APIS[ApiKey.OFFSET_COMMIT].flexible_from
THROTTLE_FROM: Final = 3
RETENTION_UNTIL: Final = 4
LEADER_EPOCH_FROM: Final = 6
INSTANCE_ID_FROM: Final = 7
TOPIC_ID_FROM: Final = 10
NO_RETENTION: Final = -1
READ_TOGETHER: Final = 50

_INDEX_AND_OFFSET: Final = Struct(">iq")
_INDEX_OFFSET_EPOCH: Final = Struct(">iqi")
_INDEX_AND_ERROR: Final = Struct(">ih")
_INDEX_ERROR_AND_TAGS: Final = Struct(">ihB")

CommittedPartition: TypeAlias = tuple[int, int, int, str | None]
"""Index, offset, leader epoch, metadata. A plain tuple: these are made by the thousand."""
CommitResult: TypeAlias = tuple[TopicKey, list[tuple[int, ErrorCode]]]
"""A topic, and of each partition its index and error."""


class CommittedTopic(NamedTuple):
    topic: TopicKey
    partitions: list[CommittedPartition]


class OffsetCommit(NamedTuple):
    """An OffsetCommit request."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    """`NO_RETENTION` means that the broker decides."""
    topics: list[CommittedTopic]


def decode_commit(version: int, body: memoryview) -> OffsetCommit:
    return finish(decode_commit_in_steps(version, body))


def decode_commit_in_steps(version: int, body: memoryview) -> Steps[OffsetCommit]:
    """The same for a request with very many offsets: a step for every `READ_TOGETHER` of a topic, or long notes."""
    try:
        return (yield from _decode(version, body))
    except UNREADABLE as problem:
        raise MalformedRequest(f"OffsetCommitRequest version {version}: {problem}") from None


def _decode(version: int, data: memoryview) -> Steps[OffsetCommit]:
    is_flexible, has_topic_ids = version >= FLEXIBLE_FROM, version >= TOPIC_ID_FROM
    group_id, position = read_string(data, 0, is_flexible)
    (generation,) = INT32.unpack_from(data, position)
    member_id, position = read_string(data, position + INT32.size, is_flexible)
    instance_id, retention_ms = None, NO_RETENTION
    if version >= INSTANCE_ID_FROM:
        instance_id, position = read_nullable_string(data, position, is_flexible)
    elif version <= RETENTION_UNTIL:
        (retention_ms,) = INT64.unpack_from(data, position)
        position += INT64.size
    topic_count, position = read_count(data, position, is_flexible)
    left = ELEMENTS_MAX - topic_count
    topics = []
    for _ in range(topic_count):
        topic, position = read_topic_key(data, position, is_flexible, has_topic_ids)
        count, position = read_count(data, position, is_flexible)
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
            metadata, position = read_nullable_string(data, position, is_flexible)
            if is_flexible:
                position = skip_tagged_fields(data, position)
            partitions.append((index, offset, leader_epoch, metadata))
            if not len(partitions) % READ_TOGETHER:
                yield
        if is_flexible:
            position = skip_tagged_fields(data, position)
        topics.append(CommittedTopic(topic, partitions))
    if is_flexible:
        skip_tagged_fields(data, position)
    return OffsetCommit(group_id, generation, member_id, instance_id, retention_ms, topics)


def encode_committed(version: int, results: Sequence[CommitResult], throttle_ms: int = 0) -> bytes:
    """The body of the answer."""
    is_flexible, has_topic_ids = version >= FLEXIBLE_FROM, version >= TOPIC_ID_FROM
    encoded = [INT32.pack(throttle_ms)] if version >= THROTTLE_FROM else []
    encoded.append(array_count(len(results), is_flexible))
    for topic, partitions in results:
        encoded.append(topic_key_bytes(topic, is_flexible, has_topic_ids))
        encoded.append(array_count(len(partitions), is_flexible))
        if is_flexible:
            encoded += [_INDEX_ERROR_AND_TAGS.pack(index, error, 0) for index, error in partitions]
            encoded.append(NO_TAGGED_FIELDS)
        else:
            encoded += [_INDEX_AND_ERROR.pack(index, error) for index, error in partitions]
    if is_flexible:
        encoded.append(NO_TAGGED_FIELDS)
    return b"".join(encoded)


def committed_frame(version: int, correlation_id: int, throttle_ms: int, results: Sequence[CommitResult]) -> bytes:
    """The whole frame of the answer, length prefix included."""
    body = encode_committed(version, results, throttle_ms)
    return response_start(ApiKey.OFFSET_COMMIT, version, correlation_id, len(body)) + body
