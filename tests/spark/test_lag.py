"""Lag as every tool sees it: what streams commit to their groups, in the middle, at the end, and after a restart."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

from pyspark.sql import SparkSession

from barnabas.testing import Broker
from tests.spark.commits import all_commits, committed
from tests.spark.topics import fill, run_available, start_query, stream
from tests.support.kafka import PROJECT_DIRECTORY, wait_until

OPTIONS = {"startingOffsets": "earliest", "kafka__group__id": "billing"}


def test_lag_is_right_in_the_middle_at_the_end_and_after_a_restart(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("watched", 2)
    fill(broker, "watched", {0: 30, 1: 12})
    rows = stream(spark, broker.bootstrap, "watched", **OPTIONS, maxOffsetsPerTrigger=15)
    run_available(rows, tmp_path)
    assert committed(broker, "billing") == {0: 30, 1: 12}
    commits = all_commits(broker, "billing")
    assert [sum(commit.values()) for commit in commits] == [0, 14, 28, 42], "one for the start and for each batch"

    fill(broker, "watched", {0: 5})
    assert broker.wait_for_group("billing", lag=5).lag == 5
    query = start_query(rows, tmp_path)
    try:
        query.processAllAvailable()
        wait_until(lambda: committed(broker, "billing") == {0: 35, 1: 12}, "the restarted query commits")
        fill(broker, "watched", {1: 3})
        query.processAllAvailable()
        wait_until(lambda: committed(broker, "billing") == {0: 35, 1: 15}, "the running query commits")
    finally:
        query.stop()
    assert broker.wait_for_group("billing", lag=0).lag == 0
    assert all_commits(broker, "billing") == [*commits, {0: 30, 1: 12}, {0: 35, 1: 12}, {0: 35, 1: 15}]


def test_batch_is_committed_at_once_where_the_next_trigger_is_an_hour_away(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("watched")
    fill(broker, "watched", {0: 10})
    options = {**OPTIONS, "checkpointLocation": f"file://{tmp_path}/checkpoint"}
    rows = stream(spark, broker.bootstrap, "watched", **options)
    run_available(rows, tmp_path)
    fill(broker, "watched", {0: 15})
    query = start_query(rows, tmp_path, processingTime="1 hour")
    try:
        wait_until(lambda: committed(broker, "billing") == {0: 25}, "the batch is committed before the next trigger")
        wait_until(lambda: not query.status["isTriggerActive"], "the trigger of the batch ends, which was the only one")
    finally:
        query.stop()


def test_stream_commits_what_is_done_also_while_its_stop_file_exists(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("watched")
    fill(broker, "watched", {0: 10})
    run_available(stream(spark, broker.bootstrap, "watched", startingOffsets="earliest"), tmp_path)
    stop_file = tmp_path / "stop"
    stop_file.touch()
    query = start_query(stream(spark, broker.bootstrap, "watched", **OPTIONS, stopFile=stop_file), tmp_path)
    try:
        wait_until(lambda: committed(broker, "billing") == {0: 10}, "what is done is committed")
    finally:
        query.stop()


def test_progress_is_committed_in_one_place() -> None:
    """One module commits, and one uses it: the reader of streams, which pipelines use as well."""
    sources = {
        path.relative_to(PROJECT_DIRECTORY / "src" / "barnabas"): path.read_text(encoding="utf-8")
        for package in ("spark", "pipelines")
        for path in sorted((PROJECT_DIRECTORY / "src" / "barnabas" / package).rglob("*.py"))
    }

    def users(pattern: str) -> list[str]:
        return [str(path) for path, text in sources.items() if re.search(pattern, text)]

    assert users(r"\bcommit_offsets\b") == ["spark/lag.py"]
    assert users(r"import StreamProgress") == ["spark/stream.py"]
