"""Finds what is wrong with a pipeline without running it: in its file, by Spark's analysis, and in the cluster.

Every source and step is analysed, also after a mistake in another; only what depends on a wrong one is left out. The
streams are empty ones (`EmptyStreams`), so nothing is read and nothing written.
"""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.base.errors import BarnabasError
from barnabas.client.blocking import BlockingClient
from barnabas.pipelines.advice import setting_advice, state_advice
from barnabas.pipelines.compile import Compiler, NotCompiled, first_sentence
from barnabas.pipelines.delta import check_delta
from barnabas.pipelines.files import parquet_problem
from barnabas.pipelines.iceberg import check_iceberg
from barnabas.pipelines.lakehouse import PackageMissing, UnfitColumn, require
from barnabas.pipelines.nodes import Mistake, nearest
from barnabas.pipelines.plans import DamagedPlan, changes, has_progress, may_name_streams, query_plan, read_plan
from barnabas.pipelines.query_state import state_of
from barnabas.pipelines.rules import SHUFFLE_PARTITIONS
from barnabas.pipelines.spec import Pipeline, Sink
from barnabas.pipelines.streams import EmptyStreams, kafka_options, source_options
from barnabas.spark.options import parse_source_options
from barnabas.spark.sink import make_stream_writer

_PACKAGES: Final = {"delta": ("deltalake", "a delta sink"), "iceberg": ("pyiceberg", "an iceberg sink")}
_WATERMARK_HINT: Final = (
    "; give the source an 'event_time' and a 'watermark' and group by a window of it, or write in mode update"
)
_UNWRITABLE: Final = ("void", "interval")


def check_pipeline(
    spark: SparkSession, pipeline: Pipeline, directory: Path, topics: Collection[str] | None
) -> list[Mistake]:
    """All mistakes; `topics` are those of the cluster, or None to check without a cluster."""
    streams = EmptyStreams(spark)
    try:
        compiler = Compiler(spark, pipeline, directory, streams)
        mistakes = [*_compile_mistakes(compiler), *_option_mistakes(pipeline), *_target_mistakes(pipeline, directory)]
        if topics is not None:
            mistakes += _topic_mistakes(pipeline, topics)
        return sorted(set(mistakes))
    finally:
        streams.close()


def advice_for(spark: SparkSession, pipeline: Pipeline, directory: Path) -> list[Mistake]:
    """What a pipeline without mistakes had better not do."""
    streams = EmptyStreams(spark)
    try:
        compiler = Compiler(spark, pipeline, directory, streams)
        found = list(setting_advice(spark, pipeline))
        for sink in pipeline.sinks:
            found += state_advice(pipeline, sink, state_of(compiler.compile(sink).rows))
        return sorted(set(found))
    finally:
        streams.close()


def topics_of(bootstrap: str) -> list[str]:
    """The names of the cluster's topics; ClusterUnreachable when no broker answers."""
    with BlockingClient(bootstrap) as client:
        return [topic.name for topic in client.topics()]


def _topic_mistakes(pipeline: Pipeline, topics: Collection[str]) -> Iterator[Mistake]:
    for source in pipeline.sources:
        for topic in source.topics:
            if topic not in topics:
                line = source.entry.line_of("topics" if "topics" in source.entry.lines else "topic")
                yield Mistake(line, f"source '{source.name}': topic '{topic}' does not exist{nearest(topic, topics)}")
    for sink in pipeline.sinks:
        if sink.kind == "topic" and sink.target not in topics:
            message = f"sink '{sink.name}': topic '{sink.target}' does not exist{nearest(sink.target, topics)}"
            yield Mistake(sink.entry.line_of("topic"), message)
    if pipeline.dead_letter is not None and pipeline.dead_letter not in topics:
        hint = nearest(pipeline.dead_letter, topics)
        message = f"the dead-letter topic '{pipeline.dead_letter}' does not exist{hint}"
        yield Mistake(pipeline.entry.line_of("dead_letter"), message)


def _target_mistakes(pipeline: Pipeline, directory: Path) -> Iterator[Mistake]:
    """Directories that are one and the same by other names, or one within the other, whose files it would join."""
    known: list[tuple[Sink, Path]] = []
    for sink in pipeline.sinks:
        if sink.kind not in ("parquet", "delta"):
            continue
        place = (directory / sink.target).resolve()
        for other, taken in known:
            if place.is_relative_to(taken) or taken.is_relative_to(place):
                where = "to the same place as" if place == taken else "into the directory of, or around that of,"
                message = f"sink '{sink.name}' writes {where} sink '{other.name}'; give it another directory"
                yield Mistake(sink.entry.line_of(sink.kind), message)
        known.append((sink, place))


def _option_mistakes(pipeline: Pipeline) -> Iterator[Mistake]:
    """What the source refuses: settings of the client, offsets to start at; a package that is missing."""
    for source in pipeline.sources:
        if source.format == "avro":
            try:
                require("fastavro", "format avro")
            except PackageMissing as error:
                yield Mistake(source.entry.line_of("format"), f"source '{source.name}': {error}")
        if source.is_table:
            continue
        options = {name.lower(): value for name, value in source_options(pipeline, source).items()}
        try:
            parse_source_options(options, is_streaming=True)
        except BarnabasError as error:
            is_start = "startingoffsets" in str(error).lower()
            line = source.entry.line_of("starting") if is_start else pipeline.entry.line_of("kafka")
            yield Mistake(line, f"source '{source.name}': {error}")


