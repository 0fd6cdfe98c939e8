"""Remembers with a checkpoint what was computed, and refuses a changed file that cannot go on from it.

`CHECKPOINT/plan.json` has for each query its streams, in the order in which Spark keeps their offsets, its output mode,
and its stateful operators as Spark names them. Spark would find most such changes itself, in the middle of a batch and
in its own words; some it would not, and go on with state that means something else. What has no state may change. The
number of shuffle partitions is the checkpoint's: state is kept by it.

The file is written before the first batch, under a temporary name and renamed, and again when queries were added.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame

from barnabas.pipelines.compile import Compiled
from barnabas.pipelines.nodes import Mistake
from barnabas.pipelines.spec import Pipeline, Sink

PLAN_FILE: Final = "plan.json"
_EXPRESSION_ID: Final = re.compile(r"#\d+L?(-T\d+ms)?")
_IDENTIFIER: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FIELDS_SHOWN: Final = 1000
_STATEFUL: Final = (
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "TransformWithStateInPySpark",
    "TransformWithStateInPandas",
    "GlobalLimit",
)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    streams: list[str]
    mode: str
    state: list[str]


@dataclass(slots=True)
class Plan:
    """What a checkpoint was made with."""

    shuffle_partitions: int
    queries: dict[str, QueryPlan] = field(default_factory=dict)


def read_plan(checkpoint: Path) -> Plan | None:
    try:
        text = (checkpoint / PLAN_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    content = json.loads(text)
    queries = {name: QueryPlan(**query) for name, query in content["queries"].items()}
    return Plan(content["shuffle_partitions"], queries)


def write_plan(checkpoint: Path, plan: Plan) -> None:
    checkpoint.mkdir(parents=True, exist_ok=True)
    temporary = checkpoint / f".{PLAN_FILE}"
    with open(temporary, "w", encoding="utf-8") as output:
        json.dump(asdict(plan), output, indent=1)
        output.flush()
        os.fsync(output.fileno())
    os.rename(temporary, checkpoint / PLAN_FILE)


def query_plan(pipeline: Pipeline, compiled: Compiled) -> QueryPlan:
    streams = [parser.source for parser in compiled.parsers if not parser.source.is_table]
    described = [source.pattern or ", ".join(sorted(source.topics)) for source in streams]
    return QueryPlan(described, compiled.sink.mode, list(stateful_operators(compiled.rows)))


def stateful_operators(rows: DataFrame) -> Iterator[str]:
    """Each operator that keeps state, with the columns it gives, without what differs from run to run."""
    yield from _operators(rows._jdf.queryExecution().analyzed())


def _operators(node: Any) -> Iterator[str]:
    children = node.children()
    inputs = [children.apply(index) for index in range(children.size())]
    name = node.getClass().getSimpleName()
    is_stateful = node.isStreaming() and name in _STATEFUL
    is_stream_join = name == "Join" and all(child.isStreaming() for child in inputs)
    if is_stateful or is_stream_join:
        text = _IDENTIFIER.sub("", _EXPRESSION_ID.sub("", node.simpleString(_FIELDS_SHOWN)))
        yield f"{text} -> {node.schema().catalogString()}"
    for child in inputs:
        yield from _operators(child)


def changes(sink: Sink, before: QueryPlan, now: QueryPlan, place: Path) -> Iterator[Mistake]:
    """Why the query cannot go on from its checkpoint."""
    way_out = f"; give the sink another name, or remove {place} to begin anew"
    line = sink.entry.line
    if before.streams != now.streams:
        was, now_reads = " and ".join(before.streams), " and ".join(now.streams)
        yield Mistake(line, f"sink '{sink.name}' cannot go on: it read {was} and now reads {now_reads}{way_out}")
    if before.state != now.state:
        yield Mistake(line, f"sink '{sink.name}' cannot go on: {_difference(before.state, now.state)}{way_out}")
    elif before.mode != now.mode and now.state:
        yield Mistake(
            sink.entry.line_of("mode"),
            f"sink '{sink.name}' cannot go on: its mode was {before.mode} and is now {now.mode}{way_out}",
        )


def _difference(before: list[str], now: list[str]) -> str:
    gone = [text for text in before if text not in now]
    new = [text for text in now if text not in before]
    if not gone:
        return f"it has a new stateful step, {_short(new[0])}" if new else "its stateful steps are in another order"
    if not new:
        return f"a stateful step is gone, {_short(gone[0])}"
    return f"a stateful step was {_short(gone[0])} and is now {_short(new[0])}"


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]}…"


def has_progress(checkpoint: Path, sink: Sink) -> bool:
    """Whether the query of a sink has begun."""
    offsets = checkpoint / sink.name / "offsets"
    return offsets.is_dir() and any(name.isdecimal() for name in os.listdir(offsets))
