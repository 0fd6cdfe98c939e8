"""Validation of records, recovery's scan and the two searches, in both forms of the kernel."""

import struct
from typing import Any

import pytest
from crc32c import crc32c

from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.records.batch import HEADER_BYTES, Codec, read_header
from barnabas.records.builder import BatchBuilder
from barnabas.records.checksum import compute_crc, rewrite
from barnabas.records.results import REPORTED_INDEXES_MAX, RecordSummary
from tests.support.kernels import build_batch, each_kernel, encode_record, records_of

THREE = b"".join(encode_record(delta, timestamp_delta=[5, 9, 9][delta]) for delta in range(3))

BROKEN_RECORDS = {
    "cut off in a value": THREE[:-3],
    "cut off in a length": THREE + b"\x80",
    "bytes left over": THREE + b"\x00",
    "a record more": THREE + encode_record(3),
    "a record less": THREE[: 2 * len(THREE) // 3],
    "empty": b"",
    "record length negative": b"\x01" + THREE,
    "record length zero": b"\x00" + THREE,
    "record length of six bytes": b"\x80\x80\x80\x80\x80\x01" + THREE,
    "record length huge": b"\xfe\xff\xff\xff\x0f" + THREE,
    "record length one less than its fields": bytes([THREE[0] - 2]) + THREE[1:],
    "timestamp delta of eleven bytes": b"\x30\x00" + b"\x80" * 10 + b"\x00" * 13,
    "offset delta of six bytes": b"\x30\x00\x00" + b"\x80" * 5 + b"\x00" * 17,
    "key longer than the record": b"\x0e\x00\x00\x00\x7e\x00\x00\x00",
    "value longer than the record": b"\x0e\x00\x00\x00\x01\x7e\x00\x00",
    "header count negative": b"\x0c\x00\x00\x00\x01\x01\x01",
    "header count beyond the record": b"\x0c\x00\x00\x00\x01\x01\x02",
    "header without a key": encode_record(0, headers=[(None, b"x")]),
    "offset deltas from one": encode_record(1) + encode_record(2) + encode_record(3),
    "offset delta twice": encode_record(0) + encode_record(0) + encode_record(1),
    "offset delta negative": encode_record(-1) + encode_record(0) + encode_record(1),
}


@each_kernel
def test_walk_of_good_records_finds_first_of_largest_timestamp(kernel: Any) -> None:
    assert kernel.walk_records(THREE, 3, 1000) == RecordSummary(3, 1009, 1, 1005)


@each_kernel
def test_walk_of_no_records_has_no_timestamp(kernel: Any) -> None:
    assert kernel.walk_records(b"", 0, 1000) == RecordSummary(0, -1, -1, -1)


@each_kernel
def test_walk_of_timestamps_below_minus_one_finds_their_largest(kernel: Any) -> None:
    records = encode_record(0, timestamp_delta=-50) + encode_record(1, timestamp_delta=-40)
    assert kernel.walk_records(records, 2, 10) == RecordSummary(2, -30, 1, -40)


@each_kernel
def test_smallest_timestamp_leaves_out_records_without_one(kernel: Any) -> None:
    records = encode_record(0, timestamp_delta=-11) + encode_record(1, timestamp_delta=5) + encode_record(2)
    assert kernel.walk_records(records, 3, 10) == RecordSummary(3, 15, 1, 10)
    assert kernel.walk_records(encode_record(0, timestamp_delta=-11), 1, 10).min_timestamp == -1


@each_kernel
def test_walk_with_timestamp_beyond_64_bits_wraps_as_java_does(kernel: Any) -> None:
    assert kernel.walk_records(encode_record(0, timestamp_delta=1), 1, 2**63 - 1).max_timestamp == -(2**63)


@each_kernel
@pytest.mark.parametrize("records", BROKEN_RECORDS.values(), ids=BROKEN_RECORDS.keys())
def test_walk_of_broken_records_is_refused(kernel: Any, records: bytes) -> None:
    with pytest.raises(InvalidRecords):
        kernel.walk_records(records, 1 if len(records) < 26 and records else 3, 0)


@each_kernel
@pytest.mark.parametrize("records", BROKEN_RECORDS.values(), ids=BROKEN_RECORDS.keys())
@pytest.mark.parametrize("chunk_bytes", [1, 2, 7])
def test_walk_of_broken_records_in_chunks_is_refused(kernel: Any, records: bytes, chunk_bytes: int) -> None:
    walker = kernel.RecordWalker(1 if len(records) < 26 and records else 3, 0)
    with pytest.raises(InvalidRecords):  # noqa: PT012 - it may come with any chunk
        for start in range(0, len(records), chunk_bytes):
            walker.feed(records[start : start + chunk_bytes])
        walker.finish()


@each_kernel
@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 5, 100])
def test_walk_in_chunks_equals_walk_at_once(kernel: Any, chunk_bytes: int) -> None:
    records = b"".join(
        encode_record(
            delta,
            timestamp_delta=delta * 10**12,
            key=None if delta % 3 else b"k" * delta,
            value=b"v" * delta * 70,
            headers=[(b"name", None), (b"", b"x" * delta)] * (delta % 4),
        )
        for delta in range(12)
    )
    walker = kernel.RecordWalker(12, 77)
    for start in range(0, len(records), chunk_bytes):
        walker.feed(records[start : start + chunk_bytes])
    assert walker.finish() == kernel.walk_records(records, 12, 77) == RecordSummary(12, 77 + 11 * 10**12, 11, 77)


