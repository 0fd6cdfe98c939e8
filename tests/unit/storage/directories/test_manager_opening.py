"""Log directories that are opened and closed: what is scanned, refused, removed or left alone."""

import os
from pathlib import Path

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DirectoryLocked
from barnabas.base.filesystem import LocalFileSystem, read_file, replace_file
from barnabas.base.ids import TopicPartition
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import encode_offsets, read_offsets
from barnabas.storage.directories.directory import UnusableDirectory
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.opening import OpeningProgress
from barnabas.storage.work import ThreadWorkers
from tests.support.log_directories import (
    EAGER,
    LAZY,
    ORDERS,
    ORDERS_1,
    TOPIC_ID,
    A,
    B,
    append,
    make_manager,
    open_manager,
    read_values,
    recovery_points,
)


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
    with pytest.raises(UnusableDirectory, match="orders-0 is both in /a and in /b"):
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


def test_what_a_killed_process_has_not_synced_is_synced_before_it_is_served_where_the_topic_asks_for_it(
    disk: SimulatedDisk, clock: ManualClock, manager: LogManager
) -> None:
    append(manager.create(ORDERS, TOPIC_ID, EAGER), b"one", b"two")
    killed = disk.kill()
    again, _ = open_manager(killed, clock, [A, B])
    log = again.get(ORDERS)
    assert log is not None
    assert log.recovery_point == 2
    after, _ = open_manager(killed.crash(loses_all=True), clock, [A, B])
    survivor = after.get(ORDERS)
    assert survivor is not None
    assert read_values(survivor) == [b"one", b"two"]
