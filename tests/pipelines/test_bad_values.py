"""Values that look good and are not, tombstones, dead letters that are too large: one pipeline on a real Spark."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.testing import Broker
from tests.pipelines.running import run_pipeline, write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")

BAD_VALUES = """\
name: bad
checkpoint: checkpoint
dead_letter: dead
sources:
  numbers: {topic: numbers, schema: "n bigint NOT NULL, inner struct<a: array<int>>, text string"}
  words: {topic: words, format: text, metadata: [key]}
  people: {topic: people, schema: name string, metadata: [key], tombstones: delete}
  raw_keys: {topic: words, format: raw, metadata: [key], key_format: raw}
sinks:
  numbers: {from: numbers, parquet: numbers}
  words: {from: words, parquet: words}
  people: {from: people, topic: copies, key: _key}
  raw_keys: {from: raw_keys, parquet: raw}
"""
GOOD = [
    b'{"n": 1}',
    b' {"n": 2, "inner": {"a": [1, 2]}, "text": "}{"} \n',
    b"{'n': 3, 'inner': {'a': [3]}}",  # Spark's parser takes single quotes
]
BAD = [
    b'{"n": 4}{"n": 5}',
    b'{"n": 4}, {"n": 5}',
    b'{"n": 4}]',
    b'{"n": 4}}',
    b'{"n": 4, "inner": {"a": []}} {"n": 5}',
    b'[{"n": 4}, {"n": 5}]',
    b'{"n": 4, "text": "\xff"}',
]
HUGE = b'{"n": "' + b"x" * 100_000 + b'"}'


def reasons(broker: Broker) -> dict[bytes, str]:
    return {
        letter.value or b"": (dict(letter.headers)["barnabas.reason"] or b"").decode()
        for letter in broker.records("dead")
    }


def test_bad_values_become_dead_letters_and_tombstones_do_not(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    for topic in ("numbers", "words", "people", "copies"):
        broker.create_topic(topic)
    broker.create_topic("dead", 1, {"max.message.bytes": "4000"})
    broker.append("numbers", [*GOOD, None, *BAD, HUGE])
    broker.append("words", [b"caf\xc3\xa9", b"\xe9", None], key=b"k")
    broker.append("words", [b"word"], key=b"\xff")
    broker.append("people", [b'{"name": "Ann"}', None], key=b"ann")

    run_pipeline(pipeline_session, write_file(tmp_path, BAD_VALUES, broker))

    numbers = duckdb.sql(f'SELECT n, text FROM read_parquet("{tmp_path}/numbers/*.parquet") ORDER BY n').fetchall()
    assert numbers == [(1, None), (2, "}{"), (3, None)]
    words = duckdb.sql(f'SELECT value, _key FROM read_parquet("{tmp_path}/words/*.parquet") ORDER BY value').fetchall()
    assert words == [("café", "k"), (None, "k")]
    assert [(copy.key, copy.value) for copy in broker.records("copies")] == [
        (b"ann", b'{"name":"Ann"}'),
        (b"ann", None),
    ]
    raw = duckdb.sql(f'SELECT value, _key FROM read_parquet("{tmp_path}/raw/*.parquet")').fetchall()
    assert (b"\xe9", b"k") in raw
    assert (b"word", b"\xff") in raw
    told = reasons(broker)
    cut = [value for value in told if value.startswith(b'{"n": "xxx')]
    assert len(cut) == 1
    assert 1000 < len(cut[0]) < 4000
    assert told.pop(cut[0]).startswith("field 'n' cannot be read as bigint")
    assert set(told) == {*BAD, b"\xe9", b"word"}
    assert told[b"\xe9"] == "the value is not UTF-8 text"
    assert told[b"word"] == "the key is not UTF-8 text; 'key_format: raw' takes any bytes"
    assert "Extra data" in told[BAD[0]]
    (letter,) = [letter for letter in broker.records("dead") if letter.value == cut[0]]
    assert dict(letter.headers)["barnabas.cut"] == f"key 0 bytes, value {len(HUGE)} bytes".encode()


PINNED = """\
name: pinned
checkpoint: checkpoint
sources:
  lines: {topic: lines, format: text}
steps:
  few: {python: "tests.pipelines.steps:few_rows", inputs: lines}
sinks:
  kept: {from: few, parquet: table}
"""


def test_unfinished_batch_is_planned_anew_when_its_limit_changes(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """A step that cannot bear more than ten rows in a task stands for memory that is too small."""
    from barnabas.pipelines.run import QueryFailed

    broker.create_topic("lines")
    broker.append("lines", [f"{number}".encode() for number in range(25)])
    file = write_file(tmp_path, PINNED, broker)
    with pytest.raises(
        QueryFailed, match=r"sink 'kept', step 'few' \(.*steps\.py, line \d+, in few\): more than 10 rows"
    ):
        run_pipeline(pipeline_session, file)
    file.write_text(file.read_text().replace("format: text", "format: text, records_max_per_batch: 10"))
    kept = run_pipeline(pipeline_session, file)
    assert kept.told == ["sink 'kept': batch 1, which was not finished, is planned again"]
    rows = duckdb.sql(f'SELECT value FROM read_parquet("{tmp_path}/table/*.parquet")').fetchall()
    assert sorted(int(value) for (value,) in rows) == list(range(25))
