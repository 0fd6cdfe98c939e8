"""Fetch, versions 4 to 18, as a broker reads and answers it, in pieces so that records go from file to socket.

```
request          [replica id int32, before 15] | max wait int32 | min bytes int32 | max bytes int32 | isolation int8
                 [session id int32, session epoch int32, from 7] | topics | [forgotten topics, from 7]
                 [rack id string, from 11]
                 [tagged: 0 cluster id nullable string, from 12; 1 replica id int32 and epoch int64, from 15]
topic            name string, from version 13 topic id uuid | partitions
partition        index int32 | [current leader epoch int32, from 9] | fetch offset int64
                 [last fetched epoch int32, from 12] | [log start offset int64, from 5] | max bytes int32
                 [tagged: 0 replica directory id uuid, from 17; 1 high watermark int64, from 18]
forgotten topic  name or topic id | partition indexes int32

response         throttle time int32 | [error int16, session id int32, from 7] | topics | [endpoints, tag 0, from 16]
topic            name or topic id | partitions
partition        index int32 | error int16 | high watermark int64 | last stable offset int64
                 [log start offset int64, from 5] | aborted transactions, nullable (producer id, first offset int64)
                 [preferred read replica int32, from 11] | records nullable bytes
                 [tagged, from 12: 0 diverging epoch int32 and its end offset int64; 1 current leader]
```

Flexible from version 12. A field that a version lacks has its default when it is read, and is left out when it is
written. The snapshot id (tag 2 of a partition's answer) belongs to Kafka's metadata log, which is not here.

This is the reference codec; `_fetch.pyx` reads the same request object from a whole frame and writes the same bytes,
and declines what it does not know. Very long requests and answers are read and written in steps.

An answer is bytes and, between them and untouched, the records of the results: a range of a file, or bytes. The sender
must send exactly `length` bytes for a range, since the lengths before it are already fixed.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol, TypeAlias

from barnabas.base.buffers import Buffer
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import MalformedRequest
from barnabas.wire.framing import response_start
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint, encode_endpoints, encode_leader
from barnabas.wire.primitives import (
    INT32,
    INT64,
    NO_TAGGED_FIELDS,
    UNREADABLE,
    UUID_BYTES,
    TopicKey,
    array_count,
    read_count,
    read_nullable_string,
    read_string,
    read_tagged_fields,
    read_topic_key,
    skip_tagged_fields,
    tagged_fields,
    topic_key_bytes,
)
from barnabas.wire.steps import Steps, finish

FLEXIBLE_FROM: Final = APIS[ApiKey.FETCH].flexible_from
LOG_START_FROM: Final = 5
SESSION_FROM: Final = 7
LEADER_EPOCH_FROM: Final = 9
RACK_FROM: Final = 11
TOPIC_ID_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15
ENDPOINTS_FROM: Final = 16
REPLICA_DIRECTORY_FROM: Final = 17
HIGH_WATERMARK_FROM: Final = 18

NO_HIGH_WATERMARK: Final = 2**63 - 1
"""The follower does not tell which high watermark it knows."""
NO_DIRECTORY: Final = bytes(UUID_BYTES)

_START: Final = Struct(">iiiib")
_SESSION_START: Final = Struct(">iiiibii")
_REPLICA_STATE_START: Final = Struct(">iiibii")
_WANTED_4: Final = Struct(">iqi")
_WANTED_5: Final = Struct(">iqqi")
_WANTED_9: Final = Struct(">iiqqi")
_WANTED_12: Final = Struct(">iiqiqi")
_REPLICA_STATE: Final = Struct(">iq")
PARTITIONS_MAX: Final = 50_000
"""Wanted and forgotten ones of a request."""
_READ_TOGETHER: Final = 100
"""Partitions that are read in one step."""

_RESPONSE_START: Final = Struct(">ihi")
_RESULT: Final = Struct(">ihqq")
_RESULT_WITH_LOG_START: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_DIVERGING: Final = Struct(">iqB")
_WRITTEN_TOGETHER: Final = 300
"""Results that are written in one step."""


class PartitionKey(NamedTuple):
    """A partition, by the way in which the client names its topic."""

    topic: TopicKey
    partition: int


class Wanted(NamedTuple):
    """What a reader asks of one partition."""

    key: PartitionKey
    offset: int
    bytes_max: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    """Of a follower's log."""
    replica_directory_id: bytes = NO_DIRECTORY
    high_watermark: int = NO_HIGH_WATERMARK


