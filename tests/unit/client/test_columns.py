"""Columns through the producer, against brokers that fail in every way: each row once, in order, or named."""

import asyncio
import random
import struct
import sys

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.broker_connection import ConnectionOptions
from barnabas.client.cluster import Cluster, ClusterOptions
from barnabas.client.errors import UnknownTopic
from barnabas.client.producing.partitioner import partition_for_key
from barnabas.client.producing.producer import Producer, ProducerOptions
from barnabas.client.reading.column_builder import ColumnBuilder
from barnabas.records.batch import Codec
from barnabas.records.builder import Header
from barnabas.records.results import Columns
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.network import run
from tests.support.played_cluster import Fault, PlayedCluster

QUICK = ClusterOptions(
    ConnectionOptions(request_timeout_seconds=0.2), retry_timeout_seconds=5, backoff_seconds_min=0.001
)
ORDERS = TopicPartition("orders", 0)


def _columns(
    rows: list[tuple[bytes | None, bytes | None]], headers: list[tuple[str, bytes | None]] | None = None
) -> Columns:
    builder = ColumnBuilder()
    for number, (key, value) in enumerate(rows):
        builder.append(1000 + number, key, value, headers or ())
    return builder.finish()


def _values(played: PlayedCluster, index: int = 0) -> list[bytes | None]:
    return [record.value for record in played.logs[TopicPartition("orders", index)].records()]


@pytest.mark.parametrize("codec", list(Codec))
def test_rows_arrive_as_they_were_sent(codec: Codec) -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, ProducerOptions(codec=codec)) as producer:
                await producer.send_columns("orders", _columns([(b"42", b"two"), (None, None)], [("n", b"1")]))
            assert [record[:4] for record in played.logs[ORDERS].records()] == [
                (b"42", b"two", (Header("n", b"1"),), 1000),
                (None, None, (Header("n", b"1"),), 1001),
            ]

    run(scenario())


def test_rows_with_keys_go_where_single_records_go() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 4}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            keys = [b"%d" % number for number in range(200)]
            async with Producer(cluster) as producer:
                await producer.send_columns("orders", _columns([(key, key) for key in keys]))
            for index in range(4):
                assert _values(played, index) == [key for key in keys if partition_for_key(key, 4) == index]

    run(scenario())


def test_rows_without_keys_are_dealt_evenly_over_calls() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 3}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, ProducerOptions(batch_bytes_max=400)) as producer:
                for _ in range(30):
                    await producer.send_columns("orders", _columns([(None, b"x" * 70)] * 3))
            assert [len(_values(played, index)) for index in range(3)] == [30, 30, 30]

    run(scenario())


def test_columns_and_single_records_keep_their_order() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, ProducerOptions(linger_seconds=0.5)) as producer:
                await producer.send("orders", b"1")
                await producer.send_columns("orders", _columns([(None, b"2"), (None, b"3")]))
                await producer.send("orders", b"4")
            assert _values(played) == [b"1", b"2", b"3", b"4"]

    run(scenario())


@pytest.mark.parametrize(
    ("fault", "batch_bytes_max"), [(Fault.DO_AND_CLOSE, [sys.maxsize]), (Fault.CLOSE, [sys.maxsize, 90, 120])]
)
def test_random_faults_lose_repeat_and_reorder_nothing(fault: Fault, batch_bytes_max: list[int]) -> None:
    """No broker calls a batch too large that it has in its log: these two do not come together."""
    source = random.Random(20261116)
    faults = [Fault.CLOSE, ErrorCode.NOT_ENOUGH_REPLICAS, fault]

    async def scenario() -> None:
        async with PlayedCluster({"orders": 3}, brokers=2) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster, ProducerOptions(batch_bytes_max=300)) as producer:
                for call in range(60):
                    if source.random() < 0.3:
                        played.faults[ApiKey.PRODUCE].append(source.choice(faults))
                        played.batch_bytes_max = source.choice(batch_bytes_max)
                    if source.random() < 0.1:
                        played.move_leader(TopicPartition("orders", source.randrange(3)), source.randint(1, 2))
                    rows = [(None, b"%d" % (call * 20 + number)) for number in range(20)]
                    chosen = struct.pack("<20i", *(number % 3 for number in range(20)))
                    await producer.send_columns("orders", _columns(rows), partitions=chosen)
                    await asyncio.sleep(0.001)
                played.faults[ApiKey.PRODUCE].clear()
                await producer.flush()
            for index in range(3):
                expected = [b"%d" % (call * 20 + row) for call in range(60) for row in range(20) if row % 3 == index]
                assert _values(played, index) == expected

    run(scenario())


