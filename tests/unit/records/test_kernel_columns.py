"""Batches to columns and columns to records, in both forms of the kernel."""

from array import array
from dataclasses import replace
from typing import Any

import pytest

from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.records.batch import HEADER_BYTES, Codec, read_header
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import EndTransactionMarker, build_marker
from barnabas.records.results import Columns
from tests.support.kernels import build_batch, each_kernel, encode_record, records_of, rows_of

HEADERS = [("first", b"1"), ("", None), ("first", b"")]


def mixed_batch(base_offset: int = 0, **fields: Any) -> bytes:
    builder = BatchBuilder(base_offset=base_offset, **fields)
    builder.append(1000, None, b"only a value")
    builder.append(990, b"only a key", None)
    builder.append(1010, b"", b"", HEADERS)
    return bytes(builder.build())


MIXED_ROWS = [
    (0, 1000, None, b"only a value", []),
    (1, 990, b"only a key", None, []),
    (2, 1010, b"", b"", [(b"first", b"1"), (b"", None), (b"first", b"")]),
]


def offsets_of(columns: Columns) -> list[int]:
    return [row[0] for row in rows_of(columns)]


@each_kernel
def test_decoder_turns_records_into_rows(kernel: Any) -> None:
    decoder = kernel.ColumnDecoder()
    batch = mixed_batch()
    assert decoder.append_run(batch) == len(batch)
    assert len(decoder) == 3
    assert rows_of(decoder.finish()) == MIXED_ROWS


@each_kernel
def test_decoder_without_rows_gives_empty_columns(kernel: Any) -> None:
    columns = kernel.ColumnDecoder().finish()
    assert rows_of(columns) == []
    assert (columns.key_validity, columns.value_validity) == (None, None)


@each_kernel
def test_decoder_finished_starts_anew(kernel: Any) -> None:
    decoder = kernel.ColumnDecoder()
    decoder.append_run(mixed_batch())
    first = decoder.finish()
    decoder.append_run(build_batch(1, 7))
    assert offsets_of(decoder.finish()) == [7]
    assert rows_of(first) == MIXED_ROWS


@each_kernel
def test_decoder_without_headers_leaves_them_out(kernel: Any) -> None:
    decoder = kernel.ColumnDecoder(with_headers=False)
    decoder.append_run(mixed_batch())
    assert [row[4] for row in rows_of(decoder.finish())] == [[], [], []]


@each_kernel
def test_decoder_drops_rows_outside_its_offsets(kernel: Any) -> None:
    decoder = kernel.ColumnDecoder(2, 9)
    run = build_batch(4) + build_batch(4, 4) + build_batch(4, 8) + build_batch(4, 12)
    assert decoder.append_run(run) == len(run)
    assert offsets_of(decoder.finish()) == list(range(2, 9))


@each_kernel
def test_decoder_stops_before_compressed_batch_and_takes_its_records(kernel: Any) -> None:
    decoder = kernel.ColumnDecoder()
    plain, compressed = build_batch(2), build_batch(2, 2, codec=Codec.GZIP)
    assert decoder.append_run(plain + compressed) == len(plain)
    assert decoder.append_run(compressed) == 0
    assert decoder.append_records(records_of(build_batch(2, 2)), read_header(compressed)) is True
    assert offsets_of(decoder.finish()) == [0, 1, 2, 3]


@each_kernel
@pytest.mark.parametrize("cut", [1, HEADER_BYTES - 1, HEADER_BYTES, 80])
def test_decoder_stops_before_incomplete_batch(kernel: Any, cut: int) -> None:
    decoder = kernel.ColumnDecoder()
    batch = build_batch(3)
    assert decoder.append_run(batch + build_batch(3, 3)[:cut]) == len(batch)
    assert offsets_of(decoder.finish()) == [0, 1, 2]


@each_kernel
def test_decoder_skips_control_batches(kernel: Any) -> None:
    marker = build_marker(
        EndTransactionMarker(is_commit=True, coordinator_epoch=0),
        producer_id=1,
        producer_epoch=0,
        timestamp=0,
        base_offset=2,
    )
    decoder = kernel.ColumnDecoder()
    run = build_batch(2) + marker + build_batch(1, 3)
    assert decoder.append_run(run) == len(run)
    assert offsets_of(decoder.finish()) == [0, 1, 3]
    assert decoder.append_records(marker[HEADER_BYTES:], read_header(marker)) is True
    assert len(decoder) == 0


