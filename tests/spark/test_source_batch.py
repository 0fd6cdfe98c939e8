"""Batch reads by real Spark of a real broker, compared record by record with what the broker holds."""

from datetime import UTC

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.configs import Resource, ResourceType, alter_configs
from barnabas.client.producing.producer import Producer, ProducerOptions
from barnabas.records.batch import Codec
from barnabas.records.builder import Header
from barnabas.testing import Broker
from tests.spark.topics import fill, load, offsets_json, places, stored_places

KEPT = {"retention.ms": "-1"}
"""For records with timestamps of long ago."""


def test_batch_of_all_columns_equals_what_the_broker_holds(spark: SparkSession, broker: Broker) -> None:
    broker.create_topic("orders", 3, KEPT)
    broker.append("orders", [b"a", None, b""], key=None, partition=0, timestamp_ms=1_600_000_000_123)
    with BlockingClient(broker.bootstrap) as client:

        async def produce() -> None:
            async with Producer(client.cluster, ProducerOptions(codec=Codec.ZSTD)) as producer:
                headers = [Header("trace", b"\x00\xff"), Header("trace", None), Header("", b"")]
                await producer.send("orders", b"b" * 5000, key=b"", partition=1, headers=headers)
                await producer.send("orders", b"c", key="schlüssel".encode(), partition=1)

        client.wait_for(produce())
    rows = load(spark, broker.bootstrap, "orders", includeHeaders=True).collect()
    read = {
        (row.topic, row.partition, row.offset): (
            row.key if row.key is None else bytes(row.key),
            row.value if row.value is None else bytes(row.value),
            round(row.timestamp.replace(tzinfo=UTC).timestamp() * 1000),
            row.timestampType,
            None if row.headers is None else [(one.key, one.value) for one in row.headers],
        )
        for row in rows
    }
    stored = {
        (one.topic, one.partition, one.offset): (
            one.key,
            one.value,
            one.timestamp_ms,
            0,
            [(name, value) for name, value in one.headers] or None,
        )
        for one in broker.records("orders")
    }
    assert read == stored
    assert len(rows) == 5


def test_log_append_time_shows_in_the_type_also_when_it_changes_within_a_topic(
    spark: SparkSession, broker: Broker
) -> None:
    broker.create_topic("timed", 1, KEPT)
    broker.append("timed", [b"1", b"2"], timestamp_ms=1000)
    with BlockingClient(broker.bootstrap) as client:
        topic = Resource(ResourceType.TOPIC, "timed")
        client.wait_for(alter_configs(client.cluster, topic, set_values={"message.timestamp.type": "LogAppendTime"}))
    broker.append("timed", [b"3"], timestamp_ms=1000)
    rows = load(spark, broker.bootstrap, "timed").orderBy("offset").collect()
    assert [(row.offset, row.timestampType) for row in rows] == [(0, 0), (1, 0), (2, 1)]
    assert rows[0].timestamp.replace(tzinfo=UTC).timestamp() == 1
    assert rows[2].timestamp.year > 2000


def test_bounds_by_offsets_times_and_places_cut_exactly(spark: SparkSession, broker: Broker) -> None:
    broker.create_topic("cut", 2, KEPT)
    for index in range(10):
        broker.append("cut", [b"x"], partition=0, timestamp_ms=1000 + index)
    fill(broker, "cut", {1: 5})

    def offsets(**options: object) -> list[tuple[int, int]]:
        return [(one[1], one[2]) for one in places(load(spark, broker.bootstrap, "cut", **options))]

    given = offsets(
        startingOffsets=offsets_json([(0, 3), (1, -2)], "cut"), endingOffsets=offsets_json([(0, 6), (1, -1)], "cut")
    )
    assert given == [(0, 3), (0, 4), (0, 5), *((1, index) for index in range(5))]
    timed = offsets(
        startingOffsetsByTimestamp=offsets_json([(0, 1004), (1, 0)], "cut"),
        endingOffsetsByTimestamp=offsets_json([(0, 1006), (1, 1)], "cut"),
    )
    assert timed == [(0, 4), (0, 5)]
    assert offsets(startingTimestamp=1008, endingTimestamp=1009) == [(0, 8)]
    assert offsets(assign='{"cut":[1]}') == [(1, index) for index in range(5)]


