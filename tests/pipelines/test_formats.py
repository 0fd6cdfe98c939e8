"""Every format, Python and stateful steps, and the sinks for lakehouses, in one pipeline on a real Spark."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from barnabas.testing import Broker
from tests.pipelines.running import run_pipeline, write_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed")
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
pyiceberg_catalog = pytest.importorskip("pyiceberg.catalog", reason="pyiceberg is not installed")

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "amount", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}

FORMATS = """\
name: formats
checkpoint: checkpoint
dead_letter: dead
sources:
  sales:
    topic: sales
    format: avro
    avro_schema: sale.avsc
    writer_schemas: {7: sale.avsc}
    metadata: [key, partition, offset, timestamp, headers, topic]
  lines:
    topic: lines
    format: csv
    schema: name string, amount int
    parse: {sep: ";"}
  words:
    topic: words
    format: text
  bytes:
    topic: words
    format: raw
steps:
  loud:
    python: tests.pipelines.steps:shout
    inputs: words
  totals:
    stateful: tests.pipelines.steps:Totals
    inputs: sales
    key: name
    schema: name string, total bigint
    output: update
sinks:
  sales: {from: sales, parquet: sales}
  lines: {from: lines, delta: lines}
  loud: {from: loud, topic: loud, format: text}
  bytes: {from: bytes, topic: raw, format: raw}
  totals: {from: totals, topic: totals, key: name, mode: update}
  lake:
    from: lines
    iceberg: shop.lines
    catalog: {type: sql, uri: "sqlite:///CATALOG/catalog.db", warehouse: "file://CATALOG"}
"""


def avro(row: dict[str, Any], header: bytes = b"") -> bytes:
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(SCHEMA), row)
    return header + output.getvalue()


def test_every_format_is_read_and_every_sink_written_once(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("sales", "lines", "words", "loud", "raw", "totals", "dead"):
        broker.create_topic(topic)
    (tmp_path / "sale.avsc").write_text(json.dumps(SCHEMA))
    sales = [{"name": f"n{index % 2}", "amount": index, "at": 1_700_000_000_000 + index} for index in range(10)]
    broker.append(
        "sales", [avro(row, b"\0\0\0\0\7") for row in sales] + [b"\0\0\0\0\7garbage", b"\0\0\0\0\x08unlisted"], key=b"k"
    )
    broker.append("lines", [b"a;1", b"b;2", b"c;many"])
    broker.append("words", [b"hello", b"\xff\x00"])
    file = write_file(tmp_path, FORMATS.replace("CATALOG", str(tmp_path)), broker)

    monkeypatch.delattr("pyspark.sql.DataFrame.toArrow")  # no sink brings rows to the driver
    run_pipeline(pipeline_session, file)

    found = sorted(ds.dataset(tmp_path / "sales").to_table().to_pylist(), key=lambda row: row["amount"])
    assert [(row["name"], row["amount"], row["_key"], row["_offset"], row["_topic"]) for row in found] == [
        (row["name"], row["amount"], "k", index, "sales") for index, row in enumerate(sales)
    ]
    assert [int(row["at"].timestamp() * 1000 + 0.5) for row in found] == [row["at"] for row in sales]
    letters = broker.records("dead")
    assert sorted(letter.value or b"" for letter in letters) == [
        b"\0\0\0\0\7garbage",
        b"\0\0\0\0\x08unlisted",
        b"c;many",
        b"\xff\x00",
    ]
    assert broker.records("loud")[0].value == b"HELLO"
    assert [record.value for record in broker.records("raw")] == [b"hello", b"\xff\x00"]
    assert _totals(broker) == {"n0": 20, "n1": 25}
    lines = [{"name": "a", "amount": 1}, {"name": "b", "amount": 2}]
    assert _delta(tmp_path) == lines
    assert _iceberg(tmp_path) == lines

    broker.append("lines", [b"d;4"])
    broker.append("sales", [avro({"name": "n0", "amount": 100, "at": 1_700_000_000_000})])
    run_pipeline(pipeline_session, file)
    assert _totals(broker) == {"n0": 120, "n1": 25}
    assert _delta(tmp_path) == _iceberg(tmp_path) == [*lines, {"name": "d", "amount": 4}]


def check_pipeline(session: "SparkSession", text: str, directory: Path) -> list[str]:
    from barnabas.pipelines import check
    from barnabas.pipelines.spec import read_pipeline

    pipeline = read_pipeline(text.replace("CATALOG", str(directory)), "formats.yaml")
    return [mistake.message for mistake in check.check_pipeline(session, pipeline, directory, None)]


def test_many_small_batches_of_delta_and_iceberg_become_few_files(
    pipeline_session: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    """Written by the functions that a query calls, without a query: 34 queries would take minutes."""
    from barnabas.pipelines.delta import delta_writer
    from barnabas.pipelines.iceberg import iceberg_writer
    from barnabas.pipelines.spec import read_pipeline

    text = FORMATS.replace("{from: lines, delta: lines}", "{from: lines, delta: lines, compact_files: 4}").replace(
        "    iceberg: shop.lines\n", "    iceberg: shop.lines\n    compact_files: 4\n"
    )
    sinks = {sink.kind: sink for sink in read_pipeline(text.replace("CATALOG", str(tmp_path)), "x.yaml").sinks}
    context = pipeline_session.sparkContext
    context.setLocalProperty("sql.streaming.queryId", "0d5b6f7a-0000-4000-8000-000000000001")
    try:
        for write in (delta_writer(sinks["delta"], tmp_path), iceberg_writer(sinks["iceberg"])):
            for batch_id in (*range(10, 16), 15, 14):  # the last two are tried again
                write(
                    pipeline_session.createDataFrame([("a", batch_id)], "name string, amount int").coalesce(1), batch_id
                )
    finally:
        context.setLocalProperty("sql.streaming.queryId", "")
    assert (
        [row["amount"] for row in _delta(tmp_path)] == [row["amount"] for row in _iceberg(tmp_path)] == [*range(10, 16)]
    )
    assert len(deltalake.DeltaTable(str(tmp_path / "lines")).file_uris()) == 1
    assert len(_iceberg_table(tmp_path).inspect.files()) == 1
    # A wider number can become the table's in Iceberg alone.
    (tmp_path / "sale.avsc").write_text(json.dumps(SCHEMA))
    mistakes = check_pipeline(pipeline_session, text.replace("amount int", "amount bigint"), tmp_path)
    assert mistakes == ["sink 'lines': column 'amount' is long, but integer in the Delta table"]


def _totals(broker: Broker) -> dict[str, int]:
    """The latest of each name."""
    rows = [json.loads(record.value or b"") for record in broker.records("totals")]
    return {row["name"]: row["total"] for row in rows}


def _delta(directory: Path) -> list[dict[str, Any]]:
    rows = deltalake.DeltaTable(str(directory / "lines")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["amount"])


def _iceberg_table(directory: Path) -> Any:
    options = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}"}
    return pyiceberg_catalog.load_catalog("barnabas", **options).load_table("shop.lines")


def _iceberg(directory: Path) -> list[dict[str, Any]]:
    rows = _iceberg_table(directory).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["amount"])
