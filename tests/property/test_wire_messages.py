"""Any message of any version through reader and writers; any bytes at all."""

from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import _serialize, entity_reader

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import MalformedRequest, MalformedResponse
from barnabas.wire.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_schema,
    response_schema,
)
from barnabas.wire.primitives import UNREADABLE, unsigned_varint
from barnabas.wire.reader import message_reader
from barnabas.wire.values import write_values
from tests.support.wire_entities import entities

VERSIONS = [
    (api.key.value, version) for api in APIS.values() for version in range(api.version_min, api.version_max + 1)
]
SCHEMAS = [schema(key, version) for schema in (request_schema, response_schema) for key, version in VERSIONS]
WRITTEN_SCHEMAS = [schema for schema in SCHEMAS if schema.__api_key__ not in (ApiKey.PRODUCE, ApiKey.FETCH)]
FLEXIBLE_SCHEMAS = [schema for schema in SCHEMAS if schema.__flexible__]


@given(st.sampled_from(VERSIONS).flatmap(lambda row: st.tuples(st.just(row), entities(request_schema(*row)))))
@settings(max_examples=150)
def test_request_encoded_and_decoded_is_the_same(case: tuple[tuple[int, int], Any]) -> None:
    (api_key, version), request = case
    assert decode_request(api_key, version, memoryview(encode_request(request))) == request


@given(st.sampled_from(VERSIONS).flatmap(lambda row: st.tuples(st.just(row), entities(response_schema(*row)))))
@settings(max_examples=150)
def test_response_encoded_and_decoded_is_the_same(case: tuple[tuple[int, int], Any]) -> None:
    (api_key, version), response = case
    assert decode_response(api_key, version, memoryview(encode_response(response))) == response


@given(st.sampled_from(WRITTEN_SCHEMAS).flatmap(entities))
@settings(max_examples=300)
def test_plain_values_are_written_as_kio_writes_the_message(message: Any) -> None:
    assert write_values(type(message), _plain(message)) == encode_response(message)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        plain = {}
        for field in fields(value):
            duration = getattr(value, field.name)
            key = f"{field.name}_ms" if isinstance(duration, timedelta) else field.name
            plain[key] = _plain(duration)
        return plain
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    return [_plain(element) for element in value] if isinstance(value, tuple) else value


@given(st.sampled_from(SCHEMAS).flatmap(entities))
@settings(max_examples=150)
def test_message_is_read_as_by_the_native_reader(message: Any) -> None:
    encoded = encode_response(message)
    assert message_reader(type(message))(memoryview(encoded), 0) == entity_reader(type(message))(encoded, 0)


# The native reader may abort the process on bytes like these, so it is not asked about them.
@given(st.sampled_from(SCHEMAS).flatmap(entities), st.data())
@settings(max_examples=200)
def test_damaged_message_is_unreadable_or_reads_the_same_when_written_again(message: Any, data: st.DataObject) -> None:
    damaged = bytearray(encode_response(message))
    for position in data.draw(st.lists(st.integers(0, max(len(damaged) - 1, 0)), max_size=3)):
        damaged[position : position + 1] = bytes([data.draw(st.integers(0, 255))])
    read = message_reader(type(message))
    try:
        found, _ = read(memoryview(damaged), 0)
    except (*UNREADABLE, OverflowError):
        return
    assert read(encode_response(found), 0)[0] == found


@given(st.sampled_from(FLEXIBLE_SCHEMAS).flatmap(entities), st.data())
@settings(max_examples=150)
def test_unknown_tagged_field_anywhere_is_skipped(message: Any, data: st.DataObject) -> None:
    encoded = _encode_with_unknown_tags(message, data.draw(st.binary(max_size=200)))
    decode, schema = (
        (decode_request, request_schema) if message.__type__.name == "request" else (decode_response, response_schema)
    )
    api_key, version = message.__api_key__, message.__version__
    assert schema(api_key, version) is type(message)
    assert decode(api_key, version, memoryview(encoded)) == message


@given(st.sampled_from(VERSIONS), st.binary(max_size=300))
@settings(max_examples=150)
def test_random_bytes_are_a_message_or_malformed(row: tuple[int, int], body: bytes) -> None:
    for decode, schema, malformed in (
        (decode_request, request_schema, MalformedRequest),
        (decode_response, response_schema, MalformedResponse),
    ):
        try:
            message = decode(*row, memoryview(body))
        except malformed:
            continue
        assert isinstance(message, schema(*row))


@given(st.sampled_from(VERSIONS).flatmap(lambda row: entities(request_schema(*row))), st.data())
@settings(max_examples=150)
def test_message_cut_short_is_malformed(message: Any, data: st.DataObject) -> None:
    encoded = encode_request(message)
    if encoded:
        cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
        with pytest.raises(MalformedRequest):
            decode_request(message.__api_key__, message.__version__, memoryview(cut))


def _encode_with_unknown_tags(message: Any, value: bytes) -> bytes:
    """kio's encoding with one more tagged field, 9999, in the message itself and in every one nested in it."""

    def write_count_and_unknown_tag(buffer: Any, count: int) -> None:
        buffer.write(unsigned_varint(count + 1) + unsigned_varint(9999) + unsigned_varint(len(value)) + value)

    # In that module the function writes nothing but the count of tagged fields.
    with patch.object(_serialize, "write_unsigned_varint", write_count_and_unknown_tag):
        return encode_response(message)
