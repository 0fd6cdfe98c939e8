"""A pipeline as its file says it: `read_pipeline` gives a `Pipeline`, or every mistake with its line.

The file is read by the tables of `barnabas.pipelines.definitions` and checked by `barnabas.pipelines.rules`. What only
Spark or the cluster can know (columns, topics) is checked by `barnabas.pipelines.check`.

Pure: no I/O. Paths stay as written; the code that opens them knows the directory of the file.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.pipelines import definitions
from barnabas.pipelines.definitions import (
    PIPELINE,
    SINK,
    SINK_KINDS,
    SOURCE,
    STEP,
    STEP_KINDS,
    TOPIC_KEYS,
    Kind,
    Section,
)
from barnabas.pipelines.nodes import Entry, Mistake, Reader, read_scalar
from barnabas.pipelines.rules import entries_of, find_mistakes, kind_of
from barnabas.pipelines.sql_names import names_in_sql


class InvalidPipeline(BarnabasError):  # noqa: N818 - named as the fact that it is
    """The file cannot be used; every mistake is on a line `FILE:LINE: what is wrong`."""

    def __init__(self, file_name: str, mistakes: list[Mistake]) -> None:
        self.file_name = file_name
        self.mistakes = sorted(set(mistakes))
        super().__init__("\n".join(f"{file_name}:{mistake.line}: {mistake.message}" for mistake in self.mistakes))


@dataclass(frozen=True, slots=True)
class Source:
    """A topic, several, or a pattern for them, with what their records are."""

    name: str
    topics: tuple[str, ...]
    pattern: str | None
    format: str
    schema: str | None
    value_pattern: str | None
    avro_schema: str | None
    writer_schemas: Mapping[str, str]
    parse: Mapping[str, str]
    metadata: tuple[str, ...]
    is_key_text: bool
    tombstones: str
    event_time: str | None
    watermark_ms: int | None
    starting: str
    records_max_per_batch: int | None
    tasks_min: int | None
    fails_on_data_loss: bool
    on_error: str
    is_table: bool
    refresh_ms: int
    size_bytes_max: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Step:
    """SQL, a Python function or a stateful processor; `code` is the text of the one it is."""

    name: str
    kind: str
    code: str
    inputs: tuple[str, ...]
    key: tuple[str, ...]
    schema: str | None
    time: str
    output: str
    event_time: str | None
    watermark_ms: int | None
    entry: Entry


@dataclass(frozen=True, slots=True)
class Sink:
    """One query. `target` is the topic, directory or table; empty for the console."""

    name: str
    input: str
    kind: str
    target: str
    mode: str
    trigger_ms: int | None
    format: str
    key: str | None
    value: str | None
    headers: Mapping[str, str]
    partition: str | None
    partition_by: tuple[str, ...]
    compact_files: int
    compact_bytes_below: int
    catalog: Mapping[str, str]
    rows: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    bootstrap: str
    checkpoint: str
    dead_letter: str | None
    kafka: Mapping[str, str]
    spark: Mapping[str, str]
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    entry: Entry

    @property
    def names(self) -> list[str]:
        """Of the sources and steps: the views that SQL may read."""
        return [source.name for source in self.sources] + [step.name for step in self.steps]

    def source(self, name: str) -> Source | None:
        return next((source for source in self.sources if source.name == name), None)

    def step(self, name: str) -> Step | None:
        return next((step for step in self.steps if step.name == name), None)

    def query_name(self, sink: Sink) -> str:
        """Also the consumer group that the query's progress is committed to."""
        return f"{self.name}.{sink.name}"

    def inputs_of(self, name: str) -> tuple[str, ...]:
        """The sources and steps that a step names, those of SQL as far as its text alone tells; a source has none."""
        step = self.step(name)
        return () if step is None else step.inputs

    def needed_for(self, sink: Sink) -> list[str]:
        """The sources and steps that a sink's rows come from, by `inputs_of`."""
        return needed_for(sink, self.inputs_of)


def needed_for(sink: Sink, inputs_of: Callable[[str], Iterable[str]]) -> list[str]:
    """The sources and steps that a sink's rows come from, each after what it needs itself."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        if name in found:
            return
        for needed in inputs_of(name):
            visit(needed)
        found[name] = None

    visit(sink.input)
    return list(found)


def read_pipeline(text: str, file_name: str) -> Pipeline:
    """The pipeline that a file's text says; InvalidPipeline has every mistake that was found."""
    reader = Reader()
    entry = reader.read(text, PIPELINE)
    mistakes = reader.mistakes
    if entry is not None:
        # Also a file with mistakes is looked at in full: names are checked as far as they are known.
        mistakes = [*mistakes, *find_mistakes(entry)]
    if mistakes or entry is None:
        raise InvalidPipeline(file_name, mistakes)
    return _pipeline(entry)


# --- from entries to the pipeline ---------------------------------------------------------------------------------


