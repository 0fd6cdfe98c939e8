"""Produce, versions 3 to 13, as a broker reads and answers it: the records stay where they arrived.

```
request    transactional id nullable string | acks int16 | timeout int32 | topics
topic      name string, from version 13 topic id uuid | partitions
partition  index int32 | records nullable bytes

response   topics | throttle time int32 | [node endpoints, tag 0, from version 10]
topic      name or topic id | partitions
partition  index int32 | error int16 | base offset int64 | log append time int64
           [log start offset int64, from 5] [record errors (index int32, message), error message, from 8]
           [current leader, tag 0, from 10]
```

Flexible from version 9. This is the reference codec; `_produce.pyx` reads the same request object from a whole frame
and writes the same bytes, and declines what it does not know. The object is flat, one `ProduceBatch` for each
partition, and made of named tuples, which C makes without a Python call. Records are slices of the frame, without a
copy: they are valid as long as the frame's buffer is left alone, and may hold anything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from barnabas.base.buffers import Buffer
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import MalformedRequest
from barnabas.wire.framing import response_start
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint, encode_endpoints, encode_leader
from barnabas.wire.primitives import (
    ELEMENTS_MAX,
    INT32,
    NO_TAGGED_FIELDS,
    UNREADABLE,
    TopicKey,
    array_count,
    nullable_string,
    read_compact_length,
    read_count,
    read_length,
    read_nullable_string,
    read_topic_key,
    skip_tagged_fields,
    tagged_fields,
    topic_key_bytes,
)
from barnabas.wire.steps import Steps, finish

FLEXIBLE_FROM: Final = APIS[ApiKey.PRODUCE].flexible_from
LOG_START_FROM: Final = 5
ZSTD_FROM: Final = 7
RECORD_ERRORS_FROM: Final = 8
LEADER_FROM: Final = 10
TOPIC_ID_FROM: Final = 13

READ_TOGETHER: Final = 100
_ACKS_AND_TIMEOUT: Final = Struct(">hi")
_RESULT: Final = Struct(">ihqq")
_RESULT_WITH_LOG_START: Final = Struct(">ihqqq")
_PLAIN_RESULT: Final = Struct(">ihqqqBBB")
"""Flexible: no record errors, no message, no tagged fields."""
_EMPTY_ARRAY: Final = 1
_NULL: Final = 0


class ProduceBatch(NamedTuple):
    """What a request has for one partition."""

    topic: TopicKey
    partition: int
    records: Buffer | None


class Produce(NamedTuple):
    """A Produce request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    batches: list[ProduceBatch]


@dataclass(frozen=True, slots=True)
class RecordError:
    index: int
    """Of the record in its batch."""
    message: str | None


class ProduceResult(NamedTuple):
    """What became of one batch; results stand in the order of the batches."""

    error_code: int = 0
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    leader: LeaderAndEpoch = NO_LEADER


def decode_produce(version: int, body: memoryview) -> Produce:
    return finish(decode_produce_in_steps(version, body))


def decode_produce_in_steps(version: int, body: memoryview) -> Steps[Produce]:
    """The same for a request with batches for very many partitions: a step for every `READ_TOGETHER` of them."""
    try:
        return (yield from _decode(version, body))
    except UNREADABLE as problem:
        raise MalformedRequest(f"ProduceRequest version {version}: {problem}") from None


def _decode(version: int, data: memoryview) -> Steps[Produce]:
    is_flexible, has_topic_ids = version >= FLEXIBLE_FROM, version >= TOPIC_ID_FROM
    transactional_id, position = read_nullable_string(data, 0, is_flexible)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(data, position)
    topic_count, position = read_count(data, position + _ACKS_AND_TIMEOUT.size, is_flexible)
    read_size = read_compact_length if is_flexible else read_length
    left = ELEMENTS_MAX - topic_count
    batches = []
    for _ in range(topic_count):
        topic, position = read_topic_key(data, position, is_flexible, has_topic_ids)
        partition_count, position = read_count(data, position, is_flexible)
        left -= partition_count
        if left < 0:
            raise ValueError("too many partitions")
        for _ in range(partition_count):
            (index,) = INT32.unpack_from(data, position)
            length, position = read_size(data, position + INT32.size)
            records = None
            if length >= 0:
                start, position = position, position + length
                records = data[start:position]
            if is_flexible:
                position = skip_tagged_fields(data, position)
            batches.append(ProduceBatch(topic, index, records))
            if not len(batches) % READ_TOGETHER:
                yield
        if is_flexible:
            position = skip_tagged_fields(data, position)
    if is_flexible:
        skip_tagged_fields(data, position)
    return Produce(transactional_id, acks, timeout_ms, batches)


