"""Which changes of a file an old checkpoint can bear, by what Spark's analyser says of both."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.nodes import Mistake
from barnabas.pipelines.spec import read_pipeline
from tests.support.kafka import PROJECT_DIRECTORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipelines.plans import Plan

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

EXAMPLES = PROJECT_DIRECTORY / "examples"
SHOP = """\
name: shop
checkpoint: checkpoint
sources:
  orders:
    topic: orders
    schema: "id bigint, item string, price double, amount double, at timestamp"
    event_time: at
    watermark: 10 seconds
  returns:
    topic: returns
    schema: "id bigint, reason string, cost double, at timestamp"
    event_time: at
    watermark: 10 seconds
  prices:
    topic: prices
    table: true
    schema: price double
    metadata: [key]
steps:
  kept:
    sql: SELECT * FROM orders WHERE amount > 0
  sales:
    sql: |
      SELECT window(at, '1 minute').start AS start, item, sum(price) AS price, sum(amount) AS amount
      FROM kept GROUP BY window(at, '1 minute'), item
  matched:
    sql: |
      SELECT o.id, o.item, r.reason FROM orders o JOIN returns r
      ON o.id = r.id AND r.at BETWEEN o.at AND o.at + INTERVAL 1 minute
  seen:
    sql: SELECT DISTINCT item, at FROM orders
  all_times:
    sql: SELECT at, item FROM orders UNION ALL SELECT at, reason FROM returns
sinks:
  sales: {from: sales, topic: sales}
  matched: {from: matched, topic: matched}
  seen: {from: seen, topic: seen}
  all_times: {from: all_times, parquet: table}
