"""The stream processing of examples/views on a real Spark and broker, record by record against DuckDB.

DuckDB joins the views with the last record of each user, and makes sessions by window functions over views in order of
time; both are compared with every row that the pipeline wrote.
"""

import json
from datetime import datetime, timedelta
from itertools import accumulate, islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.testing import Broker
from examples.producing import Record, produce
from examples.views.generate import TOPICS, USERS, VIEWS, shop_records
from tests.pipelines.example_files import place_example
from tests.pipelines.running import run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

RECORDS = 1_500
CHANGES = {
    # So that sessions stay open from batch to batch, and the second run sees the users of that time.
    "    watermark: 10 minutes\n": "    watermark: 10 minutes\n    records_max_per_batch: 800\n",
    "    refresh: 10 seconds\n": "    refresh: 1 ms\n",
}

EXPECTED = """
CREATE TABLE known (
    who VARCHAR, name VARCHAR, country VARCHAR, plan VARCHAR, page VARCHAR, seen_at TIMESTAMPTZ, is_late BOOLEAN
);
CREATE VIEW marked AS
    SELECT *, coalesce(seen_at - lag(seen_at) OVER by_time >= INTERVAL 30 minute, true) AS is_first
    FROM known WHERE NOT is_late WINDOW by_time AS (PARTITION BY who ORDER BY seen_at, page);
CREATE VIEW numbered AS
    SELECT *, sum(CAST(is_first AS INTEGER)) OVER (PARTITION BY who ORDER BY seen_at, page) AS number FROM marked;
CREATE VIEW sessions AS
    SELECT who, max_by(plan, (seen_at, page)) AS plan, count(*) AS views, min_by(page, (seen_at, page)) AS first_page,
        max_by(page, (seen_at, page)) AS last_page, min(seen_at) AS started, max(seen_at) AS ended
    FROM numbered GROUP BY who, number;
"""
SESSION = "who, plan, views, first_page, last_page, epoch_ms(started), epoch_ms(ended)"


class Shop:
    """What went in, as DuckDB sees it."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute(EXPECTED)
        self._users: dict[str, dict[str, str]] = {}

    def add(self, records: list[Record], late: list[Record] | None = None) -> None:
        """One run's input: its views see the users as they are after all of it."""
        for record in records:
            if record.topic == USERS:
                self._take_user(record)
        users = [{"who": who, **user} for who, user in self._users.items()]
        self._connection.register("users", pa.Table.from_pylist(users))
        for members, is_late in ((records, False), (late or [], True)):
            views = [view for one in members if one.topic == VIEWS and (view := view_of(one.value)) is not None]
            if views:
                self._connection.register("views", pa.Table.from_pylist(views))
                self.query(
                    'INSERT INTO known SELECT v."user", u.name, u.country, u.plan, v.page, v."at", ?'
                    ' FROM views v LEFT JOIN users u ON v."user" = u.who',
                    is_late,
                )

    def _take_user(self, record: Record) -> None:
        assert record.key is not None
        if record.value is None:
            self._users.pop(record.key.decode(), None)
        else:
            self._users[record.key.decode()] = json.loads(record.value)

    def query(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._connection.execute(text, list(values)).fetchall()]

    def watermark(self) -> datetime:
        ((found,),) = self.query("SELECT max(seen_at) - INTERVAL 10 minute FROM known")
        assert isinstance(found, datetime)
        return found

    def closed_sessions(self) -> list[tuple[Any, ...]]:
        closed = "ended + INTERVAL 30 minute <= ?"
        return self.query(f"SELECT {SESSION} FROM sessions WHERE {closed} ORDER BY ALL", self.watermark())

    def differences(self, directory: Path) -> list[tuple[Any, ...]]:
        """Rows that the table of views lacks, and rows that it has too many, with how often."""
        wanted = "SELECT who, name, country, plan, page, seen_at, CAST(seen_at AS DATE) FROM known"
        files = f"read_parquet('{directory}/data/views/**/*.parquet', hive_partitioning = true)"
        found = f'SELECT "user", name, country, plan, page, "at", "day" FROM {files}'
        lacking, excess = f"({wanted}) EXCEPT ALL ({found})", f"({found}) EXCEPT ALL ({wanted})"
        return [*self.query(lacking), *self.query(excess)]


def view_of(value: bytes | None) -> dict[str, str] | None:
    """A view, where it is one."""
    try:
        view = json.loads((value or b"").decode())
    except ValueError:
        return None
    is_view = isinstance(view, dict) and {"user", "page", "at"} <= set(view) and view["at"][:4] == "2024"
    return view if is_view else None


