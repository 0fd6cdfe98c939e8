"""Remembers with a checkpoint what was computed, and refuses a changed file that cannot go on from it.

`CHECKPOINT/plan.json` has for each query its streams, its output mode and its state (see `query_state`). Spark would
find some such changes itself, in the middle of a batch and in its own words; others it would not find, and go on with
state that means something else. What has no state may change. The number of shuffle partitions is the checkpoint's:
state is kept by it.

**Streams are bound to their offsets by name** (Spark's source evolution): a source keeps its place in the topic
when it moves within the file or SQL, and one that is added later begins where `starting` says. Spark cannot do that
for a query that reads one source twice, nor for an older checkpoint; their streams are bound by their order.

A plan of another version of Spark is compared by the kinds of operators alone, because the rest is in Spark's words.
The file is written before the first batch, under a temporary name and renamed, and again when queries were added.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyspark

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.compile import NAMES_STREAMS, Compiled
from barnabas.pipelines.nodes import Mistake
from barnabas.pipelines.query_state import JOIN_ROWS, StateOperator, state_of
from barnabas.pipelines.spec import Pipeline, Sink

PLAN_FILE: Final = "plan.json"
_EXACTLY_ONCE: Final = ("parquet", "delta", "iceberg")


class DamagedPlan(BarnabasError):  # noqa: N818 - named as the fact that it is
    """`plan.json` cannot be read."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A source as one query reads it; `topics` is a list by commas, or a pattern."""

    source: str
    topics: str
    records_max: int | None = None
    """At most this many records in a batch, None without a limit."""
    filters: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    """What sets this reading of the source apart from another one (`query_state.StreamUse`)."""


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """`streams` are in Spark's order, and bound to their offsets by it unless `is_named`."""

    streams: list[Stream]
    is_named: bool
    mode: str
    state: list[StateOperator]

    def limits(self) -> list[int | None]:
        return [stream.records_max for stream in self.streams]

    def kinds(self) -> list[str]:
        return [operator.kind for operator in self.state if operator.kind != JOIN_ROWS]


@dataclass(slots=True)
class Plan:
    """What a checkpoint was made with."""

    shuffle_partitions: int
    spark: str = field(default_factory=lambda: _spark_version())
    queries: dict[str, QueryPlan] = field(default_factory=dict)

    @property
    def is_of_this_spark(self) -> bool:
        return self.spark == _spark_version()


def _spark_version() -> str:
    return ".".join(pyspark.__version__.split(".")[:2])


