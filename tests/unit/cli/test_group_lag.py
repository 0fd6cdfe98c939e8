"""How far a group is behind, by what stands in the log of a real broker."""

import asyncio
from collections.abc import Iterator, Mapping

import pytest
import uvloop

from barnabas.base.ids import TopicPartition
from barnabas.cli.group.group_lag import LagMeter, PartitionLag, count_lag, longest_behind_ms, total_lag
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.testing import Broker
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode

NOW_MS = 1_794_738_667_000
PATIENCE_SECONDS = 180
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", partitions=3)
        yield running


def measure(broker: Broker, committed: Mapping[TopicPartition, int | None], now_ms: int = NOW_MS) -> list[PartitionLag]:
    async def work() -> list[PartitionLag]:
        async with asyncio.timeout(PATIENCE_SECONDS), Cluster(broker.bootstrap) as cluster:
            return await LagMeter(cluster).measure(committed, now_ms)

    return uvloop.run(work())


def numbers(lag: PartitionLag) -> tuple[int | None, int | None]:
    return lag.lag, lag.behind_ms


def test_lag_in_time_is_the_age_of_the_first_unread_record(broker: Broker) -> None:
    broker.append("orders", [b"read"], timestamp_ms=NOW_MS - 90_000)
    broker.append("orders", [b"unread"], timestamp_ms=NOW_MS - 42_000)
    broker.append("orders", [b"newest"], timestamp_ms=NOW_MS - 1_000)
    (lag,) = measure(broker, {ORDERS: 1})
    assert numbers(lag) == (2, 42_000)
    assert (lag.start, lag.end, lag.note) == (0, 3, "")


def test_record_in_the_middle_of_a_batch_is_found(broker: Broker) -> None:
    for _ in range(3):
        broker.append("orders", [b"x" * 20_000] * 10, timestamp_ms=NOW_MS - 7_000)
    (lag,) = measure(broker, {ORDERS: 15})
    assert numbers(lag) == (15, 7_000)


def test_partitions_are_measured_each_and_in_order(broker: Broker) -> None:
    for index in range(3):
        broker.append("orders", [b"x"] * 5, partition=index, timestamp_ms=NOW_MS - 1000 * (index + 1))
    lags = measure(broker, {TopicPartition("orders", index): index + 2 for index in (2, 0, 1)})
    assert [lag.partition.partition for lag in lags] == [0, 1, 2]
    assert [numbers(lag) for lag in lags] == [(3, 1000), (2, 2000), (1, 3000)]
    assert (total_lag(lags), longest_behind_ms(lags)) == (6, 3000)


def test_group_that_has_read_all_is_not_behind(broker: Broker) -> None:
    broker.append("orders", [b"x"], timestamp_ms=NOW_MS - 90_000)
    assert [numbers(lag) for lag in measure(broker, {ORDERS: 1})] == [(0, 0)]


def test_empty_partition_has_no_lag(broker: Broker) -> None:
    assert [numbers(lag) for lag in measure(broker, {ORDERS: 0})] == [(0, 0)]


def test_timestamp_in_the_future_counts_as_now(broker: Broker) -> None:
    broker.append("orders", [b"x"], timestamp_ms=NOW_MS + 5_000)
    assert [numbers(lag) for lag in measure(broker, {ORDERS: 0})] == [(1, 0)]


def test_record_without_a_timestamp_is_unknown(broker: Broker) -> None:
    broker.append("orders", [b"x"], timestamp_ms=-1)
    assert [numbers(lag) for lag in measure(broker, {ORDERS: 0})] == [(1, None)]


def test_offset_that_was_deleted_counts_from_the_start_of_the_log(broker: Broker) -> None:
    broker.append("orders", [b"x"] * 10, timestamp_ms=NOW_MS - 9_000)
    broker.append("orders", [b"x"] * 10, timestamp_ms=NOW_MS - 3_000)

    async def delete() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            await Admin(cluster).delete_records({ORDERS: 12})

    uvloop.run(delete())
    (lag,) = measure(broker, {ORDERS: 5})
    assert numbers(lag) == (8, 3_000)
    assert lag.note == "7 offsets deleted before being read"


def test_topic_that_is_gone_is_unknown(broker: Broker) -> None:
    (gone, beside) = measure(broker, {TopicPartition("gone", 0): 3, ORDERS: 0})
    assert (numbers(gone), gone.note) == ((None, None), "the partition was deleted, or has no leader")
    assert numbers(beside) == (0, 0)


def test_partition_that_is_gone_is_unknown(broker: Broker) -> None:
    (lag,) = measure(broker, {TopicPartition("orders", 9): 3})
    assert numbers(lag) == (None, None)


def test_second_look_fetches_only_what_moved(broker: Broker) -> None:
    broker.append("orders", [b"x", b"y"], timestamp_ms=NOW_MS - 5_000)

    async def work() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), Cluster(broker.bootstrap) as cluster:
            meter = LagMeter(cluster)
            assert [numbers(lag) for lag in await meter.measure({ORDERS: 0}, NOW_MS)] == [(2, 5_000)]
            broker.fail(ApiKey.FETCH, ErrorCode.UNKNOWN_SERVER_ERROR, times=None)
            assert [numbers(lag) for lag in await meter.measure({ORDERS: 0}, NOW_MS + 1_000)] == [(2, 6_000)]
            assert [numbers(lag) for lag in await meter.measure({ORDERS: 1}, NOW_MS + 1_000)] == [(1, None)]
            broker.clear_faults()
            assert [numbers(lag) for lag in await meter.measure({ORDERS: 1}, NOW_MS + 2_000)] == [(1, 7_000)]

    uvloop.run(work())


@pytest.mark.parametrize(
    ("committed", "start", "end", "lag", "behind_ms", "note"),
    [
        (None, 0, 5, None, None, "nothing is committed"),
        (3, None, None, None, None, "the partition was deleted, or has no leader"),
        (5, 0, 5, 0, 0, ""),
        (3, 0, 5, 2, None, ""),
        (9, 0, 5, None, None, "the log ends before the committed offset, at 5; was the topic recreated?"),
        (4, 5, 9, 4, None, "1 offset deleted before being read"),
        (3, 5, 5, 0, 0, "2 offsets deleted before being read"),
    ],
)
def test_lag_is_counted_within_the_log(
    committed: int | None, start: int | None, end: int | None, lag: int | None, behind_ms: int | None, note: str
) -> None:
    counted = count_lag(ORDERS, committed, start, end)
    assert (counted.lag, counted.behind_ms, counted.note) == (lag, behind_ms, note)


def test_totals_of_unknown_lags_are_unknown() -> None:
    unknown = count_lag(ORDERS, None, 0, 5)
    known = count_lag(ORDERS, 5, 0, 5)
    without_time = count_lag(ORDERS, 3, 0, 5)
    assert (total_lag([unknown]), longest_behind_ms([unknown])) == (None, None)
    assert (total_lag([unknown, known]), longest_behind_ms([unknown, known])) == (0, 0)
    assert (total_lag([without_time, known]), longest_behind_ms([without_time, known])) == (2, None)
