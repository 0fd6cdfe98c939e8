"""What the source's tests share: records to read, reads and queries, and what a broker holds to compare with."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.testing import Broker

QUERY_SECONDS_MAX = 120


def read_options(bootstrap: str, topics: str, **options: Any) -> dict[str, str]:
    """With dots in names written as double underscores."""
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    if not any(name in given for name in ("subscribePattern", "assign")):
        given["subscribe"] = topics
    return {"kafka.bootstrap.servers": bootstrap, "fetchOffset.retryIntervalMs": "20", **given}


def load(spark: SparkSession, bootstrap: str, topics: str = "", *, kind: str = "barnabas", **options: Any) -> DataFrame:
    return spark.read.format(kind).options(**read_options(bootstrap, topics, **options)).load()


def stream(
    spark: SparkSession, bootstrap: str, topics: str = "", *, kind: str = "barnabas", **options: Any
) -> DataFrame:
    return spark.readStream.format(kind).options(**read_options(bootstrap, topics, **options)).load()


def start_query(rows: DataFrame, directory: Path, *, name: str = "", **trigger: Any) -> StreamingQuery:
    """Writes to Parquet under `directory / "out"`, with its checkpoint beside it."""
    writer = rows.writeStream.format("parquet").option("path", str(directory / "out"))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    if name:
        writer = writer.queryName(name)
    return (writer.trigger(**trigger) if trigger else writer).start()


def run_available(rows: DataFrame, directory: Path) -> StreamingQuery:
    """To the end of what is there, and no further."""
    query = start_query(rows, directory, availableNow=True)
    finish(query)
    return query


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(QUERY_SECONDS_MAX), "the query does not end"


def places(rows: DataFrame) -> list[tuple[str, int, int]]:
    """(topic, partition, offset) of every row, in order: what is twice in a result shows here."""
    return sorted(tuple(row) for row in rows.select("topic", "partition", "offset").collect())


def written_places(spark: SparkSession, directory: Path) -> list[tuple[str, int, int]]:
    return places(spark.read.parquet(str(directory / "out")))


def stored_places(broker: Broker, *topics: str) -> list[tuple[str, int, int]]:
    return sorted(
        (record.topic, record.partition, record.offset) for topic in topics for record in broker.records(topic)
    )


def fill(broker: Broker, topic: str, counts: Mapping[int, int], *, label: str = "") -> None:
    """So many records for each partition, in several batches, with values that say where they are."""
    for partition, count in counts.items():
        for start in range(0, count, 100):
            values = [f"{label}{topic}-{partition}-{index}".encode() for index in range(start, min(start + 100, count))]
            broker.append(topic, values, key=f"{partition}".encode(), partition=partition)


def offsets_json(offsets: Iterable[tuple[int, int]], topic: str) -> str:
    members = ",".join(f'"{partition}":{offset}' for partition, offset in offsets)
    return f'{{"{topic}":{{{members}}}}}'
