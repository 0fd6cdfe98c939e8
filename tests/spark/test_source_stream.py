"""Streaming queries by real Spark, compared record by record with what the broker holds."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.testing import Broker
from tests.spark.killed_query import STARTED
from tests.spark.topics import (
    QUERY_SECONDS_MAX,
    fill,
    finish,
    offsets_json,
    places,
    run_available,
    start_query,
    stored_places,
    stream,
    written_places,
)
from tests.support.kafka import PROJECT_DIRECTORY, wait_until


def logged_offsets(directory: Path, batch: int) -> dict[str, dict[str, int]]:
    """What the checkpoint keeps as the end of a batch."""
    lines = (directory / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()
    offsets: dict[str, dict[str, int]] = json.loads(lines[2])
    return offsets


def test_stream_reads_everything_once_over_restarts_new_partitions_and_new_topics(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("in-a", 2)
    fill(broker, "in-a", {0: 120, 1: 30})
    rows = stream(spark, broker.bootstrap, subscribePattern="in-.*", startingOffsets="earliest")
    query = start_query(rows, tmp_path)
    query.processAllAvailable()
    assert written_places(spark, tmp_path) == stored_places(broker, "in-a")
    with BlockingClient(broker.bootstrap) as client:
        client.wait_for(client.admin.create_partitions("in-a", 3))
    broker.create_topic("in-b")
    fill(broker, "in-a", {2: 7})
    fill(broker, "in-b", {0: 9})
    everything = len(stored_places(broker, "in-a", "in-b"))
    wait_until(lambda: len(written_places(spark, tmp_path)) >= everything, "new partitions are read")
    query.stop()
    fill(broker, "in-b", {0: 11}, label="later-")
    query = start_query(rows, tmp_path)
    query.processAllAvailable()
    query.stop()
    assert written_places(spark, tmp_path) == stored_places(broker, "in-a", "in-b")


def test_first_batch_is_empty_and_pins_the_start_so_that_latest_stays_what_it_was(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("pinned")
    fill(broker, "pinned", {0: 10})
    query = start_query(stream(spark, broker.bootstrap, "pinned", startingOffsets="latest"), tmp_path)
    wait_until(lambda: (tmp_path / "checkpoint" / "commits" / "0").exists(), "batch 0 is done")
    assert logged_offsets(tmp_path, 0) == {"pinned": {"0": 10}}
    query.stop()
    fill(broker, "pinned", {0: 5}, label="missed-")
    run_available(stream(spark, broker.bootstrap, "pinned", startingOffsets="latest"), tmp_path)
    assert written_places(spark, tmp_path) == [("pinned", 0, offset) for offset in range(10, 15)]


@pytest.mark.slow
def test_query_killed_in_its_first_batch_with_records_reads_them_again(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("victim")
    fill(broker, "victim", {0: 10})
    command = [sys.executable, "-m", "tests.spark.killed_query", broker.bootstrap, "victim", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT_DIRECTORY), *filter(None, sys.path)])}
    with open(tmp_path / "killed.log", "wb") as output:
        process = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=output, stderr=output)
    try:
        started = tmp_path / STARTED
        wait_until(lambda: started.exists() or process.poll() is not None, "the query runs", QUERY_SECONDS_MAX)
        fill(broker, "victim", {0: 5}, label="late-")
        assert process.wait(QUERY_SECONDS_MAX) == -signal.SIGKILL, (tmp_path / "killed.log").read_text()[-2000:]
    finally:
        if process.poll() is None:
            process.kill()
    fill(broker, "victim", {0: 2}, label="later-")
    rows = stream(spark, broker.bootstrap, "victim", startingOffsets="latest")
    seen: list[tuple[str, int, int]] = []
    writer = rows.writeStream.foreachBatch(lambda batch, number: seen.extend(places(batch)))
    finish(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start())
    assert sorted(seen) == [("victim", 0, offset) for offset in range(10, 17)]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_query_that_failed_in_batch_0_goes_on_from_its_pinned_start_to_the_end(
    spark: SparkSession, broker: Broker, tmp_path: Path, start: str
) -> None:
    broker.create_topic("failed")
    fill(broker, "failed", {0: 10})
    rows = stream(spark, broker.bootstrap, "failed", startingOffsets=start)
    seen: list[tuple[str, int, int]] = []

    def write(batch: DataFrame, number: int) -> None:
        if not (tmp_path / "again").exists():
            raise RuntimeError("not this time")
        seen.extend(places(batch))

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="not this time"):
        finish(writer.trigger(availableNow=True).start())
    fill(broker, "failed", {0: 3}, label="later-")
    (tmp_path / "again").touch()
    finish(writer.trigger(availableNow=True).start())
    assert sorted(seen) == [("failed", 0, offset) for offset in range(0 if start == "earliest" else 10, 13)]


def test_stream_has_nothing_new_while_its_stop_file_exists(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    stop_file = tmp_path / "stop"
    broker.create_topic("stopped")
    fill(broker, "stopped", {0: 10})
    rows = stream(spark, broker.bootstrap, "stopped", startingOffsets="earliest", stopFile=stop_file)
    query = start_query(rows, tmp_path)
    query.processAllAvailable()
    stop_file.touch()
    fill(broker, "stopped", {0: 5}, label="later-")
    query.processAllAvailable()
    query.stop()
    assert written_places(spark, tmp_path) == [("stopped", 0, offset) for offset in range(10)]
    stop_file.unlink()
    run_available(rows, tmp_path)
    assert written_places(spark, tmp_path) == [("stopped", 0, offset) for offset in range(15)]


def test_available_now_ends_at_the_present_with_limited_batches(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("backlog", 2)
    fill(broker, "backlog", {0: 900, 1: 100})
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 250, "minOffsetsPerTrigger": 200}
    query = run_available(stream(spark, broker.bootstrap, "backlog", **options), tmp_path)
    sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert sizes == [250, 250, 250, 250]
    assert logged_offsets(tmp_path, 1) == {"backlog": {"0": 225, "1": 25}}
    assert written_places(spark, tmp_path) == stored_places(broker, "backlog")


def test_trigger_once_reads_all_in_its_only_batch(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("once")
    fill(broker, "once", {0: 40})
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    finish(start_query(stream(spark, broker.bootstrap, "once", **options), tmp_path, once=True))
    assert written_places(spark, tmp_path) == stored_places(broker, "once")


def test_minimum_of_offsets_holds_a_batch_back_until_there_are_enough(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("slow")
    fill(broker, "slow", {0: 3})
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": 10, "maxTriggerDelay": "10m"}
    query = start_query(stream(spark, broker.bootstrap, "slow", **options), tmp_path)
    offsets = tmp_path / "checkpoint" / "offsets"
    wait_until(lambda: (offsets / "1").exists(), "the first records are read, however few")
    fill(broker, "slow", {0: 4})
    query.processAllAvailable()
    assert not (offsets / "2").exists()
    fill(broker, "slow", {0: 6})
    wait_until(lambda: (offsets / "2").exists(), "enough records are read")
    query.processAllAvailable()
    query.stop()
    assert logged_offsets(tmp_path, 2) == {"slow": {"0": 13}}
    assert written_places(spark, tmp_path) == stored_places(broker, "slow")


def test_idle_query_asks_seldom_and_reacts_at_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """Counted at the broker: its requests while the query waits for records, and the batch that they end."""
    broker.create_topic("quiet")
    query = start_query(stream(spark, broker.bootstrap, "quiet", startingOffsets="earliest"), tmp_path)
    wait_until(lambda: (tmp_path / "checkpoint" / "commits" / "0").exists(), "batch 0 is done")
    counted = broker.delay(0.0, times=None)
    began = time.monotonic()
    time.sleep(3)  # there is nothing to wait for: nothing must happen
    asked, seconds = counted.used, time.monotonic() - began
    fill(broker, "quiet", {0: 1})
    wait_until(lambda: (tmp_path / "checkpoint" / "commits" / "1").exists(), "the record is read")
    query.stop()
    assert asked <= 10 * seconds
    assert written_places(spark, tmp_path) == [("quiet", 0, 0)]


def test_lost_records_stop_the_query_or_are_left_out_by_the_option(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("aged")
    fill(broker, "aged", {0: 10})

    def rows(is_failing: str) -> object:
        return stream(
            spark,
            broker.bootstrap,
            "aged",
            startingOffsets="earliest",
            failOnDataLoss=is_failing,
            fetchOffset__numRetries=1,
        )

    run_available(rows("true"), tmp_path)
    fill(broker, "aged", {0: 20}, label="more-")
    with BlockingClient(broker.bootstrap) as client:
        client.wait_for(client.admin.delete_records({TopicPartition("aged", 0): 15}))
    with pytest.raises(StreamingQueryException, match=r"aged-0: the records from offset 10 to 14 were deleted"):
        run_available(rows("true"), tmp_path)
    run_available(rows("false"), tmp_path)
    expected = [("aged", 0, offset) for offset in [*range(10), *range(15, 30)]]
    assert written_places(spark, tmp_path) == expected


def test_topic_that_was_deleted_or_made_again_is_told(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    for topic in ("kept", "doomed"):
        broker.create_topic(topic)
        fill(broker, topic, {0: 10})
    options = {"startingOffsets": "earliest", "fetchOffset__numRetries": 1}
    rows = stream(spark, broker.bootstrap, "kept,doomed", **options)
    run_available(rows, tmp_path)
    broker.delete_topic("doomed")
    with pytest.raises(StreamingQueryException, match="doomed-0 does not exist any more: it was read up to offset 10"):
        run_available(rows, tmp_path)
    broker.create_topic("doomed")
    fill(broker, "doomed", {0: 4})
    with pytest.raises(StreamingQueryException, match="doomed-0 ends at offset 4, but was read up to 10"):
        run_available(rows, tmp_path)
    fill(broker, "kept", {0: 1})
    tolerant = stream(spark, broker.bootstrap, "kept,doomed", failOnDataLoss=False, **options)
    run_available(tolerant, tmp_path)
    fill(broker, "doomed", {0: 2})
    run_available(tolerant, tmp_path)
    expected = [("doomed", 0, offset) for offset in [*range(10), 4, 5]]
    expected += [("kept", 0, offset) for offset in range(11)]
    assert written_places(spark, tmp_path) == sorted(expected)


def test_start_at_given_offsets_and_an_ending_is_refused(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("given", 2)
    fill(broker, "given", {0: 10, 1: 10})
    start = offsets_json([(0, 7), (1, -2)], "given")
    run_available(stream(spark, broker.bootstrap, "given", startingOffsets=start), tmp_path)
    expected = [("given", 0, offset) for offset in range(7, 10)] + [("given", 1, offset) for offset in range(10)]
    assert written_places(spark, tmp_path) == expected
    with pytest.raises(PySparkException, match="a stream has no end"):
        run_available(stream(spark, broker.bootstrap, "given", endingOffsets="latest"), tmp_path / "other")