class Fetch(NamedTuple):
    """A Fetch request."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    wanted: list[Wanted]
    forgotten: Sequence[PartitionKey] = ()
    rack_id: str = ""
    replica_id: int = -1
    replica_epoch: int = -1
    cluster_id: str | None = None


class RecordRange(Protocol):
    """Records that lie in a file. Released once: by its sender, or by the code that decides not to send it."""

    @property
    def length(self) -> int: ...

    def read(self) -> Buffer: ...

    def release(self) -> None: ...


Records: TypeAlias = bytes | RecordRange
FetchPiece: TypeAlias = Buffer | RecordRange


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int = -1
    end_offset: int = -1


NO_DIVERGENCE: Final = EpochEndOffset()


class FetchResult(NamedTuple):
    """What a fetch found in one partition. Its records are sent, or given back by `release`."""

    records: Records | None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[AbortedTransaction] | None = None
    """Only for readers of committed records."""
    error_code: int = 0
    diverging_epoch: EpochEndOffset = NO_DIVERGENCE
    leader: LeaderAndEpoch = NO_LEADER
    preferred_replica: int = -1
    """Where this reader should read instead."""

    @property
    def size_bytes(self) -> int:
        records = self.records
        if records is None:
            return 0
        return len(records) if isinstance(records, bytes) else records.length

    def release(self) -> None:
        """Gives a range back that nobody will send."""
        records = self.records
        if records is not None and not isinstance(records, bytes):
            records.release()


Results: TypeAlias = Sequence[tuple[PartitionKey, FetchResult]]


class EncodedFetch(NamedTuple):
    """A body in pieces, to be sent one after the other, and the bytes of them all."""

    pieces: list[FetchPiece]
    length: int


# --- reading ----------------------------------------------------------------------------------------------


def decode_fetch(version: int, body: memoryview) -> Fetch:
    return finish(decode_fetch_in_steps(version, body))


def decode_fetch_in_steps(version: int, body: memoryview) -> Steps[Fetch]:
    """The same for a request that names very many partitions."""
    try:
        return (yield from _decode(version, body))
    except UNREADABLE as problem:
        raise MalformedRequest(f"FetchRequest version {version}: {problem}") from None


def _decode(version: int, data: memoryview) -> Steps[Fetch]:
    is_flexible, has_topic_ids = version >= FLEXIBLE_FROM, version >= TOPIC_ID_FROM
    replica_id, limits, position = _decode_start(version, data)
    wanted: list[Wanted] = []
    topic_count, position = read_count(data, position, is_flexible)
    for _ in range(topic_count):
        topic, position = read_topic_key(data, position, is_flexible, has_topic_ids)
        count, position = read_count(data, position, is_flexible)
        if len(wanted) + count > PARTITIONS_MAX:
            raise ValueError("too many partitions")
        for number in range(count):
            one, position = _decode_wanted(version, topic, data, position)
            wanted.append(one)
            if number % _READ_TOGETHER == _READ_TOGETHER - 1:
                yield
        if is_flexible:
            position = skip_tagged_fields(data, position)
    forgotten: list[PartitionKey] = []
    if version >= SESSION_FROM:
        position = yield from _decode_forgotten(version, data, position, forgotten)
    rack_id = ""
    if version >= RACK_FROM:
        rack_id, position = read_string(data, position, is_flexible)
    replica_epoch, cluster_id = -1, None
    if is_flexible:
        tagged, _ = read_tagged_fields(data, position)
        if 0 in tagged:
            cluster_id, _ = read_nullable_string(tagged[0], 0, True)
        if 1 in tagged and version >= REPLICA_STATE_FROM:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(tagged[1])
            skip_tagged_fields(tagged[1], _REPLICA_STATE.size)  # its own, which may be damaged, too
    return Fetch(*limits, wanted, tuple(forgotten), rack_id, replica_id, replica_epoch, cluster_id)


_Limits: TypeAlias = tuple[int, int, int, int, int, int]
"""The first six fields of a `Fetch`."""


def _decode_start(version: int, data: memoryview) -> tuple[int, _Limits, int]:
    """The replica's id, the limits with the session, and where they end."""
    replica_id, session_id, session_epoch = -1, 0, -1
    if version >= REPLICA_STATE_FROM:
        layout = _REPLICA_STATE_START
        wait_ms, bytes_min, bytes_max, isolation_level, session_id, session_epoch = layout.unpack_from(data)
    elif version >= SESSION_FROM:
        layout = _SESSION_START
        replica_id, wait_ms, bytes_min, bytes_max, isolation_level, session_id, session_epoch = layout.unpack_from(data)
    else:
        layout = _START
        replica_id, wait_ms, bytes_min, bytes_max, isolation_level = layout.unpack_from(data)
    return replica_id, (wait_ms, bytes_min, bytes_max, isolation_level, session_id, session_epoch), layout.size


