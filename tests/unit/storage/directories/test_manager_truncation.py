"""Truncated and restarted logs and deleted records, with the checkpoints that go down first."""

from barnabas.base.clock import ManualClock
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.work import perform
from tests.support.log_directories import (
    EAGER,
    ORDERS,
    PAYMENTS,
    TOPIC_ID,
    A,
    B,
    append,
    make_batch,
    open_manager,
    read_values,
    recovery_points,
)


def test_truncate_lowers_the_recovery_point_on_disk_before_the_cut(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, b"one", b"two", b"three")
    manager.run_due_work()
    clock.advance(60_000)
    manager.run_due_work()
    assert recovery_points(disk) == {ORDERS: 3}
    job = manager.truncation(ORDERS, 1)
    lowered_before: list[bool] = []

    def at_call(operation: str, path: str) -> None:
        if operation == "truncate" and path.endswith(".log"):
            lowered_before.append(recovery_points(disk.power_loss_image())[ORDERS] <= 1)

    disk.before_call = at_call
    job.run()
    disk.before_call = None
    assert lowered_before == [True]
    clock.advance(60_000)
    manager.run_due_work()
    assert recovery_points(disk)[ORDERS] <= 1, "a checkpoint before the cut must not raise it again"
    job.finish()
    assert (log.end_offset, log.recovery_point, read_values(log)) == (1, 1, [b"one"])
    clock.advance(60_000)
    manager.run_due_work()
    assert recovery_points(disk) == {ORDERS: 1}


def test_truncate_within_a_batch_leaves_a_recovery_point_below_it(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, b"one")
    log.append(make_batch([b"two", b"three", b"four"]), 0)
    log.write()
    manager.run_due_work()
    clock.advance(60_000)
    manager.run_due_work()
    assert recovery_points(disk) == {ORDERS: 4}
    manager.truncate(ORDERS, 3)
    assert log.end_offset == 1
    assert recovery_points(disk)[ORDERS] <= 1


def test_truncate_while_a_flush_is_under_way_keeps_the_recovery_point_down(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, b"one", b"two")
    flush = manager.flush_if_due(ORDERS)
    assert flush is not None
    flush.run()
    manager.truncate(ORDERS, 1)
    append(log, b"other", leader_epoch=1)
    flush.finish()
    assert log.recovery_point <= 1
    manager.run_due_work()
    assert log.recovery_point == 2
    again, _ = open_manager(disk.crash(), clock, [A, B])
    survived = again.get(ORDERS)
    assert survived is not None
    assert read_values(survived) == [b"one", b"other"]
    assert survived.epochs.entries == log.epochs.entries


def test_restart_below_the_checkpointed_start_is_found_after_a_crash(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, *[b"x"] * 10)
    manager.delete_records(ORDERS, 8)
    manager.run_due_work()
    assert read_offsets(disk, f"{A}/log-start-offset-checkpoint") == {ORDERS: 8}
    perform(manager.restart(ORDERS, 5))
    append(log, b"again")
    manager.run_due_work()
    again, _ = open_manager(disk.crash(), clock, [A, B])
    survived = again.get(ORDERS)
    assert survived is not None
    assert (survived.log_start_offset, survived.end_offset) == (5, 6)


def test_deleted_records_stay_deleted_after_a_crash(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one", b"two", b"three")
    manager.run_due_work()
    assert manager.delete_records(ORDERS, 2) == 2
    [(job, partitions)] = manager.storing_starts([ORDERS, PAYMENTS])
    assert partitions == [ORDERS]
    job.complete()
    again, _ = open_manager(disk.crash(), clock, [A, B])
    log = again.get(ORDERS)
    assert log is not None
    assert read_values(log) == [b"three"]
