"""Flushes of a log: when one is due, what it makes durable, and how far the recovery point moves."""

import errno
from typing import Any

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.sim.faults import Operation
from barnabas.storage.log.epochs import EpochEntry
from barnabas.storage.log.flush import FlushPlan
from barnabas.storage.settings import LogConfig
from tests.support.simulated_log import SMALL, SimulatedLog, filled, path, truncate


def test_flush_makes_the_log_durable(small: SimulatedLog) -> None:
    filled(small)
    small.log.flush()
    assert small.log.recovery_point == 12
    for _ in range(5):
        image = small.disk.power_loss_image()
        assert [image.size(path(f"{base:020d}.log")) for base in small.bases] == [
            segment.size for segment in small.log.segments
        ]


@pytest.mark.parametrize(
    ("config", "is_due"),
    [
        ({"flush_messages": 3}, False),
        ({"flush_messages": 2}, True),
        ({"flush_ms": 11}, False),
        ({"flush_ms": 10}, True),
    ],
)
def test_flush_is_a_must_by_messages_and_time(config: dict[str, Any], is_due: bool) -> None:
    orders = filled(SimulatedLog(LogConfig(**config)), 1)
    assert orders.log.must_flush(orders.clock.now_ms()) == is_due
    orders.log.flush()
    assert not orders.log.must_flush(orders.clock.now_ms() + 1_000)


def test_roll_leaves_a_complete_segment_to_flush_and_no_duty_to_do_it_at_once(small: SimulatedLog) -> None:
    filled(small, 2)
    assert not small.log.has_unflushed_segments
    filled(small, 1)
    assert small.log.has_unflushed_segments
    assert not small.log.must_flush(small.clock.now_ms())


def test_flush_of_complete_segments_moves_the_recovery_point_to_the_active_one(small: SimulatedLog) -> None:
    filled(small, 3)
    plan = small.log.plan_flush(complete_only=True)
    plan.run()
    small.log.finish_flush(plan)
    assert small.log.recovery_point == small.log.segments.active.base_offset < small.log.end_offset
    assert not small.log.has_unflushed_segments


def test_flush_under_way_does_not_excuse_records_that_came_later() -> None:
    orders = filled(SimulatedLog(LogConfig(flush_messages=1)), 1)
    plan = orders.log.plan_flush()
    assert orders.log.is_flushing
    assert not orders.log.must_flush(orders.clock.now_ms())
    orders.append()
    assert orders.log.must_flush(orders.clock.now_ms())
    plan.run()
    orders.log.finish_flush(plan)
    assert orders.log.recovery_point == 2
    assert not orders.log.is_flushing


def test_plan_overtaken_by_a_truncation_does_not_move_the_recovery_point(orders: SimulatedLog) -> None:
    filled(orders, 4)
    plan = orders.log.plan_flush()
    truncate(orders.log, 4)
    plan.run()
    orders.log.finish_flush(plan)
    assert orders.log.recovery_point == 0


def test_plan_overtaken_by_a_truncation_does_not_bring_old_epochs_back(orders: SimulatedLog) -> None:
    orders.append(2, epoch=1)
    orders.append(2, epoch=2)
    plan = orders.log.plan_flush()
    truncate(orders.log, 2)
    plan.run()
    orders.log.finish_flush(plan)
    orders.append(2, epoch=1)
    orders.log.flush()
    orders.reopen(orders.disk.kill(), recovery_point=4)
    assert orders.log.epochs.entries == (EpochEntry(1, 0),)


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_flush_that_fails_is_made_up_for_by_the_next(operation: Operation) -> None:
    orders = filled(SimulatedLog(SMALL, is_strict=True))
    orders.disk.fail(errno.EIO, operations=[operation])
    before = orders.log.recovery_point
    with pytest.raises(DiskFailed):
        orders.log.flush()
    assert orders.log.recovery_point == before
    if operation == "sync_directory":  # after a failed sync of a file no later one can be believed
        orders.log.flush()
        orders.reopen(orders.disk.crash(), recovery_point=12)
        assert orders.log.end_offset == 12


def test_plan_that_cannot_open_its_files_gives_back_those_it_has(orders: SimulatedLog) -> None:
    filled(orders)
    orders.disk.fail(errno.EMFILE, operations=["open"], after_calls=1)
    with pytest.raises(DiskFailed):
        orders.log.plan_flush()
    orders.log.flush()
    assert orders.log.recovery_point == 12


def test_cancelled_plan_takes_no_step_by_name(orders: SimulatedLog) -> None:
    plan = FlushPlan(orders.disk, orders.clock, 0)
    plan.write_epochs(path("epochs"), (EpochEntry(1, 0),))
    plan.cancel()
    plan.run()
    assert not orders.disk.exists(path("epochs"))


def test_segment_completed_after_a_flush_is_synced_by_the_next() -> None:
    """Its last index entries come when it is rolled, though the recovery point is at its end already."""
    orders = filled(SimulatedLog(LogConfig(segment_bytes=300)), 2)
    orders.log.flush()
    filled(orders, 1)
    orders.log.flush()
    for _ in range(20):
        assert orders.disk.power_loss_image().size(path("00000000000000000000.timeindex")) == 12
