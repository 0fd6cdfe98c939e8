"""The hand-written Produce and Fetch against kio: for every version the same bytes, and the same meaning of bytes.

A client writes requests and reads answers as trees of topics, which is kio's shape. A broker has flat lists of
partitions (`barnabas.wire.produce`, `fetch`), so a topic without partitions vanishes there, and entries of one topic
that follow each other become one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import MalformedRequest, MalformedResponse
from barnabas.wire.fetch import (
    NO_HIGH_WATERMARK,
    AbortedTransaction,
    EpochEndOffset,
    Fetch,
    FetchResult,
    PartitionKey,
    Wanted,
    decode_fetch,
    decode_fetch_in_steps,
    encode_fetched,
)
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, encode_fetch_request
from barnabas.wire.fetch_response import (
    FetchPartitionReply,
    FetchResponse,
    FetchTopicReply,
    decode_fetch_response,
)
from barnabas.wire.leaders import LeaderAndEpoch, NodeEndpoint
from barnabas.wire.messages import encode_request, encode_response, request_schema, response_schema
from barnabas.wire.primitives import UNREADABLE, TopicKey
from barnabas.wire.produce import (
    Produce,
    ProduceBatch,
    ProduceResult,
    RecordError,
    decode_produce,
    encode_produced,
)
from barnabas.wire.produce_request import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
from barnabas.wire.produce_response import (
    ProducePartitionReply,
    ProduceResponse,
    ProduceTopicReply,
    decode_produce_response,
)
from barnabas.wire.reader import message_reader
from barnabas.wire.steps import finish
from tests.support.wire_entities import entities

EXAMPLES = 25
PRODUCE = APIS[ApiKey.PRODUCE]
FETCH = APIS[ApiKey.FETCH]
produce_versions = pytest.mark.parametrize("version", range(PRODUCE.version_min, PRODUCE.version_max + 1))
fetch_versions = pytest.mark.parametrize("version", range(FETCH.version_min, FETCH.version_max + 1))


# --- Produce ----------------------------------------------------------------------------------------------


@produce_versions
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_produce_request_of_any_version_is_read_and_written_as_by_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(entities(request_schema(ApiKey.PRODUCE, version)))
    encoded = encode_request(message)
    assert decode_produce(version, memoryview(encoded)) == _produce(message)
    assert b"".join(encode_produce_request(version, _produce_request(message))) == encoded


@produce_versions
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_produce_response_of_any_version_is_read_and_written_as_by_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(entities(response_schema(ApiKey.PRODUCE, version)))
    encoded = encode_response(message)
    expected = ProduceResponse(
        [
            ProduceTopicReply(
                *_topic(topic), [_produce_partition(partition) for partition in topic.partition_responses]
            )
            for topic in message.responses
        ],
        _ms(message.throttle_time),
        _endpoints(message),
    )
    assert decode_produce_response(version, memoryview(encoded)) == expected
    answered = list(_answered(message.responses, "partition_responses"))
    batches = [ProduceBatch(topic, partition.index, None) for topic, partition in answered]
    results = [_produce_result(partition) for _, partition in answered]
    written = encode_produced(version, batches, results, expected.throttle_time_ms, expected.node_endpoints)
    assert written == encode_response(_merged(message, "partition_responses"))


def _produce(message: Any) -> Produce:
    batches = [
        ProduceBatch(_key(topic), partition.index, partition.records)
        for topic in message.topic_data
        for partition in topic.partition_data
    ]
    return Produce(message.transactional_id, message.acks, _ms(message.timeout), batches)


def _produce_request(message: Any) -> ProduceRequest:
    return ProduceRequest(
        message.transactional_id,
        message.acks,
        _ms(message.timeout),
        [
            ProduceTopic(
                *_topic(topic),
                [ProducePartition(partition.index, partition.records) for partition in topic.partition_data],
            )
            for topic in message.topic_data
        ],
    )


def _produce_partition(partition: Any) -> ProducePartitionReply:
    append_time = partition.log_append_time
    return ProducePartitionReply(
        partition.index,
        partition.error_code,
        partition.base_offset,
        -1 if append_time is None else round(append_time.timestamp() * 1000),
        getattr(partition, "log_start_offset", -1),
        [
            RecordError(error.batch_index, error.batch_index_error_message)
            for error in getattr(partition, "record_errors", ())
        ]
        or _empty(partition, "record_errors"),
        getattr(partition, "error_message", None),
        _leader(partition),
    )


def _produce_result(partition: Any) -> ProduceResult:
    reply = _produce_partition(partition)
    return ProduceResult(
        reply.error_code,
        reply.base_offset,
        reply.log_append_time_ms,
        reply.log_start_offset,
        reply.record_errors,
        reply.error_message,
        reply.current_leader,
    )


# --- Fetch ------------------------------------------------------------------------------------------------


@fetch_versions
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_fetch_request_of_any_version_is_read_and_written_as_by_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(entities(request_schema(ApiKey.FETCH, version)))
    encoded = encode_request(message)
    assert decode_fetch(version, memoryview(encoded)) == _fetch(message)
    assert encode_fetch_request(version, _fetch_request(message)) == encoded


@fetch_versions
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_fetch_request_is_read_in_steps_as_at_once(version: int, data: st.DataObject) -> None:
    body = memoryview(encode_request(data.draw(entities(request_schema(ApiKey.FETCH, version)))))
    assert finish(decode_fetch_in_steps(version, body)) == decode_fetch(version, body)


def _fetch(message: Any) -> Fetch:
    request = _fetch_request(message)
    wanted = [
        Wanted(
            PartitionKey(_key(topic), partition.index),
            partition.fetch_offset,
            partition.bytes_max,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
            partition.replica_directory_id.bytes,
            partition.high_watermark,
        )
        for topic, asked in zip(message.topics, request.topics, strict=True)
        for partition in asked.partitions
    ]
    forgotten = tuple(
        PartitionKey(_key(topic), index)
        for topic in getattr(message, "forgotten_topics_data", ())
        for index in topic.partitions
    )
    return Fetch(
        request.wait_ms_max,
        request.bytes_min,
        request.bytes_max,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        wanted,
        forgotten,
        request.rack_id,
        request.replica_id,
        request.replica_epoch,
        request.cluster_id,
    )


def _fetch_request(message: Any) -> FetchRequest:
    replica = getattr(message, "replica_state", message)
    return FetchRequest(
        _ms(message.max_wait),
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
        getattr(message, "session_id", 0),
        getattr(message, "session_epoch", -1),
        [FetchTopic(*_topic(topic), [_fetch_partition(part) for part in topic.partitions]) for topic in message.topics],
        [
            ForgottenTopic(*_topic(topic), list(topic.partitions))
            for topic in getattr(message, "forgotten_topics_data", ())
        ]
        or (),
        getattr(message, "rack_id", ""),
        replica.replica_id,
        getattr(replica, "replica_epoch", -1),
        getattr(message, "cluster_id", None),
    )


def _fetch_partition(partition: Any) -> FetchPartition:
    return FetchPartition(
        partition.partition,
        getattr(partition, "current_leader_epoch", -1),
        partition.fetch_offset,
        getattr(partition, "last_fetched_epoch", -1),
        getattr(partition, "log_start_offset", -1),
        partition.partition_max_bytes,
        getattr(partition, "replica_directory_id", None) or ZERO_UUID,
        getattr(partition, "high_watermark", NO_HIGH_WATERMARK),
    )


@fetch_versions
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_fetch_response_of_any_version_is_read_and_written_as_by_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(entities(response_schema(ApiKey.FETCH, version)))
    encoded = encode_response(message)
    expected = FetchResponse(
        [
            FetchTopicReply(*_topic(topic), [_fetch_partition_reply(partition) for partition in topic.partitions])
            for topic in message.responses
        ],
        getattr(message, "error_code", 0),
        getattr(message, "session_id", 0),
        _ms(message.throttle_time),
        _endpoints(message),
    )
    assert decode_fetch_response(version, memoryview(encoded)) == expected
    written = encode_fetched(
        version,
        [
            (PartitionKey(topic, partition.partition_index), _fetch_result(partition))
            for topic, partition in _answered(message.responses, "partitions")
        ],
        error_code=expected.error_code,
        session_id=expected.session_id,
        throttle_ms=expected.throttle_time_ms,
        endpoints=expected.node_endpoints,
    )
    body = b"".join(written.pieces)  # type: ignore[arg-type]
    assert len(body) == written.length
    assert body == encode_response(_merged(_as_sent(message), "partitions"))


def _fetch_result(partition: Any) -> FetchResult:
    reply = _fetch_partition_reply(partition)
    assert reply.records is None or isinstance(reply.records, bytes)
    return FetchResult(
        reply.records,
        reply.high_watermark,
        reply.last_stable_offset,
        reply.log_start_offset,
        reply.aborted_transactions,
        reply.error_code,
        reply.diverging_epoch,
        reply.current_leader,
        reply.preferred_read_replica,
    )


def _fetch_partition_reply(partition: Any) -> FetchPartitionReply:
    aborted = partition.aborted_transactions
    diverging = getattr(partition, "diverging_epoch", None)
    return FetchPartitionReply(
        partition.partition_index,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
        getattr(partition, "log_start_offset", -1),
        partition.records,
        None
        if aborted is None
        else tuple(AbortedTransaction(entry.producer_id, entry.first_offset) for entry in aborted),
        getattr(partition, "preferred_read_replica", -1),
        EpochEndOffset(diverging.epoch, diverging.end_offset) if diverging else EpochEndOffset(),
        _leader(partition),
    )


def _as_sent(message: Any) -> Any:
    """Null records are sent as empty ones, and a snapshot id, which belongs to Kafka's metadata log, never."""
    return replace(
        message,
        responses=tuple(
            replace(topic, partitions=tuple(_partition_as_sent(partition) for partition in topic.partitions))
            for topic in message.responses
        ),
    )


