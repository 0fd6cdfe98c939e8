"""What a running query reports: Spark's progress reports, summed up for people and machines. Pure.

Spark reports after each batch, and about every ten seconds while there is none. A report is taken once, by the number
of its batch; sums are over this run of the process.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.base.ids import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class QueryView:
    """One line of the live table. `lag` is None while it is not known."""

    name: str
    state: str
    batch_id: int
    rows_per_second: float
    lag: int | None
    batch_ms: int
    state_rows: int
    state_bytes: int
    input_rows: int
    late_rows: int
    bad_rows: int
    restarts: int
    problem: str


@dataclass(slots=True)
class QueryProgress:
    """The sums of one query, and where it is."""

    name: str
    batch_id: int = -1
    rows_per_second: float = 0.0
    batch_ms: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    input_rows: int = 0
    late_rows: int = 0
    bad_rows: int = 0
    batches: int = 0
    ends: dict[TopicPartition, Offset] = field(default_factory=dict)
    """Up to where each partition was read, by the last report."""

    def take(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """Adds the reports that are new; whether there was one."""
        has_news = False
        for report in reports:
            self.ends.update(offsets_of(report))
            self.rows_per_second = _number(report.get("processedRowsPerSecond"))
            if report["batchId"] <= self.batch_id or not _is_of_batch(report):
                continue
            has_news = True
            self._add(report)
        return has_news

    def _add(self, report: Mapping[str, Any]) -> None:
        self.batch_id = report["batchId"]
        self.batches += 1
        self.batch_ms = int(_number((report.get("durationMs") or {}).get("triggerExecution")))
        self.input_rows += int(_number(report.get("numInputRows")))
        operators = report.get("stateOperators") or []
        self.state_rows = sum(int(_number(one.get("numRowsTotal"))) for one in operators)
        self.state_bytes = sum(int(_number(one.get("memoryUsedBytes"))) for one in operators)
        self.late_rows += sum(int(_number(one.get("numRowsDroppedByWatermark"))) for one in operators)
        for observed in (report.get("observedMetrics") or {}).values():
            self.bad_rows += int(_number(observed.get("rows")))

    def lags(self, latest: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, int]:
        """Records that are not read yet, by partition."""
        return {one: max(0, latest[one] - end) for one, end in self.ends.items() if one in latest}


def offsets_of(report: Mapping[str, Any]) -> dict[TopicPartition, Offset]:
    """The end of each partition in a report's sources; other sources' offsets have other forms."""
    offsets: dict[TopicPartition, Offset] = {}
    for source in report.get("sources") or []:
        text = source.get("endOffset")
        try:
            tree = json.loads(text) if isinstance(text, str) else text
        except ValueError:
            continue
        if not isinstance(tree, dict):
            continue
        for topic, partitions in tree.items():
            if isinstance(partitions, dict):
                offsets |= {TopicPartition(topic, int(index)): int(offset) for index, offset in partitions.items()}
    return offsets


def _is_of_batch(report: Mapping[str, Any]) -> bool:
    """Of a query that rests Spark reports as well, under the number that its next batch will have."""
    return "addBatch" in (report.get("durationMs") or {})


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
