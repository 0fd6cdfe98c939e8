"""The log aggregation of examples/logs on a real Spark and broker, record by record against DuckDB.

DuckDB takes the lines apart by an expression of its own, counts errors by the watermark's rule, and is compared with
every row of the archive, every count and every dead letter.
"""

import json
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.testing import Broker
from examples.logs.generate import TOPIC, TOPICS, log_lines
from examples.producing import Record, produce
from tests.pipelines.example_files import place_example
from tests.pipelines.running import Kept, run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

LINES = 4_000
BATCHES = {"    watermark: 1 minute\n": "    watermark: 1 minute\n    records_max_per_batch: 1500\n"}
"""So that windows stay open from batch to batch."""

EXPECTED = """
CREATE TABLE lines (value VARCHAR, is_late BOOLEAN);
CREATE VIEW parts AS
    SELECT
        regexp_extract(value,
            '^([0-9]{4}-[^ ]+) (DEBUG|INFO|WARN|ERROR|FATAL) +([a-z][a-z0-9-]*)( \\[([0-9a-f]+)\\])? (.+)$',
            ['seen_at', 'level', 'service', 'bracket', 'request', 'message']) AS part,
        value, is_late
    FROM lines;
CREATE VIEW parsed AS
    SELECT
        try_cast(part.seen_at AS TIMESTAMPTZ) AS seen_at, part.level AS level, part.service AS service,
        nullif(part.request, '') AS request, part.message AS message,
        try_cast(regexp_extract(part.message, '([0-9]+) ms', 1) AS INTEGER) AS took_ms,
        value, is_late
    FROM parts WHERE part.level <> '' AND try_cast(part.seen_at AS TIMESTAMPTZ) IS NOT NULL;
CREATE VIEW errors AS
    SELECT time_bucket(INTERVAL 1 minute, seen_at) AS minute, service, count(*) AS errors,
        count(*) FILTER (level = 'FATAL') AS fatal, max_by(message, (seen_at, message)) AS latest
    FROM parsed WHERE level IN ('ERROR', 'FATAL') AND NOT is_late GROUP BY ALL;
"""