def _partition_as_sent(partition: Any) -> Any:
    partition = replace(partition, records=partition.records or b"")
    return (
        replace(partition, snapshot_id=type(partition.snapshot_id)())
        if hasattr(partition, "snapshot_id")
        else partition
    )


# --- any bytes --------------------------------------------------------------------------------------------


@given(st.sampled_from(range(PRODUCE.version_min, PRODUCE.version_max + 1)), st.data())
@settings(max_examples=200)
def test_damaged_produce_request_is_what_the_message_reader_makes_of_it(version: int, data: st.DataObject) -> None:
    schema = request_schema(ApiKey.PRODUCE, version)
    damaged = data.draw(_damaged(encode_request(data.draw(entities(schema)))))
    expected = _outcome(lambda: _produce(message_reader(schema)(damaged, 0)[0]), *UNREADABLE)
    assert _outcome(lambda: decode_produce(version, damaged), MalformedRequest) == expected


@given(st.sampled_from(range(FETCH.version_min, FETCH.version_max + 1)), st.data())
@settings(max_examples=200)
def test_damaged_fetch_request_is_what_the_message_reader_makes_of_it(version: int, data: st.DataObject) -> None:
    schema = request_schema(ApiKey.FETCH, version)
    damaged = data.draw(_damaged(encode_request(data.draw(entities(schema)))))
    expected = _outcome(lambda: _fetch(message_reader(schema)(damaged, 0)[0]), *UNREADABLE)
    assert _outcome(lambda: decode_fetch(version, damaged), MalformedRequest) == expected


