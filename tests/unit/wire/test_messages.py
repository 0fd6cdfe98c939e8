"""Messages of plain values, error codes, hostile lengths, and what only Produce and Fetch do."""

import subprocess
import sys
import tracemalloc
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.apis import APIS, Api, ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedRequest
from barnabas.wire.fetch import (
    TOPIC_ID_FROM,
    AbortedTransaction,
    FetchResult,
    PartitionKey,
    decode_fetch,
    encode_fetched,
)
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from barnabas.wire.fetch_response import decode_fetch_response
from barnabas.wire.leaders import LeaderAndEpoch, NodeEndpoint
from barnabas.wire.messages import (
    decode_request,
    decode_response,
    request_schema,
    response_schema,
    write_response,
)
from barnabas.wire.primitives import INT32, read_unsigned_varint, unsigned_varint
from barnabas.wire.produce import ProduceBatch, ProduceResult, decode_produce, encode_produced
from barnabas.wire.produce_request import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
from barnabas.wire.produce_response import decode_produce_response
from tests.support.two_codecs import FileRange, sent

HUGE_LENGTHS = (b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff")
TOPIC_ID = UUID(int=12)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_served_version_has_a_schema(api: Api) -> None:
    for version in range(api.version_min, api.version_max + 1):
        for schema in (request_schema(api.key, version), response_schema(api.key, version)):
            assert (schema.__api_key__, schema.__version__) == (api.key, version)
            assert schema.__flexible__ is api.is_flexible(version)


METADATA_VALUES = {
    "throttle_time_ms": 250,
    "brokers": [{"node_id": 1, "host": "klamm", "port": 9092, "rack": None}],
    "cluster_id": "castle",
    "controller_id": 1,
    "topics": [
        {
            "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "name": "letters",
            "topic_id": TOPIC_ID,
            "partitions": [],
        }
    ],
}


@pytest.mark.parametrize("version", range(14))
def test_response_written_of_values_keeps_the_fields_that_its_version_has(version: int) -> None:
    response = decode_response(ApiKey.METADATA, version, write_response(ApiKey.METADATA, version, METADATA_VALUES))
    assert response.brokers[0].host == "klamm"
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert getattr(response, "cluster_id", None) == ("castle" if version >= 2 else None)
    assert getattr(response.topics[0], "topic_id", None) == (TOPIC_ID if version >= 10 else None)
    assert getattr(response, "throttle_time", None) == (timedelta(milliseconds=250) if version >= 3 else None)


def test_response_written_without_text_that_it_needs_is_our_bug() -> None:
    with pytest.raises(KeyError, match="host"):
        write_response(ApiKey.METADATA, 1, {"brokers": [{"node_id": 1, "port": 1}], "topics": []})


def test_response_written_with_null_where_the_version_has_none_is_our_bug() -> None:
    with pytest.raises(ValueError, match="null"):
        write_response(ApiKey.METADATA, 1, {"brokers": None, "topics": []})


def test_error_code_from_a_newer_peer_is_unknown_server_error() -> None:
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    response = decode_response(ApiKey.API_VERSIONS, 0, b"\x27\x0f\0\0\0\0")
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_kafka_error_carries_code_and_message() -> None:
    error = KafkaError(ErrorCode.INVALID_CONFIG, "no such setting")
    assert (error.code, error.message) == (40, "no such setting")
    assert str(error) == "INVALID_CONFIG: no such setting"
    assert not error.code.is_retriable
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.is_retriable


@pytest.mark.parametrize("length", HUGE_LENGTHS)
@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_huge_length_in_any_place_takes_no_memory(api: Api, length: bytes) -> None:
    request_schema(api.key, api.version_max)  # imported before memory is counted
    tracemalloc.start()
    try:
        for before in range(24):
            with suppress(MalformedRequest):
                decode_request(api.key, api.version_max, memoryview(bytes(before) + length + bytes(8)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2**20


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16383, 16384, 2**28, 2**31 - 1])
def test_varint_survives_the_way(value: int) -> None:
    encoded = unsigned_varint(value)
    assert read_unsigned_varint(encoded, 0) == (value, len(encoded))


def test_produce_request_records_are_slices_of_the_frame() -> None:
    request = ProduceRequest(None, -1, 1000, [ProduceTopic("letters", ZERO_UUID, [ProducePartition(0, b"batch" * 50)])])
    frame = bytearray(b"".join(encode_produce_request(9, request)))
    records = decode_produce(9, memoryview(frame)).batches[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_produce_request_encoded_keeps_records_uncopied() -> None:
    records = memoryview(b"batch" * 50)
    request = ProduceRequest("t", 1, 5, [ProduceTopic("letters", ZERO_UUID, [ProducePartition(0, records)])])
    assert any(piece is records for piece in encode_produce_request(9, request))


def test_produce_response_names_the_leader_from_version_10() -> None:
    batch = ProduceBatch("letters", 0, None)
    result = ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LeaderAndEpoch(2, 9))
    endpoints = (NodeEndpoint(2, "klamm", 9092, "r1"),)
    for version in (9, 10):
        decoded = decode_produce_response(version, encode_produced(version, [batch], [result], endpoints=endpoints))
        leader = decoded.topics[0].partitions[0].current_leader
        assert (leader, decoded.node_endpoints) == (
            (LeaderAndEpoch(2, 9), endpoints) if version == 10 else (LeaderAndEpoch(), ())
        )


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_response_leaves_file_ranges_between_the_pieces(version: int) -> None:
    first, second = FileRange(1000), FileRange(7)
    topic = TOPIC_ID.bytes if version >= TOPIC_ID_FROM else "letters"
    results = [
        FetchResult(first, 5, 5, 0),
        FetchResult(FileRange(0), 5, 5, 0),
        FetchResult(None, 5, 5, 0),
        FetchResult(second, 5, 5, 0, [AbortedTransaction(1, 2)]),
    ]
    pieces, length = encode_fetched(
        version, [(PartitionKey(topic, index), result) for index, result in enumerate(results)]
    )
    assert [piece for piece in pieces if isinstance(piece, FileRange)] == [first, second]
    body = sent(pieces)
    assert len(body) == length
    partitions = decode_fetch_response(version, memoryview(body)).topics[0].partitions
    assert [part.records for part in partitions] == [first.read(), b"", b"", second.read()]


def test_fetch_request_with_more_partitions_than_bytes_is_malformed() -> None:
    request = FetchRequest(0, 0, 0, topics=[FetchTopic("t", ZERO_UUID, [FetchPartition(0, 0, 0, 0, 0, 0)])])
    encoded = encode_fetch_request(11, request)
    one_partition = INT32.pack(1) + bytes(28)
    assert one_partition in encoded
    with pytest.raises(MalformedRequest, match="FetchRequest version 11"):
        decode_fetch(11, memoryview(encoded.replace(one_partition, INT32.pack(20) + bytes(28))))


def test_schemas_are_imported_on_first_use() -> None:
    script = (
        "import sys, barnabas.wire.messages; print([name for name in sys.modules if 'kio.schema.metadata' in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
