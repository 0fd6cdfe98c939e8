"""Several log directories when disks fail, fill up, lose power or belong to somebody else."""

import errno
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DirectoryLocked, DiskFailed, DiskFull
from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import NO_EPOCH, TopicPartition
from barnabas.records.builder import BatchBuilder
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.directories.directories import AllDirectoriesOffline
from barnabas.storage.directories.directory import LogDirectory
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.log.log import Log
from barnabas.storage.settings import LogConfig
from barnabas.storage.work import Work, perform
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.log_directories import (
    EAGER,
    ORDERS,
    ORDERS_1,
    TOPIC_ID,
    append,
    make_batch,
    open_manager,
    read_values,
)

A, B = "/a", "/b"
LAZY = LogConfig(file_delete_delay_ms=1000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk(clock: ManualClock) -> SimulatedDisk:
    return SimulatedDisk(Random(5), clock=clock)


@pytest.fixture
def manager(disk: SimulatedDisk, clock: ManualClock) -> LogManager:
    """`orders-0` in /a, `orders-1` in /b, one record in each, flushed."""
    manager, _ = open_manager(disk, clock, [A, B])
    for partition in (ORDERS, ORDERS_1):
        append(manager.create(partition, TOPIC_ID, EAGER), b"flushed")
    manager.run_due_work()
    return manager


def served(manager: LogManager, partition: TopicPartition) -> Log:
    log = manager.get(partition)
    assert log is not None
    return log


def recovery_points(disk: SimulatedDisk, path: str) -> dict[TopicPartition, int]:
    return read_offsets(disk, f"{path}/recovery-point-offset-checkpoint")


def checkpoint(manager: LogManager, clock: ManualClock) -> None:
    clock.advance(60_000)
    manager.run_due_work()


def power_loss_within(disk: SimulatedDisk, calls: int, act: Callable[[], object]) -> SimulatedDisk:
    """What is left when the power fails after so many calls to the disk, or at the end if there are fewer."""
    images: list[SimulatedDisk] = []
    countdown = iter(range(calls, -1, -1))

    def at_call(operation: str, path: str) -> None:
        if next(countdown, None) == 0:
            images.append(disk.power_loss_image())

    disk.before_call = at_call
    act()
    disk.before_call = None
    return images[0] if images else disk.crash()


# Crashes


def test_crash_is_recovered_from_the_recovery_point_only(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    log = served(manager, ORDERS)
    append(log, *[b"x" * 5_000] * 10)
    log.roll()
    append(log, b"flushed")
    manager.run_due_work()
    checkpoint(manager, clock)
    log.config = LAZY
    append(log, b"not flushed")
    again, report = open_manager(disk.kill(), clock, [A, B])
    assert 0 < report.checked_bytes < 500, "the active segments"
    assert read_values(served(again, ORDERS))[-1] == b"not flushed"
    again.check_invariants()


@pytest.mark.parametrize("seed", range(20))
def test_power_loss_keeps_everything_that_was_flushed(seed: int, clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(seed), clock=clock, strict=seed % 2 == 0)
    manager, _ = open_manager(disk, clock, [A, B])
    for partition in (ORDERS, ORDERS_1):
        append(manager.create(partition, TOPIC_ID, EAGER), *[b"flushed"] * 5)
    manager.run_due_work()
    if seed % 3:
        checkpoint(manager, clock)
    for partition in (ORDERS, ORDERS_1):
        append(served(manager, partition), *[b"perhaps"] * 5)
    again, report = open_manager(disk.crash(), clock, [A, B])
    assert report.logs == 2
    for log in again:
        values = read_values(log)
        assert values[:5] == [b"flushed"] * 5
        assert values[5:] == [b"perhaps"] * (len(values) - 5)
    again.check_invariants()


@pytest.mark.parametrize("seed", range(20))
def test_power_loss_after_truncation_never_shows_what_was_cut_or_garbage(seed: int, clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(seed), clock=clock)
    manager, _ = open_manager(disk, clock, [A])
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, *[b"old" * 300] * 10)
    manager.run_due_work()
    checkpoint(manager, clock)
    manager.truncate(ORDERS, 3)
    log.config = LAZY
    append(log, *[b"new" * 300] * 12, leader_epoch=1)
    again, _ = open_manager(disk.crash(), clock, [A], seed=seed)
    survived = served(again, ORDERS)
    values = read_values(survived)
    assert values[:3] == [b"old" * 300] * 3
    assert set(values[3:]) <= {b"new" * 300} or set(values[3:]) <= {b"old" * 300}, "never a mixture"
    survived.check_invariants()


SEVERAL = LogConfig(flush_messages=1, file_delete_delay_ms=1000, segment_bytes=200)
"""Two records to a segment."""


def cut_log(disk: SimulatedDisk, clock: ManualClock) -> LogManager:
    """Ten records in five segments, flushed, of a producer whose sequences are the offsets."""
    manager, _ = open_manager(disk, clock, [A], config=SEVERAL)
    log = manager.create(ORDERS, TOPIC_ID, SEVERAL)
    append_ten(log, clock)
    manager.run_due_work()
    checkpoint(manager, clock)
    assert len(log.segments) == 5
    return manager


def append_ten(log: Log, clock: ManualClock) -> None:
    for number in range(10):
        batch = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=number)
        batch.append(clock.now_ms(), None, b"%d" % number)
        log.append(bytearray(batch.build()), 0)
        log.write()
    log.advance_high_watermark(10)


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("calls", range(45))
def test_power_loss_within_truncation_leaves_a_prefix_that_reaches_to_the_cut(
    calls: int, is_strict: bool, clock: ManualClock
) -> None:
    disk = SimulatedDisk(Random(calls), clock=clock, strict=is_strict)
    manager = cut_log(disk, clock)
    image = power_loss_within(disk, calls, lambda: manager.truncate(ORDERS, 5))
    again, _ = open_manager(image, clock, [A], config=SEVERAL)
    log = served(again, ORDERS)
    values = read_values(log)
    assert values == [b"%d" % number for number in range(len(values))]
    assert 5 <= len(values) <= 10
    producer = log.producers.get(7)
    assert producer is not None
    assert producer.last_sequence == len(values) - 1
    append(log, b"goes on", leader_epoch=1)
    again.check_invariants()


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("calls", range(65))
def test_power_loss_within_restart_leaves_a_prefix_or_the_new_start(
    calls: int, is_strict: bool, clock: ManualClock
) -> None:
    disk = SimulatedDisk(Random(calls), clock=clock, strict=is_strict)
    manager = cut_log(disk, clock)
    manager.delete_records(ORDERS, 3)
    checkpoint(manager, clock)
    image = power_loss_within(disk, calls, lambda: perform(manager.restart(ORDERS, 20)))
    again, _ = open_manager(image, clock, [A], config=SEVERAL)
    log = served(again, ORDERS)
    values = read_values(log)
    assert values == [b"%d" % number for number in range(3, 3 + len(values))], "and nothing that was deleted"
    assert log.end_offset == 3 + len(values) or (values, log.end_offset) == ([], 20)
    append(log, b"goes on", leader_epoch=1)
    again.check_invariants()


