"""When a directory counts as full, and when no longer; and what is said about it."""

import errno
import logging
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFull
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.space import DirectorySpace
from barnabas.storage.log.log import Log
from tests.support.log_directories import EAGER, ORDERS, TOPIC_ID, append, make_batch, open_manager

A = "/a"
FULL = DiskFull("write", "/a/file", OSError(errno.ENOSPC, "no space"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def space(clock: ManualClock) -> DirectorySpace:
    return DirectorySpace(A)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [
        (record.levelno, record.getMessage())
        for record in caplog.records
        if record.name == "barnabas.storage.directories.space"
    ]


def test_full_directory_is_said_at_once_and_then_once_a_minute(
    space: DirectorySpace, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(150):
        space.refused(FULL, None, clock)
        clock.advance(1_000)
    assert [level for level, _ in lines(caplog)] == [logging.WARNING] * 3


def test_space_that_was_freed_ends_it_after_a_quiet_while(
    space: DirectorySpace, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    space.refused(FULL, None, clock)
    space.sampled(4096, clock.now_ms())
    clock.advance(1_000)
    space.sampled(8 << 20, clock.now_ms())
    assert space.refusal is FULL, "a refusal a moment ago counts for more"
    clock.advance(3_000)
    space.sampled(8 << 20, clock.now_ms())
    assert space.refusal is None
    assert [level for level, _ in lines(caplog)] == [logging.WARNING, logging.INFO]


def test_directory_stays_full_while_nothing_changes(space: DirectorySpace, clock: ManualClock) -> None:
    space.refused(FULL, None, clock)
    for _ in range(100):
        clock.advance(1_000)
        assert space.must_sample(clock.now_ms())
        space.sampled(4096, clock.now_ms())
    assert space.refusal is FULL


def test_sample_is_taken_by_one_at_a_time_and_more_often_while_full(space: DirectorySpace, clock: ManualClock) -> None:
    assert space.must_sample(clock.now_ms())
    assert not space.must_sample(clock.now_ms())
    space.sampled(100, clock.now_ms())
    clock.advance(9_000)
    assert not space.must_sample(clock.now_ms())
    clock.advance(1_000)
    assert space.must_sample(clock.now_ms())
    space.refused(FULL, None, clock)
    space.sampled(100, clock.now_ms())
    clock.advance(1_000)
    assert space.must_sample(clock.now_ms())


def the_log(manager: LogManager) -> Log:
    (log,) = manager
    return log


class TestOnDisk:
    """With logs on a disk that fills."""

    @pytest.fixture
    def disk(self, clock: ManualClock) -> SimulatedDisk:
        return SimulatedDisk(Random(3), clock=clock)

    @pytest.fixture
    def manager(self, disk: SimulatedDisk, clock: ManualClock) -> LogManager:
        manager, _ = open_manager(disk, clock, [A])
        append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one")
        return manager

    def refuse(self, disk: SimulatedDisk, manager: LogManager) -> None:
        disk.capacity_bytes = disk.used_bytes
        log = the_log(manager)
        log.append(make_batch([b"too much"]), 0)
        with pytest.raises(DiskFull) as refusal:
            log.write()
        manager.on_log_failure(ORDERS, refusal.value)

    def test_free_space_is_known_from_the_start(self, disk: SimulatedDisk, manager: LogManager) -> None:
        (directory,) = manager.directories
        assert directory.space.free_bytes is not None

    def test_write_that_fits_again_ends_it(self, disk: SimulatedDisk, clock: ManualClock, manager: LogManager) -> None:
        (directory,) = manager.directories
        self.refuse(disk, manager)
        for _ in range(5):
            clock.advance(1_000)
            manager.run_due_work()
        assert directory.space.refusal is not None
        assert directory.is_online
        disk.capacity_bytes = disk.used_bytes + 10_000  # a quota that was raised: nothing else shows
        append(the_log(manager), b"fits")
        for _ in range(5):
            clock.advance(1_000)
            manager.run_due_work()
        assert directory.space.refusal is None

    def test_disk_that_cannot_even_be_asked_is_offline(
        self, disk: SimulatedDisk, clock: ManualClock, manager: LogManager
    ) -> None:
        disk.fail(errno.EIO, operations=["stat"], path_pattern=A)
        clock.advance(60_000)
        manager.run_due_work()
        assert [one.path for one in manager.offline_directories] == [A]
