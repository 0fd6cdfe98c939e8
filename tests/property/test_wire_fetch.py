"""The hand-written Fetch against kio: for every version the same bytes, and the same meaning of bytes."""

from dataclasses import replace
from typing import Any

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
from barnabas.wire.fetch_response import FetchPartitionReply, FetchResponse, FetchTopicReply, decode_fetch_response
from barnabas.wire.messages import encode_request, encode_response, request_schema, response_schema
from barnabas.wire.primitives import UNREADABLE
from barnabas.wire.reader import message_reader
from barnabas.wire.steps import finish
from tests.support import kio_shapes
from tests.support.wire_entities import entities

FETCH = APIS[ApiKey.FETCH]
fetch_versions = pytest.mark.parametrize("version", range(FETCH.version_min, FETCH.version_max + 1))


# --- Fetch ------------------------------------------------------------------------------------------------


@fetch_versions
@given(data=st.data())
@settings(max_examples=kio_shapes.EXAMPLES)
def test_fetch_request_of_any_version_is_read_and_written_as_by_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(entities(request_schema(ApiKey.FETCH, version)))
    encoded = encode_request(message)
    assert decode_fetch(version, memoryview(encoded)) == _fetch(message)
    assert encode_fetch_request(version, _fetch_request(message)) == encoded


@fetch_versions
@given(data=st.data())
@settings(max_examples=kio_shapes.EXAMPLES)
def test_fetch_request_is_read_in_steps_as_at_once(version: int, data: st.DataObject) -> None:
    body = memoryview(encode_request(data.draw(entities(request_schema(ApiKey.FETCH, version)))))
    assert finish(decode_fetch_in_steps(version, body)) == decode_fetch(version, body)


def _fetch(message: Any) -> Fetch:
    request = _fetch_request(message)
    wanted = [
        Wanted(
            PartitionKey(kio_shapes.topic_key(topic), partition.index),
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
        PartitionKey(kio_shapes.topic_key(topic), index)
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
        kio_shapes.milliseconds(message.max_wait),
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
        getattr(message, "session_id", 0),
        getattr(message, "session_epoch", -1),
        [
            FetchTopic(*kio_shapes.name_and_id(topic), [_fetch_partition(part) for part in topic.partitions])
            for topic in message.topics
        ],
        [
            ForgottenTopic(*kio_shapes.name_and_id(topic), list(topic.partitions))
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
@settings(max_examples=kio_shapes.EXAMPLES)
def test_fetch_response_of_any_version_is_read_and_written_as_by_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(entities(response_schema(ApiKey.FETCH, version)))
    encoded = encode_response(message)
    expected = FetchResponse(
        [
            FetchTopicReply(
                *kio_shapes.name_and_id(topic), [_fetch_partition_reply(partition) for partition in topic.partitions]
            )
            for topic in message.responses
        ],
        getattr(message, "error_code", 0),
        getattr(message, "session_id", 0),
        kio_shapes.milliseconds(message.throttle_time),
        kio_shapes.endpoints_of(message),
    )
    assert decode_fetch_response(version, memoryview(encoded)) == expected
    written = encode_fetched(
        version,
        [
            (PartitionKey(topic, partition.partition_index), _fetch_result(partition))
            for topic, partition in kio_shapes.answered_partitions(message.responses, "partitions")
        ],
        error_code=expected.error_code,
        session_id=expected.session_id,
        throttle_ms=expected.throttle_time_ms,
        endpoints=expected.node_endpoints,
    )
    body = b"".join(written.pieces)  # type: ignore[arg-type]
    assert len(body) == written.length
    assert body == encode_response(kio_shapes.merged_answer(_as_sent(message), "partitions"))


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
        kio_shapes.leader_of(partition),
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


@given(st.sampled_from(range(FETCH.version_min, FETCH.version_max + 1)), st.data())
@settings(max_examples=200)
def test_damaged_fetch_request_is_what_the_message_reader_makes_of_it(version: int, data: st.DataObject) -> None:
    schema = request_schema(ApiKey.FETCH, version)
    damaged = data.draw(kio_shapes.damaged_bytes(encode_request(data.draw(entities(schema)))))
    expected = kio_shapes.outcome_of(lambda: _fetch(message_reader(schema)(damaged, 0)[0]), *UNREADABLE)
    assert kio_shapes.outcome_of(lambda: decode_fetch(version, damaged), MalformedRequest) == expected


@given(st.sampled_from(range(FETCH.version_min, FETCH.version_max + 1)), st.data())
@settings(max_examples=100)
def test_damaged_fetch_response_is_a_message_or_malformed(version: int, data: st.DataObject) -> None:
    damaged = data.draw(
        kio_shapes.damaged_bytes(encode_response(data.draw(entities(response_schema(ApiKey.FETCH, version)))))
    )
    outcome = kio_shapes.outcome_of(lambda: decode_fetch_response(version, damaged), MalformedResponse)
    assert outcome is None or isinstance(outcome, FetchResponse)


@given(st.sampled_from(range(FETCH.version_min, FETCH.version_max + 1)), st.data())
@settings(max_examples=100)
def test_fetch_request_cut_short_is_malformed(version: int, data: st.DataObject) -> None:
    encoded = encode_request(data.draw(entities(request_schema(ApiKey.FETCH, version))))
    with pytest.raises(MalformedRequest):
        decode_fetch(version, memoryview(encoded)[: data.draw(st.integers(0, len(encoded) - 1))])
