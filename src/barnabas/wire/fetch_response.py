"""FetchResponse, versions 4 to 18, as a client or a follower reads it; `fetch` has the format, and how it is written.

A field that a version lacks has its default.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final
from uuid import UUID

from barnabas.base.buffers import Buffer
from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.errors import MalformedResponse
from barnabas.wire.fetch import (
    ENDPOINTS_FROM,
    FLEXIBLE_FROM,
    LOG_START_FROM,
    NO_DIVERGENCE,
    RACK_FROM,
    SESSION_FROM,
    TOPIC_ID_FROM,
    AbortedTransaction,
    EpochEndOffset,
)
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint, decode_endpoints, decode_leader
from barnabas.wire.primitives import (
    INT32,
    UNREADABLE,
    read_compact_length,
    read_count,
    read_length,
    read_string,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
)

_START: Final = Struct(">ihi")
_PARTITION: Final = Struct(">ihqq")
_PARTITION_WITH_LOG_START: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_DIVERGING: Final = Struct(">iqB")


@dataclass(slots=True)
class FetchPartitionReply:
    index: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer | None = b""
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: EpochEndOffset = NO_DIVERGENCE
    current_leader: LeaderAndEpoch = NO_LEADER


@dataclass(slots=True)
class FetchTopicReply:
    name: str
    topic_id: UUID
    partitions: Sequence[FetchPartitionReply]


@dataclass(slots=True)
class FetchResponse:
    topics: Sequence[FetchTopicReply] = ()
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def decode_fetch_response(version: int, body: memoryview) -> FetchResponse:
    """Records are slices of `body`, without a copy."""
    try:
        return _decode(version, body)
    except UNREADABLE as problem:
        raise MalformedResponse(f"FetchResponse version {version}: {problem}") from None


def _decode(version: int, data: memoryview) -> FetchResponse:
    is_flexible = version >= FLEXIBLE_FROM
    response = FetchResponse()
    if version >= SESSION_FROM:
        response.throttle_time_ms, response.error_code, response.session_id = _START.unpack_from(data)
        position = _START.size
    else:
        (response.throttle_time_ms,) = INT32.unpack_from(data)
        position = INT32.size
    count, position = read_count(data, position, is_flexible)
    topics = []
    for _ in range(count):
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
        topics.append(FetchTopicReply(name, topic_id, partitions))
    response.topics = topics
    if is_flexible and data[position] != 0:
        tagged, position = read_tagged_fields(data, position)
        if 0 in tagged and version >= ENDPOINTS_FROM:
            response.node_endpoints = decode_endpoints(tagged[0])
    return response


def _decode_partition(version: int, data: memoryview, position: int) -> tuple[FetchPartitionReply, int]:
    is_flexible = version >= FLEXIBLE_FROM
    layout = _PARTITION_WITH_LOG_START if version >= LOG_START_FROM else _PARTITION
    partition = FetchPartitionReply(*layout.unpack_from(data, position))
    partition.aborted_transactions, position = _decode_aborted(data, position + layout.size, is_flexible)
    if version >= RACK_FROM:
        (partition.preferred_read_replica,) = INT32.unpack_from(data, position)
        position += INT32.size
    length, position = (read_compact_length if is_flexible else read_length)(data, position)
    if length < 0:
        partition.records = None
    else:
        partition.records = data[position : position + length]
        position += length
    if not is_flexible:
        return partition, position
    if data[position] == 0:
        return partition, position + 1
    tagged, position = read_tagged_fields(data, position)
    if 0 in tagged:
        epoch, end_offset, _ = _DIVERGING.unpack_from(tagged[0])
        partition.diverging_epoch = EpochEndOffset(epoch, end_offset)
    if 1 in tagged:
        partition.current_leader = decode_leader(tagged[1])
    return partition, position


def _decode_aborted(
    data: Buffer, position: int, is_flexible: bool
) -> tuple[tuple[AbortedTransaction, ...] | None, int]:
    count, position = (read_compact_length if is_flexible else read_length)(data, position)
    if count < 0:
        return None, position
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(data, position)))
        position += _ABORTED.size
        if is_flexible:
            position = skip_tagged_fields(data, position)
    return tuple(aborted), position