@given(st.sampled_from(range(PRODUCE.version_min, PRODUCE.version_max + 1)), st.data())
@settings(max_examples=100)
def test_damaged_produce_response_is_a_message_or_malformed(version: int, data: st.DataObject) -> None:
    damaged = data.draw(_damaged(encode_response(data.draw(entities(response_schema(ApiKey.PRODUCE, version))))))
    outcome = _outcome(lambda: decode_produce_response(version, damaged), MalformedResponse)
    assert outcome is None or isinstance(outcome, ProduceResponse)


@given(st.sampled_from(range(FETCH.version_min, FETCH.version_max + 1)), st.data())
@settings(max_examples=100)
def test_damaged_fetch_response_is_a_message_or_malformed(version: int, data: st.DataObject) -> None:
    damaged = data.draw(_damaged(encode_response(data.draw(entities(response_schema(ApiKey.FETCH, version))))))
    outcome = _outcome(lambda: decode_fetch_response(version, damaged), MalformedResponse)
    assert outcome is None or isinstance(outcome, FetchResponse)


def _outcome(decode: Callable[[], Any], *refusals: type[Exception]) -> Any:
    """What was decoded, or None when it was refused."""
    try:
        return decode()
    except refusals:
        return None


@given(st.sampled_from(range(PRODUCE.version_min, PRODUCE.version_max + 1)), st.data())
@settings(max_examples=100)
def test_produce_request_cut_short_is_malformed(version: int, data: st.DataObject) -> None:
    encoded = encode_request(data.draw(entities(request_schema(ApiKey.PRODUCE, version))))
    with pytest.raises(MalformedRequest):
        decode_produce(version, memoryview(encoded)[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.sampled_from(range(FETCH.version_min, FETCH.version_max + 1)), st.data())
@settings(max_examples=100)
def test_fetch_request_cut_short_is_malformed(version: int, data: st.DataObject) -> None:
    encoded = encode_request(data.draw(entities(request_schema(ApiKey.FETCH, version))))
    with pytest.raises(MalformedRequest):
        decode_fetch(version, memoryview(encoded)[: data.draw(st.integers(0, len(encoded) - 1))])


@st.composite
def _damaged(draw: st.DrawFn, encoded: bytes) -> memoryview:
    damaged = bytearray(encoded)
    for position in draw(st.lists(st.integers(0, len(encoded) - 1), max_size=4)):
        damaged[position] = draw(st.integers(0, 255))
    return memoryview(bytes(damaged[: draw(st.integers(len(encoded) // 2, len(encoded)))]))


# --- from kio's shapes to ours ----------------------------------------------------------------------------


def _ms(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def _topic(topic: Any) -> tuple[str, UUID]:
    name = getattr(topic, "name", None) or getattr(topic, "topic", "")
    return name, getattr(topic, "topic_id", None) or ZERO_UUID


def _key(topic: Any) -> TopicKey:
    """How a broker names the topic."""
    name, topic_id = _topic(topic)
    return topic_id.bytes if hasattr(topic, "topic_id") else name


def _answered(topics: Any, partitions: str) -> Iterator[tuple[TopicKey, Any]]:
    """The partitions of an answer, each with its topic, as a broker has them."""
    for topic in topics:
        for partition in getattr(topic, partitions):
            yield _key(topic), partition


def _merged(message: Any, partitions: str) -> Any:
    """The answer as a broker writes it."""
    topics: list[Any] = []
    for topic in message.responses:
        if topics and _key(topics[-1]) == _key(topic):
            before = topics.pop()
            topic = replace(before, **{partitions: getattr(before, partitions) + getattr(topic, partitions)})
        if getattr(topic, partitions):
            topics.append(topic)
    return replace(message, responses=tuple(topics))


def _leader(partition: Any) -> LeaderAndEpoch:
    leader = getattr(partition, "current_leader", None)
    return LeaderAndEpoch(leader.leader_id, leader.leader_epoch) if leader else LeaderAndEpoch()


def _endpoints(message: Any) -> tuple[NodeEndpoint, ...]:
    return tuple(
        NodeEndpoint(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
        for endpoint in getattr(message, "node_endpoints", ())
    )


def _empty(message: Any, name: str) -> Any:
    """What stands for no elements: a list that was read, or the default where the version has no such field."""
    return [] if hasattr(message, name) else ()
