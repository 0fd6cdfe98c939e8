"""The consumer: what it brings, where it goes on, and whom it follows."""

import asyncio

import pytest

from barnabas.base.errors import CorruptBatch
from barnabas.base.ids import TopicPartition
from barnabas.client.broker_connection import ConnectionOptions
from barnabas.client.cluster import Cluster, ClusterOptions
from barnabas.client.offsets import EARLIEST, Isolation
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.client.reading.fetched import OFFSET_MAX, AbortedRange, aborted_ranges, make_run
from barnabas.records.batch import Codec, read_header
from barnabas.records.builder import BatchBuilder, Header
from barnabas.records.control import EndTransactionMarker, build_marker
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch import AbortedTransaction
from tests.support.network import run
from tests.support.played_cluster import Fault, PlayedCluster

QUICK = ClusterOptions(
    ConnectionOptions(request_timeout_seconds=0.2), retry_timeout_seconds=5, backoff_seconds_min=0.001
)
ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
BRIEF = ConsumerOptions(wait_ms_max=20)


def _batch(*values: bytes | None, codec: Codec = Codec.NONE, producer_id: int = -1, base_offset: int = 0) -> bytearray:
    builder = BatchBuilder(
        codec=codec,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )
    for number, value in enumerate(values):
        builder.append(1000 + number, b"k%d" % number, value, [("h", b"v"), ("n", None)] if number == 0 else ())
    return builder.build()


async def _take(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async for record in consumer.records():
        values.append(record.value)
        if len(values) == count:
            break
    return values


@pytest.mark.parametrize("codec", list(Codec))
def test_records_come_as_they_are_in_the_log_from_the_offset_on(codec: Codec) -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            played.append(ORDERS, _batch(b"a", None, b"c", codec=codec))
            played.append(ORDERS, _batch(b"d", codec=codec))
            async with Consumer(cluster, BRIEF) as consumer:
                consumer.assign({ORDERS: 1})
                (run,) = await consumer.poll()
                records = list(run.records())
                assert [record.value for record in records] == [None, b"c", b"d"]
                assert records[2] == (ORDERS, 3, 1000, b"k0", b"d", (Header("h", b"v"), Header("n", None)))
                assert [record.value for record in run.records(end_offset=3)] == [None, b"c"]
                assert (run.first_offset, run.next_offset, run.high_watermark) == (1, 4, 4)
                assert run.columns().count == 3
                assert consumer.positions == {ORDERS: 4}

    run(scenario())


def test_poll_waits_for_records_that_come_later() -> None:
    async def scenario() -> None:
        async with (
            PlayedCluster({"orders": 2}, brokers=2) as played,
            Cluster(played.bootstrap, QUICK) as cluster,
            Consumer(cluster, ConsumerOptions(wait_ms_max=5000)) as consumer,
        ):
            consumer.assign({ORDERS: 0, OTHER: 0})
            assert await consumer.poll(timeout_seconds=0.02) == []
            played.append(OTHER, _batch(b"late"))
            (run,) = await consumer.poll()
            assert run.partition == OTHER

    run(scenario())


@pytest.mark.parametrize(
    "fault", [Fault.CLOSE, Fault.SILENCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_fetch_that_fails_for_a_moment_is_tried_again(fault: Fault | ErrorCode) -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            played.append(ORDERS, _batch(b"a", b"b"))
            played.faults[ApiKey.FETCH] += [fault, fault]
            async with Consumer(cluster, BRIEF) as consumer:
                consumer.assign({ORDERS: 0})
                assert await _take(consumer, 2) == [b"a", b"b"]

    run(scenario())


def test_fetch_that_never_succeeds_ends_in_an_error() -> None:
    options = ClusterOptions(retry_timeout_seconds=0.05, backoff_seconds_min=0.01)

    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, options) as cluster:
            played.faults[ApiKey.FETCH] += [ErrorCode.KAFKA_STORAGE_ERROR] * 1000
            async with Consumer(cluster, BRIEF) as consumer:
                consumer.assign({ORDERS: 0})
                with pytest.raises(KafkaError, match="the last problem was: KAFKA_STORAGE_ERROR"):
                    await consumer.poll()

    run(scenario())


def test_polls_shorter_than_the_pause_after_a_failure_still_ask_who_leads() -> None:
    options = ClusterOptions(retry_timeout_seconds=30, backoff_seconds_min=0.02, backoff_seconds_max=0.02)

    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, options) as cluster:
            played.faults[ApiKey.FETCH] += [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
            async with Consumer(cluster, BRIEF) as consumer:
                consumer.assign({ORDERS: 0})
                asked = played.count(ApiKey.METADATA)
                while played.count(ApiKey.METADATA) < asked + 4:
                    await consumer.poll(0.002)
                assert played.count(ApiKey.FETCH) <= 6, "each failure is followed by its pause"

    run(scenario())


def test_leader_that_moved_is_followed() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}, brokers=2) as played, Cluster(played.bootstrap, QUICK) as cluster:
            played.append(ORDERS, _batch(b"a"))
            async with Consumer(cluster, BRIEF) as consumer:
                consumer.assign({ORDERS: 0})
                assert await _take(consumer, 1) == [b"a"]
                played.move_leader(ORDERS, 2)
                played.append(ORDERS, _batch(b"b"))
                assert await _take(consumer, 1) == [b"b"]

    run(scenario())