"""


def plan_of(session: "SparkSession", directory: Path, text: str) -> "Plan":
    """What a run of this file would remember."""
    from barnabas.pipelines.compile import Compiler
    from barnabas.pipelines.plans import Plan, query_plan
    from barnabas.pipelines.streams import EmptyStreams

    pipeline = read_pipeline(text, "shop.yaml")
    streams = EmptyStreams(session)
    try:
        compiler = Compiler(session, pipeline, directory, streams)
        return Plan(2, queries={sink.name: query_plan(pipeline, compiler.compile(sink)) for sink in pipeline.sinks})
    finally:
        streams.close()


BEGUN: "dict[str, Plan]" = {}
"""By the text of the file: Spark needs seconds to analyse it, and every test begins with one of three."""


def begin(session: "SparkSession", directory: Path, text: str = SHOP) -> None:
    """Leaves a checkpoint as a run of this file does, in which every query has begun."""
    from barnabas.pipelines.plans import write_plan

    checkpoint = directory / "checkpoint"
    if text not in BEGUN:
        BEGUN[text] = plan_of(session, directory, text)
    plan = BEGUN[text]
    write_plan(checkpoint, plan)
    for name in plan.queries:
        (checkpoint / name / "offsets").mkdir(parents=True)
        (checkpoint / name / "offsets" / "0").touch()


def check(session: "SparkSession", directory: Path, text: str) -> list[Mistake]:
    from barnabas.pipelines.check import check_pipeline

    return check_pipeline(session, read_pipeline(text, "shop.yaml"), directory, None)


def test_unchanged_file_goes_on(pipeline_session: "SparkSession", tmp_path: Path) -> None:
    begin(pipeline_session, tmp_path)
    assert check(pipeline_session, tmp_path, SHOP) == []


def reordered(text: str) -> str:
    """The same file with its sources in another order."""
    start, orders, returns, prices, steps = (
        text.index(part) for part in ("  orders:\n", "  orders:\n", "  returns:\n", "  prices:\n", "steps:\n")
    )
    return text[:start] + text[returns:prices] + text[prices:steps] + text[orders:returns] + text[steps:]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(SHOP.replace("amount > 0", "amount > 10"), id="filter below an aggregation"),
        pytest.param(SHOP.replace("sum(price) AS price", "round(sum(price), 2) AS sum"), id="what is made of a result"),
        pytest.param(SHOP.replace("watermark: 10 seconds", "watermark: 20 seconds"), id="how late records may be"),
        pytest.param(SHOP.replace("reason string, cost", "cause string, reason string, cost"), id="unused new column"),
        pytest.param(SHOP.replace("  kept:", "  good:").replace("FROM kept", "FROM good"), id="renamed step"),
        pytest.param(reordered(SHOP), id="order of the sources in the file"),
    ],
)
def test_change_that_means_the_same_state_goes_on(
    pipeline_session: "SparkSession", tmp_path: Path, changed: str
) -> None:
    assert changed != SHOP
    begin(pipeline_session, tmp_path)
    assert check(pipeline_session, tmp_path, changed) == []


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(
            SHOP.replace(
                "SELECT at, item FROM orders UNION ALL SELECT at, reason FROM returns",
                "SELECT at, reason AS item FROM returns UNION ALL SELECT at, item FROM orders",
            ),
            id="sides of a union",
        ),
        pytest.param(
            SHOP.replace(" UNION ALL SELECT at, reason FROM returns", ""), id="source that is not read any more"
        ),
    ],
)
def test_change_of_the_streams_goes_on_where_they_are_bound_by_name(
    pipeline_session: "SparkSession", tmp_path: Path, changed: str
) -> None:
    from barnabas.pipelines.compile import NAMES_STREAMS

    assert changed != SHOP
    begin(pipeline_session, tmp_path)
    found = [mistake.message for mistake in check(pipeline_session, tmp_path, changed)]
    if NAMES_STREAMS:
        assert found == []
    else:
        (message,) = found
        assert "sink 'all_times' cannot continue from its checkpoint: it read orders, then returns, and now" in message


@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        pytest.param(
            "window(at, '1 minute')",
            "window(at, '5 minutes')",
            22,
            "step 'sales': its state was kept to compute sum(orders.price), sum(orders.amount) grouped by"
            " window(orders.at, 1 minute), orders.item, and now it would compute sum(orders.price), sum(orders.amount)"
            " grouped by window(orders.at, 5 minutes), orders.item",
            id="length of a window",
        ),
        pytest.param("window(at, '1 minute')", "window(at, '1 minute', '30 seconds')", 22, "30 seconds)", id="slide"),
        pytest.param("window(at, '1 minute')", "session_window(at, '1 minute')",
            22, "now it would compute sum(orders.price), sum(orders.amount) grouped by"
            " session_window(orders.at, 1 minute), orders.item", id="kind of a window"),
        pytest.param("price double, amount", "price decimal(9,2), amount",
            22, "(of types struct<start:timestamp,end:timestamp>, string, decimal(9,2), double)", id="type of column"),
        pytest.param("SELECT * FROM orders WHERE", "SELECT at, item, price * 2 AS price, amount FROM orders WHERE",
            22, "sum((orders.price * cast(2 as double)))", id="argument in a step below"),
        pytest.param("sum(price) AS price, sum(amount) AS amount", "sum(amount) AS amount, sum(price) AS price",
            22, "compute sum(orders.amount), sum(orders.price)", id="order of aggregates of one type"),
        pytest.param("SELECT * FROM orders WHERE", "SELECT at, upper(item) AS item, price, amount FROM orders WHERE",
            22, "upper(orders.item)", id="key"),
        pytest.param("o.id, o.item, r.reason FROM",
            "o.id, r.reason, 'x' AS item FROM", 36, "rows of", id="rows of a join"),
        pytest.param("INTERVAL 1 minute", "INTERVAL 2 minutes", 26, "join streams", id="condition of a join"),
        pytest.param("DISTINCT item, at", "DISTINCT at, item",
            30, "drop duplicates of orders.at, orders.item", id="distinct"),
        pytest.param("    topic: returns\n", "    topic: refunds\n",
            9, "source 'returns' read returns and now reads refunds", id="topic"),
        pytest.param("{from: seen, topic: seen}", "{from: seen, topic: seen, mode: update}",
            37, "its mode was append", id="mode"),
    ],
)  # fmt: skip
def test_change_that_means_other_state_is_refused_in_the_words_of_the_file(
    pipeline_session: "SparkSession", tmp_path: Path, before: str, after: str, line: int, message: str
) -> None:
    begin(pipeline_session, tmp_path)
    changed = SHOP.replace(before, after)
    assert changed != SHOP
    found = check(pipeline_session, tmp_path, changed)
    assert [mistake for mistake in found if mistake.line == line and message in mistake.message], found
    assert not any("#" in mistake.message for mistake in found), "ids of Spark's are not for people"


def test_changed_window_of_the_shipped_metrics_example_is_refused(
    pipeline_session: "SparkSession", tmp_path: Path
) -> None:
    text = (EXAMPLES / "metrics" / "pipeline.yaml").read_text(encoding="utf-8")
    begin(pipeline_session, tmp_path, text)
    assert check(pipeline_session, tmp_path, text) == []
    rules = text.replace("80.0D, 95.0D", "70.0D, 90.0D")
    assert check(pipeline_session, tmp_path, rules) == [], "rules have no state"
    messages = [one.message for one in check(pipeline_session, tmp_path, text.replace("'5 seconds'", "'50 seconds'"))]
    assert messages
    assert all("now it would compute" in one and "window(samples.at, 50 seconds)" in one for one in messages), messages


TWICE = """\
name: twice
checkpoint: checkpoint
sources:
  events:
    topic: events
    schema: "id bigint, kind string, at timestamp"
    event_time: at
    watermark: 10 seconds
