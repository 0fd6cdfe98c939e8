"""OffsetCommit: the compiled codec reads and writes what the reference reads and writes, or declines."""

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from barnabas.wire.apis import ApiKey
from barnabas.wire.codecs import Declined
from barnabas.wire.commit import (
    FLEXIBLE_FROM,
    NO_RETENTION,
    TOPIC_ID_FROM,
    CommitResult,
    CommittedTopic,
    OffsetCommit,
    encode_committed,
)
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import write_request
from barnabas.wire.primitives import NO_TAGGED_FIELDS, array_count, topic_key_bytes
from tests.support.two_codecs import (
    ANY_TAGS,
    CLIENT_IDS,
    LONG_NAMES,
    NAMES,
    NOT_A_COUNT,
    OTHER_ID,
    TOO_MANY,
    TOPIC_ID,
    assert_any_buffer_is_taken,
    assert_changes_read_alike,
    assert_cuts_and_additions_decline,
    assert_framed,
    assert_refused,
    assert_starts_decline,
    assert_tags_decline,
    assert_written_alike,
    frame_of,
    needs_compiled,
    read_alike,
    read_by_reference,
    shown,
    taken,
    taken_with_header,
    topic_keys,
    versions,
)

pytestmark = needs_compiled

VERSIONS = versions(ApiKey.OFFSET_COMMIT)
OLD_VERSIONS = range(VERSIONS.start, FLEXIBLE_FROM)
READ_VERSIONS = range(FLEXIBLE_FROM, VERSIONS.stop)
"""Those that the compiled codec knows."""
NAMED_VERSIONS = range(FLEXIBLE_FROM, TOPIC_ID_FROM)
START = b"\x02g" + bytes(4) + b"\x02m" + b"\0"
"""Everything before the topics: a group, a generation, a member, no instance."""


_keys = partial(topic_keys, TOPIC_ID_FROM)


def _partition(index: int = 5, metadata: str | None = "", **changes: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": 2**40 + index,
        "committed_leader_epoch": index - 1,
        "committed_metadata": metadata,
        **changes,
    }


def _topic(*partitions: dict[str, Any], name: str = "orders", topic_id: UUID = TOPIC_ID) -> dict[str, Any]:
    return {"name": name, "topic_id": topic_id, "partitions": partitions}


def _frame(version: int, client_id: str | bytes | None = "consumer-1", **changes: Any) -> bytes:
    values = {
        "group_id": "billing",
        "generation_id_or_member_epoch": 7,
        "member_id": "consumer-1-0c8cf7a6",
        "topics": [_topic(_partition())],
        **changes,
    }
    return frame_of(ApiKey.OFFSET_COMMIT, version, write_request(ApiKey.OFFSET_COMMIT, version, values), client_id)


def _tagged_frame(
    version: int,
    header: bytes = NO_TAGGED_FIELDS,
    partition: bytes = NO_TAGGED_FIELDS,
    topic: bytes = NO_TAGGED_FIELDS,
    request: bytes = NO_TAGGED_FIELDS,
) -> bytes:
    """With tagged fields wherever a version may have them."""
    named = topic_key_bytes(_keys(version)[0], True, version >= TOPIC_ID_FROM)
    body = START + b"\x02" + named + b"\x02" + bytes(16) + b"\x01" + partition + topic + request
    return frame_of(ApiKey.OFFSET_COMMIT, version, body, tags=header)


# --- requests that are taken ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("client_id", CLIENT_IDS, ids=shown)
def test_usual_request_is_taken(version: int, client_id: str | bytes | None) -> None:
    request = taken_with_header(ApiKey.OFFSET_COMMIT, _frame(version, client_id), version, client_id)
    topic = CommittedTopic(_keys(version)[0], [(5, 2**40 + 5, 4, "")])
    assert request == OffsetCommit("billing", 7, "consumer-1-0c8cf7a6", None, NO_RETENTION, [topic])


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("text", NAMES, ids=shown)
def test_texts_are_taken(version: int, text: str) -> None:
    for name in ("group_id", "member_id", "group_instance_id"):
        request = taken(ApiKey.OFFSET_COMMIT, _frame(version, **{name: text}))
        assert getattr(request, name.replace("group_instance", "instance")) == text
    request = taken(ApiKey.OFFSET_COMMIT, _frame(version, topics=[_topic(_partition(0, text), _partition(1, None))]))
    assert [partition[3] for partition in request.topics[0].partitions] == [text, None]


