"""What came of the demo, from the topics alone: which alerts came, and how long records and windows took. Pure.

Times are of one machine's clock: a record's timestamp is set by the producer when it is handed over, and the output
topics have `LogAppendTime`, so that a row's timestamp says when the broker stored it.

**A record's latency** is from its production to the first row of `metric-windows` that counts it. Rows are written in
update mode, so nothing waits for a watermark. Samples of a window come in the order of their partition, and a row says
how many it counts: the n-th sample is counted by the first row with `samples` of n or more.

**An alert's latency** is from its window's end to the alert, and so has the wait for the watermark in it.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from barnabas.client.reading.fetched import ConsumedRecord
from examples.metrics.fleet import WINDOW_MS, ExpectedAlert

_PERCENTILES: Final = (50, 95, 99)
WindowKey = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Alert:
    """One that came. `stored_ms` is when the broker had it."""

    id: str
    host: str
    metric: str
    rule: str
    severity: str
    statistic: str
    value: float
    threshold: float
    side: str
    window_start_ms: int
    stored_ms: int

    @property
    def as_expected(self) -> ExpectedAlert:
        return ExpectedAlert(self.rule, self.host, self.window_start_ms, self.severity)

    @property
    def after_window_ms(self) -> int:
        return self.stored_ms - self.window_start_ms - WINDOW_MS


def read_alert(record: ConsumedRecord) -> Alert:
    row = json.loads(record.value or b"")
    return Alert(
        id=row["id"],
        host=row["host"],
        metric=row["metric"],
        rule=row["rule"],
        severity=row["severity"],
        statistic=row["statistic"],
        value=row["value"],
        threshold=row["threshold"],
        side=row["side"],
        window_start_ms=_window_start_ms(row),
        stored_ms=record.timestamp_ms,
    )


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds, by percentile, and how many there are."""

    count: int
    percentiles: Mapping[int, int]
    highest_ms: int

    def __str__(self) -> str:
        ranks = ", ".join(f"p{rank} {value / 1000:.2f} s" for rank, value in self.percentiles.items())
        return f"{ranks}, max {self.highest_ms / 1000:.2f} s"


def latencies_of(values_ms: Iterable[int]) -> Latencies:
    """By nearest rank: each percentile is a value that occurred. There must be one."""
    ordered = sorted(values_ms)
    ranks = {rank: ordered[-(-rank * len(ordered) // 100) - 1] for rank in _PERCENTILES}
    return Latencies(len(ordered), ranks, ordered[-1])


def record_latencies(samples: Iterable[ConsumedRecord], rows: Iterable[ConsumedRecord]) -> list[int]:
    """Of every sample that is counted in a row; malformed and late ones are in none."""
    produced: dict[WindowKey, list[int]] = defaultdict(list)
    for sample in samples:
        if (key := _sample_key(sample.value)) is not None:
            produced[key].append(sample.timestamp_ms)
    counted: dict[WindowKey, int] = defaultdict(int)
    latencies = []
    for record in rows:
        row = json.loads(record.value or b"")
        key = row["host"], row["metric"], _window_start_ms(row)
        known = counted[key]
        if row["samples"] > known:
            latencies += [record.timestamp_ms - at_ms for at_ms in produced[key][known : row["samples"]]]
            counted[key] = row["samples"]
    return latencies


def dead_letter_origins(letters: Iterable[ConsumedRecord]) -> set[tuple[str, str]]:
    """Partition and offset of the records that did not parse; a dead letter may have been written twice."""
    return {
        (headers["barnabas.partition"], headers["barnabas.offset"])
        for headers in ({name: (value or b"").decode() for name, value in letter.headers} for letter in letters)
    }


def differences(expected: set[ExpectedAlert], alerts: Sequence[Alert]) -> list[str]:
    """What is wrong with the alerts, a line each."""
    found = {alert.as_expected for alert in alerts}
    return [f"this alert is missing: {_line(one)}" for one in sorted(expected - found)] + [
        f"this alert has no cause: {_line(one)}" for one in sorted(found - expected)
    ]


def _line(alert: ExpectedAlert) -> str:
    return f"{alert.rule} ({alert.severity}) of {alert.host}, window {alert.window_start_ms}"


def _sample_key(value: bytes | None) -> WindowKey | None:
    try:
        row = json.loads(value or b"")
        at_ms = _milliseconds(row["at"])
        return row["host"], row["metric"], at_ms - at_ms % WINDOW_MS
    except (ValueError, KeyError):
        return None


def _window_start_ms(row: Mapping[str, Any]) -> int:
    return _milliseconds(row["window"]["start"])


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