@each_kernel
def test_walk_of_negative_count_is_refused(kernel: Any) -> None:
    with pytest.raises(InvalidRecords):
        kernel.walk_records(b"", -1, 0)


@each_kernel
def test_walk_of_huge_count_is_refused_without_memory(kernel: Any) -> None:
    with pytest.raises(InvalidRecords):
        kernel.walk_records(THREE, 2**31 - 1, 0)


@each_kernel
def test_walk_requiring_keys_names_records_without(kernel: Any) -> None:
    records = b"".join(encode_record(delta, key=b"" if delta in (0, 2) else None) for delta in range(5))
    assert kernel.walk_records(records, 5, 0).count == 5
    with pytest.raises(InvalidRecords) as caught:
        kernel.walk_records(records, 5, 0, require_keys=True)
    assert caught.value.indexes == (1, 3, 4)


@each_kernel
def test_walk_requiring_keys_names_boundedly_many(kernel: Any) -> None:
    count = REPORTED_INDEXES_MAX + 10
    records = b"".join(encode_record(delta, key=None, value=None) for delta in range(count))
    with pytest.raises(InvalidRecords) as caught:
        kernel.walk_records(records, count, 0, require_keys=True)
    assert caught.value.indexes == tuple(range(REPORTED_INDEXES_MAX))


@each_kernel
def test_walk_of_compacted_records_takes_gaps_up_to_last_offset_delta(kernel: Any) -> None:
    records = encode_record(2) + encode_record(7)
    assert kernel.walk_records(records, 2, 0, consecutive=False, last_offset_delta=7).count == 2
    with pytest.raises(InvalidRecords):
        kernel.walk_records(records, 2, 0, consecutive=False, last_offset_delta=6)
    with pytest.raises(InvalidRecords):
        kernel.walk_records(records, 2, 0, consecutive=False)
    with pytest.raises(InvalidRecords):
        kernel.walk_records(encode_record(7) + encode_record(2), 2, 0, consecutive=False, last_offset_delta=7)


@each_kernel
def test_walk_takes_what_kafka_takes(kernel: Any) -> None:
    any_negative_is_null = b"\x0c\x55\x00\x00\x03\x05\x00"
    spare_bits_are_dropped = b"\x14\x00\x00\x80\x80\x80\x80\x70\x01\x01\x00"
    assert kernel.walk_records(any_negative_is_null, 1, 0).count == 1
    assert kernel.walk_records(spare_bits_are_dropped, 1, 0).count == 1


