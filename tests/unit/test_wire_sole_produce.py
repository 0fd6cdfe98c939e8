"""The short way for the usual Produce, held to what the general codecs read and write."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.records.batch import Codec
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.framing import parse_request_header, request_start, response_start
from barnabas.wire.produce_request import (
    TOPIC_ID_FROM,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_request,
    encode_produce_request,
)
from barnabas.wire.produce_response import (
    ProducePartitionReply,
    ProduceResponse,
    ProduceTopicReply,
    encode_produce_response,
)
from tests.support.kernels import build_batch

_compiled = pytest.importorskip("barnabas.wire._sole_produce", reason="there was no compiler")

VERSIONS = range(APIS[ApiKey.PRODUCE].version_min, APIS[ApiKey.PRODUCE].version_max + 1)
TOPIC_ID = UUID("0c8cf7a6-2f4f-4a8d-9a7e-5a3f6a1d2b3c")
BATCH = build_batch(3)


def _frame(version: int, request: ProduceRequest, client_id: str | None = "producer-1") -> bytes:
    body = b"".join(encode_produce_request(version, request))
    return request_start(ApiKey.PRODUCE, version, 71, client_id, len(body))[4:] + body


def _usual(version: int, records: bytes | None = BATCH, **changes: object) -> ProduceRequest:
    topic_id = TOPIC_ID if version >= TOPIC_ID_FROM else ZERO_UUID
    name = "" if version >= TOPIC_ID_FROM else "orders"
    request = ProduceRequest(None, 1, 30_000, [ProduceTopic(name, topic_id, [ProducePartition(5, records)])])
    for field, value in changes.items():
        setattr(request, field, value)
    return request


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("client_id", ["producer-1", "", None, "größer"])
def test_usual_request_is_read_as_the_general_decoder_reads_it(version: int, acks: int, client_id: str | None) -> None:
    frame = _frame(version, _usual(version, acks=acks), client_id)
    found = _compiled.read_sole_produce(memoryview(frame))
    header = parse_request_header(memoryview(frame))
    general = decode_produce_request(version, memoryview(frame)[header.body_position :])
    topic = general.topics[0].topic_id.bytes if version >= TOPIC_ID_FROM else general.topics[0].name
    assert found[:6] == (version, 71, header.client_id, general.acks, topic, general.topics[0].partitions[0].index)
    assert frame[found[6] : found[7]] == bytes(general.topics[0].partitions[0].records or b"")


def _unusual(version: int) -> Iterator[tuple[str, ProduceRequest]]:
    topic = _usual(version).topics[0]
    two_partitions = [ProducePartition(0, BATCH), ProducePartition(1, BATCH)]
    moved = bytearray(BATCH)
    moved[7] = 1
    old = bytearray(BATCH)
    old[16] = 1
    yield "transactional id", _usual(version, transactional_id="orders-1")
    yield "acks 0", _usual(version, acks=0)
    yield "acks 2", _usual(version, acks=2)
    yield "no topic", _usual(version, topics=[])
    yield "two topics", _usual(version, topics=[topic, topic])
    yield "no partition", _usual(version, topics=[ProduceTopic(topic.name, topic.topic_id, [])])
    yield "two partitions", _usual(version, topics=[ProduceTopic(topic.name, topic.topic_id, two_partitions)])
    yield "no records", _usual(version, None)
    yield "empty records", _usual(version, b"")
    yield "two batches", _usual(version, BATCH + BATCH)
    yield "cut batch", _usual(version, BATCH[:-1])
    yield "base offset", _usual(version, bytes(moved))
    yield "magic", _usual(version, bytes(old))
    yield "transactional batch", _usual(version, build_batch(3, is_transactional=True, producer_id=1))


@pytest.mark.parametrize("version", VERSIONS)
def test_unusual_request_is_left_to_the_general_decoder(version: int) -> None:
    for what, request in _unusual(version):
        assert _compiled.read_sole_produce(memoryview(_frame(version, request))) is None, what


def test_zstd_is_taken_from_version_7_on() -> None:
    records = build_batch(3, codec=Codec.ZSTD)
    taken = [_compiled.read_sole_produce(_frame(version, _usual(version, records))) is not None for version in VERSIONS]
    assert taken == [version >= 7 for version in VERSIONS]


@pytest.mark.parametrize("version", VERSIONS)
def test_frame_that_is_cut_off_or_longer_is_left_to_the_general_decoder(version: int) -> None:
    frame = _frame(version, _usual(version))
    for end in range(len(frame)):
        assert _compiled.read_sole_produce(memoryview(frame)[:end]) is None
    assert _compiled.read_sole_produce(frame + b"\0") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_frame_with_any_byte_changed_is_read_as_the_general_decoder_reads_it(version: int) -> None:
    frame = _frame(version, _usual(version))
    for position in range(len(frame) - len(BATCH)):
        for value in (0, 1, 2, 0x7F, 0x80, 0xFF):
            changed = bytearray(frame)
            changed[position] = value
            found = _compiled.read_sole_produce(changed)
            if found is None:
                continue
            header = parse_request_header(memoryview(changed))
            (topic,) = decode_produce_request(header.api_version, memoryview(changed)[header.body_position :]).topics
            (partition,) = topic.partitions
            assert found[0:3] == (header.api_version, header.correlation_id, header.client_id)
            assert found[5] == partition.index
            assert changed[found[6] : found[7]] == bytes(partition.records or b"")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["o", "orders", "n" * 126, "n" * 127, "n" * 249])
def test_reply_has_the_bytes_of_the_general_encoder(version: int, name: str) -> None:
    has_id = version >= TOPIC_ID_FROM
    reply = ProducePartitionReply(5, 0, 2**40 + 1, -1, 2**33 + 7)
    topic = ProduceTopicReply("" if has_id else name, TOPIC_ID if has_id else ZERO_UUID, [reply])
    body = encode_produce_response(version, ProduceResponse([topic]))
    written = _compiled.write_sole_reply(version, -3, TOPIC_ID.bytes if has_id else name, 5, 2**40 + 1, -1, 2**33 + 7)
    assert written == response_start(ApiKey.PRODUCE, version, -3, len(body)) + body
