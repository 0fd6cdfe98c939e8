"""A pipeline as Spark's objects: for each sink a streaming DataFrame, with everything it needs before it.

Each sink is a query of its own and gets its own streams, so that its progress is committed to its own group. The names
of sources and steps are views of the session; a query is analysed when it is compiled, so the views of the next sink
may replace them.

Where records come from is an argument (`Streams`): the cluster for `run`, empty ones for `check`, which so analyses
exactly what would run. Mistakes that Spark finds are raised as `NotCompiled`, with the line of the file.

What SQL reads is what Spark's parser says (`barnabas.pipelines.relations`). Only queries are compiled: a statement is
refused before Spark could carry it out.
"""

import importlib
import re
import sys
import sysconfig
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn, Protocol

import pyspark
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.avro import UnsupportedAvro
from barnabas.pipelines.nodes import Entry, Mistake, nearest
from barnabas.pipelines.parsing import DELETED, RECORD_TYPES, Parser, UnreadableSchema
from barnabas.pipelines.query_state import StreamUse, stream_uses, tagged
from barnabas.pipelines.relations import query_relations
from barnabas.pipelines.spec import Pipeline, Sink, Source, Step, needed_for
from barnabas.pipelines.tables import SCHEMA_DDL as TABLE_COLUMNS

_PLACE_IN_SQL: Final = re.compile(r"\(line (\d+), pos (\d+)\)|line (\d+),? pos (\d+)")
_ERROR_CLASS: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_UNKNOWN_VIEW: Final = re.compile(r"The table or view `([^`]+)` cannot be found")
_TIME_MODES: Final = {"none": "None", "processing": "ProcessingTime", "event": "EventTime"}

NAMES_STREAMS: Final = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 3)
"""Spark 4.2 takes names for streams, too, but binds them by order all the same; with the newer format of its offsets it
binds them by name, and then fails to run an unfinished batch again (`None.get`)."""


class NotCompiled(BarnabasError):  # noqa: N818 - named as the fact that it is
    """Spark, or a module, does not take what the file says."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(mistake.message)
        self.mistake = mistake


class Streams(Protocol):
    """Where the records of sources come from."""

    def name_streams(self, is_named: bool) -> None:
        """Whether the streams from now on are bound to their offsets by name."""

    def stream(self, source: Source, parser: Parser, sink: Sink) -> DataFrame: ...

    def table(self, source: Source, parser: Parser) -> DataFrame: ...


@dataclass(frozen=True, slots=True)
class Compiled:
    """One query before it starts: the rows as the sink wants them. `streams` are in Spark's order."""

    sink: Sink
    rows: DataFrame
    streams: tuple[StreamUse, ...]
    is_named: bool