def _value(entry: Entry, section: Section, key: str) -> Any:
    """What is written, or the default of the table."""
    field = section.field(key)
    assert field is not None, f"{key} is not a key of a {section.noun}"
    if key in entry.values:
        return entry.values[key]
    if field.default:
        return field.default if field.kind is Kind.CHOICE else read_scalar(field.default, field.kind)
    return {Kind.SETTINGS: {}, Kind.TEXTS: ()}.get(field.kind)


def _pipeline(entry: Entry) -> Pipeline:
    dead_letter = entry.values.get("dead_letter")
    sources = tuple(_source(source, dead_letter is not None) for source in entries_of(entry, "sources").values())
    known = [source.name for source in sources]
    steps = []
    for step in entries_of(entry, "steps").values():
        steps.append(_step(step, known))
        known.append(step.name)
    return Pipeline(
        name=entry.values["name"],
        bootstrap=_value(entry, PIPELINE, "bootstrap"),
        checkpoint=entry.values["checkpoint"],
        dead_letter=dead_letter,
        kafka=_value(entry, PIPELINE, "kafka"),
        spark=_value(entry, PIPELINE, "spark"),
        sources=sources,
        steps=tuple(steps),
        sinks=tuple(_sink(sink, entry.values.get("trigger")) for sink in entries_of(entry, "sinks").values()),
        entry=entry,
    )


def _source(entry: Entry, has_dead_letter: bool) -> Source:
    topic_key = kind_of(entry, TOPIC_KEYS)
    topic = entry.values[topic_key] if topic_key else ""
    is_table = _value(entry, SOURCE, "table")
    event_time = entry.values.get("event_time")
    metadata = _value(entry, SOURCE, "metadata")
    if event_time == "_timestamp" and "timestamp" not in metadata:
        metadata = (*metadata, "timestamp")
    text_format = _value(entry, SOURCE, "format")
    is_whole_value = text_format == "raw" or (text_format == "text" and "value_pattern" not in entry.values)
    default_on_error = "drop" if is_table else "dead_letter" if has_dead_letter else "fail"
    return Source(
        name=entry.name,
        topics=() if topic_key == "pattern" else (topic,) if isinstance(topic, str) else topic,
        pattern=topic if topic_key == "pattern" else None,
        format=text_format,
        schema=entry.values.get("schema"),
        value_pattern=entry.values.get("value_pattern"),
        avro_schema=entry.values.get("avro_schema"),
        writer_schemas=_value(entry, SOURCE, "writer_schemas"),
        parse=_value(entry, SOURCE, "parse"),
        metadata=tuple(name for name in definitions.METADATA if name in metadata),
        is_key_text=_value(entry, SOURCE, "key_format") == "text",
        tombstones=entry.values.get("tombstones", "keep" if is_whole_value and not is_table else "drop"),
        event_time=event_time,
        watermark_ms=entry.values.get("watermark"),
        starting=_value(entry, SOURCE, "starting"),
        records_max_per_batch=entry.values.get("records_max_per_batch"),
        tasks_min=entry.values.get("tasks_min"),
        fails_on_data_loss=_value(entry, SOURCE, "on_data_loss") == "fail",
        on_error=entry.values.get("on_error", default_on_error),
        is_table=is_table,
        refresh_ms=_value(entry, SOURCE, "refresh"),
        size_bytes_max=_value(entry, SOURCE, "size_max"),
        entry=entry,
    )


def _step(entry: Entry, known: list[str]) -> Step:
    kind = kind_of(entry, STEP_KINDS)
    assert kind is not None, "checked before"
    code = entry.values[kind]
    inputs = tuple(names_in_sql(code, known)) if kind == "sql" else _value(entry, STEP, "inputs")
    return Step(
        name=entry.name,
        kind=kind,
        code=code,
        inputs=inputs,
        key=_value(entry, STEP, "key"),
        schema=entry.values.get("schema"),
        time=_value(entry, STEP, "time"),
        output=_value(entry, STEP, "output"),
        event_time=entry.values.get("event_time"),
        watermark_ms=entry.values.get("watermark"),
        entry=entry,
    )


def _sink(entry: Entry, trigger_ms: int | None) -> Sink:
    kind = kind_of(entry, SINK_KINDS)
    assert kind is not None, "checked before"
    return Sink(
        name=entry.name,
        input=entry.values["from"],
        kind=kind,
        target="" if kind == "console" else entry.values[kind],
        mode=_value(entry, SINK, "mode"),
        trigger_ms=entry.values.get("trigger", trigger_ms),
        format=_value(entry, SINK, "format"),
        key=entry.values.get("key"),
        value=entry.values.get("value"),
        headers=_value(entry, SINK, "headers"),
        partition=entry.values.get("partition"),
        partition_by=_value(entry, SINK, "partition_by"),
        compact_files=_value(entry, SINK, "compact_files"),
        compact_bytes_below=_value(entry, SINK, "compact_below"),
        catalog=_value(entry, SINK, "catalog"),
        rows=_value(entry, SINK, "rows"),
        entry=entry,
    )
