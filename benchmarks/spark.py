"""Spark reading by `format("barnabas")` beside Spark's own Kafka connector: the same topic, the same session, in turns.

A broker process holds a topic of two partitions with records of 100 bytes; two tasks read it to Spark's `noop` sink.
The connector's jars come from Maven Central and are made for pyspark 4.2.0. What is missing is said.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.broker_process import BrokerProcess
from tests.support.kafka import KafkaUnavailable
from tests.support.spark_connector import connector_jars

from barnabas.base.clock import SystemClock
from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import Cluster
from barnabas.records.columns import encode_batches
from barnabas.wire.produce_request import ProducePartition, ProduceRequest, ProduceTopic
from benchmarks import spark_start
from benchmarks.logs import make_columns
from benchmarks.report import Report, alternating_medians, seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS: Final = 3_000_000
PARTITIONS: Final = 2
ROUNDS: Final = 3
SMALL_BATCHES: Final = 20
TOPIC: Final = "bench"
BATCH_BYTES: Final = 256 << 10
OURS: Final = "barnabas"
THEIRS: Final = "kafka"


def run(report: Report) -> None:
    with spark_with_connector(report) as spark, tempfile.TemporaryDirectory() as directory:
        if spark is None:
            return
        with BrokerProcess(Path(directory)) as broker:
            report.say(f"{RECORDS:,} records for Spark")
            fill(broker.bootstrap)
            compare_reads(report, spark, broker.bootstrap)
            compare_streams(report, spark, broker.bootstrap, Path(directory))
            compare_small_batches(report, spark, broker.bootstrap, Path(directory))
            compare_starts(report, broker.bootstrap, spark_start.QUERIES)


@contextmanager
def spark_with_connector(report: Report) -> "Iterator[SparkSession | None]":
    """A session that has both formats; None, and a word why, where that cannot be had."""
    try:
        from barnabas.spark import session

        jars = connector_jars()
    except (ImportError, KafkaUnavailable) as reason:
        report.say(f"Spark is not measured: {reason}")
        yield None
        return
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(map(str, jars)),
    }
    spark = session("benchmark", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def fill(bootstrap: str) -> None:
    columns = make_columns(RECORDS // PARTITIONS, SystemClock().now_ms())
    batches = list(encode_batches(columns, max_batch_bytes=BATCH_BYTES))
    with BlockingClient(bootstrap) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            client.wait_for(_send(client.cluster, partition, batches))


async def _send(cluster: Cluster, partition: int, batches: list[bytearray]) -> None:
    topic = await cluster.topic(TOPIC)
    connection = await cluster.connection(topic.partitions[partition].leader_id)
    for batch in batches:
        member = ProducePartition(partition, memoryview(batch))
        request = ProduceRequest(None, -1, 30_000, [ProduceTopic(TOPIC, topic.topic_id, [member])])
        response = await asyncio.wait_for(connection.produce(request), 30)
        assert response is not None


def load(spark: "SparkSession", kind: str, bootstrap: str, *, value_only: bool = False) -> "DataFrame":
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    if value_only and kind == OURS:
        return reader.schema("value binary").load()
    return reader.load().select("value") if value_only else reader.load()


def compare_reads(report: Report, spark: "SparkSession", bootstrap: str) -> None:
    for name, value_only, bound in [("all columns", False, 1.3), ("value only", True, 2.0)]:
        report.say(f"Spark reads {name}, a batch")

        def read(kind: str, value_only: bool = value_only) -> Callable[[], None]:
            return lambda: (
                load(spark, kind, bootstrap, value_only=value_only).write.format("noop").mode("overwrite").save()
            )

        ours, theirs = read(OURS), read(THEIRS)
        ours(), theirs()
        our_seconds, their_seconds = alternating_medians(ROUNDS, ours, theirs)
        report.fact(f"Spark batch, {name}, Barnabas", RECORDS / our_seconds / 1e6, "M rows/s")
        report.fact(f"Spark batch, {name}, connector", RECORDS / their_seconds / 1e6, "M rows/s")
        report.at_least(f"Spark batch, {name}", their_seconds / our_seconds, "x the connector", bound)


def compare_streams(report: Report, spark: "SparkSession", bootstrap: str, directory: Path) -> None:
    report.say("Spark reads all columns, a stream")
    times: dict[str, list[float]] = {OURS: [], THEIRS: []}
    in_all: dict[str, list[float]] = {OURS: [], THEIRS: []}
    for turn in range(ROUNDS):
        for kind in times:
            options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
            rows = spark.readStream.format(kind).options(**options).load()
            writer = rows.writeStream.format("noop").trigger(availableNow=True)
            began = time.perf_counter()
            query = writer.option("checkpointLocation", str(directory / f"{kind}-{turn}")).start()
            query.awaitTermination()
            in_all[kind].append(time.perf_counter() - began)
            # The batch that had the records alone; what the start of a query costs is in the other figure.
            durations = [one["durationMs"]["addBatch"] for one in query.recentProgress if one["numInputRows"]]
            times[kind].append(sum(durations) / 1000)
    ours, theirs = statistics.median(times[OURS]), statistics.median(times[THEIRS])
    report.fact("Spark stream, all columns, Barnabas", RECORDS / ours / 1e6, "M rows/s")
    report.fact("Spark stream, all columns, connector", RECORDS / theirs / 1e6, "M rows/s")
    for kind, who in ((OURS, "Barnabas"), (THEIRS, "connector")):
        rate = RECORDS / statistics.median(in_all[kind]) / 1e6
        report.fact(f"Spark stream from its start to its end, {who}", rate, "M rows/s")
    report.at_least("Spark stream, all columns", theirs / ours, "x the connector", 1.3)


def compare_small_batches(report: Report, spark: "SparkSession", bootstrap: str, directory: Path) -> None:
    report.say("Spark's trigger time with ten records a batch")
    times: dict[str, list[float]] = {OURS: [], THEIRS: []}
    with BlockingClient(bootstrap) as client:
        for turn in range(ROUNDS):
            for kind, measured in times.items():
                measured += _trigger_times_ms(spark, client, bootstrap, directory, kind, turn)
    medians = {kind: statistics.median(measured) for kind, measured in times.items()}
    report.fact("Spark trigger of a small batch, Barnabas", medians[OURS], "ms")
    report.fact("Spark trigger of a small batch, connector", medians[THEIRS], "ms")
    report.at_most("Spark trigger of a small batch", medians[OURS] / medians[THEIRS], "x the connector", 1.6)


def compare_starts(report: Report, bootstrap: str, figures: dict[str, str]) -> None:
    with BlockingClient(bootstrap) as client:
        client.create_topic(spark_start.TOPIC, partitions=PARTITIONS)
    spark_start.compare(report, bootstrap, figures, OURS, THEIRS)


def _trigger_times_ms(
    spark: "SparkSession", client: BlockingClient, bootstrap: str, directory: Path, kind: str, turn: int
) -> list[float]:
    topic = f"small-{kind}-{turn}"
    client.create_topic(topic, partitions=1)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    # The connector's consumer, which it keeps between batches, else waits its 500 ms for more in each of them, and only
    # that would be compared.
    options["kafka.fetch.max.wait.ms"] = "10"
    writer = spark.readStream.format(kind).options(**options).load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(directory / topic)).start()
    try:
        for _ in range(SMALL_BATCHES):
            client.produce(topic, [b"x" * 100] * 10)
            query.processAllAvailable()
        progress = [one for one in query.recentProgress if one["numInputRows"]]
    finally:
        query.stop()
    # Without what a source may spend waiting for records: that is no work, and the connector waits elsewhere.
    works = [one["durationMs"]["triggerExecution"] - one["durationMs"].get("latestOffset", 0) for one in progress]
    return works[len(works) // 4 :]


def main() -> int:
    from rich.console import Console

    report = Report(Console())
    took = seconds(lambda: run(report))
    report.print_table()
    print(f"{took:.0f} s, {time.strftime('%Y-%m-%d')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
