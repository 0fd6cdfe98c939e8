"""From records to rows: each format's parser, and what becomes of a record that does not parse.

```
records ──parse──▶ columns, metadata, _bad ──▶ on_error ──▶ columns, metadata
                                                  ├ fail          the query stops and says which record
                                                  ├ drop          counted, and gone
                                                  └ dead_letter   counted; the query that owns them writes them
```

A bad value never stops a query by itself: Spark's parsers give null and mark the row, and a column that the schema
calls NOT NULL makes a row without it bad too. Text with a `value_pattern` is bad where it does not match, or where what
a group matched is no value of its column's type. Bytes that are not UTF-8 are bad where text is wanted, as a value or
as a key: files with them could not be read. The parsers run in the JVM; only Avro, and rows on their way past the
dead-letter writer, go through Python, as Arrow batches.

A record without a value, a tombstone, is ordinary. `tombstones` says what it means: nothing (`drop`), a row without
values (`keep`), or such a row that is marked in the column `_deleted`, which a topic sink writes as a tombstone again.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import IllegalArgumentException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DateType, StringType, StructField, StructType, TimestampType

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.avro import PARSED, REASON, AvroDecoder, columns_ddl
from barnabas.pipelines.dead_letters import BAD, BAD_TYPE, DeadLetters
from barnabas.pipelines.json_values import is_one_object
from barnabas.pipelines.line_patterns import LinePattern, read_line_pattern
from barnabas.pipelines.nodes import nearest
from barnabas.pipelines.spec import Pipeline, Source

RECORD_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key: string, value: binary>>",
}
DELETED: Final = "_deleted"
"""The column that marks rows of tombstones, where `tombstones` is `delete`."""
_NOT_UTF_8: Final = "the value is not UTF-8 text"
_KEY_NOT_UTF_8: Final = "the key is not UTF-8 text; 'key_format: raw' takes any bytes"
_ORIGIN: Final = ("key", "topic", "partition", "offset", "timestamp")
_CORRUPT: Final = "_corrupt"
_SHOWN_CHARACTERS: Final = 200


class UnreadableSchema(BarnabasError):  # noqa: N818 - named as the fact that it is
    """A schema, or its file, that cannot be used. `key` is the key of the source at fault."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True, slots=True)
