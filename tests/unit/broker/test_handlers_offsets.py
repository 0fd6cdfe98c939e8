"""ListOffsets, OffsetForLeaderEpoch, InitProducerId, DeleteRecords and DescribeProducers."""

import threading
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from barnabas.storage.segment.slices import FileSlice
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.network import run

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
NOTHING = (-1, -1, -1)


async def list_offset(
    broker: ServedBroker,
    timestamp: int,
    *,
    version: int = 11,
    topic: str = "orders",
    partition: int = 0,
    epoch: int = -1,
    isolation_level: int = 0,
) -> Any:
    answer = await broker.ask(
        ApiKey.LIST_OFFSETS,
        version,
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            {
                "name": topic,
                "partitions": [{"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}],
            }
        ],
    )
    return answer.topics[0].partitions[0]


async def offset_of(broker: ServedBroker, timestamp: int) -> tuple[int, int, int]:
    found = await list_offset(broker, timestamp)
    assert found.error_code is ErrorCode.none
    return found.timestamp, found.offset, found.leader_epoch


async def delete_records(broker: ServedBroker, topic: str, partition: int, offset: int) -> tuple[ErrorCode, int]:
    answer = await broker.ask(
        ApiKey.DELETE_RECORDS,
        2,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}],
        timeout_ms=1000,
    )
    [found] = answer.topics[0].partitions
    return found.error_code, found.low_watermark


# -- ListOffsets ---------------------------------------------------------------------------------------------------


def test_offsets_of_a_log_with_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            broker.append("orders", [1000, 1010, 1020])
            broker.append("orders", [500])

            assert await offset_of(broker, LATEST) == (-1, 4, 0)
            assert await offset_of(broker, EARLIEST) == (-1, 0, 0)
            assert await offset_of(broker, EARLIEST_LOCAL) == (-1, 0, 0)
            assert await offset_of(broker, MAX_TIMESTAMP) == (1020, 2, 0)
            assert await offset_of(broker, LATEST_TIERED) == NOTHING
            assert await offset_of(broker, PENDING_UPLOAD) == NOTHING
            assert await offset_of(broker, 0) == (1000, 0, 0)
            assert await offset_of(broker, 1005) == (1010, 1, 0)
            assert await offset_of(broker, 1021) == NOTHING

    run(scenario())


def test_offsets_of_an_empty_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")

            assert await offset_of(broker, LATEST) == (-1, 0, 0)
            assert await offset_of(broker, EARLIEST) == (-1, 0, 0)
            assert await offset_of(broker, MAX_TIMESTAMP) == NOTHING
            assert await offset_of(broker, 0) == NOTHING

    run(scenario())


def test_offsets_of_committed_readers_end_at_the_open_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            broker.append("orders", [1, 2])
            broker.append("orders", [3], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)

            assert (await list_offset(broker, LATEST)).offset == 3
            assert (await list_offset(broker, LATEST, isolation_level=1)).offset == 2
            assert (await list_offset(broker, 3, isolation_level=1)).offset == -1

    run(scenario())


def test_cold_place_in_the_log_is_brought_in_by_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded_by = []
    load = FileSlice.load

    def load_and_note(one: FileSlice, ahead_bytes: int = 0) -> None:
        loaded_by.append(threading.current_thread())
        load(one, ahead_bytes)

    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            broker.append("orders", [1000, 1010])
            monkeypatch.setattr(FileSlice, "is_resident", lambda one: False)
            monkeypatch.setattr(FileSlice, "load", load_and_note)

            assert await offset_of(broker, 1005) == (1010, 1, 0)
            assert await offset_of(broker, MAX_TIMESTAMP) == (1010, 1, 0)
            assert len(loaded_by) == 2
            assert threading.current_thread() not in loaded_by
            assert broker.log("orders").segments.active.slices == []

    run(scenario())


