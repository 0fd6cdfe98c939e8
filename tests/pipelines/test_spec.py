"""The pipeline's file: what it becomes, and that every mistake is told with its line."""

import pytest

from barnabas.pipelines.nodes import Mistake
from barnabas.pipelines.spec import InvalidPipeline, Pipeline, read_pipeline
from barnabas.pipelines.sql_names import names_in_sql
from tests.pipelines.samples import VIEWS


def mistakes_of(text: str) -> list[Mistake]:
    with pytest.raises(InvalidPipeline) as refused:
        read_pipeline(text, "views.yaml")
    return refused.value.mistakes


def only_mistake(text: str) -> Mistake:
    (mistake,) = mistakes_of(text)
    return mistake


def read(text: str = VIEWS) -> Pipeline:
    return read_pipeline(text, "views.yaml")


def test_file_without_mistakes_becomes_sources_steps_and_sinks() -> None:
    pipeline = read()
    views, users = pipeline.sources
    assert (views.topics, views.watermark_ms, views.on_error) == (("views",), 10_000, "dead_letter")
    assert (users.is_table, users.refresh_ms, users.size_bytes_max, users.on_error) == (True, 100, 256 << 20, "drop")
    assert [step.inputs for step in pipeline.steps] == [("views", "users"), ("named",)]
    counts, archive = pipeline.sinks
    assert (counts.kind, counts.target, counts.key, counts.mode) == ("topic", "counts", "page", "append")
    assert (archive.kind, archive.partition_by, archive.compact_files) == ("parquet", ("page",), 32)
    assert pipeline.query_name(counts) == "views.counts"


def test_needed_for_sink_lists_each_after_what_it_needs() -> None:
    pipeline = read()
    assert pipeline.needed_for(pipeline.sinks[0]) == ["views", "users", "named", "pages"]


def test_error_message_names_file_and_line() -> None:
    with pytest.raises(InvalidPipeline, match=r"(?m)^views\.yaml:6: .*did you mean 'topic'\?"):
        read(VIEWS.replace("    topic: views\n", "    topik: views\n"))


@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        ("name: views", "title: views", 1, "pipeline has no key 'title'"),
        ("watermark: 10 seconds", "watermark: soon", 9, "must be a duration"),
        ("watermark: 10 seconds", "watermrak: 10 seconds", 9, "did you mean 'watermark'?"),
        ("    event_time: at\n", "", 8, "needs the key 'event_time'"),
        ("table: true", "table: perhaps", 12, "must be true or false"),
        ("    schema: name string\n", "", 10, "needs the key 'schema'"),
        ("metadata: [key]", "metadata: [kye]", 14, "did you mean 'key'?"),
        ("    refresh: 100 ms", "    starting: latest", 15, "not for tables"),
        ("from: pages", "from: page", 27, "did you mean 'pages'?"),
        ("    from: pages\n", "    from: users\n", 27, "is not a stream"),
        ("    parquet: table\n", "    parquet: table\n    mode: update\n", 33, "cannot be written in mode update"),
        ("    parquet: table\n", "    parquet: table\n    console: true\n", 33, "give only one"),
        ("    parquet: table\n", "    parquet: table\n    key: page\n", 33, "only for topic sinks"),
        ("  named:\n    sql: |", "  users:\n    sql: |", 17, "has the name of a source"),
        ("  views:\n", "  vi-ews:\n", 5, "cannot be the name of a source"),
        ("sources:\n", "spark: {spark.sql.shuffle.partitions: many}\nsources:\n", 4, "must be a whole number"),
    ],
)
def test_mistake_in_file_is_told_with_its_line(before: str, after: str, line: int, message: str) -> None:
    assert before in VIEWS
    found = mistakes_of(VIEWS.replace(before, after, 1))
    assert [mistake for mistake in found if mistake.line == line and message in mistake.message], found


def test_several_mistakes_are_told_at_once() -> None:
    text = VIEWS.replace("topic: users", "topc: users").replace("from: pages", "from: page")
    assert [mistake.line for mistake in mistakes_of(text)] == [10, 10, 11, 27]


def test_key_given_twice_is_refused() -> None:
    assert "twice" in only_mistake(VIEWS + "    partition_by: user\n").message


def test_text_that_is_no_yaml_is_refused_with_its_line() -> None:
    mistake = only_mistake("name: views\nsources: [\n")
    assert mistake.line == 3
    assert "not YAML" in mistake.message


@pytest.mark.parametrize("text", ["", "just a text", "- a\n- list\n"])
def test_document_that_is_no_mapping_is_refused(text: str) -> None:
    assert mistakes_of(text)


def test_words_that_yaml_takes_for_other_types_stay_texts() -> None:
    pipeline = read(VIEWS.replace("topic: counts", "topic: no").replace("topic: views", "topic: 123"))
    assert (pipeline.sinks[0].target, pipeline.sources[0].topics) == ("no", ("123",))


def test_stateful_step_needs_key_schema_and_one_input() -> None:
    text = VIEWS.replace("  pages:\n", "  kept:\n    stateful: sessions:Keeper\n  pages:\n")
    messages = [mistake.message for mistake in mistakes_of(text)]
    assert [message.rpartition(" ")[2] for message in messages] == ["'key'", "'schema'", "'inputs'"]


def test_python_step_with_bad_reference_or_later_input_is_refused() -> None:
    text = VIEWS.replace("  named:\n", "  early:\n    python: no-module\n    inputs: [pages, veiws]\n  named:\n")
    messages = [mistake.message for mistake in mistakes_of(text)]
    assert "package.module:name" in messages[0]
    assert any("it comes later in the file" in message for message in messages)
    assert any("did you mean 'views'?" in message for message in messages)


def test_dead_letter_without_topic_is_refused() -> None:
    text = VIEWS.replace("dead_letter: dead\n", "").replace(
        "    topic: views\n", "    topic: views\n    on_error: dead_letter\n"
    )
    assert "name it with 'dead_letter'" in only_mistake(text).message


def test_source_without_dead_letter_topic_fails_on_errors() -> None:
    assert read(VIEWS.replace("dead_letter: dead\n", "")).sources[0].on_error == "fail"


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT * FROM a", ["a"]),
        ("select x from A join `b` on a.x = b.x", ["a", "b"]),
        ("SELECT 'from c' AS b -- from c\nFROM /* c */ a", ["a"]),
        ("WITH t AS (SELECT * FROM a) SELECT * FROM t, b", ["a", "b"]),
        ("SELECT a FROM c WHERE b IN (SELECT x FROM b)", ["c", "b"]),
        ("SELECT * FROM (a JOIN b)", ["a", "b"]),
        ("SELECT b, c FROM a GROUP BY b, c", ["a"]),
    ],
)
def test_names_in_sql_are_those_that_are_read(sql: str, names: list[str]) -> None:
    assert names_in_sql(sql, ["a", "b", "c"]) == names