def read_plan(checkpoint: Path) -> Plan | None:
    """None where there is none yet; DamagedPlan when there is one that makes no sense."""
    path = checkpoint / PLAN_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        queries = {name: _query_plan(query) for name, query in content["queries"].items()}
        return Plan(int(content["shuffle_partitions"]), str(content.get("spark", "")), queries)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedPlan(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedPlan(
            f"{path} is damaged ({type(error).__name__}: {error}); restore it, or start over with another 'checkpoint'"
        ) from error


def _query_plan(content: dict[str, Any]) -> QueryPlan:
    streams, state = content["streams"], content["state"]
    if "is_named" not in content:  # as it was written before streams had names
        state = [{"step": "", "kind": text.split()[0], "keys": [], "values": [], "watermarks": []} for text in state]
        streams = [{"source": "", "topics": topics} for topics in streams]
    return QueryPlan(
        [Stream(**stream) for stream in streams],
        bool(content.get("is_named", False)),
        str(content["mode"]),
        [StateOperator(**operator) for operator in state],
    )


def write_plan(checkpoint: Path, plan: Plan) -> None:
    checkpoint.mkdir(parents=True, exist_ok=True)
    temporary = checkpoint / f".{PLAN_FILE}"
    with open(temporary, "w", encoding="utf-8") as output:
        json.dump(asdict(plan), output, indent=1)
        output.flush()
        os.fsync(output.fileno())
    os.rename(temporary, checkpoint / PLAN_FILE)


def query_plan(pipeline: Pipeline, compiled: Compiled) -> QueryPlan:
    streams = []
    for use in compiled.streams:
        source = pipeline.source(use.source)
        assert source is not None, "streams are sources of the file"
        topics = source.pattern or ", ".join(sorted(source.topics))
        is_read_twice = sum(other.source == use.source for other in compiled.streams) > 1
        apart = (use.filters, use.columns) if is_read_twice else ([], [])
        streams.append(Stream(use.source, topics, source.records_max_per_batch, *apart))
    return QueryPlan(streams, compiled.is_named, compiled.sink.mode, state_of(compiled.rows))


def may_name_streams(checkpoint: Path, sink: Sink, plan: Plan | None) -> bool:
    """Whether the streams of a query can be bound by name: it is new, or was begun so."""
    before = None if plan is None else plan.queries.get(sink.name)
    return before.is_named if before is not None and has_progress(checkpoint, sink) else True


def has_progress(checkpoint: Path, sink: Sink) -> bool:
    """Whether the query of a sink has begun."""
    offsets = checkpoint / sink.name / "offsets"
    return offsets.is_dir() and any(name.isdecimal() for name in os.listdir(offsets))


# --- comparing ----------------------------------------------------------------------------------------------------


def changes(pipeline: Pipeline, sink: Sink, plan: Plan, now: QueryPlan, place: Path) -> Iterator[Mistake]:
    """Why the query of a sink cannot go on from its checkpoint in `place`."""
    before = plan.queries[sink.name]
    way_out = f". Undo that, or start over: {_ways_to_begin_anew(sink, place)}"
    for line, reason in _reasons(pipeline, sink, before, now, is_exact=plan.is_of_this_spark):
        yield Mistake(line, f"sink '{sink.name}' cannot continue from its checkpoint: {reason}{way_out}")


def _ways_to_begin_anew(sink: Sink, place: Path) -> str:
    ways = f"give the sink another name, or remove {place}"
    if sink.kind in _EXACTLY_ONCE:
        return f"{ways}, and give it another '{sink.kind}' too, because all rows are then written again"
    return f"{ways}; all rows are then written again"


def _reasons(
    pipeline: Pipeline, sink: Sink, before: QueryPlan, now: QueryPlan, *, is_exact: bool
) -> Iterator[tuple[int, str]]:
    """Lines of the file with what is wrong there."""
    if before.is_named and not NAMES_STREAMS:
        yield sink.entry.line, "it was started with Spark 4.3 or newer, which binds sources by name; this Spark cannot"
    elif before.is_named:
        yield from _named_stream_reasons(pipeline, sink, before, now)
    elif changed := list(_changed_topics(pipeline, sink, before, now)):
        yield from changed
    elif not _is_in_same_order(before.streams, now.streams, is_exact=is_exact):
        was, reads = (", then ".join(one.topics for one in plan.streams) for plan in (before, now))
        yield sink.entry.line, f"it read {was}, and now reads {reads}"
    elif is_exact and (source := _source_of_moved_readings(before.streams, now.streams)) is not None:
        yield (
            _line_of(pipeline, sink, source),
            f"it reads source '{source}' more than once, and more than one of these readings has changed or moved, "
            "although only their order tells them apart",
        )
    if is_exact:
        yield from _state_reasons(pipeline, sink, before.state, now.state)
    elif before.kinds() != now.kinds():
        yield (
            sink.entry.line,
            f"it kept state for {_counted(before.kinds())}, and now keeps it for {_counted(now.kinds())}",
        )
    if before.mode != now.mode and now.state:
        yield sink.entry.line_of("mode"), f"its mode was {before.mode} and is now {now.mode}"


def _is_in_same_order(before: list[Stream], now: list[Stream], *, is_exact: bool) -> bool:
    was, reads = [one.topics for one in before], [one.topics for one in now]
    return was == reads if is_exact else sorted(was) == sorted(reads)


def _source_of_moved_readings(before: list[Stream], now: list[Stream]) -> str | None:
    """The source of which two readings may have changed places; one that is changed alone stays what it was."""
    for name in dict.fromkeys(stream.source for stream in now):
        was, reads = ([one for one in streams if one.source == name] for streams in (before, now))
        if len(was) != len(reads) or not any(one.filters or one.columns for one in was):
            continue  # as it was written before readings were described
        has_own_filters = all(len({tuple(one.filters) for one in found}) == len(found) for found in (was, reads))
        pairs = zip(was, reads, strict=True)
        if has_own_filters:
            changed = sum(old.filters != new.filters for old, new in pairs)
        else:
            changed = sum((old.filters, old.columns) != (new.filters, new.columns) for old, new in pairs)
        if changed > 1:
            return name
    return None


def _changed_topics(pipeline: Pipeline, sink: Sink, before: QueryPlan, now: QueryPlan) -> Iterator[tuple[int, str]]:
    reads = {stream.source: stream.topics for stream in now.streams}
    for stream in before.streams:
        topics = reads.get(stream.source, stream.topics)
        if topics != stream.topics:
            yield (
                _line_of(pipeline, sink, stream.source),
                f"source '{stream.source}' read {stream.topics} and now reads {topics}",
            )


def _named_stream_reasons(
    pipeline: Pipeline, sink: Sink, before: QueryPlan, now: QueryPlan
) -> Iterator[tuple[int, str]]:
    yield from _changed_topics(pipeline, sink, before, now)
    reads = {stream.source: stream.topics for stream in now.streams}
    new = {topics: name for name, topics in reads.items() if all(name != one.source for one in before.streams)}
    for stream in before.streams:
        if stream.source not in reads and stream.topics in new:
            name = new[stream.topics]
            yield (
                _line_of(pipeline, sink, name),
                f"source '{stream.source}' is now called '{name}', and would read {stream.topics} from its beginning",
            )
    if len(reads) < len(now.streams):
        twice = next(one.source for one in now.streams if [two.source for two in now.streams].count(one.source) > 1)
        yield _line_of(pipeline, sink, twice), f"it now reads source '{twice}' more than once"


def _state_reasons(
    pipeline: Pipeline, sink: Sink, before: list[StateOperator], now: list[StateOperator]
) -> Iterator[tuple[int, str]]:
    """The first difference; one that changed usually moves others."""
    for was, is_now in zip(before, now, strict=False):
        if was.meaning() != is_now.meaning() or (was.types and was.types != is_now.types):
            step = is_now.step or was.step
            yield _line_of(pipeline, sink, step), f"{_place(step)}{_difference(was, is_now)}"
            return
    if len(before) != len(now):
        longer, verb = (before, "no longer keeps") if len(before) > len(now) else (now, "now keeps")
        odd = longer[min(len(before), len(now))]
        yield _line_of(pipeline, sink, odd.step), f"{_place(odd.step)}it {verb} state to {odd.described()}"


def _difference(was: StateOperator, is_now: StateOperator) -> str:
    if was.meaning() == is_now.meaning():
        old, new = (f"{one.described()} (of types {_listed(one.types)})" for one in (was, is_now))
        return f"its state was kept to {old}, and now it would {new}"
    if (was.kind, was.keys, was.values) == (is_now.kind, is_now.keys, is_now.values):
        return f"event time was {_listed(was.watermarks)} and is now {_listed(is_now.watermarks)}"
    return f"its state was kept to {was.described()}, and now it would {is_now.described()}"


def _place(step: str) -> str:
    return f"step '{step}': " if step else ""


def _line_of(pipeline: Pipeline, sink: Sink, name: str) -> int:
    found = pipeline.step(name) or pipeline.source(name) or sink
    return found.entry.line


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _counted(kinds: list[str]) -> str:
    return ", ".join(kinds) or "nothing"
