"""What `barnabas pipeline check` finds without running a pipeline, each with its line."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.pipelines.nodes import Mistake
from barnabas.pipelines.spec import InvalidPipeline, read_pipeline
from tests.pipelines.samples import VIEWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

TOPICS = ("views", "users", "counts", "dead")
NEW_STEP = "  pages:\n"


def check(session: "SparkSession", directory: Path, text: str, topics: tuple[str, ...] = TOPICS) -> list[Mistake]:
    from barnabas.pipelines.check import check_pipeline

    return check_pipeline(session, read_pipeline(text, "views.yaml"), directory, topics)


def test_pipeline_without_mistakes_passes(pipeline_session: "SparkSession", tmp_path: Path) -> None:
    assert check(pipeline_session, tmp_path, VIEWS) == []
    settings = "kafka: {acks: all, linger.ms: 5, max.poll.records: 10, client.id: views}\n"
    assert check(pipeline_session, tmp_path, VIEWS.replace("sources:\n", f"{settings}sources:\n", 1)) == []


@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        pytest.param("v.page, v.at", "v.pagee, v.at", 19, "`v`.`pagee` cannot be resolved", id="unknown column"),
        pytest.param("FROM views v LEFT", "FORM views v LEFT", 20, "yntax error", id="bad SQL"),
        pytest.param("FROM views v LEFT", "FROM veiws v LEFT", 20, "did you mean 'views'?", id="unknown view"),
        pytest.param("    watermark: 10 seconds\n", "", 25, "or write in mode update", id="missing watermark"),
        pytest.param("event_time: at", "event_time: page", 8, "page", id="event time that is no time"),
        pytest.param("event_time: at", "event_time: att", 8, "att", id="event time that is no column"),
        pytest.param("page string, at", "page strin, at", 7, "STRIN", id="schema with unknown type"),
        pytest.param("key: page", "key: pag", 29, "`pag` cannot be resolved", id="unknown column in key"),
        pytest.param("partition_by: page", "partition_by: pages", 33, "did you mean 'page'?", id="unknown partition"),
        pytest.param("topic: counts", "topic: count", 28, "did you mean 'counts'?", id="unknown topic of sink"),
        pytest.param("    topic: views", "    topic: view", 6, "did you mean 'views'?", id="unknown topic of source"),
        pytest.param(
            "dead_letter: dead", "dead_letter: ded", 3, "did you mean 'dead'?", id="unknown dead-letter topic"
        ),
        pytest.param("checkpoint: checkpoint\n", "checkpoint: c\nkafka: {acs: all}\n", 3, "acs", id="unknown setting"),
        pytest.param(
            "    parquet: table\n    partition_by: page",
            "    delta: table\n    mode: complete",
            33,
            "mode complete",
            id="mode that the rows cannot have",
        ),
        pytest.param(
            NEW_STEP,
            "  more:\n    python: nowhere.to_be:found\n    inputs: views\n  pages:\n",
            22,
            "nowhere",
            id="no module",
        ),
        pytest.param(
            NEW_STEP, "  more:\n    python: json:lods\n    inputs: views\n  pages:\n", 22, "'loads'", id="no function"
        ),
        pytest.param(
            NEW_STEP,
            "  more:\n    python: json:dumps\n    inputs: views\n  pages:\n",
            22,
            "json:dumps failed",
            id="raises",
        ),
        pytest.param(
            NEW_STEP,
            "  more:\n    python: tests.pipelines.broken_step:any\n    inputs: views\n  pages:\n",
            22,
            "failed while it was imported: ZeroDivisionError",
            id="module that raises",
        ),
        pytest.param(
            NEW_STEP,
            "  more:\n    stateful: json:dumps\n    inputs: views\n    key: user\n    schema: n int\n  pages:\n",
            22,
            "StatefulProcessor",
            id="function named as stateful",
        ),
        pytest.param("key: page", "key: max(page)", 29, "must be computed from one row", id="aggregate in a key"),
        pytest.param(
            "SELECT v.user, u.name, v.page, v.at",
            "SELECT v.user, u.name, u.name AS Name, v.page, v.at",
            31,
            "columns 'name' and 'Name'",
            id="names that differ by case",
        ),
    ],
)
def test_mistake_is_found_with_its_line(
    pipeline_session: "SparkSession", tmp_path: Path, before: str, after: str, line: int, message: str
) -> None:
    assert before in VIEWS
    found = check(pipeline_session, tmp_path, VIEWS.replace(before, after, 1))
    assert [mistake for mistake in found if mistake.line == line and message in mistake.message], found


def test_mistakes_of_independent_steps_are_found_together(pipeline_session: "SparkSession", tmp_path: Path) -> None:
    text = VIEWS.replace("v.page, v.at", "v.pagee, v.at").replace(
        NEW_STEP, "  other:\n    sql: SELECT nothing FROM views\n  pages:\n"
    )
    assert [mistake.line for mistake in check(pipeline_session, tmp_path, text, (*TOPICS, "more"))] == [19, 22]


@pytest.mark.parametrize(
    "statement", ["DROP VIEW kept", "CREATE TABLE t AS SELECT 1", "INSERT INTO t SELECT 1", "SET a=b"]
)
def test_step_that_is_no_query_is_refused_and_not_carried_out(
    pipeline_session: "SparkSession", tmp_path: Path, statement: str
) -> None:
    pipeline_session.range(1).createOrReplaceTempView("kept")
    found = check(pipeline_session, tmp_path, VIEWS.replace(NEW_STEP, f"  other:\n    sql: {statement}\n  pages:\n"))
    assert [mistake.line for mistake in found] == [22]
    assert "only a query" in found[0].message
    assert pipeline_session.table("kept").count() == 1
    assert not pipeline_session.catalog.tableExists("t")


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "record", "name": "A"}',
        '{"type": "record", "fields": [{"name": "a"}]}',
        '{"type": "record", "fields": 3}',
    ],
)
def test_schema_that_is_no_avro_is_the_files_mistake(
    pipeline_session: "SparkSession", tmp_path: Path, schema: str
) -> None:
    (tmp_path / "sale.avsc").write_text(schema)
    text = VIEWS.replace(
        "sources:\n", "sources:\n  sales:\n    topic: views\n    format: avro\n    avro_schema: sale.avsc\n"
    )
    found = check(pipeline_session, tmp_path, text)
    assert [mistake for mistake in found if mistake.line == 8 and "is not an Avro schema" in mistake.message], found


def test_package_for_avro_that_is_missing_is_found_before_a_run(
    pipeline_session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sale.avsc").write_text('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]}')
    text = VIEWS.replace(
        "sources:\n", "sources:\n  sales:\n    topic: views\n    format: avro\n    avro_schema: sale.avsc\n"
    )
    assert check(pipeline_session, tmp_path, text) == []
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "fastavro" else find_spec(name))
    (found,) = check(pipeline_session, tmp_path, text)
    assert (found.line, found.message) == (
        7,
        "source 'sales': format avro needs the package fastavro: pip install fastavro",
    )


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("./table", "sink 'more' writes to the same place as sink 'archive'"),
        ("link", "sink 'more' writes to the same place as sink 'archive'"),
        ("table/more", "sink 'more' writes into the directory of, or around that of, sink 'archive'"),
        ("tables", ""),
    ],
)
def test_sinks_whose_files_would_lie_in_one_directory_are_refused(
    pipeline_session: "SparkSession", tmp_path: Path, target: str, message: str
) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table")
    text = f"{VIEWS}  more: {{from: named, parquet: {target}}}\n"
    try:
        found = check(pipeline_session, tmp_path, text)
    except InvalidPipeline as error:
        found = error.mistakes
    assert [(one.line, one.message.partition(";")[0]) for one in found] == ([(34, message)] if message else [])


def test_column_of_another_type_than_in_the_files_that_are_there_is_refused_unless_one_is_wider(
    pipeline_session: "SparkSession", tmp_path: Path
) -> None:
    (tmp_path / "table").mkdir()
    files = {"user": pa.array(["u1"]), "number": pa.array([1], pa.int32())}
    pq.write_table(pa.table(files), tmp_path / "table" / "part.parquet")

    def mistakes(expression: str) -> list[str]:
        text = VIEWS.replace("SELECT v.user, u.name,", f"SELECT v.user, {expression} AS number, u.name,")
        return [one.message for one in check(pipeline_session, tmp_path, text)]

    assert mistakes("CAST(1 AS int)") == mistakes("CAST(1 AS bigint)") == mistakes("CAST(1 AS smallint)") == []
    assert mistakes("'one'") == ["sink 'archive': column 'number' is string, but int32 in the existing files"]


def test_state_without_end_and_misspelt_settings_are_warned_about(
    pipeline_session: "SparkSession", tmp_path: Path
) -> None:
    from barnabas.pipelines.check import advice_for

    settings = "spark: {spark.sql.shufle.partitions: 3, spark.executor.memory: 1g, my.plugin: 1}\n"
    text = VIEWS.replace("sources:\n", f"{settings}sources:\n", 1)
    growing = (
        "  users_seen:\n    sql: SELECT DISTINCT user FROM views\n"
        "sinks:\n  seen: {from: users_seen, console: true, mode: update}\n"
    )
    text = text.replace("sinks:\n", growing, 1)
    assert check(pipeline_session, tmp_path, text) == []
    advice = advice_for(pipeline_session, read_pipeline(text, "views.yaml"), tmp_path)
    assert [hint.line for hint in advice] == [4, 26]
    assert "did you mean 'spark.sql.shuffle.partitions'?" in advice[0].message
    assert "sink 'seen' keeps state forever, to drop duplicates of views.user" in advice[1].message


def test_topics_are_not_asked_for_when_offline(pipeline_session: "SparkSession", tmp_path: Path) -> None:
    from barnabas.pipelines.check import check_pipeline

    assert check_pipeline(pipeline_session, read_pipeline(VIEWS, "views.yaml"), tmp_path, None) == []
