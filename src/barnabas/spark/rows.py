"""Records as the rows that Spark sees: the columns of its Kafka connector, made of the record kernel's Arrow columns.

```
key        binary      topic      string      timestamp      timestamp (microseconds, UTC)
value      binary      partition  int         timestampType  int: 0 is the producer's time, 1 the log's
                       offset     long        headers        array<struct<key: string, value: binary>>, when asked for;
                                                             null when a record has none
```

A schema with fewer columns, in any order, gets only these; the others are not built.
"""

from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import TopicPartition
from barnabas.records.arrow import to_arrow
from barnabas.records.results import Columns
from barnabas.spark.option_names import nearest

HEADERS: Final = "headers"
TIMESTAMP_TYPE: Final = "timestampType"
HEADERS_TYPE: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
RECORD_SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField(TIMESTAMP_TYPE, IntegerType()),
    ]
)
_MICROSECONDS: Final = 1000
_CONSTANT_ROWS_MIN: Final = 1 << 16


def record_schema(has_headers: bool) -> StructType:
    return StructType([*RECORD_SCHEMA.fields, StructField(HEADERS, HEADERS_TYPE)]) if has_headers else RECORD_SCHEMA


def check_schema(schema: StructType, has_headers: bool) -> None:
    """InvalidSetting when somebody gave a schema with columns that a record does not have."""
    kinds = {field.name: field.dataType for field in record_schema(has_headers).fields}
    for given in schema.fields:
        kind = kinds.get(given.name)
        if kind is None:
            if given.name == HEADERS:
                raise InvalidSetting("the schema has a column 'headers': set the option 'includeHeaders' to true")
            raise InvalidSetting(f"a record has no column '{given.name}'{nearest(given.name, list(kinds))}")
        if given.dataType.simpleString() != kind.simpleString():
            wrong, right = given.dataType.simpleString(), kind.simpleString()
            raise InvalidSetting(f"column '{given.name}' is of type {right}, not {wrong}: cast it in the query")


class RowMaker:
    """Makes Arrow batches of one partition's records, with the columns of a schema."""

    def __init__(self, schema: StructType, partition: TopicPartition) -> None:
        # Spark compares the first batch with exactly this.
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._partition = partition
        self._constants: dict[tuple[str, int], pa.Array] = {}

    @property
    def has_headers(self) -> bool:
        return HEADERS in self._schema.names

    @property
    def has_timestamp_type(self) -> bool:
        return TIMESTAMP_TYPE in self._schema.names

    def make(self, columns: Columns, timestamp_type: int) -> pa.RecordBatch:
        """All of these records must have the same type of timestamp."""
        records = to_arrow(columns)
        arrays = [self._column(field, records, timestamp_type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: pa.Field, records: pa.RecordBatch, timestamp_type: int) -> pa.Array:
        match field.name:
            case "topic":
                return self._constant(field, 0, self._partition.topic, records.num_rows)
            case "partition":
                return self._constant(field, 0, self._partition.partition, records.num_rows)
            case "timestampType":
                return self._constant(field, timestamp_type, timestamp_type, records.num_rows)
            case "timestamp":
                return self._timestamps(field, records)
            case "headers":
                return _headers(field, records.column("headers"))
            case name:
                return records.column(name)

    def _constant(self, field: pa.Field, variant: int, value: str | int, rows: int) -> pa.Array:
        key = (field.name, variant)
        known = self._constants.get(key)
        if known is None or len(known) < rows:
            known = pa.repeat(pa.scalar(value, field.type), max(rows, _CONSTANT_ROWS_MIN))
            self._constants[key] = known
        return known.slice(0, rows)

    def _timestamps(self, field: pa.Field, records: pa.RecordBatch) -> pa.Array:
        milliseconds = records.column("timestamp").view(pa.int64())
        try:
            return pc.multiply_checked(milliseconds, _MICROSECONDS).view(field.type)
        except pa.ArrowInvalid:
            row = pc.index(pc.greater(pc.abs(milliseconds), (2**63 - 1) // _MICROSECONDS), True).as_py()
            raise ValueError(
                f"{self._partition}: the record at offset {records.column('offset')[row]} has the timestamp "
                f"{milliseconds[row]}, which is too large: timestamps are milliseconds since 1970"
            ) from None


def _headers(field: pa.Field, headers: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(headers)
    mask = pc.equal(lengths, 0)
    entries = pa.StructArray.from_arrays(headers.values.flatten(), fields=list(field.type.value_type))
    return pa.ListArray.from_arrays(headers.offsets, entries, type=field.type, mask=mask)
