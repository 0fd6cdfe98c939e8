"""A directory whose disk fails goes offline alone, and the others keep serving."""

import errno

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFailed
from barnabas.base.ids import TopicPartition
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.directories import AllDirectoriesOffline
from barnabas.storage.directories.directory import LogDirectory
from barnabas.storage.directories.manager import LogManager
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.log_directories import (
    EAGER,
    ORDERS,
    ORDERS_1,
    TOPIC_ID,
    A,
    B,
    append,
    make_batch,
    open_manager,
    read_values,
    served,
)


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
    with pytest.raises(KafkaError, match="may be in a directory that is offline"):
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
