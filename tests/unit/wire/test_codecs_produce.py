"""Produce: the compiled codec reads and writes what the reference reads and writes, or declines."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from uuid import UUID

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.wire.apis import ApiKey
from barnabas.wire.codecs import COMPILED, REFERENCE, Declined
from barnabas.wire.errors import ErrorCode
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint
from barnabas.wire.primitives import (
    INT32,
    NO_TAGGED_FIELDS,
    array_count,
    nullable_string,
    topic_key_bytes,
    unsigned_varint,
)
from barnabas.wire.produce import (
    FLEXIBLE_FROM,
    TOPIC_ID_FROM,
    Produce,
    ProduceBatch,
    ProduceResult,
    RecordError,
    encode_produced,
)
from barnabas.wire.produce_request import ProducePartition, ProduceRequest, ProduceTopic, encode_produce_request
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
    shown,
    taken,
    taken_with_header,
    topic_keys,
    versions,
)

pytestmark = needs_compiled

VERSIONS = versions(ApiKey.PRODUCE)
NAMED_VERSIONS = range(VERSIONS.start, TOPIC_ID_FROM)
FLEXIBLE_VERSIONS = range(FLEXIBLE_FROM, VERSIONS.stop)
RECORDS = bytes(range(200))
_keys = partial(topic_keys, TOPIC_ID_FROM)


def _topic(
    *partitions: ProducePartition, name: str = "orders", topic_id: UUID = TOPIC_ID, version: int
) -> ProduceTopic:
    has_id = version >= TOPIC_ID_FROM
    return ProduceTopic("" if has_id else name, topic_id if has_id else ZERO_UUID, partitions)


def _frame(
    version: int,
    *topics: ProduceTopic,
    acks: int = 1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
    client_id: str | bytes | None = "producer-1",
) -> bytes:
    wanted = topics or (_topic(ProducePartition(5, RECORDS), version=version),)
    body = b"".join(encode_produce_request(version, ProduceRequest(transactional_id, acks, timeout_ms, wanted)))
    return frame_of(ApiKey.PRODUCE, version, body, client_id)


def _tagged_frame(
    version: int,
    header: bytes = NO_TAGGED_FIELDS,
    partition: bytes = NO_TAGGED_FIELDS,
    topic: bytes = NO_TAGGED_FIELDS,
    request: bytes = NO_TAGGED_FIELDS,
) -> bytes:
    """With tagged fields wherever a flexible version may have them."""
    named = topic_key_bytes(_keys(version)[0], True, version >= TOPIC_ID_FROM)
    body = b"\0" + bytes(6) + b"\x02" + named + b"\x02" + INT32.pack(5) + b"\x02r" + partition + topic + request
    return frame_of(ApiKey.PRODUCE, version, body, tags=header)


# --- requests that are taken ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_id", CLIENT_IDS, ids=shown)
def test_usual_request_is_taken(version: int, client_id: str | bytes | None) -> None:
    request = taken_with_header(ApiKey.PRODUCE, _frame(version, client_id=client_id), version, client_id)
    assert request == Produce(None, 1, 30_000, [ProduceBatch(_keys(version)[0], 5, memoryview(RECORDS))])


@pytest.mark.parametrize("version", VERSIONS)
def test_acks_and_timeout_are_any_numbers(version: int) -> None:
    for acks, timeout_ms in product((-(2**15), -2, -1, 0, 1, 2, 2**15 - 1), (-(2**31), -1, 0, 2**31 - 1)):
        request = taken(ApiKey.PRODUCE, _frame(version, acks=acks, timeout_ms=timeout_ms))
        assert (request.acks, request.timeout_ms) == (acks, timeout_ms)


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_of_several_topics_are_taken_in_their_order(version: int) -> None:
    records = [None, b"", b"r", RECORDS[:126], RECORDS[:127], bytes(16_383), bytes(16_384)]
    partitions = [ProducePartition(index - 1, one) for index, one in enumerate(records)]
    other = _topic(ProducePartition(-(2**31), b"x"), name="o", topic_id=OTHER_ID, version=version)
    empty = _topic(name="none", topic_id=ZERO_UUID, version=version)
    topics = (_topic(*partitions, version=version), other, empty, _topic(*partitions[:2], version=version))
    request = taken(ApiKey.PRODUCE, _frame(version, *topics))
    assert [batch.partition for batch in request.batches] == [*range(-1, 6), -(2**31), -1, 0]
    assert [batch.records for batch in request.batches] == [*records, b"x", None, b""]


@pytest.mark.parametrize("version", VERSIONS)
def test_request_without_a_topic_is_taken(version: int) -> None:
    body = b"".join(encode_produce_request(version, ProduceRequest(None, 1, 0, [])))
    assert taken(ApiKey.PRODUCE, frame_of(ApiKey.PRODUCE, version, body)).batches == []


@pytest.mark.parametrize("version", NAMED_VERSIONS)
@pytest.mark.parametrize("name", NAMES, ids=shown)
def test_name_is_taken_up_to_the_longest_that_a_topic_may_have(version: int, name: str) -> None:
    frame = _frame(version, _topic(ProducePartition(0, b"r"), name=name, version=version))
    assert taken(ApiKey.PRODUCE, frame).batches[0].topic == name


@pytest.mark.parametrize("version", NAMED_VERSIONS)
def test_name_that_is_not_utf_8_is_taken_with_replacements(version: int) -> None:
    frame = _frame(version).replace(b"orders", b"o\xff\xed\xa0\x80\xc3")
    assert taken(ApiKey.PRODUCE, frame).batches[0].topic == "o" + "\ufffd" * 5


@pytest.mark.parametrize("version", VERSIONS)
def test_as_many_partitions_as_are_read_at_once_are_taken(version: int) -> None:
    one = ProducePartition(0, b"r")
    for shape in ([500], [250, 250], [1] * 500):
        topics = [_topic(*[one] * count, version=version) for count in shape]
        assert len(taken(ApiKey.PRODUCE, _frame(version, *topics)).batches) == 500


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_slices_of_the_frame(version: int) -> None:
    frame = bytearray(_frame(version))
    found = compiled().frame_decoders[ApiKey.PRODUCE](memoryview(frame))
    assert not isinstance(found, int)
    records = found[3].batches[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_frame_may_be_any_buffer() -> None:
    decode = compiled().frame_decoders[ApiKey.PRODUCE]
    frame = _frame(9)
    assert decode(frame) == decode(bytearray(frame)) == decode(memoryview(frame)) == read_by_reference(frame)


@pytest.mark.parametrize("version", FLEXIBLE_VERSIONS)
def test_length_in_more_bytes_than_it_needs_is_taken(version: int) -> None:
    frame = _frame(version)
    longer = frame.replace(unsigned_varint(201) + RECORDS, b"\xc9\x81\x80\x00" + RECORDS)
    assert len(longer) == len(frame) + 2
    assert taken(ApiKey.PRODUCE, longer).batches[0].records == RECORDS


# --- requests that are declined ---------------------------------------------------------------------------


def test_other_version_and_other_api_decline() -> None:
    starts = (b"\0\0\0\2", b"\0\0\0\x0e", b"\0\0\xff\xff", b"\0\1\0\x0c", b"\xff\xff\0\x09")
    assert_starts_decline(ApiKey.PRODUCE, _frame(9), starts)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", ["", "t", "t" * 300])
def test_transactional_id_declines(version: int, transactional_id: str) -> None:
    frame = _frame(version, transactional_id=transactional_id)
    assert read_alike(ApiKey.PRODUCE, frame) is Declined.FIELD
    assert read_by_reference(frame)[3].transactional_id == transactional_id


@pytest.mark.parametrize("version", FLEXIBLE_VERSIONS)
@pytest.mark.parametrize("place", ["header", "partition", "topic", "request"])
def test_tagged_field_declines(version: int, place: str) -> None:
    assert_tags_decline(ApiKey.PRODUCE, _tagged_frame(version, **{place: ANY_TAGS}), _tagged_frame(version))


@pytest.mark.parametrize("version", NAMED_VERSIONS)
@pytest.mark.parametrize("name", LONG_NAMES[:2], ids=shown)
def test_long_name_declines(version: int, name: str) -> None:
    frame = _frame(version, _topic(ProducePartition(0, b"r"), name=name, version=version))
    assert read_alike(ApiKey.PRODUCE, frame) is Declined.LENGTH
    assert read_by_reference(frame)[3].batches[0].topic == name


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", TOO_MANY)
def test_more_partitions_or_topics_than_are_read_at_once_decline(version: int, shape: list[int]) -> None:
    one = ProducePartition(0, b"r")
    frame = _frame(version, *[_topic(*[one] * count, version=version) for count in shape])
    assert read_alike(ApiKey.PRODUCE, frame) is Declined.LENGTH
    assert len(read_by_reference(frame)[3].batches) == sum(shape)


@pytest.mark.parametrize("version", VERSIONS)
def test_huge_count_declines(version: int) -> None:
    is_flexible = version >= FLEXIBLE_FROM
    start = nullable_string(None, is_flexible) + bytes(6)
    for count in (501, 20_000, 2**31 - 2):
        frame = frame_of(ApiKey.PRODUCE, version, start + array_count(count, is_flexible))
        assert_refused(ApiKey.PRODUCE, frame, Declined.LENGTH)


@pytest.mark.parametrize("version", VERSIONS)
def test_null_instead_of_topics_declines(version: int) -> None:
    is_flexible = version >= FLEXIBLE_FROM
    start = nullable_string(None, is_flexible) + bytes(6)
    frame = frame_of(ApiKey.PRODUCE, version, start + array_count(-1, is_flexible) + NO_TAGGED_FIELDS * is_flexible)
    assert read_alike(ApiKey.PRODUCE, frame) is Declined.MALFORMED


@pytest.mark.parametrize("version", FLEXIBLE_VERSIONS)
@pytest.mark.parametrize("count", NOT_A_COUNT)
def test_count_that_is_no_number_declines(version: int, count: bytes) -> None:
    frame = frame_of(ApiKey.PRODUCE, version, b"\0" + bytes(6) + count + NO_TAGGED_FIELDS)
    assert read_alike(ApiKey.PRODUCE, frame) is Declined.MALFORMED


# --- damage -----------------------------------------------------------------------------------------------


def _wide(version: int) -> bytes:
    first = _topic(ProducePartition(0, b"batch"), ProducePartition(1, None), version=version)
    second = _topic(ProducePartition(2, b""), name="o", topic_id=OTHER_ID, version=version)
    return _frame(version, first, second)


@pytest.mark.parametrize("version", VERSIONS)
def test_frame_that_is_cut_off_or_longer_declines(version: int) -> None:
    assert_cuts_and_additions_decline(ApiKey.PRODUCE, _wide(version))


@pytest.mark.parametrize("version", VERSIONS)
def test_frame_with_any_byte_changed_is_read_alike_or_declines(version: int) -> None:
    assert_changes_read_alike(ApiKey.PRODUCE, _wide(version))


# --- answers ----------------------------------------------------------------------------------------------

WRITTEN = ProduceResult(0, 2**40 + 1, -1, 2**33 + 7)
STAMPED = ProduceResult(0, 0, 1_700_000_000_000, 0)
REFUSED = ProduceResult(ErrorCode.NOT_ENOUGH_REPLICAS)
PLAIN = (WRITTEN, STAMPED, REFUSED, ProduceResult(-1, -(2**63), 2**63 - 1, -1, (), None, NO_LEADER))
DETAILED = (
    ProduceResult(ErrorCode.INVALID_RECORD, record_errors=[RecordError(0, "no key"), RecordError(7, None)]),
    ProduceResult(ErrorCode.INVALID_RECORD, record_errors=(RecordError(3, "größer"),), error_message="no key"),
    ProduceResult(ErrorCode.UNKNOWN_SERVER_ERROR, error_message=""),
    ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=LeaderAndEpoch(2, 9)),
    ProduceResult(ErrorCode.NONE, 5, leader=LeaderAndEpoch(-1, -1)),
)


def _answers(version: int) -> Iterator[list[tuple[ProduceBatch, ProduceResult]]]:
    first, second = ([ProduceBatch(topic, index, None) for index in (5, 0, -1, 2**31 - 1)] for topic in _keys(version))
    yield []
    for result in (*PLAIN, *DETAILED):
        yield [(first[0], result)]
        yield [(first[0], WRITTEN), (first[1], result), (second[0], result)]
    yield list(zip(first + second, PLAIN + PLAIN, strict=True))
    interleaved = [first[0], second[0], first[1], second[1], second[2], first[2]]
    yield [(batch, WRITTEN) for batch in interleaved]
    for count in (15, 16, 17, 200):
        yield [(first[0]._replace(partition=index), PLAIN[index % 4]) for index in range(count)]
        yield [((first, second)[index % 2][0], PLAIN[index % 4]) for index in range(count)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("throttle_ms", [0, 250, 2**31 - 1])
@pytest.mark.parametrize("endpoints", [(), ENDPOINTS], ids=["", "endpoints"])
def test_answers_have_the_bytes_of_the_reference(
    version: int, throttle_ms: int, endpoints: tuple[NodeEndpoint, ...]
) -> None:
    for answer in _answers(version):
        batches, results = [batch for batch, _ in answer], [result for _, result in answer]
        for correlation_id in (-3, 2**31 - 1):
            frame = assert_written_alike(
                lambda codecs, correlation_id=correlation_id, batches=batches, results=results: codecs.produced(
                    version, correlation_id, throttle_ms, batches, results, endpoints
                )
            )
            assert_framed(frame, correlation_id)
            assert frame.endswith(encode_produced(version, batches, results, throttle_ms, endpoints))


@pytest.mark.parametrize("version", NAMED_VERSIONS)
@pytest.mark.parametrize("name", [*NAMES, *LONG_NAMES, "o\ud800"], ids=shown)
def test_answers_about_any_name_have_the_bytes_of_the_reference(version: int, name: str) -> None:
    batches = [ProduceBatch(name, index, None) for index in range(16)]
    others = [ProduceBatch("o" * (index % 3) + name, 0, None) for index in range(16)]
    for asked in (batches[:1], batches, others):
        assert_written_alike(lambda codecs, asked=asked: codecs.produced(version, 1, 0, asked, [WRITTEN] * len(asked)))


@pytest.mark.parametrize("version", VERSIONS)
def test_usual_answers_are_written_by_the_compiled_codec(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("barnabas.wire._produce")
    monkeypatch.setattr(module, "produced_frame", lambda *_: None)
    encode = module.encode_produced_frame
    first, second = _keys(version)
    for count in (1, 2, 16):
        batches = [ProduceBatch((first, second)[index % 2], index, None) for index in range(count)]
        assert encode(version, 1, 0, batches, [PLAIN[index % 4] for index in range(count)]) is not None
    detailed = [encode(version, 1, 0, [ProduceBatch(first, 0, None)], [result]) for result in DETAILED]
    assert detailed == [None] * len(DETAILED)


@pytest.mark.parametrize("codecs", [REFERENCE, COMPILED], ids=["reference", "compiled"])
def test_results_that_do_not_match_the_batches_are_our_bug(codecs: object) -> None:
    with pytest.raises(ValueError, match="zip"):
        codecs.produced(9, 1, 0, [ProduceBatch("orders", 0, None)], [WRITTEN, WRITTEN])  # type: ignore[attr-defined]