def test_offset_out_of_range_is_an_error_or_a_new_start() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            played.append(ORDERS, _batch(b"a"))
            async with Consumer(cluster, BRIEF) as consumer:
                consumer.assign({ORDERS: 99})
                with pytest.raises(KafkaError, match="orders-0 has no offset 99"):
                    await consumer.poll()
            async with Consumer(cluster, ConsumerOptions(wait_ms_max=20, out_of_range=EARLIEST)) as consumer:
                consumer.assign({ORDERS: 99})
                assert await _take(consumer, 1) == [b"a"]

    run(scenario())


def test_answer_for_an_offset_that_was_left_is_not_handed_out() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            for value in (b"a", b"b", b"c"):
                played.append(ORDERS, _batch(value))
            async with Consumer(cluster, BRIEF) as consumer:
                consumer.assign({ORDERS: 2})
                assert await _take(consumer, 1) == [b"c"]  # and a fetch at 3 is already under way
                consumer.seek(ORDERS, 0)
                assert await _take(consumer, 3) == [b"a", b"b", b"c"]
                consumer.drop(ORDERS)
                assert await consumer.poll() == []

    run(scenario())


def test_aborted_transactions_are_left_out_when_only_committed_ones_are_read() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap, QUICK) as cluster:
            log = played.logs[ORDERS]
            for number, batch in enumerate(
                [
                    _batch(b"aborted", producer_id=7),
                    _batch(b"plain"),
                    build_marker(EndTransactionMarker(False, 0), producer_id=7, producer_epoch=0, timestamp=1000),
                    _batch(b"committed", producer_id=7),
                    build_marker(EndTransactionMarker(True, 0), producer_id=7, producer_epoch=0, timestamp=1000),
                ]
            ):
                log.sequences[7] = read_header(batch).base_sequence
                played.append(ORDERS, batch)
                assert log.end_offset == number + 1
            log.aborted.append(AbortedTransaction(7, 0))
            async with Consumer(cluster, ConsumerOptions(Isolation.READ_COMMITTED, 20)) as consumer:
                consumer.assign({ORDERS: 0})
                assert await _take(consumer, 2) == [b"plain", b"committed"]
                assert consumer.positions == {ORDERS: 5}, "markers are passed, too"

    run(scenario())


def test_aborted_transaction_ends_with_its_producers_next_marker() -> None:
    marker = EndTransactionMarker(False, 0)
    batches = [
        _batch(b"x", producer_id=7, base_offset=10),
        build_marker(marker, producer_id=8, producer_epoch=0, timestamp=1, base_offset=11),
        build_marker(marker, producer_id=7, producer_epoch=0, timestamp=1, base_offset=12),
        _batch(b"y", producer_id=7, base_offset=13),
    ]
    headers = [read_header(batch) for batch in batches]
    aborted = [AbortedTransaction(7, 3), AbortedTransaction(7, 13), AbortedTransaction(8, 5)]
    assert list(aborted_ranges(headers, aborted)) == [
        AbortedRange(7, 3, 12),
        AbortedRange(7, 13, OFFSET_MAX),
        AbortedRange(8, 5, 11),
    ]


def test_last_batch_that_is_cut_short_is_left_for_the_next_fetch() -> None:
    received = bytes(_batch(b"a") + _batch(b"b", base_offset=1))[:-3]
    run = make_run(ORDERS, 0, memoryview(received), (), 2, 2)
    assert run is not None
    assert run.next_offset == 1
    assert [record.value for record in run.records()] == [b"a"]


def test_first_batch_that_is_broken_is_corrupt_rather_than_nothing() -> None:
    with pytest.raises(CorruptBatch, match="orders-0 at offset 5"):
        make_run(ORDERS, 5, memoryview(bytes(_batch(b"a"))[:-3]), (), 2, 2)
    damaged = _batch(b"a")
    damaged[-1] ^= 1
    run = make_run(ORDERS, 0, memoryview(bytes(damaged)), (), 2, 2)
    assert run is not None
    with pytest.raises(CorruptBatch):
        list(run.records())


def test_consumer_that_is_closed_leaves_no_task_behind() -> None:
    async def scenario() -> None:
        async with PlayedCluster({"orders": 1}) as played, Cluster(played.bootstrap) as cluster:
            consumer = Consumer(cluster, ConsumerOptions(wait_ms_max=60_000))
            consumer.assign({ORDERS: 0})
            assert await consumer.poll(timeout_seconds=0.01) == []
            await consumer.close()
            assert [task for task in asyncio.all_tasks() if "Consumer._fetch" in repr(task.get_coro())] == []

    run(scenario())
