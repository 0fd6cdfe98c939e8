"""confluent-kafka (librdkafka) against Barnabas: what its users do, with nothing but the address changed."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from barnabas.testing import ApiKey, Broker, ErrorCode

BOTH_CODECS = True

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUIET = {"log_level": 0}
TIMEOUT_SECONDS = 180


def producer(bootstrap: str, **options: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 100, **QUIET, **options})


@contextmanager
def assigned(bootstrap: str, *partitions: TopicPartition, **options: object) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, **QUIET, **options}
    with closing(Consumer(settings)) as consumer:
        consumer.assign(list(partitions))
        yield consumer


def values(messages: list[Message]) -> list[bytes]:
    assert [message.error() for message in messages if message.error()] == []
    return [message.value() for message in messages]


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **QUIET})


@pytest.mark.parametrize("codec", CODECS)
def test_records_go_through_unchanged_with_every_codec(barnabas_broker: Broker, codec: str) -> None:
    client = producer(barnabas_broker.bootstrap, **{"compression.type": codec, "linger.ms": 50})
    for number in range(100):
        client.produce("orders", b"value %d" % number * 10, key=b"key", headers=[("h", b"1"), ("h", None)])
    assert client.flush(TIMEOUT_SECONDS) == 0

    with assigned(barnabas_broker.bootstrap, TopicPartition("orders", 0, OFFSET_BEGINNING)) as consumer:
        messages = consumer.consume(100, TIMEOUT_SECONDS)

    assert values(messages) == [b"value %d" % number * 10 for number in range(100)]
    assert {message.key() for message in messages} == {b"key"}
    assert messages[0].headers() == [("h", b"1"), ("h", None)]
    assert {record.compression for record in barnabas_broker.records("orders")} == {codec}


def test_consumer_starts_at_any_offset_and_at_any_time(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("orders", configs={"retention.ms": -1})
    for number in range(10):
        barnabas_broker.append("orders", [b"%d" % number], timestamp_ms=1_000 + number * 100)

    with assigned(barnabas_broker.bootstrap, TopicPartition("orders", 0, 7)) as consumer:
        assert values(consumer.consume(3, TIMEOUT_SECONDS)) == [b"7", b"8", b"9"]
        (found,) = consumer.offsets_for_times([TopicPartition("orders", 0, 1_450)], TIMEOUT_SECONDS)
        assert found.offset == 5
        consumer.seek(TopicPartition("orders", 0, found.offset))
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None
        assert (message.value(), message.timestamp()) == (b"5", (TIMESTAMP_CREATE_TIME, 1_500))
        assert consumer.get_watermark_offsets(TopicPartition("orders", 0), TIMEOUT_SECONDS) == (0, 10)


def test_consumer_gets_records_as_they_come(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("orders", partitions=2)
    partitions = [TopicPartition("orders", index, OFFSET_BEGINNING) for index in range(2)]
    with assigned(barnabas_broker.bootstrap, *partitions) as consumer:
        for number in range(3):
            barnabas_broker.append("orders", [b"%d" % number], partition=number % 2)
            message = consumer.poll(TIMEOUT_SECONDS)
            assert message is not None
            assert message.value() == b"%d" % number


def test_consumer_reads_from_the_beginning_after_its_offset_was_deleted(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("orders")
    barnabas_broker.append("orders", [b"%d" % number for number in range(10)])
    client = admin(barnabas_broker.bootstrap)
    deleted = client.delete_records([TopicPartition("orders", 0, 4)])
    assert [future.result(TIMEOUT_SECONDS).low_watermark for future in deleted.values()] == [4]

    with assigned(
        barnabas_broker.bootstrap, TopicPartition("orders", 0, 1), **{"auto.offset.reset": "earliest"}
    ) as consumer:
        assert values(consumer.consume(6, TIMEOUT_SECONDS)) == [b"%d" % number for number in range(4, 10)]


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_idempotent_producer_goes_on_after_a_restart_without_a_gap_or_a_duplicate(
    barnabas_broker: Broker, is_clean: bool
) -> None:
    client = producer(barnabas_broker.bootstrap, **{"enable.idempotence": True, "linger.ms": 0})
    for number in range(300):
        client.produce("orders", b"%d" % number)
        client.poll(0)
        if number == 100:
            assert client.flush(TIMEOUT_SECONDS) == 0
        if number == 150:
            if is_clean:
                barnabas_broker.stop()
            else:
                barnabas_broker.kill()
        if number == 200:
            barnabas_broker.start()
    assert client.flush(TIMEOUT_SECONDS) == 0

    assert [record.value for record in barnabas_broker.records("orders")] == [b"%d" % number for number in range(300)]


def test_idempotent_producer_stores_once_what_it_sent_twice(barnabas_broker: Broker) -> None:
    client = producer(barnabas_broker.bootstrap, **{"enable.idempotence": True})
    lost = barnabas_broker.lose_answers(ApiKey.PRODUCE, times=2)
    client.produce("orders", b"once")

    assert client.flush(TIMEOUT_SECONDS) == 0
    assert lost.used == 2
    assert [record.value for record in barnabas_broker.records("orders")] == [b"once"]


def test_producer_tries_again_after_an_error_that_passes(barnabas_broker: Broker) -> None:
    client = producer(barnabas_broker.bootstrap)
    failure = barnabas_broker.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, times=2)
    client.produce("orders", b"late")

    assert client.flush(TIMEOUT_SECONDS) == 0
    assert failure.used == 2
    assert [record.value for record in barnabas_broker.records("orders")] == [b"late"]


def test_transactional_producer_is_refused_at_once(barnabas_broker: Broker) -> None:
    client = producer(barnabas_broker.bootstrap, **{"transactional.id": "payments"})
    with pytest.raises(KafkaException) as refused:
        client.init_transactions(TIMEOUT_SECONDS)
    assert not refused.value.args[0].retriable()


def test_too_large_record_is_refused_with_kafkas_error(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("small", configs={"max.message.bytes": "100"})
    errors: list[KafkaError | None] = []
    client = producer(barnabas_broker.bootstrap)
    client.produce("small", b"x" * 200, on_delivery=lambda error, message: errors.append(error))
    client.flush(TIMEOUT_SECONDS)

    assert [error.code() for error in errors if error] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_admin_makes_shows_grows_and_deletes_topics(barnabas_broker: Broker) -> None:
    client = admin(barnabas_broker.bootstrap)
    client.create_topics([NewTopic("orders", 3, 1, config={"cleanup.policy": "compact"})])["orders"].result(
        TIMEOUT_SECONDS
    )
    with pytest.raises(KafkaException) as exists:
        client.create_topics([NewTopic("orders", 1)])["orders"].result(TIMEOUT_SECONDS)
    assert exists.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert len(client.list_topics("orders", TIMEOUT_SECONDS).topics["orders"].partitions) == 3

    client.create_partitions([NewPartitions("orders", 5)])["orders"].result(TIMEOUT_SECONDS)
    assert len(client.list_topics("orders", TIMEOUT_SECONDS).topics["orders"].partitions) == 5

    client.delete_topics(["orders"])["orders"].result(TIMEOUT_SECONDS)
    assert "orders" not in client.list_topics(timeout=TIMEOUT_SECONDS).topics


def test_admin_reads_and_changes_settings(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("orders", configs={"retention.ms": "1000"})
    client = admin(barnabas_broker.bootstrap)
    resource = ConfigResource(ResourceType.TOPIC, "orders")
    assert client.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)["retention.ms"].value == "1000"

    change = ConfigResource(ResourceType.TOPIC, "orders")
    change.add_incremental_config(ConfigEntry("retention.ms", "2000", incremental_operation=AlterConfigOpType.SET))
    client.incremental_alter_configs([change])[change].result(TIMEOUT_SECONDS)

    described = client.describe_configs([resource])[resource].result(TIMEOUT_SECONDS)
    assert (described["retention.ms"].value, described["segment.bytes"].value) == ("2000", "1073741824")


def test_admin_describes_cluster_and_lists_offsets(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("orders", configs={"retention.ms": -1})
    barnabas_broker.append("orders", [b"a", b"b"], timestamp_ms=5_000)
    client = admin(barnabas_broker.bootstrap)
    cluster = client.describe_cluster().result(TIMEOUT_SECONDS)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [barnabas_broker.bootstrap]
    assert cluster.controller.id == cluster.nodes[0].id

    partition = TopicPartition("orders", 0)
    listed = {}
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp()):
        listed[type(spec).__name__] = client.list_offsets({partition: spec})[partition].result(TIMEOUT_SECONDS).offset
    assert list(listed.values()) == [0, 2, 0]
