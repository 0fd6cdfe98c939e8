"""Headers around messages, and the answer to an unknown version of ApiVersions."""

import struct

import pytest

from barnabas.wire.api_versions import advertised_apis, is_software_text, unsupported_version_body
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest, MalformedResponse, UnservedRequest
from barnabas.wire.framing import (
    LENGTH_BYTES,
    correlation_id_of,
    parse_request_header,
    parse_response_header,
    request_start,
    response_start,
)
from barnabas.wire.messages import decode_response

ALL_VERSIONS = [
    (api.key.value, version) for api in APIS.values() for version in range(api.version_min, api.version_max + 1)
]


@pytest.mark.parametrize(("api_key", "version"), ALL_VERSIONS)
@pytest.mark.parametrize("client_id", ["", "rdkafka", "Frieda", "Ж" * 200])
def test_request_header_of_any_version_survives_the_way(api_key: int, version: int, client_id: str) -> None:
    frame = request_start(api_key, version, 77, client_id, body_bytes=4) + b"body"
    header = parse_request_header(memoryview(frame)[LENGTH_BYTES:])
    assert header[:4] == (api_key, version, 77, client_id)
    assert frame[LENGTH_BYTES + header.body_position :] == b"body"
    assert struct.unpack_from(">i", frame)[0] == len(frame) - LENGTH_BYTES


def test_request_header_with_null_client_id_has_an_empty_one() -> None:
    frame = memoryview(request_start(ApiKey.METADATA, 12, 1, None, 0))[LENGTH_BYTES:]
    assert parse_request_header(frame).client_id == ""


def test_request_header_with_tagged_fields_skips_them() -> None:
    frame = struct.pack(">hhihs", ApiKey.METADATA, 12, 1, 1, b"c") + b"\2\0\1x\x05\3abc" + b"body"
    header = parse_request_header(memoryview(frame))
    assert frame[header.body_position :] == b"body"


@pytest.mark.parametrize(("api_key", "version"), [(0, 2), (0, 14), (3, 99), (3, -1), (4, 0), (999, 0), (-1, 0)])
def test_request_that_is_not_served_says_which(api_key: int, version: int) -> None:
    with pytest.raises(UnservedRequest) as refused:
        parse_request_header(memoryview(struct.pack(">hhihB", api_key, version, 1, -1, 0)))
    assert (refused.value.api_key, refused.value.api_version) == (api_key, version)


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_api_versions_of_an_unknown_version_has_a_readable_header(version: int) -> None:
    frame = struct.pack(">hhihB", ApiKey.API_VERSIONS, version, 5, -1, 0)
    assert parse_request_header(memoryview(frame))[:3] == (ApiKey.API_VERSIONS, version, 5)


@pytest.mark.parametrize("kept", range(14))
def test_request_header_cut_short_is_malformed(kept: int) -> None:
    whole = memoryview(request_start(ApiKey.METADATA, 12, 1, "abc", 0))[LENGTH_BYTES:]
    assert len(whole) == 14
    with pytest.raises(MalformedRequest):
        parse_request_header(whole[:kept])


@pytest.mark.parametrize(("api_key", "version"), ALL_VERSIONS)
def test_response_header_of_any_version_survives_the_way(api_key: int, version: int) -> None:
    frame = response_start(api_key, version, 99, body_bytes=4) + b"body"
    assert struct.unpack_from(">i", frame)[0] == len(frame) - LENGTH_BYTES
    after_length = memoryview(frame)[LENGTH_BYTES:]
    header = parse_response_header(api_key, version, after_length)
    assert header.correlation_id == correlation_id_of(after_length) == 99
    assert after_length[header.body_position :] == b"body"


def test_response_header_of_api_versions_is_always_version_0() -> None:
    assert {APIS[ApiKey.API_VERSIONS].response_header_version(version) for version in range(5)} == {0}


@pytest.mark.parametrize("kept", range(5))
def test_response_header_cut_short_is_malformed(kept: int) -> None:
    whole = memoryview(response_start(ApiKey.METADATA, 12, 1, 0))[LENGTH_BYTES:]
    assert len(whole) == 5
    with pytest.raises(MalformedResponse):
        parse_response_header(ApiKey.METADATA, 12, whole[:kept])


def test_unsupported_version_body_has_the_error_and_one_range() -> None:
    response = decode_response(ApiKey.API_VERSIONS, 0, unsupported_version_body())
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    (entry,) = response.api_keys
    assert (entry.api_key, entry.min_version, entry.max_version) == (18, 0, 4)


def test_advertised_apis_offer_produce_from_version_0_but_serve_it_from_3() -> None:
    produce = advertised_apis()[0]
    assert (produce.key, produce.advertised_min, produce.version_max) == (ApiKey.PRODUCE, 0, 13)
    assert not produce.serves(2)
    assert produce.serves(3)
    assert [api.key for api in advertised_apis()] == sorted(APIS)


@pytest.mark.parametrize("text", ["a", "librdkafka", "apache-kafka-java", "4.3.1", "2.0-rc1"])
def test_software_text_of_known_clients_is_taken(text: str) -> None:
    assert is_software_text(text)


@pytest.mark.parametrize("text", ["", "-a", "a-", "a b", "é", ".1", "a\n"])
def test_software_text_with_odd_characters_is_refused(text: str) -> None:
    assert not is_software_text(text)
