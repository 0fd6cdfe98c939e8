"""Texts, counts and tagged fields at their limits: what comes in is bounded, and what goes out always fits."""

from dataclasses import Field, fields
from typing import Any

import pytest
from kio.serial._introspect import EntityField, EntityTupleField, PrimitiveField, classify_field, get_schema_field_type

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.apis import APIS, Api, ApiKey
from barnabas.wire.commit import TOPIC_ID_FROM as COMMIT_TOPIC_ID_FROM
from barnabas.wire.commit import encode_committed
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.fetch import TOPIC_ID_FROM as FETCH_TOPIC_ID_FROM
from barnabas.wire.fetch import FetchResult, PartitionKey, encode_fetched
from barnabas.wire.join_group import encode_join_group_response
from barnabas.wire.messages import REQUEST_ELEMENTS_MAX, decode_request, response_schema
from barnabas.wire.primitives import (
    TEXT_BYTES_MAX,
    nullable_string,
    read_nullable_string,
    read_tagged_fields,
    tagged_fields,
    unsigned_varint,
)
from barnabas.wire.produce import TOPIC_ID_FROM as PRODUCE_TOPIC_ID_FROM
from barnabas.wire.produce import ProduceBatch, ProduceResult, RecordError, encode_produced
from barnabas.wire.reader import message_reader
from barnabas.wire.steps import finish
from barnabas.wire.sync_group import encode_sync_group_response
from barnabas.wire.values import write_values, write_values_in_steps

LONG = "\ufffd" * 20_000
"""What twenty thousand bytes that are not UTF-8 are read as: sixty thousand bytes."""
VERSIONS = [(api, version) for api in APIS.values() for version in range(api.version_min, api.version_max + 1)]

WRITTEN = [(api, version) for api, version in VERSIONS if api.key not in (ApiKey.PRODUCE, ApiKey.FETCH)]
"""By `values`; these two are written by hand."""