steps:
  shown: {sql: "SELECT id, at FROM events WHERE kind = 'shown'"}
  clicked: {sql: "SELECT id, at FROM events WHERE kind = 'clicked'"}
  both: {sql: "SELECT s.id AS one, c.id AS two FROM shown s JOIN clicked c ON s.id = c.id AND s.at = c.at"}
  all: {sql: "SELECT id FROM shown UNION ALL SELECT id FROM clicked"}
sinks:
  both: {from: both, topic: both}
  all: {from: all, topic: all}
"""


@pytest.mark.parametrize(
    ("before", "after", "sinks"),
    [
        pytest.param("FROM shown s JOIN clicked c ON", "FROM clicked c JOIN shown s ON",
            ["both"], id="sides of a join"),
        pytest.param("FROM shown UNION ALL SELECT id FROM clicked", "FROM clicked UNION ALL SELECT id FROM shown",
            ["all"], id="sides of a union"),
        pytest.param("kind = 'clicked'", "kind IN ('clicked', 'bought')", [], id="filter of one side"),
        pytest.param("id FROM shown UNION ALL SELECT id FROM", "id, at FROM shown UNION ALL SELECT id, at FROM",
            [], id="column of both sides"),
    ],
)  # fmt: skip
def test_readings_of_one_source_that_change_places_are_refused(
    pipeline_session: "SparkSession", tmp_path: Path, before: str, after: str, sinks: list[str]
) -> None:
    """Spark tells them apart by their order alone: each would go on at the other's offsets, and with its rows."""
    begin(pipeline_session, tmp_path, TWICE)
    assert check(pipeline_session, tmp_path, TWICE) == []
    assert before in TWICE
    found = check(pipeline_session, tmp_path, TWICE.replace(before, after))
    assert [(mistake.line, mistake.message[: len(sink) + 7]) for mistake, sink in zip(found, sinks, strict=True)] == [
        (4, f"sink '{sink}'") for sink in sinks
    ]
    assert all("it reads source 'events' more than once" in mistake.message for mistake in found)


def test_renamed_source_is_refused_because_it_would_be_read_again(
    pipeline_session: "SparkSession", tmp_path: Path
) -> None:
    from barnabas.pipelines.compile import NAMES_STREAMS

    if not NAMES_STREAMS:
        pytest.skip("this version of Spark binds sources by their order: a name may change")
    begin(pipeline_session, tmp_path)
    changed = (
        SHOP.replace("  returns:\n", "  refunds:\n")
        .replace(" returns", " refunds")
        .replace("topic: refunds", "topic: returns")
    )
    messages = [mistake.message for mistake in check(pipeline_session, tmp_path, changed)]
    assert any("source 'returns' is now called 'refunds'" in message for message in messages), messages
    assert any("another 'parquet' too, because all rows are then written again" in message for message in messages)