@each_kernel
def test_decoder_skips_batches_of_aborted_transactions(kernel: Any) -> None:
    def batch(base_offset: int, producer_id: int, is_transactional: bool = True, codec: Codec = Codec.NONE) -> bytes:
        return build_batch(2, base_offset, producer_id=producer_id, is_transactional=is_transactional, codec=codec)

    run = (
        batch(0, 1)  # before the transaction that was aborted
        + batch(2, 1)
        + batch(4, 2)
        + batch(6, 1, codec=Codec.ZSTD)
        + batch(8, 1, is_transactional=False)
        + batch(10, 1)  # after it
        + batch(12, 3)
    )
    decoder = kernel.ColumnDecoder()
    assert decoder.append_run(run, aborted=[(3, 0, 40), (1, 2, 9), (2, 90, 99), (1, 50, 60)]) == len(run)
    assert offsets_of(decoder.finish()) == [0, 1, 4, 5, 8, 9, 10, 11]


@each_kernel
def test_decoder_with_log_append_time_gives_every_record_the_batch_time(kernel: Any) -> None:
    decoder = kernel.ColumnDecoder()
    decoder.append_run(mixed_batch(append_time_ms=5555))
    assert [row[1] for row in rows_of(decoder.finish())] == [5555] * 3


@each_kernel
def test_decoder_with_delete_horizon_counts_timestamps_from_it(kernel: Any) -> None:
    decoder = kernel.ColumnDecoder()
    decoder.append_run(mixed_batch(delete_horizon_ms=123_456))
    assert [row[1] for row in rows_of(decoder.finish())] == [1000, 990, 1010]


@each_kernel
def test_decoder_raises_at_bad_first_batch_and_stops_before_a_later_one(kernel: Any) -> None:
    good = build_batch(2)
    bad = bytearray(build_batch(2, 2))
    bad[-2] ^= 1
    decoder = kernel.ColumnDecoder()
    assert decoder.append_run(good + bad) == len(good)
    with pytest.raises(CorruptBatch):
        decoder.append_run(bad)
    assert offsets_of(decoder.finish()) == [0, 1]
    careless = kernel.ColumnDecoder(verify=False)
    assert careless.append_run(bad) == len(bad)


@each_kernel
def test_decoder_takes_bad_batch_not_even_in_part(kernel: Any) -> None:
    decoder = kernel.ColumnDecoder()
    header = read_header(build_batch(9))._replace(count=9)
    parts = [
        encode_record(delta, key=None if delta % 2 else b"k", value=None, headers=[(b"h", None)]) for delta in range(9)
    ]
    broken = b"".join(parts[:8]) + parts[8][:-1] + b"\x08"
    decoder.append_records(b"".join(parts[:3]), header._replace(count=3))
    with pytest.raises(InvalidRecords):
        decoder.append_records(broken, header)
    decoder.append_records(b"".join(encode_record(delta) for delta in range(9)), header._replace(base_offset=20))
    rows = rows_of(decoder.finish())
    assert [row[0] for row in rows] == [0, 1, 2, *range(20, 29)]
    assert [row[2] for row in rows] == [b"k", None, b"k"] + [b"key"] * 9
    assert [row[4] for row in rows] == [[(b"h", None)]] * 3 + [[]] * 9


@each_kernel
@pytest.mark.parametrize(("base_offset", "last_offset_delta"), [(-1, 2), (2**63 - 2, 2), (0, -1), (2**63 - 1, 0)])
def test_decoder_refuses_impossible_offsets(kernel: Any, base_offset: int, last_offset_delta: int) -> None:
    header = read_header(build_batch(3))._replace(base_offset=base_offset, last_offset_delta=last_offset_delta)
    with pytest.raises(CorruptBatch):
        kernel.ColumnDecoder().append_records(records_of(build_batch(3)), header)
    with pytest.raises(CorruptBatch):
        kernel.ColumnDecoder(verify=False).append_run(header.pack() + records_of(build_batch(3)))


@each_kernel
@pytest.mark.parametrize("count", [-1, 2, 4, 2**31 - 1])
def test_decoder_refuses_wrong_count(kernel: Any, count: int) -> None:
    header = read_header(build_batch(3))._replace(count=count)
    with pytest.raises(InvalidRecords):
        kernel.ColumnDecoder().append_records(records_of(build_batch(3)), header)


@each_kernel
def test_decoder_that_is_full_stops_before_the_batch_but_always_takes_a_first(kernel: Any) -> None:
    batch = build_batch(2, value_bytes=60)
    decoder = kernel.ColumnDecoder(column_bytes_max=400)
    assert decoder.append_run(batch * 5) == len(batch) * 2
    assert decoder.append_records(records_of(batch), read_header(batch)) is False
    assert len(decoder) == 4
    assert decoder.finish().count == 4
    assert decoder.append_run(build_batch(2, value_bytes=6000)) > 0
    assert decoder.append_run(batch) == 0