class Lines:
    """What went in, as DuckDB sees it."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute(EXPECTED)

    def add(self, records: list[Record], *, is_late: bool = False) -> None:
        texts = [text for record in records if (text := text_of(record.value)) is not None]
        self._connection.register("batch", pa.table({"value": texts}))
        self.query("INSERT INTO lines SELECT value, ? FROM batch", is_late)

    def query(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._connection.execute(text, list(values)).fetchall()]

    def watermark(self) -> datetime:
        ((found,),) = self.query("SELECT max(seen_at) - INTERVAL 1 minute FROM parsed")
        assert isinstance(found, datetime)
        return found

    def closed_counts(self) -> list[tuple[Any, ...]]:
        closed = "minute + INTERVAL 1 minute <= ?"
        return self.query(
            f"SELECT strftime(minute, '%Y-%m-%dT%H:%M:%S.000Z'), service, errors, fatal, latest FROM errors"
            f" WHERE {closed} ORDER BY ALL",
            self.watermark(),
        )

    def differences(self, directory: Path) -> list[tuple[Any, ...]]:
        """Rows that the archive lacks, and rows that it has too many, with how often."""
        wanted = "SELECT seen_at, level, service, request, message, took_ms, CAST(seen_at AS DATE) AS day FROM parsed"
        files = f"read_parquet('{directory}/data/logs/**/*.parquet', hive_partitioning = true)"
        found = f'SELECT "at", level, service, request, message, took_ms, "day" FROM {files}'
        lacking, excess = f"({wanted}) EXCEPT ALL ({found})", f"({found}) EXCEPT ALL ({wanted})"
        return [*self.query(lacking), *self.query(excess)]


def text_of(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def counted(broker: Broker) -> list[tuple[Any, ...]]:
    rows = []
    for record in broker.records("log-errors"):
        row = json.loads(record.value or b"")
        assert record.key == row["service"].encode()
        rows.append((row["minute"], row["service"], row["errors"], row["fatal"], row["latest"]))
    return sorted(rows)


def headers_of(record: Any) -> dict[str, str]:
    return {name.removeprefix("barnabas."): (value or b"").decode() for name, value in record.headers}


def reason_for(value: bytes | None) -> str:
    if value is None:
        return "a tombstone"  # which is no bad record
    if text_of(value) is None:
        return "the value is not UTF-8 text"
    if value.startswith(b"2024-13-45"):
        return "field 'at' cannot be read as timestamp: 2024-13-45T99:00:00Z"
    return "the value does not match the pattern"


def late_rows(kept: Kept) -> dict[str, int]:
    return {view.name: view.late_rows for view in kept.views}


def test_lines_are_archived_counted_and_dead_lettered_as_duckdb_says(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    records = list(islice(log_lines(1, late_share=0.0), LINES))
    produce(broker.bootstrap, TOPICS, iter(records), LINES)
    file = place_example("logs", tmp_path, broker, BATCHES)
    lines = Lines()
    lines.add(records)

    kept = run_pipeline(pipeline_session, file)

    assert lines.differences(tmp_path) == []
    assert counted(broker) == lines.closed_counts()
    assert len(counted(broker)) > 30
    assert late_rows(kept) == {"error-counts": 0, "archive": 0}
    _check_dead_letters(broker, lines)

    # What comes after its minute was closed is kept, and does not count; what is only older than the watermark does.
    watermark = lines.watermark()
    late = line(watermark.replace(minute=watermark.minute - 2))
    in_open_minute = line(watermark.replace(second=0, microsecond=0))
    ahead = line(watermark.replace(minute=watermark.minute + 20))
    broker.append(TOPIC, [late.value, in_open_minute.value, ahead.value])
    lines.add([late], is_late=True)
    lines.add([in_open_minute, ahead])

    kept = run_pipeline(pipeline_session, file)

    assert lines.differences(tmp_path) == []
    assert counted(broker) == lines.closed_counts()
    assert late_rows(kept) == {"error-counts": 1, "archive": 0}


def test_same_seed_gives_the_same_lines_with_every_kind_of_trouble() -> None:
    records = list(islice(log_lines(7), LINES))
    assert records == list(islice(log_lines(7), LINES))
    assert records != list(islice(log_lines(8), LINES))

    lines = Lines()
    lines.add(records)
    behind = "max(seen_at) OVER (ROWS UNBOUNDED PRECEDING) - seen_at"
    ((in_order, out_of_order, late),) = lines.query(
        "SELECT count(*) FILTER (behind < INTERVAL 1 second),"
        " count(*) FILTER (behind BETWEEN INTERVAL 1 second AND INTERVAL 20 second),"
        f" count(*) FILTER (behind > INTERVAL 5 minute) FROM (SELECT {behind} AS behind FROM parsed)"
    )
    assert in_order > out_of_order > LINES // 20 > late > 0
    assert {reason_for(record.value) for record in records} >= {"a tombstone", "the value is not UTF-8 text"}


def line(at: datetime) -> Record:
    text = f"{at.isoformat(timespec='milliseconds').replace('+00:00', 'Z')} ERROR payments card declined"
    return Record(TOPIC, b"payments", text.encode())


def _check_dead_letters(broker: Broker, lines: Lines) -> None:
    good = {value.encode() for (value,) in lines.query("SELECT value FROM parsed")}
    bad = [
        (record.key, record.value, reason_for(record.value), record.partition, record.offset)
        for record in broker.records(TOPIC)
        if record.value is not None and record.value not in good
    ]
    found = []
    for letter in broker.records("logs-dead"):
        headers = headers_of(letter)
        assert (headers["pipeline"], headers["source"], headers["topic"]) == ("logs", "lines", TOPIC)
        place = (int(headers["partition"]), int(headers["offset"]))
        found.append((letter.key, letter.value, headers["reason"], *place))
    assert sorted(found, key=lambda one: one[3:]) == sorted(bad, key=lambda one: one[3:])
    assert len(found) > 20
    assert len({reason for _, _, reason, *_ in found}) == 3
