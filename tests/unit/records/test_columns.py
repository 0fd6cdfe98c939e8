"""Runs with compressed batches to columns, and columns to whole batches."""

import pytest

from barnabas.base.errors import CorruptBatch
from barnabas.records.batch import Codec, read_header
from barnabas.records.checksum import compute_crc
from barnabas.records.columns import append_run, decode_run, encode_batches
from barnabas.records.kernel import ColumnDecoder
from barnabas.records.reader import read_records
from tests.support.kernels import build_batch, rows_of


@pytest.mark.parametrize("codec", Codec)
def test_run_with_compressed_batches_is_decoded_in_order(codec: Codec) -> None:
    run = build_batch(3) + build_batch(3, 3, codec=codec) + build_batch(2, 6) + build_batch(1, 8, codec=codec)
    decoded = decode_run(run)
    assert decoded.consumed_bytes == len(run)
    assert [row[0] for row in rows_of(decoded.columns)] == list(range(9))
    expected = [record for start in (3, 6) for record in read_records(build_batch(3, start))]
    assert rows_of(decoded.columns)[3][2:4] == (expected[0].key, expected[0].value)


def test_run_that_ends_within_a_compressed_batch_is_decoded_up_to_it() -> None:
    first, second = build_batch(3, codec=Codec.LZ4), build_batch(3, 3, codec=Codec.LZ4)
    decoded = decode_run(first + second[:-1])
    assert (decoded.columns.count, decoded.consumed_bytes) == (3, len(first))


def test_run_with_offsets_wanted_is_decoded_within_them() -> None:
    run = build_batch(3, codec=Codec.SNAPPY) + build_batch(3, 3, codec=Codec.SNAPPY)
    decoded = decode_run(run, first_offset=2, end_offset=4, with_headers=False)
    assert [row[0] for row in rows_of(decoded.columns)] == [2, 3]


def test_run_with_flipped_bit_in_compressed_batch_is_refused() -> None:
    bad = bytearray(build_batch(3, 3, codec=Codec.ZSTD))
    bad[-1] ^= 1
    with pytest.raises(CorruptBatch):
        decode_run(build_batch(3) + bad)


def test_run_with_a_bomb_is_refused() -> None:
    bomb = build_batch(1, value_bytes=100_000, codec=Codec.ZSTD)
    decoder = ColumnDecoder()
    with pytest.raises(CorruptBatch):
        append_run(decoder, bomb, records_bytes_max=50_000)
    assert append_run(decoder, bomb, records_bytes_max=200_000) == len(bomb)


def test_run_larger_than_the_columns_is_decoded_in_parts() -> None:
    batches = [build_batch(2, base, value_bytes=100, codec=Codec.GZIP) for base in range(0, 20, 2)]
    run = b"".join(batches)
    decoder = ColumnDecoder(column_bytes_max=700)
    offsets: list[int] = []
    while run:
        consumed_bytes = append_run(decoder, run)
        assert consumed_bytes > 0
        run = run[consumed_bytes:]
        offsets += [row[0] for row in rows_of(decoder.finish())]
    assert offsets == list(range(20))


@pytest.mark.parametrize("codec", Codec)
def test_columns_are_encoded_into_batches_that_hold_their_rows(codec: Codec) -> None:
    source = build_batch(100, value_bytes=50)
    columns = decode_run(source).columns
    batches = list(encode_batches(columns, codec=codec, max_batch_bytes=1000))
    assert len(batches) > 5
    records = []
    for batch in batches:
        header = read_header(batch)
        assert header.crc == compute_crc(batch)
        assert header.size_bytes == len(batch)
        assert (header.codec_number, header.last_offset_delta) == (codec, header.count - 1)
        if codec is Codec.NONE:
            assert len(batch) <= 1000
        batch_records = list(read_records(batch))
        assert header.max_timestamp == max(record.timestamp for record in batch_records)
        records += batch_records
    assert [record[:4] for record in records] == [record[:4] for record in read_records(source)]


def test_batches_of_an_idempotent_producer_count_their_sequence_on() -> None:
    columns = decode_run(build_batch(30, value_bytes=50)).columns
    sequence = 2**31 - 11
    for batch in encode_batches(
        columns,
        max_batch_bytes=500,
        producer_id=9,
        producer_epoch=3,
        base_sequence=sequence,
        is_transactional=True,
    ):
        header = read_header(batch)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, sequence)
        assert header.is_transactional
        sequence = (sequence + header.count) % 2**31
    assert sequence == 19


def test_some_rows_only_are_encoded() -> None:
    columns = decode_run(build_batch(30)).columns
    (batch,) = encode_batches(columns, max_batch_bytes=100_000, start=4, stop=6)
    assert [record.timestamp for record in read_records(batch)] == [1004, 1005]
    assert list(encode_batches(columns, max_batch_bytes=100_000, start=4, stop=4)) == []