def test_damaged_plan_is_said_with_its_place(pipeline_session: "SparkSession", tmp_path: Path) -> None:
    begin(pipeline_session, tmp_path)
    for content in ("{", "[]", '{"queries": {"sales": 1}, "shuffle_partitions": 2}'):
        (tmp_path / "checkpoint" / "plan.json").write_text(content)
        found = check(pipeline_session, tmp_path, SHOP)
        assert [mistake.line for mistake in found] == [2] * len(found), found
        assert all("plan.json is damaged" in mistake.message for mistake in found)


def test_plan_of_another_spark_is_compared_by_its_operators(pipeline_session: "SparkSession", tmp_path: Path) -> None:
    begin(pipeline_session, tmp_path)
    path = tmp_path / "checkpoint" / "plan.json"
    path.write_text(path.read_text().replace('"spark": "', '"spark": "0.').replace("window(", "fenster("))
    assert check(pipeline_session, tmp_path, SHOP) == []
    changed = SHOP.replace("SELECT DISTINCT item, at", "SELECT item, at")
    assert any("kept state for Distinct, and now" in one.message for one in check(pipeline_session, tmp_path, changed))


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM (SELECT 1 AS one) AS s, Orders", ["Orders"]),
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders JOIN a USING (k)", ["orders", "a"]),
        ("WITH x AS (SELECT 1) SELECT * FROM x", []),
        ("SELECT * FROM a WHERE k IN (SELECT k FROM b WHERE EXISTS (SELECT 1 FROM c)) AND d = (SELECT max(e) FROM f)",
         ["a", "b", "c", "f"]),
        ("SELECT 'from b' AS b, `c` FROM a -- from d", ["a"]),
        ("FROM a |> JOIN b USING (k) |> SELECT k;", ["a", "b"]),
    ],
)  # fmt: skip
def test_relations_are_those_that_the_query_reads(pipeline_session: "SparkSession", sql: str, names: list[str]) -> None:
    from barnabas.pipelines.relations import query_relations

    assert query_relations(pipeline_session, sql) == names


LETTERS = """\
name: letters
checkpoint: checkpoint
dead_letter: dead
sources:
  orders: {topic: orders, schema: n bigint}
  other: {topic: other, schema: n bigint}
steps:
  odd:
    sql: |
      WITH orders AS (SELECT n FROM other) SELECT n FROM orders -- from orders
  unused:
    sql: WITH more AS (SELECT n FROM orders) SELECT n FROM other
  first_of: {python: "tests.pipelines.steps:first_of", inputs: [other, orders]}
  even:
    sql: SELECT * FROM (SELECT n AS m FROM other) AS o, orders WHERE o.m = orders.n
sinks:
  first: {from: odd, console: true}
  with_unused: {from: unused, console: true}
  with_other: {from: first_of, console: true}
  second: {from: even, console: true, mode: append}
  third: {from: orders, console: true}
"""


def test_dead_letters_belong_to_the_first_sink_that_reads_the_source(
    pipeline_session: "SparkSession", tmp_path: Path
) -> None:
    from barnabas.pipelines.compile import Compiler
    from barnabas.pipelines.streams import EmptyStreams

    pipeline = read_pipeline(LETTERS, "letters.yaml")
    streams = EmptyStreams(pipeline_session)
    compiler = Compiler(pipeline_session, pipeline, tmp_path, streams)
    assert [compiler.dead_letter_owner(source) for source in pipeline.sources] == ["second", "first"]
    read = [[use.source for use in compiler.compile(sink).streams] for sink in pipeline.sinks]
    assert read == [["other"], ["other"], ["other"], ["other", "orders"], ["orders"]]
    streams.close()
