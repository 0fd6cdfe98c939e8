"""Partitions that could not be created or opened when they should have been: they are served when there is room."""

import asyncio
import errno
import os
from pathlib import Path
from random import Random

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.filesystem import LocalFile, LocalFileSystem, disk_error
from barnabas.broker.app import Broker
from barnabas.broker.health import BrokerState
from barnabas.broker.parts import BrokerParts
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.table import MemoryTable
from barnabas.replication.workers import perform
from barnabas.storage.directories import manager
from barnabas.storage.directories.directories import AllDirectoriesOffline
from tests.support.broker_parts import ServedBroker


class FullFiles(LocalFileSystem):
    """Has no room for new files of some partitions."""

    refused = ""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LocalFile:
        if create and self.refused and self.refused in path:
            raise disk_error("open", path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return super().open(path, write=write, create=create)


def make_broker(files: FullFiles, table: MemoryTable, *directories: str) -> Broker:
    texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": ",".join(directories)}
    return Broker(BrokerSettings(texts), BrokerParts(files, SystemClock(), Random(5), metadata_table=table))


async def until_served(broker: Broker, topic: str) -> None:
    """What the broker does about once a second, until the partition is served."""
    now_ms = SystemClock().now_ms()
    for seconds in range(0, 60, 6):
        for work in broker.logs.due_work(now_ms + 1_000 * seconds):
            await perform(work, broker.services.workers)
        broker.replicas.retry(now_ms + 1_000 * seconds)
        await asyncio.sleep(0)
        image = broker.replicas.image
        if broker.replicas._coming is not image:
            await broker.replicas.wait_for(lambda served, image=image: served is not image)
        if broker.replicas.get(topic, 0) is not None:
            return
    raise AssertionError(f"{topic} is not served")


def test_partition_without_room_is_created_when_there_is_some(tmp_path: Path) -> None:
    files, table = FullFiles(), MemoryTable()

    async def main() -> None:
        async with make_broker(files, table, str(tmp_path)) as broker:
            served = ServedBroker(broker)
            files.refused = "orders-0/"
            await served.create("orders")
            await served.create("letters")
            assert broker.replicas.get("orders", 0) is None
            assert broker.replicas.get("letters", 0) is not None
            assert broker.health.full_directories == (str(tmp_path),)
            files.refused = ""
            await until_served(broker, "orders")
            served.append("orders", [1])

    asyncio.run(main())


def test_log_that_was_opened_late_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "_RETRY_INTERVAL_MS", 0)
    files, table = FullFiles(), MemoryTable()

    async def main() -> None:
        async with make_broker(files, table, str(tmp_path)) as broker:
            served = ServedBroker(broker)
            await served.create("orders")
            served.append("orders", [1, 2])
        (tmp_path / "orders-0" / "00000000000000000000.index").unlink()
        files.refused = ".index"
        async with make_broker(files, table, str(tmp_path)) as broker:
            assert broker.replicas.get("orders", 0) is None
            files.refused = ""
            await until_served(broker, "orders")
            assert ServedBroker(broker).log("orders").end_offset == 2

    asyncio.run(main())


def test_directory_that_cannot_be_made_is_offline_from_the_start(tmp_path: Path) -> None:
    bad = f"{os.devnull}/data"

    async def main() -> None:
        async with make_broker(FullFiles(), MemoryTable(), str(tmp_path), bad) as broker:
            await ServedBroker(broker).create("orders", 4)
            assert all(broker.replicas.get("orders", index) for index in range(4))
            assert broker.health.state is BrokerState.READY
            assert broker.health.problems == (f"{bad} is offline: cannot create {bad}: Not a directory",)
        with pytest.raises(AllDirectoriesOffline, match="Not a directory"):
            async with make_broker(FullFiles(), MemoryTable(), bad):
                pass

    asyncio.run(main())