def _compile_mistakes(compiler: Compiler) -> Iterator[Mistake]:
    pipeline = compiler.pipeline
    frames: dict[str, DataFrame] = {}
    for name in pipeline.names:
        compiler.spark.catalog.dropTempView(name)
        try:
            if all(needed in frames for needed in compiler.inputs_of(name)):
                # Which sink it is for makes no difference for what Spark finds.
                frames[name] = compiler.frame(name, frames, pipeline.sinks[0])
        except NotCompiled as error:
            yield error.mistake
    for sink in pipeline.sinks:
        if sink.input in frames:
            yield from _sink_mistakes(compiler, sink, frames[sink.input])


def _sink_mistakes(compiler: Compiler, sink: Sink, frame: DataFrame) -> Iterator[Mistake]:
    try:
        rows = compiler.shaped(sink, frame)
    except NotCompiled as error:
        yield error.mistake
        return
    if not rows.isStreaming:
        yield Mistake(sink.entry.line_of("from"), f"sink '{sink.name}' writes '{sink.input}', which is not a stream")
        return
    yield from _writing_mistakes(compiler, sink, rows)
    problem = unsupported(compiler.spark, rows, sink.mode)
    if problem is not None:
        yield Mistake(sink.entry.line_of("mode"), f"sink '{sink.name}' in mode {sink.mode}: {problem}")
        return
    yield from plan_mistakes(compiler, sink)


def _writing_mistakes(compiler: Compiler, sink: Sink, rows: DataFrame) -> Iterator[Mistake]:
    pipeline = compiler.pipeline
    if sink.kind == "topic":
        try:
            options = kafka_options(pipeline, is_sink=True) | {"topic": sink.target}
            make_stream_writer(rows.schema, options, overwrite=False)
        except (BarnabasError, ValueError) as error:
            yield Mistake(sink.entry.line_of("topic"), f"sink '{sink.name}': {error}")
    elif sink.kind in _PACKAGES:
        try:
            require(*_PACKAGES[sink.kind])
            _check_table(compiler, sink, rows)
        except (PackageMissing, UnfitColumn) as error:
            yield Mistake(sink.entry.line_of(sink.kind), f"sink '{sink.name}': {error}")
    if sink.kind in ("parquet", "delta", "iceberg"):
        yield from _column_mistakes(sink, rows)
    if sink.kind == "parquet":
        if problem := parquet_problem(compiler.directory / sink.target, to_arrow_schema(rows.schema, timezone="UTC")):
            yield Mistake(sink.entry.line_of("parquet"), f"sink '{sink.name}': {problem}")
        if set(rows.columns) <= set(sink.partition_by):
            message = f"sink '{sink.name}' partitions by all of its columns, so none is left for the files"
            yield Mistake(sink.entry.line_of("partition_by"), message)
    for name in sorted({name for name in rows.columns if rows.columns.count(name) > 1}):
        yield Mistake(sink.entry.line_of("from"), f"sink '{sink.name}' has two columns '{name}'; rename one of them")


def _column_mistakes(sink: Sink, rows: DataFrame) -> Iterator[Mistake]:
    """What no file of columns can hold, and what readers that ignore case could not tell apart."""
    for column in rows.schema:
        kind = column.dataType.simpleString()
        if any(word in kind for word in _UNWRITABLE):
            message = f"sink '{sink.name}': column '{column.name}' is of type {kind}, which {sink.kind} does not have"
            yield Mistake(sink.entry.line, message)
    seen: dict[str, str] = {}
    for name in dict.fromkeys(rows.columns):
        other = seen.setdefault(name.lower(), name)
        if other != name:
            message = f"sink '{sink.name}' has columns '{other}' and '{name}', which many readers cannot tell apart"
            yield Mistake(sink.entry.line_of("from"), f"{message}; rename one of them")


def _check_table(compiler: Compiler, sink: Sink, rows: DataFrame) -> None:
    if sink.kind == "delta":
        check_delta(sink, compiler.directory, rows.schema)
    else:
        check_iceberg(sink, rows.schema)


def unsupported(spark: SparkSession, rows: DataFrame, mode: str) -> str | None:
    """What Spark says against running these rows as a stream in this mode; None when nothing.

    Spark asks itself the same when a query starts: there a missing watermark shows, and what a mode cannot do.
    """
    virtual_machine: Any = spark._jvm
    modes = virtual_machine.org.apache.spark.sql.streaming.OutputMode
    output_mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[mode]()
    checker = virtual_machine.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), output_mode)
    except PySparkException as error:
        problem = first_sentence(str(error))
        return f"{problem}{_WATERMARK_HINT}" if "without watermark" in problem else problem
    return None


def plan_mistakes(compiler: Compiler, sink: Sink) -> Iterator[Mistake]:
    """What stands against going on from the checkpoint, if there is one."""
    pipeline = compiler.pipeline
    checkpoint = compiler.directory / pipeline.checkpoint
    try:
        plan = read_plan(checkpoint)
    except DamagedPlan as error:
        yield Mistake(pipeline.entry.line_of("checkpoint"), str(error))
        return
    if plan is None:
        return
    if sink.name in plan.queries and has_progress(checkpoint, sink):
        compiled = compiler.compile(sink, may_name_streams=may_name_streams(checkpoint, sink, plan))
        yield from changes(pipeline, sink, plan, query_plan(pipeline, compiled), checkpoint / sink.name)
    wanted = pipeline.spark.get(SHUFFLE_PARTITIONS)
    if wanted is not None and int(wanted) != plan.shuffle_partitions:
        message = (
            f"{SHUFFLE_PARTITIONS} is {wanted}, but the checkpoint in {os.fspath(checkpoint)} was created with "
            f"{plan.shuffle_partitions}: use that, or start over with another checkpoint"
        )
        yield Mistake(pipeline.entry.line_of("spark"), message)
