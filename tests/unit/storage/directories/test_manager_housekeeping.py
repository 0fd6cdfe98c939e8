"""What a manager does from time to time: flushes, retention, producer expiry, checkpoints, compaction."""

import errno
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from barnabas.base.clock import ManualClock, SystemClock
from barnabas.base.filesystem import LocalFileSystem, replace_file
from barnabas.base.ids import TopicPartition
from barnabas.records.builder import BatchBuilder
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.directories.housekeeping import RETENTION_LOGS_TOGETHER, SEGMENTS_TOGETHER
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.log.log import Log
from barnabas.storage.settings import LogConfig
from barnabas.storage.work import Job, Work, perform
from tests.support.log_directories import (
    EAGER,
    LAZY,
    ORDERS,
    ORDERS_1,
    PAYMENTS,
    TOPIC_ID,
    A,
    append,
    checkpoint,
    make_batch,
    open_manager,
    read_values,
    recovery_points,
    served,
)


def titles(jobs: list[Work]) -> list[str]:
    """Without those that change nothing."""
    return [job.title for job in jobs if isinstance(job, Job) and not job.title.startswith("look at")]


def test_flush_covers_all_that_was_written_and_runs_one_at_a_time(clock: ManualClock, manager: LogManager) -> None:
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, b"one", b"two")
    flush = manager.flush_if_due(ORDERS)
    assert flush is not None
    append(log, b"three")
    assert manager.flush_if_due(ORDERS) is None
    perform(flush)
    assert log.recovery_point == 2
    second = manager.flush_if_due(ORDERS)
    assert second is not None
    perform(second)
    assert log.recovery_point == 3
    assert manager.flush_if_due(ORDERS) is None


def test_flush_that_was_overtaken_moves_nothing(manager: LogManager) -> None:
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, b"one", leader_epoch=4)
    overtaken = manager.flush_if_due(ORDERS)
    assert overtaken is not None
    plan = log.plan_flush()
    perform(overtaken)
    assert log.recovery_point == 0, "its leader epochs were left to the newer plan"
    plan.run()
    log.finish_flush(plan)
    assert log.recovery_point == 1


def test_flush_waits_for_staged_records(manager: LogManager) -> None:
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, b"one")
    log.append(make_batch([b"staged"]), 0)
    assert manager.flush_if_due(ORDERS) is None
    log.write()
    assert manager.flush_if_due(ORDERS) is not None


def test_flush_by_time_and_after_a_roll(disk: SimulatedDisk, clock: ManualClock, manager: LogManager) -> None:
    by_time = manager.create(ORDERS, TOPIC_ID, LogConfig(flush_ms=500))
    append(by_time, b"one")
    rolling = manager.create(ORDERS_1, TOPIC_ID, LAZY)
    append(rolling, b"one")
    manager.run_due_work()
    assert by_time.recovery_point == rolling.recovery_point == 0
    rolling.roll()
    assert titles(manager.due_work(clock.now_ms())) == ["flush orders-1"]
    clock.advance(500)
    assert titles(manager.due_work(clock.now_ms())) == ["flush orders-0"]


