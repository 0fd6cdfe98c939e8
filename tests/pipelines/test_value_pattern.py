"""Text that a regular expression takes apart: names of groups, mistakes in it, every reason to refuse a line."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.line_patterns import read_line_pattern
from barnabas.pipelines.spec import InvalidPipeline, read_pipeline
from barnabas.testing import Broker
from tests.pipelines.running import run_pipeline, write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("pattern", "expression", "groups"),
    [
        (r"(?<a>\d+) (?P<b_c>.*)", r"(\d+) (.*)", {"a": 1, "b_c": 2}),
        (r"(x)(?:y)(?=z)(?<!w)(?<a>z)", r"(x)(?:y)(?=z)(?<!w)(z)", {"a": 2}),
        (r"\((?<a>[(?<b>)]+)\)", r"\(([(?<b>)]+)\)", {"a": 1}),
        (r"[a-z&&[^(]](?<a>.)", r"[a-z&&[^(]](.)", {"a": 1}),
        (r"\Q(?<b>\E(?<a>.)", r"\Q(?<b>\E(.)", {"a": 1}),
        (r"(?<a>['\"]).*\k<a>1", r"(['\"]).*(?:\1)1", {"a": 1}),
        ("  (?<a>.)\n", "(.)", {"a": 1}),
    ],
)
def test_names_of_groups_become_their_numbers(pattern: str, expression: str, groups: dict[str, int]) -> None:
    read = read_line_pattern(pattern)
    assert read.expression == rf"\A(?:{expression})\z"
    assert read.groups == groups


def test_group_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="two groups 'a'"):
        read_line_pattern("(?<a>.)(?<a>.)")
    with pytest.raises(ValueError, match="no group before"):
        read_line_pattern(r"\k<a>(?<a>.)")


LINES = """\
name: lines
checkpoint: checkpoint
dead_letter: dead
sources:
  lines:
    topic: lines
    format: text
    value_pattern: '(?<at>\\S+) (?<day>\\S+) (?<n>\\S+)(?: (?<word_or_two>.*))?'
    schema: "n int NOT NULL, at timestamp, day date, word_or_two string"
    parse: {timestampFormat: "dd/MM/yyyy:HH:mm:ss", dateFormat: dd.MM.yyyy}
    metadata: offset
sinks:
  kept: {from: lines, topic: kept}
"""


@pytest.mark.parametrize(
    ("before", "after", "mistake"),
    [
        ("format: text", "format: csv", "8: 'value_pattern' of source 'lines' is only for format text"),
        ("    value_pattern:", "    x:", "9: 'schema' of source 'lines' is only for format json and csv; text needs a"),
        ("    schema:", "    x:", "5: source 'lines' has a 'value_pattern' and needs the key 'schema'"),
        ("dateFormat", "datFormat", "10: 'parse' of source 'lines' has no option 'datFormat'; did you mean"),
    ],
)
def test_keys_that_do_not_belong_together_are_mistakes(before: str, after: str, mistake: str) -> None:
    with pytest.raises(InvalidPipeline, match=re.escape(mistake)):
        read_pipeline(LINES.replace(before, after), "f")


@pytest.mark.parametrize(
    ("before", "after", "mistake"),
    [
        (r"(?<n>\S+)", r"(?<n>\S+", "8: source 'lines': the pattern is not a regular expression: Unclosed group"),
        ("(?<n>", "(?<m>", "8: source 'lines': the pattern has a group 'm', which is not a column of the schema"),
        (
            "day date",
            "day date, dy int",
            "9: source 'lines': the schema has a column 'dy', for which the pattern has no",
        ),
        ("n int", "n array<int>", "9: source 'lines': "),
    ],
)
def test_pattern_that_does_not_fit_is_found_by_check(
    pipeline_session: "SparkSession", tmp_path: Path, before: str, after: str, mistake: str
) -> None:
    from barnabas.pipelines.check import check_pipeline

    pipeline = read_pipeline(LINES.replace(before, after), "f")
    mistakes = check_pipeline(pipeline_session, pipeline, tmp_path, None)
    assert [f"{one.line}: {one.message}".startswith(mistake) for one in mistakes] == [True], mistakes


def test_lines_become_typed_columns_and_others_dead_letters(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    for topic in ("lines", "kept", "dead"):
        broker.create_topic(topic)
    bad = {
        b"nothing of the kind": "field 'n' cannot be read as int: the",
        b"one": "the value does not match the pattern",
        b"01/02/2024:10:00:00 01.02.2024 1 two\nlines": "the value does not match the pattern",
        b"2024-02-01 01.02.2024 1": "field 'at' cannot be read as timestamp: 2024-02-01",
        b"01/02/2024:10:00:00 32.02.2024 1": "field 'day' cannot be read as date: 32.02.2024",
        b"01/02/2024:10:00:00 01.02.2024 \xff": "the value is not UTF-8 text",
        b"": "the value does not match the pattern",
    }
    good = [b"01/02/2024:10:00:00 01.02.2024 1", "01/02/2024:10:00:00 01.02.2024 -2 für zwei".encode()]
    broker.append("lines", [good[0], *bad, None, good[1]])  # a tombstone is no bad record

    run_pipeline(pipeline_session, write_file(tmp_path, LINES, broker))

    start = '"at":"2024-02-01T10:00:00.000Z","day":"2024-02-01"'
    assert [(record.value or b"").decode() for record in broker.records("kept")] == [
        f'{{"n":1,{start}}}',
        f'{{"n":-2,{start},"word_or_two":"für zwei"}}',
    ]
    letters = broker.records("dead")
    assert {letter.value: dict(letter.headers)["barnabas.reason"] for letter in letters} == {
        value: reason.encode() for value, reason in bad.items()
    }
    assert len(letters) == len(bad)
