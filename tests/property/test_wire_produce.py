"""The hand-written Produce against kio: for every version the same bytes, and the same meaning of bytes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import MalformedRequest, MalformedResponse
from barnabas.wire.messages import encode_request, encode_response, request_schema, response_schema
from barnabas.wire.primitives import UNREADABLE
from barnabas.wire.produce import Produce, ProduceBatch, ProduceResult, RecordError, decode_produce, encode_produced
from barnabas.wire.produce_request import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
from barnabas.wire.produce_response import (
    ProducePartitionReply,
    ProduceResponse,
    ProduceTopicReply,
    decode_produce_response,
)
from barnabas.wire.reader import message_reader
from tests.support import kio_shapes
from tests.support.wire_entities import entities

PRODUCE = APIS[ApiKey.PRODUCE]
produce_versions = pytest.mark.parametrize("version", range(PRODUCE.version_min, PRODUCE.version_max + 1))


# --- Produce ----------------------------------------------------------------------------------------------


@produce_versions
@given(data=st.data())
@settings(max_examples=kio_shapes.EXAMPLES)
def test_produce_request_of_any_version_is_read_and_written_as_by_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(entities(request_schema(ApiKey.PRODUCE, version)))
    encoded = encode_request(message)
    assert decode_produce(version, memoryview(encoded)) == _produce(message)
    assert b"".join(encode_produce_request(version, _produce_request(message))) == encoded


@produce_versions
@given(data=st.data())
@settings(max_examples=kio_shapes.EXAMPLES)
def test_produce_response_of_any_version_is_read_and_written_as_by_kio(version: int, data: st.DataObject) -> None:
    message = data.draw(entities(response_schema(ApiKey.PRODUCE, version)))
    encoded = encode_response(message)
    expected = ProduceResponse(
        [
            ProduceTopicReply(
                *kio_shapes.name_and_id(topic),
                [_produce_partition(partition) for partition in topic.partition_responses],
            )
            for topic in message.responses
        ],
        kio_shapes.milliseconds(message.throttle_time),
        kio_shapes.endpoints_of(message),
    )
    assert decode_produce_response(version, memoryview(encoded)) == expected
    answered = list(kio_shapes.answered_partitions(message.responses, "partition_responses"))
    batches = [ProduceBatch(topic, partition.index, None) for topic, partition in answered]
    results = [_produce_result(partition) for _, partition in answered]
    written = encode_produced(version, batches, results, expected.throttle_time_ms, expected.node_endpoints)
    assert written == encode_response(kio_shapes.merged_answer(message, "partition_responses"))


def _produce(message: Any) -> Produce:
    batches = [
        ProduceBatch(kio_shapes.topic_key(topic), partition.index, partition.records)
        for topic in message.topic_data
        for partition in topic.partition_data
    ]
    return Produce(message.transactional_id, message.acks, kio_shapes.milliseconds(message.timeout), batches)


def _produce_request(message: Any) -> ProduceRequest:
    return ProduceRequest(
        message.transactional_id,
        message.acks,
        kio_shapes.milliseconds(message.timeout),
        [
            ProduceTopic(
                *kio_shapes.name_and_id(topic),
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
        or kio_shapes.empty_field(partition, "record_errors"),
        getattr(partition, "error_message", None),
        kio_shapes.leader_of(partition),
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


# --- any bytes --------------------------------------------------------------------------------------------


@given(st.sampled_from(range(PRODUCE.version_min, PRODUCE.version_max + 1)), st.data())
@settings(max_examples=200)
def test_damaged_produce_request_is_what_the_message_reader_makes_of_it(version: int, data: st.DataObject) -> None:
    schema = request_schema(ApiKey.PRODUCE, version)
    damaged = data.draw(kio_shapes.damaged_bytes(encode_request(data.draw(entities(schema)))))
    expected = kio_shapes.outcome_of(lambda: _produce(message_reader(schema)(damaged, 0)[0]), *UNREADABLE)
    assert kio_shapes.outcome_of(lambda: decode_produce(version, damaged), MalformedRequest) == expected


@given(st.sampled_from(range(PRODUCE.version_min, PRODUCE.version_max + 1)), st.data())
@settings(max_examples=100)
def test_damaged_produce_response_is_a_message_or_malformed(version: int, data: st.DataObject) -> None:
    damaged = data.draw(
        kio_shapes.damaged_bytes(encode_response(data.draw(entities(response_schema(ApiKey.PRODUCE, version)))))
    )
    outcome = kio_shapes.outcome_of(lambda: decode_produce_response(version, damaged), MalformedResponse)
    assert outcome is None or isinstance(outcome, ProduceResponse)


@given(st.sampled_from(range(PRODUCE.version_min, PRODUCE.version_max + 1)), st.data())
@settings(max_examples=100)
def test_produce_request_cut_short_is_malformed(version: int, data: st.DataObject) -> None:
    encoded = encode_request(data.draw(entities(request_schema(ApiKey.PRODUCE, version))))
    with pytest.raises(MalformedRequest):
        decode_produce(version, memoryview(encoded)[: data.draw(st.integers(0, len(encoded) - 1))])
