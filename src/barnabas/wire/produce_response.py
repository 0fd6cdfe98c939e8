"""ProduceResponse, versions 3 to 13, as a client reads it; `produce` has the format, and how a broker writes it.

Values that a version has no room for have their default.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final
from uuid import UUID

from barnabas.base.buffers import Buffer
from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.errors import MalformedResponse
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint, decode_endpoints, decode_leader
from barnabas.wire.primitives import (
    INT32,
    UNREADABLE,
    read_count,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
)
from barnabas.wire.produce import (
    FLEXIBLE_FROM,
    LEADER_FROM,
    LOG_START_FROM,
    RECORD_ERRORS_FROM,
    TOPIC_ID_FROM,
    RecordError,
)

_PARTITION: Final = Struct(">ihqq")
_PARTITION_WITH_LOG_START: Final = Struct(">ihqqq")


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
