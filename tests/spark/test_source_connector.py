"""Beside Spark's own Kafka connector, on the same topics: the same rows, and one checkpoint for both."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from barnabas.client.blocking import BlockingClient
from barnabas.testing import Broker
from tests.spark.topics import fill, load, places, run_available, stored_places, stream, written_places
from tests.support.kafka import KafkaNode, run_tool


def test_batch_has_the_rows_and_the_schema_of_the_connector(
    spark: SparkSession, broker: Broker, connector: str
) -> None:
    broker.create_topic("same", 2)
    fill(broker, "same", {0: 150, 1: 3})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
    producer.produce("same", b"value", b"key", 1, headers=[("a", b"1"), ("a", None), ("b", b"")])
    producer.produce("same", None, None, 1)
    assert producer.flush(30) == 0
    ours = load(spark, broker.bootstrap, "same", includeHeaders=True)
    theirs = load(spark, broker.bootstrap, "same", kind=connector, includeHeaders=True)
    assert ours.schema == theirs.schema
    assert sorted(map(str, ours.collect())) == sorted(map(str, theirs.collect()))


@pytest.mark.parametrize("pattern", ["sales", "^sales$", "sales-[ab]", "s-b$|nothing"])
def test_pattern_finds_the_topics_that_it_finds_in_the_connector(
    spark: SparkSession, broker: Broker, connector: str, pattern: str
) -> None:
    for topic in ("sales", "sales-a", "eu-sales-b", "other"):
        broker.create_topic(topic)
        fill(broker, topic, {0: 2})
    ours = load(spark, broker.bootstrap, subscribePattern=pattern)
    theirs = load(spark, broker.bootstrap, subscribePattern=pattern, kind=connector)
    assert places(ours) == places(theirs) != []


@pytest.mark.parametrize("first_is_ours", [False, True])
def test_checkpoint_is_carried_over_and_back(
    spark: SparkSession, broker: Broker, connector: str, tmp_path: Path, first_is_ours: bool
) -> None:
    """Three runs of one query, each by the other of the two, with new partitions in between."""
    broker.create_topic("moved", 2)
    ours = stream(spark, broker.bootstrap, "moved", startingOffsets="earliest", maxOffsetsPerTrigger=40)
    theirs = stream(
        spark, broker.bootstrap, "moved", kind=connector, startingOffsets="earliest", maxOffsetsPerTrigger=40
    )
    first, second = (ours, theirs) if first_is_ours else (theirs, ours)
    fill(broker, "moved", {0: 100, 1: 20})
    run_available(first, tmp_path)
    assert written_places(spark, tmp_path) == stored_places(broker, "moved")
    with BlockingClient(broker.bootstrap) as client:
        client.wait_for(client.admin.create_partitions("moved", 3))
    fill(broker, "moved", {1: 30, 2: 10})
    run_available(second, tmp_path)
    assert written_places(spark, tmp_path) == stored_places(broker, "moved")
    fill(broker, "moved", {0: 5, 2: 5})
    run_available(first, tmp_path)
    assert written_places(spark, tmp_path) == stored_places(broker, "moved")


@pytest.mark.kafka
def test_apache_kafka_is_read_with_transactions_and_its_tools_see_the_lag(
    spark: SparkSession, kafka_node: KafkaNode, tmp_path: Path
) -> None:
    bootstrap = kafka_node.bootstrap_servers
    with BlockingClient(bootstrap) as client:
        client.create_topic("ledger", partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "ledger"})
    producer.init_transactions(30)
    for number, is_kept in enumerate([True, False, True]):
        producer.begin_transaction()
        for index in range(10):
            producer.produce("ledger", f"{number}-{index}".encode(), partition=0)
        producer.flush(30)
        if is_kept:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    # Ten records and a marker, thrice: the second ten were aborted.
    kept = [("ledger", 0, offset) for offset in [*range(10), *range(22, 32)]]
    options = {
        "startingOffsets": "earliest",
        "kafka__group__id": "auditor",
        "kafka__isolation__level": "read_committed",
        "maxRecordsPerPartition": 7,
    }
    query = run_available(stream(spark, bootstrap, "ledger", **options), tmp_path)
    assert written_places(spark, tmp_path) == kept
    assert load(spark, bootstrap, "ledger").count() == 30
    producer.begin_transaction()
    producer.produce("ledger", b"one more", partition=0)
    producer.commit_transaction(30)
    said = run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", bootstrap, "--describe", "--group", "auditor"),
    )
    line = next(line.split() for line in said.splitlines() if line.split()[:2] == ["auditor", "ledger"])
    assert line[3:6] == ["33", "35", "2"]
    assert query.lastProgress is not None
