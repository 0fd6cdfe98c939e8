"""What must hold between the keys of a pipeline's file: names that exist, keys that belong together or exclude others.

What a single key may hold is in `barnabas.pipelines.definitions`; what only Spark or the cluster can know is looked for
by `barnabas.pipelines.check`. Pure: no I/O.
"""

import posixpath
import re
from collections.abc import Iterator
from typing import Final, cast

from barnabas.pipelines.definitions import SINK_KINDS, STEP_KINDS
from barnabas.pipelines.nodes import Entry, Mistake, nearest

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_REFERENCE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_STARTING_WORDS: Final = ("earliest", "latest")
_KEYS_OF_TABLES: Final = ("refresh", "size_max")
_KEYS_OF_STREAMS: Final = (
    "event_time",
    "watermark",
    "starting",
    "records_max_per_batch",
    "tasks_min",
    "on_data_loss",
    "tombstones",
)
_TABLE_KINDS: Final = ("parquet", "delta", "iceberg")
_KEYS_OF_PATTERNS: Final = ("schema", "parse")
_PARSE_OPTIONS_OF_TEXT: Final = ("timestampFormat", "dateFormat")
_KEYS_OF_SINKS: Final = {
    "format": ("topic",),
    "key": ("topic",),
    "value": ("topic",),
    "headers": ("topic",),
    "partition": ("topic",),
    "partition_by": ("parquet", "delta"),
    "compact_files": ("parquet", "delta", "iceberg"),
    "compact_below": ("parquet", "delta", "iceberg"),
    "catalog": ("iceberg",),
    "rows": ("console",),
}
_MODES_OF_SINKS: Final = {
    "topic": ("append", "update", "complete"),
    "console": ("append", "update", "complete"),
    "parquet": ("append",),
    "delta": ("append", "complete"),
    "iceberg": ("append", "complete"),
}


def find_mistakes(entry: Entry) -> Iterator[Mistake]:
    """Of the whole file."""
    sources = entries_of(entry, "sources")
    steps = entries_of(entry, "steps")
    sinks = entries_of(entry, "sinks")
    for key, found in (("sources", sources), ("sinks", sinks)):
        if key in entry.lines and not found:
            yield Mistake(entry.lines[key], f"'{key}' is empty; a pipeline needs at least one")
    partitions = entry.values.get("spark", {}).get(SHUFFLE_PARTITIONS, "1")
    if not partitions.isdecimal() or int(partitions) < 1:
        yield Mistake(entry.lines["spark"], f"{SHUFFLE_PARTITIONS} must be a whole number, at least 1")
    for name, source in sources.items():
        yield from _source_mistakes(source, f"source '{name}'", entry)
    known = list(sources)
    for name, step in steps.items():
        if name in sources:
            yield Mistake(step.line, f"step '{name}' has the name of a source; choose another")
        yield from _step_mistakes(step, f"step '{name}'", known, list(steps))
        known.append(name)
    for name, sink in sinks.items():
        yield from _sink_mistakes(sink, f"sink '{name}'", known, sources)
    yield from _target_mistakes(sinks)


def _source_mistakes(source: Entry, what: str, pipeline: Entry) -> Iterator[Mistake]:
    values = source.values
    yield from _format_mistakes(source, what)
    if "watermark" in source.lines and "event_time" not in source.lines:
        yield Mistake(source.lines["watermark"], f"{what} has a watermark and needs the key 'event_time'")
    if values.get("on_error") == "dead_letter" and "dead_letter" not in pipeline.lines:
        yield Mistake(
            source.lines["on_error"], f"{what} wants a dead-letter topic; name it with 'dead_letter' at the top"
        )
    starting = values.get("starting", "earliest")
    if starting not in _STARTING_WORDS and not starting.lstrip().startswith("{"):
        yield Mistake(
            source.lines["starting"],
            f"'starting' of {what} must be earliest, latest or offsets{nearest(starting, _STARTING_WORDS)}",
        )
    yield from _table_mistakes(source, what)


def _format_mistakes(source: Entry, what: str) -> Iterator[Mistake]:
    """Keys that a format needs, and those that are for others."""
    text_format = source.values.get("format", "json")
    has_pattern = text_format == "text" and "value_pattern" in source.lines
    wanted = {"json": "schema", "csv": "schema", "avro": "avro_schema"}.get(text_format)
    if wanted is not None and wanted not in source.lines:
        yield Mistake(source.line, f"{what} has format {text_format} and needs the key '{wanted}'")
    if has_pattern and "schema" not in source.lines:
        yield Mistake(source.line, f"{what} has a 'value_pattern' and needs the key 'schema'")
    for key, formats in (
        ("schema", ("json", "csv")),
        ("value_pattern", ("text",)),
        ("avro_schema", ("avro",)),
        ("writer_schemas", ("avro",)),
        ("parse", ("json", "csv")),
    ):
        if key not in source.lines or text_format in formats or (has_pattern and key in _KEYS_OF_PATTERNS):
            continue
        hint = "; text needs a 'value_pattern' for it" if text_format == "text" and key in _KEYS_OF_PATTERNS else ""
        yield Mistake(source.lines[key], f"'{key}' of {what} is only for format {' and '.join(formats)}{hint}")
    for option in source.values.get("parse", {}) if has_pattern else ():
        if option not in _PARSE_OPTIONS_OF_TEXT:
            hint = nearest(option, _PARSE_OPTIONS_OF_TEXT) or f"; text has {' and '.join(_PARSE_OPTIONS_OF_TEXT)}"
            yield Mistake(source.lines["parse"], f"'parse' of {what} has no option '{option}'{hint}")


