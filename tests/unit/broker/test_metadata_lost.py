"""A broker whose metadata store cannot be written: it says so, serves records, and goes on when the store is back."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.broker.health import BrokerState
from barnabas.controller import controller
from barnabas.metadata import embedded
from barnabas.metadata.znodes_admin import delete_topic_path
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.broker_parts import ServedBroker, new_topic, served_broker
from tests.support.refusing_table import RefusingTable

BROKEN = DiskFailed("write", "barnabas-metadata.db", OSError(errno.EIO, "disk I/O error"))
FULL = DiskFull("write", "barnabas-metadata.db", OSError(errno.ENOSPC, "no space"))


async def create(broker: ServedBroker, name: str) -> Any:
    answer = await broker.ask(ApiKey.CREATE_TOPICS, 7, topics=[new_topic(name)], timeout_ms=1000, validate_only=False)
    return answer.topics[0]


async def init_producer_id(broker: ServedBroker) -> tuple[int, int]:
    answer = await broker.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000)
    return answer.error_code.value, answer.producer_id


def test_lost_store_makes_the_broker_unavailable_and_its_clients_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_RETRY_SECONDS_MIN", 0.05)
    table = RefusingTable()

    async def main() -> None:
        async with served_broker(tmp_path, table=table) as broker:
            await broker.create("orders")
            assert broker.broker.health.state is BrokerState.READY
            table.error = BROKEN
            assert (await create(broker, "first")).error_code.value == ErrorCode.KAFKA_STORAGE_ERROR
            refused = await create(broker, "second")
            assert refused.error_code.value == ErrorCode.NOT_CONTROLLER
            assert "disk I/O error" in refused.error_message
            assert await init_producer_id(broker) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
            health = broker.broker.health
            assert health.state is BrokerState.UNAVAILABLE
            assert health.problems == ("the metadata store: cannot write barnabas-metadata.db: disk I/O error",)
            broker.append("orders", [1])
            assert broker.log("orders").high_watermark == 1

            table.error = None
            retrying = broker.broker.running.cluster.metadata._metadata._retrying
            assert retrying is not None
            async with asyncio.timeout(120):
                await retrying
            assert broker.broker.health.state is BrokerState.READY
            assert broker.broker.health.problems == ()
            assert (await create(broker, "first")).error_code.value == ErrorCode.NONE
            assert await init_producer_id(broker) == (ErrorCode.NONE, 0)
            assert set(broker.broker.replicas.image.topics) == {"orders", "first"}
            assert list(broker.broker.replicas.image.brokers) == [1]

    asyncio.run(main())


def test_broker_starts_on_a_full_disk_and_waits_for_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_RETRY_SECONDS_MIN", 0.05)
    table = RefusingTable()

    async def main() -> None:
        async with served_broker(tmp_path, table=table) as broker:
            await broker.create("orders")
            broker.append("orders", [1, 2])
        table.error = FULL
        async with served_broker(tmp_path, table=table) as broker:
            assert broker.log("orders").end_offset == 2
            assert (await create(broker, "refused")).error_code.value == ErrorCode.KAFKA_STORAGE_ERROR
            assert await init_producer_id(broker) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
            health = broker.broker.health
            assert health.state is BrokerState.READY
            assert health.problems == ("the metadata store: cannot write barnabas-metadata.db: no space",)
            table.error = None
            retrying = broker.broker.running.cluster.metadata._metadata._retrying
            assert retrying is not None
            async with asyncio.timeout(120):
                await retrying
            assert broker.broker.health.problems == ()
            await broker.create("now")

    asyncio.run(main())


def test_topic_that_a_crash_left_half_deleted_waits_for_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_RETRY_SECONDS_MIN", 0.01)
    monkeypatch.setattr(controller, "_RETRY_SECONDS", 0.01)
    table = RefusingTable()

    async def main() -> None:
        async with served_broker(tmp_path, table=table) as broker:
            await broker.create("doomed")
            await broker.create("orders")
            await broker.broker.running.cluster.membership.store.create(delete_topic_path("doomed"))
        table.error = FULL
        async with served_broker(tmp_path, table=table) as broker:
            assert set(broker.broker.replicas.image.topics) == {"orders"}
            is_deleted = asyncio.Event()
            store = broker.broker.running.cluster.membership.store
            assert await store.exists(delete_topic_path("doomed"), lambda event: is_deleted.set())
            table.error = None
            async with asyncio.timeout(120):
                await is_deleted.wait()
        assert delete_topic_path("doomed") not in table.load().nodes

    asyncio.run(main())