@dataclass(frozen=True, slots=True)
class Compiler:
    """`directory` is the file's; paths and Python modules are resolved from there."""

    spark: SparkSession
    pipeline: Pipeline
    directory: Path
    streams: Streams
    _inputs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _owners: dict[str, str | None] = field(default_factory=dict)

    def compile(self, sink: Sink, *, may_name_streams: bool = True) -> Compiled:
        """NotCompiled with the first mistake on the way to this sink.

        Streams are bound to their offsets by name, if they may; Spark cannot do that where one is read twice.
        """
        may_name_streams = may_name_streams and NAMES_STREAMS
        letters = {source.name for source in self.pipeline.sources if self.dead_letter_owner(source) == sink.name}
        self.streams.name_streams(may_name_streams)
        rows = self._rows(sink, self.streams, letters)
        uses = stream_uses(rows)
        if may_name_streams and len({use.source for use in uses}) < len(uses):
            return self.compile(sink, may_name_streams=False)
        return Compiled(sink, rows, tuple(uses), may_name_streams)

    def _rows(self, sink: Sink, streams: Streams, letters: Collection[str]) -> DataFrame:
        frames: dict[str, DataFrame] = {}
        for name in self.needed_for(sink):
            frames[name] = self.frame(name, frames, sink, streams, letters)
        return self.shaped(sink, frames[sink.input])

    def inputs_of(self, name: str) -> tuple[str, ...]:
        """The sources and earlier steps that a step works on; a source has none."""
        step = self.pipeline.step(name)
        if step is None or step.kind != "sql":
            return () if step is None else step.inputs
        if name not in self._inputs:
            self._inputs[name] = self._inputs_of_sql(step)
        return self._inputs[name]

    def _inputs_of_sql(self, step: Step) -> tuple[str, ...]:
        what = f"step '{step.name}'"
        try:
            relations = [name.lower() for name in query_relations(self.spark, step.code)]
        except PySparkException as error:
            if _is_statement(self.spark, step.code):
                message = f"{what} is a statement, and only a query can be a step: begin it with SELECT, FROM or WITH"
                raise NotCompiled(Mistake(step.entry.line_of(step.kind), message)) from error
            _refuse(error, step.entry, step.kind, what, is_sql=True)
        names = self.pipeline.names
        place = names.index(step.name)
        for name in names[place:]:
            if name.lower() in relations:
                later = "itself" if name == step.name else f"'{name}', which comes later in the file"
                raise NotCompiled(Mistake(step.entry.line_of(step.kind), f"{what} reads {later}"))
        known = {name.lower(): name for name in names[:place]}
        return tuple(known[name] for name in relations if name in known)

    def needed_for(self, sink: Sink) -> list[str]:
        """The sources and steps that a sink's rows come from, each after what it needs itself."""
        return needed_for(sink, self.inputs_of)

    def dead_letter_owner(self, source: Source) -> str | None:
        """The one sink whose query writes the dead letters of a source: the first that reads it.

        Replaces the views of sources and steps, so it comes before a query is compiled.
        """
        if source.on_error != "dead_letter":
            return None
        if source.name not in self._owners:
            named = [sink for sink in self.pipeline.sinks if source.name in self.needed_for(sink)]
            readers = [sink for sink in named if self._is_read(source, sink)] if len(named) > 1 else named
            self._owners[source.name] = readers[0].name if readers else None
        return self._owners[source.name]

    def _is_read(self, source: Source, sink: Sink) -> bool:
        """Whether Spark's plan of a sink has a source that its steps name: a CTE, or an input of Python's, may be left
        unused, and then nothing of it is read."""
        self.streams.name_streams(False)
        return any(use.source == source.name for use in stream_uses(self._rows(sink, _NoStreams(self.spark), ())))

    def frame(
        self,
        name: str,
        frames: dict[str, DataFrame],
        sink: Sink,
        streams: Streams | None = None,
        letters: Collection[str] = (),
    ) -> DataFrame:
        """A source or step, as a view too; `frames` has what it needs. `letters` are the sources whose dead letters the
        query writes."""
        source = self.pipeline.source(name)
        if source is not None:
            parser = Parser(self.pipeline, source, self.directory, name in letters)
            frame = tagged(self._source(source, parser, sink, streams or self.streams), source=name)
        else:
            step = self.pipeline.step(name)
            assert step is not None, "names were checked when the file was read"
            self.inputs_of(name)  # parses SQL, so that only a query comes further
            frame = tagged(self._step(step, frames), step=name)
        frame.createOrReplaceTempView(name)
        return frame

    def _source(self, source: Source, parser: Parser, sink: Sink, streams: Streams) -> DataFrame:
        key = "schema"
        try:
            parser.check_schema()
            key = "schema" if source.event_time is None else "event_time"
            if source.is_table:
                return parser.parse(streams.table(source, parser))
            frame = parser.parse(streams.stream(source, parser, sink))
        except (UnreadableSchema, UnsupportedAvro) as error:
            key = error.key if isinstance(error, UnreadableSchema) else "avro_schema"
            raise NotCompiled(Mistake(source.entry.line_of(key), f"source '{source.name}': {error}")) from error
        except PySparkException as error:
            _refuse(error, source.entry, key, f"source '{source.name}'")
        if source.event_time is not None and source.event_time not in frame.columns:
            line = source.entry.line_of("event_time")
            hint = nearest(source.event_time, frame.columns)
            raise NotCompiled(
                Mistake(line, f"source '{source.name}' has no column '{source.event_time}' for its event time{hint}")
            )
        return frame

    def _step(self, step: Step, frames: dict[str, DataFrame]) -> DataFrame:
        what = f"step '{step.name}'"
        try:
            match step.kind:
                case "sql":
                    frame = self.spark.sql(step.code)
                case "python":
                    frame = self._python(step, frames)
                case _:
                    frame = self._stateful(step, frames)
            if step.event_time is not None:
                frame = frame.withWatermark(step.event_time, f"{step.watermark_ms} milliseconds")
            assert frame.columns is not None, "looking at the columns makes Spark analyse"
        except PySparkException as error:
            _refuse(error, step.entry, step.kind, what, is_sql=step.kind == "sql", names=self.pipeline.names)
        return frame

    def _python(self, step: Step, frames: dict[str, DataFrame]) -> DataFrame:
        frame = self._call(step, self._load(step), *(frames[name] for name in step.inputs))
        if not isinstance(frame, DataFrame):
            message = f"step '{step.name}': {step.code} returned {type(frame).__name__}, not a DataFrame"
            raise NotCompiled(Mistake(step.entry.line_of(step.kind), message))
        return frame

    def _call(self, step: Step, function: Callable[..., Any], *arguments: DataFrame) -> Any:
        try:
            return function(*arguments)
        except PySparkException:
            raise
        except Exception as error:  # anything a user's own function raises is reported with the line that names it
            message = f"step '{step.name}': {step.code} failed: {type(error).__name__}: {error}"
            raise NotCompiled(Mistake(step.entry.line_of(step.kind), message)) from error

    def _stateful(self, step: Step, frames: dict[str, DataFrame]) -> DataFrame:
        line = step.entry.line_of(step.kind)
        found = self._load(step)
        if not (isinstance(found, type) and issubclass(found, StatefulProcessor)):
            message = f"step '{step.name}': {step.code} is not a subclass of pyspark.sql.streaming.StatefulProcessor"
            raise NotCompiled(Mistake(line, message))
        processor = self._call(step, found)
        assert step.schema is not None, "checked when the file was read"
        return (
            frames[step.inputs[0]]
            .groupBy(*step.key)
            .transformWithStateInPandas(
                processor,
                outputStructType=step.schema,
                outputMode=step.output,
                timeMode=_TIME_MODES[step.time],
                eventTimeColumnName=step.event_time or "",
            )
        )

    def _load(self, step: Step) -> Callable[..., Any]:
        """The function or class that a step names; modules beside the file are found too."""
        module_name, _, name = step.code.partition(":")
        if str(self.directory) not in sys.path:
            sys.path.insert(0, str(self.directory))
        line = step.entry.line_of(step.kind)
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise NotCompiled(Mistake(line, f"step '{step.name}': cannot import {module_name}: {error}")) from error
        except Exception as error:  # whatever a user's own module raises
            message = f"step '{step.name}': {module_name} failed while it was imported: {type(error).__name__}: {error}"
            raise NotCompiled(Mistake(line, message)) from error
        send_along(module, self.directory)
        found = getattr(module, name, None)
        if not callable(found):
            hint = nearest(name, [name for name in vars(module) if not name.startswith("_")])
            raise NotCompiled(Mistake(line, f"step '{step.name}': {module_name} has no '{name}' to call{hint}"))
        return found  # type: ignore[no-any-return]

    def shaped(self, sink: Sink, rows: DataFrame) -> DataFrame:
        """The columns as the sink writes them: key, value, headers and partition for a topic, else all."""
        for name in sink.partition_by:
            if name not in rows.columns:
                line = sink.entry.line_of("partition_by")
                message = f"sink '{sink.name}' has no column '{name}' to partition by{nearest(name, rows.columns)}"
                raise NotCompiled(Mistake(line, message))
        return self._as_records(sink, rows) if sink.kind == "topic" else rows

    def _as_records(self, sink: Sink, rows: DataFrame) -> DataFrame:
        columns = []
        if sink.key is not None:
            columns.append(self._expression(sink, rows, "key", sink.key, "string").alias("key"))
        value = self._value(sink, rows)
        if DELETED in rows.columns:
            if sink.key is None:
                message = f"sink '{sink.name}' gets rows with '{DELETED}', written as tombstones, and needs a 'key'"
                raise NotCompiled(Mistake(sink.entry.line, message))
            value = sql.when(~sql.col(DELETED), value)
        columns.append(value.alias("value"))
        if sink.headers:
            headers = [
                sql.struct(
                    sql.lit(name).alias("key"),
                    self._expression(sink, rows, "headers", text, "string").cast("binary").alias("value"),
                )
                for name, text in sink.headers.items()
            ]
            columns.append(sql.array(*headers).alias("headers"))
        if sink.partition is not None:
            columns.append(self._expression(sink, rows, "partition", sink.partition, "int").alias("partition"))
        return rows.select(*columns)

    def _value(self, sink: Sink, rows: DataFrame) -> Column:
        if sink.value is not None:
            return self._expression(sink, rows, "value", sink.value, "string")
        if sink.format in ("text", "raw"):
            if "value" not in rows.columns:
                message = f"sink '{sink.name}' has format {sink.format} and needs a column 'value'"
                raise NotCompiled(Mistake(sink.entry.line_of("format"), message))
            return self._expression(sink, rows, "format", "value", "string")
        visible = [sql.col(f"`{name}`") for name in rows.columns if not name.startswith("_")]
        if not visible:
            message = f"sink '{sink.name}' has no column to write: those that begin with '_' are left out"
            raise NotCompiled(Mistake(sink.entry.line_of("from"), message))
        as_text = sql.to_json if sink.format == "json" else sql.to_csv
        return as_text(sql.struct(*visible))

    def _expression(self, sink: Sink, rows: DataFrame, key: str, text: str, kind: str) -> Column:
        """An expression of the file over the rows, as the type that is written; bytes stay bytes."""
        what = f"'{key}' of sink '{sink.name}'"
        try:
            selected = rows.select(sql.expr(text))
            found = selected.schema[0].dataType.simpleString()
        except PySparkException as error:
            _refuse(error, sink.entry, key, what)
        if selected._jdf.queryExecution().analyzed().getClass().getSimpleName() != "Project":
            message = f"{what} must be computed from one row: '{text}' is computed from many"
            raise NotCompiled(Mistake(sink.entry.line_of(key), message))
        return sql.expr(text) if found == "binary" and kind == "string" else sql.expr(text).cast(kind)