@pytest.mark.parametrize("seed", range(20))
def test_segments_that_were_dropped_never_come_back_behind_new_records(seed: int, clock: ManualClock) -> None:
    """The new records end just where the first of the dropped segments began."""
    disk = SimulatedDisk(Random(seed), clock=clock, strict=True)
    manager = cut_log(disk, clock)
    disk.fail(
        errno.ENOSPC, operations=["write"], path_pattern="*/leader-epoch-checkpoint*"
    )  # which syncs the names, too
    manager.truncate(ORDERS, 2)
    disk.heal()
    log = served(manager, ORDERS)
    log.config = replace(SEVERAL, flush_messages=2**63 - 1)
    append(log, b"new", b"new", leader_epoch=1)
    again, _ = open_manager(disk.crash(), clock, [A], config=SEVERAL)
    values = read_values(served(again, ORDERS))
    assert values[:2] == [b"0", b"1"]
    assert set(values[2:]) <= {b"new"}


def test_truncation_keeps_the_owner_from_nothing_that_blocks(clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(1), clock=clock)
    manager = cut_log(disk, clock)
    calls: list[str] = []
    disk.before_call = lambda operation, path: calls.append(operation)
    job = manager.truncation(ORDERS, 5)
    planned, _ = set(calls), calls.clear()
    job.run()
    ran, _ = set(calls), calls.clear()
    job.finish()
    assert planned <= {"open", "read", "stat", "map"}
    assert {"rename", "truncate", "sync", "sync_directory"} <= ran
    assert calls == []
    assert read_values(served(manager, ORDERS)) == [b"0", b"1", b"2", b"3", b"4"]


