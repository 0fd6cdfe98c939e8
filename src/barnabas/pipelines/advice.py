"""What is not wrong with a pipeline, and still hardly meant: state without end, settings that Spark does not know."""

import difflib
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import SparkSession

from barnabas.pipelines.nodes import Mistake
from barnabas.pipelines.query_state import JOIN_ROWS, StateOperator
from barnabas.pipelines.spec import Pipeline, Sink

_BOUNDED: Final = ("GlobalLimit", "DeduplicateWithinWatermark", JOIN_ROWS)
_PROCESSORS: Final = ("TransformWithState", "FlatMapGroups")
_NEAR: Final = 0.85


def state_advice(pipeline: Pipeline, sink: Sink, state: list[StateOperator]) -> Iterator[Mistake]:
    """Operators whose state only grows: nothing in their keys is older than a watermark some day."""
    for operator in state:
        if operator.kind in _BOUNDED or operator.kind.startswith(_PROCESSORS) or sink.mode == "complete":
            continue
        if not any(column in key for key in operator.keys for column in operator.watermarks):
            found = pipeline.step(operator.step) or sink
            message = (
                f"sink '{sink.name}' keeps state forever, to {operator.described()}: it grows with every new value; "
                "give the source an 'event_time' and a 'watermark', and use that column in a window or condition"
            )
            yield Mistake(found.entry.line, message)


def setting_advice(spark: SparkSession, pipeline: Pipeline) -> Iterator[Mistake]:
    """Settings that are nearly one of Spark's own. Names that are like none may be those of a plug-in."""
    if not pipeline.spark:
        return
    known = _known_settings(spark)
    for name in pipeline.spark:
        nearest = [] if name in known else difflib.get_close_matches(name, known, 1, _NEAR)
        if nearest:
            message = f"Spark has no setting '{name}'; did you mean '{nearest[0]}'?"
            yield Mistake(pipeline.entry.line_of("spark"), message)


def _known_settings(spark: SparkSession) -> frozenset[str]:
    virtual_machine: Any = spark._jvm
    register = virtual_machine.java.lang.Class.forName("org.apache.spark.internal.config.ConfigEntry$")
    return frozenset(map(str, register.getField("MODULE$").get(None).knownConfigs().keySet()))
