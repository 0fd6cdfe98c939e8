"""The parts of parsing that need no Spark: reasons of dead letters, Avro, the latest rows of a table."""

import io
import json
from typing import Any

import pyarrow as pa
import pytest

from barnabas.pipelines.avro import AvroDecoder, UnsupportedAvro, columns_ddl, decode_value
from barnabas.pipelines.dead_letters import explain, shortened
from barnabas.pipelines.record_sending import OutgoingRecord

FIELDS = (("user", "string"), ("age", "int"), ("at", "timestamp"), ("tags", "array<string>"))
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "home", "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}},
        {"name": "work", "type": ["null", "Place"]},
    ],
}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{oops", "the value is not JSON"),
        (b"\xff\xfe{}", "the value is not UTF-8 text"),
        (b"[1]", "not an object"),
        (b'{"age": "old"}', "field 'age' cannot be read as int: \"old\""),
        (b'{"at": "never"}', "field 'at' cannot be read as timestamp"),
        (b'{"tags": 3}', "field 'tags' cannot be read as array<string>: 3"),
        (b'{"age": 3}', "it does not fit"),
        (None, "it does not fit"),
    ],
)
def test_reason_says_what_is_wrong_where_it_is_plain(value: bytes | None, reason: str) -> None:
    assert reason in explain("it does not fit", value, FIELDS)


def test_letter_that_is_too_large_is_cut_step_by_step_and_says_so() -> None:
    letter: OutgoingRecord | None = OutgoingRecord(b"k" * 10, b"v" * 100, (("barnabas.reason", b"why"),))
    sizes = []
    while (letter := shortened(letter)) is not None:
        sizes.append((len(letter.key or b""), len(letter.value or b"")))
        assert letter.headers == (("barnabas.reason", b"why"), ("barnabas.cut", b"key 10 bytes, value 100 bytes"))
    assert sizes == [(10, 50), (10, 25), (10, 12), (10, 6), (5, 6), (5, 3), (2, 3), (2, 1), (1, 1)]
    assert shortened(OutgoingRecord(None, None, ())) is None


def test_reason_of_other_formats_is_the_parsers() -> None:
    assert explain("it does not fit", b"a;b", ()) == "it does not fit"


def test_avro_schema_becomes_columns() -> None:
    assert columns_ddl(SCHEMA) == (
        "`id` bigint, `name` string, `at` timestamp, `tags` array<string>, `home` struct<`city`: string>,"
        " `work` struct<`city`: string>"
    )


def test_avro_union_of_two_types_is_refused() -> None:
    with pytest.raises(UnsupportedAvro, match="union of 2 types"):
        columns_ddl({"type": "record", "name": "A", "fields": [{"name": "a", "type": ["int", "string"]}]})


def test_avro_value_is_decoded_with_and_without_confluents_header() -> None:
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed")
    writer = fastavro.parse_schema(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "gone", "type": "string"}]}
    )
    reader = fastavro.parse_schema(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 7}],
        }
    )
    old, new, zero = io.BytesIO(), io.BytesIO(), io.BytesIO()
    fastavro.schemaless_writer(zero, reader, {"a": 0, "b": 123_456_789})
    assert zero.getvalue()[0] == 0
    assert decode_value(zero.getvalue(), reader, {}) == ({"a": 0, "b": 123_456_789}, None)
    fastavro.schemaless_writer(old, writer, {"a": 1, "gone": "x"})
    fastavro.schemaless_writer(new, reader, {"a": 2, "b": 3})
    with_header = b"\x00\x00\x00\x00\x05" + old.getvalue()
    assert decode_value(with_header, reader, {5: writer}) == ({"a": 1, "b": 7}, None)
    unlisted = b"\x00\x00\x00\x00\x09" + new.getvalue()
    assert decode_value(unlisted, reader, {5: writer}) == (
        None,
        "the value was written with the schema of id 9, which 'writer_schemas' does not list",
    )
    row, reason = decode_value(unlisted, reader, {})
    assert row is None
    assert "list id 9 in 'writer_schemas'" in (reason or "")
    assert decode_value(None, reader, {}) == (None, None)
    assert decode_value(new.getvalue(), reader, {}) == ({"a": 2, "b": 3}, None)
    for bad in (b"", b"\x00\x00\x00\x00\x09", new.getvalue() + b"more", b"\x04\xff\xff\xff\xff\xff\xff"):
        row, reason = decode_value(bad, reader, {})
        assert row is None
        assert reason


def test_avro_value_that_its_column_cannot_hold_is_a_bad_record() -> None:
    """Avro's variable-length ints have no bound of their own; one of them would have stopped its query for ever."""
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed")
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    wide = io.BytesIO()
    fastavro.schemaless_writer(
        wide, fastavro.parse_schema({**schema, "fields": [{"name": "a", "type": "long"}]}), {"a": 1 << 40}
    )
    decoder = AvroDecoder(json.dumps(schema), (), pa.struct([("a", pa.int32())]))
    values = pa.RecordBatch.from_pydict({"value": pa.array([b"\x02", wide.getvalue(), None], pa.binary())})
    (decoded,) = decoder(iter([values]))
    assert decoded.column("_parsed").to_pylist() == [{"a": 1}, None, None]
    good, bad, tombstone = decoded.column("_reason").to_pylist()
    assert good is tombstone is None
    assert bad.startswith("the value does not fit the columns of the schema: ")


def rows(*records: tuple[str | None, str | None, int, int, int]) -> pa.Table:
    """(key, value, partition, offset, timestamp)"""
    return pa.table(
        {
            "key": pa.array([None if key is None else key.encode() for key, *_ in records], pa.binary()),
            "value": pa.array([None if one[1] is None else one[1].encode() for one in records], pa.binary()),
            "partition": pa.array([one[2] for one in records], pa.int32()),
            "offset": pa.array([one[3] for one in records], pa.int64()),
            "timestamp": pa.array([one[4] for one in records], pa.timestamp("us", "UTC")),
        }
    )


def latest(*records: tuple[str | None, str | None, int, int, int]) -> dict[bytes, bytes]:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
    from barnabas.pipelines.tables import latest_rows

    found = latest_rows(rows(*records))
    return dict(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True))


def test_latest_rows_go_by_offset_within_a_partition() -> None:
    assert latest(("a", "1", 0, 0, 9), ("a", "2", 0, 1, 5), ("b", "3", 0, 2, 6)) == {b"a": b"2", b"b": b"3"}


def test_latest_rows_leave_out_tombstones_and_rows_without_key() -> None:
    assert latest(("a", "1", 0, 0, 1), ("a", None, 0, 1, 2), (None, "x", 0, 2, 3)) == {}
    assert latest(("a", None, 0, 0, 1), ("a", "1", 0, 1, 2)) == {b"a": b"1"}


def test_latest_rows_of_key_in_two_partitions_go_by_timestamp() -> None:
    assert latest(("a", "old", 0, 8, 1), ("a", "new", 1, 0, 2)) == {b"a": b"new"}
    assert latest(("a", "old", 0, 8, 1), ("a", None, 1, 0, 2)) == {}