def test_time_that_no_record_has_is_an_error_or_the_end(spark: SparkSession, broker: Broker) -> None:
    broker.create_topic("past", 1, KEPT)
    broker.append("past", [b"x"], timestamp_ms=1000)
    with pytest.raises(PySparkException, match="startingOffsetsByTimestampStrategy"):
        load(spark, broker.bootstrap, "past", startingTimestamp=5000).collect()
    late = load(spark, broker.bootstrap, "past", startingTimestamp=5000, startingOffsetsByTimestampStrategy="latest")
    assert late.count() == 0


def test_pattern_reads_every_topic_of_that_name_and_no_internal_one(spark: SparkSession, broker: Broker) -> None:
    for topic in ("log-a", "log-b", "other"):
        broker.create_topic(topic)
        fill(broker, topic, {0: 3})
    rows = load(spark, broker.bootstrap, subscribePattern="log-.*")
    assert places(rows) == stored_places(broker, "log-a", "log-b")


def test_partitions_are_split_over_tasks_without_loss(spark: SparkSession, broker: Broker) -> None:
    broker.create_topic("big", 2)
    fill(broker, "big", {0: 1000, 1: 10})
    rows = load(spark, broker.bootstrap, "big", minPartitions=7)
    assert rows.rdd.getNumPartitions() >= 7
    assert places(rows) == stored_places(broker, "big")
    rows = load(spark, broker.bootstrap, "big", maxRecordsPerPartition=300)
    assert rows.rdd.getNumPartitions() == 5
    assert places(rows) == stored_places(broker, "big")


def test_schema_prunes_columns_and_wrong_ones_are_refused(spark: SparkSession, broker: Broker) -> None:
    broker.create_topic("narrow")
    fill(broker, "narrow", {0: 20})

    def read(schema: str) -> list[tuple[object, ...]]:
        reader = spark.read.format("barnabas").schema(schema)
        rows = reader.options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "narrow"}).load().collect()
        return [tuple(row) for row in rows]

    assert sorted(read("value binary")) == sorted((one.value,) for one in broker.records("narrow"))
    assert sorted(read("offset long, key binary"))[:2] == [(0, b"0"), (1, b"0")]
    with pytest.raises(PySparkException, match="did you mean 'value'"):
        read("valu binary")
    with pytest.raises(PySparkException, match="is of type binary, not string"):
        read("value string")
    with pytest.raises(PySparkException, match="includeHeaders"):
        read("headers array<struct<key: string, value: binary>>")


def test_batch_begins_behind_deleted_records_within_a_log_batch(spark: SparkSession, broker: Broker) -> None:
    broker.create_topic("gaps")
    fill(broker, "gaps", {0: 50})
    with BlockingClient(broker.bootstrap) as client:
        client.wait_for(client.admin.delete_records({TopicPartition("gaps", 0): 20}))
    rows = load(spark, broker.bootstrap, "gaps")
    assert places(rows) == [("gaps", 0, offset) for offset in range(20, 50)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"kafka__auto__offset__reset": "earliest"}, "is not supported"),
        ({"kafka__sasl__jaas__config": "hunter2"}, "needs TLS or SASL"),
        ({"startingOffsets": '{"there":{"1":0}}'}, "does not name there-0"),
        ({"startingOffsets": '{"there":{"0":9}}'}, "has offsets from 0 to 1"),
        ({"startingOffsets": '{"there":{"0":1}}', "endingOffsets": '{"there":{"0":0}}'}, "end before it"),
    ],
)
def test_wrong_options_are_refused_in_one_line_without_secrets(
    spark: SparkSession, broker: Broker, options: dict[str, str], words: str
) -> None:
    broker.create_topic("there")
    broker.append("there", [b"x"])
    with pytest.raises(PySparkException, match=words) as refused:
        load(spark, broker.bootstrap, "there", **options).collect()
    assert "hunter2" not in str(refused.value)


def test_topic_that_is_not_there_is_named(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(PySparkException, match="topic 'nowhere' does not exist"):
        load(spark, broker.bootstrap, "nowhere").collect()


@pytest.mark.xfail(
    strict=True,
    reason="Spark pushes the filters of one use of a DataFrame into the others; if it does no more, take them",
)
def test_spark_with_filter_push_down_keeps_two_uses_of_a_frame_apart(spark: SparkSession, tmp_path: object) -> None:
    """Why the source takes no filters. The day this passes, ranges of offsets and times can be pushed down."""
    from tests.spark.pushing_source import PushingSource

    spark.dataSource.register(PushingSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        numbers = spark.read.format("pushing").load()
        both = numbers.where("number = 1").union(numbers.where("number = 2"))
        assert sorted(row.number for row in both.collect()) == [1, 2]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
