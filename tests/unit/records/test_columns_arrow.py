"""Columns as pyarrow record batches and back."""

from datetime import UTC, datetime
from typing import Any

import pytest

from barnabas.records.arrow import SCHEMA, from_arrow, to_arrow
from barnabas.records.builder import BatchBuilder
from barnabas.records.columns import decode_run, encode_batches
from barnabas.records.reader import read_records
from tests.support.kernels import KERNELS, build_batch, each_kernel, rows_of

pa = pytest.importorskip("pyarrow")

ROWS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (None, b"v0", []),
    (b"k1", None, [("a", b"1")]),
    (b"", b"", [("b", None), ("", b"")]),
    (b"k3", b"v3", []),
    (None, None, [("ünï", b"\xff")]),
] * 5


def sample() -> bytes:
    builder = BatchBuilder()
    for index, (key, value, headers) in enumerate(ROWS):
        builder.append(1000 + index, key, value, headers)
    return bytes(builder.build())


def arrow_of(kernel: Any, batch: bytes) -> Any:
    decoder = kernel.ColumnDecoder()
    assert decoder.append_run(batch) == len(batch)
    return to_arrow(decoder.finish())


@each_kernel
def test_columns_become_a_valid_record_batch(kernel: Any) -> None:
    arrow = arrow_of(kernel, sample())
    arrow.validate(full=True)
    assert arrow.schema == SCHEMA
    assert arrow.column("key").to_pylist() == [row[0] for row in ROWS]
    assert arrow.column("value").to_pylist() == [row[1] for row in ROWS]
    assert arrow.column("offset").to_pylist() == list(range(len(ROWS)))
    assert arrow.column("timestamp")[3].as_py() == datetime(1970, 1, 1, 0, 0, 1, 3000, tzinfo=UTC)
    assert arrow.column("headers").to_pylist() == [
        [{"key": key, "value": value} for key, value in row[2]] for row in ROWS
    ]


@each_kernel
def test_no_rows_become_an_empty_record_batch(kernel: Any) -> None:
    arrow = to_arrow(kernel.ColumnDecoder().finish())
    arrow.validate(full=True)
    assert arrow.num_rows == 0
    assert from_arrow(arrow).count == 0


def test_record_batch_shares_the_memory_of_the_columns() -> None:
    columns = decode_run(build_batch(5)).columns
    arrow = to_arrow(columns)
    assert arrow.column("value").buffers()[2].address == pa.py_buffer(columns.value_data).address
    again = from_arrow(arrow)
    assert pa.py_buffer(again.value_data).address == pa.py_buffer(columns.value_data).address
    assert pa.py_buffer(again.timestamps).address == pa.py_buffer(columns.timestamps).address


def test_header_key_that_is_not_utf8_gets_replacement_characters() -> None:
    builder = BatchBuilder()
    builder.append(0, None, None, [(b"a\xff".decode("utf-8", "surrogateescape"), b"x"), ("b", b"y")])
    arrow = to_arrow(decode_run(bytes(builder.build())).columns)
    arrow.validate(full=True)
    assert [header["key"] for header in arrow.column("headers")[0].as_py()] == ["a\ufffd", "b"]


@pytest.mark.parametrize(("start", "length"), [(0, 25), (0, 3), (1, 9), (7, 12), (8, 8), (24, 1), (25, 0)])
def test_slice_of_record_batch_becomes_its_rows_only(start: int, length: int) -> None:
    arrow = arrow_of(KERNELS[-1], sample()).slice(start, length)
    columns = from_arrow(arrow)
    expected = rows_of(decode_run(sample()).columns)[start : start + length]
    batches = list(encode_batches(columns, max_batch_bytes=100_000))
    records = [record for batch in batches for record in read_records(batch)]
    assert [(record.timestamp, record.key, record.value) for record in records] == [row[1:4] for row in expected]
    assert [[(key.encode(), value) for key, value in record.headers] for record in records] == [
        row[4] for row in expected
    ]
    assert list(memoryview(columns.offsets).cast("B").cast("q")) == [row[0] for row in expected]


def test_record_batch_of_strings_and_other_units_is_converted() -> None:
    arrow = pa.record_batch(
        {
            "key": pa.array(["a", None], pa.large_string()),
            "value": pa.array(["x", "y"]),
            "timestamp": pa.array([1_234_567, None], pa.timestamp("us")),
            "headers": pa.array(
                [None, [("h", b"1")]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
            ),
        }
    )
    (batch,) = encode_batches(from_arrow(arrow, default_timestamp_ms=7), max_batch_bytes=1000)
    assert [record[:4] for record in read_records(batch)] == [
        (b"a", b"x", (), 1234),
        (None, b"y", (("h", b"1"),), 7),
    ]


def test_record_batch_with_values_only_has_null_keys_and_the_default_time() -> None:
    arrow = pa.record_batch({"value": pa.array([b"x", None], pa.binary())})
    columns = from_arrow(arrow, default_timestamp_ms=42)
    assert rows_of(columns) == [(-1, 42, None, b"x", []), (-1, 42, None, None, [])]


def test_null_lists_of_headers_with_hidden_content_have_none() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    entries = pa.array([("a", b"1"), ("b", b"2"), ("c", b"3")], kind.value_type)
    offsets = pa.array([0, 1, 2, 3], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, entries, mask=pa.array([False, True, False]))
    arrow = pa.record_batch({"value": pa.array([b"x"] * 3), "headers": lists})
    (batch,) = encode_batches(from_arrow(arrow), max_batch_bytes=1000)
    assert [record.headers for record in read_records(batch)] == [(("a", b"1"),), (), (("c", b"3"),)]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"key": [b"a"]}, "no column 'value'"),
        ({"value": [1.5]}, "cannot serve as binary"),
        ({"value": [b"a"], "timestamp": [b"soon"]}, "cannot serve as int64"),
        ({"value": [b"a"], "headers": ["x"]}, "not a list of structs"),
        ({"value": [b"a"], "headers": [[{"name": "x"}]]}, "not of key and value"),
        ({"value": [b"a"], "headers": [[{"key": None, "value": b"x"}]]}, "without a key"),
    ],
    ids=str,
)
def test_record_batch_that_cannot_serve_is_refused(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_arrow(pa.RecordBatch.from_pydict(columns))