@each_kernel
def test_decoder_refuses_bounds_that_arrow_cannot_address(kernel: Any) -> None:
    with pytest.raises(ValueError, match="column_bytes_max"):
        kernel.ColumnDecoder(column_bytes_max=2**31)


def columns_of(kernel: Any, batch: bytes) -> Columns:
    decoder = kernel.ColumnDecoder()
    assert decoder.append_run(batch) == len(batch)
    columns: Columns = decoder.finish()
    return columns


@each_kernel
def test_encode_of_decoded_columns_gives_the_records_back(kernel: Any) -> None:
    batch = mixed_batch()
    records, count, max_timestamp = kernel.encode_records(columns_of(kernel, batch), 0, 3, 1000, 10_000)
    assert (records, count, max_timestamp) == (records_of(batch), 3, 1010)


@each_kernel
def test_encode_takes_as_many_rows_as_fit_and_at_least_one(kernel: Any) -> None:
    columns = columns_of(kernel, build_batch(10))
    whole, count, _ = kernel.encode_records(columns, 0, 10, 1000, 10_000)
    assert count == 10
    assert kernel.encode_records(columns, 0, 10, 1000, len(whole)) == (whole, 10, 1009)
    _, count, max_timestamp = kernel.encode_records(columns, 0, 10, 1000, len(whole) - 1)
    assert (count, max_timestamp) == (9, 1008)
    assert kernel.encode_records(columns, 4, 10, 1000, 1)[1:] == (1, 1004)
    assert kernel.encode_records(columns, 4, 4, 1000, 1) == (b"", 0, -1)


@each_kernel
def test_encode_from_a_later_row_counts_offset_deltas_from_it(kernel: Any) -> None:
    records, count, _ = kernel.encode_records(columns_of(kernel, build_batch(10)), 6, 8, 1006, 10_000)
    assert kernel.walk_records(records, count, 1006).max_timestamp == 1007


@each_kernel
def test_buffers_of_numbers_are_taken_as_their_bytes_are(kernel: Any) -> None:
    columns = columns_of(kernel, build_batch(10))
    typed = replace(
        columns,
        timestamps=memoryview(columns.timestamps).cast("B").cast("q"),
        value_offsets=memoryview(columns.value_offsets).cast("B").cast("i"),
        header_list_offsets=memoryview(columns.header_list_offsets).cast("B").cast("i"),
    )
    rows = array("i", [3, 1, 7])
    expected = kernel.encode_records(columns, 0, 3, 1000, 10_000, rows.tobytes())
    assert kernel.encode_records(typed, 0, 3, 1000, 10_000, rows) == expected


@each_kernel
@pytest.mark.parametrize(
    "change",
    [
        {"timestamps": bytes(23)},
        {"key_offsets": bytes(15)},
        {"key_offsets": memoryview(b"\x00\x00\x00\x00\x0b\x00\x00\x00\x0a\x00\x00\x00\x0a\x00\x00\x00")},
        {"value_offsets": b"\xff" * 16},
        {"value_offsets": b"\x00" * 8 + b"\x00\x00\x00\x7f" * 2},
        {"key_validity": b""},
        {"header_list_offsets": bytes(12)},
        {"header_list_offsets": b"\x00" * 12 + b"\x04\x00\x00\x00"},
        {"header_list_offsets": b"\x00" * 12 + b"\xff\xff\xff\xff"},
        {"header_list_offsets": b"\x00" * 12 + b"\xff\xff\xff\x7f"},
        {"header_key_offsets": b""},
        {"header_key_data": b""},
        {"header_value_validity": b""},
        {"count": 4},
    ],
    ids=str,
)
def test_encode_of_contradicting_columns_is_refused(kernel: Any, change: dict[str, Any]) -> None:
    columns = replace(columns_of(kernel, mixed_batch()), **change)
    with pytest.raises(ValueError, match=r"."):
        kernel.encode_records(columns, 0, columns.count, 0, 10_000)


@each_kernel
@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (2, 1), (0, 4)])
def test_encode_of_rows_that_are_not_there_is_refused(kernel: Any, start: int, stop: int) -> None:
    with pytest.raises(ValueError, match="rows"):
        kernel.encode_records(columns_of(kernel, mixed_batch()), start, stop, 0, 10_000)
