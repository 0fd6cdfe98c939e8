"""What is accepted and refused here was compared with what Apache Kafka 4.3.1's Java reader does."""

import pytest

from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.records.batch import CRC_START, HEADER_BYTES, PREFIX_BYTES, Codec, read_header
from barnabas.records.builder import BatchBuilder, Header, Record, encode_varint
from barnabas.records.checksum import compute_crc
from barnabas.records.compression import compress
from barnabas.records.control import (
    ControlType,
    EndTransactionMarker,
    build_marker,
    read_batch_marker,
    read_control_type,
    read_marker,
)
from barnabas.records.reader import read_records

BASE_TIMESTAMP = 1000


def record_of(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def body_of(
    *,
    attributes: bytes = b"\x00",
    timestamp_delta: bytes = b"\x00",
    offset_delta: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\x00",
) -> bytes:
    return attributes + timestamp_delta + offset_delta + key + value + headers


def batch_of(records: bytes, count: int = 1, codec: Codec = Codec.NONE) -> bytearray:
    """A batch with a right header and checksum around any bytes."""
    payload = compress(codec, records)
    builder = BatchBuilder(codec=codec)
    builder.append(BASE_TIMESTAMP, None, None)
    header = read_header(builder.build())
    length = HEADER_BYTES - PREFIX_BYTES + len(payload)
    batch = bytearray(header._replace(length=length, count=count, last_offset_delta=count - 1).pack()) + payload
    batch[CRC_START - 4 : CRC_START] = compute_crc(batch).to_bytes(4, "big")
    return batch


ACCEPTED = {
    "attributes": (body_of(attributes=b"\x55"), Record(None, None, (), 1000, 0)),
    "any negative length": (
        body_of(key=encode_varint(-2), value=encode_varint(-9)),
        Record(None, None, (), 1000, 0),
    ),
    "long varints": (
        body_of(timestamp_delta=b"\x80\x00", offset_delta=b"\x80\x80\x80\x80\x00"),
        Record(None, None, (), 1000, 0),
    ),
    "spare bits of a varint": (
        body_of(offset_delta=b"\x80\x80\x80\x80\x70"),
        Record(None, None, (), 1000, 0),
    ),
    "spare bits of a varlong": (
        body_of(timestamp_delta=b"\x80" * 9 + b"\x7e"),
        Record(None, None, (), 1000, 0),
    ),
    "negative time": (body_of(timestamp_delta=encode_varint(-5000)), Record(None, None, (), -4000, 0)),
    "time that wraps": (
        body_of(timestamp_delta=encode_varint(2**63 - 1)),
        Record(None, None, (), 999 - 2**63, 0),
    ),
    "header value null": (
        body_of(headers=b"\x02\x02a" + encode_varint(-7)),
        Record(None, None, (Header("a", None),), 1000, 0),
    ),
    "header key not UTF-8": (
        body_of(headers=b"\x02\x02\xff\x00"),
        Record(None, None, (Header("\udcff", b""),), 1000, 0),
    ),
}

REFUSED = {
    "nothing": b"",
    "negative length": encode_varint(-1) + record_of(body_of()),
    "no length": b"\x00",
    "length cut": b"\x80",
    "length of 6 bytes": b"\xff\xff\xff\xff\xff\x01" + bytes(50),
    "length over 2 GB": encode_varint(2**31 - 1) + bytes(50),
    "length beyond the end": encode_varint(50) + body_of(),
    "attributes only": record_of(b"\x00"),
    "bytes left in the record": record_of(body_of() + b"zz"),
    "bytes left in the batch": record_of(body_of()) + b"zz",
    "another record": record_of(body_of()) * 2,
    "key beyond the end": record_of(body_of(key=encode_varint(100) + b"abc")),
    "value beyond the end": record_of(body_of(value=encode_varint(100) + b"abc")),
    "varint of 6 bytes": record_of(body_of(offset_delta=b"\x80" * 5 + b"\x00")),
    "varlong of 11 bytes": record_of(body_of(timestamp_delta=b"\x80" * 10 + b"\x00")),
    "too many headers": record_of(body_of(headers=encode_varint(1000))),
    "negative headers": record_of(body_of(headers=encode_varint(-1))),
    "header without a key": record_of(body_of(headers=b"\x02\x01\x01")),
    "header cut": record_of(body_of(headers=b"\x02\x02")),
}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(("body", "record"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_read_what_kafka_reads_gives_the_same_record(codec: Codec, body: bytes, record: Record) -> None:
    assert list(read_records(batch_of(record_of(body), codec=codec))) == [record]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("records", REFUSED.values(), ids=REFUSED.keys())
def test_read_what_kafka_refuses_is_refused(codec: Codec, records: bytes) -> None:
    with pytest.raises(InvalidRecords):
        list(read_records(batch_of(records, codec=codec)))


@pytest.mark.parametrize("count", [-1, 1 - 2**31])
def test_read_negative_count_is_refused(count: int) -> None:
    with pytest.raises(InvalidRecords):
        list(read_records(batch_of(record_of(body_of()), count=count)))


def test_read_fewer_records_than_counted_names_the_loss() -> None:
    with pytest.raises(InvalidRecords, match="fewer records"):
        list(read_records(batch_of(record_of(body_of()), count=2)))


def test_read_broken_record_names_its_index() -> None:
    records = record_of(body_of()) + record_of(body_of(offset_delta=b"\x02") + b"zz")
    with pytest.raises(InvalidRecords) as caught:
        list(read_records(batch_of(records, count=2)))
    assert caught.value.indexes == (1,)


@pytest.mark.parametrize("length", [0, 11, HEADER_BYTES - 1, HEADER_BYTES])
def test_read_batch_that_is_cut_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatch):
        list(read_records(batch_of(record_of(body_of()))[:length]))


def test_read_unknown_codec_is_refused() -> None:
    batch = batch_of(record_of(body_of()))
    batch[22] = 5
    with pytest.raises(CorruptBatch):
        list(read_records(batch))


@pytest.mark.parametrize("codec", Codec)
def test_read_record_larger_than_many_chunks_is_whole(codec: Codec) -> None:
    value = b"0123456789abcdef" * 200_000
    builder = BatchBuilder(codec=codec)
    builder.append(1, b"small", b"x")
    builder.append(2, b"large", value)
    builder.append(3, b"small", b"y")
    records = list(read_records(builder.build()))
    assert [(record.key, record.value) for record in records] == [
        (b"small", b"x"),
        (b"large", value),
        (b"small", b"y"),
    ]


def test_read_record_larger_than_the_limit_is_refused_before_it_is_gathered() -> None:
    builder = BatchBuilder(codec=Codec.ZSTD)
    builder.append(1, None, bytes(1 << 20))
    with pytest.raises(InvalidRecords, match="claims"):
        list(read_records(builder.build(), record_bytes_max=1 << 19))


def test_read_ignores_what_follows_the_batch() -> None:
    batch = batch_of(record_of(body_of()))
    assert list(read_records(batch + b"the next batch")) == list(read_records(batch))


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_built_is_read_back(is_commit: bool) -> None:
    marker = EndTransactionMarker(is_commit, coordinator_epoch=12)
    batch = build_marker(marker, producer_id=5, producer_epoch=2, timestamp=77, base_offset=8)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, -1)
    assert read_batch_marker(batch) == marker
    (record,) = read_records(batch)
    assert record.key == bytes([0, 0, 0, is_commit])
    assert record.value == bytes([0, 0, 0, 0, 0, 12])
    assert read_marker(record) == marker


def test_marker_of_a_data_batch_is_none() -> None:
    builder = BatchBuilder()
    builder.append(0, bytes([0, 0, 0, 1]), bytes(6))
    assert read_batch_marker(builder.build()) is None


def test_marker_of_an_emptied_control_batch_is_none() -> None:
    assert read_batch_marker(BatchBuilder(is_control=True).build(last_offset=0)) is None


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (b"\x00\x00\x00\x02", ControlType.LEADER_CHANGE),
        (b"\x00\x05\x00\x01 later fields", ControlType.COMMIT),
        (b"\x00\x00\x00\x63", ControlType.UNKNOWN),
    ],
)
def test_control_type_is_read_from_the_key(key: bytes, kind: ControlType) -> None:
    assert read_control_type(key) is kind


def test_control_record_of_another_type_is_no_marker() -> None:
    assert read_marker(Record(b"\x00\x00\x00\x02", None, (), 0, 0)) is None


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_control_key_that_is_broken_is_refused(key: bytes | None) -> None:
    with pytest.raises(InvalidRecords):
        read_control_type(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_marker_value_that_is_broken_is_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidRecords):
        read_marker(Record(b"\x00\x00\x00\x01", value, (), 0, 0))
