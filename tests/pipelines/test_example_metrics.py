"""Metric monitoring on a real Spark and a real broker, window by window and alert by alert against DuckDB."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.blocking import BlockingClient
from barnabas.testing import Broker
from examples.metrics.fleet import WATERMARK_MS, WINDOW_MS, ExpectedAlert, Fleet, GeneratedRecord, generate
from examples.metrics.generate import TOPICS, send
from examples.producing import create_missing
from tests.pipelines.running import Kept, run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

FILE = Path(__file__).resolve().parents[2] / "examples" / "metrics" / "pipeline.yaml"
START_MS = 1_714_557_601_234
Row = dict[str, Any]
WindowKey = tuple[str, str, int]

# Written anew and not taken from the pipeline: what the guide says about windows, rates and rules.
WINDOWS_SQL = """
CREATE VIEW stepped AS
SELECT *, at_ms - at_ms % 5000 AS window_ms,
       value - lag(value) OVER (PARTITION BY host, metric, at_ms // 5000 ORDER BY at_ms) AS step
FROM accepted;
CREATE VIEW windows AS
SELECT host, metric, window_ms, count(*) AS samples, avg(value) AS average, min(value) AS lowest,
       max(value) AS highest, arg_max(value, at_ms) AS latest,
       sum(CASE WHEN step < 0 THEN value ELSE step END) * 1000 / nullif(max(at_ms) - min(at_ms), 0) AS rate
FROM stepped GROUP BY host, metric, window_ms;
"""
ALERTS_SQL = """
SELECT 'cpu-high' AS rule, host, metric, window_ms, average AS value, if(average >= 95, 95, 80) AS threshold
FROM windows WHERE metric = 'cpu_percent' AND average >= 80
UNION ALL SELECT 'memory-high', host, metric, window_ms, average, if(average >= 95, 95, 85)
FROM windows WHERE metric = 'memory_percent' AND average >= 85
UNION ALL SELECT 'disk-full', host, metric, window_ms, highest, if(highest >= 97, 97, 90)
FROM windows WHERE metric = 'disk_percent' AND highest >= 90
UNION ALL SELECT 'errors-rising', host, metric, window_ms, rate, if(rate >= 20, 20, 5)
FROM windows WHERE metric = 'errors_total' AND rate >= 5
UNION ALL SELECT 'traffic-stopped', host, metric, window_ms, rate, if(rate <= 1, 1, 5)
FROM windows WHERE metric = 'requests_total' AND rate <= 5
"""


class Expected:
    """DuckDB over the same samples."""

    def __init__(self, samples: Iterable[Row]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("CREATE TABLE accepted (host VARCHAR, metric VARCHAR, value DOUBLE, at_ms BIGINT)")
        rows = [(one["host"], one["metric"], one["value"], one["at_ms"]) for one in samples]
        self._connection.executemany("INSERT INTO accepted VALUES (?, ?, ?, ?)", rows)
        self._connection.execute(WINDOWS_SQL)

    def windows(self) -> dict[WindowKey, Row]:
        return {(row["host"], row["metric"], row["window_ms"]): row for row in self._rows("SELECT * FROM windows")}

    def alerts(self, watermark_ms: int) -> dict[str, Row]:
        closed = f"SELECT * FROM ({ALERTS_SQL}) WHERE window_ms + {WINDOW_MS} <= {watermark_ms}"
        return {f"{row['rule']}/{row['host']}/{row['window_ms']}": row for row in self._rows(closed)}

    def _rows(self, sql: str) -> list[Row]:
        found = self._connection.execute(sql)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def sample_of(record: GeneratedRecord) -> Row:
    return {**json.loads(record.value), "at_ms": record.at_ms}


def window_ms(row: Row) -> int:
    from datetime import datetime

    start, end = (datetime.fromisoformat(row["window"][name]).timestamp() * 1000 for name in ("start", "end"))
    assert end - start == WINDOW_MS
    return int(start)


def is_near(found: Row, expected: Row, names: Iterable[str]) -> bool:
    """A number that is not there is not written to JSON."""
    return all(
        found.get(name) is None
        if expected[name] is None
        else math.isclose(found[name], expected[name], rel_tol=1e-9, abs_tol=1e-9)
        for name in names
    )


def produce(broker: Broker, records: Iterable[GeneratedRecord]) -> None:
    with BlockingClient(broker.bootstrap) as client:
        client.wait_for(create_missing(client.cluster, TOPICS))
        client.wait_for(send(client.cluster, records, lambda _: None))


def run_once(session: "SparkSession", file: Path, kept: Kept) -> None:
    """What is there, from the checkpoint on. On a busy machine Python workers may not start in the time Spark gives."""
    from barnabas.pipelines.run import QueryFailed

    for tries_left in range(5, -1, -1):
        try:
            run_pipeline(session, file, kept=kept)
        except QueryFailed as error:
            if not tries_left or "failed to connect back" not in str(error):
                raise
            kept.told.append(str(error))
        else:
            return


def check_windows(broker: Broker, expected: Mapping[WindowKey, Row]) -> None:
    """The last row of each window is what DuckDB says."""
    found: dict[WindowKey, Row] = {}
    for record in broker.records("metric-windows"):
        row = json.loads(record.value or b"")
        assert record.key == f"{row['host']}/{row['metric']}".encode()
        found[row["host"], row["metric"], window_ms(row)] = row
    assert found.keys() == expected.keys()
    names = ("samples", "average", "lowest", "highest", "latest", "rate")
    assert [key for key, row in found.items() if not is_near(row, expected[key], names)] == []


def check_alerts(broker: Broker, expected: Mapping[str, Row], kept: Kept) -> set[ExpectedAlert]:
    """Each alert as DuckDB says, and once, unless a query failed and started again."""
    alerts = [json.loads(record.value or b"") for record in broker.records("alerts")]
    assert kept.told or len({row["id"] for row in alerts}) == len(alerts)
    found = {f"{row['rule']}/{row['host']}/{window_ms(row)}": row for row in alerts}
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert row["metric"] == expected[key]["metric"]
        assert is_near(row, expected[key], ("value", "threshold")), (row, expected[key])
    return {ExpectedAlert(row["rule"], row["host"], window_ms(row), row["severity"]) for row in alerts}


def check_dead_letters(broker: Broker, records: list[GeneratedRecord], kept: Kept) -> None:
    malformed = [record.value for record in records if record.at_ms is None]
    assert malformed, "the seed should give some"
    letters = broker.records("metrics-dead")
    assert kept.told or len(letters) == len(malformed)
    once = {tuple(sorted(letter.headers)): letter.value for letter in letters}
    assert sorted(once.values(), key=repr) == sorted(malformed, key=repr)


@pytest.mark.timeout(600)
def test_metrics_give_the_windows_and_alerts_that_duckdb_computes(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """In two runs, so that the second finds samples that are too late, by a watermark that is known exactly."""
    fleet = Fleet(seed=7, rate=200, start_ms=START_MS)
    records = list(generate(fleet, 15_000))
    half = next(number for number, record in enumerate(records) if record.due_ms >= START_MS + 25_000)
    file = tmp_path / "pipeline.yaml"
    file.write_text(FILE.read_text(encoding="utf-8").replace("127.0.0.1:9092", broker.bootstrap), encoding="utf-8")

    produce(broker, records[:half])
    kept = Kept()
    run_once(pipeline_session, file, kept)
    first = [sample_of(record) for record in records[:half] if record.at_ms is not None]
    watermark_ms = max(one["at_ms"] for one in first) - WATERMARK_MS
    check_windows(broker, Expected(first).windows())
    alerts = check_alerts(broker, Expected(first).alerts(watermark_ms), kept)
    assert alerts
    assert {view.late_rows for view in kept.views} == {0}

    produce(broker, records[half:])
    run_once(pipeline_session, file, kept)
    rest = [sample_of(record) for record in records[half:] if record.at_ms is not None]
    in_time = [one for one in rest if one["at_ms"] // WINDOW_MS * WINDOW_MS + WINDOW_MS > watermark_ms]
    assert len(in_time) < len(rest), "the seed should give late samples"
    check_windows(broker, Expected(first + in_time).windows())
    last_at_ms = max(one["at_ms"] for one in rest)
    alerts = check_alerts(broker, Expected(first + in_time).alerts(last_at_ms - WATERMARK_MS), kept)
    assert alerts == fleet.expected_alerts(last_at_ms)
    assert kept.told or {view.name: view.late_rows for view in kept.views}["windows"] > 0
    check_dead_letters(broker, records, kept)
    shown = [(columns, row) for sink, _, columns, rows, _ in kept.rows if sink == "fleet" for row in rows]
    assert shown
    assert {tuple(columns) for columns, _ in shown} == {("window", "metric", "hosts", "average", "highest", "on_host")}
    assert {row[1] for _, row in shown} == {"cpu_percent", "memory_percent", "disk_percent"}
    assert max(int(row[2]) for _, row in shown) == fleet.hosts


def test_metrics_of_a_seed_are_always_the_same() -> None:
    fleet = Fleet(seed=3, rate=100, start_ms=START_MS)
    records = list(generate(fleet, 6_000))
    assert records == list(generate(fleet, 6_000))
    assert records != list(generate(Fleet(seed=4, rate=100, start_ms=START_MS), 6_000))
    assert sum(record.at_ms is not None for record in records) == 6_000
    assert [record.due_ms for record in records] == sorted(record.due_ms for record in records)
