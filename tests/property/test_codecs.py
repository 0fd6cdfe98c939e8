"""The compiled codecs of Produce, Fetch and OffsetCommit against their reference: on good and on mutated frames."""

from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial._introspect import get_field_tag

from barnabas.wire.apis import ApiKey
from barnabas.wire.codecs import COMPILED_APIS, Declined
from barnabas.wire.commit import FLEXIBLE_FROM as COMMIT_FLEXIBLE_FROM
from barnabas.wire.commit import TOPIC_ID_FROM as COMMIT_TOPIC_ID_FROM
from barnabas.wire.errors import ErrorCode
from barnabas.wire.fetch import FLEXIBLE_FROM as FETCH_FLEXIBLE_FROM
from barnabas.wire.fetch import NO_DIVERGENCE, AbortedTransaction, EpochEndOffset, FetchResult, PartitionKey
from barnabas.wire.fetch import TOPIC_ID_FROM as FETCH_TOPIC_ID_FROM
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint
from barnabas.wire.messages import encode_request, request_schema
from barnabas.wire.produce import TOPIC_ID_FROM as PRODUCE_TOPIC_ID_FROM
from barnabas.wire.produce import ProduceBatch, ProduceResult, RecordError
from tests.support.two_codecs import (
    FileRange,
    assert_written_alike,
    frame_of,
    needs_compiled,
    read_alike,
    versions,
)
from tests.support.wire_entities import entities

pytestmark = needs_compiled

OLDEST_READ = {
    ApiKey.PRODUCE: versions(ApiKey.PRODUCE).start,
    ApiKey.FETCH: FETCH_FLEXIBLE_FROM,
    ApiKey.OFFSET_COMMIT: COMMIT_FLEXIBLE_FROM,
}
"""The oldest version that the compiled codec reads."""
apis = pytest.mark.parametrize("api_key", COMPILED_APIS, ids=lambda key: key.name)

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
client_ids = st.none() | st.text(st.characters(exclude_categories=("Cs",)), max_size=20) | st.binary(max_size=20)
texts = st.none() | st.text(max_size=20)
names = st.sampled_from(["orders", "o"]) | st.text(max_size=300)
leaders = st.just(NO_LEADER) | st.builds(LeaderAndEpoch, INT32, INT32)
endpoint_lists = st.just(()) | st.lists(st.builds(NodeEndpoint, INT32, st.text(max_size=5), INT32, texts), max_size=2)


# --- requests ---------------------------------------------------------------------------------------------


@apis
@given(data=st.data())
@settings(max_examples=60)
def test_request_of_usual_fields_is_read_alike_unless_it_is_long(api_key: ApiKey, data: st.DataObject) -> None:
    frame = data.draw(_frames(api_key, is_usual=True))
    found = read_alike(api_key, frame)
    assert isinstance(found, tuple) or found is Declined.LENGTH, found


@apis
@given(data=st.data())
@settings(max_examples=60)
def test_any_request_is_read_alike_or_declines(api_key: ApiKey, data: st.DataObject) -> None:
    assert read_alike(api_key, data.draw(_frames(api_key, is_usual=False))) is not Declined.MALFORMED


@apis
@given(data=st.data())
@settings(max_examples=100)
def test_mutated_request_is_read_alike_or_declines(api_key: ApiKey, data: st.DataObject) -> None:
    read_alike(api_key, data.draw(_mutated(data.draw(_frames(api_key, is_usual=True)))))


@apis
@given(data=st.data())
@settings(max_examples=100)
def test_any_bytes_after_a_header_are_read_alike_or_decline(api_key: ApiKey, data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(range(OLDEST_READ[api_key], versions(api_key).stop)))
    digits = st.sampled_from([b"\0", b"\1", b"\2", b"\3", b"a", b"\x7f", b"\x80", b"\xff"])
    body = b"".join(data.draw(st.lists(digits, max_size=80)))
    read_alike(api_key, frame_of(api_key, version, body))


@st.composite
def _frames(draw: st.DrawFn, api_key: ApiKey, is_usual: bool) -> bytes:
    version = draw(st.sampled_from(range(OLDEST_READ[api_key], versions(api_key).stop)))
    message = draw(entities(request_schema(api_key, version)))
    return frame_of(api_key, version, encode_request(_usual(message) if is_usual else message), draw(client_ids))


