"""The logs of a broker: opening, creating, deleting, cutting, and what is done from time to time."""

import os
import tracemalloc
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from barnabas.base.clock import ManualClock, SystemClock
from barnabas.base.errors import DirectoryLocked
from barnabas.base.filesystem import LocalFileSystem, read_file, replace_file
from barnabas.base.ids import TopicPartition
from barnabas.records.builder import BatchBuilder
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import encode_offsets, read_offsets
from barnabas.storage.directories.directory import UnusableDirectory
from barnabas.storage.directories.housekeeping import RETENTION_LOGS_TOGETHER, SEGMENTS_TOGETHER
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.opening import OpeningProgress
from barnabas.storage.settings import LogConfig
from barnabas.storage.work import Job, ThreadWorkers, Work, perform
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.log_directories import (
    EAGER,
    ORDERS,
    ORDERS_1,
    PAYMENTS,
    TOPIC_ID,
    append,
    make_batch,
    make_manager,
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
    return SimulatedDisk(Random(3), clock=clock)


@pytest.fixture
def manager(disk: SimulatedDisk, clock: ManualClock) -> LogManager:
    return open_manager(disk, clock, [A, B])[0]


def recovery_points(disk: SimulatedDisk, path: str = A) -> dict[TopicPartition, int]:
    return read_offsets(disk, f"{path}/recovery-point-offset-checkpoint")


def titles(jobs: list[Work]) -> list[str]:
    """Without those that change nothing."""
    return [job.title for job in jobs if isinstance(job, Job) and not job.title.startswith("look at")]


# Opening and closing


def test_reopening_after_clean_close_scans_nothing(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one", b"two")
    append(manager.create(ORDERS_1, TOPIC_ID, EAGER), b"three")
    manager.close()
    again, report = open_manager(disk, clock, [A, B])
    assert (report.logs, report.checked_bytes, report.repaired) == (2, 0, [])
    log = again.get(ORDERS, TOPIC_ID)
    assert log is not None
    assert read_values(log) == [b"one", b"two"]
    assert (log.high_watermark, log.recovery_point) == (2, 2)
    assert again.topic_id(ORDERS) == TOPIC_ID
    again.check_invariants()


def test_closing_untouched_logs_writes_nothing_of_them(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one")
    manager.close()
    again, _ = open_manager(disk, clock, [A, B])
    touched: list[str] = []
    disk.before_call = lambda operation, path: touched.append(path) if operation in {"sync", "write"} else None
    again.close()
    disk.before_call = None
    assert [path for path in touched if "orders-0" in path] == []
    _, report = open_manager(disk, clock, [A, B])
    assert (report.logs, report.checked_bytes) == (1, 0)


def test_opening_logs_that_closed_cleanly_but_were_touched_since_scans_them(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one")
    manager.close()
    again, _ = open_manager(disk, clock, [A, B])
    log = again.get(ORDERS)
    assert log is not None
    append(log, b"two")
    _, report = open_manager(disk.kill(), clock, [A, B])
    assert report.checked_bytes > 0


def test_parallel_opening_tells_progress_and_opens_everything(tmp_path: Path, clock: ManualClock) -> None:
    files = LocalFileSystem()
    paths = [os.fspath(tmp_path / name) for name in ("a", "b")]
    manager, _ = open_manager(files, clock, paths, workers=ThreadWorkers())
    partitions = [TopicPartition("orders", number) for number in range(24)]
    for partition in partitions:
        append(manager.create(partition, TOPIC_ID, LAZY), str(partition).encode() * 50)
    for directory in manager.directories:  # the process is gone, nothing was closed
        directory.release()
    told: list[OpeningProgress] = []
    again = make_manager(files, clock, paths, workers=ThreadWorkers(), num_recovery_threads_per_data_dir=3)
    report = again.open(lambda topic: LAZY, told.append)
    assert report.logs == 24
    assert report.checked_bytes == sum(log.size_bytes for log in again) == told[-1].checked_bytes
    assert (told[-1].logs_done, told[-1].logs_total) == (24, 24)
    assert [progress.logs_done for progress in told] == sorted(progress.logs_done for progress in told)
    for partition in partitions:
        log = again.get(partition)
        assert log is not None
        assert read_values(log) == [str(partition).encode() * 50]
    again.close()
    last, report = open_manager(files, clock, paths, workers=ThreadWorkers())
    assert (report.logs, report.checked_bytes) == (24, 0)
    last.close()


def test_opening_locked_directory_is_refused_and_releases_the_others(disk: SimulatedDisk, clock: ManualClock) -> None:
    disk.make_directory(B)
    lock = disk.lock(f"{B}/.lock")
    with pytest.raises(DirectoryLocked, match="/b is in use"):
        open_manager(disk, clock, [A, B])
    lock.release()
    open_manager(disk, clock, [A, B])


def test_opening_foreign_directory_leaves_the_clean_marks_alone(disk: SimulatedDisk, clock: ManualClock) -> None:
    open_manager(disk, clock, [A, B])[0].close()
    with pytest.raises(UnusableDirectory, match="belongs to node 1, this is node 2"):
        open_manager(disk, clock, ["/c", A, B], node_id=2)
    with pytest.raises(UnusableDirectory, match="belongs to cluster"):
        open_manager(disk, clock, [A, B], cluster_id="another")
    assert disk.exists(f"{A}/.kafka_cleanshutdown")
    open_manager(disk, clock, [A, B])


def test_opening_partition_in_two_directories_is_refused(disk: SimulatedDisk, clock: ManualClock) -> None:
    disk.make_directory(f"{A}/orders-0")
    disk.make_directory(f"{B}/orders-0")
    with pytest.raises(UnusableDirectory, match="orders-0 lies both in /a and in /b"):
        open_manager(disk, clock, [A, B])


def test_opening_leaves_what_is_not_ours(
    disk: SimulatedDisk, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    strange = {
        f"{A}/__cluster_metadata-0/00000000000000000000.log": b"kraft",
        f"{A}/bootstrap.checkpoint": b"kraft, too",
        f"{A}/orders-1.00ff-stray/00000000000000000000.log": b"stray",
        f"{A}/orders-2.00ff-future/00000000000000000000.log": b"future",
        f"{A}/lost+found/file": b"found",
        f"{A}/notes.txt": b"a person's",
    }
    for path, content in strange.items():
        disk.make_directory(os.path.dirname(path))
        replace_file(disk, path, content)
    manager, report = open_manager(disk, clock, [A])
    assert len(manager) == 0
    assert report.strays == [f"{A}/orders-1.00ff-stray"]
    assert report.set_aside == [f"{A}/orders-2.00ff-future"]
    assert report.malformed == [f"{A}/lost+found"]
    clock.advance(3_600_000)
    manager.run_due_work()
    manager.close()
    assert {path: read_file(disk, path) for path in strange} == strange
    assert caplog.text.count("lost+found") == 1


def test_opening_removes_directories_of_deleted_partitions(disk: SimulatedDisk, clock: ManualClock) -> None:
    disk.make_directory(f"{A}/orders-0.00ff-delete")
    replace_file(disk, f"{A}/orders-0.00ff-delete/00000000000000000000.log", b"gone")
    manager, _ = open_manager(disk, clock, [A])
    manager.run_due_work()
    assert not disk.exists(f"{A}/orders-0.00ff-delete")


def test_checkpoint_entry_without_a_log_is_gone_before_the_log_comes_back(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    manager.close()
    replace_file(disk, f"{A}/recovery-point-offset-checkpoint", encode_offsets({ORDERS: 100}))
    replace_file(disk, f"{A}/log-start-offset-checkpoint", encode_offsets({ORDERS: 100}))
    open_manager(disk, clock, [A, B])
    assert recovery_points(disk) == {}
    assert read_offsets(disk, f"{A}/log-start-offset-checkpoint") == {}


# Creating


def test_create_goes_to_the_emptiest_directory_that_is_not_cordoned(disk: SimulatedDisk, clock: ManualClock) -> None:
    manager, _ = open_manager(disk, clock, [A, B, "/c"], cordoned_log_dirs=frozenset({B}))
    for number in range(4):
        manager.create(TopicPartition("orders", number), TOPIC_ID, EAGER)
    assert [len(directory.logs) for directory in manager.directories] == [2, 0, 2]
    assert len(list(manager)) == len(manager) == 4


def test_create_with_every_directory_cordoned_is_refused(disk: SimulatedDisk, clock: ManualClock) -> None:
    manager, _ = open_manager(disk, clock, [A], cordoned_log_dirs=frozenset({A}))
    with pytest.raises(KafkaError, match="cordoned"):
        manager.create(ORDERS, TOPIC_ID, EAGER)


def test_creations_under_way_count_for_the_emptiest(manager: LogManager) -> None:
    jobs = [manager.creation(TopicPartition("orders", number), TOPIC_ID, EAGER) for number in range(4)]
    assert manager.get(ORDERS) is None
    for job in reversed(jobs):
        perform(job)
    assert [len(directory.logs) for directory in manager.directories] == [2, 2]


def test_created_partition_survives_a_crash_with_its_topic_id(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    manager.create(ORDERS, TOPIC_ID, EAGER)
    again, _ = open_manager(disk.crash(), clock, [A, B])
    assert again.get(ORDERS, TOPIC_ID) is not None
    assert again.topic_id(ORDERS) == TOPIC_ID


def test_get_with_another_topic_id_is_refused(manager: LogManager) -> None:
    manager.create(ORDERS, TOPIC_ID, EAGER)
    with pytest.raises(KafkaError) as refusal:
        manager.get(ORDERS, UUID(int=77))
    assert refusal.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    assert manager.get(PAYMENTS) is None


def test_damaged_partition_metadata_is_said_and_the_log_served(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one")
    manager.close()
    replace_file(disk, f"{A}/orders-0/partition.metadata", b"nonsense")
    again, _ = open_manager(disk, clock, [A, B])
    assert "topic id is not known" in caplog.text
    assert again.get(ORDERS, TOPIC_ID) is not None


# Deleting


def test_delete_takes_the_log_away_and_its_files_later(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one")
    manager.run_due_work()
    manager.delete(ORDERS)
    assert manager.get(ORDERS) is None
    doomed = [name for name in disk.list(A) if name.endswith("-delete")]
    assert len(doomed) == 1
    assert doomed[0].startswith("orders-0.")
    manager.run_due_work()
    assert disk.exists(f"{A}/{doomed[0]}")
    clock.advance(EAGER.file_delete_delay_ms)
    manager.run_due_work()
    assert not disk.exists(f"{A}/{doomed[0]}")


def test_recreated_partition_does_not_inherit_checkpoints(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one", b"two", b"three")
    manager.delete_records(ORDERS, 2)
    manager.run_due_work()
    clock.advance(60_000)
    manager.run_due_work()
    assert recovery_points(disk) == {ORDERS: 3}
    assert read_offsets(disk, f"{A}/log-start-offset-checkpoint") == {ORDERS: 2}
    manager.delete(ORDERS)
    log = manager.create(ORDERS, UUID(int=99), LAZY)
    append(log, b"new")
    survivor = disk.kill()
    again, report = open_manager(survivor, clock, [A, B])
    log = again.get(ORDERS, UUID(int=99))
    assert log is not None
    assert (log.log_start_offset, log.recovery_point, read_values(log)) == (0, 0, [b"new"])
    assert report.checked_bytes == log.size_bytes


def test_delete_while_a_flush_is_under_way_is_harmless(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one")
    flush = manager.flush_if_due(ORDERS)
    assert flush is not None
    manager.delete(ORDERS)
    perform(flush)
    assert manager.offline_directories == []
    assert not disk.exists(f"{A}/orders-0")


# Cutting


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


def test_unknown_partition_is_the_callers_mistake(manager: LogManager) -> None:
    for call in (manager.delete, manager.flush_if_due, lambda partition: manager.delete_records(partition, 1)):
        with pytest.raises(KafkaError) as refusal:
            call(ORDERS)
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# From time to time


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
    assert (log.log_start_offset, log.end_offset) == (1, 1)
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
    assert sum(log.end_offset == log.log_start_offset for log in manager) == RETENTION_LOGS_TOGETHER
    manager.delete(partitions[-1])
    rest = list(works)
    assert all(log.end_offset == log.log_start_offset for log in manager)
    assert not [work for work in rest if work is not None and str(partitions[-1]) in work.title]  # type: ignore[attr-defined]
    assert manager.offline_directories == []


def test_retention_takes_many_segments_of_a_log_in_slices(clock: ManualClock, manager: LogManager) -> None:
    log = manager.create(ORDERS, TOPIC_ID, LogConfig(retention_ms=10_000, segment_bytes=200))
    append(log, *[b"x" * 90] * (2 * SEGMENTS_TOGETHER + 3))
    count = len(log.segments)
    assert count > 2 * SEGMENTS_TOGETHER
    clock.advance(300_000)
    works = manager.due_in_slices(clock.now_ms())
    assert next(works) is None
    assert len(log.segments) == count - SEGMENTS_TOGETHER
    list(works)
    assert (len(log.segments), log.log_start_offset) == (1, log.end_offset)


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


def test_compacted_log_is_compacted_and_others_are_not(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}), flush_messages=1, min_cleanable_dirty_ratio=0.0)
    for partition, config in ((ORDERS, compacted), (ORDERS_1, EAGER)):
        log = manager.create(partition, TOPIC_ID, config)
        for value in (b"old", b"new"):
            builder = BatchBuilder()
            builder.append(clock.now_ms(), b"key", value)
            log.append(bytearray(builder.build()), 0)
        log.write()
        log.advance_high_watermark(log.end_offset)
        log.roll()
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
