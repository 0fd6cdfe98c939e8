"""Which partition each row of columns goes to, and encoding rows in another order, in both forms of the kernel."""

import struct
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.reading.column_builder import ColumnBuilder
from barnabas.records import reference
from barnabas.records.results import Columns, NoSuchPartition, PartitionedRows
from tests.support.kernels import KERNELS, build_batch, each_kernel, rows_of

JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""What Kafka's own tests expect of its hash."""


def columns_with(keys: list[bytes | None]) -> Columns:
    builder = ColumnBuilder()
    for number, key in enumerate(keys):
        builder.append(1000 + number, key, b"%d" % number)
    return builder.finish()


def int32s(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def rows_in(partitioned: PartitionedRows) -> list[list[int]]:
    rows = memoryview(partitioned.rows).cast("i").tolist()
    bounds = partitioned.bounds
    return [rows[start:stop] for start, stop in pairwise(bounds)]


@each_kernel
@pytest.mark.parametrize("key", JAVA_HASHES)
def test_murmur2_is_kafkas(kernel: Any, key: bytes) -> None:
    assert kernel.murmur2(key) == JAVA_HASHES[key] & 0xFFFFFFFF


@each_kernel
def test_rows_with_keys_go_where_their_hash_says_and_keep_their_order(kernel: Any) -> None:
    keys = list(JAVA_HASHES) * 2
    partitioned = kernel.partition_rows(columns_with([*keys]), 3, None, [0], 1)
    expected: list[list[int]] = [[], [], []]
    for row, key in enumerate(keys):
        expected[(JAVA_HASHES[key] & 0x7FFFFFFF) % 3].append(row)
    assert rows_in(partitioned) == expected
    assert partitioned.dealt_rows == 0


@each_kernel
def test_rows_without_keys_go_round_in_runs(kernel: Any) -> None:
    partitioned = kernel.partition_rows(columns_with([None] * 7), 4, None, [3, 1], 2)
    assert rows_in(partitioned) == [[], [2, 3, 6], [], [0, 1, 4, 5]]
    assert partitioned.dealt_rows == 7


@each_kernel
def test_chosen_partition_goes_before_the_key(kernel: Any) -> None:
    columns = columns_with([b"21", b"21", None, None])
    by_key = (JAVA_HASHES[b"21"] & 0x7FFFFFFF) % 5
    rows = rows_in(kernel.partition_rows(columns, 5, int32s(4, -1, 4, -1), [0], 1))
    expected: list[list[int]] = [[] for _ in range(5)]
    for row, partition in enumerate([4, by_key, 4, 0]):
        expected[partition].append(row)
    assert rows == expected


@each_kernel
def test_no_rows_give_empty_partitions(kernel: Any) -> None:
    assert rows_in(kernel.partition_rows(columns_with([]), 3, None, [0], 1)) == [[], [], []]


@each_kernel
@pytest.mark.parametrize("partition", [3, 2**31 - 1, -2, -(2**31)])
def test_partition_that_is_not_there_is_refused_with_its_row(kernel: Any, partition: int) -> None:
    with pytest.raises(NoSuchPartition) as refused:
        kernel.partition_rows(columns_with([None] * 3), 3, int32s(0, 2, partition), [0], 1)
    assert (refused.value.row, refused.value.partition) == (2, partition)


@each_kernel
@pytest.mark.parametrize(
    ("partition_count", "chosen", "keyless", "run_rows"),
    [
        (0, None, [0], 1),
        (-1, None, [0], 1),
        (2**31, None, [0], 1),
        (3, None, [], 1),
        (3, None, [3], 1),
        (3, None, [-1], 1),
        (3, None, [0], 0),
        (3, b"\x00" * 7, [0], 1),
    ],
)
def test_impossible_arguments_are_refused(
    kernel: Any, partition_count: int, chosen: bytes | None, keyless: list[int], run_rows: int
) -> None:
    with pytest.raises(ValueError, match=r"."):
        kernel.partition_rows(columns_with([b"a", None]), partition_count, chosen, keyless, run_rows)


@each_kernel
def test_keys_that_contradict_themselves_are_refused(kernel: Any) -> None:
    columns = replace(columns_with([b"a", b"b"]), key_offsets=int32s(0, 9, 1))
    with pytest.raises(ValueError, match=r"."):
        kernel.partition_rows(columns, 3, None, [0], 1)


keys = st.lists(st.none() | st.binary(max_size=9), max_size=20)


@settings(max_examples=100, deadline=None)
@given(keys, st.integers(1, 5), st.data())
def test_both_kernels_partition_alike(keys: list[bytes | None], partition_count: int, data: st.DataObject) -> None:
    columns = columns_with(keys)
    choice = st.integers(-1, partition_count - 1)
    chosen = data.draw(st.none() | st.lists(choice, min_size=len(keys), max_size=len(keys)))
    buffer = None if chosen is None else int32s(*chosen)
    keyless = data.draw(st.permutations(range(partition_count)))
    results = {kernel.partition_rows(columns, partition_count, buffer, keyless, 2)[0] for kernel in KERNELS}
    assert len(results) == 1
    assert sorted(memoryview(results.pop()).cast("i")) == list(range(len(keys)))


# --- encoding in another order ----------------------------------------------------------------------------------


def columns_of(batch: bytes) -> Columns:
    decoder = reference.ColumnDecoder()
    decoder.append_run(batch)
    return decoder.finish()


@each_kernel
def test_encode_of_chosen_rows_equals_encode_of_columns_with_these_rows(kernel: Any) -> None:
    columns = columns_of(build_batch(10))
    everything = rows_of(columns)
    order = [7, 0, 0, 9, 3]
    records, count, max_timestamp = kernel.encode_records(columns, 1, 5, 1000, 10_000, int32s(*order))
    builder = ColumnBuilder()
    for row in order[1:]:
        _, timestamp, key, value, _ = everything[row]
        builder.append(timestamp, key, value)
    assert (records, count, max_timestamp) == kernel.encode_records(builder.finish(), 0, 4, 1000, 10_000)
    assert max_timestamp == 1009


@each_kernel
def test_encode_of_chosen_rows_takes_as_many_as_fit(kernel: Any) -> None:
    columns = columns_of(build_batch(10))
    whole, _, _ = kernel.encode_records(columns, 0, 3, 1000, 10_000, int32s(5, 4, 3))
    assert kernel.encode_records(columns, 0, 3, 1000, len(whole) - 1, int32s(5, 4, 3))[1:] == (2, 1005)
    assert kernel.encode_records(columns, 0, 0, 1000, 10, b"") == (b"", 0, -1)


@each_kernel
@pytest.mark.parametrize("row", [-1, 10, 2**31 - 1])
def test_encode_of_a_chosen_row_that_is_not_there_is_refused(kernel: Any, row: int) -> None:
    with pytest.raises(ValueError, match="row"):
        kernel.encode_records(columns_of(build_batch(10)), 0, 2, 0, 10_000, int32s(1, row))


@each_kernel
def test_encode_beyond_the_chosen_rows_is_refused(kernel: Any) -> None:
    with pytest.raises(ValueError, match="rows 0 to 3 of 2"):
        kernel.encode_records(columns_of(build_batch(10)), 0, 3, 0, 10_000, int32s(1, 2))
