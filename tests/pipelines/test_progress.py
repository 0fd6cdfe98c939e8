"""Spark's reports summed up, and shown to Prometheus."""

import json
import urllib.request
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.pipelines.metrics import MetricsServer, PipelineMetrics
from barnabas.pipelines.progress import QueryProgress, QueryView

FIRST = TopicPartition("views", 0)


def report(batch_id: int, rows: int, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch_id,
        "numInputRows": rows,
        "processedRowsPerSecond": 50.0,
        "durationMs": {"triggerExecution": 120, "addBatch": 90},
        "stateOperators": [{"numRowsTotal": 5, "memoryUsedBytes": 700, "numRowsDroppedByWatermark": 2}],
        "observedMetrics": {"bad_views": {"rows": 1}},
        "sources": [{"endOffset": json.dumps({"views": {"0": 10 * (batch_id + 1)}})}],
        **more,
    }


def test_reports_are_taken_once_each() -> None:
    progress = QueryProgress("views.counts")
    assert progress.take([report(0, 10), report(1, 20)])
    assert not progress.take([report(0, 10), report(1, 20)])
    assert (progress.input_rows, progress.late_rows, progress.bad_rows, progress.batches) == (30, 4, 2, 2)
    assert (progress.state_rows, progress.state_bytes, progress.batch_ms) == (5, 700, 120)
    assert progress.ends == {FIRST: 20}


def test_report_of_a_resting_query_does_not_hide_the_batch_after_it() -> None:
    progress = QueryProgress("views.counts")
    resting = report(1, 0, durationMs={"triggerExecution": 3, "latestOffset": 3})
    assert progress.take([report(0, 10)])
    assert not progress.take([report(0, 10), resting])
    assert progress.take([report(0, 10), resting, report(1, 20)])
    assert (progress.input_rows, progress.batches, progress.batch_id) == (30, 2, 1)


def test_lag_is_latest_minus_what_was_read() -> None:
    progress = QueryProgress("views.counts")
    progress.take([report(0, 10)])
    assert progress.lags({FIRST: 25, TopicPartition("other", 0): 9}) == {FIRST: 15}


def test_offsets_of_other_sources_are_left_out() -> None:
    progress = QueryProgress("views.counts")
    progress.take([report(0, 1, sources=[{"endOffset": "7"}, {"endOffset": None}, {"endOffset": "{oops"}])])
    assert progress.ends == {}


def test_metrics_page_has_lag_by_partition_and_health_by_state() -> None:
    metrics = PipelineMetrics("views")
    view = QueryView("counts", "running", 3, 50.0, 15, 120, 5, 700, 30, 4, 2, 1, "")
    metrics.views = [view]
    metrics.lags = {"counts": {FIRST: 15}}
    server = MetricsServer(metrics, "127.0.0.1", 0)
    try:
        address = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            text = answer.read().decode()
        with urllib.request.urlopen(f"{address}/healthz") as answer:
            assert answer.status == 200
    finally:
        server.close()
    assert 'barnabas_pipeline_lag{partition="0",pipeline="views",query="counts",topic="views"} 15.0' in text
    assert 'barnabas_pipeline_bad_rows_total{pipeline="views",query="counts"} 2.0' in text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[STREAM_FAILED] it ended\n  File x\nbarnabas.spark.reading.DataLost: 3 records are gone\n SQLSTATE: 1",
            "3 records are gone",
        ),
        ("x\npyspark.errors.SparkRuntimeException: [USER_RAISED_EXCEPTION] bad row SQLSTATE: P0001", "bad row"),
        ("x\nValueError: odd\nmore", "odd"),
        ("[TABLE_OR_VIEW_NOT_FOUND] no view SQLSTATE: 42P01", "no view"),
        ("", "RuntimeError"),
    ],
)
def test_failure_line_says_the_innermost_cause(text: str, line: str) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
    from barnabas.pipelines.failures import failure_line

    assert failure_line(RuntimeError(text)) == line
