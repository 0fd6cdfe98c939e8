"""JoinGroup and SyncGroup by hand, held equal to the codec that is built from kio's classes."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.join_group import decode_join_group_request, encode_join_group_response
from barnabas.wire.messages import encode_request, encode_response, request_schema, response_schema, write_request
from barnabas.wire.sync_group import decode_sync_group_request, encode_sync_group_response
from tests.support.wire_entities import entities

LONG = "ä" * 100
JOINS = range(APIS[ApiKey.JOIN_GROUP].version_min, APIS[ApiKey.JOIN_GROUP].version_max + 1)
SYNCS = range(APIS[ApiKey.SYNC_GROUP].version_min, APIS[ApiKey.SYNC_GROUP].version_max + 1)


def versions_with(schema: Any, api_key: ApiKey, versions: range) -> st.SearchStrategy[tuple[int, Any]]:
    """A version, and any message of it."""
    return st.sampled_from(versions).flatmap(lambda one: st.tuples(st.just(one), entities(schema(api_key, one))))


def milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


@given(versions_with(request_schema, ApiKey.JOIN_GROUP, JOINS))
@settings(max_examples=150)
def test_join_request_is_read_as_kios(case: tuple[int, Any]) -> None:
    version, asked = case

    read = decode_join_group_request(version, memoryview(encode_request(asked)))

    assert (read.group_id, read.member_id, read.protocol_type) == (
        asked.group_id,
        asked.member_id,
        asked.protocol_type,
    )
    assert read.session_timeout_ms == milliseconds(asked.session_timeout)
    assert read.rebalance_timeout_ms == milliseconds(getattr(asked, "rebalance_timeout", asked.session_timeout))
    assert read.instance_id == getattr(asked, "group_instance_id", None)
    assert read.protocols == tuple((one.name, one.metadata) for one in asked.protocols)
    assert read.reason == getattr(asked, "reason", None)


@given(versions_with(response_schema, ApiKey.JOIN_GROUP, JOINS))
@settings(max_examples=150)
def test_join_response_is_written_as_kios(case: tuple[int, Any]) -> None:
    version, answer = case

    written = encode_join_group_response(
        version,
        ErrorCode(answer.error_code),
        answer.generation_id,
        getattr(answer, "protocol_type", None),
        answer.protocol_name,
        answer.leader,
        answer.member_id,
        [(one.member_id, getattr(one, "group_instance_id", None), one.metadata) for one in answer.members],
        skip_assignment=getattr(answer, "skip_assignment", False),
        throttle_ms=milliseconds(getattr(answer, "throttle_time", timedelta())),
    )

    assert written == encode_response(answer)


@pytest.mark.parametrize("version", JOINS)
def test_join_response_without_protocol_has_empty_text_where_null_cannot_be_said(version: int) -> None:
    without, empty = (
        encode_join_group_response(version, ErrorCode.MEMBER_ID_REQUIRED, -1, None, protocol, "", "m", ())
        for protocol in (None, "")
    )

    assert (without == empty) is (version < 7)


@given(versions_with(request_schema, ApiKey.SYNC_GROUP, SYNCS))
@settings(max_examples=150)
def test_sync_request_is_read_as_kios(case: tuple[int, Any]) -> None:
    version, asked = case

    assert decode_sync_group_request(version, memoryview(encode_request(asked))) == (
        asked.group_id,
        asked.generation_id,
        asked.member_id,
        getattr(asked, "group_instance_id", None),
        getattr(asked, "protocol_type", None),
        getattr(asked, "protocol_name", None),
        [(one.member_id, one.assignment) for one in asked.assignments],
    )


@given(versions_with(response_schema, ApiKey.SYNC_GROUP, SYNCS))
@settings(max_examples=150)
def test_sync_response_is_written_as_kios(case: tuple[int, Any]) -> None:
    version, answer = case

    written = encode_sync_group_response(
        version,
        ErrorCode(answer.error_code),
        getattr(answer, "protocol_type", None),
        getattr(answer, "protocol_name", None),
        answer.assignment,
        milliseconds(getattr(answer, "throttle_time", timedelta())),
    )

    assert written == encode_response(answer)


@pytest.mark.parametrize("version", JOINS)
def test_cut_join_request_is_malformed(version: int) -> None:
    asked = {
        "group_id": "billing",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": LONG,
        "group_instance_id": "worker-1",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"abc"}, {"name": LONG, "metadata": b""}],
        "reason": LONG,
    }
    body = memoryview(write_request(ApiKey.JOIN_GROUP, version, asked))

    for length in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode_join_group_request(version, body[:length])


@pytest.mark.parametrize("version", SYNCS)
def test_cut_sync_request_is_malformed(version: int) -> None:
    asked = {
        "group_id": "billing",
        "generation_id": 7,
        "member_id": LONG,
        "group_instance_id": "worker-1",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": LONG, "assignment": b"abc"}, {"member_id": "m", "assignment": b""}],
    }
    body = memoryview(write_request(ApiKey.SYNC_GROUP, version, asked))

    for length in range(len(body)):
        with pytest.raises(MalformedRequest):
            decode_sync_group_request(version, body[:length])
