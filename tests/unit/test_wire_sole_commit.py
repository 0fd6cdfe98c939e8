"""The short way for the usual OffsetCommit, held to what the general codecs read and write."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.errors import ErrorCode, MalformedRequest
from barnabas.wire.framing import parse_request_header, request_start, response_start
from barnabas.wire.messages import write_request
from barnabas.wire.offset_commit import (
    FLEXIBLE_FROM,
    TOPIC_ID_FROM,
    OffsetCommitRequest,
    TopicResult,
    decode_offset_commit_request,
    encode_offset_commit_response,
)
from barnabas.wire.sole_commit import SoleCommit

_compiled = pytest.importorskip("barnabas.wire._sole_commit", reason="there was no compiler")

VERSIONS = range(APIS[ApiKey.OFFSET_COMMIT].version_min, APIS[ApiKey.OFFSET_COMMIT].version_max + 1)
SHORT_VERSIONS = range(FLEXIBLE_FROM, VERSIONS.stop)
TOPIC_ID = UUID("0c8cf7a6-2f4f-4a8d-9a7e-5a3f6a1d2b3c")


def _partition(index: int, metadata: str | None = "") -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": 2**40 + index,
        "committed_leader_epoch": index - 1,
        "committed_metadata": metadata,
    }


def _topic(version: int, partitions: list[dict[str, Any]], name: str = "orders") -> dict[str, Any]:
    wanted = {"topic_id": TOPIC_ID} if version >= TOPIC_ID_FROM else {"name": name}
    return {**wanted, "partitions": partitions}


def _frame(version: int, client_id: str | None = "consumer-1", **changes: Any) -> bytes:
    values = {
        "group_id": "billing",
        "generation_id_or_member_epoch": 7,
        "member_id": "consumer-1-0c8cf7a6",
        "topics": [_topic(version, [_partition(5)])],
        **changes,
    }
    body = write_request(ApiKey.OFFSET_COMMIT, version, values)
    return request_start(ApiKey.OFFSET_COMMIT, version, 71, client_id, len(body))[4:] + body


def _generally(frame: bytes | bytearray) -> tuple[int, int, OffsetCommitRequest]:
    header = parse_request_header(memoryview(frame))
    body = memoryview(frame)[header.body_position :]
    return header.api_version, header.correlation_id, decode_offset_commit_request(header.api_version, body)


def _assert_same(found: SoleCommit, frame: bytes | bytearray) -> None:
    version, correlation_id, general = _generally(frame)
    (topic,) = general.topics
    assert found == (
        version,
        correlation_id,
        general.group_id,
        general.generation,
        general.member_id,
        general.instance_id,
        topic.topic_id.bytes if version >= TOPIC_ID_FROM else topic.name,
        [partition[:3] for partition in topic.partitions],
    )
    assert not any(partition[3] for partition in topic.partitions)


@pytest.mark.parametrize("version", SHORT_VERSIONS)
@pytest.mark.parametrize("client_id", ["consumer-1", "", None, "größer"])
@pytest.mark.parametrize("instance_id", ["shelf-3", "", None])
@pytest.mark.parametrize("count", [1, 2, 126])
@pytest.mark.parametrize("metadata", ["", None])
def test_usual_request_is_read_as_the_general_decoder_reads_it(
    version: int, client_id: str | None, instance_id: str | None, count: int, metadata: str | None
) -> None:
    partitions = [_partition(index, metadata) for index in range(count)]
    frame = _frame(version, client_id, group_instance_id=instance_id, topics=[_topic(version, partitions)])
    found = _compiled.read_sole_commit(memoryview(frame))
    assert found is not None
    _assert_same(found, frame)


@pytest.mark.parametrize("version", SHORT_VERSIONS)
@pytest.mark.parametrize("text", ["", "größer", "n" * 126])
def test_names_are_read_as_the_general_decoder_reads_them(version: int, text: str) -> None:
    topics = [_topic(version, [_partition(0)], text)]
    frame = _frame(version, group_id=text, member_id=text, topics=topics, generation_id_or_member_epoch=-1)
    found = _compiled.read_sole_commit(frame)
    assert found is not None
    _assert_same(found, frame)


def _unusual(version: int) -> Iterator[tuple[str, bytes]]:
    topic = _topic(version, [_partition(0)])
    yield "no topic", _frame(version, topics=[])
    yield "two topics", _frame(version, topics=[topic, topic])
    yield "no partition", _frame(version, topics=[_topic(version, [])])
    yield "many partitions", _frame(version, topics=[_topic(version, [_partition(index) for index in range(127)])])
    yield "a note", _frame(version, topics=[_topic(version, [_partition(0), _partition(1, "by hand")])])
    yield "a long group id", _frame(version, group_id="g" * 127)
    yield "a long member id", _frame(version, member_id="m" * 127)
    yield "a long instance id", _frame(version, group_instance_id="i" * 127)
    if version < TOPIC_ID_FROM:
        yield "a long name", _frame(version, topics=[_topic(version, [_partition(0)], "t" * 127)])


@pytest.mark.parametrize("version", SHORT_VERSIONS)
def test_unusual_request_is_left_to_the_general_decoder(version: int) -> None:
    for what, frame in _unusual(version):
        assert _compiled.read_sole_commit(memoryview(frame)) is None, what


@pytest.mark.parametrize("version", [version for version in VERSIONS if version not in SHORT_VERSIONS])
def test_older_version_is_left_to_the_general_decoder(version: int) -> None:
    assert _compiled.read_sole_commit(_frame(version)) is None


@pytest.mark.parametrize("version", SHORT_VERSIONS)
def test_frame_that_is_cut_off_or_longer_is_left_to_the_general_decoder(version: int) -> None:
    frame = _frame(version, group_instance_id="shelf-3")
    for end in range(len(frame)):
        assert _compiled.read_sole_commit(memoryview(frame)[:end]) is None
    assert _compiled.read_sole_commit(frame + b"\0") is None


@pytest.mark.parametrize("version", SHORT_VERSIONS)
def test_frame_with_any_byte_changed_is_read_as_the_general_decoder_reads_it(version: int) -> None:
    frame = _frame(version, group_instance_id="shelf-3", topics=[_topic(version, [_partition(1), _partition(2)])])
    taken = 0
    for position in range(len(frame)):
        for value in (0, 1, 2, 0x7F, 0x80, 0xFF):
            changed = bytearray(frame)
            changed[position] = value
            found = _compiled.read_sole_commit(changed)
            if found is not None:
                taken += 1
                _assert_same(found, changed)
    assert taken, "offsets may be any number"


@pytest.mark.parametrize("version", SHORT_VERSIONS)
def test_what_the_general_decoder_refuses_is_never_taken(version: int) -> None:
    frame = _frame(version)
    for end in range(len(frame)):
        cut = frame[:end]
        try:
            _generally(cut)
        except MalformedRequest:
            assert _compiled.read_sole_commit(cut) is None


@pytest.mark.parametrize("version", SHORT_VERSIONS)
@pytest.mark.parametrize("name", ["o", "orders", "größer", "n" * 126, "n" * 127, "n" * 249])
@pytest.mark.parametrize("count", [1, 3, 126])
def test_reply_has_the_bytes_of_the_general_encoder(version: int, name: str, count: int) -> None:
    has_id = version >= TOPIC_ID_FROM
    errors = [ErrorCode.NONE if index % 2 else ErrorCode.UNKNOWN_SERVER_ERROR for index in range(count)]
    results = list(zip(range(count), errors, strict=True))
    topic = TopicResult("" if has_id else name, TOPIC_ID if has_id else ZERO_UUID, results)
    body = encode_offset_commit_response(version, [topic])
    wanted = TOPIC_ID.bytes if has_id else name
    partitions = [(index, 0, 0) for index in range(count)]
    written = _compiled.write_commit_reply(version, -3, wanted, partitions, errors)
    assert written == response_start(ApiKey.OFFSET_COMMIT, version, -3, len(body)) + body
