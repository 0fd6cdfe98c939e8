"""ApiVersions by hand, held equal to the codec that is built from kio's classes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire.api_versions import (
    advertised_apis,
    decode_api_versions_request,
    encode_api_versions_response,
)
from barnabas.wire.apis import APIS, Api, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.messages import encode_request, request_schema, write_request, write_response
from tests.support.wire_entities import entities

VERSIONS = range(APIS[ApiKey.API_VERSIONS].version_min, APIS[ApiKey.API_VERSIONS].version_max + 1)


@given(
    st.sampled_from(VERSIONS).flatmap(
        lambda one: st.tuples(st.just(one), entities(request_schema(ApiKey.API_VERSIONS, one)))
    )
)
@settings(max_examples=50)
def test_request_is_read_as_kios(case: tuple[int, Any]) -> None:
    version, asked = case

    read = decode_api_versions_request(version, memoryview(encode_request(asked)))

    if version < 3:
        assert read is None
    else:
        assert read == (asked.client_software_name, asked.client_software_version)


@pytest.mark.parametrize("version", VERSIONS[3:])
def test_cut_request_is_malformed(version: int) -> None:
    asked = {"client_software_name": "librdkafka", "client_software_version": "2.6.0"}
    body = memoryview(write_request(ApiKey.API_VERSIONS, version, asked))

    for length in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode_api_versions_request(version, body[:length])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("error", "apis"), [(ErrorCode.NONE, advertised_apis()), (ErrorCode.INVALID_REQUEST, ())], ids=["all", "none"]
)
def test_response_is_written_as_kios(version: int, error: ErrorCode, apis: tuple[Api, ...]) -> None:
    listed = [{"api_key": one.key, "min_version": one.advertised_min, "max_version": one.version_max} for one in apis]

    expected = write_response(
        ApiKey.API_VERSIONS, version, {"error_code": error, "api_keys": listed, "throttle_time_ms": 7}
    )
    assert encode_api_versions_response(version, error, apis, 7) == expected
