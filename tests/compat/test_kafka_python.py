"""kafka-python against Barnabas. Its consumer is used with `assign`, as it is where groups are not wanted."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

from barnabas.testing import ApiKey, Broker, ErrorCode

BOTH_CODECS = True

ORDERS = TopicPartition("orders", 0)
TIMEOUT_SECONDS = 180


@contextmanager
def producing(bootstrap: str, **options: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=bootstrap, reconnect_backoff_ms=20, retry_backoff_ms=20, **options)
    try:
        yield producer
    finally:
        producer.close(TIMEOUT_SECONDS)


@contextmanager
def assigned(bootstrap: str, **options: Any) -> Iterator[KafkaConsumer]:
    with closing(
        KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            consumer_timeout_ms=TIMEOUT_SECONDS * 1000,
            **options,
        )
    ) as consumer:
        consumer.assign([ORDERS])
        yield consumer


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_go_through_unchanged_with_every_codec(barnabas_broker: Broker, codec: str | None) -> None:
    with producing(barnabas_broker.bootstrap, compression_type=codec, linger_ms=50) as producer:
        sent = [
            producer.send("orders", b"value %d" % number * 10, key=b"key", headers=[("h", b"1")])
            for number in range(100)
        ]
        producer.flush(TIMEOUT_SECONDS)
        assert [one.get(TIMEOUT_SECONDS).offset for one in sent] == list(range(100))

    with assigned(barnabas_broker.bootstrap) as consumer:
        consumer.seek_to_beginning(ORDERS)
        records = [next(consumer) for _ in range(100)]

    assert [record.value for record in records] == [b"value %d" % number * 10 for number in range(100)]
    assert (records[0].key, list(records[0].headers)) == (b"key", [("h", b"1")])
    assert {record.compression for record in barnabas_broker.records("orders")} == {codec or "none"}


def test_consumer_starts_at_any_offset_and_at_any_time(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("orders", configs={"retention.ms": -1})
    for number in range(10):
        barnabas_broker.append("orders", [b"%d" % number], timestamp_ms=1_000 + number * 100)

    with assigned(barnabas_broker.bootstrap) as consumer:
        found = consumer.offsets_for_times({ORDERS: 1_450})[ORDERS]
        assert (found.offset, found.timestamp) == (5, 1_500)
        consumer.seek(ORDERS, found.offset)
        assert next(consumer).value == b"5"
        consumer.seek(ORDERS, 9)
        assert next(consumer).value == b"9"
        assert consumer.beginning_offsets([ORDERS]) == {ORDERS: 0}
        assert consumer.end_offsets([ORDERS]) == {ORDERS: 10}


def test_idempotent_producer_goes_on_after_a_restart_without_a_gap_or_a_duplicate(barnabas_broker: Broker) -> None:
    with producing(barnabas_broker.bootstrap, enable_idempotence=True) as producer:
        sent = []
        for number in range(200):
            sent.append(producer.send("orders", b"%d" % number))
            if number == 100:
                sent[0].get(TIMEOUT_SECONDS)
                barnabas_broker.restart()
        producer.flush(TIMEOUT_SECONDS)
        assert [one.get(TIMEOUT_SECONDS).offset for one in sent] == list(range(200))

    assert [record.value for record in barnabas_broker.records("orders")] == [b"%d" % number for number in range(200)]


def test_producer_tries_again_when_a_connection_is_dropped(barnabas_broker: Broker) -> None:
    with producing(barnabas_broker.bootstrap, enable_idempotence=True) as producer:
        dropped = barnabas_broker.drop(ApiKey.PRODUCE)
        refused = barnabas_broker.fail(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert producer.send("orders", b"late").get(TIMEOUT_SECONDS).offset == 0
    assert (dropped.used, refused.used) == (1, 1)


def test_admin_calls(barnabas_broker: Broker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=barnabas_broker.bootstrap)
    try:
        admin.create_topics([NewTopic("orders", 2, 1, topic_configs={"retention.ms": "1000"})])
        assert admin.list_topics() == ["orders"]
        admin.create_partitions({"orders": NewPartitions(total_count=3)})
        (described,) = admin.describe_topics(["orders"])
        assert len(described["partitions"]) == 3
        resource = ConfigResource(ConfigResourceType.TOPIC, "orders", {"retention.ms": "2000"})
        admin.alter_configs([resource])
        described_configs = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "orders")])
        assert "'retention.ms'" in str(described_configs)
        assert "2000" in str(described_configs)
        barnabas_broker.append("orders", [b"a", b"b", b"c"])
        admin.delete_records({ORDERS: 2})
        assert [record.value for record in barnabas_broker.records("orders")] == [b"c"]
        assert admin.describe_cluster()["brokers"][0]["port"] == int(barnabas_broker.bootstrap.partition(":")[2])
        admin.delete_topics(["orders"])
        assert admin.list_topics() == []
    finally:
        admin.close()