@pytest.mark.parametrize(
    ("timestamp", "last_version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (PENDING_UPLOAD, 10), (-7, 11)],
)
def test_special_timestamp_before_its_version_is_unsupported(tmp_path: Path, timestamp: int, last_version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            refused = await list_offset(broker, timestamp, version=last_version)

            assert refused.error_code is ErrorCode.unsupported_version
            if last_version < 11:
                served = await list_offset(broker, timestamp, version=last_version + 1)
                assert served.error_code is ErrorCode.none

    run(scenario())


def test_offsets_of_what_is_not_there_or_in_another_epoch_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            unknown_topic = await list_offset(broker, LATEST, topic="nope")
            unknown_partition = await list_offset(broker, LATEST, partition=9)
            newer_epoch = await list_offset(broker, LATEST, epoch=5)

            assert unknown_topic.error_code is ErrorCode.unknown_topic_or_partition
            assert unknown_partition.error_code is ErrorCode.unknown_topic_or_partition
            assert newer_epoch.error_code is ErrorCode.unknown_leader_epoch

    run(scenario())


def test_partition_asked_for_twice_is_invalid_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            twice = [{"partition_index": 0, "timestamp": LATEST}, {"partition_index": 0, "timestamp": EARLIEST}]
            answer = await broker.ask(
                ApiKey.LIST_OFFSETS,
                7,
                replica_id=-1,
                isolation_level=0,
                topics=[{"name": "orders", "partitions": twice}],
            )

            assert [one.error_code for one in answer.topics[0].partitions] == [ErrorCode.invalid_request]

    run(scenario())


# -- OffsetForLeaderEpoch ------------------------------------------------------------------------------------------


def test_end_of_current_epoch_is_the_end_of_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            broker.append("orders", [1, 2])

            async def end(epoch: int, current: int = -1, index: int = 0) -> tuple[ErrorCode, int, int]:
                wanted = [{"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}]
                answer = await broker.ask(
                    ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=[{"topic": "orders", "partitions": wanted}]
                )
                [one] = answer.topics[0].partitions
                return one.error_code, one.leader_epoch, one.end_offset

            assert await end(0) == (ErrorCode.none, 0, 2)
            assert await end(3) == (ErrorCode.none, -1, -1)
            assert await end(0, current=5) == (ErrorCode.unknown_leader_epoch, -1, -1)
            assert await end(0, index=9) == (ErrorCode.unknown_topic_or_partition, -1, -1)

    run(scenario())


# -- InitProducerId ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            answers = [await broker.ask(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None) for _ in range(3)]

            assert len({one.producer_id for one in answers}) == 3
            assert {(one.error_code, one.producer_epoch) for one in answers} == {(ErrorCode.none, 0)}

    run(scenario())


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"transactional_id": "tx"}, ErrorCode.transactional_id_authorization_failed),
        ({"transactional_id": ""}, ErrorCode.invalid_request),
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.invalid_request),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.invalid_request),
    ],
)
def test_producer_that_asks_wrongly_gets_no_id(tmp_path: Path, values: dict[str, Any], code: ErrorCode) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            answer = await broker.ask(ApiKey.INIT_PRODUCER_ID, 5, **values)

            assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)

    run(scenario())


def test_producer_that_brings_its_id_gets_a_new_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            first = await broker.ask(ApiKey.INIT_PRODUCER_ID, 5, transactional_id=None)
            again = await broker.ask(
                ApiKey.INIT_PRODUCER_ID, 5, transactional_id=None, producer_id=first.producer_id, producer_epoch=0
            )

            assert again.error_code is ErrorCode.none
            assert again.producer_id != first.producer_id

    run(scenario())


# -- DeleteRecords -------------------------------------------------------------------------------------------------


def test_deleted_records_move_the_start_and_never_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            broker.append("orders", [1, 2, 3, 4])

            assert await delete_records(broker, "orders", 0, 3) == (ErrorCode.none, 3)
            assert await delete_records(broker, "orders", 0, 1) == (ErrorCode.none, 3)
            assert await offset_of(broker, EARLIEST) == (-1, 3, 0)
            assert await delete_records(broker, "orders", 0, -1) == (ErrorCode.none, 4)

    run(scenario())


def test_records_that_cannot_be_deleted_are_refused_with_kafkas_code(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            await broker.create("compacted", cleanup_policy="compact")
            await broker.create("__consumer_offsets")

            assert await delete_records(broker, "orders", 0, 5) == (ErrorCode.offset_out_of_range, -1)
            assert await delete_records(broker, "orders", 0, -2) == (ErrorCode.offset_out_of_range, -1)
            assert await delete_records(broker, "orders", 7, 0) == (ErrorCode.unknown_topic_or_partition, -1)
            assert await delete_records(broker, "compacted", 0, -1) == (ErrorCode.policy_violation, -1)
            assert await delete_records(broker, "__consumer_offsets", 0, -1) == (
                ErrorCode.invalid_topic_exception,
                -1,
            )

    run(scenario())


# -- DescribeProducers ---------------------------------------------------------------------------------------------


def test_producers_of_a_partition_are_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            broker.append("orders", [5, 6], producer_id=7, producer_epoch=2, base_sequence=0)
            wanted = [
                {"name": "orders", "partition_indexes": [0, 9]},
                {"name": "bad name", "partition_indexes": [0]},
            ]
            orders, bad = (await broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=wanted)).topics
            [producer] = orders.partitions[0].active_producers

            assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 1)
            assert (producer.last_timestamp, producer.coordinator_epoch) == (6, -1)
            assert producer.current_txn_start_offset == -1
            assert orders.partitions[1].error_code is ErrorCode.unknown_topic_or_partition
            assert bad.partitions[0].error_code is ErrorCode.invalid_topic_exception

    run(scenario())
