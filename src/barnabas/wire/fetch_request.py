"""FetchRequest, versions 4 to 18, as a client or a follower writes it; `fetch` has the format, and how it is read.

A topic has its name and its id, and the version decides which of them goes out. A field that a version lacks is left
out. The classes are not frozen, because that takes longer to make.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final
from uuid import UUID

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.fetch import (
    FLEXIBLE_FROM,
    HIGH_WATERMARK_FROM,
    LEADER_EPOCH_FROM,
    LOG_START_FROM,
    NO_HIGH_WATERMARK,
    RACK_FROM,
    REPLICA_DIRECTORY_FROM,
    REPLICA_STATE_FROM,
    SESSION_FROM,
    TOPIC_ID_FROM,
)
from barnabas.wire.primitives import INT32, INT64, NO_TAGGED_FIELDS, array_count, nullable_string, tagged_fields

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
    topic_id: UUID
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
