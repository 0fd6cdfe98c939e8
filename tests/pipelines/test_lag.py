"""The lag of a pipeline as Kafka's own kafka-consumer-groups tells it: latest offset minus the last progress's end."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.testing import Broker
from tests.pipelines.faults.in_process import RunningPipeline
from tests.pipelines.faults.kill_points import WatchedSink
from tests.pipelines.running import run_pipeline, write_file
from tests.pipelines.samples import COPIED_WORDS, COPIED_WORDS_GROUP
from tests.support.kafka import KafkaUnavailable, kafka_jars, run_tool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]


def told_by_kafka(broker: Broker) -> dict[int, tuple[int, int, int]]:
    """Committed offset, end and lag of each partition, as the tool prints them."""
    said = run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", broker.bootstrap, "--describe", "--group", COPIED_WORDS_GROUP),
    )
    rows = [line.split() for line in said.splitlines() if line.startswith(f"{COPIED_WORDS_GROUP} ")]
    return {int(row[2]): (int(row[3]), int(row[4]), int(row[5])) for row in rows}


def last_progress_ends(session: "SparkSession") -> dict[int, int]:
    """The end offsets of the query's last progress, as Spark reports it."""
    (query,) = [query for query in session.streams.active if query.name == COPIED_WORDS_GROUP]
    progress = query.lastProgress
    assert progress is not None
    ends = json.loads(progress["sources"][0]["endOffset"])["words"]
    return {int(partition): offset for partition, offset in ends.items()}


def expected(ends: dict[int, int], latest: dict[int, int]) -> dict[int, tuple[int, int, int]]:
    return {partition: (end, latest[partition], latest[partition] - end) for partition, end in ends.items()}


def test_lag_by_kafkas_tool_equals_latest_minus_the_end_of_the_last_progress(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    try:
        kafka_jars()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    broker.create_topic("words", 2)
    broker.create_topic("copies")
    broker.append("words", [b"word"] * 50)
    broker.append("words", [b"word"] * 31, partition=1)
    file = write_file(tmp_path, COPIED_WORDS, broker)
    sink = WatchedSink("copies", tmp_path / "checkpoint", "copies")

    with RunningPipeline(pipeline_session, file) as running:
        running.wait_until(lambda: sum(sink.ends().values()) == 81, "all is read")
        running.wait_until(lambda: [view.lag for view in running.kept.views] == [0], "the run says that it rests")
        at_rest = told_by_kafka(broker)
        assert at_rest == expected(last_progress_ends(pipeline_session), {0: 50, 1: 31})
    assert {partition: lag for partition, (_, _, lag) in at_rest.items()} == {0: 0, 1: 0}

    # What nobody has read yet is lag.
    broker.append("words", [b"word"] * 7)
    ends = {one.partition: end for one, end in sink.ends().items()}
    assert told_by_kafka(broker) == expected(ends, {0: 57, 1: 31})

    broker.append("words", [b"word"] * 40, partition=1)
    run_pipeline(pipeline_session, file)
    ends = {one.partition: end for one, end in sink.ends().items()}
    assert told_by_kafka(broker) == expected(ends, {0: 57, 1: 71}) == {0: (57, 57, 0), 1: (71, 71, 0)}
    broker.append("words", [b"word"] * 3, partition=1)
    assert told_by_kafka(broker)[1] == (71, 74, 3)
