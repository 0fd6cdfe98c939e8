"""aiokafka."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.support.cluster_clients.calls import (
    PARTITIONS,
    PARTITIONS_BEFORE,
    REPLICAS,
    RETENTION_MS,
    TIMEOUT_SECONDS,
    Consumed,
    Described,
    Overview,
)
from tests.support.cluster_clients.python_members import member_command


class Aiokafka:
    def overview(self, bootstrap: str) -> Overview:
        async def look() -> Overview:
            async with _administering(bootstrap) as admin:
                seen = await admin.describe_cluster()
            addresses = frozenset(f"{one['host']}:{one['port']}" for one in seen["brokers"])
            return Overview(addresses, seen["controller_id"])

        return asyncio.run(asyncio.wait_for(look(), TIMEOUT_SECONDS))

    def produce(self, bootstrap: str, topic: str, records: Mapping[str, str]) -> None:
        async def produce() -> None:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
                sent = [await producer.send(topic, value.encode(), key.encode()) for key, value in records.items()]
                await asyncio.gather(*sent)

        asyncio.run(asyncio.wait_for(produce(), TIMEOUT_SECONDS))

    def consume(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        async def consume() -> list[Consumed]:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
            await consumer.start()
            try:
                consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
                records = [await consumer.getone() for _ in range(count)]
            finally:
                await consumer.stop()
            return [Consumed(one.partition, one.key.decode(), one.value.decode()) for one in records]

        return asyncio.run(asyncio.wait_for(consume(), TIMEOUT_SECONDS))

    def member(self, bootstrap: str, group: str, topic: str) -> Sequence[str]:
        return member_command("aiokafka", bootstrap, group, topic)

    def create(self, bootstrap: str, topic: str) -> str:
        return asyncio.run(asyncio.wait_for(_create(bootstrap, topic), TIMEOUT_SECONDS))

    def describe_and_delete(self, bootstrap: str, topic: str) -> Described:
        return asyncio.run(asyncio.wait_for(_describe_and_delete(bootstrap, topic), TIMEOUT_SECONDS))


@asynccontextmanager
async def _administering(bootstrap: str) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def _create(bootstrap: str, topic: str) -> str:
    """It raises no refusals, but returns the answers."""
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": RETENTION_MS})
    async with _administering(bootstrap) as admin:
        refused = await admin.create_topics([NewTopic(topic, PARTITIONS_BEFORE, 9)])
        await admin.create_topics([NewTopic(topic, PARTITIONS_BEFORE, REPLICAS)])
        await admin.create_partitions({topic: NewPartitions(PARTITIONS)})
        await admin.alter_configs([changed])
    return str(refused)


async def _describe_and_delete(bootstrap: str, topic: str) -> Described:
    async with _administering(bootstrap) as admin:
        (described,) = await admin.describe_topics([topic])
        leaders = {one["partition"]: one["leader"] for one in described["partitions"]}
        (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        entries = {entry[0]: entry[1] for entry in configs.resources[0][4]}
        await admin.delete_topics([topic])
    return Described(tuple(leaders[one] for one in sorted(leaders)), entries["retention.ms"])