@pytest.mark.parametrize("version", NAMED_VERSIONS)
@pytest.mark.parametrize("name", NAMES, ids=shown)
def test_name_is_taken_up_to_the_longest_that_a_topic_may_have(version: int, name: str) -> None:
    request = taken(ApiKey.OFFSET_COMMIT, _frame(version, topics=[_topic(_partition(), name=name)]))
    assert request.topics[0].topic == name


@pytest.mark.parametrize("version", NAMED_VERSIONS)
def test_texts_that_are_not_utf_8_are_taken_with_replacements(version: int) -> None:
    frame = _frame(version).replace(b"orders", b"o\xff\xed\xa0\x80\xc3").replace(b"billing", b"billin\xe2")
    request = taken(ApiKey.OFFSET_COMMIT, frame)
    assert (request.topics[0].topic, request.group_id) == ("o" + "\ufffd" * 5, "billin\ufffd")


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_numbers_are_any(version: int) -> None:
    numbers = (-(2**31), -1, 0, 2**31 - 1)
    for generation in numbers:
        frame = _frame(version, generation_id_or_member_epoch=generation)
        assert taken(ApiKey.OFFSET_COMMIT, frame).generation == generation
    partitions = [
        _partition(index, committed_offset=offset, committed_leader_epoch=index)
        for index in numbers
        for offset in (-(2**63), -1, 2**63 - 1)
    ]
    (topic,) = taken(ApiKey.OFFSET_COMMIT, _frame(version, topics=[_topic(*partitions)])).topics
    assert topic.partitions == [tuple(one.values()) for one in partitions]


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_several_topics_are_taken_in_their_order(version: int) -> None:
    first = _topic(*(_partition(index, None) for index in range(3)))
    other = _topic(_partition(7, "by hand"), name="o", topic_id=OTHER_ID)
    request = taken(ApiKey.OFFSET_COMMIT, _frame(version, topics=[first, other, _topic(), first]))
    assert [len(topic.partitions) for topic in request.topics] == [3, 1, 0, 3]


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_request_without_a_topic_is_taken(version: int) -> None:
    assert taken(ApiKey.OFFSET_COMMIT, _frame(version, topics=[])).topics == []


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_as_many_partitions_as_are_read_at_once_are_taken(version: int) -> None:
    for shape in ([500], [250, 250], [1] * 500):
        request = taken(
            ApiKey.OFFSET_COMMIT, _frame(version, topics=[_topic(*[_partition()] * count) for count in shape])
        )
        assert [len(topic.partitions) for topic in request.topics] == shape


def test_frame_may_be_any_buffer() -> None:
    assert_any_buffer_is_taken(ApiKey.OFFSET_COMMIT, _frame(9))


# --- requests that are declined ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_older_version_declines(version: int) -> None:
    assert read_alike(ApiKey.OFFSET_COMMIT, _frame(version)) is Declined.VERSION


def test_other_version_and_other_api_decline() -> None:
    starts = (b"\0\x08\0\x0b", b"\0\x08\xff\xff", b"\0\x09\0\x08", b"\xff\xff\0\x09")
    assert_starts_decline(ApiKey.OFFSET_COMMIT, _frame(9), starts)


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("place", ["header", "partition", "topic", "request"])
def test_tagged_field_declines(version: int, place: str) -> None:
    assert_tags_decline(ApiKey.OFFSET_COMMIT, _tagged_frame(version, **{place: ANY_TAGS}), _tagged_frame(version))


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("text", LONG_NAMES[:2], ids=shown)
def test_long_text_declines(version: int, text: str) -> None:
    frames = [_frame(version, **{name: text}) for name in ("group_id", "member_id", "group_instance_id")]
    frames.append(_frame(version, topics=[_topic(_partition(0, text))]))
    if version < TOPIC_ID_FROM:
        frames.append(_frame(version, topics=[_topic(_partition(), name=text)]))
    for frame in frames:
        assert read_alike(ApiKey.OFFSET_COMMIT, frame) is Declined.LENGTH
        assert read_by_reference(frame)[0] == version


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("shape", TOO_MANY)
def test_more_partitions_or_topics_than_are_read_at_once_decline(version: int, shape: list[int]) -> None:
    frame = _frame(version, topics=[_topic(*[_partition()] * count) for count in shape])
    assert read_alike(ApiKey.OFFSET_COMMIT, frame) is Declined.LENGTH
    assert [len(topic.partitions) for topic in read_by_reference(frame)[3].topics] == shape


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("count", [501, 20_001, 2**31 - 2])
def test_huge_count_declines(version: int, count: int) -> None:
    frame = frame_of(ApiKey.OFFSET_COMMIT, version, START + array_count(count, is_compact=True))
    assert_refused(ApiKey.OFFSET_COMMIT, frame, Declined.LENGTH)


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_null_where_there_must_be_a_value_declines(version: int) -> None:
    group_id = b"\0" + bytes(4) + b"\x02m" + b"\0" + b"\x01" + b"\0"
    member_id = b"\x02g" + bytes(4) + b"\0" + b"\0" + b"\x01" + b"\0"
    for body in (group_id, member_id, START + b"\0" + b"\0"):
        frame = frame_of(ApiKey.OFFSET_COMMIT, version, body)
        assert_refused(ApiKey.OFFSET_COMMIT, frame, Declined.MALFORMED)


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("count", NOT_A_COUNT)
def test_count_that_is_no_number_declines(version: int, count: bytes) -> None:
    frame = frame_of(ApiKey.OFFSET_COMMIT, version, START + count + b"\0")
    assert read_alike(ApiKey.OFFSET_COMMIT, frame) is Declined.MALFORMED


