"""A deletion of one or many partitions that is interrupted leaves each of them whole, or nothing of it."""

import errno
import os
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFull
from barnabas.base.ids import TopicPartition
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.work import perform
from tests.support.log_directories import (
    EAGER,
    ORDERS,
    ORDERS_1,
    TOPIC_ID,
    A,
    B,
    append,
    checkpoint,
    open_manager,
    power_loss_within,
    read_values,
    recovery_points,
    served,
)


@pytest.mark.parametrize("calls", range(0, 40, 3))
def test_power_loss_within_deletion_leaves_the_partition_or_nothing(calls: int, clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(calls), clock=clock)
    manager, _ = open_manager(disk, clock, [A])
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one", b"two")
    manager.run_due_work()
    checkpoint(manager, clock)
    image = power_loss_within(disk, calls, lambda: manager.delete(ORDERS))
    again, _ = open_manager(image, clock, [A])
    log = again.get(ORDERS)
    if log is not None:
        assert read_values(log) == [b"one", b"two"]
    again.run_due_work()
    assert [name for name in image.list(A) if name.endswith("-delete")] == []


@pytest.mark.parametrize("calls", range(0, 40, 3))
def test_power_loss_within_deletion_of_many_leaves_each_of_them_or_nothing(calls: int, clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(calls), clock=clock, strict=True)
    manager, _ = open_manager(disk, clock, [A])
    partitions = [TopicPartition("orders", number) for number in range(4)]
    for partition in partitions:
        append(manager.create(partition, TOPIC_ID, EAGER), b"one", b"two")
    manager.run_due_work()
    checkpoint(manager, clock)
    [deletion] = manager.deletions(partitions[1:])
    image = power_loss_within(disk, calls, deletion.complete)
    again, _ = open_manager(image, clock, [A])
    for partition in partitions:
        log = again.get(partition)
        if log is None:
            log = again.create(partition, TOPIC_ID, EAGER)
            assert partition is not partitions[0]
            assert log.recovery_point == 0, "nothing is left of the one before"
        else:
            assert read_values(log) == [b"one", b"two"]


def test_deletion_of_many_that_fails_halfway_keeps_what_has_its_name(disk: SimulatedDisk, clock: ManualClock) -> None:
    manager, _ = open_manager(disk, clock, [A])
    partitions = [TopicPartition("orders", number) for number in range(3)]
    for partition in partitions:
        manager.create(partition, TOPIC_ID, EAGER)
    disk.fail(errno.ENOSPC, operations=["rename"], path_pattern="/a/orders-1")
    [deletion] = manager.deletions(partitions)
    perform(deletion)
    assert isinstance(deletion.error, DiskFull)
    assert manager.get(partitions[0]) is None
    for partition in partitions[1:]:
        append(served(manager, partition), b"still here")
        manager.delete(partition)
    assert not [name for name in disk.list(A) if name in map(str, partitions)]


def test_deletion_of_many_lowers_each_checkpoint_once(disk: SimulatedDisk, clock: ManualClock) -> None:
    manager, _ = open_manager(disk, clock, [A, B])
    partitions = [TopicPartition("orders", number) for number in range(40)]
    for partition in partitions:
        append(manager.create(partition, TOPIC_ID, EAGER), b"one", b"two")
        manager.delete_records(partition, 1)
    manager.run_due_work()
    checkpoint(manager, clock)
    written: list[str] = []
    disk.before_call = lambda operation, path: written.append(path) if operation == "sync" else None
    deletions = manager.deletions(partitions[:30])
    assert len(deletions) == 2, "one for each log directory"
    for deletion in deletions:
        deletion.complete()
    files = [os.path.basename(path) for path in written if "checkpoint" in path]
    assert len(files) == 4, "recovery points and log starts in both directories"
    left = {name: offset for path in (A, B) for name, offset in recovery_points(disk, path).items()}
    assert left == dict.fromkeys(partitions[30:], 2)


def test_finished_deletion_survives_power_loss(clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(5), clock=clock, strict=True)
    manager, _ = open_manager(disk, clock, [A, B])
    for partition in (ORDERS, ORDERS_1):
        manager.create(partition, TOPIC_ID, EAGER)
    manager.delete(ORDERS)
    crashed = disk.crash()
    again, _ = open_manager(crashed, clock, [A, B])
    assert again.get(ORDERS) is None
    assert served(again, ORDERS_1)
    again.run_due_work()
    assert [name for name in crashed.list(A) if name.startswith("orders")] == []
