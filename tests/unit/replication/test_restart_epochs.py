"""Every start of a broker is another epoch of what it leads, durable before anybody can write in it."""

import asyncio
import errno
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from barnabas.base.errors import DiskFull
from barnabas.controller import controller
from barnabas.metadata import embedded
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.znodes import PartitionState
from barnabas.records.builder import BatchBuilder
from barnabas.storage.log.epochs import EpochEntry
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.network import run
from tests.support.refusing_table import RefusingTable

FULL = DiskFull("write", "barnabas-metadata.db", OSError(errno.ENOSPC, "no space"))


def stored_epoch(table: MemoryTable, topic: str = "orders") -> int:
    path = PartitionState.path_of(topic, 0)
    return PartitionState.decode(path, table.load().nodes[path].data).leader_epoch


async def produce(broker: ServedBroker, *, acks: int = -1, timeout_ms: int = 1000) -> ErrorCode:
    batch = BatchBuilder()
    batch.append(1, b"key", b"value")
    answer = await broker.ask(
        ApiKey.PRODUCE,
        12,
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": bytes(batch.build())}]}],
    )
    return answer.responses[0].partition_responses[0].error_code  # type: ignore[no-any-return]


async def epoch_end(broker: ServedBroker, epoch: int, current: int = -1) -> tuple[ErrorCode, int, int]:
    wanted = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = await broker.ask(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=[{"topic": "orders", "partitions": [wanted]}]
    )
    [found] = answer.topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


def test_every_start_raises_the_epochs_before_anything_is_served(tmp_path: Path) -> None:
    table = MemoryTable()

    async def scenario() -> None:
        for epoch in range(3):
            async with served_broker(tmp_path, table=table) as broker:
                if epoch == 0:
                    await broker.create("orders")
                partition = broker.partition("orders")
                assert partition.leader_epoch == stored_epoch(table) == epoch
                assert partition.state.partition_epoch == epoch
                assert await produce(broker) is ErrorCode.none
                assert partition.end_offset == epoch + 1
                assert broker.log("orders").epochs.latest == EpochEntry(epoch, epoch)
                assert await epoch_end(broker, epoch) == (ErrorCode.none, epoch, epoch + 1)
                if epoch:
                    assert await epoch_end(broker, epoch - 1) == (ErrorCode.none, epoch - 1, epoch)
                    fenced = await epoch_end(broker, epoch, current=epoch - 1)
                    assert fenced[0] is ErrorCode.fenced_leader_epoch

    run(scenario())


def test_start_without_a_record_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    """Ten thousand idle partitions are not written to because a broker was started again."""
    table = MemoryTable()

    async def scenario() -> None:
        async with served_broker(tmp_path, table=table) as broker:
            await broker.create("orders")
            assert await produce(broker) is ErrorCode.none
        files = sorted((tmp_path / "orders-0").iterdir())
        before = [(one.name, one.stat().st_mtime_ns) for one in files]
        for _ in range(2):
            async with served_broker(tmp_path, table=table) as broker:
                assert broker.partition("orders").leader_epoch > 0
        assert [(one.name, one.stat().st_mtime_ns) for one in files] == before

    run(scenario())


def test_broker_on_a_full_disk_is_read_from_until_it_can_raise_its_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_RETRY_SECONDS_MIN", 0.01)
    monkeypatch.setattr(controller, "_RETRY_SECONDS", 0.01)
    table = RefusingTable()

    async def scenario() -> None:
        async with served_broker(tmp_path, table=table) as broker:
            await broker.create("orders")
            assert await produce(broker) is ErrorCode.none
        table.error = FULL
        async with served_broker(tmp_path, table=table) as broker:
            partition = broker.partition("orders")
            assert partition.leader_epoch == 0
            assert partition.read(0, 100, is_committed_only=False, at_least_one=True).size_bytes
            assert await produce(broker) is ErrorCode.kafka_storage_error
            assert partition.end_offset == 1
            table.error = None
            async with asyncio.timeout(120):
                while broker.partition("orders").leader_epoch == 0:  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.01)
            assert stored_epoch(table) == 1
            assert await produce(broker) is ErrorCode.none
            assert broker.log("orders").epochs.latest == EpochEntry(1, 1)

    run(scenario())


def test_partition_whose_files_are_gone_is_said_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = MemoryTable()

    async def scenario() -> None:
        async with served_broker(tmp_path, table=table) as broker:
            await broker.create("orders")
            assert await produce(broker) is ErrorCode.none
        for file in (tmp_path / "orders-0").iterdir():
            file.unlink()
        (tmp_path / "orders-0").rmdir()
        async with served_broker(tmp_path, table=table) as broker:
            assert broker.partition("orders").end_offset == 0
        assert any(
            "that this broker led before have no log and are created empty: 1" in record.getMessage()
            for record in caplog.records
        )

    run(scenario())
