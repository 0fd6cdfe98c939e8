"""The short way for the Fetch of one partition, held to what the general codecs read and write."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.fetch_request import (
    FLEXIBLE_FROM,
    REPLICA_DIRECTORY_FROM,
    TOPIC_ID_FROM,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    decode_fetch_request,
    encode_fetch_request,
)
from barnabas.wire.fetch_response import FetchPartitionReply, FetchResponse, FetchTopicReply, encode_fetch_response
from barnabas.wire.framing import parse_request_header, request_start, response_start
from barnabas.wire.sole_fetch import FETCH_REPLY_END, SoleFetch

_compiled = pytest.importorskip("barnabas.wire._sole_fetch", reason="there was no compiler")

VERSIONS = range(APIS[ApiKey.FETCH].version_min, APIS[ApiKey.FETCH].version_max + 1)
SHORT_VERSIONS = range(FLEXIBLE_FROM, VERSIONS.stop)
TOPIC_ID = UUID("0c8cf7a6-2f4f-4a8d-9a7e-5a3f6a1d2b3c")


def _topic(version: int, *partitions: FetchPartition, name: str = "orders") -> FetchTopic:
    has_id = version >= TOPIC_ID_FROM
    return FetchTopic("" if has_id else name, TOPIC_ID if has_id else ZERO_UUID, list(partitions))


def _partition(**changes: Any) -> FetchPartition:
    values = {"last_fetched_epoch": -1, "bytes_max": 1 << 20, **changes}
    return FetchPartition(5, 3, 2**40 + 7, values.pop("last_fetched_epoch"), -1, **values)


def _frame(version: int, client_id: str | None = "consumer-1", **changes: Any) -> bytes:
    values = {"isolation_level": 1, "session_id": 2**30, "session_epoch": 12, **changes}
    values.setdefault("topics", [_topic(version, _partition())])
    body = encode_fetch_request(version, FetchRequest(500, 1, 50 << 20, **values))
    return request_start(ApiKey.FETCH, version, 71, client_id, len(body))[4:] + body


def _assert_same(found: SoleFetch, frame: bytes | bytearray) -> None:
    header = parse_request_header(memoryview(frame))
    general = decode_fetch_request(header.api_version, memoryview(frame)[header.body_position :])
    ((topic,),) = [general.topics]
    ((partition,),) = [topic.partitions]
    assert (found.version, found.correlation_id) == (header.api_version, header.correlation_id)
    assert found.client_id == header.client_id
    assert (found.wait_ms, found.bytes_min, found.bytes_max) == (
        general.wait_ms_max,
        general.bytes_min,
        general.bytes_max,
    )
    assert found.isolation_level == general.isolation_level
    assert (found.session_id, found.session_epoch) == (general.session_id, general.session_epoch)
    assert found.topic == (topic.topic_id.bytes if found.version >= TOPIC_ID_FROM else topic.name)
    assert (found.index, found.leader_epoch) == (partition.index, partition.current_leader_epoch)
    assert (found.offset, found.partition_bytes_max) == (partition.fetch_offset, partition.bytes_max)
    assert general.replica_id == -1
    assert not general.forgotten_topics
    assert partition.last_fetched_epoch < 0


@pytest.mark.parametrize("version", SHORT_VERSIONS)
@pytest.mark.parametrize("client_id", ["consumer-1", "", None, "größer"])
@pytest.mark.parametrize("rack_id", ["", "north", "r" * 126])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_usual_request_is_read_as_the_general_decoder_reads_it(
    version: int, client_id: str | None, rack_id: str, isolation_level: int
) -> None:
    frame = _frame(version, client_id, rack_id=rack_id, isolation_level=isolation_level)
    found = _compiled.read_sole_fetch(memoryview(frame))
    assert found is not None
    _assert_same(found, frame)


def _unusual(version: int) -> Iterator[tuple[str, bytes]]:
    topic = _topic(version, _partition())
    forgotten = ForgottenTopic(topic.name, topic.topic_id, [1])
    yield "no topic", _frame(version, topics=[])
    yield "two topics", _frame(version, topics=[topic, topic])
    yield "no partition", _frame(version, topics=[_topic(version)])
    yield "two partitions", _frame(version, topics=[_topic(version, _partition(), _partition())])
    yield "something to forget", _frame(version, forgotten_topics=[forgotten])
    yield "a replica", _frame(version, replica_id=2, replica_epoch=1)
    yield "a cluster id", _frame(version, cluster_id="one")
    yield "a long rack", _frame(version, rack_id="r" * 127)
    yield "another isolation level", _frame(version, isolation_level=2)
    yield "a last epoch", _frame(version, topics=[_topic(version, _partition(last_fetched_epoch=0))])
    yield "a negative limit", _frame(version, topics=[_topic(version, _partition(bytes_max=-1))])
    if version < TOPIC_ID_FROM:
        yield "a long name", _frame(version, topics=[_topic(version, _partition(), name="t" * 127)])
    if version >= REPLICA_DIRECTORY_FROM:
        yield "a directory", _frame(version, topics=[_topic(version, _partition(replica_directory_id=TOPIC_ID))])


@pytest.mark.parametrize("version", SHORT_VERSIONS)
def test_unusual_request_is_left_to_the_general_decoder(version: int) -> None:
    for what, frame in _unusual(version):
        assert _compiled.read_sole_fetch(memoryview(frame)) is None, what


@pytest.mark.parametrize("version", [version for version in VERSIONS if version not in SHORT_VERSIONS])
def test_older_version_is_left_to_the_general_decoder(version: int) -> None:
    assert _compiled.read_sole_fetch(_frame(version)) is None


@pytest.mark.parametrize("version", SHORT_VERSIONS)
def test_frame_that_is_cut_off_or_longer_is_left_to_the_general_decoder(version: int) -> None:
    frame = _frame(version, rack_id="north")
    for end in range(len(frame)):
        assert _compiled.read_sole_fetch(memoryview(frame)[:end]) is None
    assert _compiled.read_sole_fetch(frame + b"\0") is None


@pytest.mark.parametrize("version", SHORT_VERSIONS)
def test_frame_with_any_byte_changed_is_read_as_the_general_decoder_reads_it(version: int) -> None:
    frame = _frame(version, rack_id="north")
    taken = 0
    for position in range(len(frame)):
        for value in (0, 1, 2, 0x7F, 0x80, 0xFF):
            changed = bytearray(frame)
            changed[position] = value
            found = _compiled.read_sole_fetch(changed)
            if found is not None:
                taken += 1
                _assert_same(found, changed)
    assert taken, "offsets may be any number"


@pytest.mark.parametrize("version", SHORT_VERSIONS)
@pytest.mark.parametrize("name", ["o", "n" * 126, "n" * 127, "n" * 249])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 20_000, 3_000_000])
@pytest.mark.parametrize("has_aborted", [False, True])
def test_reply_has_the_bytes_of_the_general_encoder(version: int, name: str, size: int, has_aborted: bool) -> None:
    has_id = version >= TOPIC_ID_FROM
    records = bytes(size)
    offsets = (2**40 + 9, 2**40 + 1, 2**33 + 7)
    partition = FetchPartitionReply(5, 0, *offsets, records, [] if has_aborted else None)
    topic = FetchTopicReply("" if has_id else name, TOPIC_ID if has_id else ZERO_UUID, [partition])
    pieces, length = encode_fetch_response(version, FetchResponse([topic], session_id=2**30))
    expected = response_start(ApiKey.FETCH, version, -3, length) + b"".join(pieces)  # type: ignore[arg-type]
    wanted = TOPIC_ID.bytes if has_id else name
    known = (version, -3, 2**30, wanted, 5, *offsets, has_aborted)
    assert _compiled.write_fetch_reply(*known, records, size) == expected
    assert _compiled.write_fetch_reply(*known, None, size) + records + FETCH_REPLY_END == expected
