"""The examples, killed at any batch and started again, against the same DuckDB that their own tests have.

Their generators leave out what comes too late for its window: whether that counts depends on where batches end, and a
killed run ends them elsewhere. The last tenth of the records comes before the last run, which nobody disturbs, because
Spark closes windows only after a batch that had records.
"""

import json
import os
import shutil
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.client.blocking import BlockingClient
from barnabas.testing import Broker
from examples.logs.generate import TOPIC as LOG_LINES
from examples.logs.generate import TOPICS as LOG_TOPICS
from examples.logs.generate import log_lines
from examples.metrics.fleet import TOPIC as METRICS
from examples.metrics.fleet import WATERMARK_MS, Fleet, generate
from examples.producing import produce
from examples.views.generate import TOPICS as SHOP_TOPICS
from examples.views.generate import USERS, VIEWS, shop_records
from tests.pipelines import test_example_logs as logs
from tests.pipelines import test_example_metrics as metrics
from tests.pipelines import test_example_views as views
from tests.pipelines.example_files import place_example
from tests.pipelines.faults.kill_points import Kill, Killer, WatchedSink
from tests.pipelines.faults.processes import PipelineProcess
from tests.pipelines.faults.shops import records_in

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs a Java runtime: no `java` on the PATH"),
    pytest.mark.skipif(
        "BARNABAS_LONG_TESTS" not in os.environ, reason="it takes minutes: set BARNABAS_LONG_TESTS=1 to run it"
    ),
]
KILLS = 3


def kill_often(
    broker: Broker, file: Path, topic: str, targets: dict[str, str | Path], records_per_batch: int, seed: int
) -> list[Kill]:
    sinks = [WatchedSink(name, file.parent / "checkpoint", target) for name, target in targets.items()]
    with BlockingClient(broker.bootstrap) as client:
        records = records_in(client, topic)
        killer = Killer(sinks, Random(seed), records, records_per_batch, lambda name: records_in(client, name))
        return [killer.kill(file) for _ in range(KILLS)]


def finish(file: Path) -> None:
    with PipelineProcess(file, "--once") as process:
        assert process.wait() == 0, process.said


def values_of(broker: Broker, topic: str) -> list[Any]:
    return [json.loads(record.value or b"") for record in broker.records(topic)]


def dead_places(broker: Broker, topic: str) -> set[tuple[int, int]]:
    """Where the dead letters come from; the same letter may be there again."""
    places = set()
    for letter in broker.records(topic):
        headers = {name: (value or b"").decode() for name, value in letter.headers}
        places.add((int(headers["barnabas.partition"]), int(headers["barnabas.offset"])))
    return places


def test_logs_killed_again_and_again_are_archived_once_and_counted_right(broker: Broker, tmp_path: Path) -> None:
    records = list(islice(log_lines(2, late_share=0.0), 4_000))
    file = place_example(
        "logs", tmp_path, broker, {"watermark: 1 minute\n": "watermark: 1 minute\n    records_max_per_batch: 200\n"}
    )
    produce(broker.bootstrap, LOG_TOPICS, iter(records[:3_600]), 3_600)
    targets: dict[str, str | Path] = {"error-counts": "log-errors", "archive": tmp_path / "data" / "logs"}
    kills = kill_often(broker, file, LOG_LINES, targets, 200, seed=1)
    produce(broker.bootstrap, LOG_TOPICS, iter(records[3_600:]), 400)
    finish(file)

    lines = logs.Lines()
    lines.add(records)
    assert lines.differences(tmp_path) == [], kills
    assert set(logs.counted(broker)) == set(lines.closed_counts()), kills
    good = {value.encode() for (value,) in lines.query("SELECT value FROM parsed")}
    bad = {(one.partition, one.offset) for one in broker.records(LOG_LINES) if one.value not in good}
    assert dead_places(broker, "logs-dead") == bad


def test_views_killed_again_and_again_give_every_session_and_each_view_once(broker: Broker, tmp_path: Path) -> None:
    changes = {"    watermark: 10 minutes\n": "    watermark: 10 minutes\n    records_max_per_batch: 100\n"}
    file = place_example("views", tmp_path, broker, changes)
    # One partition: of two, read in small batches, one is ahead by more than the watermark allows, and views are late.
    broker.create_topic(VIEWS)
    records = list(islice(shop_records(2, late_share=0.0), 2_000))
    # All users first: what a view is joined with must not depend on when it is read.
    in_order = [one for one in records if one.topic == USERS] + [one for one in records if one.topic == VIEWS]
    produce(broker.bootstrap, SHOP_TOPICS, iter(in_order[:1_800]), 1_800)
    targets: dict[str, str | Path] = {"sessions": "sessions", "view-table": tmp_path / "data" / "views"}
    kills = kill_often(broker, file, VIEWS, targets, 100, seed=1)
    produce(broker.bootstrap, SHOP_TOPICS, iter(in_order[1_800:]), 200)
    finish(file)

    shop = views.Shop()
    shop.add(in_order)
    assert shop.differences(tmp_path) == [], kills
    assert set(views.topic_of_sessions(broker)) == set(shop.closed_sessions()), kills
    bad = {(one.partition, one.offset) for one in broker.records(VIEWS) if views.view_of(one.value) is None}
    assert dead_places(broker, "views-dead") == bad


def test_metrics_killed_again_and_again_give_every_window_and_alert(broker: Broker, tmp_path: Path) -> None:
    changes = {"    watermark: 3 seconds": "    records_max_per_batch: 750\n    watermark: 3 seconds"}
    file = place_example("metrics", tmp_path, broker, changes)
    fleet = Fleet(seed=5, rate=200, start_ms=metrics.START_MS)
    records = [one for one in generate(fleet, 15_000) if one.at_ms is None or one.due_ms - one.at_ms < WATERMARK_MS]
    most = len(records) * 9 // 10
    metrics.produce(broker, records[:most])
    targets: dict[str, str | Path] = {"alerts": "alerts", "windows": "metric-windows"}
    kills = kill_often(broker, file, METRICS, targets, 750, seed=1)
    metrics.produce(broker, records[most:])
    finish(file)

    samples = [metrics.sample_of(one) for one in records if one.at_ms is not None]
    expected = metrics.Expected(samples)
    metrics.check_windows(broker, expected.windows())
    last_at_ms = max(one["at_ms"] for one in samples)
    wanted = expected.alerts(last_at_ms - WATERMARK_MS)
    found = distinct(values_of(broker, "alerts"))
    assert {alert_key(row) for row in found} == wanted.keys(), kills
    assert all(metrics.is_near(row, wanted[alert_key(row)], ("value", "threshold")) for row in found)
    assert len(dead_places(broker, "metrics-dead")) == sum(one.at_ms is None for one in records)


def alert_key(row: dict[str, Any]) -> str:
    return f"{row['rule']}/{row['host']}/{metrics.window_ms(row)}"


def distinct(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those that are there again; two alerts with one id must be the same in everything."""
    by_id: dict[str, dict[str, Any]] = {}
    for row in rows:
        assert by_id.setdefault(row["id"], row) == row
    return list(by_id.values())
