"""FetchResponse, versions 4 to 18, by hand and in pieces, so that records go from file to socket by sendfile.

```
throttle time int32 | [error int16, session id int32, from 7] | topics | [node endpoints, tag 0, from 16]
topic      name string, from version 13 topic id uuid | partitions
partition  index int32 | error int16 | high watermark int64 | last stable offset int64
           [log start offset int64, from 5] | aborted transactions, nullable (producer id int64, first offset int64)
           [preferred read replica int32, from 11] | records nullable bytes
           [tagged, from 12: 0 diverging epoch int32 and its end offset int64; 1 current leader]
```

Flexible from version 12. A field that a version lacks has its default when it is read, and is left out when it is
written. The snapshot id (tag 2) belongs to Kafka's metadata log, which is not here: it is never sent, and skipped.

`encode_fetch_response` returns bytes and, between them and untouched, the record objects that it was given. What such
an object is, a range of a file or bytes, only the sender knows; here it has a length. The sender must send exactly so
many bytes for it, since the lengths before it are already fixed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.errors import MalformedResponse
from barnabas.wire.fetch_request import FLEXIBLE_FROM, LOG_START_FROM, RACK_FROM, SESSION_FROM, TOPIC_ID_FROM
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
    read_compact_length,
    read_count,
    read_length,
    read_string,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
    tagged_fields,
)
from barnabas.wire.steps import Steps

ENDPOINTS_FROM: Final = 16

_START: Final = Struct(">ihi")
_PARTITION: Final = Struct(">ihqq")
_PARTITION_WITH_LOG_START: Final = Struct(">ihqqq")
_PLAIN_PARTITION: Final = Struct(">ihqqqBi")
"""Flexible, with null for the aborted transactions, up to the length of the records."""
_NULL: Final = 0
_ONE: Final = array_count(1, True)
_NO_TAGS_OF_THREE: Final = 3 * NO_TAGGED_FIELDS
"""Of the partition, the topic and the response."""
_BUFFERS: Final = (bytes, bytearray, memoryview)
_ENCODED_TOGETHER: Final = 300
_ABORTED: Final = Struct(">qq")
_DIVERGING: Final = Struct(">iqB")


class SizedRecords(Protocol):
    """Records that lie elsewhere, such as a range of a segment file."""

    @property
    def length(self) -> int: ...


Records: TypeAlias = Buffer | SizedRecords
Piece: TypeAlias = Buffer | SizedRecords


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int = -1
    end_offset: int = -1


NO_DIVERGENCE: Final = EpochEndOffset()


@dataclass(slots=True)
class FetchPartitionReply:
    index: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Records | None = b""
    """Empty rather than null where there are none: old clients trip over null."""
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


class EncodedFetch(NamedTuple):
    """A body in pieces, to be sent one after the other, and the bytes of them all."""

    pieces: list[Piece]
    length: int


# --- the broker's side ------------------------------------------------------------------------------------


def encode_fetch_response(version: int, response: FetchResponse) -> EncodedFetch:
    is_flexible = version >= FLEXIBLE_FROM
    pieces: list[Piece] = []
    length = 0
    written: list[bytes] = [_encode_start(version, response), array_count(len(response.topics), is_flexible)]
    for topic in response.topics:
        written.append(_encode_topic_start(version, topic))
        length += _encode_partitions(version, topic.partitions, written, pieces)
        if is_flexible:
            written.append(NO_TAGGED_FIELDS)
    return _ended(version, response, written, pieces, length)


def encode_fetch_response_in_steps(version: int, response: FetchResponse) -> Steps[EncodedFetch]:
    """The same for very many partitions."""
    is_flexible = version >= FLEXIBLE_FROM
    pieces: list[Piece] = []
    length = 0
    written: list[bytes] = [_encode_start(version, response), array_count(len(response.topics), is_flexible)]
    for topic in response.topics:
        written.append(_encode_topic_start(version, topic))
        for start in range(0, len(topic.partitions), _ENCODED_TOGETHER):
            some = topic.partitions[start : start + _ENCODED_TOGETHER]
            length += _encode_partitions(version, some, written, pieces)
            piece = b"".join(written)
            pieces.append(piece)
            length += len(piece)
            written.clear()
            yield
        if is_flexible:
            written.append(NO_TAGGED_FIELDS)
    return _ended(version, response, written, pieces, length)


def _encode_topic_start(version: int, topic: FetchTopicReply) -> bytes:
    is_flexible = version >= FLEXIBLE_FROM
    name = topic.topic_id.bytes if version >= TOPIC_ID_FROM else nullable_string(topic.name, is_flexible)
    return name + array_count(len(topic.partitions), is_flexible)


def _encode_partitions(
    version: int, partitions: Sequence[FetchPartitionReply], written: list[bytes], pieces: list[Piece]
) -> int:
    """Adds to what is written, and makes a piece of it before each partition's records; returns the pieces' bytes."""
    is_flexible = version >= FLEXIBLE_FROM
    length = 0
    for partition in partitions:
        written.append(_encode_partition_start(version, partition))
        records = partition.records
        size = -1 if records is None else _size(records)
        written.append(array_count(size, is_flexible))
        if size > 0:
            assert records is not None
            before = b"".join(written)
            pieces.append(before)
            pieces.append(records)
            length += len(before) + size
            written.clear()
        if is_flexible:
            written.append(_encode_partition_tags(partition))
    return length


def _ended(
    version: int, response: FetchResponse, written: list[bytes], pieces: list[Piece], length: int
) -> EncodedFetch:
    if version >= FLEXIBLE_FROM:
        written.append(_encode_tags(version, response))
    if written:
        last = b"".join(written)
        pieces.append(last)
        length += len(last)
    return EncodedFetch(pieces, length)


def encode_small_fetch_response(
    version: int, throttle_time_ms: int, session_id: int, name: str, topic_id: UUID, partition: FetchPartitionReply
) -> bytes | None:
    """What nearly every answer to a reader at the end of a log is, whole and without detours.

    For one partition without an error, whose records are in memory, in a flexible version; None for any other.
    """
    records = partition.records
    if (
        not isinstance(records, bytes)
        or partition.error_code
        or partition.aborted_transactions is not None
        or partition.diverging_epoch is not NO_DIVERGENCE
        or partition.current_leader is not NO_LEADER
    ):
        return None
    return b"".join(
        (
            _START.pack(throttle_time_ms, 0, session_id),
            _ONE,
            topic_id.bytes if version >= TOPIC_ID_FROM else nullable_string(name, True),
            _ONE,
            _encode_partition_start(version, partition),
            array_count(len(records), True),
            records,
            _NO_TAGS_OF_THREE,
        )
    )


def _size(records: Records) -> int:
    return len(records) if isinstance(records, _BUFFERS) else records.length


def _encode_start(version: int, response: FetchResponse) -> bytes:
    if version >= SESSION_FROM:
        return _START.pack(response.throttle_time_ms, response.error_code, response.session_id)
    return INT32.pack(response.throttle_time_ms)


def _encode_partition_start(version: int, partition: FetchPartitionReply) -> bytes:
    """Everything before the length of the records."""
    aborted = partition.aborted_transactions
    if version >= FLEXIBLE_FROM and aborted is None:
        return _PLAIN_PARTITION.pack(
            partition.index,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
            _NULL,
            partition.preferred_read_replica,
        )
    is_flexible = version >= FLEXIBLE_FROM
    start = (partition.index, partition.error_code, partition.high_watermark, partition.last_stable_offset)
    if version >= LOG_START_FROM:
        encoded = _PARTITION_WITH_LOG_START.pack(*start, partition.log_start_offset)
    else:
        encoded = _PARTITION.pack(*start)
    encoded += array_count(-1 if aborted is None else len(aborted), is_flexible)
    for producer_id, first_offset in aborted or ():
        encoded += _ABORTED.pack(producer_id, first_offset)
        if is_flexible:
            encoded += NO_TAGGED_FIELDS
    if version >= RACK_FROM:
        encoded += INT32.pack(partition.preferred_read_replica)
    return encoded


def _encode_partition_tags(partition: FetchPartitionReply) -> bytes:
    diverging, leader = partition.diverging_epoch, partition.current_leader
    if diverging is NO_DIVERGENCE and leader is NO_LEADER:
        return NO_TAGGED_FIELDS
    tags = []
    if diverging != NO_DIVERGENCE:
        tags.append((0, _DIVERGING.pack(*diverging, 0)))
    if leader != NO_LEADER:
        tags.append((1, encode_leader(leader)))
    return tagged_fields(tags)


def _encode_tags(version: int, response: FetchResponse) -> bytes:
    if response.node_endpoints and version >= ENDPOINTS_FROM:
        return tagged_fields([(0, encode_endpoints(response.node_endpoints))])
    return NO_TAGGED_FIELDS


# --- the client's side ------------------------------------------------------------------------------------


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
