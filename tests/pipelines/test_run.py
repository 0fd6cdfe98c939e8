"""Pipelines on a real Spark and a real broker, checked record by record against DuckDB over the same input."""

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.testing import Broker
from tests.pipelines.running import Kept, run_pipeline, write_file
from tests.pipelines.samples import VIEWS
from tests.spark.test_callbacks import kill_callback_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

BAD = [b"{oops", b'{"user": "u1", "page": "p", "at": "never"}', b'{"page": "p0", "at": "2024-05-01T10:00:00Z"}']
TOMBSTONES: list[bytes | None] = [None]


def view(number: int) -> dict[str, str]:
    minute, second = divmod(number, 60)
    return {"user": f"u{number % 3}", "page": f"p{number % 5}", "at": f"2024-05-01T10:{minute:02d}:{second:02d}Z"}


def encoded(rows: list[dict[str, str]]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def make_topics(broker: Broker) -> None:
    broker.create_topic("views", 2)
    broker.create_topic("users", 1, {"cleanup.policy": "compact"})
    broker.create_topic("counts")
    broker.create_topic("dead")


def archived(directory: Path) -> list[tuple[str, str | None, str, str]]:
    with duckdb.connect() as connection:
        connection.sql("SET TimeZone = 'UTC'")
        files = f"read_parquet('{directory}/table/**/*.parquet', hive_partitioning = true)"
        rows = connection.sql(f'SELECT "user", name, page, CAST("at" AS VARCHAR) FROM {files} ORDER BY "at", "user"')
        return [tuple(row) for row in rows.fetchall()]


def expected_counts(views: list[dict[str, str]], before: str) -> set[tuple[str, str, int]]:
    """Windows that the watermark has closed, counted by DuckDB."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE views (page VARCHAR, seen_at TIMESTAMP)")
        connection.executemany(
            "INSERT INTO views VALUES (?, ?)", [(one["page"], one["at"].rstrip("Z")) for one in views]
        )
        rows = connection.execute(
            "WITH started AS (SELECT time_bucket(INTERVAL 1 minute, seen_at) AS start, page FROM views)"
            " SELECT strftime(start, '%Y-%m-%dT%H:%M:%S.000Z'), page, count(*) FROM started"
            " WHERE start + INTERVAL 1 minute <= ? GROUP BY ALL",
            [before],
        )
        return {tuple(row) for row in rows.fetchall()}


def counted(broker: Broker) -> list[tuple[str, str, int]]:
    found = []
    for record in broker.records("counts"):
        row: dict[str, Any] = json.loads(record.value or b"")
        assert record.key == row["page"].encode()
        found.append((row["start"], row["page"], row["n"]))
    return found


def test_pipeline_goes_on_where_it_was_with_counts_archive_and_dead_letters(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    make_topics(broker)
    broker.append("users", [b'{"name": "Ann"}'], key=b"u1")
    broker.append("users", [b'{"name": "Bob"}'], key=b"u2")
    broker.append("users", [None], key=b"u2")
    views = [view(number) for number in range(600)]
    broker.append("views", encoded(views[:300]))
    broker.append("views", [*encoded(views[300:600]), *BAD, *TOMBSTONES], partition=1)
    file = write_file(tmp_path, VIEWS, broker)

    kept = run_pipeline(pipeline_session, file)

    assert len(counted(broker)) == len(set(counted(broker)))
    assert set(counted(broker)) == expected_counts(views, "2024-05-01 10:09:49")
    names = {"u0": None, "u1": "Ann", "u2": None}
    assert archived(tmp_path) == [
        (one["user"], names[one["user"]], one["page"], one["at"].replace("T", " ").replace("Z", "+00")) for one in views
    ]
    assert [view.state for view in kept.views] == ["done", "done"]
    assert {view.name: (view.lag, view.bad_rows) for view in kept.views} == {"counts": (0, 3), "archive": (0, 3)}
    _check_dead_letters(broker)
    _check_groups(broker, {0: 300, 1: 304})

    # The table and the stream go on; the second run sees only what is new, and the table as it is now.
    broker.append("users", [b'{"name": "Cid"}'], key=b"u0")
    more = [view(number) for number in range(600, 720)]
    broker.append("views", encoded(more))
    run_pipeline(pipeline_session, file)

    assert len(counted(broker)) == len(set(counted(broker)))
    assert set(counted(broker)) == expected_counts([*views, *more], "2024-05-01 10:11:49")
    assert [name for user, name, _, _ in archived(tmp_path)[600:] if user == "u0"] == ["Cid"] * 40
    assert len(archived(tmp_path)) == 720
    assert pipeline_session.read.parquet(str(tmp_path / "table")).count() == 720
    assert len(broker.records("dead")) == len(BAD)
    _check_groups(broker, {0: 420, 1: 304})


def _check_dead_letters(broker: Broker) -> None:
    letters = broker.records("dead")
    assert [letter.value for letter in letters] == BAD
    headers = [{name: (value or b"").decode() for name, value in letter.headers} for letter in letters]
    assert [one["barnabas.offset"] for one in headers] == ["300", "301", "302"]
    assert {(one["barnabas.topic"], one["barnabas.partition"], one["barnabas.source"]) for one in headers} == {
        ("views", "1", "views")
    }
    reasons = [one["barnabas.reason"] for one in headers]
    assert reasons[0].startswith("the value is not JSON")
    assert reasons[1] == "field 'at' cannot be read as timestamp: \"never\""
    assert reasons[2] == "field 'user' is missing"


def _check_groups(broker: Broker, ends: dict[int, int]) -> None:
    """Lag as every tool sees it."""
    with BlockingClient(broker.bootstrap) as client:
        for group in ("views.counts", "views.archive"):
            committed = client.committed_offsets(group)
            assert {one: offset.offset for one, offset in committed.items()} == {
                TopicPartition("views", index): end for index, end in ends.items()
            }


def test_changed_stateful_step_is_refused_and_stateless_change_goes_on(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    from barnabas.pipelines.plans import read_plan
    from barnabas.pipelines.rules import SHUFFLE_PARTITIONS
    from barnabas.pipelines.spec import InvalidPipeline

    make_topics(broker)
    broker.append("views", encoded([view(number) for number in range(20)]))
    run_pipeline(pipeline_session, write_file(tmp_path, VIEWS, broker))

    changed = VIEWS.replace("count(*) AS n", "sum(1) AS n")
    with pytest.raises(
        InvalidPipeline,
        match=r"pipeline\.yaml:22: sink 'counts' cannot continue from its checkpoint: step 'pages': .*count",
    ):
        run_pipeline(pipeline_session, write_file(tmp_path, changed, broker))
    other_topic = VIEWS.replace("    topic: views\n", "    topic: counts\n")
    with pytest.raises(InvalidPipeline, match="source 'views' read views and now reads counts"):
        run_pipeline(pipeline_session, write_file(tmp_path, other_topic, broker))

    pipeline_session.conf.set(SHUFFLE_PARTITIONS, "3")
    broker.append("views", encoded([view(number) for number in range(20, 30)]))
    stateless = VIEWS.replace("SELECT v.user, u.name,", "SELECT upper(v.user) AS user, u.name,")
    run_pipeline(pipeline_session, write_file(tmp_path, stateless, broker))
    assert {user for user, *_ in archived(tmp_path)} == {"u0", "u1", "u2", "U0", "U1", "U2"}
    assert pipeline_session.conf.get(SHUFFLE_PARTITIONS) == "2"
    plan = read_plan(tmp_path / "checkpoint")
    assert plan is not None
    assert plan.shuffle_partitions == 2


SHOWN = """\
name: shown
checkpoint: checkpoint
sources:
  words:
    topic: words
    format: text
    metadata: [key, offset]
sinks:
  screen:
    from: words
    console: true
    rows: 1
  copies:
    from: words
    topic: copies
    format: text
    key: _key
    headers: {origin: "concat('words@', _offset)"}
    mode: update
"""


def test_running_pipeline_stops_after_its_batch_and_survives_broker_and_callback_thread(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("words")
    broker.create_topic("copies")
    broker.append("words", [b"one", b"two"], key=b"k")
    file = write_file(tmp_path, SHOWN, broker)
    stop, kept = threading.Event(), Kept()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            run_pipeline(pipeline_session, file, is_once=False, stop=stop, kept=kept)
        except BaseException as error:  # noqa: BLE001 - the thread of the test raises it
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert kept.has_progress.wait(240), (failures, kept.told)
        broker.kill()
        broker.start()
        broker.append("words", [b"three"], key=b"k")
        broker.records("copies", 3, timeout_seconds=240)
        kill_callback_thread(pipeline_session)
        broker.append("words", [b"four"], key=b"k")
        broker.records("copies", 4, timeout_seconds=240)
    finally:
        stop.set()
        thread.join(240)
    assert not failures
    copies = broker.records("copies")
    assert {copy.value for copy in copies} == {b"one", b"two", b"three", b"four"}
    assert dict(copies[0].headers) == {"origin": b"words@0"}
    assert ["one", "k", "0"] in [row for _, _, _, rows, _ in kept.rows for row in rows]
    assert all(len(rows) == min(total, 1) for _, _, _, rows, total in kept.rows)
    assert sum(total for *_, total in kept.rows) >= 4
    assert [view.state for view in kept.views] == ["done", "done"]
    with BlockingClient(broker.bootstrap) as client:
        committed = client.committed_offsets("shown.copies")
    assert {one.offset for one in committed.values()} == {4}


STRICT = """\
name: strict
checkpoint: checkpoint
sources:
  numbers: {topic: numbers, schema: n bigint}
sinks:
  kept: {from: numbers, parquet: table}
"""


def test_failing_query_says_why_and_starts_again_with_longer_pauses(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    from barnabas.pipelines.run import QueryFailed

    broker.create_topic("numbers")
    broker.append("numbers", [b'{"n": 1}', b'{"n": "two"}'])
    file = write_file(tmp_path, STRICT, broker)
    stop, kept = threading.Event(), Kept()

    def tell(text: str) -> None:
        kept.told.append(text)
        if len(kept.told) == 2:
            stop.set()

    kept.tell = tell  # type: ignore[method-assign]
    run_pipeline(pipeline_session, file, is_once=False, stop=stop, kept=kept)
    reason = (
        "query strict.kept failed: sink 'kept' (line 7): source 'numbers': the value does not fit the schema (json);"
        " the record is numbers-0 at offset 1; see 'on_error' and 'dead_letter'"
    )
    assert kept.told == [f"{reason}; it restarts in {seconds} s" for seconds in (1, 2)]
    with pytest.raises(QueryFailed, match="the record is numbers-0 at offset 1"):
        run_pipeline(pipeline_session, file)
    assert not any((tmp_path / "table").glob("*.parquet"))


CASTS = """\
name: casts
checkpoint: checkpoint
sources:
  words: {topic: words, format: text}
steps:
  numbers:
    sql: |
      SELECT
        CAST(value AS int) AS n
      FROM words
sinks:
  kept: {from: numbers, parquet: table}
"""


def test_error_in_sql_at_run_time_names_sink_step_and_line(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    from barnabas.pipelines.run import QueryFailed

    pipeline_session.conf.set("spark.sql.ansi.enabled", "true")
    broker.create_topic("words")
    broker.append("words", [b"many"])
    with pytest.raises(QueryFailed, match=r"sink 'kept', step 'numbers' \(line 10\): .*'many'"):
        run_pipeline(pipeline_session, write_file(tmp_path, CASTS, broker))


UNION = """\
name: union
checkpoint: checkpoint
sources:
  left: {topic: left, format: text}
  right_side: {topic: right, format: text}
steps:
  both:
    sql: SELECT value FROM left UNION ALL SELECT value FROM right_side
sinks:
  kept: {from: both, parquet: table}
"""


def test_swapped_sides_and_reordered_sources_go_on_where_each_topic_was(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """Or are refused, where Spark binds sources by their order."""
    from barnabas.pipelines.compile import NAMES_STREAMS
    from barnabas.pipelines.spec import InvalidPipeline

    for topic, count in (("left", 10), ("right", 30)):
        broker.create_topic(topic)
        broker.append(topic, [f"{topic}-{number}".encode() for number in range(count)])
    run_pipeline(pipeline_session, write_file(tmp_path, UNION, broker))
    swapped = (
        UNION.replace("FROM left", "FROM it")
        .replace("FROM right_side", "FROM left")
        .replace("FROM it", "FROM right_side")
        .replace("  left: {topic: left, format: text}\n", "")
        .replace("steps:", "  left: {topic: left, format: text}\nsteps:")
    )
    assert swapped.index("right_side:") < swapped.index("left:")
    for topic in ("left", "right"):
        broker.append(topic, [f"{topic}-{number}".encode() for number in range(100, 120)])
    if NAMES_STREAMS:
        run_pipeline(pipeline_session, write_file(tmp_path, swapped, broker))
    else:
        with pytest.raises(InvalidPipeline, match="it read left, then right, and now reads right, then left"):
            run_pipeline(pipeline_session, write_file(tmp_path, swapped, broker))
        run_pipeline(pipeline_session, write_file(tmp_path, UNION, broker))
    rows = duckdb.sql(f"SELECT value FROM read_parquet('{tmp_path}/table/*.parquet')").fetchall()
    expected = [record.value.decode() for topic in ("left", "right") for record in broker.records(topic)]
    assert sorted(value for (value,) in rows) == sorted(expected)
    assert len(expected) == 80
