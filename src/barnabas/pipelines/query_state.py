"""What a query keeps from batch to batch, read from Spark's plan of it: its streams, and what its state is made of.

State is what a checkpoint cannot do without: the counts of an aggregation, the rows that a join waits with. A query may
go on from it only if the operator that kept it would compute the same. So each operator is described by everything that
decides the content of its state, in Spark's order, which is the order of the columns in the store:

| operator | what decides |
|---|---|
| aggregation | the columns it groups by, the aggregate functions and their arguments |
| deduplication | the columns that are compared |
| join of two streams | its kind, its condition, and the columns it keeps of each side |
| stateful processor | the columns of its key, its time, its output |
| limit | the number of rows |

Columns are traced back through the projections below the operator, to the columns of the pipeline's sources: so the
length of a window, which Spark's plan has in a projection, is part of the description, and a renamed column is not.
What stands above an operator, and a filter below it, may change. The event-time columns of the operator's watermark are
part of it; how late they may be is not, because Spark goes on with a new delay as it would with the old one.

Types are part of the description as well: state of one type cannot be read as another.

A query may read one source more than once. Spark keeps the offsets, and the state of a join's sides, by the order of
these readings alone, so each is described by the filters and columns that set it apart (`StreamUse`).

Sources and steps are found in a plan by aliases (`tagged`), which hold also where Python passes DataFrames along.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from barnabas.pipelines.relations import elements

_SOURCE_TAG: Final = "source "
_STEP_TAG: Final = "step "
JOIN_ROWS: Final = "JoinRows"
"""The kind of operator by which the rows that a join keeps are described, beside the join itself."""
_TEXT_LENGTH_MAX: Final = 2000
_FIELDS_SETTING: Final = "spark.sql.debug.maxToStringFields"
_CHECK_SETTING: Final = "spark.sql.streaming.unsupportedOperationCheck"
_IDENTIFIER: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DEDUPLICATIONS: Final = ("Deduplicate", "DeduplicateWithinWatermark")
_PROCESSORS: Final = {
    "FlatMapGroupsInPandasWithState": "groupingAttributes",
    "TransformWithStateInPySpark": "leftAttributes",
    "TransformWithStateInPandas": "leftAttributes",
}
"""The operators that run a function of the user's, and where their key is."""
_TIME: Final = r"precisetimestampconversion\((?P<time>.*?), Timestamp(?:NTZ)?Type, LongType\)"
_WINDOW: Final = re.compile(
    rf"named_struct\(start, knownnullable\(precisetimestampconversion\(\(\({_TIME} - CASE WHEN "
    r".*? - (?P<start>\d+)\) % (?P<slide>\d+)\).*\+ (?P<length>\d+)\), LongType, Timestamp(?:NTZ)?Type\)\)\)",
    re.DOTALL,
)
_WINDOW_TIME: Final = re.compile(
    r"precisetimestampconversion\(\(precisetimestampconversion\(([^()]+(?:\([^()]*\)[^()]*)?)\.end,"
    r" Timestamp(?:NTZ)?Type, LongType\) - 1\), LongType, Timestamp(?:NTZ)?Type\)"
)
_SESSION: Final = re.compile(
    rf"named_struct\(start, precisetimestampconversion\({_TIME}, LongType, Timestamp(?:NTZ)?Type\), end,"
    r" knownnullable\(precisetimestampconversion\(precisetimestampconversion\(cast\((?P<again>.*) \+ cast\("
    r"(?P<gap>.*) as interval\) as timestamp(?:_ntz)?\), Timestamp(?:NTZ)?Type, LongType\), LongType,"
    r" Timestamp(?:NTZ)?Type\)\)\)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class StateOperator:
    """One operator with state. `step` is the step, or source, of the file in which it stands; empty for none."""

    step: str
    kind: str
    keys: list[str]
    values: list[str]
    watermarks: list[str]
    types: list[str] = field(default_factory=list)
    """Of the columns that it is computed from; empty where an older plan did not keep them."""

    def meaning(self) -> tuple[str, list[str], list[str], list[str]]:
        """What must stay as it is; the step may be called otherwise."""
        return self.kind, self.keys, self.values, self.watermarks

    def described(self) -> str:
        """What it does, for people: follows "to"."""
        keys, values = ", ".join(self.keys), ", ".join(self.values)
        match self.kind:
            case "Aggregate":
                return f"compute {values or 'nothing'} grouped by {keys or 'nothing'}"
            case "Distinct" | "Deduplicate" | "DeduplicateWithinWatermark":
                return f"drop duplicates of {keys}"
            case "Join":
                return f"join streams ({values.lower()}) on {keys or 'nothing'}"
            case kind if kind == JOIN_ROWS:
                return f"join rows of {keys} with rows of {values}"
            case "GlobalLimit":
                return f"stop after {values} rows"
            case _:
                return f"process rows by {keys} into {values}"


@dataclass(frozen=True, slots=True)
class StreamUse:
    """One reading of a source that is a stream: the filters that it alone passes, and the columns it brings along."""

    source: str
    filters: list[str]
    columns: list[str]


def tagged(frame: DataFrame, *, source: str = "", step: str = "") -> DataFrame:
    """The frame of a source or step, for `stream_uses` and `state_of` to find in any plan that it becomes part of."""
    return frame.alias(f"{_SOURCE_TAG}{source}" if source else f"{_STEP_TAG}{step}")


def stream_uses(rows: DataFrame) -> list[StreamUse]:
    """The sources that are streams, in the order in which Spark keeps their offsets: one for each use."""
    with _settings(rows.sparkSession, {_FIELDS_SETTING: "100000"}):
        reader = _StateReader()
        reader.read(rows._jdf.queryExecution().analyzed())
        return reader.uses


def state_of(rows: DataFrame) -> list[StateOperator]:
    """Every operator with state, in the order of the plan from its end."""
    spark = rows.sparkSession
    with _settings(spark, {_FIELDS_SETTING: "100000", _CHECK_SETTING: "false"}):
        # A plan that was made before the settings changed keeps the old ones.
        execution = spark._jsparkSession.sessionState().executePlan(rows._jdf.queryExecution().analyzed(), _mode(spark))
        reader = _StateReader()
        found = reader.read(execution.analyzed())
        return [*found, *reader.join_rows(execution.optimizedPlan())] if reader.has_joins else found


def _mode(spark: SparkSession) -> Any:
    virtual_machine: Any = spark._jvm
    return virtual_machine.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _tag(node: Any, prefix: str) -> str:
    """The name of the source or step whose frame this node is; empty for none."""
    if _kind(node) != "SubqueryAlias":
        return ""
    alias = str(node.identifier().name())
    return alias.removeprefix(prefix) if alias.startswith(prefix) else ""


def _inputs(node: Any, definitions: dict[int, Any]) -> list[Any]:
    """The nodes below; a reference to a common table expression is replaced by its query, as Spark will."""
    match _kind(node):
        case "WithCTE":
            for definition in elements(node.cteDefs()):
                definitions[definition.id()] = definition.child()
            return [node.plan()]
        case "CTERelationRef":
            return [definitions[node.cteId()]]
        case _:
            return elements(node.children())


class _StateReader:
    """One reading of a plan. `_meanings` has for the id of each column what it is computed from."""

    def __init__(self) -> None:
        self._meanings: dict[int, str] = {}
        self._definitions: dict[int, Any] = {}
        self.uses: list[StreamUse] = []
        self.has_joins = False

    def read(self, plan: Any) -> list[StateOperator]:
        return self._walk(plan, "")

    def _walk(self, node: Any, step: str) -> list[StateOperator]:
        """The operators from this node on; afterwards the meanings of its columns are known."""
        if source := _tag(node, _SOURCE_TAG):
            for column in elements(node.output()):
                self._meanings[column.exprId().id()] = f"{source}.{column.name()}"
            if node.isStreaming():
                self.uses.append(StreamUse(source, [], []))
            return []
        step = _tag(node, _STEP_TAG) or step
        inputs = _inputs(node, self._definitions)
        below: list[StateOperator] = []
        uses_of_inputs = []
        for child in inputs:
            known = len(self.uses)
            below += self._walk(child, step)
            uses_of_inputs.append(self.uses[known:])
        self._describe_uses(node, inputs, uses_of_inputs)
        operator = self._operator(node, inputs, step) if node.isStreaming() else None
        self._define(node, inputs)
        return below if operator is None else [operator, *below]

    def _describe_uses(self, node: Any, inputs: list[Any], uses_of_inputs: list[list[StreamUse]]) -> None:
        uses = [use for found in uses_of_inputs for use in found]
        if _kind(node) == "Filter" and len(uses) == 1:
            uses[0].filters.append(self._text(node.condition()))
        elif len(uses) > 1 and len(inputs) > 1:
            for child, found in zip(inputs, uses_of_inputs, strict=True):
                for use in found:
                    use.columns.extend(self._columns(child))

    # --- operators ------------------------------------------------------------------------------------------------

    def _operator(self, node: Any, inputs: list[Any], step: str) -> StateOperator | None:
        match _kind(node):
            case "Aggregate" as kind:
                keys = self._texts(node.groupingExpressions())
                aggregates = list(_aggregates(elements(node.aggregateExpressions())))
                values = list(dict.fromkeys(map(self._text, aggregates)))
                arguments = [elements(one.aggregateFunction().children()) for one in aggregates]
                types = _types([*elements(node.groupingExpressions()), *(one for found in arguments for one in found)])
            case "Distinct" as kind:
                keys, values, types = self._columns(node), [], _types(elements(node.output()))
            case kind if kind in _DEDUPLICATIONS:
                keys, values, types = self._texts(node.keys()), [], _types(elements(node.keys()))
            case "Join" as kind if all(child.isStreaming() for child in inputs):
                self.has_joins = True
                condition = node.condition()
                keys = [] if condition.isEmpty() else [self._text(condition.get())]
                values, types = [str(node.joinType().sql())], []  # those of its rows are in `join_rows`
            case "GlobalLimit" as kind:
                keys, values, types = [], [str(node.limitExpr())], []
            case kind if kind in _PROCESSORS:
                grouping = getattr(node, _PROCESSORS[kind])()
                keys, types = self._texts(grouping), _types(elements(grouping))
                values = [str(node.schema().catalogString())]
            case _:
                return None
        return StateOperator(step, kind, keys, values, self._watermarks(node), types)

    def _watermarks(self, node: Any) -> list[str]:
        """The event-time columns below that this operator's watermark goes by."""
        found: dict[str, None] = {}

        def visit(one: Any) -> None:
            if _kind(one) == "EventTimeWatermark":
                found[self._text(one.eventTime())] = None
            for child in _inputs(one, self._definitions):
                visit(child)

        visit(node)
        return list(found)

    def join_rows(self, optimized: Any) -> list[StateOperator]:
        """What joins of streams keep of each side: the columns that are left when Spark has dropped unused ones."""
        found = []
        inputs = elements(optimized.children())
        if _kind(optimized) == "Join" and all(child.isStreaming() for child in inputs):
            left, right = (self._columns(child) for child in inputs)
            types = _types([column for child in inputs for column in elements(child.output())])
            found.append(StateOperator("", JOIN_ROWS, left, right, [], types))
        for child in inputs:
            found += self.join_rows(child)
        return found

    # --- what columns mean ----------------------------------------------------------------------------------------

    def _define(self, node: Any, inputs: list[Any]) -> None:
        """Notes what the columns that a node adds are computed from."""
        kind = _kind(node)
        if kind in ("Project", "Aggregate", "Window"):
            named = {"Project": "projectList", "Aggregate": "aggregateExpressions", "Window": "windowExpressions"}[kind]
            for column in elements(getattr(node, named)()):
                if _kind(column) == "Alias":
                    self._mean(column, self._text(column.child()))
        elif kind in ("Union", "Expand", "CTERelationRef", "View", "Generate"):
            self._define_by_place(node, inputs)

    def _define_by_place(self, node: Any, inputs: list[Any]) -> None:
        """For nodes that give their columns new ids: each is what stands in its place below."""
        match _kind(node):
            case "Union":
                rows = [self._columns(child) for child in inputs]
            case "Expand":
                rows = [self._texts(projection) for projection in elements(node.projections())]
            case "Generate":
                generator = self._text(node.generator())
                for column in elements(node.generatorOutput()):
                    self._mean(column, f"{generator}.{column.name()}")
                return
            case _:
                rows = [self._columns(inputs[0])]
        for place, column in enumerate(elements(node.output())):
            meanings = list(dict.fromkeys(row[place] for row in rows))
            self._mean(column, meanings[0] if len(meanings) == 1 else f"any({', '.join(sorted(meanings))})")

    def _mean(self, column: Any, text: str) -> None:
        self._meanings[column.exprId().id()] = text

    def _columns(self, node: Any) -> list[str]:
        return self._texts(node.output())

    def _texts(self, expressions: Any) -> list[str]:
        return [self._text(expression) for expression in elements(expressions)]

    def _text(self, expression: Any) -> str:
        """An expression with its columns traced back; what differs from run to run is left out."""
        text = str(expression.toString())
        for column in elements(expression.references().toSeq()):
            meaning = self._meanings.get(column.exprId().id(), str(column.name()))
            places = re.split(rf"{re.escape(str(column.toString()))}(?!\d)", text)
            text = meaning.join(places)
        text = _IDENTIFIER.sub("", text)
        text = _WINDOW_TIME.sub(r"window_time(\1)", text)
        if (window := _WINDOW.fullmatch(text)) is not None:
            return _window_text(window)
        if (session := _SESSION.fullmatch(text)) is not None and session["time"] == session["again"]:
            return f"session_window({session['time']}, {session['gap']})"
        if len(text) > _TEXT_LENGTH_MAX:
            return f"{text[:100]}… {hashlib.sha256(text.encode()).hexdigest()}"
        return text


def _aggregates(expressions: list[Any]) -> Iterator[Any]:
    for expression in expressions:
        if _kind(expression) == "AggregateExpression":
            yield expression
        else:
            yield from _aggregates(elements(expression.children()))


def _types(expressions: list[Any]) -> list[str]:
    return [str(expression.dataType().catalogString()) for expression in expressions]


def _window_text(window: "re.Match[str]") -> str:
    """A window as SQL has it, instead of the arithmetic that Spark makes of it."""
    length, slide, start = (_duration(int(window[name])) for name in ("length", "slide", "start"))
    rest = "" if length == slide and int(window["start"]) == 0 else f", {slide}"
    offset = "" if int(window["start"]) == 0 else f", {start}"
    return f"window({window['time']}, {length}{rest}{offset})"


def _duration(microseconds: int) -> str:
    for unit, size in (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000)):
        if microseconds and microseconds % size == 0:
            count = microseconds // size
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{microseconds / 1000:g} ms"
