"""The map of newest offsets and the filter that uses it, in both forms of the kernel."""

from typing import Any

import pytest

from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.records.results import FilteredRecords
from tests.support.kernels import each_kernel, encode_record

SECRET = bytes(range(16))


def keyed(*keys: bytes | None, **fields: Any) -> bytes:
    return b"".join(encode_record(delta, key=key, **fields) for delta, key in enumerate(keys))


@each_kernel
def test_map_remembers_newest_offset_of_each_key(kernel: Any) -> None:
    newest = kernel.KeyOffsets(10_000, SECRET)
    assert newest.add_records(keyed(b"a", b"b", b"a", None, b""), 5, 100) == 5
    assert [newest.latest(key) for key in (b"a", b"b", b"", b"c")] == [102, 101, 104, -1]
    assert (len(newest), newest.last_offset) == (3, 104)


@each_kernel
def test_map_keeps_newer_offset_when_older_record_comes_later(kernel: Any) -> None:
    newest = kernel.KeyOffsets(10_000, SECRET)
    newest.add_records(keyed(b"a"), 1, 50)
    newest.add_records(keyed(b"a"), 1, 7)
    assert (newest.latest(b"a"), newest.last_offset) == (50, 50)


@each_kernel
def test_map_that_is_full_takes_known_keys_and_stops_at_a_new_one(kernel: Any) -> None:
    newest = kernel.KeyOffsets(24 * 10, SECRET)
    assert newest.capacity == 9
    keys = [b"%d" % index for index in range(9)]
    assert newest.add_records(keyed(*keys, b"3", None, b"new", b"4"), 13, 0) == 11
    assert (len(newest), newest.latest(b"3"), newest.latest(b"4"), newest.latest(b"new")) == (9, 9, 4, -1)
    assert newest.last_offset == 10


@each_kernel
def test_map_cleared_is_empty_again(kernel: Any) -> None:
    newest = kernel.KeyOffsets(10_000, SECRET)
    newest.add_records(keyed(b"a"), 1, 50)
    newest.clear()
    assert (len(newest), newest.latest(b"a"), newest.last_offset) == (0, -1, -1)


@each_kernel
def test_map_with_many_keys_finds_all_of_them(kernel: Any) -> None:
    newest = kernel.KeyOffsets(24 * 1200, SECRET)
    keys = [b"key-%d" % index * (index % 5 + 1) for index in range(newest.capacity)]
    assert newest.add_records(keyed(*keys), len(keys), 0) == len(keys)
    assert [newest.latest(key) for key in keys] == list(range(len(keys)))


@each_kernel
def test_map_refuses_broken_records(kernel: Any) -> None:
    newest = kernel.KeyOffsets(10_000, SECRET)
    with pytest.raises(InvalidRecords):
        newest.add_records(keyed(b"a")[:-1], 1, 0)
    with pytest.raises(InvalidRecords):
        newest.add_records(keyed(b"a") + b"\x00", 1, 0)
    with pytest.raises(InvalidRecords):
        newest.add_records(b"", -1, 0)
    with pytest.raises(CorruptBatch):
        newest.add_records(keyed(b"a"), 1, 2**63 - 1)
    with pytest.raises(CorruptBatch):
        newest.add_records(keyed(b"a"), 1, -1)


@each_kernel
def test_map_refuses_bad_arguments(kernel: Any) -> None:
    with pytest.raises(ValueError, match="16"):
        kernel.KeyOffsets(10_000, b"short")
    with pytest.raises(ValueError, match="bytes"):
        kernel.KeyOffsets(47, SECRET)


@each_kernel
def test_filter_drops_older_records_of_a_key_and_records_without_one(kernel: Any) -> None:
    newest = kernel.KeyOffsets(10_000, SECRET)
    records = keyed(b"a", b"b", b"a", None, b"c")
    newest.add_records(records, 5, 10)
    newest.add_records(keyed(b"b"), 1, 90)
    kept = kernel.filter_records(records, 5, 10, 1000, newest, drop_tombstones=False, new_base_timestamp=1000)
    assert kept == FilteredRecords(encode_record(2, key=b"a") + encode_record(4, key=b"c"), 2, 1000, 2, False, 4)


@each_kernel
def test_filter_that_drops_nothing_keeps_the_bytes(kernel: Any) -> None:
    newest = kernel.KeyOffsets(10_000, SECRET)
    records = keyed(b"a", b"b", timestamp_delta=3)
    kept = kernel.filter_records(records, 2, 10, 1000, newest, drop_tombstones=True, new_base_timestamp=1000)
    assert kept == FilteredRecords(None, 2, 1003, 0, False, 1)


@each_kernel
def test_filter_that_drops_everything_leaves_no_bytes(kernel: Any) -> None:
    newest = kernel.KeyOffsets(10_000, SECRET)
    kept = kernel.filter_records(keyed(None), 1, 0, 7, newest, drop_tombstones=False, new_base_timestamp=9)
    assert kept == FilteredRecords(b"", 0, -1, -1, False, -1)


@each_kernel
def test_filter_keeps_tombstones_until_told_to_drop_them(kernel: Any) -> None:
    newest = kernel.KeyOffsets(10_000, SECRET)
    records = encode_record(0, value=None) + encode_record(1, key=b"other")
    kept = kernel.filter_records(records, 2, 0, 0, newest, drop_tombstones=False, new_base_timestamp=0)
    assert (kept.records, kept.count, kept.has_tombstones) == (None, 2, True)
    dropped = kernel.filter_records(records, 2, 0, 0, newest, drop_tombstones=True, new_base_timestamp=0)
    assert dropped == FilteredRecords(encode_record(1, key=b"other"), 1, 0, 1, False, 1)


@each_kernel
@pytest.mark.parametrize("new_base", [0, 1005, 10**15, -(2**63)])
def test_filter_with_another_base_timestamp_keeps_the_timestamps(kernel: Any, new_base: int) -> None:
    newest = kernel.KeyOffsets(10_000, SECRET)
    records = b"".join(
        encode_record(delta, timestamp_delta=delta * 3, key=b"%d" % delta, headers=[(b"h", None)], attributes=delta)
        for delta in range(3)
    )
    kept = kernel.filter_records(records, 3, 0, 1000, newest, drop_tombstones=False, new_base_timestamp=new_base)
    expected = b"".join(
        encode_record(
            delta,
            timestamp_delta=(1000 + delta * 3 - new_base + 2**63) % 2**64 - 2**63,
            key=b"%d" % delta,
            headers=[(b"h", None)],
            attributes=delta,
        )
        for delta in range(3)
    )
    assert kept == FilteredRecords(expected, 3, 1006, 2, False, 2)


@each_kernel
def test_filter_refuses_broken_records(kernel: Any) -> None:
    newest = kernel.KeyOffsets(10_000, SECRET)
    good = keyed(b"a", b"b")
    swapped = encode_record(1) + encode_record(0)
    for records, count, base_offset in [(good[:-1], 2, 0), (good, 3, 0), (good, 1, 0), (swapped, 2, 0), (good, 2, -1)]:
        with pytest.raises(CorruptBatch):
            kernel.filter_records(records, count, base_offset, 0, newest, drop_tombstones=False, new_base_timestamp=0)