def encode_produced(
    version: int,
    batches: Sequence[ProduceBatch],
    results: Sequence[ProduceResult],
    throttle_ms: int = 0,
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The body of the answer. Batches of one topic that follow each other share its entry."""
    is_flexible, has_topic_ids = version >= FLEXIBLE_FROM, version >= TOPIC_ID_FROM
    encode_result = _encode_flexible if is_flexible else _encode_legacy
    topics = list(_by_topic(batches, results))
    encoded = [array_count(len(topics), is_flexible)]
    for topic, indexed in topics:
        encoded.append(topic_key_bytes(topic, is_flexible, has_topic_ids))
        encoded.append(array_count(len(indexed), is_flexible))
        encoded += [encode_result(version, index, result) for index, result in indexed]
        if is_flexible:
            encoded.append(NO_TAGGED_FIELDS)
    encoded.append(INT32.pack(throttle_ms))
    if is_flexible:
        if endpoints and version >= LEADER_FROM:
            encoded.append(tagged_fields([(0, encode_endpoints(endpoints))]))
        else:
            encoded.append(NO_TAGGED_FIELDS)
    return b"".join(encoded)


def produced_frame(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    batches: Sequence[ProduceBatch],
    results: Sequence[ProduceResult],
    endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The whole frame of the answer, length prefix included."""
    body = encode_produced(version, batches, results, throttle_ms, endpoints)
    return response_start(ApiKey.PRODUCE, version, correlation_id, len(body)) + body


def _by_topic(
    batches: Sequence[ProduceBatch], results: Sequence[ProduceResult]
) -> Iterator[tuple[TopicKey, list[tuple[int, ProduceResult]]]]:
    last: TopicKey | None = None
    indexed: list[tuple[int, ProduceResult]] = []
    for batch, result in zip(batches, results, strict=True):
        if batch.topic != last:
            if last is not None:
                yield last, indexed
            last, indexed = batch.topic, []
        indexed.append((batch.partition, result))
    if last is not None:
        yield last, indexed


def _encode_flexible(version: int, index: int, result: ProduceResult) -> bytes:
    code, base_offset, append_time_ms, log_start_offset, record_errors, message, leader = result
    if message is None and leader is NO_LEADER and not record_errors:
        return _PLAIN_RESULT.pack(
            index, code, base_offset, append_time_ms, log_start_offset, _EMPTY_ARRAY, _NULL, _NULL
        )
    has_leader = version >= LEADER_FROM and leader != NO_LEADER
    return b"".join(
        (
            _RESULT_WITH_LOG_START.pack(index, code, base_offset, append_time_ms, log_start_offset),
            _encode_record_errors(record_errors, is_flexible=True),
            nullable_string(message, is_compact=True),
            tagged_fields([(0, encode_leader(leader))]) if has_leader else NO_TAGGED_FIELDS,
        )
    )


def _encode_legacy(version: int, index: int, result: ProduceResult) -> bytes:
    code, base_offset, append_time_ms, log_start_offset, record_errors, message, _ = result
    if version < LOG_START_FROM:
        return _RESULT.pack(index, code, base_offset, append_time_ms)
    encoded = _RESULT_WITH_LOG_START.pack(index, code, base_offset, append_time_ms, log_start_offset)
    if version < RECORD_ERRORS_FROM:
        return encoded
    return encoded + _encode_record_errors(record_errors, is_flexible=False) + nullable_string(message, False)


def _encode_record_errors(record_errors: Sequence[RecordError], is_flexible: bool) -> bytes:
    encoded = [array_count(len(record_errors), is_flexible)]
    for error in record_errors:
        encoded += (INT32.pack(error.index), nullable_string(error.message, is_flexible))
        if is_flexible:
            encoded.append(NO_TAGGED_FIELDS)
    return b"".join(encoded)
