"""A truncation while the power fails, records are read and flushed, or the partition is deleted."""

import errno
from dataclasses import replace
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFull
from barnabas.records.builder import BatchBuilder
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.log.log import Log
from barnabas.storage.settings import LogConfig
from barnabas.storage.work import perform
from barnabas.wire.errors import KafkaError
from tests.support.log_directories import (
    ORDERS,
    TOPIC_ID,
    A,
    append,
    checkpoint,
    open_manager,
    power_loss_within,
    read_values,
    recovery_points,
    served,
)

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
