"""The tick that writes and flushes appends, over a log that the test plays."""

import asyncio
from typing import Any, cast

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFailed
from barnabas.replication.partition import Partition
from barnabas.replication.tick import AppendTick
from tests.support.inline_executor import InlineExecutor
from tests.support.network import run


class PlayedLog:
    """Always asks for a flush, and refuses to plan one over records that are only staged, as the real one does."""

    def __init__(self) -> None:
        self.staged_end_offset = self.end_offset = 0
        self.flushes = 0
        self.write_error: DiskFailed | None = None
        self.plan_error: DiskFailed | None = None
        self.finish_error: DiskFailed | None = None

    def stage(self) -> int:
        self.staged_end_offset += 1
        return self.staged_end_offset - 1

    def write(self) -> None:
        if self.write_error is not None:
            self.staged_end_offset = self.end_offset
            raise self.write_error
        self.end_offset = self.staged_end_offset

    def forget_written(self) -> None: ...

    def must_flush(self, now_ms: int) -> bool:
        return True

    def plan_flush(self) -> Any:
        assert self.staged_end_offset == self.end_offset
        if self.plan_error is not None:
            raise self.plan_error
        self.flushes += 1
        return _Plan(self.end_offset)

    def finish_flush(self, plan: Any) -> None:
        if self.finish_error is not None:
            raise self.finish_error


class _Plan:
    seconds = 0.0

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset

    def run(self) -> None: ...


class PlayedPartition:
    def __init__(self) -> None:
        self.log = PlayedLog()
        self.committed = 0

    def commit(self, end_offset: int) -> None:
        self.committed = max(self.committed, end_offset)


class Scene:
    def __init__(self) -> None:
        self.partition = PlayedPartition()
        self.failures: list[DiskFailed] = []
        self.tick = AppendTick(
            asyncio.get_running_loop(),
            ManualClock(0),
            InlineExecutor(),
            lambda _, error: self.failures.append(error),
            lambda: None,
        )

    def append(self) -> "asyncio.Future[DiskFailed | None]":
        told: asyncio.Future[DiskFailed | None] = asyncio.get_running_loop().create_future()
        self.tick.add(cast(Partition, self.partition), self.partition.log.stage(), told.set_result)
        return told


def _disk_failed() -> DiskFailed:
    return DiskFailed("write", "segment", OSError(5, "I/O error"))


def test_append_staged_while_a_flush_begins_is_written_and_told() -> None:
    async def scenario() -> None:
        scene = Scene()
        first = scene.append()
        await asyncio.sleep(0)  # written; its flush is a task that has not begun
        second = scene.append()
        assert [await first, await second] == [None, None]
        await scene.tick.drain()
        assert scene.partition.committed == 2

    run(scenario())


def test_appends_of_many_ticks_share_flushes() -> None:
    async def scenario() -> None:
        scene = Scene()
        told = []
        for _ in range(200):
            told.append(scene.append())
            await asyncio.sleep(0)
        assert await asyncio.gather(*told) == [None] * 200
        await scene.tick.drain()
        assert scene.partition.committed == 200
        assert scene.partition.log.flushes < 200

    run(scenario())


@pytest.mark.parametrize("what", ["write_error", "plan_error", "finish_error"])
def test_disk_that_fails_is_told_to_everybody_who_waits(what: str) -> None:
    async def scenario() -> None:
        scene = Scene()
        setattr(scene.partition.log, what, _disk_failed())
        told = [scene.append(), scene.append()]
        assert all(await asyncio.gather(*told))
        await scene.tick.drain()
        assert scene.failures
        assert scene.partition.committed == 0

    run(scenario())


def test_write_that_fails_beside_a_flush_fails_alone() -> None:
    async def scenario() -> None:
        scene = Scene()
        first = scene.append()
        await asyncio.sleep(0)
        second = scene.append()
        scene.partition.log.write_error = _disk_failed()
        assert await first is None
        assert await second is scene.partition.log.write_error
        await scene.tick.drain()
        assert scene.partition.committed == 1

    run(scenario())