def _decode_wanted(version: int, topic: TopicKey, data: memoryview, position: int) -> tuple[Wanted, int]:
    leader_epoch = last_fetched_epoch = log_start_offset = -1
    if version < LOG_START_FROM:
        layout = _WANTED_4
        index, offset, bytes_max = layout.unpack_from(data, position)
    elif version < LEADER_EPOCH_FROM:
        layout = _WANTED_5
        index, offset, log_start_offset, bytes_max = layout.unpack_from(data, position)
    elif version < FLEXIBLE_FROM:
        layout = _WANTED_9
        index, leader_epoch, offset, log_start_offset, bytes_max = layout.unpack_from(data, position)
    else:
        layout = _WANTED_12
        fields = layout.unpack_from(data, position)
        index, leader_epoch, offset, last_fetched_epoch, log_start_offset, bytes_max = fields
    position += layout.size
    one = Wanted(PartitionKey(topic, index), offset, bytes_max, leader_epoch, last_fetched_epoch, log_start_offset)
    if version < FLEXIBLE_FROM:
        return one, position
    if data[position] == 0:
        return one, position + 1
    tagged, position = read_tagged_fields(data, position)
    if 0 in tagged and version >= REPLICA_DIRECTORY_FROM:
        directory_id, _ = read_topic_key(tagged[0], 0, is_compact=True, has_topic_ids=True)
        assert isinstance(directory_id, bytes)
        one = one._replace(replica_directory_id=directory_id)
    if 1 in tagged and version >= HIGH_WATERMARK_FROM:
        (high_watermark,) = INT64.unpack_from(tagged[1])
        one = one._replace(high_watermark=high_watermark)
    return one, position


def _decode_forgotten(version: int, data: memoryview, position: int, forgotten: list[PartitionKey]) -> Steps[int]:
    is_flexible, has_topic_ids = version >= FLEXIBLE_FROM, version >= TOPIC_ID_FROM
    topic_count, position = read_count(data, position, is_flexible)
    for _ in range(topic_count):
        topic, position = read_topic_key(data, position, is_flexible, has_topic_ids)
        count, position = read_count(data, position, is_flexible)
        if len(forgotten) + count > PARTITIONS_MAX or count * INT32.size > len(data) - position:
            raise ValueError(f"{count} forgotten partitions in {len(data) - position} bytes")
        for number in range(count):
            (index,) = INT32.unpack_from(data, position)
            forgotten.append(PartitionKey(topic, index))
            position += INT32.size
            if number % _READ_TOGETHER == _READ_TOGETHER - 1:
                yield
        if is_flexible:
            position = skip_tagged_fields(data, position)
    return position


# --- writing ----------------------------------------------------------------------------------------------


