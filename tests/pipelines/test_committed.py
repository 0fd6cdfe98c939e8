"""What a pipeline commits to its groups: by its streams alone, and in time, whatever the trigger is."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.testing import Broker
from tests.pipelines.faults.in_process import RunningPipeline
from tests.pipelines.running import run_pipeline, write_file
from tests.pipelines.samples import COPIED_WORDS, COPIED_WORDS_GROUP
from tests.spark.commits import all_commits, committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")


def test_pipeline_commits_each_batch_once_in_the_middle_at_the_end_and_after_a_restart(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("words")
    broker.create_topic("copies")
    broker.append("words", [b"word"] * 50)
    file = write_file(tmp_path, COPIED_WORDS, broker)
    run_pipeline(pipeline_session, file)
    assert all_commits(broker, COPIED_WORDS_GROUP) == [{0: 0}, {0: 20}, {0: 40}, {0: 50}]

    broker.append("words", [b"word"] * 7)
    assert broker.wait_for_group(COPIED_WORDS_GROUP, lag=7).lag == 7
    with RunningPipeline(pipeline_session, file) as running:
        running.wait_until(lambda: committed(broker, COPIED_WORDS_GROUP) == {0: 57}, "what came meanwhile is committed")
        broker.append("words", [b"word"] * 3)
        running.wait_until(lambda: committed(broker, COPIED_WORDS_GROUP) == {0: 60}, "what comes is committed")
    assert all_commits(broker, COPIED_WORDS_GROUP) == [{0: end} for end in (0, 20, 40, 50, 50, 57, 60)]

    # Started again without anything to do, it runs all the same.
    with RunningPipeline(pipeline_session, file) as running:
        running.wait_until(lambda: [view.state for view in running.kept.views] == ["running"], "the idle query runs")
        assert [(view.batch_id, view.input_rows) for view in running.kept.views] == [(-1, 0)]


def test_pipeline_with_a_long_trigger_commits_its_batch_at_once(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("words")
    broker.create_topic("copies")
    broker.append("words", [b"word"] * 5)
    file = write_file(tmp_path, COPIED_WORDS.replace("sources:", "trigger: 1 hour\nsources:"), broker)
    run_pipeline(pipeline_session, file)
    broker.append("words", [b"word"] * 4)
    with RunningPipeline(pipeline_session, file) as running:
        running.wait_until(lambda: len(broker.records("copies")) == 9, "the batch is written")
        # Stopped at once: the run waits for the commit, not for the next trigger.
    assert committed(broker, COPIED_WORDS_GROUP) == {0: 9}