def test_log_that_is_being_cut_serves_what_lies_below_and_takes_nothing(clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(1), clock=clock)
    manager = cut_log(disk, clock)
    log = served(manager, ORDERS)
    below, beyond = log.read(4, 1000, 5).slice, log.read(5, 1000, 6).slice
    assert below is not None
    assert beyond is not None
    job = manager.truncation(ORDERS, 5)
    assert (below.is_revoked, beyond.is_revoked) == (False, True)
    for step in (lambda: None, job.run):
        step()
        assert (log.end_offset, log.high_watermark, log.is_truncating) == (5, 5, True)
        assert read_values(log) == [b"0", b"1", b"2", b"3", b"4"]
        with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
            log.read(6, 1000)
        with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
            append(log, b"refused")
        checkpoint(manager, clock)
        manager.check_invariants()
    assert recovery_points(disk, A)[ORDERS] == 5
    job.finish()
    append(log, b"taken", leader_epoch=1)
    assert read_values(log)[5:] == [b"taken"]


def test_flush_under_way_covers_nothing_beyond_a_cut(clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(1), clock=clock)
    manager = cut_log(disk, clock)
    log = served(manager, ORDERS)
    append(log, b"10", b"11")
    plan = log.plan_flush()
    job = manager.truncation(ORDERS, 5)
    plan.run()
    log.finish_flush(plan)
    assert plan.end_offset == log.end_offset == 5, "whoever waited for the flush commits no more than there is"
    perform(job)
    assert log.recovery_point == 5


def test_partition_deleted_while_it_is_cut_leaves_its_successor_alone(clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(1), clock=clock)
    manager = cut_log(disk, clock)
    job = manager.truncation(ORDERS, 5)
    manager.delete(ORDERS)
    successor = manager.create(ORDERS, TOPIC_ID, SEVERAL)
    append_ten(successor, clock)
    perform(job)
    assert job.error is None
    assert len(read_values(successor)) == 10
    assert sum(name.endswith(".log") for name in disk.list(f"{A}/orders-0")) == 5
    assert manager.offline_directories == []
    manager.check_invariants()


def test_log_whose_deletion_fails_while_it_is_cut_is_opened_anew(clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(1), clock=clock)
    manager = cut_log(disk, clock)
    job = manager.truncation(ORDERS, 5)
    disk.fail(errno.ENOSPC, operations=["rename"], path_pattern="/a/orders-0")
    with pytest.raises(DiskFull):
        manager.delete(ORDERS)
    perform(job)
    clock.advance(5_000)
    manager.run_due_work()
    log = served(manager, ORDERS)
    values = read_values(log)
    assert values == [b"%d" % number for number in range(len(values))]
    append(log, b"goes on")
    manager.check_invariants()


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


