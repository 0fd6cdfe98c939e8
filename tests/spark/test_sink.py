"""The sink by real Spark on real brokers; what arrived is read by an independent client, record by record."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.blocking import BlockingClient
from barnabas.client.producing.partitioner import partition_for_key
from barnabas.testing import Broker
from tests.spark.written import Written, read_topic
from tests.support.kafka import KafkaNode

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

HEADERS_TYPE = "array<struct<key:string,value:binary>>"


def _write(frame: "DataFrame", bootstrap: str, mode: str = "append", **options: str) -> None:
    given = {"kafka.bootstrap.servers": bootstrap, **{name.replace("__", "."): text for name, text in options.items()}}
    frame.write.format("barnabas").options(**given).mode(mode).save()


def _refusal(error: Any) -> str:
    """The line that a person would look for in what Spark makes of an error."""
    return str(error.value)


# --- batches ----------------------------------------------------------------------------------------------------


def _write_everything_and_check(spark: "SparkSession", bootstrap: str) -> None:
    rows = [
        (b"k1", b"first", [("a", b"1"), ("b", None)], 2),
        (None, None, [], 1),
        (b"", b"", None, 0),
        (b"k2", b"\xff\x00", [("a", b"")], None),
    ]
    frame = spark.createDataFrame(rows, f"key binary, value binary, headers {HEADERS_TYPE}, partition int")
    _write(frame, bootstrap, topic="everything")
    assert sorted(read_topic(bootstrap, "everything"), key=str) == sorted(
        [
            Written(2, b"k1", b"first", (("a", b"1"), ("b", None))),
            Written(1, None, None, ()),
            Written(0, b"", b"", ()),
            Written(partition_for_key(b"k2", 3), b"k2", b"\xff\x00", (("a", b""),)),
        ],
        key=str,
    )


def test_batch_of_every_column_arrives_as_it_was_given(spark: "SparkSession", broker: Broker) -> None:
    broker.create_topic("everything", partitions=3)
    _write_everything_and_check(spark, broker.bootstrap)


@pytest.mark.kafka
def test_batch_of_every_column_arrives_at_apache_kafka(spark: "SparkSession", kafka_node: KafkaNode) -> None:
    with BlockingClient(kafka_node.bootstrap_servers) as client:
        client.create_topic("everything", partitions=3)
    _write_everything_and_check(spark, kafka_node.bootstrap_servers)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_many_rows_arrive_once_and_in_the_partition_of_their_key(
    spark: "SparkSession", broker: Broker, codec: str
) -> None:
    broker.create_topic("many", partitions=5)
    frame = spark.range(0, 50_000, 1, 2).selectExpr("cast(id as string) as key", "concat('value-', id) as value")
    _write(frame, broker.bootstrap, topic="many", kafka__compression__type=codec)
    written = read_topic(broker.bootstrap, "many")
    expected = {(b"%d" % number, b"value-%d" % number) for number in range(50_000)}
    assert {(record.key, record.value) for record in written} == expected
    assert len(written) == len(expected)
    assert all(record.partition == partition_for_key(record.key or b"", 5) for record in written)


def test_rows_without_keys_are_spread_over_the_partitions(spark: "SparkSession", broker: Broker) -> None:
    broker.create_topic("spread", partitions=3)
    _write(spark.range(0, 60_000, 1, 2).selectExpr("rpad(id, 100, 'x') as value"), broker.bootstrap, topic="spread")
    counts = Counter(record.partition for record in read_topic(broker.bootstrap, "spread"))
    assert sum(counts.values()) == 60_000
    assert min(counts.values()) > 10_000


def test_rows_go_to_the_topics_that_they_name(spark: "SparkSession", broker: Broker) -> None:
    frame = spark.range(0, 1000, 1, 2).selectExpr(
        "concat('topic-', id % 3) as topic", "cast(id as string) as value", "0 as partition", "id as ignored"
    )
    _write(frame, broker.bootstrap)
    for index in range(3):
        values = {record.value for record in read_topic(broker.bootstrap, f"topic-{index}")}
        assert values == {b"%d" % number for number in range(1000) if number % 3 == index}


def test_topic_option_wins_over_the_column(spark: "SparkSession", broker: Broker) -> None:
    _write(spark.sql("select 'column' as topic, 'x' as value"), broker.bootstrap, topic="option")
    assert [record.value for record in read_topic(broker.bootstrap, "option")] == [b"x"]
    assert "column" not in broker.topics()


def test_topic_that_takes_only_small_batches_gets_small_ones(spark: "SparkSession", broker: Broker) -> None:
    broker.create_topic("small", configs={"max.message.bytes": "5000"})
    _write(spark.range(0, 3000, 1, 2).selectExpr("rpad(id, 100, 'x') as value"), broker.bootstrap, topic="small")
    values = [record.value for record in read_topic(broker.bootstrap, "small")]
    assert sorted(values, key=str) == sorted([str(n).ljust(100, "x").encode() for n in range(3000)], key=str)


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "mode", "options", "message"),
    [
        ("cast(id as string) as value", "append", {}, "no topic: give the option 'topic'"),
        ("id as value", "append", {"topic": "t"}, "column 'value' is bigint, but must be string or binary"),
        ("cast(id as string) as value", "append", {"topik": "t"}, "did you mean 'topic'?"),
        ("cast(id as string) as value", "overwrite", {"topic": "t"}, "a topic can only be appended to"),
    ],
    ids=["no topic", "wrong type", "unknown option", "overwrite"],
)
def test_frame_that_cannot_be_written_is_refused_before_any_task(
    spark: "SparkSession", broker: Broker, select: str, mode: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=r".") as error:
        _write(spark.range(1).selectExpr(select), broker.bootstrap, mode, **options)
    assert message in _refusal(error)
    assert "t" not in broker.topics()


@pytest.mark.parametrize(
    ("select", "options", "message"),
    [
        (["if(id = 150, null, 't') as topic", "'x' as value"], {}, "row 50: its topic is null"),
        (
            ["rpad('', if(id = 150, 3000, 5), 'x') as value", "1 as partition"],
            {"topic": "t", "kafka.max.request.size": "2000"},
            "topic 't', partition 1, row 50: the record has 30",
        ),
        (
            ["rpad('', if(id = 150, 9000, 5), 'x') as value", "1 as partition"],
            {"topic": "t"},
            "topic 't', partition 1, row 50: ",
        ),
        (
            ["'x' as value", "if(id = 150, 7, 0) as partition"],
            {"topic": "t"},
            "row 50: topic 't' has partitions 0 to 1",
        ),
        (["'x' as value"], {"topic": "nowhere", "kafka.max.block.ms": "300"}, "topic 'nowhere' does not exist"),
    ],
    ids=["null topic", "larger than a request", "larger than the topic accepts", "no such partition", "no such topic"],
)
def test_bad_row_fails_the_job_and_is_named(
    spark: "SparkSession", select: list[str], options: dict[str, str], message: str
) -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        broker.create_topic("t", partitions=2, configs={"max.message.bytes": "5000"})
        with pytest.raises(Exception, match=r".") as error:
            _write(spark.range(0, 200, 1, 2).selectExpr(*select), broker.bootstrap, **options)
        assert message in _refusal(error)


# --- failures ---------------------------------------------------------------------------------------------------


def test_retried_task_repeats_only_its_own_rows(spark: "SparkSession", broker: Broker) -> None:
    def fail_once(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "it runs in a task"
        for batch in batches:
            yield batch
            if context.partitionId() == 1 and context.attemptNumber() == 0:
                raise RuntimeError("the first attempt fails after its first batch")

    broker.create_topic("retried", partitions=2)
    frame = spark.range(0, 50_000, 1, 2).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    _write(frame.mapInArrow(fail_once, "key string, value string"), broker.bootstrap, topic="retried")
    counts = Counter(int(record.value or b"") for record in read_topic(broker.bootstrap, "retried"))
    assert set(counts) == set(range(50_000))
    assert all(count == 1 for number, count in counts.items() if number < 25_000)
    assert max(counts.values()) <= 2


def test_broker_that_restarts_between_jobs_gets_the_rows_of_both(spark: "SparkSession", broker: Broker) -> None:
    broker.create_topic("restarted", partitions=2)
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
    _write(frame, broker.bootstrap, topic="restarted")
    broker.kill()
    broker.start()
    _write(frame, broker.bootstrap, topic="restarted")
    counts = Counter(record.value for record in read_topic(broker.bootstrap, "restarted"))
    assert counts == {b"%d" % number: 2 for number in range(100)}


# --- streams ----------------------------------------------------------------------------------------------------


@pytest.fixture
def words(spark: "SparkSession", tmp_path: Path) -> "DataFrame":
    """A stream of three micro-batches of words."""
    directory = tmp_path / "words"
    directory.mkdir()
    for number, text in enumerate(["a b a", "b", "c a"]):
        file = directory / f"{number}.txt"
        file.write_text("\n".join(text.split()))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes the oldest first
    return spark.readStream.option("maxFilesPerTrigger", "1").text(str(directory))


def _run(writer: Any, tmp_path: Path) -> None:
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120), "the query does not end"
    finally:
        query.stop()


def _counts(frame: "DataFrame") -> "DataFrame":
    return frame.groupBy("value").count().selectExpr("value as key", "cast(count as string) as value")


def _sent(bootstrap: str, topic: str) -> Counter[tuple[bytes | None, bytes | None]]:
    return Counter((record.key, record.value) for record in read_topic(bootstrap, topic))


def test_stream_appends_each_row_once(words: "DataFrame", broker: Broker, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "words"}
    _run(words.writeStream.format("barnabas").options(**options).queryName("words"), tmp_path)
    assert _sent(broker.bootstrap, "words") == {(None, b"a"): 3, (None, b"b"): 2, (None, b"c"): 1}
    _run(words.writeStream.format("barnabas").options(**options), tmp_path)
    assert _sent(broker.bootstrap, "words").total() == 6, "a restarted query goes on where it was"


def test_complete_mode_sends_the_whole_result_with_each_batch(
    words: "DataFrame", broker: Broker, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "counts"}
    _run(_counts(words).writeStream.format("barnabas").outputMode("complete").options(**options), tmp_path)
    assert _sent(broker.bootstrap, "counts") == {
        (b"a", b"2"): 2,
        (b"a", b"3"): 1,
        (b"b", b"1"): 1,
        (b"b", b"2"): 2,
        (b"c", b"1"): 1,
    }


def test_update_mode_sends_what_changed(words: "DataFrame", broker: Broker, tmp_path: Path) -> None:
    from barnabas.spark import write_stream

    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "updates"}
    _run(write_stream(_counts(words), options), tmp_path)
    assert _sent(broker.bootstrap, "updates") == {
        (b"a", b"2"): 1,
        (b"b", b"1"): 1,
        (b"b", b"2"): 1,
        (b"c", b"1"): 1,
        (b"a", b"3"): 1,
    }


def test_update_mode_refuses_wrong_options_before_it_starts(words: "DataFrame", broker: Broker) -> None:
    from barnabas.base.errors import InvalidSetting
    from barnabas.spark import write_stream

    with pytest.raises(InvalidSetting, match="did you mean 'topic'"):
        write_stream(_counts(words), {"kafka.bootstrap.servers": broker.bootstrap, "topik": "x"})