class Parser:
    """What reading one source needs to know. `writes_dead_letters`: whether this query is the one that does."""

    pipeline: Pipeline
    source: Source
    directory: Path
    writes_dead_letters: bool

    def record_columns(self) -> list[str]:
        """Which columns of the records are needed: the fewer, the faster they are read."""
        needed = {"value", *self.source.metadata}
        if self.source.on_error in ("dead_letter", "fail") and self._can_be_bad:
            needed |= {*_ORIGIN}
        return [name for name in RECORD_TYPES if name in needed]

    def record_schema(self) -> str:
        return ", ".join(f"{name} {RECORD_TYPES[name]}" for name in self.record_columns())

    @property
    def observation(self) -> str:
        """The name under which a query's progress counts the bad records of this source."""
        return f"bad_{self.source.name}"

    @property
    def _has_columns(self) -> bool:
        """Whether values are taken apart, and so can be bad."""
        return self.source.format not in ("text", "raw") or self.source.value_pattern is not None

    @property
    def _is_key_read(self) -> bool:
        """Whether keys become text, and so can be bad."""
        return self.source.is_key_text and "key" in self.source.metadata

    @property
    def _can_be_bad(self) -> bool:
        return self.source.format != "raw" or self._is_key_read

    def parse(self, records: DataFrame) -> DataFrame:
        if self.source.tombstones == "drop":
            records = records.filter(sql.col("value").isNotNull())
        rows = self._parsed(records)
        if self.source.event_time is not None and self.source.watermark_ms is not None:
            rows = rows.withWatermark(self.source.event_time, f"{self.source.watermark_ms} milliseconds")
        return rows

    def _parsed(self, records: DataFrame) -> DataFrame:
        match self.source.format:
            case "raw":
                return self._split(records, [sql.col("value")], sql.lit(None).cast("string"))
            case "text" if self.source.value_pattern is not None:
                return self._split(*self._matched(records))
            case "text":
                text = sql.col("value").cast("string")
                return self._split(records, [text.alias("value")], sql.when(~sql.is_valid_utf8(text), _NOT_UTF_8))
            case "avro":
                return self._split(*self._avro(records))
            case _:
                return self._split(*self._json_or_csv(records))

    def _metadata(self) -> list[Column]:
        columns = []
        for name in self.source.metadata:
            column = sql.col(name)
            if name == "key" and self.source.is_key_text:
                column = column.cast("string")
            columns.append(column.alias(f"_{name}"))
        if self.source.tombstones == "delete":
            columns.append(sql.col("value").isNull().alias(DELETED))
        return columns

    def columns(self) -> StructType:
        """The columns that the schema gives, without the metadata."""
        if self.source.format == "avro":
            return _struct(columns_ddl(self._avro_schema()))
        assert self.source.schema is not None, "checked when the file was read"
        return _struct(self.source.schema)

    def check_schema(self) -> None:
        """Raises what is wrong with the schema, before anything else is looked at."""
        if self._has_columns:
            self.columns()
        if self.source.value_pattern is not None:
            self._line_pattern()

    def _json_or_csv(self, records: DataFrame) -> tuple[DataFrame, list[Column], Column]:
        wanted = self.columns()
        nullable = StructType([StructField(field.name, field.dataType) for field in wanted])
        schema = StructType([*nullable, StructField(_CORRUPT, StringType())])
        options = {**self.source.parse, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        text = sql.col("value").cast("string")
        if self.source.format == "json":
            parsed = sql.from_json(text, schema, options)
        else:
            parsed = sql.from_csv(text, schema.toDDL(), options)
        frame = records.withColumn(PARSED, parsed)
        reason = sql.when(~sql.is_valid_utf8(text), _NOT_UTF_8).when(
            sql.col(PARSED).isNull() | sql.col(f"{PARSED}.{_CORRUPT}").isNotNull(),
            f"the value does not fit the schema ({self.source.format})",
        )
        if self.source.format == "json":
            reason = reason.when(~is_one_object(text, self.source.parse), "there is more after the JSON object")
        for field in wanted:
            if not field.nullable:
                reason = reason.when(sql.col(f"{PARSED}.`{field.name}`").isNull(), f"field '{field.name}' is missing")
        return frame, [sql.col(f"{PARSED}.`{field.name}`").alias(field.name) for field in wanted], reason

    def _matched(self, records: DataFrame) -> tuple[DataFrame, list[Column], Column]:
        wanted, pattern = self.columns(), self._line_pattern()
        text = sql.col("value").cast("string")
        # A group that matched nothing, or took no part, is null.
        groups = [
            sql.nullif(sql.regexp_extract(text, pattern.expression, pattern.groups[field.name]), sql.lit("")).alias(
                field.name
            )
            for field in wanted
        ]
        frame = records.withColumn(PARSED, sql.when(text.rlike(pattern.expression), sql.struct(*groups)))
        reason = sql.when(~sql.is_valid_utf8(text), _NOT_UTF_8).when(
            sql.col(PARSED).isNull(), "the value does not match the pattern"
        )
        columns = []
        for field in wanted:
            found = sql.col(f"{PARSED}.`{field.name}`")
            column = self._typed(found, field)
            kind = field.dataType.simpleString()
            shown = sql.concat(
                sql.lit(f"field '{field.name}' cannot be read as {kind}: "), sql.left(found, sql.lit(_SHOWN_CHARACTERS))
            )
            reason = reason.when(found.isNotNull() & column.isNull(), shown)
            if not field.nullable:
                reason = reason.when(found.isNull(), f"field '{field.name}' is missing")
            columns.append(column.alias(field.name))
        return frame, columns, reason

    def _typed(self, text: Column, field: StructField) -> Column:
        """What a group matched, as the type of its column; null where it is none."""
        kind, options = field.dataType, self.source.parse
        if isinstance(kind, TimestampType) and "timestampFormat" in options:
            return sql.try_to_timestamp(text, sql.lit(options["timestampFormat"]))
        if isinstance(kind, DateType) and "dateFormat" in options:
            return sql.try_to_timestamp(text, sql.lit(options["dateFormat"])).cast("date")
        return text if isinstance(kind, StringType) else text.try_cast(kind)

    def _line_pattern(self) -> LinePattern:
        """The pattern, if Java takes it and its groups are the columns of the schema."""
        assert self.source.value_pattern is not None, "asked for where there is one"
        virtual_machine: Any = SparkSession.active()._jvm
        try:
            pattern = read_line_pattern(self.source.value_pattern)
            virtual_machine.java.util.regex.Pattern.compile(pattern.expression)
        except ValueError as error:
            raise UnreadableSchema("value_pattern", str(error)) from error
        except IllegalArgumentException as error:
            reason = str(error).partition(" near index")[0]
            raise UnreadableSchema("value_pattern", f"the pattern is not a regular expression: {reason}") from error
        names = self.columns().names
        for name in pattern.groups:
            if name not in names:
                message = f"the pattern has a group '{name}', which is not a column of the schema{nearest(name, names)}"
                raise UnreadableSchema("value_pattern", message)
        for name in names:
            if name not in pattern.groups:
                hint = nearest(name, pattern.groups)
                message = f"the schema has a column '{name}', for which the pattern has no group{hint}"
                raise UnreadableSchema("schema", message)
        return pattern

    def _avro(self, records: DataFrame) -> tuple[DataFrame, list[Column], Column]:
        wanted = self.columns()
        decoder = AvroDecoder(
            json.dumps(self._avro_schema()),
            tuple(
                (int(number), self._text_of("writer_schemas", name))
                for number, name in self.source.writer_schemas.items()
            ),
            to_arrow_type(wanted, timezone="UTC"),
        )
        schema = StructType([StructField(PARSED, wanted), StructField(REASON, StringType()), *records.schema])
        frame = records.mapInArrow(decoder, schema)
        return frame, [sql.col(f"{PARSED}.`{field.name}`").alias(field.name) for field in wanted], sql.col(REASON)

    def _avro_schema(self) -> dict[str, object]:
        assert self.source.avro_schema is not None, "checked when the file was read"
        schema = json.loads(self._text_of("avro_schema", self.source.avro_schema))
        if not isinstance(schema, dict):
            raise UnreadableSchema("avro_schema", "the Avro schema must be a record")
        return schema

    def _text_of(self, key: str, name: str) -> str:
        """The text of a schema's file, which is JSON."""
        try:
            text = (self.directory / name).read_text(encoding="utf-8")
            json.loads(text)
        except OSError as error:
            raise UnreadableSchema(key, f"cannot read {name}: {error.strerror}") from error
        except ValueError as error:
            raise UnreadableSchema(key, f"{name} is not JSON: {error}") from error
        return text

    def _split(self, frame: DataFrame, columns: list[Column], reason: Column) -> DataFrame:
        """`reason` is null for a good value, and not asked for where there is none."""
        if not self._can_be_bad:
            return frame.select(*columns, *self._metadata())
        reason = sql.when(sql.col("value").isNotNull(), reason)
        if self._is_key_read:
            bad_key = sql.when(~sql.is_valid_utf8(sql.col("key").cast("string")), _KEY_NOT_UTF_8)
            reason = sql.coalesce(reason, bad_key)
        if self.source.on_error == "fail":
            return frame.filter(self._or_stop(reason)).select(*columns, *self._metadata())
        if self.source.on_error == "drop":
            return (
                self._counted(frame.select(*columns, *self._metadata(), reason.alias(BAD)))
                .filter(sql.col(BAD).isNull())
                .drop(BAD)
            )
        origin = sql.struct(reason.alias("reason"), *(sql.col(name) for name in RECORD_TYPES if name != "headers"))
        bad = sql.when(reason.isNotNull(), origin.cast(BAD_TYPE)).alias(BAD)
        counted = self._counted(frame.select(*columns, *self._metadata(), bad))
        if not self.writes_dead_letters:
            return counted.filter(sql.col(BAD).isNull()).drop(BAD)
        assert self.pipeline.dead_letter is not None, "checked when the file was read"
        is_json = self.source.format == "json"
        kinds = [(field.name, field.dataType.simpleString()) for field in self.columns()] if is_json else []
        letters = DeadLetters(
            self.pipeline.bootstrap,
            self.pipeline.dead_letter,
            self.pipeline.name,
            self.source.name,
            tuple(kinds),
        )
        return counted.mapInArrow(letters, counted.drop(BAD).schema)

    def _counted(self, frame: DataFrame) -> DataFrame:
        return frame.observe(self.observation, sql.count(sql.col(BAD)).alias("rows"))

    def _or_stop(self, reason: Column) -> Column:
        where = sql.concat(
            sql.lit(f"source '{self.source.name}': "),
            reason,
            sql.lit("; the record is "),
            sql.col("topic"),
            sql.lit("-"),
            sql.col("partition").cast("string"),
            sql.lit(" at offset "),
            sql.col("offset").cast("string"),
            sql.lit("; see 'on_error' and 'dead_letter'"),
        )
        return sql.when(reason.isNull(), sql.lit(True)).otherwise(sql.raise_error(where).cast("boolean"))


def _struct(ddl: str) -> StructType:
    parsed = StructType.fromDDL(ddl)
    if not isinstance(parsed, StructType):
        raise UnreadableSchema("schema", f"'{ddl}' is a single type; columns have names, as in 'host string'")
    return parsed