# -- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_compact", [False, True])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a" * TEXT_BYTES_MAX, "a" * TEXT_BYTES_MAX),
        ("a" * (TEXT_BYTES_MAX + 1), "a" * TEXT_BYTES_MAX),
        (LONG, LONG[: TEXT_BYTES_MAX // 3]),
        ("a" + LONG, ("a" + LONG)[: 1 + (TEXT_BYTES_MAX - 1) // 3]),
        ("🦓" * 10_000, "🦓" * (TEXT_BYTES_MAX // 4)),
        ("a\ud800b", "a?b"),
        ("\udcff" * 40_000, "?" * TEXT_BYTES_MAX),
    ],
    ids=["longest", "one more", "three bytes", "three bytes and one", "four bytes", "surrogate", "many surrogates"],
)
def test_text_is_written_up_to_the_last_character_that_fits(text: str, kept: str, is_compact: bool) -> None:
    written = nullable_string(text, is_compact)
    assert read_nullable_string(written, 0, is_compact) == (kept, len(written))


def test_compact_text_that_no_legacy_length_could_tell_is_refused() -> None:
    """As Kafka's own reader does, on both sides."""
    encoded = b"a" * (TEXT_BYTES_MAX + 1)
    with pytest.raises(ValueError, match="32768"):
        read_nullable_string(unsigned_varint(len(encoded) + 1) + encoded, 0, True)


@pytest.mark.parametrize(("api", "version"), WRITTEN, ids=lambda one: one.name if isinstance(one, Api) else str(one))
def test_answer_of_any_version_takes_texts_of_any_length(api: Api, version: int) -> None:
    schema = response_schema(api.key, version)
    written = write_values(schema, _with_texts(schema, LONG))
    _, position = message_reader(schema)(memoryview(written), 0)
    assert position == len(written)


def _with_texts(schema: Any, text: str) -> dict[str, Any]:
    return {field.name: _value(field, text) for field in fields(schema) if _value(field, text) is not None}


def _value(field: "Field[Any]", text: str) -> Any:
    match classify_field(field):
        case EntityField(schema):
            return _with_texts(schema, text)
        case EntityTupleField(schema):
            return [_with_texts(schema, text)]
        case PrimitiveField():
            return {"string": text, "bytes": b"x", "records": b"x"}.get(get_schema_field_type(field))
        case _:
            return [text] if get_schema_field_type(field) == "string" else []


@pytest.mark.parametrize("version", [version for api, version in VERSIONS if api.key == ApiKey.PRODUCE])
def test_produce_answer_takes_texts_of_any_length(version: int) -> None:
    batch = ProduceBatch(ZERO_UUID.bytes if version >= PRODUCE_TOPIC_ID_FROM else LONG, 0, None)
    result = ProduceResult(ErrorCode.INVALID_RECORD, record_errors=[RecordError(0, LONG)], error_message=LONG)
    _read_whole(ApiKey.PRODUCE, version, encode_produced(version, [batch], [result]))


@pytest.mark.parametrize("version", [version for api, version in VERSIONS if api.key == ApiKey.FETCH])
def test_fetch_answer_takes_texts_of_any_length(version: int) -> None:
    key = PartitionKey(ZERO_UUID.bytes if version >= FETCH_TOPIC_ID_FROM else LONG, 0)
    pieces, length = encode_fetched(version, [(key, FetchResult(None))])
    body = b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes))
    assert len(body) == length
    _read_whole(ApiKey.FETCH, version, body)


@pytest.mark.parametrize("version", range(10))
def test_join_answer_takes_texts_of_any_length(version: int) -> None:
    body = encode_join_group_response(version, ErrorCode.NONE, 1, LONG, LONG, LONG, LONG, [(LONG, LONG, b"x")])
    _read_whole(ApiKey.JOIN_GROUP, version, body)


@pytest.mark.parametrize("version", range(6))
def test_sync_answer_takes_texts_of_any_length(version: int) -> None:
    _read_whole(ApiKey.SYNC_GROUP, version, encode_sync_group_response(version, ErrorCode.NONE, LONG, LONG, b"x"))


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_answer_takes_texts_of_any_length(version: int) -> None:
    topic = ZERO_UUID.bytes if version >= COMMIT_TOPIC_ID_FROM else LONG
    _read_whole(ApiKey.OFFSET_COMMIT, version, encode_committed(version, [(topic, [(0, ErrorCode.NONE)])]))


def _read_whole(api_key: ApiKey, version: int, body: bytes) -> None:
    _, position = message_reader(response_schema(api_key, version))(memoryview(body), 0)
    assert position == len(body)


# -- counts ----------------------------------------------------------------------------------------------------------


def test_request_of_too_many_elements_is_malformed_before_they_are_read() -> None:
    empty_names = b"\x01\x00"
    count = REQUEST_ELEMENTS_MAX + 1
    body = unsigned_varint(count + 1) + empty_names * count + b"\0\0\0\0"
    with pytest.raises(MalformedRequest, match="elements"):
        decode_request(ApiKey.METADATA, 9, memoryview(body))


def test_elements_of_all_arrays_count_together() -> None:
    half = REQUEST_ELEMENTS_MAX // 2
    partitions = unsigned_varint(half + 1) + bytes(4) * half + b"\0"
    topic = b"\x02a" + partitions
    assert len(decode_request(ApiKey.DESCRIBE_PRODUCERS, 0, memoryview(b"\x02" + topic + b"\0")).topics) == 1
    with pytest.raises(MalformedRequest, match="elements"):
        decode_request(ApiKey.DESCRIBE_PRODUCERS, 0, memoryview(b"\x03" + topic * 2 + b"\0"))


def test_tagged_fields_are_bounded() -> None:
    assert len(read_tagged_fields(tagged_fields([(tag, b"") for tag in range(1000)]), 0)[0]) == 1000
    with pytest.raises(ValueError, match="tagged fields"):
        read_tagged_fields(tagged_fields([(tag, b"") for tag in range(1001)]), 0)


# -- answers that are made while they are written ----------------------------------------------------------------------


def test_array_from_a_generator_is_written_as_a_list_is() -> None:
    for version in (1, 12):
        schema = response_schema(ApiKey.METADATA, version)
        topics = [
            {"name": f"t{number}", "partitions": [{"replica_nodes": [1], "isr_nodes": [1], "offline_replicas": []}] * 2}
            for number in range(300)
        ]
        lazy = ({**topic, "partitions": iter(topic["partitions"])} for topic in topics)
        rest = {"brokers": [], "cluster_id": None, "controller_id": 1}
        assert write_values(schema, {**rest, "topics": lazy}) == write_values(schema, {**rest, "topics": topics})


def test_long_answer_is_written_element_by_element() -> None:
    made: list[int] = []

    def topics() -> Any:
        for number in range(100):
            made.append(number)
            yield {"name": "t", "partitions": []}

    values = {"brokers": [], "cluster_id": None, "topics": topics()}
    steps = write_values_in_steps(response_schema(ApiKey.METADATA, 12), values)
    for _ in range(10):
        next(steps)
    assert len(made) == 10
    finish(steps)
    assert len(made) == 100
