"""Log directories after a crash or a power loss: what was flushed is there, and nothing that was cut comes back."""

from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.manager import LogManager
from tests.support.log_directories import (
    EAGER,
    LAZY,
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
    served,
)


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