@pytest.mark.parametrize("calls", range(0, 30, 2))
def test_power_loss_within_close_is_not_taken_for_a_clean_stop(calls: int, clock: ManualClock) -> None:
    disk = SimulatedDisk(Random(calls), clock=clock, strict=True)
    manager, _ = open_manager(disk, clock, [A])
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one")
    manager.run_due_work()
    append(served(manager, ORDERS), b"two")
    again, report = open_manager(power_loss_within(disk, calls, manager.close), clock, [A])
    values = read_values(served(again, ORDERS))
    assert values in ([b"one"], [b"one", b"two"])
    assert report.checked_bytes or values == [b"one", b"two"]
    again.check_invariants()


# A disk that fails


def test_directory_that_fails_goes_offline_alone(disk: SimulatedDisk, clock: ManualClock) -> None:
    told: list[str] = []

    def on_offline(directory: LogDirectory) -> None:
        told.append(directory.path)

    manager, _ = open_manager(disk, clock, [A, B], manager_options={"on_offline": on_offline})
    for partition in (ORDERS, ORDERS_1):
        append(manager.create(partition, TOPIC_ID, EAGER), b"one")
    disk.fail(errno.EIO, path_pattern="/a/*", times=None)
    log = served(manager, ORDERS)
    log.append(make_batch([b"two"]), 0)
    with pytest.raises(DiskFailed) as failure:
        log.write()
    manager.on_log_failure(ORDERS, failure.value)
    assert [directory.path for directory in manager.offline_directories] == [A]
    assert told == [A]
    with pytest.raises(KafkaError) as refusal:
        manager.get(ORDERS)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    append(served(manager, ORDERS_1), b"two")
    manager.run_due_work()
    assert read_values(served(manager, ORDERS_1)) == [b"one", b"two"]
    assert manager.create(TopicPartition("new", 0), TOPIC_ID, EAGER).directory == f"{B}/new-0"
    assert [log.partition for log in manager] == [ORDERS_1, TopicPartition("new", 0)]
    manager.close()
    disk.heal()
    again, report = open_manager(disk, clock, [A, B])
    assert report.logs == 3
    assert report.checked_bytes > 0, "the failed directory has no clean mark"
    assert read_values(served(again, ORDERS)) == [b"one"]


def test_failed_sync_takes_the_directory_offline_whatever_the_reason(disk: SimulatedDisk, clock: ManualClock) -> None:
    for code in (errno.EIO, errno.ENOSPC):
        manager, _ = open_manager(disk, clock, [A, B], seed=code)
        name = TopicPartition("synced", code)
        append(manager.create(name, TOPIC_ID, EAGER), b"one")
        disk.fail(code, operations=["sync"], path_pattern="*.log")
        manager.run_due_work()
        assert len(manager.offline_directories) == 1
        with pytest.raises(KafkaError):
            manager.get(name)
        manager.close()


