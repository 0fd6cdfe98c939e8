"""Our client does the same against Barnabas and against Apache Kafka, and other people's clients understand it."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import confluent_kafka
import pytest
import uvloop

from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import Cluster
from barnabas.client.configs import ConfigSource, Resource, ResourceType, alter_configs, describe_configs
from barnabas.client.errors import UnknownTopic
from barnabas.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, Isolation, end_offsets, list_offsets, start_offsets
from barnabas.client.producing.producer import Producer, ProducerOptions
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.client.reading.fetched import ConsumedRecord
from barnabas.records.batch import Codec
from barnabas.records.builder import Header
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.either_broker import EITHER, either_broker
from tests.support.kafka import KafkaNode

PATIENCE_SECONDS = 180
_numbers = itertools.count()


@pytest.fixture(scope="module", params=EITHER)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of each kind, one for all tests here: each makes topics of its own."""
    with either_broker(request, tmp_path_factory) as addresses:
        yield addresses


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"orders-{next(_numbers)}"


def run(bootstrap: str, scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), Cluster(bootstrap) as cluster:
            await scenario(cluster)

    uvloop.run(bounded())


async def read_all(
    cluster: Cluster, positions: dict[TopicPartition, int], isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> list[ConsumedRecord]:
    """What is between the positions and the end."""
    ends = await end_offsets(cluster, positions, isolation)
    records: list[ConsumedRecord] = []
    async with Consumer(cluster, ConsumerOptions(isolation=isolation)) as consumer:
        consumer.assign(positions)
        while any(offset < ends[partition] for partition, offset in consumer.positions.items()):
            for one in await consumer.poll():
                records += one.records()
    return records


@pytest.mark.parametrize("codec", list(Codec))
def test_records_go_out_and_come_back(bootstrap: str, topic: str, codec: Codec) -> None:
    place = TopicPartition(topic, 0)

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(topic, partitions=1, configs={"retention.ms": "-1"})
        async with Producer(cluster, ProducerOptions(codec=codec, batch_bytes_max=20_000)) as producer:
            first = await producer.send(
                topic, b"\xff\x00", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp_ms=1_700_000_000_000
            )
            await producer.send(topic, None, key=b"tombstone")
            for number in range(2000):
                last = await producer.send(topic, b"value %d" % number)
            assert (await first).offset == 0
            assert (await last).offset == 2001
        records = await read_all(cluster, {place: 0})
        headers = (Header("h", b"1"), Header("h", None))
        assert records[0] == (place, 0, 1_700_000_000_000, b"k", b"\xff\x00", headers)
        assert (records[1].key, records[1].value) == (b"tombstone", None)
        assert [record.value for record in records[2:]] == [b"value %d" % number for number in range(2000)]
        assert [record.offset for record in await read_all(cluster, {place: 1999})] == [1999, 2000, 2001]

    run(bootstrap, scenario)


def test_keys_go_to_the_partitions_that_other_clients_choose(bootstrap: str, topic: str) -> None:
    keys = [b"%d" % number for number in range(50)] + [b"", b"a longer key than eight"]

    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(topic, partitions=7)
        async with Producer(cluster) as producer:
            ours = {key: (await (await producer.send(topic, b"", key=key))).partition.partition for key in keys}
        theirs: dict[bytes, int] = {}
        other = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
        for key in keys:
            other.produce(
                topic, b"", key=key, on_delivery=lambda _, sent: theirs.update({sent.key(): sent.partition()})
            )
        assert other.flush(PATIENCE_SECONDS) == 0
        # librdkafka chooses at random for an empty key, where Java's client hashes it.
        assert {key: theirs[key] for key in keys if key} == {key: ours[key] for key in keys if key}

    run(bootstrap, scenario)


def test_records_without_a_key_reach_every_partition(bootstrap: str, topic: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(topic, partitions=3)
        async with Producer(cluster, ProducerOptions(batch_bytes_max=2000)) as producer:
            for _ in range(2000):
                await producer.send(topic, b"x" * 50)
        ends = await end_offsets(cluster, [TopicPartition(topic, index) for index in range(3)])
        assert sum(ends.values()) == 2000
        assert min(ends.values()) > 200

    run(bootstrap, scenario)


def test_offsets_are_found_by_place_and_time(bootstrap: str, topic: str) -> None:
    place = TopicPartition(topic, 0)
    start_ms = 1_700_000_000_000

    async def scenario(cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topic(topic, partitions=1, configs={"retention.ms": "-1"})
        async with Producer(cluster) as producer:
            for number in (0, 1, 5, 3):
                await (await producer.send(topic, b"", timestamp_ms=start_ms + number * 1000))

        async def at(time_ms: int) -> tuple[int, int] | None:
            found = (await list_offsets(cluster, {place: time_ms}))[place]
            return None if found is None else (found.offset, found.timestamp_ms)

        assert await at(EARLIEST) == (0, -1)
        assert await at(LATEST) == (4, -1)
        assert await at(MAX_TIMESTAMP) == (2, start_ms + 5000)
        assert await at(start_ms + 500) == (1, start_ms + 1000)
        assert await at(start_ms + 2000) == (2, start_ms + 5000)
        assert await at(start_ms + 6000) is None
        assert await admin.delete_records({place: 2}) == {place: 2}
        assert await start_offsets(cluster, [place]) == {place: 2}
        async with Consumer(cluster, ConsumerOptions(out_of_range=EARLIEST)) as consumer:
            consumer.assign({place: 0})
            (first,) = await consumer.poll()
            assert [record.offset for record in first.records()] == [2, 3]

    run(bootstrap, scenario)


def test_topics_are_made_changed_and_deleted(bootstrap: str, topic: str) -> None:
    resource = Resource(ResourceType.TOPIC, topic)

    async def chosen(cluster: Cluster) -> dict[str, str | None]:
        entries = await describe_configs(cluster, resource)
        return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}

    async def scenario(cluster: Cluster) -> None:
        admin = Admin(cluster)
        assert (await admin.create_topic(topic, validate_only=True)).name == topic
        created = await admin.create_topic(topic, partitions=2, configs={"cleanup.policy": "compact"})
        assert (created.partitions, created.replication_factor) == (2, 1)
        described = await admin.topic(topic)
        assert described.topic_id == created.topic_id
        assert topic in [one.name for one in await admin.topics()]
        await admin.create_partitions(topic, 4)
        assert len((await admin.topic(topic)).partitions) == 4
        await alter_configs(cluster, resource, set_values={"retention.ms": "1000"}, unset_names=["cleanup.policy"])
        assert await chosen(cluster) == {"retention.ms": "1000"}
        (one,) = await describe_configs(cluster, resource, ["max.message.bytes"])
        assert (one.value, one.is_set) == ("1048588", False)
        await admin.delete_topic(topic)
        with pytest.raises(UnknownTopic, match=f"topic '{topic}' does not exist"):
            await admin.topic(topic)

    run(bootstrap, scenario)


def test_requests_that_a_broker_refuses_come_back_with_its_code(bootstrap: str, topic: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topic(topic, partitions=2, configs={"max.message.bytes": "1000"})
        resource = Resource(ResourceType.TOPIC, topic)

        async def produce_large() -> None:
            async with Producer(cluster) as producer:
                await producer.send(topic, b"x" * 2000)

        refusals: list[tuple[ErrorCode, Callable[[], Coroutine[Any, Any, Any]]]] = [
            (ErrorCode.TOPIC_ALREADY_EXISTS, lambda: admin.create_topic(topic)),
            (ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: admin.create_topic("a b")),
            (ErrorCode.INVALID_REPLICATION_FACTOR, lambda: admin.create_topic("many", replication_factor=9)),
            (ErrorCode.INVALID_CONFIG, lambda: admin.create_topic("odd", configs={"retention.ms": "soon"})),
            (ErrorCode.INVALID_PARTITIONS, lambda: admin.create_partitions(topic, 1)),
            (ErrorCode.INVALID_CONFIG, lambda: alter_configs(cluster, resource, set_values={"no.such": "1"})),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: admin.delete_topic("nobody-made-it")),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: admin.create_partitions("nobody-made-it", 3)),
            (ErrorCode.MESSAGE_TOO_LARGE, produce_large),
        ]
        for code, attempt in refusals:
            with pytest.raises(KafkaError) as refused:
                await attempt()
            assert refused.value.code is code, refused.value

    run(bootstrap, scenario)


def test_cluster_and_its_disks_are_described(bootstrap: str, topic: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topic(topic, partitions=1)
        async with Producer(cluster) as producer:
            await producer.send(topic, b"x" * 1000)
        described = await admin.describe_cluster()
        assert described.cluster_id == cluster.view.cluster_id
        assert [f"{broker.host}:{broker.port}" for broker in described.brokers] == [bootstrap]
        (directory,) = await admin.log_directories()
        assert directory.problem is ErrorCode.NONE
        assert directory.partition_bytes[TopicPartition(topic, 0)] > 1000
        settings = await describe_configs(cluster, Resource(ResourceType.BROKER, str(directory.node_id)))
        assert "log.retention.ms" in {entry.name for entry in settings}

    run(bootstrap, scenario)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_producer_and_consumer_live_through_restarts(end: str) -> None:
    place = TopicPartition("orders", 0)
    values = [b"%d" % number for number in range(3000)]

    async def scenario(broker: Broker, cluster: Cluster) -> None:
        await Admin(cluster).create_topic("orders", partitions=1)
        restarting = asyncio.Event()

        async def produce() -> None:
            async with Producer(cluster, ProducerOptions(linger_seconds=0, batch_bytes_max=1000)) as producer:
                for number, value in enumerate(values):
                    await producer.send("orders", value)
                    if number % 1000 == 500:
                        restarting.set()
                    if number % 10 == 0:
                        await asyncio.sleep(0.001)

        async def restart() -> None:
            for _ in range(3):
                await restarting.wait()
                restarting.clear()
                await asyncio.to_thread(getattr(broker, end))
                await asyncio.to_thread(broker.start)

        async def consume() -> list[bytes | None]:
            seen: list[bytes | None] = []
            async with Consumer(cluster, ConsumerOptions(wait_ms_max=50)) as consumer:
                consumer.assign({place: 0})
                async for record in consumer.records():
                    assert record.offset == len(seen)
                    seen.append(record.value)
                    if len(seen) == len(values):
                        break
            return seen

        _, _, seen = await asyncio.gather(produce(), restart(), consume())
        assert seen == values

    with Broker() as broker:
        run(broker.bootstrap, lambda cluster: scenario(broker, cluster))


def test_blocking_client_does_the_same(bootstrap: str, topic: str) -> None:
    with BlockingClient(bootstrap) as client:
        client.create_topic(topic, partitions=2)
        values = [b"%d" % number for number in range(100)]
        delivered = client.produce(topic, values, key=lambda value: value)
        assert {one.partition.partition for one in delivered} == {0, 1}
        assert sorted(record.value or b"" for record in client.read(topic)) == sorted(values)
        assert next(client.read(topic, positions={1: 3})).offset == 3
        assert topic in [one.name for one in client.topics()]
        client.delete_topic(topic)
        with pytest.raises(UnknownTopic):
            client.delete_topic(topic)


@pytest.mark.kafka
def test_aborted_transactions_of_kafka_are_left_out(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    request.getfixturevalue("kafka")
    place = TopicPartition("orders", 0)
    with KafkaNode(tmp_path_factory.mktemp("kafka")) as node:

        async def scenario(cluster: Cluster) -> None:
            await Admin(cluster).create_topic("orders", partitions=1)
            producer = confluent_kafka.Producer(
                {"bootstrap.servers": node.bootstrap_servers, "transactional.id": "castle"}
            )
            producer.init_transactions(PATIENCE_SECONDS)
            for number in range(6):
                producer.begin_transaction()
                for part in range(3):
                    producer.produce("orders", b"%d.%d" % (number, part), partition=0)
                producer.flush(PATIENCE_SECONDS)
                (producer.abort_transaction if number % 2 else producer.commit_transaction)(PATIENCE_SECONDS)
            producer.begin_transaction()
            producer.produce("orders", b"open", partition=0)
            assert producer.flush(PATIENCE_SECONDS) == 0
            committed = [b"%d.%d" % (number, part) for number in (0, 2, 4) for part in range(3)]
            records = await read_all(cluster, {place: 0}, Isolation.READ_COMMITTED)
            assert [record.value for record in records] == committed
            assert len(await read_all(cluster, {place: 0})) == 19
            # From the middle of an aborted transaction, whose beginning is not fetched.
            later = await read_all(cluster, {place: 5}, Isolation.READ_COMMITTED)
            assert [record.value for record in later] == committed[3:]
            producer.abort_transaction(PATIENCE_SECONDS)

        run(node.bootstrap_servers, scenario)