@each_kernel
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 767, 768, 769, 12287, 12288, 12289, 13056, 70_000])
def test_crc_equals_that_of_crc32c_package(kernel: Any, length: int) -> None:
    data = bytes((index * 167 + index // 256) & 0xFF for index in range(length + 3))[3:]
    assert kernel.crc32c(data) == kernel.crc32c(data, portable=True) == crc32c(data)
    assert kernel.crc32c(data[length // 3 :], kernel.crc32c(data[: length // 3])) == crc32c(data)


@each_kernel
def test_scan_of_good_batches_returns_their_headers(kernel: Any) -> None:
    batches = [build_batch(3), build_batch(2, 3, codec=Codec.ZSTD), build_batch(1, 5)]
    run = b"".join(batches)
    scan = kernel.scan_batches(b"xx" + run, 2)
    assert scan == ([read_header(batch) for batch in batches], len(run), 0, None)
    assert kernel.scan_batches(run, limit=2).headers == scan.headers[:2]


@each_kernel
def test_scan_of_batch_emptied_by_compaction_takes_it(kernel: Any) -> None:
    empty = bytes(BatchBuilder(base_offset=5).build(last_offset=9))
    assert kernel.scan_batches(empty).headers == [read_header(empty)]


@each_kernel
@pytest.mark.parametrize("verify", [True, False])
def test_scan_of_incomplete_batch_says_what_it_needs(kernel: Any, verify: bool) -> None:
    first, second = build_batch(3), build_batch(2, 3)
    for present, needed in [(1, HEADER_BYTES), (60, HEADER_BYTES), (61, len(second)), (len(second) - 1, len(second))]:
        scan = kernel.scan_batches(first + second[:present], verify=verify)
        assert scan == ([read_header(first)], len(first), needed, None)
    assert kernel.scan_batches(b"", verify=verify) == ([], 0, 0, None)


def _changed(batch: bytes, position: int, content: bytes) -> bytes:
    """The batch with other bytes and the checksum that belongs to them."""
    changed = bytearray(batch)
    changed[position : position + len(content)] = content
    changed[17:21] = compute_crc(changed).to_bytes(4, "big")
    return bytes(changed)


BAD_BATCHES = {
    "flipped bit": build_batch(3)[:-1] + b"\x01",
    "magic 1": _changed(build_batch(3), 16, b"\x01"),
    "length less than a header": _changed(build_batch(3), 8, (48).to_bytes(4, "big")),
    "length negative": _changed(build_batch(3), 8, b"\xff\xff\xff\xff"),
    "count too large": _changed(build_batch(3), 57, (4).to_bytes(4, "big")),
    "count too small": _changed(build_batch(3), 57, (2).to_bytes(4, "big")),
    "count negative": _changed(build_batch(3, codec=Codec.LZ4), 57, b"\xff\xff\xff\xff"),
    "last offset delta too small": _changed(build_batch(3), 23, (1).to_bytes(4, "big")),
    "last offset delta negative": _changed(build_batch(3, codec=Codec.LZ4), 23, b"\xff\xff\xff\xff"),
}


@each_kernel
@pytest.mark.parametrize("bad", BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
def test_scan_stops_at_bad_batch_and_says_why(kernel: Any, bad: bytes) -> None:
    good = build_batch(2)
    scan = kernel.scan_batches(good + bad + good)
    assert (scan.headers, scan.valid_bytes, scan.needed_bytes) == ([read_header(good)], len(good), 0)
    assert scan.problem


@each_kernel
def test_scan_without_verifying_looks_at_headers_only(kernel: Any) -> None:
    scan = kernel.scan_batches(BAD_BATCHES["flipped bit"] + BAD_BATCHES["count negative"], verify=False)
    assert (len(scan.headers), scan.problem) == (2, None)
    assert kernel.scan_batches(BAD_BATCHES["magic 1"], verify=False).problem


@each_kernel
def test_scan_from_outside_the_buffer_is_our_mistake(kernel: Any) -> None:
    with pytest.raises(ValueError, match="outside"):
        kernel.scan_batches(b"abc", 4)


@each_kernel
@pytest.mark.parametrize(("layout", "column", "is_wide"), [(">qi", 0, True), (">ii", 0, False), (">ii", 4, False)])
def test_floor_is_the_last_entry_that_is_not_above(kernel: Any, layout: str, column: int, is_wide: bool) -> None:
    entry = struct.Struct(layout)
    low = -(2**63) if is_wide else -(2**31)
    numbers = [low, -1, 0, 5, 5, 9, -low - 1]
    entries = b"".join(entry.pack(number, number) if column else entry.pack(number, 7) for number in numbers)
    size = entry.size
    floors = [kernel.floor_entry(entries, size, column, is_wide, target) for target in (*numbers, 4, 6, low // 2)]
    assert floors == [0, 1, 2, 4, 4, 5, 6, 2, 4, 0]
    assert kernel.floor_entry(entries[size:], size, column, is_wide, low) == -1
    assert kernel.floor_entry(b"", size, column, is_wide, 0) == -1


@each_kernel
def test_seek_finds_batch_that_holds_the_offset(kernel: Any) -> None:
    batches = [build_batch(3), build_batch(2, 3), build_batch(4, 10)]
    run = b"".join(batches)
    starts = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    expected = {0: 0, 2: 0, 3: 1, 4: 1, 5: 2, 10: 2, 13: 2}
    assert {offset: kernel.seek_offset(run, offset) for offset in expected} == {
        offset: (starts[batch], True) for offset, batch in expected.items()
    }
    assert kernel.seek_offset(run, 14) == (len(run), False)


@each_kernel
def test_seek_beyond_the_buffer_says_where_to_go_on(kernel: Any) -> None:
    first, second = build_batch(3), build_batch(2, 3)
    run = first + second
    assert kernel.seek_offset(run[: len(first) + 60], 4) == (len(first), False)
    assert kernel.seek_offset(run[: len(first) + 61], 4) == (len(first), True)
    assert kernel.seek_offset(run[: len(first) + 61], 9) == (len(run), False)
    assert kernel.seek_offset(b"", 0) == (0, False)


@each_kernel
@pytest.mark.parametrize("bad", ["magic 1", "length less than a header", "length negative"])
def test_seek_over_impossible_header_is_refused(kernel: Any, bad: str) -> None:
    with pytest.raises(CorruptBatch):
        kernel.seek_offset(build_batch(1) + BAD_BATCHES[bad], 50)


@each_kernel
def test_seek_with_offsets_at_the_edge_of_64_bits_does_not_wrap(kernel: Any) -> None:
    last = bytearray(build_batch(3))
    last[0:8] = (2**63 - 1).to_bytes(8, "big")
    assert kernel.seek_offset(last, 2**63 - 1) == (0, True)
    lowest = bytearray(build_batch(3))
    lowest[0:8] = (2**63).to_bytes(8, "big")
    lowest[23:27] = b"\xff\xff\xff\xff"
    assert kernel.seek_offset(lowest, 0) == (len(lowest), False)


@each_kernel
def test_find_timestamp_returns_first_record_not_older(kernel: Any) -> None:
    records = b"".join(encode_record(delta, timestamp_delta=[5, 2, 9, 7][delta]) for delta in range(4))
    assert kernel.find_timestamp(records, 4, 100, 0) == (0, 105)
    assert kernel.find_timestamp(records, 4, 100, 106) == (2, 109)
    assert kernel.find_timestamp(records, 4, 100, 106, first_delta=3) == (3, 107)
    assert kernel.find_timestamp(records, 4, 100, 110) is None
    assert kernel.find_timestamp(b"", 0, 100, 110) is None


@each_kernel
def test_find_timestamp_in_broken_records_is_refused(kernel: Any) -> None:
    with pytest.raises(InvalidRecords):
        kernel.find_timestamp(THREE[:-2], 3, 0, 100)
    with pytest.raises(InvalidRecords):
        kernel.find_timestamp(THREE + b"\x00", 3, 0, 100)
    assert kernel.find_timestamp(THREE[:-2], 3, 0, 5) == (0, 5)


@each_kernel
def test_records_of_built_batch_are_walked(kernel: Any) -> None:
    batch = build_batch(300, value_bytes=400)
    header = read_header(batch)
    assert kernel.walk_records(records_of(batch), 300, header.base_timestamp) == RecordSummary(300, 1299, 299, 1000)


@each_kernel
def test_inspected_batch_gives_header_and_summary(kernel: Any) -> None:
    batch = build_batch(300, value_bytes=400)
    header, summary = kernel.inspect_batch(batch)
    assert header == read_header(batch)
    assert summary == RecordSummary(300, 1299, 299, 1000)


@each_kernel
@pytest.mark.parametrize("cut", [0, 1, 60, 61, 70])
def test_inspected_batch_that_is_cut_off_is_corrupt(kernel: Any, cut: int) -> None:
    with pytest.raises(CorruptBatch):
        kernel.inspect_batch(build_batch(3)[:cut])


@each_kernel
def test_inspected_batch_with_any_bit_flipped_is_refused(kernel: Any) -> None:
    batch = build_batch(3)
    for position in range(8, len(batch)):
        if 12 <= position < 16:  # the leader epoch, which the log sets
            continue
        flipped = bytearray(batch)
        flipped[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            kernel.inspect_batch(flipped)


@each_kernel
def test_inspected_batch_followed_by_more_bytes_is_refused(kernel: Any) -> None:
    with pytest.raises(InvalidRecords, match="left over"):
        kernel.inspect_batch(build_batch(3) + b"\0")


LIMITS = (False, 1_500, 1_000, 1_000)
"""No keys required; timestamps from 500 to 2,500."""


@each_kernel
def test_admitted_batch_has_its_offsets_and_epoch(kernel: Any) -> None:
    batch = bytearray(build_batch(300, value_bytes=400))
    assert kernel.admit_batch(batch, 7_000, 3, *LIMITS) == (7_299, 1_299, 300, None)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch, header.count) == (7_000, 3, 300)
    assert kernel.inspect_batch(batch)[0] == header


@each_kernel
def test_admitted_batch_of_an_idempotent_producer_has_its_header(kernel: Any) -> None:
    batch = bytearray(build_batch(3, producer_id=5, producer_epoch=0, base_sequence=0))
    *_, header = kernel.admit_batch(batch, 7_000, 3, *LIMITS)
    assert header == read_header(batch)


@each_kernel
def test_batch_that_has_an_offset_already_is_not_admitted(kernel: Any) -> None:
    batch = bytearray(build_batch(3))
    batch[7] = 1
    assert kernel.admit_batch(batch, 7_000, 3, *LIMITS) is None


@each_kernel
def test_batch_of_a_transaction_is_not_admitted(kernel: Any) -> None:
    builder = BatchBuilder(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(1_000, b"key", b"value")
    assert kernel.admit_batch(bytearray(builder.build()), 7_000, 3, *LIMITS) is None


@each_kernel
@pytest.mark.parametrize(
    "limits",
    [(False, 1_200, 100, 98), (False, 1_299, 298, 1_000)],
    ids=["too new", "too old"],
)
def test_batch_with_timestamps_out_of_bounds_is_not_admitted(kernel: Any, limits: tuple[Any, ...]) -> None:
    batch = bytearray(build_batch(300))
    before = bytes(batch)
    assert kernel.admit_batch(batch, 7_000, 3, *limits) is None
    assert batch == before


@each_kernel
def test_batch_is_admitted_whatever_its_age_where_no_bounds_are_set(kernel: Any) -> None:
    no_bound = 2**63 - 1
    assert kernel.admit_batch(bytearray(build_batch(3)), 0, 0, False, 1_500, no_bound, no_bound) is not None


@each_kernel
def test_batch_of_negative_timestamps_is_not_admitted_as_it_came(kernel: Any) -> None:
    no_bound = 2**63 - 1
    builder = BatchBuilder()
    builder.append(-2, b"key", b"value")
    batch = bytearray(builder.build())
    rewrite(memoryview(batch), 0, -2)
    assert kernel.admit_batch(batch, 0, 0, False, 1_500, no_bound, no_bound) is None


@each_kernel
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec != Codec.NONE])
def test_compressed_batch_is_not_admitted(kernel: Any, codec: Codec) -> None:
    assert kernel.admit_batch(bytearray(build_batch(3, codec=codec)), 0, 0, *LIMITS) is None


@each_kernel
def test_batch_in_memory_that_cannot_be_written_is_not_admitted(kernel: Any) -> None:
    assert kernel.admit_batch(bytes(build_batch(3)), 0, 0, *LIMITS) is None


@each_kernel
def test_batch_that_states_a_wrong_largest_timestamp_is_not_admitted(kernel: Any) -> None:
    batch = bytearray(build_batch(3))
    rewrite(memoryview(batch), 0, 1_001)
    assert kernel.admit_batch(batch, 0, 0, *LIMITS) is None
