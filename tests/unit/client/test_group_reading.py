"""What a member of a group needs of the consumer beneath it: partitions that pause, and a wait that can be ended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.broker_connection import ConnectionOptions
from barnabas.client.cluster import Cluster, ClusterOptions
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.records.builder import BatchBuilder
from tests.support.network import run
from tests.support.played_cluster import PlayedCluster

QUICK = ClusterOptions(
    ConnectionOptions(request_timeout_seconds=0.2), retry_timeout_seconds=5, backoff_seconds_min=0.001
)
BRIEF = ConsumerOptions(wait_ms_max=20)
FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)


def batch(value: bytes) -> bytearray:
    builder = BatchBuilder()
    builder.append(1000, None, value)
    return builder.build()


@asynccontextmanager
async def reading() -> AsyncIterator[tuple[PlayedCluster, Consumer]]:
    async with (
        PlayedCluster({"orders": 2}) as played,
        Cluster(played.bootstrap, QUICK) as cluster,
        Consumer(cluster, BRIEF) as consumer,
    ):
        yield played, consumer


async def polled(consumer: Consumer) -> list[tuple[int, bytes | None]]:
    return [(record.partition.partition, record.value) for run in await consumer.poll() for record in run.records()]


def test_paused_partition_brings_nothing_until_it_goes_on_where_it_was() -> None:
    async def scenario() -> None:
        async with reading() as (played, consumer):
            consumer.assign({FIRST: 0, SECOND: 0})
            consumer.pause(FIRST)
            assert consumer.paused == {FIRST}
            played.append(FIRST, batch(b"a"))
            played.append(SECOND, batch(b"b"))
            assert await polled(consumer) == [(1, b"b")]
            assert consumer.positions[FIRST] == 0
            consumer.resume(FIRST)
            assert consumer.paused == frozenset()
            assert await polled(consumer) == [(0, b"a")]

    run(scenario())


def test_answer_to_what_was_asked_before_the_pause_comes_after_it() -> None:
    async def scenario() -> None:
        async with reading() as (played, consumer):
            consumer.assign({FIRST: 0, SECOND: 0})
            played.append(FIRST, batch(b"a"))
            assert await polled(consumer) == [(0, b"a")]  # and a fetch of both is already under way
            consumer.pause(FIRST)
            played.append(FIRST, batch(b"b"))
            played.append(SECOND, batch(b"c"))
            assert await polled(consumer) == [(1, b"c")]
            consumer.resume(FIRST)
            assert await polled(consumer) == [(0, b"b")]

    run(scenario())


def test_poll_with_all_partitions_paused_has_nothing_to_wait_for() -> None:
    async def scenario() -> None:
        async with reading() as (played, consumer):
            consumer.assign({FIRST: 0})
            played.append(FIRST, batch(b"a"))
            consumer.pause(FIRST)
            assert not consumer.is_reading
            assert await consumer.poll() == []
            consumer.resume(FIRST)
            assert consumer.is_reading
            assert await polled(consumer) == [(0, b"a")]

    run(scenario())


def test_partition_that_is_dropped_and_added_again_is_not_paused() -> None:
    async def scenario() -> None:
        async with reading() as (played, consumer):
            consumer.assign({FIRST: 0})
            consumer.pause(FIRST)
            consumer.drop(FIRST)
            consumer.add(FIRST, 0)
            played.append(FIRST, batch(b"a"))
            assert await polled(consumer) == [(0, b"a")]

    run(scenario())


def test_pause_of_a_partition_that_is_not_assigned_is_a_mistake() -> None:
    async def scenario() -> None:
        async with reading() as (_, consumer):
            consumer.assign({FIRST: 0})
            with pytest.raises(AssertionError, match="orders-1 is not assigned"):
                consumer.pause(SECOND)

    run(scenario())


def test_poll_that_waits_is_ended_by_waking_and_the_next_one_brings_what_came() -> None:
    async def scenario() -> None:
        async with reading() as (played, consumer):
            consumer.assign({FIRST: 0})
            waiting = asyncio.create_task(consumer.poll())
            await asyncio.sleep(0)  # it waits now
            consumer.wake()
            assert await waiting == []
            played.append(FIRST, batch(b"a"))
            assert await polled(consumer) == [(0, b"a")]

    run(scenario())


def test_waking_while_nobody_waits_does_not_end_the_next_poll() -> None:
    async def scenario() -> None:
        async with reading() as (played, consumer):
            consumer.assign({FIRST: 0})
            consumer.wake()
            waiting = asyncio.create_task(polled(consumer))
            await asyncio.sleep(0)
            played.append(FIRST, batch(b"a"))
            assert await waiting == [(0, b"a")]

    run(scenario())
