"""The hand-written Produce and Fetch against kio: for every version the same bytes, and the same meaning of bytes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.handlers.fetch_attempt import wanted_of
from barnabas.broker.handlers.wide_fetch import decode_wide_fetch
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import MalformedRequest, MalformedResponse
from barnabas.wire.fetch_request import (
    NO_HIGH_WATERMARK,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    decode_fetch_request,
    encode_fetch_request,
)
from barnabas.wire.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionReply,
    FetchResponse,
    FetchTopicReply,
    decode_fetch_response,
    encode_fetch_response,
)
from barnabas.wire.leaders import LeaderAndEpoch, NodeEndpoint
from barnabas.wire.messages import encode_request, encode_response, request_schema, response_schema
from barnabas.wire.primitives import UNREADABLE
from barnabas.wire.produce_request import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_request,
    encode_produce_request,
)
from barnabas.wire.produce_response import (
    ProducePartitionReply,
    ProduceResponse,
    ProduceTopicReply,
    RecordError,
    decode_produce_response,
    encode_produce_response,
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
    expected = _produce_request(message)
    assert decode_produce_request(version, memoryview(encoded)) == expected
    assert b"".join(encode_produce_request(version, expected)) == encoded


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
    assert encode_produce_response(version, expected) == encoded


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


# --- Fetch ------------------------------------------------------------------------------------------------


@fetch_versions
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_fetch_request_of_any_version_is_read_and_written_as_by_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(entities(request_schema(ApiKey.FETCH, version)))
    encoded = encode_request(message)
    expected = _fetch_request(message)
    assert _decode_fetch_request(version, memoryview(encoded)) == expected
    assert encode_fetch_request(version, expected) == encoded


@fetch_versions
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_wide_fetch_request_is_read_as_any_other(version: int, data: st.DataObject) -> None:
    body = memoryview(encode_request(data.draw(entities(request_schema(ApiKey.FETCH, version)))))
    read, expected = finish(decode_wide_fetch(version, body)), decode_fetch_request(version, body)
    assert [(key, one.wanted) for key, one in wanted_of(read)] == [
        (key, one.wanted) for key, one in wanted_of(expected)
    ]
    assert [(one.name, one.topic_id, list(one.partitions)) for one in read.forgotten_topics] == [
        (one.name, one.topic_id, list(one.partitions)) for one in expected.forgotten_topics
    ]
    names = ("wait_ms_max", "bytes_min", "bytes_max", "isolation_level", "session_id", "session_epoch", "replica_id")
    assert [getattr(read, name) for name in names] == [getattr(expected, name) for name in names]


def _decode_fetch_request(version: int, body: memoryview) -> FetchRequest:
    decoded = decode_fetch_request(version, body)
    decoded.forgotten_topics = decoded.forgotten_topics or ()  # either stands for none
    return decoded


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
    written = encode_fetch_response(version, expected)
    body = b"".join(written.pieces)  # type: ignore[arg-type]
    assert len(body) == written.length
    assert body == encode_response(_without_snapshot_ids(message))


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


def _without_snapshot_ids(message: Any) -> Any:
    """Barnabas never sends a snapshot id: it belongs to Kafka's metadata log."""
    if message.__version__ < FETCH.flexible_from:
        return message
    return replace(
        message,
        responses=tuple(
            replace(
                topic,
                partitions=tuple(
                    replace(partition, snapshot_id=type(partition.snapshot_id)()) for partition in topic.partitions
                ),
            )
            for topic in message.responses
        ),
    )


# --- any bytes --------------------------------------------------------------------------------------------


@given(st.sampled_from(range(PRODUCE.version_min, PRODUCE.version_max + 1)), st.data())
@settings(max_examples=200)
def test_damaged_produce_request_is_what_the_message_reader_makes_of_it(version: int, data: st.DataObject) -> None:
    schema = request_schema(ApiKey.PRODUCE, version)
    damaged = data.draw(_damaged(encode_request(data.draw(entities(schema)))))
    expected = _outcome(lambda: _produce_request(message_reader(schema)(damaged, 0)[0]), *UNREADABLE)
    assert _outcome(lambda: decode_produce_request(version, damaged), MalformedRequest) == expected


@given(st.sampled_from(range(FETCH.version_min, FETCH.version_max + 1)), st.data())
@settings(max_examples=200)
def test_damaged_fetch_request_is_what_the_message_reader_makes_of_it(version: int, data: st.DataObject) -> None:
    schema = request_schema(ApiKey.FETCH, version)
    damaged = data.draw(_damaged(encode_request(data.draw(entities(schema)))))
    expected = _outcome(lambda: _fetch_request(message_reader(schema)(damaged, 0)[0]), *UNREADABLE)
    assert _outcome(lambda: _decode_fetch_request(version, damaged), MalformedRequest) == expected


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
        decode_produce_request(version, memoryview(encoded)[: data.draw(st.integers(0, len(encoded) - 1))])


@given(st.sampled_from(range(FETCH.version_min, FETCH.version_max + 1)), st.data())
@settings(max_examples=100)
def test_fetch_request_cut_short_is_malformed(version: int, data: st.DataObject) -> None:
    encoded = encode_request(data.draw(entities(request_schema(ApiKey.FETCH, version))))
    with pytest.raises(MalformedRequest):
        decode_fetch_request(version, memoryview(encoded)[: data.draw(st.integers(0, len(encoded) - 1))])


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