# --- damage -----------------------------------------------------------------------------------------------


def _wide(version: int) -> bytes:
    first = _topic(_partition(1), _partition(2, None), _partition(3, "by hand"))
    second = _topic(_partition(4), name="o", topic_id=OTHER_ID)
    return _frame(version, group_instance_id="shelf-3", topics=[first, second])


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_frame_that_is_cut_off_or_longer_declines(version: int) -> None:
    assert_cuts_and_additions_decline(ApiKey.OFFSET_COMMIT, _wide(version))


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_frame_with_any_byte_changed_is_read_alike_or_declines(version: int) -> None:
    assert_changes_read_alike(ApiKey.OFFSET_COMMIT, _wide(version))


# --- answers ----------------------------------------------------------------------------------------------

ERRORS = (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _answers(version: int) -> Iterator[list[CommitResult]]:
    first, second = _keys(version)
    few = [(index, ERRORS[number % 3]) for number, index in enumerate((5, 0, -1, 2**31 - 1))]
    yield []
    yield [(first, few), (second, few[:1]), (first, few[2:])]
    yield [(first, []), (second, [])]
    for count in (0, 1, 2, 125, 126, 127, 500):
        yield [(first, [(index, ERRORS[index % 3]) for index in range(count)])]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("throttle_ms", [0, 250, 2**31 - 1])
def test_answers_have_the_bytes_of_the_reference(version: int, throttle_ms: int) -> None:
    for results in _answers(version):
        for correlation_id in (-3, 2**31 - 1):
            frame = assert_written_alike(
                lambda codecs, correlation_id=correlation_id, results=results: codecs.committed(
                    version, correlation_id, throttle_ms, results
                )
            )
            assert_framed(frame, correlation_id)
            assert frame.endswith(encode_committed(version, results, throttle_ms))


@pytest.mark.parametrize("version", range(VERSIONS.start, TOPIC_ID_FROM))
@pytest.mark.parametrize("name", [*NAMES, *LONG_NAMES, "o\ud800"], ids=shown)
def test_answers_about_any_name_have_the_bytes_of_the_reference(version: int, name: str) -> None:
    for count in (1, 126):
        results: list[CommitResult] = [(name, [(index, ErrorCode.NONE) for index in range(count)])]
        assert_written_alike(lambda codecs, results=results: codecs.committed(version, 1, 0, results))


def test_usual_answers_are_written_by_the_compiled_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("barnabas.wire._commit")
    monkeypatch.setattr(module, "committed_frame", lambda *_: None)
    encode = partial(module.encode_committed_frame, FLEXIBLE_FROM)
    for topic in ("o", "n" * 249, TOPIC_ID.bytes):
        for count in (1, 2, 126):
            assert encode(1, 0, [(topic, [(index, ErrorCode.NONE) for index in range(count)])]) is not None
    one = [(0, ErrorCode.NONE)]
    for results in ([], [("o", one), ("p", one)], [("o", one * 127)], [("n" * 250, one)]):
        assert encode(1, 0, results) is None
