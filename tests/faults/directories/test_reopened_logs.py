"""A log that could not be opened, or was left half cut, is opened again later, with no more trust than it deserves."""

import errno

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.work import perform
from barnabas.wire.errors import KafkaError
from tests.support.log_directories import LAZY, ORDERS, A, B, append, checkpoint, open_manager, read_values, served


def test_log_left_half_cut_by_a_full_disk_is_opened_anew(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(served(manager, ORDERS), *[b"x"] * 9)
    manager.run_due_work()
    disk.fail(errno.ENOSPC, operations=["open"], path_pattern="*00000000000000000020.log")
    job = manager.restart(ORDERS, 20)
    perform(job)
    assert isinstance(job.error, DiskFull)
    with pytest.raises(KafkaError, match="cannot be opened"):
        manager.get(ORDERS)
    clock.advance(5_000)
    manager.run_due_work()
    log = served(manager, ORDERS)
    log.check_invariants()
    append(log, b"goes on")


def test_log_without_room_to_recover_is_opened_when_there_is_some(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(served(manager, ORDERS), *[b"x" * 5_000] * 5)
    crashed = disk.kill()
    crashed.remove(f"{A}/orders-0/00000000000000000000.index")
    crashed.fail(errno.ENOSPC, operations=["open", "write"], path_pattern="/a/orders-0/*.index", times=2)
    again, report = open_manager(crashed, clock, [A, B])
    assert report.unopened == [ORDERS]
    assert report.offline == []
    with pytest.raises(KafkaError, match="cannot be opened"):
        again.get(ORDERS)
    for _ in range(2):
        clock.advance(5_000)
        again.run_due_work()
    assert len(read_values(served(again, ORDERS))) == 6
    again.check_invariants()


def test_log_half_cut_after_a_clean_start_is_checked_when_it_is_opened_anew(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(served(manager, ORDERS), b"two")
    manager.close()
    again, _ = open_manager(disk, clock, [A, B], config=LAZY)
    append(served(again, ORDERS), b"three", b"four")
    disk.fail(errno.EMFILE, operations=["truncate"], path_pattern="/a/orders-0/*.log")
    with pytest.raises(DiskFailed):
        again.truncate(ORDERS, 3)
    clock.advance(5_000)
    again.run_due_work()
    log = served(again, ORDERS)
    assert log.recovery_point < log.end_offset, "what follows was never synced"
    assert read_values(log)[:3] == [b"flushed", b"two", b"three"]


def test_log_opened_anew_does_not_go_by_the_checkpoint_of_the_start(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(served(manager, ORDERS), *[b"x"] * 5)
    manager.close()
    again, _ = open_manager(disk, clock, [A, B], config=LAZY)
    again.truncate(ORDERS, 2)
    append(served(again, ORDERS), *[b"never synced"] * 3)
    disk.fail(errno.EMFILE, operations=["truncate"], path_pattern="/a/orders-0/*.log")
    with pytest.raises(DiskFailed):
        again.truncate(ORDERS, 4)
    clock.advance(5_000)
    again.run_due_work()
    assert served(again, ORDERS).recovery_point <= 2


def test_log_opened_late_and_shorter_lowers_its_checkpoint(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(served(manager, ORDERS), *[b"x" * 100] * 5)
    manager.run_due_work()
    checkpoint(manager, clock)
    crashed = disk.kill()
    assert read_offsets(crashed, f"{A}/recovery-point-offset-checkpoint") == {ORDERS: 6}
    file = crashed.open(f"{A}/orders-0/00000000000000000000.log", write=True)
    file.truncate(file.size() // 2)
    file.close()
    crashed.remove(f"{A}/orders-0/00000000000000000000.index")
    crashed.fail(errno.ENOSPC, operations=["open"], path_pattern="/a/orders-0/*.index")
    again, report = open_manager(crashed, clock, [A, B])
    assert report.unopened == [ORDERS]
    clock.advance(5_000)
    again.run_due_work()
    log = served(again, ORDERS)
    assert log.end_offset < 6
    assert read_offsets(crashed, f"{A}/recovery-point-offset-checkpoint")[ORDERS] <= log.end_offset