@dataclass(frozen=True, slots=True)
class _NoStreams:
    """Streams that are only analysed, to see which of them a query reads."""

    spark: SparkSession

    def name_streams(self, is_named: bool) -> None:
        """They have no offsets."""

    def stream(self, source: Source, parser: Parser, sink: Sink) -> DataFrame:
        columns = [sql.lit(None).cast(RECORD_TYPES[name]).alias(name) for name in parser.record_columns()]
        return self.spark.readStream.format("rate").load().select(*columns)

    def table(self, source: Source, parser: Parser) -> DataFrame:
        return self.spark.createDataFrame([], TABLE_COLUMNS)


def _is_statement(spark: SparkSession, sql: str) -> bool:
    """Whether Spark could parse, and so would carry out, what is not a query."""
    parser: Any = spark._jsparkSession.sessionState().sqlParser()
    try:
        parser.parsePlan(sql)
    except PySparkException:
        return False
    return True


def send_along(module: ModuleType, directory: Path) -> None:
    """Lets Spark send a user's module to its workers, which cannot import what is not installed there.

    So it goes for the module itself, and for those in the pipeline's directory that are loaded with it.
    """
    paths = sysconfig.get_paths()
    installed = tuple(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    for one in [module, *list(sys.modules.values())]:
        origin = getattr(one, "__file__", None)
        if origin is None or origin.startswith(installed):
            continue
        if one is module or Path(origin).is_relative_to(directory.resolve()):
            cloudpickle.register_pickle_by_value(one)  # type: ignore[no-untyped-call]


def _refuse(
    error: PySparkException, entry: Entry, key: str, what: str, *, is_sql: bool = False, names: Sequence[str] = ()
) -> NoReturn:
    """Raises what Spark said, as one line at the right place. `names` are those of sources and steps."""
    line = entry.line_of(key)
    text = str(error)
    match = _PLACE_IN_SQL.search(text) if is_sql and isinstance(error, AnalysisException | ParseException) else None
    if match is not None:
        line = entry.text_lines.get(key, line) + int(match[1] or match[3]) - 1
    message = first_sentence(text)
    if (unknown := _UNKNOWN_VIEW.match(message)) is not None:
        message = f"`{unknown[1]}` cannot be found among the sources and earlier steps{nearest(unknown[1], names)}"
    raise NotCompiled(Mistake(line, f"{what}: {message}")) from error


def first_sentence(text: str) -> str:
    """What Spark says first, without the name of the error, the place and the plan."""
    head = text.split("\n\n", 1)[0].split(";\n", 1)[0].split(" SQLSTATE", 1)[0]
    head = _ERROR_CLASS.sub("", " ".join(head.split()))
    return _PLACE_IN_SQL.sub("", head).rstrip(" .;:")
