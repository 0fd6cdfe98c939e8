"""A full disk: appends are refused, everything else works or is done later, and no directory goes offline."""

import errno
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFull
from barnabas.base.ids import NO_EPOCH
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.manager import LogManager
from tests.support.log_directories import (
    EAGER,
    LAZY,
    ORDERS,
    TOPIC_ID,
    A,
    B,
    append,
    checkpoint,
    make_batch,
    open_manager,
    read_values,
    served,
)


def test_full_disk_refuses_appends_while_reads_go_on_and_heals(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    log = served(manager, ORDERS)
    disk.capacity_bytes = disk.used_bytes
    log.append(make_batch([b"too much"]), 0)
    with pytest.raises(DiskFull) as failure:
        log.write()
    manager.on_log_failure(ORDERS, failure.value)
    assert manager.offline_directories == []
    assert read_values(log) == [b"flushed"]
    checkpoint(manager, clock)
    manager.run_due_work()
    assert manager.offline_directories == []
    disk.capacity_bytes = None
    append(log, b"fits again")
    checkpoint(manager, clock)
    assert (log.recovery_point, read_values(log)) == (2, [b"flushed", b"fits again"])
    log.check_invariants()


def test_flush_without_room_for_its_epochs_is_done_later(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    log = served(manager, ORDERS)
    append(log, b"two", leader_epoch=7)
    disk.fail(errno.ENOSPC, operations=["write"], path_pattern="*leader-epoch-checkpoint*")
    manager.run_due_work()
    assert manager.offline_directories == []
    assert log.recovery_point == 1
    manager.run_due_work()
    assert log.recovery_point == 2
    again, _ = open_manager(disk.crash(), clock, [A, B])
    assert served(again, ORDERS).epochs.entries == log.epochs.entries


def test_create_on_full_disk_leaves_nothing_and_works_later(disk: SimulatedDisk, clock: ManualClock) -> None:
    manager, _ = open_manager(disk, clock, [A])
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(DiskFull):
        manager.create(ORDERS, TOPIC_ID, EAGER)
    assert manager.get(ORDERS) is None
    assert not disk.exists(f"{A}/orders-0")
    disk.capacity_bytes = None
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one")


def test_delete_on_full_disk_works(disk: SimulatedDisk, clock: ManualClock, manager: LogManager) -> None:
    checkpoint(manager, clock)
    disk.capacity_bytes = disk.used_bytes
    used_bytes = disk.used_bytes
    manager.delete(ORDERS)
    clock.advance(1_000)
    manager.run_due_work()
    assert disk.used_bytes < used_bytes
    assert manager.offline_directories == []


def test_truncate_on_full_disk_works(disk: SimulatedDisk, clock: ManualClock, manager: LogManager) -> None:
    log = served(manager, ORDERS)
    append(log, b"two", b"three")
    manager.run_due_work()
    checkpoint(manager, clock)
    disk.capacity_bytes = disk.used_bytes
    manager.truncate(ORDERS, 1)
    assert (log.end_offset, read_values(log)) == (1, [b"flushed"])
    disk.capacity_bytes = None
    again, _ = open_manager(disk.crash(), clock, [A, B])
    assert read_values(served(again, ORDERS)) == [b"flushed"]


def test_deletion_that_must_wait_keeps_the_partition(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    disk.fail(errno.ENOSPC, operations=["rename"], path_pattern="/a/orders-0")
    with pytest.raises(DiskFull):
        manager.delete(ORDERS)
    append(served(manager, ORDERS), b"still here")
    manager.delete(ORDERS)
    assert manager.get(ORDERS) is None


def test_log_without_room_for_its_indexes_is_served_and_flushed_when_there_is_some(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    manager, _ = open_manager(disk, clock, [A], config=LAZY)
    log = manager.create(ORDERS, TOPIC_ID, LAZY)
    for number in range(3):
        append(log, *[b"%d" % number * 3_000] * 5)
        log.roll()
    append(log, b"last")
    values = read_values(log)
    killed = disk.kill()
    killed.fail(errno.ENOSPC, operations=["write"], path_pattern="*index", times=None)
    again, report = open_manager(killed, clock, [A], config=EAGER)
    assert report.unopened == []
    log = served(again, ORDERS)
    assert read_values(log) == values
    again.run_due_work()
    assert log.recovery_point == 0, "indexes that are not complete are not flushed"
    assert again.offline_directories == []
    killed.heal()
    again.run_due_work()
    assert log.recovery_point == log.end_offset
    facts = [(segment.offset_index.count, segment.largest) for segment in log.segments][:-1]
    checkpoint(again, clock)
    last, _ = open_manager(killed.crash(), clock, [A])
    log = served(last, ORDERS)
    assert [(segment.offset_index.count, segment.largest) for segment in log.segments][:-1] == facts
    assert read_values(log)[:15] == values[:15]


def test_full_disk_at_close_leaves_no_clean_mark(disk: SimulatedDisk, clock: ManualClock, manager: LogManager) -> None:
    append(served(manager, ORDERS), b"two")
    disk.capacity_bytes = disk.used_bytes
    manager.close()
    assert not disk.exists(f"{A}/.kafka_cleanshutdown")
    disk.capacity_bytes = None
    again, _ = open_manager(disk, clock, [A, B])
    assert read_values(served(again, ORDERS)) == [b"flushed", b"two"]


def test_log_that_could_not_be_closed_leaves_no_clean_mark(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    disk.fail(errno.ENOSPC, operations=["write"], path_pattern="/a/*.snapshot")
    manager.close()
    assert not disk.exists(f"{A}/.kafka_cleanshutdown")
    assert disk.exists(f"{B}/.kafka_cleanshutdown")


def test_first_flush_that_failed_leaves_the_names_to_the_next(clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(5), clock=clock, strict=True)
    manager, _ = open_manager(disk, clock, [A])
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, b"one", leader_epoch=NO_EPOCH)
    disk.fail(errno.EMFILE, operations=["sync_directory"], path_pattern="*/orders-0")
    manager.run_due_work()
    assert log.recovery_point == 0
    manager.run_due_work()
    assert log.recovery_point == 1
    again, _ = open_manager(disk.crash(), clock, [A])
    assert read_values(served(again, ORDERS)) == [b"one"]