def test_retention_takes_old_segments_and_removes_their_files_later(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    config = LogConfig(retention_ms=10_000, file_delete_delay_ms=1_000, flush_messages=1)
    log = manager.create(ORDERS, TOPIC_ID, config)
    append(log, b"one")
    manager.run_due_work()
    clock.advance(300_000)
    manager.run_due_work()
    assert (log.log_start_offset, log.end_offset, len(log.segments)) == (0, 1, 2)
    clock.advance(1_000)
    manager.run_due_work()
    assert (log.log_start_offset, len(log.segments)) == (1, 1), "the name of the new one is durable"
    assert [name for name in disk.list(f"{A}/orders-0") if name.endswith(".log.deleted")]
    clock.advance(1_000)
    manager.run_due_work()
    assert [name for name in disk.list(f"{A}/orders-0") if name.endswith(".deleted")] == []


def test_round_over_many_logs_pauses_and_leaves_deleted_ones_out(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    config = LogConfig(retention_ms=10_000, file_delete_delay_ms=1_000, flush_messages=1)
    partitions = [TopicPartition("orders", number) for number in range(2 * RETENTION_LOGS_TOGETHER)]
    for partition in partitions:
        append(manager.create(partition, None, config), b"one")
    clock.advance(300_000)
    works = manager.due_in_slices(clock.now_ms())
    assert next(works) is None, "the first logs were looked at"
    assert sum(log.has_expired_segments for log in manager) == RETENTION_LOGS_TOGETHER
    manager.delete(partitions[-1])
    rest = list(works)
    assert all(log.has_expired_segments for log in manager)
    assert not [work for work in rest if work is not None and str(partitions[-1]) in work.title]  # type: ignore[attr-defined]
    assert manager.offline_directories == []


def test_retention_takes_many_segments_of_a_log_some_at_a_time(clock: ManualClock, manager: LogManager) -> None:
    log = manager.create(ORDERS, TOPIC_ID, LogConfig(retention_ms=10_000, segment_bytes=200))
    manager.run_due_work()
    append(log, *[b"x" * 90] * (2 * SEGMENTS_TOGETHER + 3))
    assert len(log.segments) > 2 * SEGMENTS_TOGETHER
    manager.run_due_work()
    clock.advance(300_000)
    left = [len(log.segments)]
    while left[-1] > 1:
        manager.run_due_work()
        clock.advance(1_000)
        left.append(len(log.segments))
        assert left[-2] - left[-1] <= SEGMENTS_TOGETHER
        assert log.log_start_offset == log.segments[0].base_offset
    assert len(left) < 10
    assert log.log_start_offset == log.end_offset


def test_segments_that_had_to_wait_leave_without_a_checkpoint_file(clock: ManualClock) -> None:
    """One a second, on a disk that has no room for the file."""
    disk = SimulatedDisk(Random(3), clock=clock)
    manager, _ = open_manager(disk, clock, [A])
    log = manager.create(ORDERS, TOPIC_ID, LogConfig(retention_ms=10_000, segment_bytes=200))
    append(log, *[b"x" * 90] * 5)
    manager.run_due_work()
    count = len(log.segments)
    disk.fail(errno.ENOSPC, operations=["write"], path_pattern="*checkpoint*", times=None)
    clock.advance(300_000)
    for _ in range(count + 1):
        manager.run_due_work()
        clock.advance(1_000)
    assert (len(log.segments), log.log_start_offset) == (1, log.end_offset)
    assert not manager.offline_directories


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_killed_while_segments_wait_to_leave_the_log_starts_where_it_was_seen_to(
    clock: ManualClock, rounds: int
) -> None:
    disk = SimulatedDisk(Random(3), clock=clock)
    manager, _ = open_manager(disk, clock, [A])
    log = manager.create(ORDERS, TOPIC_ID, LogConfig(retention_ms=10_000, segment_bytes=200))
    append(log, *[b"x" * 90] * 5)
    manager.run_due_work()
    disk.fail(errno.ENOSPC, operations=["write"], path_pattern="*checkpoint*", times=None)
    clock.advance(300_000)
    for _ in range(rounds):
        manager.run_due_work()
        clock.advance(1_000)
    assert log.has_expired_segments
    reopened, _ = open_manager(disk.kill(), clock, [A])
    found = reopened.get(ORDERS)
    assert found is not None
    assert found.log_start_offset == log.log_start_offset


def test_log_start_is_stored_until_deleted_segments_cannot_come_back(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, b"one", b"two")
    log.roll()
    append(log, b"three")
    manager.run_due_work()
    manager.delete_records(ORDERS, 2)
    manager.run_due_work()
    assert len(log.segments) == 1
    (directory,) = (one for one in manager.directories if ORDERS in one.logs)
    assert directory.current_start_offsets() == {ORDERS: 2}
    log.flush()
    assert directory.current_start_offsets() == {}


def test_producers_expire(clock: ManualClock, manager: LogManager) -> None:
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
    builder.append(clock.now_ms(), None, b"one")
    log.append(bytearray(builder.build()), 0)
    log.write()
    assert len(log.producers) == 1
    clock.advance(86_400_000)
    manager.run_due_work()
    assert len(log.producers) == 0


def test_checkpoints_are_written_when_due_and_only_when_changed(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one")
    manager.run_due_work()
    clock.advance(5_000)
    assert titles(manager.due_work(clock.now_ms()))[0] == "checkpoint /a"
    next(iter(manager.directories)).is_checkpointing = False
    clock.advance(60_000)
    manager.run_due_work()
    assert recovery_points(disk) == {ORDERS: 1}
    clock.advance(60_000)
    assert titles(manager.due_work(clock.now_ms())) == []


def test_checkpoint_never_speaks_of_records_that_are_not_synced(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    log = manager.create(ORDERS, TOPIC_ID, EAGER)
    append(log, b"one")
    manager.run_due_work()
    append(log, b"two")
    clock.advance(60_000)
    jobs = manager.due_work(clock.now_ms())
    assert titles(jobs) == ["flush orders-0", "checkpoint /a"]
    perform(jobs[1])
    assert recovery_points(disk) == {ORDERS: 1}


COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}), flush_messages=1, min_cleanable_dirty_ratio=0.0)


def _append_to_one_key(log: Log, clock: ManualClock) -> None:
    """A segment with two records, one of which compaction removes."""
    for value in (b"old", b"new"):
        builder = BatchBuilder()
        builder.append(clock.now_ms(), b"key", value)
        log.append(bytearray(builder.build()), 0)
    log.write()
    log.advance_high_watermark(log.end_offset)
    log.roll()


def test_compacted_log_is_compacted_and_others_are_not(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    for partition, config in ((ORDERS, COMPACTED), (ORDERS_1, EAGER)):
        _append_to_one_key(manager.create(partition, TOPIC_ID, config), clock)
    for _ in range(4):
        clock.advance(15_000)
        manager.run_due_work()
    kept = [log for log in manager if read_values(log) == [b"new"]]
    assert [log.partition for log in kept] == [ORDERS]
    assert read_offsets(disk, f"{A}/cleaner-offset-checkpoint") == {ORDERS: 2}
    manager.truncate(ORDERS, 1)
    assert read_offsets(disk, f"{A}/cleaner-offset-checkpoint") == {ORDERS: 0}
    manager.delete(ORDERS)
    assert read_offsets(disk, f"{A}/cleaner-offset-checkpoint") == {}


def test_pass_stays_below_a_stored_recovery_point(disk: SimulatedDisk, clock: ManualClock) -> None:
    """Else recovery could not tell what compaction removed from what a power loss took."""
    manager, _ = open_manager(disk, clock, [A], config=COMPACTED, log_flush_offset_checkpoint_interval_ms=1 << 40)
    manager.run_due_work()
    log = manager.create(ORDERS, TOPIC_ID, COMPACTED)
    assert recovery_points(disk) == {ORDERS: 0}, "from its first moment on it is known that nothing was compacted"
    _append_to_one_key(log, clock)
    manager.run_due_work()
    assert recovery_points(disk) == {ORDERS: 0}
    clock.advance(15_000)
    [compaction] = [work for work in manager.due_work(clock.now_ms()) if titles([work]) == ["compact orders-0"]]
    perform(compaction)
    assert recovery_points(disk) == {ORDERS: 2}


def test_recovery_point_of_kafka_is_ours_only_above_what_kafka_may_have_compacted(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    manager, _ = open_manager(disk, clock, [A], config=COMPACTED)
    log = manager.create(ORDERS, TOPIC_ID, COMPACTED)
    _append_to_one_key(log, clock)
    manager.close()
    disk.remove(f"{A}/.kafka_cleanshutdown")
    replace_file(disk, f"{A}/recovery-point-offset-checkpoint", b"0\n1\norders 0 1\n")
    again, _ = open_manager(disk, clock, [A], config=replace(COMPACTED, flush_messages=1 << 40))
    again.create(PAYMENTS, TOPIC_ID, EAGER)
    checkpoint(again, clock)
    assert recovery_points(disk) == {PAYMENTS: 0}
    log = served(again, ORDERS)
    log.flush()
    checkpoint(again, clock)
    assert recovery_points(disk) == {ORDERS: 2, PAYMENTS: 0}


@pytest.mark.slow
def test_idle_log_takes_little_memory(tmp_path: Path) -> None:
    files, clock, count = LocalFileSystem(), SystemClock(), 100
    manager, _ = open_manager(files, clock, [os.fspath(tmp_path)], config=LAZY)
    for number in range(count):
        append(manager.create(TopicPartition("orders", number), TOPIC_ID, LAZY), b"x" * 1000)
    manager.close()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        again, report = open_manager(files, clock, [os.fspath(tmp_path)], config=LAZY)
        per_log_bytes = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    assert (report.logs, report.checked_bytes) == (count, 0)
    assert per_log_bytes < 25 * 1024
    again.close()