def topic_of_sessions(broker: Broker) -> list[tuple[Any, ...]]:
    rows = []
    for record in broker.records("sessions"):
        row = json.loads(record.value or b"")
        assert record.key == row["user"].encode()
        started_ms, ended_ms = (
            round(datetime.fromisoformat(row[name]).timestamp() * 1000) for name in ("started", "ended")
        )
        assert row["seconds"] == (ended_ms - started_ms) / 1000
        rows.append(
            (row["user"], row.get("plan"), row["views"], row["first_page"], row["last_page"], started_ms, ended_ms)
        )
    return rows


def by_text(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def view(user: str, page: str, at: datetime) -> Record:
    text = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Record(VIEWS, user.encode(), json.dumps({"user": user, "page": page, "at": text}).encode())


def test_views_are_joined_and_made_into_sessions_as_duckdb_says(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    records = list(islice(shop_records(1, late_share=0.0), RECORDS))
    produce(broker.bootstrap, TOPICS, iter(records), RECORDS)
    file = place_example("views", tmp_path, broker, CHANGES)
    shop = Shop()
    shop.add(records)

    kept = run_pipeline(pipeline_session, file)

    assert shop.differences(tmp_path) == []
    assert by_text(topic_of_sessions(broker)) == by_text(shop.closed_sessions())
    assert len(topic_of_sessions(broker)) > 100
    assert {view.name: view.late_rows for view in kept.views} == {"sessions": 0, "view-table": 0}
    _check_dead_letters(broker, records)

    # A late view is kept, and in no session; what comes later closes all sessions, with the users of now.
    watermark = shop.watermark()
    late = view("u001", "/help", watermark - timedelta(hours=1))
    more = [
        Record(USERS, b"u001", b'{"name": "Zoe 1", "country": "FR", "plan": "gold"}'),
        Record(USERS, b"u002", None),
        view("u001", "/cart", watermark + timedelta(minutes=11)),
        view("u002", "/cart", watermark + timedelta(minutes=11)),
        view("u001", "/", watermark + timedelta(hours=3)),
    ]
    produce(broker.bootstrap, TOPICS, iter([late, *more]), len(more) + 1)
    shop.add(more, late=[late])

    kept = run_pipeline(pipeline_session, file)

    assert shop.differences(tmp_path) == []
    assert by_text(topic_of_sessions(broker)) == by_text(shop.closed_sessions())
    ((still_open,),) = shop.query("SELECT count(*) - ? FROM sessions", len(shop.closed_sessions()))
    assert still_open == 1
    assert {view.name: view.late_rows for view in kept.views} == {"sessions": 1, "view-table": 0}


def _check_dead_letters(broker: Broker, records: list[Record]) -> None:
    wanted = [(one.partition, one.offset, one.value) for one in broker.records(VIEWS) if _is_bad(one.value)]
    found = []
    for letter in broker.records("views-dead"):
        headers = {name: (value or b"").decode() for name, value in letter.headers}
        found.append((int(headers["barnabas.partition"]), int(headers["barnabas.offset"]), letter.value))
    assert sorted(found, key=lambda one: one[:2]) == wanted
    assert len(wanted) == sum(one.topic == VIEWS and _is_bad(one.value) for one in records) > 5


def _is_bad(value: bytes | None) -> bool:
    """A tombstone is not."""
    return value is not None and view_of(value) is None


def test_same_seed_gives_the_same_shop_with_every_kind_of_trouble() -> None:
    records = list(islice(shop_records(7), 4_000))
    assert records == list(islice(shop_records(7), 4_000))
    assert records != list(islice(shop_records(8), 4_000))

    users = [record for record in records if record.topic == USERS]
    deleted = {record.key for record in users if record.value is None}
    assert deleted
    assert {record.key for record in users if record.value is not None} > deleted
    assert len(users) > 60
    times = [datetime.fromisoformat(view["at"]) for one in records if (view := view_of(one.value))]
    behind = [latest - at for at, latest in zip(times, accumulate(times, max), strict=True)]
    out_of_order = sum(timedelta(0) < one <= timedelta(minutes=3) for one in behind)
    late = sum(one > timedelta(minutes=50) for one in behind)
    assert out_of_order > 200 > late > 0
    assert sum(record.topic == VIEWS and view_of(record.value) is None for record in records) > 20


def test_sessions_do_not_depend_on_the_order_in_which_views_come() -> None:
    from examples.views.sessions import Session, merged

    random = Random(3)
    times = sorted(random.sample(range(1_000), 60))
    views = [Session(at, at, 1, f"p{at % 5}", f"p{at % 5}", None) for at in times]
    in_order = merged(views, gap_ms=20)
    assert len(in_order) > 3
    for _ in range(20):
        random.shuffle(views)
        sessions: list[Session] = []
        for start in range(0, len(views), 7):
            sessions = merged([*sessions, *views[start : start + 7]], gap_ms=20)
        assert sessions == in_order
