"""Fetch: the compiled codec reads and writes what the reference reads and writes, or declines."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.apis import ApiKey
from barnabas.wire.codecs import Declined
from barnabas.wire.errors import ErrorCode
from barnabas.wire.fetch import (
    FLEXIBLE_FROM,
    HIGH_WATERMARK_FROM,
    NO_DIVERGENCE,
    REPLICA_DIRECTORY_FROM,
    REPLICA_STATE_FROM,
    TOPIC_ID_FROM,
    AbortedTransaction,
    EpochEndOffset,
    Fetch,
    FetchResult,
    PartitionKey,
    Results,
    Wanted,
    encode_fetched,
)
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, encode_fetch_request
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint
from barnabas.wire.primitives import NO_TAGGED_FIELDS, array_count, topic_key_bytes
from tests.support.two_codecs import (
    ANY_TAGS,
    CLIENT_IDS,
    ENDPOINTS,
    LONG_NAMES,
    NAMES,
    NOT_A_COUNT,
    OTHER_ID,
    TOO_MANY,
    TOPIC_ID,
    FileRange,
    assert_any_buffer_is_taken,
    assert_changes_read_alike,
    assert_cuts_and_additions_decline,
    assert_framed,
    assert_refused,
    assert_starts_decline,
    assert_tags_decline,
    assert_written_alike,
    compiled,
    frame_of,
    needs_compiled,
    read_alike,
    read_by_reference,
    sent,
    shown,
    taken,
    taken_with_header,
    topic_keys,
    versions,
)

pytestmark = needs_compiled

VERSIONS = versions(ApiKey.FETCH)
OLD_VERSIONS = range(VERSIONS.start, FLEXIBLE_FROM)
READ_VERSIONS = range(FLEXIBLE_FROM, VERSIONS.stop)
"""Those that the compiled codec knows."""
NAMED = FLEXIBLE_FROM
"""The one of them in which a topic has a name."""
INT32_ENDS = (-(2**31), -1, 0, 2**31 - 1)
INT64_ENDS = (-(2**63), -1, 2**40 + 7, 2**63 - 1)


_keys = partial(topic_keys, TOPIC_ID_FROM)


def _partition(index: int = 5, **changes: Any) -> FetchPartition:
    values = {
        "current_leader_epoch": 3,
        "fetch_offset": 2**40 + 7,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "bytes_max": 1 << 20,
    }
    return FetchPartition(index, **{**values, **changes})


def _topic(version: int, *partitions: FetchPartition, name: str = "orders", topic_id: UUID = TOPIC_ID) -> FetchTopic:
    has_id = version >= TOPIC_ID_FROM
    return FetchTopic("" if has_id else name, topic_id if has_id else ZERO_UUID, partitions)


def _frame(version: int, client_id: str | bytes | None = "consumer-1", **changes: Any) -> bytes:
    values = {"wait_ms_max": 500, "bytes_min": 1, "bytes_max": 50 << 20, **changes}
    values.setdefault("topics", [_topic(version, _partition())])
    return frame_of(ApiKey.FETCH, version, encode_fetch_request(version, FetchRequest(**values)), client_id)


def _start(version: int) -> bytes:
    """Everything before the topics."""
    return bytes(21 if version >= REPLICA_STATE_FROM else 25)


def _tagged_frame(
    version: int,
    header: bytes = NO_TAGGED_FIELDS,
    partition: bytes = NO_TAGGED_FIELDS,
    topic: bytes = NO_TAGGED_FIELDS,
    request: bytes = NO_TAGGED_FIELDS,
    rack: bytes = b"\x01",
) -> bytes:
    """With tagged fields wherever a version may have them."""
    named = topic_key_bytes(_keys(version)[0], True, version >= TOPIC_ID_FROM)
    body = _start(version) + b"\x02" + named + b"\x02" + bytes(32) + partition + topic + b"\x01" + rack + request
    return frame_of(ApiKey.FETCH, version, body, tags=header)


# --- requests that are taken ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("client_id", CLIENT_IDS, ids=shown)
def test_usual_request_is_taken(version: int, client_id: str | bytes | None) -> None:
    request = taken_with_header(ApiKey.FETCH, _frame(version, client_id), version, client_id)
    key = PartitionKey(_keys(version)[0], 5)
    assert request == Fetch(500, 1, 50 << 20, 0, 0, -1, [Wanted(key, 2**40 + 7, 1 << 20, 3)])


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize(
    "name", ["wait_ms_max", "bytes_min", "bytes_max", "session_id", "session_epoch", "isolation_level"]
)
def test_limits_and_session_are_any_numbers(version: int, name: str) -> None:
    for value in (-128, -1, 0, 1, 2, 127) if name == "isolation_level" else INT32_ENDS:
        request = taken(ApiKey.FETCH, _frame(version, **{name: value}))
        assert getattr(request, "wait_ms" if name == "wait_ms_max" else name) == value


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("current_leader_epoch", INT32_ENDS),
        ("fetch_offset", INT64_ENDS),
        ("last_fetched_epoch", (*INT32_ENDS, 7)),
        ("log_start_offset", INT64_ENDS),
        ("bytes_max", INT32_ENDS),
        ("index", INT32_ENDS),
    ],
)
def test_numbers_of_a_partition_are_any(version: int, name: str, values: tuple[int, ...]) -> None:
    partitions = [_partition(**{name: value}) for value in values]
    request = taken(ApiKey.FETCH, _frame(version, topics=[_topic(version, *partitions)]))
    names = {"current_leader_epoch": "leader_epoch", "fetch_offset": "offset"}
    read = [one.key.partition if name == "index" else getattr(one, names.get(name, name)) for one in request.wanted]
    assert read == list(values)


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_partitions_of_several_topics_are_taken_in_their_order(version: int) -> None:
    first = _topic(version, *map(_partition, range(4)))
    other = _topic(version, _partition(-1), name="o", topic_id=OTHER_ID)
    empty = _topic(version, name="none", topic_id=ZERO_UUID)
    request = taken(ApiKey.FETCH, _frame(version, topics=[first, other, empty, first]))
    assert [one.key.partition for one in request.wanted] == [0, 1, 2, 3, -1, 0, 1, 2, 3]
    assert len({one.key for one in request.wanted}) == 5


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_request_of_a_session_without_a_topic_is_taken(version: int) -> None:
    request = taken(ApiKey.FETCH, _frame(version, topics=[], session_id=2**30, session_epoch=12))
    assert (request.wanted, request.session_id, request.session_epoch) == ([], 2**30, 12)


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("rack_id", NAMES, ids=shown)
def test_rack_id_is_taken(version: int, rack_id: str) -> None:
    assert taken(ApiKey.FETCH, _frame(version, rack_id=rack_id)).rack_id == rack_id


@pytest.mark.parametrize("name", NAMES, ids=shown)
def test_name_is_taken_up_to_the_longest_that_a_topic_may_have(name: str) -> None:
    request = taken(ApiKey.FETCH, _frame(NAMED, topics=[_topic(NAMED, _partition(), name=name)]))
    assert request.wanted[0].key.topic == name


def test_texts_that_are_not_utf_8_are_taken_with_replacements() -> None:
    frame = _frame(NAMED, rack_id="north").replace(b"orders", b"o\xff\xed\xa0\x80\xc3").replace(b"north", b"nort\xe2")
    request = taken(ApiKey.FETCH, frame)
    assert (request.wanted[0].key.topic, request.rack_id) == ("o" + "\ufffd" * 5, "nort\ufffd")


@pytest.mark.parametrize("version", range(FLEXIBLE_FROM, REPLICA_STATE_FROM))
@pytest.mark.parametrize("replica_id", [-2, 0, 2, 2**31 - 1])
def test_request_of_a_follower_is_taken_where_its_id_is_no_tagged_field(version: int, replica_id: int) -> None:
    assert taken(ApiKey.FETCH, _frame(version, replica_id=replica_id)).replica_id == replica_id


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_as_many_partitions_as_are_read_at_once_are_taken(version: int) -> None:
    for shape in ([500], [250, 250], [1] * 500):
        topics = [_topic(version, *[_partition()] * count) for count in shape]
        assert len(taken(ApiKey.FETCH, _frame(version, topics=topics)).wanted) == 500


def test_frame_may_be_any_buffer() -> None:
    assert_any_buffer_is_taken(ApiKey.FETCH, _frame(17))


# --- requests that are declined ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_older_version_declines(version: int) -> None:
    assert read_alike(ApiKey.FETCH, _frame(version)) is Declined.VERSION


def test_other_version_and_other_api_decline() -> None:
    starts = (b"\0\1\0\x13", b"\0\1\xff\xff", b"\0\0\0\x0c", b"\xff\xff\0\x0c")
    assert_starts_decline(ApiKey.FETCH, _frame(17), starts)


def _with_fields(version: int) -> Iterator[tuple[str, bytes]]:
    topic = _topic(version, _partition())
    yield "something to forget", _frame(version, forgotten_topics=[ForgottenTopic(topic.name, topic.topic_id, [1])])
    yield "nothing of a topic", _frame(version, forgotten_topics=[ForgottenTopic(topic.name, topic.topic_id, [])])
    yield "a cluster id", _frame(version, cluster_id="one")
    if version >= REPLICA_STATE_FROM:
        yield "a replica", _frame(version, replica_id=2, replica_epoch=1)
    if version >= REPLICA_DIRECTORY_FROM:
        yield "a directory", _frame(version, topics=[_topic(version, _partition(replica_directory_id=TOPIC_ID))])
    if version >= HIGH_WATERMARK_FROM:
        yield "a high watermark", _frame(version, topics=[_topic(version, _partition(high_watermark=7))])


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_rare_field_declines(version: int) -> None:
    for what, frame in _with_fields(version):
        assert read_alike(ApiKey.FETCH, frame) is Declined.FIELD, what
        assert read_by_reference(frame)[0] == version


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("place", ["header", "partition", "topic", "request"])
def test_tagged_field_declines(version: int, place: str) -> None:
    assert_tags_decline(ApiKey.FETCH, _tagged_frame(version, **{place: ANY_TAGS}), _tagged_frame(version))


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("text", LONG_NAMES[:2], ids=shown)
def test_long_text_declines(version: int, text: str) -> None:
    frames = [_frame(version, rack_id=text)]
    if version < TOPIC_ID_FROM:
        frames.append(_frame(version, topics=[_topic(version, _partition(), name=text)]))
    for frame in frames:
        assert read_alike(ApiKey.FETCH, frame) is Declined.LENGTH
        assert read_by_reference(frame)[0] == version


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("shape", TOO_MANY)
def test_more_partitions_or_topics_than_are_read_at_once_decline(version: int, shape: list[int]) -> None:
    frame = _frame(version, topics=[_topic(version, *[_partition()] * count) for count in shape])
    assert read_alike(ApiKey.FETCH, frame) is Declined.LENGTH
    assert len(read_by_reference(frame)[3].wanted) == sum(shape)


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("count", [501, 50_001, 2**31 - 2])
def test_huge_count_declines(version: int, count: int) -> None:
    topics, forgotten = array_count(count, is_compact=True), b"\x01" + array_count(count, is_compact=True)
    for counts in (topics, forgotten):
        frame = frame_of(ApiKey.FETCH, version, _start(version) + counts)
        assert_refused(ApiKey.FETCH, frame, Declined.LENGTH)


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_null_where_there_must_be_a_value_declines(version: int) -> None:
    topics = frame_of(ApiKey.FETCH, version, _start(version) + b"\0\x01\x01\0")
    forgotten = frame_of(ApiKey.FETCH, version, _start(version) + b"\x01\0\x01\0")
    for frame in (topics, forgotten, _tagged_frame(version, rack=b"\0")):
        assert_refused(ApiKey.FETCH, frame, Declined.MALFORMED)


@pytest.mark.parametrize("version", READ_VERSIONS)
@pytest.mark.parametrize("count", NOT_A_COUNT)
def test_count_that_is_no_number_declines(version: int, count: bytes) -> None:
    frame = frame_of(ApiKey.FETCH, version, _start(version) + count + b"\x01\x01\0")
    assert read_alike(ApiKey.FETCH, frame) is Declined.MALFORMED


# --- damage -----------------------------------------------------------------------------------------------


def _wide(version: int) -> bytes:
    first = _topic(version, _partition(0, last_fetched_epoch=2), _partition(1))
    second = _topic(version, _partition(2), name="o", topic_id=OTHER_ID)
    return _frame(version, topics=[first, second], rack_id="north", session_id=2**30, session_epoch=12)


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_frame_that_is_cut_off_or_longer_declines(version: int) -> None:
    assert_cuts_and_additions_decline(ApiKey.FETCH, _wide(version))


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_frame_with_any_byte_changed_is_read_alike_or_declines(version: int) -> None:
    assert_changes_read_alike(ApiKey.FETCH, _wide(version))


# --- answers ----------------------------------------------------------------------------------------------

ABORTED = [AbortedTransaction(1, 2**40), AbortedTransaction(-1, 0)]
OFFSETS = (2**40 + 9, 2**40 + 1, 2**33 + 7)
PLAIN = [
    FetchResult(records, *OFFSETS, aborted)
    for records, aborted in product(
        (None, b"", b"r", bytes(126), bytes(127), bytes(20_000), FileRange(0), FileRange(1), FileRange(16_384)),
        (None, [], ()),
    )
]
PLAIN += [
    FetchResult(b"r", -(2**63), 2**63 - 1, -1, None, 0, NO_DIVERGENCE, NO_LEADER, preferred)
    for preferred in (0, 2, -(2**31))
]
DETAILED = [
    FetchResult(None, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
    FetchResult(b"r", *OFFSETS, ABORTED),
    FetchResult(FileRange(300), *OFFSETS, tuple(ABORTED)),
    FetchResult(None, *OFFSETS, None, 0, EpochEndOffset(3, 2**40)),
    FetchResult(None, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LeaderAndEpoch(2, 9)),
    FetchResult(b"r", *OFFSETS, ABORTED, 1, EpochEndOffset(3, 7), LeaderAndEpoch(2, 9), 4),
    FetchResult(b"r", *OFFSETS, None, 0, EpochEndOffset(-1, -1), LeaderAndEpoch(-1, -1)),
]


def _answers(version: int) -> Iterator[list[tuple[PartitionKey, FetchResult]]]:
    first, second = ([PartitionKey(topic, index) for index in (5, 0, -1, 2**31 - 1)] for topic in _keys(version))
    yield []
    for result in (*PLAIN, *DETAILED):
        yield [(first[0], result)]
        yield [(first[3], PLAIN[0]), (first[1], result), (second[0], result)]
    interleaved = [first[0], second[0], first[1], second[1], second[2], first[2]]
    yield list(zip(interleaved, PLAIN, strict=False))
    yield [(first[0]._replace(partition=index), PLAIN[index % len(PLAIN)]) for index in range(700)]


def _assert_written_alike(version: int, results: Results, **others: Any) -> bytes:
    values = {"correlation_id": -3, "throttle_ms": 0, "session_id": 2**30, **others}
    frame = assert_written_alike(lambda codecs: codecs.fetched(version, results=results, **values))
    assert_framed(frame, values.pop("correlation_id"))
    encoded = encode_fetched(version, results, **values)
    assert frame.endswith(sent(encoded.pieces))
    assert len(sent(encoded.pieces)) == encoded.length
    return frame


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("throttle_ms", [0, 2**31 - 1])
@pytest.mark.parametrize("endpoints", [(), ENDPOINTS], ids=["", "endpoints"])
def test_answers_have_the_bytes_of_the_reference(
    version: int, throttle_ms: int, endpoints: tuple[NodeEndpoint, ...]
) -> None:
    for results in _answers(version):
        _assert_written_alike(version, results, throttle_ms=throttle_ms, endpoints=endpoints)


@pytest.mark.parametrize("version", VERSIONS)
def test_answer_without_a_partition_has_the_bytes_of_the_reference(version: int) -> None:
    for session_id, throttle_ms, error_code in product((0, 1, 2**31 - 1), (0, 250), (0, 70, -1)):
        for correlation_id in INT32_ENDS:
            _assert_written_alike(
                version,
                [],
                session_id=session_id,
                throttle_ms=throttle_ms,
                error_code=error_code,
                correlation_id=correlation_id,
            )


@pytest.mark.parametrize("version", range(VERSIONS.start, TOPIC_ID_FROM))
@pytest.mark.parametrize("name", [*NAMES, *LONG_NAMES, "o\ud800"], ids=shown)
def test_answers_about_any_name_have_the_bytes_of_the_reference(version: int, name: str) -> None:
    for records in (None, b"", bytes(300), FileRange(20_000)):
        _assert_written_alike(version, [(PartitionKey(name, 0), FetchResult(records, *OFFSETS))])


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_answer_has_a_range_as_a_piece_between_two(version: int) -> None:
    records = FileRange(1000)
    key = PartitionKey(_keys(version)[0], 0)
    pieces = compiled().fetched(version, 1, 0, 0, [(key, FetchResult(records, *OFFSETS))])
    assert isinstance(pieces, list)
    _, between, _ = pieces
    assert between is records


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_answer_of_megabytes_has_the_bytes_of_the_reference(version: int) -> None:
    key = PartitionKey(_keys(version)[0], 0)
    for size in (2**21 - 2, 2**21 - 1, 3_000_000):
        _assert_written_alike(version, [(key, FetchResult(bytes(size), *OFFSETS))])


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_usual_answers_are_written_by_the_compiled_codec(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    encode = _compiled_encoder(monkeypatch)
    key = PartitionKey(_keys(version)[0], 5)
    assert all(encode(version, 1, 0, 0, [(key, result)]) is not None for result in PLAIN)
    assert [encode(version, 1, 0, 0, [(key, result)]) for result in DETAILED] == [None] * len(DETAILED)


def test_range_that_no_frame_could_hold_is_left_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = _compiled_encoder(monkeypatch)
    sizes = (2**31 - 400, 2**31 - 1, 2**31, 2**32, 2**40)
    frames = [encode(17, 1, 0, 0, [(PartitionKey(TOPIC_ID.bytes, 0), FetchResult(FileRange(size)))]) for size in sizes]
    assert [frame is None for frame in frames] == [False, True, True, True, True]


def _compiled_encoder(monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """The compiled one, which has None from a reference that it asks."""
    module = pytest.importorskip("barnabas.wire._fetch")
    monkeypatch.setattr(module, "fetched_frame", lambda *_: None)
    return module.encode_fetched_frame