def _table_mistakes(source: Entry, what: str) -> Iterator[Mistake]:
    is_table = source.values.get("table", False)
    for key in _KEYS_OF_STREAMS if is_table else _KEYS_OF_TABLES:
        if key in source.lines:
            yield Mistake(
                source.lines[key], f"'{key}' of {what} is {'not for tables' if is_table else 'for tables only'}"
            )
    if is_table and "topic" not in source.values:
        yield Mistake(source.line, f"{what} is a table and needs the key 'topic': a table is one topic")
    if is_table and "headers" in source.values.get("metadata", ()):
        yield Mistake(source.lines["metadata"], f"{what} is a table, which keeps no headers")
    if is_table and source.values.get("on_error") == "dead_letter":
        yield Mistake(
            source.lines["on_error"],
            f"{what} is a table, which is read repeatedly: it can only drop bad records or fail",
        )


def _step_mistakes(step: Entry, what: str, known: list[str], all_steps: list[str]) -> Iterator[Mistake]:
    kind = kind_of(step, STEP_KINDS)
    if kind in ("python", "stateful"):
        reference = step.values.get(kind, "")
        if reference and not _REFERENCE.fullmatch(reference):
            yield Mistake(step.lines[kind], f"'{kind}' of {what} must be `package.module:name`, not '{reference}'")
        if "inputs" not in step.lines:
            yield Mistake(step.line, f"{what} needs the key 'inputs'")
    elif "inputs" in step.lines:
        yield Mistake(step.lines["inputs"], f"'inputs' of {what} is not for SQL, which names them itself")
    for name in step.values.get("inputs", ()):
        if name not in known:
            later = name in all_steps and name != step.name
            reason = "; it comes later in the file" if later else nearest(name, known)
            yield Mistake(
                step.lines["inputs"], f"{what} works on '{name}', which is not a source or an earlier step{reason}"
            )
    if kind == "stateful":
        if len(step.values.get("inputs", ("one",))) != 1:
            yield Mistake(step.lines["inputs"], f"{what} is stateful and works on exactly one input")
        for key in ("key", "schema"):
            if key not in step.lines:
                yield Mistake(step.line, f"{what} is stateful and needs the key '{key}'")
    elif kind is not None:
        for key in ("key", "schema", "time", "output"):
            if key in step.lines:
                yield Mistake(step.lines[key], f"'{key}' of {what} is only for stateful steps")
    if ("watermark" in step.lines) != ("event_time" in step.lines):
        given = "watermark" if "watermark" in step.lines else "event_time"
        yield Mistake(step.lines[given], f"{what} needs 'event_time' and 'watermark' together")


def _sink_mistakes(sink: Entry, what: str, known: list[str], sources: dict[str, Entry]) -> Iterator[Mistake]:
    origin = sink.values.get("from")
    if origin is not None and origin not in known:
        yield Mistake(
            sink.lines["from"], f"{what} writes '{origin}', which is not a source or a step{nearest(origin, known)}"
        )
    if origin in sources and sources[origin].values.get("table"):
        yield Mistake(sink.lines["from"], f"{what} writes the table '{origin}', which is not a stream")
    kind = kind_of(sink, SINK_KINDS)
    if kind is None:
        return
    if kind == "console" and sink.values.get("console") is False:
        yield Mistake(sink.lines["console"], f"'console' of {what} can only be true; leave the sink out otherwise")
    for key, kinds in _KEYS_OF_SINKS.items():
        if key in sink.lines and kind not in kinds:
            yield Mistake(sink.lines[key], f"'{key}' of {what} is only for {' and '.join(kinds)} sinks")
    mode = sink.values.get("mode", "append")
    if mode not in _MODES_OF_SINKS[kind]:
        yield Mistake(
            sink.lines["mode"],
            f"{what} cannot be written in mode {mode}: {kind} takes {' or '.join(_MODES_OF_SINKS[kind])}",
        )
    if "value" in sink.lines and "format" in sink.lines:
        yield Mistake(sink.lines["value"], f"{what} has both 'value' and 'format'; give only one")
    if kind == "iceberg" and sink.values.get("iceberg", "").count(".") < 1:
        yield Mistake(sink.lines["iceberg"], f"'iceberg' of {what} must be `namespace.table`")


def _target_mistakes(sinks: dict[str, Entry]) -> Iterator[Mistake]:
    """Two queries that write one table: each batch would count once for its own query alone."""
    owners: dict[tuple[str, str], str] = {}
    for name, sink in sinks.items():
        kind = kind_of(sink, SINK_KINDS)
        if kind not in _TABLE_KINDS or not isinstance(sink.values.get(kind), str):
            continue
        target = sink.values[kind]
        place = (kind, target) if kind == "iceberg" else ("directory", posixpath.normpath(target))
        other = owners.setdefault(place, name)
        if other != name:
            message = (
                f"sink '{name}' writes to the same place as sink '{other}'; combine the rows in a step, or give it "
                "another place"
            )
            yield Mistake(sink.lines[kind], message)


def entries_of(entry: Entry, key: str) -> dict[str, Entry]:
    """The named entries under a key; none when it is missing."""
    return cast("dict[str, Entry]", entry.values.get(key, {}))


def kind_of(entry: Entry, kinds: tuple[str, ...]) -> str | None:
    """The one of these keys that is given; None when it is none, or more than one."""
    given = [kind for kind in kinds if kind in entry.lines]
    return given[0] if len(given) == 1 else None