def test_batch_that_is_too_large_is_parted_until_it_fits() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            async with Producer(cluster) as producer:
                played.faults[ApiKey.PRODUCE] += [ErrorCode.MESSAGE_TOO_LARGE] * 3
                values = [b"%d" % number for number in range(8)]
                await producer.send_columns("orders", _columns([(None, value) for value in values]))
                await producer.flush()
            assert _values(played) == values
            assert len(played.logs[ORDERS].batches) == 4

    run(scenario())


def test_row_that_the_broker_finds_too_large_is_named() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            producer = Producer(cluster)
            played.faults[ApiKey.PRODUCE] += [ErrorCode.MESSAGE_TOO_LARGE] * 3
            await producer.send_columns("orders", _columns([(None, b"x")] * 4), row_numbers=range(100, 104))
            with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE: topic 'orders', partition 0, row 100: "):
                await producer.flush()
            await producer.close()

    run(scenario())


def test_refused_batch_names_its_rows_and_fails_the_next_call() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            producer = Producer(cluster)
            played.faults[ApiKey.PRODUCE].append(ErrorCode.INVALID_RECORD)
            await producer.send_columns("orders", _columns([(None, b"x")] * 5), row_numbers=range(50, 55))
            await asyncio.wait([batch.outcome for batch in producer._accumulator.batches()])
            with pytest.raises(
                KafkaError, match="INVALID_RECORD: topic 'orders', partition 0, one of 5 rows from 50 to 54: "
            ):
                await producer.send_columns("orders", _columns([(None, b"y")]))
            await producer.flush()
            await producer.close()

    run(scenario())


def test_row_larger_than_a_request_is_refused_before_it_is_sent() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            producer = Producer(cluster, ProducerOptions(record_bytes_max=1000))
            rows = [(None, b"x" * 600), (None, b"x" * 1000)]
            message = r"topic 'orders', partition 0, row 8: the record has 1009 bytes, more than the 1000"
            with pytest.raises(KafkaError, match=message):
                await producer.send_columns("orders", _columns(rows), row_numbers=[7, 8])
            await producer.close()

    run(scenario())


def test_partition_that_the_topic_does_not_have_is_refused_with_its_row() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 2}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            producer = Producer(cluster)
            chosen = struct.pack("<2i", 1, 2)
            with pytest.raises(UnknownTopic, match="row 31: topic 'orders' has partitions 0 to 1, not 2"):
                await producer.send_columns(
                    "orders", _columns([(None, b"x")] * 2), partitions=chosen, row_numbers=range(30, 32)
                )
            await producer.close()

    run(scenario())


def test_full_buffer_makes_columns_wait_and_then_go_on() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            options = ProducerOptions(buffer_bytes_max=3000, batch_bytes_max=1000)
            sizes = []
            async with Producer(cluster, options) as producer:
                for _ in range(20):
                    await producer.send_columns("orders", _columns([(None, b"x" * 100)] * 10))
                    sizes.append(producer._accumulator.size_bytes)
                    producer._accumulator.check_invariants()
            assert max(sizes) <= 3000
            assert len(_values(played)) == 200

    run(scenario())
