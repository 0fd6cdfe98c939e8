"""Avro values to columns: the schema's types as Spark's, and decoding with fastavro in Arrow batches.

A value may begin with Confluent's header, a zero byte and the schema's id in four. Where ids are listed, such a value
was written with the schema of its id, which fastavro resolves against the schema that the file gives; an id that is not
listed makes a bad record, because columns read by another schema would be wrong without a sign. A value without the
header, and every value where no id is listed, is read as it stands.

fastavro is an extra (`pip install 'barnabas[avro]'`).

| Avro | Spark |
|---|---|
| boolean, int, long, float, double, string, bytes | boolean, int, bigint, float, double, string, binary |
| date, timestamp-millis, timestamp-micros, decimal | date, timestamp, timestamp, decimal |
| record, array, map, enum, fixed | struct, array, map, string, binary |
| union of null and one type | that type |
"""

import io
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from barnabas.base.errors import BarnabasError

PARSED: Final = "_parsed"
REASON: Final = "_reason"
_MAGIC: Final = 0
_HEADER: Final = struct.Struct(">BI")
_PRIMITIVES: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL: Final = {"date": "date", "timestamp-millis": "timestamp", "timestamp-micros": "timestamp"}


class UnsupportedAvro(BarnabasError):  # noqa: N818 - named as the fact that it is
    """A schema that cannot become columns."""


def columns_ddl(schema: Mapping[str, Any]) -> str:
    """The columns of a record's schema, as in `CREATE TABLE`."""
    if schema.get("type") != "record":
        raise UnsupportedAvro("the schema of a value must be a record")
    named: dict[str, Any] = {}
    named[schema.get("name", "")] = schema
    try:
        return ", ".join(f"`{field['name']}` {_spark_type(field['type'], named)}" for field in schema["fields"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UnsupportedAvro(f"the schema is not an Avro schema: {type(error).__name__}: {error}") from error
    except RecursionError as error:
        raise UnsupportedAvro("the schema contains itself, which columns cannot") from error


def _spark_type(kind: Any, named: dict[str, Any]) -> str:
    if isinstance(kind, list):
        members = [member for member in kind if member != "null"]
        if len(members) != 1:
            raise UnsupportedAvro(f"a union of {len(members)} types cannot be a column; only null and one type can")
        return _spark_type(members[0], named)
    if isinstance(kind, str):
        if kind in _PRIMITIVES:
            return _PRIMITIVES[kind]
        if kind not in named:
            raise UnsupportedAvro(f"the schema has no type '{kind}'")
        return _spark_type(named[kind], named)
    if "name" in kind:
        named[kind["name"]] = kind
    logical = kind.get("logicalType")
    if logical == "decimal":
        return f"decimal({kind['precision']},{kind.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    match kind["type"]:
        case "record":
            fields = ", ".join(f"`{field['name']}`: {_spark_type(field['type'], named)}" for field in kind["fields"])
            return f"struct<{fields}>"
        case "array":
            return f"array<{_spark_type(kind['items'], named)}>"
        case "map":
            return f"map<string, {_spark_type(kind['values'], named)}>"
        case inner:
            return _spark_type(inner, named)


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """For `DataFrame.mapInArrow`: adds `_parsed`, the value as a struct, and `_reason`, null where that was good."""

    schema_text: str
    writer_schema_texts: tuple[tuple[int, str], ...]
    row_type: pa.DataType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import fastavro

        schema = fastavro.parse_schema(json.loads(self.schema_text))
        writers = {number: fastavro.parse_schema(json.loads(text)) for number, text in self.writer_schema_texts}
        for batch in batches:
            yield self._decode(batch, schema, writers)

    def _decode(self, batch: pa.RecordBatch, schema: Any, writers: dict[int, Any]) -> pa.RecordBatch:
        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for value in batch.column("value"):
            row, reason = decode_value(value.as_py(), schema, writers)
            rows.append(row)
            reasons.append(reason)
        added = [self._column(rows, reasons), pa.array(reasons, pa.string())]
        names = [PARSED, REASON, *batch.schema.names]
        return pa.RecordBatch.from_arrays([*added, *batch.columns], names=names)

    def _column(self, rows: list[dict[str, Any] | None], reasons: list[str | None]) -> pa.Array:
        """The rows as structs. One with a value that its column cannot hold, such as an int of 40 bits, is bad."""
        try:
            return pa.array(rows, self.row_type)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            for index, row in enumerate(rows):
                try:
                    pa.array([row], self.row_type)
                except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                    rows[index], reasons[index] = None, f"the value does not fit the columns of the schema: {error}"
            return pa.array(rows, self.row_type)


def decode_value(value: bytes | None, schema: Any, writers: dict[int, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """(row, None), or (None, why it is none); (None, None) for a tombstone."""
    if value is None:
        return None, None  # a tombstone
    writer = schema
    start = 0
    number = _HEADER.unpack_from(value)[1] if len(value) >= _HEADER.size and value[0] == _MAGIC else None
    if number is not None and writers:
        if number not in writers:
            return None, f"the value was written with the schema of id {number}, which 'writer_schemas' does not list"
        start = _HEADER.size
        writer = writers[number]
    row, reason = _read(value, start, writer, schema)
    if reason is not None and number is not None and not writers:
        reason += f"; if it begins with Confluent's header, list id {number} in 'writer_schemas'"
    return row, reason


def _read(value: bytes, start: int, writer: Any, schema: Any) -> tuple[dict[str, Any] | None, str | None]:
    import fastavro

    body = io.BytesIO(value)
    body.seek(start)
    try:
        row = fastavro.schemaless_reader(body, writer, schema)
    except (
        ValueError,
        TypeError,
        EOFError,
        IndexError,
        KeyError,
        OverflowError,
        fastavro.schema.SchemaParseException,
    ) as error:
        return None, f"the value is not Avro that matches the schema: {error or type(error).__name__}"
    except (MemoryError, StopIteration) as error:  # a length of garbage
        return None, f"the value is not Avro that matches the schema: {type(error).__name__}"
    if body.tell() != len(value):
        return None, f"the value has {len(value) - body.tell()} bytes after the record"
    assert isinstance(row, dict), "a record becomes a dict"
    return row, None