def _usual(message: Any) -> Any:
    """The message without tagged fields, a transactional id or topics to forget."""
    rare = {"transactional_id": None, "forgotten_topics_data": ()}
    changes = {}
    for field in fields(message):
        value = getattr(message, field.name)
        if get_field_tag(field) is not None:
            assert field.default is not MISSING
            changes[field.name] = field.default
        elif field.name in rare:
            changes[field.name] = rare[field.name]
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            changes[field.name] = tuple(_usual(member) for member in value)
    return replace(message, **changes)


@st.composite
def _mutated(draw: st.DrawFn, frame: bytes) -> bytes:
    """Bits flipped, bytes inserted, removed or cut off, and lengths that lie, as a careful attacker would."""
    data = bytearray(frame)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["flip", "set", "insert", "remove", "varint", "cut"])):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "set":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=3))
            case "remove":
                del data[at : at + draw(st.integers(1, 3))]
            case "varint":
                lies = [b"\xff" * 5, b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\0", b"\xf5\3", b"\xf6\3"]
                data[at : at + 1] = draw(st.sampled_from(lies))
            case "cut":
                del data[at:]
    return bytes(data)


# --- answers ----------------------------------------------------------------------------------------------


def _topics(version: int, topic_id_from: int) -> st.SearchStrategy[str | bytes]:
    if version < topic_id_from:
        return names
    return st.sampled_from([bytes(16), b"\1" * 16]) | st.binary(min_size=16, max_size=16)


@given(version=st.sampled_from(versions(ApiKey.PRODUCE)), data=st.data())
@settings(max_examples=100)
def test_answer_to_produce_has_the_bytes_of_the_reference(version: int, data: st.DataObject) -> None:
    plain = st.builds(ProduceResult, INT16, INT64, INT64, INT64, st.just(()), st.none(), st.just(NO_LEADER))
    record_errors = st.lists(st.builds(RecordError, INT32, texts), max_size=2)
    detailed = st.builds(ProduceResult, INT16, INT64, INT64, INT64, record_errors, texts, leaders)
    batches = st.builds(ProduceBatch, _topics(version, PRODUCE_TOPIC_ID_FROM), INT32, st.none())
    results = data.draw(st.sampled_from([plain, plain | detailed]))
    answered = data.draw(st.lists(st.tuples(batches, results), max_size=18))
    batch_list, result_list = [batch for batch, _ in answered], [result for _, result in answered]
    numbers, endpoints = data.draw(st.tuples(INT32, INT32)), data.draw(endpoint_lists)
    assert_written_alike(lambda codecs: codecs.produced(version, *numbers, batch_list, result_list, endpoints))


@given(version=st.sampled_from(versions(ApiKey.FETCH)), data=st.data())
@settings(max_examples=100)
def test_answer_to_fetch_has_the_bytes_of_the_reference(version: int, data: st.DataObject) -> None:
    records = st.none() | st.binary(max_size=200) | st.builds(FileRange, st.integers(0, 20_000))
    nothing = st.none() | st.just([])
    aborted = st.lists(st.builds(AbortedTransaction, INT64, INT64), max_size=2)
    diverging = st.just(NO_DIVERGENCE) | st.builds(EpochEndOffset, INT32, INT64)
    numbers = (INT64, INT64, INT64)
    plain = st.builds(
        FetchResult, records, *numbers, nothing, st.just(0), st.just(NO_DIVERGENCE), st.just(NO_LEADER), INT32
    )
    detailed = st.builds(FetchResult, records, *numbers, nothing | aborted, INT16, diverging, leaders, INT32)
    keys = st.builds(PartitionKey, _topics(version, FETCH_TOPIC_ID_FROM), INT32)
    results = data.draw(
        st.lists(st.tuples(keys, plain), max_size=1) | st.lists(st.tuples(keys, plain | detailed), max_size=5)
    )
    start, endpoints = data.draw(st.tuples(INT32, INT32, INT32)), data.draw(endpoint_lists)
    error_code = data.draw(st.just(0) | INT16)
    assert_written_alike(lambda codecs: codecs.fetched(version, *start, results, endpoints, error_code))


@given(version=st.sampled_from(versions(ApiKey.OFFSET_COMMIT)), data=st.data())
@settings(max_examples=100)
def test_answer_to_offset_commit_has_the_bytes_of_the_reference(version: int, data: st.DataObject) -> None:
    partitions = st.lists(st.tuples(INT32, st.sampled_from(ErrorCode)), max_size=130)
    topic = st.tuples(_topics(version, COMMIT_TOPIC_ID_FROM), partitions)
    results = data.draw(st.lists(topic, min_size=1, max_size=1) | st.lists(topic, max_size=3))
    numbers = data.draw(st.tuples(INT32, INT32))
    assert_written_alike(lambda codecs: codecs.committed(version, *numbers, results))