def encode_fetched(
    version: int,
    results: Results,
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> EncodedFetch:
    """The body of the answer. Partitions of one topic that follow each other share its entry."""
    return finish(
        encode_fetched_in_steps(
            version,
            results,
            error_code=error_code,
            session_id=session_id,
            throttle_ms=throttle_ms,
            endpoints=endpoints,
        )
    )


def fetched_frame(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    session_id: int,
    results: Results,
    endpoints: Sequence[NodeEndpoint] = (),
    error_code: int = 0,
) -> bytes | list[FetchPiece]:
    """The frame of the answer, length prefix included, whole or in pieces."""
    encoded = encode_fetched(
        version,
        results,
        error_code=error_code,
        session_id=session_id,
        throttle_ms=throttle_ms,
        endpoints=endpoints,
    )
    return fetch_frame(version, correlation_id, encoded)


def fetch_frame(version: int, correlation_id: int, encoded: EncodedFetch) -> bytes | list[FetchPiece]:
    """The same of a body that is there already."""
    first, *others = encoded.pieces
    assert isinstance(first, bytes), "an answer begins with bytes"
    first = response_start(ApiKey.FETCH, version, correlation_id, encoded.length) + first  # one piece less to send
    return [first, *others] if others else first


def encode_fetched_in_steps(
    version: int,
    results: Results,
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> Steps[EncodedFetch]:
    """The same for very many partitions."""
    is_flexible, has_topic_ids = version >= FLEXIBLE_FROM, version >= TOPIC_ID_FROM
    pieces: list[FetchPiece] = []
    length = 0
    if version >= SESSION_FROM:
        written = [_RESPONSE_START.pack(throttle_ms, error_code, session_id)]
    else:
        written = [INT32.pack(throttle_ms)]
    topics = _by_topic(results)
    written.append(array_count(len(topics), is_flexible))
    for topic, indexed in topics:
        written.append(topic_key_bytes(topic, is_flexible, has_topic_ids))
        written.append(array_count(len(indexed), is_flexible))
        for start in range(0, len(indexed), _WRITTEN_TOGETHER):
            length += _write_results(version, indexed[start : start + _WRITTEN_TOGETHER], written, pieces)
            if len(indexed) > _WRITTEN_TOGETHER:
                yield
        if is_flexible:
            written.append(NO_TAGGED_FIELDS)
    if is_flexible:
        has_endpoints = endpoints and version >= ENDPOINTS_FROM
        written.append(tagged_fields([(0, encode_endpoints(endpoints))]) if has_endpoints else NO_TAGGED_FIELDS)
    if written:
        last = b"".join(written)
        pieces.append(last)
        length += len(last)
    return EncodedFetch(pieces, length)


def _by_topic(
    results: Iterable[tuple[PartitionKey, FetchResult]],
) -> list[tuple[TopicKey, list[tuple[int, FetchResult]]]]:
    topics: list[tuple[TopicKey, list[tuple[int, FetchResult]]]] = []
    for (topic, index), result in results:
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append((index, result))
    return topics


def _write_results(
    version: int, indexed: Sequence[tuple[int, FetchResult]], written: list[bytes], pieces: list[FetchPiece]
) -> int:
    """Adds to what is written, and makes a piece of it before each partition's records; returns the pieces' bytes."""
    is_flexible = version >= FLEXIBLE_FROM
    length = 0
    for index, result in indexed:
        written.append(_encode_result_start(version, index, result))
        records = result.records
        size = result.size_bytes
        written.append(array_count(size, is_flexible))  # empty rather than null: old clients trip over null
        if size:
            assert records is not None
            before = b"".join(written)
            pieces += (before, records)
            length += len(before) + size
            written.clear()
        if is_flexible:
            written.append(_encode_result_tags(result))
    return length


def _encode_result_start(version: int, index: int, result: FetchResult) -> bytes:
    """Everything before the length of the records."""
    is_flexible = version >= FLEXIBLE_FROM
    start = (index, result.error_code, result.high_watermark, result.last_stable_offset)
    if version >= LOG_START_FROM:
        encoded = _RESULT_WITH_LOG_START.pack(*start, result.log_start_offset)
    else:
        encoded = _RESULT.pack(*start)
    aborted = result.aborted
    encoded += array_count(-1 if aborted is None else len(aborted), is_flexible)
    for producer_id, first_offset in aborted or ():
        encoded += _ABORTED.pack(producer_id, first_offset)
        if is_flexible:
            encoded += NO_TAGGED_FIELDS
    if version >= RACK_FROM:
        encoded += INT32.pack(result.preferred_replica)
    return encoded


def _encode_result_tags(result: FetchResult) -> bytes:
    diverging, leader = result.diverging_epoch, result.leader
    if diverging is NO_DIVERGENCE and leader is NO_LEADER:
        return NO_TAGGED_FIELDS
    tags = []
    if diverging != NO_DIVERGENCE:
        tags.append((0, _DIVERGING.pack(*diverging, 0)))
    if leader != NO_LEADER:
        tags.append((1, encode_leader(leader)))
    return tagged_fields(tags)
