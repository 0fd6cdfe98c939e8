"""Partitions that are added while a client holds older metadata, against a broker."""

import struct
from collections.abc import Iterator

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import UnknownTopic
from barnabas.client.offsets import end_offsets
from barnabas.client.producing.producer import Producer
from barnabas.client.reading.consumer import Consumer
from barnabas.client.reading.ranges import RangeReader
from barnabas.records.columns import decode_run
from barnabas.testing import Broker
from tests.support.kernels import build_batch

TOPIC = "orders"
ADDED = TopicPartition(TOPIC, 2)
MISSING = TopicPartition(TOPIC, 3)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic(TOPIC, 2)
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[BlockingClient]:
    """Knows the topic as it was before it got its third partition."""
    with BlockingClient(broker.bootstrap) as opened, BlockingClient(broker.bootstrap) as other:
        opened.wait_for(opened.cluster.topic(TOPIC))
        other.wait_for(other.admin.create_partitions(TOPIC, 3))
        broker.append(TOPIC, [b"first", b"second"], partition=ADDED.partition)
        assert len(opened.cluster.view.topic(TOPIC).partitions) == 2
        yield opened


async def _values(client: BlockingClient, partition: TopicPartition, end: int) -> list[bytes | None]:
    async with RangeReader(client.cluster, partition, 0, end) as reader:
        run = await reader.next_run()
        return [] if run is None else [record.value for record in run.records()]


def test_range_of_an_added_partition_is_read(client: BlockingClient) -> None:
    assert client.wait_for(_values(client, ADDED, 2)) == [b"first", b"second"]


def test_offsets_of_an_added_partition_are_found(client: BlockingClient) -> None:
    assert client.wait_for(end_offsets(client.cluster, [ADDED])) == {ADDED: 2}


def test_consumer_reads_an_added_partition(client: BlockingClient) -> None:
    async def consumed() -> int:
        async with Consumer(client.cluster) as consumer:
            consumer.assign({ADDED: 0})
            return sum([len(list(run.records())) for run in await consumer.poll()])

    assert client.wait_for(consumed()) == 2


def test_producer_writes_to_an_added_partition(broker: Broker, client: BlockingClient) -> None:
    async def send() -> None:
        async with Producer(client.cluster) as producer:
            await producer.send(TOPIC, b"third", partition=ADDED.partition)
            await producer.flush()

    client.wait_for(send())
    assert [record.value for record in broker.records(TOPIC, partition=ADDED.partition)][-1] == b"third"


def test_producer_writes_columns_to_an_added_partition(broker: Broker, client: BlockingClient) -> None:
    columns = decode_run(build_batch(2)).columns

    async def send() -> None:
        async with Producer(client.cluster) as producer:
            await producer.send_columns(TOPIC, columns, partitions=struct.pack("<2i", 0, ADDED.partition))
            await producer.flush()

    client.wait_for(send())
    assert len(broker.records(TOPIC, partition=ADDED.partition)) == 3


def test_partition_that_was_not_added_either_is_refused(client: BlockingClient) -> None:
    with pytest.raises(UnknownTopic, match="partitions 0 to 2, not 3"):
        client.wait_for(_values(client, MISSING, 1))
    with pytest.raises(UnknownTopic, match="partitions 0 to 2, not 3"):
        client.wait_for(end_offsets(client.cluster, [MISSING]))
