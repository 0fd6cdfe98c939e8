"""aiokafka against Barnabas. Its consumer is used with `assign`, as it is where groups are not wanted."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from barnabas.testing import Broker

BOTH_CODECS = True

ORDERS = TopicPartition("orders", 0)
TIMEOUT_SECONDS = 180


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, TIMEOUT_SECONDS))


@asynccontextmanager
async def assigned(bootstrap: str, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None, **options)
    await consumer.start()
    try:
        consumer.assign([ORDERS])
        yield consumer
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_go_through_unchanged_with_every_codec(barnabas_broker: Broker, codec: str | None) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=barnabas_broker.bootstrap, compression_type=codec, linger_ms=50
        ) as producer:
            sent = [
                await producer.send("orders", b"value %d" % number * 10, key=b"key", headers=[("h", b"1")])
                for number in range(100)
            ]
            assert [(await one).offset for one in sent] == list(range(100))
        async with assigned(barnabas_broker.bootstrap) as consumer:
            await consumer.seek_to_beginning(ORDERS)
            records = [await consumer.getone() for _ in range(100)]
        assert [record.value for record in records] == [b"value %d" % number * 10 for number in range(100)]
        assert (records[0].key, records[0].headers) == (b"key", (("h", b"1"),))

    run(scenario())
    assert {record.compression for record in barnabas_broker.records("orders")} == {codec or "none"}


def test_consumer_starts_at_any_offset_and_at_any_time(barnabas_broker: Broker) -> None:
    barnabas_broker.create_topic("orders", configs={"retention.ms": -1})
    for number in range(10):
        barnabas_broker.append("orders", [b"%d" % number], timestamp_ms=1_000 + number * 100)

    async def scenario() -> None:
        async with assigned(barnabas_broker.bootstrap) as consumer:
            found = (await consumer.offsets_for_times({ORDERS: 1_450}))[ORDERS]
            assert (found.offset, found.timestamp) == (5, 1_500)
            consumer.seek(ORDERS, found.offset)
            assert (await consumer.getone()).value == b"5"
            consumer.seek(ORDERS, 9)
            assert (await consumer.getone()).value == b"9"
            assert await consumer.beginning_offsets([ORDERS]) == {ORDERS: 0}
            assert await consumer.end_offsets([ORDERS]) == {ORDERS: 10}

    run(scenario())


def test_idempotent_producer_goes_on_after_a_restart_without_a_gap_or_a_duplicate(barnabas_broker: Broker) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=barnabas_broker.bootstrap, enable_idempotence=True, retry_backoff_ms=20
        ) as producer:
            sent = []
            for number in range(200):
                sent.append(await producer.send("orders", b"%d" % number))
                if number == 100:
                    await sent[0]
                    await asyncio.to_thread(barnabas_broker.restart)
            await asyncio.gather(*sent)

    run(scenario())
    assert [record.value for record in barnabas_broker.records("orders")] == [b"%d" % number for number in range(200)]


def test_admin_calls(barnabas_broker: Broker) -> None:
    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=barnabas_broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic("orders", 2, 1, topic_configs={"retention.ms": "1000"})])
            assert await admin.list_topics() == ["orders"]
            (described,) = await admin.describe_topics(["orders"])
            assert [one["partition"] for one in described["partitions"]] == [0, 1]
            (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "orders")])
            entries = {entry[0]: entry[1] for entry in configs.resources[0][4]}
            assert entries["retention.ms"] == "1000"
            assert (await admin.describe_cluster())["brokers"][0]["node_id"] == 1
            await admin.delete_topics(["orders"])
            assert await admin.list_topics() == []
        finally:
            await admin.close()

    run(scenario())


def test_broker_can_be_used_in_a_coroutine() -> None:
    async def scenario() -> None:
        async with Broker() as broker, AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            await producer.send("orders", b"two coffees")
            (record,) = await asyncio.to_thread(broker.records, "orders", 1)
            assert record.value == b"two coffees"

    run(scenario())
