"""Starts of logs that clients move, made durable by writes that they share."""

import asyncio
import errno
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFull
from barnabas.replication.log_starts import LogStarts
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.manager import LogManager
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.held_workers import HeldWorkers
from tests.support.log_directories import EAGER, ORDERS, ORDERS_1, PAYMENTS, TOPIC_ID, append, open_manager
from tests.support.network import run, until

A = "/a"


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk(Random(3), clock=self.clock)
        self.manager, _ = open_manager(self.disk, self.clock, [A])
        for partition in (ORDERS, ORDERS_1):
            append(self.manager.create(partition, TOPIC_ID, EAGER), b"one", b"two", b"three")
        self.manager.run_due_work()
        self.workers = HeldWorkers()
        self.starts = LogStarts(asyncio.get_running_loop(), self.manager, self.workers)

    async def let_one_write_go_on(self) -> None:
        await until(lambda: bool(self.workers.jobs))
        self.workers.run_one()

    def after_power_loss(self) -> LogManager:
        return open_manager(self.disk.power_loss_image(), self.clock, [A])[0]


def test_start_is_durable_before_whoever_moved_it_is_told() -> None:
    async def scene() -> None:
        stage = Scene()
        stage.manager.delete_records(ORDERS, 2)
        told = asyncio.ensure_future(stage.starts.store([ORDERS]))
        await until(lambda: bool(stage.workers.jobs))
        assert not told.done()
        stage.workers.run_one()
        assert await told == {}
        log = stage.after_power_loss().get(ORDERS)
        assert log is not None
        assert log.log_start_offset == 2
        await stage.starts.drain()

    run(scene())


@pytest.mark.parametrize("turns_between", range(6))
def test_who_comes_just_when_a_write_ends_is_served(turns_between: int) -> None:
    async def scene() -> None:
        stage = Scene()
        stage.manager.delete_records(ORDERS, 1)
        first = asyncio.ensure_future(stage.starts.store([ORDERS]))
        await stage.let_one_write_go_on()
        for _ in range(turns_between):
            await asyncio.sleep(0)
        second = asyncio.ensure_future(stage.starts.store([ORDERS_1]))
        await stage.let_one_write_go_on()
        assert (await first, await second) == ({}, {})

    run(scene())


def test_those_who_come_during_a_write_share_the_next_one() -> None:
    async def scene() -> None:
        stage = Scene()
        stage.manager.delete_records(ORDERS, 1)
        first = asyncio.ensure_future(stage.starts.store([ORDERS]))
        await until(lambda: bool(stage.workers.jobs))
        stage.manager.delete_records(ORDERS, 2)
        stage.manager.delete_records(ORDERS_1, 1)
        others = [asyncio.ensure_future(stage.starts.store([name])) for name in (ORDERS, ORDERS_1, ORDERS_1)]
        await stage.let_one_write_go_on()
        assert await first == {}
        assert not any(one.done() for one in others)
        await stage.let_one_write_go_on()
        assert await asyncio.gather(*others) == [{}] * 3
        assert not stage.workers.jobs
        again = stage.after_power_loss()
        assert [log.log_start_offset for log in again] == [2, 1]

    run(scene())


def test_full_disk_is_told_and_the_next_write_can_succeed() -> None:
    async def scene() -> None:
        stage = Scene()
        stage.manager.delete_records(ORDERS, 2)
        stage.disk.fail(errno.ENOSPC, operations=["write"], path_pattern="*log-start*")
        told = asyncio.ensure_future(stage.starts.store([ORDERS]))
        await stage.let_one_write_go_on()
        assert isinstance((await told)[ORDERS], DiskFull)
        told = asyncio.ensure_future(stage.starts.store([ORDERS]))
        await stage.let_one_write_go_on()
        assert await told == {}
        log = stage.after_power_loss().get(ORDERS)
        assert log is not None
        assert log.log_start_offset == 2

    run(scene())


def test_partition_that_is_gone_meanwhile_is_told_apart() -> None:
    async def scene() -> None:
        stage = Scene()
        told = asyncio.ensure_future(stage.starts.store([ORDERS, PAYMENTS]))
        await stage.let_one_write_go_on()
        failure = (await told)[PAYMENTS]
        assert isinstance(failure, KafkaError)
        assert failure.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scene())
