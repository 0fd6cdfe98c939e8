import pytest

from barnabas.records.batch import HEADER_BYTES, Codec, check_header, read_header
from barnabas.records.builder import BatchBuilder, Record, encode_varint
from barnabas.records.checksum import compute_crc
from barnabas.records.reader import read_records


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varint_is_zigzag_coded(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded


def test_build_one_record_gives_the_bytes_of_the_format() -> None:
    builder = BatchBuilder(base_offset=5, leader_epoch=2)
    builder.append(1000, b"k", b"v", [("h", None)])
    batch = builder.build()
    assert batch[HEADER_BYTES:].hex() == "16" + "00" + "00" + "00" + "026b" + "0276" + "02" + "0268" + "01"
    header = read_header(batch)
    assert header._replace(crc=0) == (5, 49 + 12, 2, 2, 0, 0, 0, 1000, 1000, -1, -1, -1, 1)
    assert header.crc == compute_crc(batch)


def test_build_sets_every_header_field_it_was_given() -> None:
    builder = BatchBuilder(
        codec=Codec.ZSTD,
        base_offset=100,
        leader_epoch=7,
        producer_id=9,
        producer_epoch=1,
        base_sequence=40,
        is_transactional=True,
    )
    for timestamp in (50, 70, 60):
        builder.append(timestamp, b"key", b"value")
    batch = builder.build()
    header = read_header(batch)
    check_header(header, len(batch))
    assert header.crc == compute_crc(batch)
    assert (header.base_offset, header.last_offset, header.count) == (100, 102, 3)
    assert (header.base_timestamp, header.max_timestamp) == (50, 70)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 40)
    assert (header.codec_number, header.leader_epoch) == (Codec.ZSTD, 7)
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time


def test_build_with_append_time_gives_every_record_that_time() -> None:
    builder = BatchBuilder(append_time_ms=5000)
    builder.append(1, b"a", b"1")
    builder.append(9, b"b", b"2")
    batch = builder.build()
    assert read_header(batch).is_log_append_time
    assert read_header(batch).max_timestamp == 5000
    assert [record.timestamp for record in read_records(batch)] == [5000, 5000]


def test_build_with_delete_horizon_keeps_the_records_own_times() -> None:
    builder = BatchBuilder(delete_horizon_ms=90_000)
    builder.append(1000, b"a", None)
    batch = builder.build()
    assert read_header(batch).delete_horizon_ms == 90_000
    assert read_header(batch).max_timestamp == 1000
    assert list(read_records(batch)) == [Record(b"a", None, (), 1000, 0)]


def test_build_with_named_offsets_leaves_gaps_and_keeps_the_last_offset() -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append(0, b"a", b"1", offset=12)
    builder.append(0, b"b", b"2", offset=15)
    batch = builder.build(last_offset=19)
    assert [record.offset for record in read_records(batch)] == [12, 15]
    assert (read_header(batch).last_offset, read_header(batch).count) == (19, 2)


@pytest.mark.parametrize("codec", Codec)
def test_build_without_records_keeps_the_offsets_of_an_emptied_batch(codec: Codec) -> None:
    builder = BatchBuilder(base_offset=10, producer_id=3, base_sequence=5, codec=codec)
    batch = builder.build(last_offset=14, max_timestamp=99)
    header = read_header(batch)
    assert (header.count, header.last_offset, header.last_sequence) == (0, 14, 9)
    assert (header.base_timestamp, header.max_timestamp, header.codec_number) == (-1, 99, Codec.NONE)
    assert len(batch) == HEADER_BYTES
    assert list(read_records(batch)) == []


def test_append_of_an_offset_that_goes_back_is_our_bug() -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append(0, None, None, offset=12)
    with pytest.raises(AssertionError):
        builder.append(0, None, None, offset=12)


def test_size_of_an_uncompressed_batch_is_known_before_it_is_built() -> None:
    builder = BatchBuilder()
    assert builder.size_bytes == HEADER_BYTES
    builder.append(0, b"key", b"value" * 100, [("h", b"x")])
    assert builder.size_bytes == len(builder.build())
    assert builder.count == 1