def test_partition_that_may_be_offline_is_not_made_anew(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    disk.fail(errno.EIO, operations=["sync"], path_pattern="/a/*")
    append(served(manager, ORDERS), b"two")
    manager.run_due_work()
    assert manager.offline_directories
    with pytest.raises(KafkaError, match="may lie in a directory that is offline"):
        manager.creation(TopicPartition("seldom", 0), TOPIC_ID, EAGER, is_new=False)


def test_all_directories_offline_is_said(disk: SimulatedDisk, clock: ManualClock, manager: LogManager) -> None:
    disk.fail(errno.EIO, operations=["sync"], times=None)
    for partition in (ORDERS, ORDERS_1):
        append(served(manager, partition), b"two")
    manager.run_due_work()
    assert len(manager) == 0
    with pytest.raises(AllDirectoriesOffline, match="Input/output error"):
        manager.run_due_work()
    with pytest.raises(AllDirectoriesOffline):
        manager.create(TopicPartition("new", 0), TOPIC_ID, EAGER)
    manager.close()


def test_directory_that_cannot_be_listed_at_the_start_is_offline(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    manager.close()
    disk.fail(errno.EIO, operations=["list"], path_pattern=A, times=None)
    again, report = open_manager(disk, clock, [A, B])
    assert report.offline == [A]
    assert served(again, ORDERS_1)
    disk.fail(errno.EIO, operations=["lock"], path_pattern="/c/*", times=None)
    with pytest.raises(AllDirectoriesOffline):
        open_manager(disk, clock, ["/c"])


def test_directory_that_fails_while_its_logs_are_opened_is_offline(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    manager.create(TopicPartition("orders", 2), TOPIC_ID, EAGER)
    manager.close()
    disk.fail(errno.EIO, operations=["read"], path_pattern="/a/orders-0/*", times=None)
    again, report = open_manager(disk, clock, [A, B])
    assert report.offline == [A]
    assert [log.partition for log in again] == [ORDERS_1]


def test_too_many_open_files_is_not_the_disks_fault(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(served(manager, ORDERS), b"two")
    disk.fail(errno.EMFILE, operations=["open"], path_pattern="/a/orders-0/*")
    manager.run_due_work()
    assert manager.offline_directories == []
    manager.run_due_work()
    assert served(manager, ORDERS).recovery_point == 2


# A disk that is full


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
    assert log.recovery_point == log.segments.active.base_offset
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


# Threads


def test_jobs_in_threads_beside_the_owner_keep_the_logs_whole(tmp_path: Path, clock: ManualClock) -> None:
    """The owner appends, cuts and deletes while flushes and checkpoints of the same logs run in workers."""
    files, paths, random = LocalFileSystem(), [os.fspath(tmp_path / name) for name in ("a", "b")], Random(11)
    manager, _ = open_manager(files, clock, paths)
    partitions = [TopicPartition("orders", number) for number in range(4)]
    for partition in partitions:
        manager.create(partition, TOPIC_ID, EAGER)
    running: list[tuple[Work, Future[None]]] = []
    with ThreadPoolExecutor(4) as executor:
        for epoch in range(150):
            partition = random.choice(partitions)
            log = served(manager, partition)
            append(log, *[b"x" * 200] * 3, leader_epoch=epoch)
            if random.random() < 0.2:
                manager.truncate(partition, random.randrange(log.log_start_offset, log.end_offset))
            if random.random() < 0.05:
                manager.delete(partition)
                manager.create(partition, TOPIC_ID, EAGER)
            clock.advance(2_500)
            running += [(work, executor.submit(work.run)) for work in manager.due_work(clock.now_ms())]
            for _ in range(random.randrange(len(running) + 1)):
                work, future = running.pop(random.randrange(len(running)))
                future.result()
                work.finish()
        for work, future in running:
            future.result()
            work.finish()
    assert manager.offline_directories == []
    manager.check_invariants()
    contents = {log.partition: (log.end_offset, read_values(log), log.epochs.entries) for log in manager}
    for directory in manager.directories:  # the process is gone, nothing was closed
        directory.release()
    again, report = open_manager(files, clock, paths)
    assert report.removed_bytes == 0
    assert {log.partition: (log.end_offset, read_values(log), log.epochs.entries) for log in again} == contents
    again.close()


# Somebody else


def test_lock_held_by_another_process_is_refused_with_one_clear_line(tmp_path: Path, clock: ManualClock) -> None:
    holder = textwrap.dedent(
        """
        import sys
        from barnabas.base.filesystem import LocalFileSystem
        lock = LocalFileSystem().lock(sys.argv[1] + "/.lock")
        print("locked", flush=True)
        sys.stdin.read()
        """
    )
    path = os.fspath(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", holder, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryLocked) as refusal:
            open_manager(LocalFileSystem(), clock, [path])
        process.kill()
    assert path in str(refusal.value)
    assert "\n" not in str(refusal.value)
    manager, _ = open_manager(LocalFileSystem(), clock, [path])
    manager.close()
