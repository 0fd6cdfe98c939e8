"""Spark writing by `format("barnabas")` beside Spark's own Kafka connector: the same rows, the same broker, in turns.

Two tasks write rows with values of 100 bytes to a topic of four partitions, with keys and without, uncompressed, and
both wait for all replicas. The rows are in Spark's memory already, as columns. The connector's jars come from Maven
Central and are made for pyspark 4.2.0. What is missing is said.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.broker_process import BrokerProcess

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.offsets import end_offsets
from benchmarks import spark_start
from benchmarks.report import Report, alternating_medians
from benchmarks.spark import OURS, ROUNDS, THEIRS, compare_starts, spark_with_connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS: Final = 2_000_000
PARTITIONS: Final = 4


def run(report: Report) -> None:
    with spark_with_connector(report) as spark, tempfile.TemporaryDirectory() as directory:
        if spark is None:
            return
        with BrokerProcess(Path(directory)) as broker:
            value = "cast(rpad(cast(id as string), 100, 'x') as binary) as value"
            rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(cast(id as string) as binary) as key", value).cache()
            rows.count()
            compare(report, "with keys", rows, broker.bootstrap)
            compare(report, "without keys", rows.select("value"), broker.bootstrap)
            compare_starts(report, broker.bootstrap, spark_start.WRITES)


def compare(report: Report, name: str, rows: "DataFrame", bootstrap: str) -> None:
    report.say(f"Spark writes {ROWS:,} rows {name}")
    topics = {kind: f"{kind}-{name.replace(' ', '-')}" for kind in (OURS, THEIRS)}
    with BlockingClient(bootstrap) as client:
        for topic in topics.values():
            client.create_topic(topic, partitions=PARTITIONS, configs={"retention.bytes": str(512 << 20)})

        def write(kind: str) -> Callable[[], None]:
            writer = rows.write.format(kind).mode("append").option("kafka.bootstrap.servers", bootstrap)
            return lambda: writer.option("topic", topics[kind]).save()

        ours, theirs = write(OURS), write(THEIRS)
        ours(), theirs()
        our_seconds, their_seconds = alternating_medians(ROUNDS, ours, theirs)
        for topic in topics.values():
            partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
            written = sum(client.wait_for(end_offsets(client.cluster, partitions)).values())
            assert written == ROWS * (ROUNDS + 1), f"{topic} has {written} records"
    report.fact(f"Spark sink, {name}, Barnabas", ROWS / our_seconds / 1e6, "M rows/s")
    report.fact(f"Spark sink, {name}, connector", ROWS / their_seconds / 1e6, "M rows/s")
    report.at_least(f"Spark sink, {name}", their_seconds / our_seconds, "x the connector", 2.0)


def main() -> int:
    from rich.console import Console

    report = Report(Console())
    run(report)
    report.print_table()
    return 0


if __name__ == "__main__":
    sys.exit(main())
