"""Spark's rows as columns for a producer: topics, partitions, headers, and which row is at fault."""

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from barnabas.base.errors import InvalidSetting
from barnabas.spark.sink_columns import RowRefused, TopicRows, check_schema, rows_by_topic
from tests.support.kernels import rows_of

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def _rows(columns: dict[str, Any], option: str | None = None, first_row: int = 0) -> list[TopicRows]:
    return list(rows_by_topic(pa.RecordBatch.from_pydict(columns), option, first_row, 1234, set()))


def _records(rows: TopicRows) -> list[Any]:
    return [(timestamp, key, value, headers) for _, timestamp, key, value, headers in rows_of(rows.columns)]


def test_option_wins_over_the_topic_column() -> None:
    (rows,) = _rows({"value": ["x", None], "topic": ["a", None]}, "chosen")
    assert rows.topic == "chosen"
    assert _records(rows) == [(1234, None, b"x", []), (1234, None, None, [])]


def test_rows_are_parted_by_their_topics_with_their_numbers() -> None:
    parts = _rows(
        {
            "topic": ["a", "b", "a", "b", "b"],
            "value": [b"0", b"1", b"2", b"3", b"4"],
            "partition": pa.array([None, 1, 2, None, 4], pa.int32()),
            "offset": [9, 9, 9, 9, 9],
            "timestamp": [1, 2, 3, 4, 5],
        },
        first_row=100,
    )
    assert [(part.topic, [record[2] for record in _records(part)]) for part in parts] == [
        ("a", [b"0", b"2"]),
        ("b", [b"1", b"3", b"4"]),
    ]
    assert [list(part.row_numbers) for part in parts] == [[100, 102], [101, 103, 104]]
    assert [memoryview(part.partitions or b"").cast("B").cast("i").tolist() for part in parts] == [[-1, 2], [1, -1, 4]]


def test_slice_of_a_batch_is_taken_from_its_start() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": ["0", "1", "2", "3"],
            "key": [None, b"k", None, b"l"],
            "partition": pa.array([0, 1, None, 3], pa.int32()),
            "headers": pa.array([[("a", b"")], [("b", None)], None, []], HEADERS),
        }
    ).slice(1, 2)
    (rows,) = rows_by_topic(batch, "t", 0, 1234, set())
    assert _records(rows) == [(1234, b"k", b"1", [(b"b", None)]), (1234, None, b"2", [])]
    assert memoryview(rows.partitions or b"").cast("B").cast("i").tolist() == [1, -1]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"topic": ["a", None], "value": ["x", "y"]}, "row 11: its topic is null"),
        ({"topic": ["a", "b/c"], "value": ["x", "y"]}, "row 11: "),
        ({"topic": ["a", "a"], "value": ["x", "y"], "partition": pa.array([0, -1], pa.int32())}, "row 11: .* below 0"),
        (
            {"topic": ["a", "a"], "value": ["x", "y"], "headers": pa.array([[("a", b"")], [(None, b"")]], HEADERS)},
            "row 11: it has a header without a key",
        ),
        (
            {"topic": ["a", "a"], "value": ["x", "y"], "headers": pa.array([[("a", b"")], [None]], HEADERS)},
            "row 11: it has a header without a key",
        ),
    ],
    ids=["null topic", "bad topic", "negative partition", "header without key", "null header"],
)
def test_bad_row_is_named(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(RowRefused, match=message):
        _rows(columns, first_row=10)


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        ("value string", None, "no topic: give the option 'topic', or the rows a column 'topic'"),
        ("key string", "t", "no column 'value'"),
        ("value int", "t", "column 'value' is int, but must be string or binary"),
        ("value string, key long", "t", "column 'key' is bigint, but must be string or binary"),
        ("value string, partition long", "t", "column 'partition' is bigint, but must be int"),
        ("value string, topic binary", None, "column 'topic' is binary, but must be string"),
        ("value string, headers map<string,binary>", "t", "column 'headers' is map<string,binary>"),
        (
            "value string, headers array<struct<key:string,value:string>>",
            "t",
            "must be array<struct<key:string,value:b",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_refused(schema: str, topic: str | None, message: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        check_schema(_struct(schema), topic)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "topic"),
    [
        ("value string", "t"),
        ("value binary, topic string, key binary, partition int", None),
        ("VALUE string, Topic string", None),
        ("value string, topic binary", "t"),
        ("value binary, headers array<struct<key:string,value:binary>>, offset long, timestamp timestamp", "t"),
    ],
)
def test_columns_that_can_be_written_are_accepted(schema: str, topic: str | None) -> None:
    check_schema(_struct(schema), topic)


def _struct(text: str) -> Any:
    """A schema without a Spark session, which parsing Spark's own texts would need."""
    types = pytest.importorskip("pyspark.sql.types", reason="pyspark is not installed: pip install barnabas[spark]")
    simple = {
        "string": types.StringType(),
        "binary": types.BinaryType(),
        "int": types.IntegerType(),
        "long": types.LongType(),
        "timestamp": types.TimestampType(),
        "map<string,binary>": types.MapType(types.StringType(), types.BinaryType()),
    }
    for kind in ("string", "binary"):
        pair = types.StructType().add("key", "string").add("value", kind)
        simple[f"array<struct<key:string,value:{kind}>>"] = types.ArrayType(pair)
    struct = types.StructType()
    for column in text.split(", "):
        name, _, kind = column.partition(" ")
        struct = struct.add(name, simple[kind])
    return struct
