"""Partitions that are created and deleted: in which directory, with which topic id, and what is left of them."""

from uuid import UUID

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.filesystem import replace_file
from barnabas.base.ids import TopicPartition
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.work import perform
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.log_directories import (
    EAGER,
    LAZY,
    ORDERS,
    PAYMENTS,
    TOPIC_ID,
    A,
    B,
    append,
    open_manager,
    read_values,
    recovery_points,
)

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
    again, report = open_manager(survivor, clock, [A, B], config=LAZY)
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


def test_unknown_partition_is_the_callers_mistake(manager: LogManager) -> None:
    for call in (manager.delete, manager.flush_if_due, lambda partition: manager.delete_records(partition, 1)):
        with pytest.raises(KafkaError) as refusal:
            call(ORDERS)
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
