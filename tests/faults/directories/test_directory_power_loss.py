"""Log directories after a crash or a power loss: what was flushed is there, and nothing that was cut comes back."""

from dataclasses import replace
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.settings import LogConfig
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
    make_batch,
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


@pytest.mark.parametrize("calls", range(60))
def test_power_loss_within_truncation_of_a_compacted_log_leaves_no_hole(calls: int, clock: ManualClock) -> None:
    """Below the recovery point a gap in a compacted log is nothing unusual: recovery would keep what lies behind it."""
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=200, flush_messages=1)
    disk = SimulatedDisk(Random(calls), clock=clock)
    manager, _ = open_manager(disk, clock, [A], config=config)
    values = [b"%d" % number * 90 for number in range(6)]
    log = manager.create(ORDERS, TOPIC_ID, replace(config, cleanup_policy=frozenset({"delete"})))
    append(log, *values)  # which have no keys
    log.config = config
    manager.run_due_work()
    image = power_loss_within(disk, calls, lambda: manager.truncate(ORDERS, 1))
    again, _ = open_manager(image, clock, [A], config=config)
    left = read_values(served(again, ORDERS))
    assert left == values[: max(1, len(left))]


EXPIRING = LogConfig(segment_bytes=200, retention_ms=10_000, file_delete_delay_ms=1_000, flush_messages=1)
NEVER_MS = 1 << 40


def open_with_late_checkpoints(disk: SimulatedDisk, clock: ManualClock, random: Random) -> LogManager:
    """Each checkpoint file is written on time, or only at the first round."""
    return open_manager(
        disk,
        clock,
        [A],
        config=EXPIRING,
        log_flush_offset_checkpoint_interval_ms=random.choice((1_000, NEVER_MS)),
        log_flush_start_offset_checkpoint_interval_ms=random.choice((1_000, NEVER_MS)),
    )[0]


def settle(manager: LogManager, clock: ManualClock, rounds: int) -> None:
    for _ in range(rounds):
        manager.run_due_work()
        clock.advance(1_000)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_power_loss_after_everything_expired_continues_at_the_same_offset(
    seed: int, strict: bool, clock: ManualClock
) -> None:
    """Whichever of the renames and removals survive, and however late the checkpoint files are."""
    random = Random(seed)
    disk = SimulatedDisk(random, clock=clock, strict=strict)
    manager = open_with_late_checkpoints(disk, clock, random)
    manager.run_due_work()
    log = manager.create(ORDERS, TOPIC_ID, EXPIRING)
    append(log, *[b"x" * 90] * random.choice((1, 1, 2, 3, 6)))
    manager.run_due_work()
    end_offset = log.end_offset
    clock.advance(300_000)
    settle(manager, clock, random.randint(1, 6))
    assert log.expired_before == end_offset
    for _ in range(10):
        again, _ = open_manager(disk.power_loss_image(), clock, [A], config=EXPIRING)
        survived = served(again, ORDERS)
        assert survived.end_offset == end_offset
        append(survived, b"next")
        assert read_values(survived)[-1] == b"next"
        again.check_invariants()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_power_loss_while_the_oldest_segments_expire_keeps_flushed_records(
    seed: int, strict: bool, clock: ManualClock
) -> None:
    """Segments that come back, with some between them missing, are no reason to cut the log."""
    random = Random(seed)
    disk = SimulatedDisk(random, clock=clock, strict=strict)
    manager = open_with_late_checkpoints(disk, clock, random)
    manager.run_due_work()
    log = manager.create(ORDERS, TOPIC_ID, EXPIRING)
    append(log, *[b"x" * 90] * 6)
    clock.advance(299_000)
    manager.run_due_work()
    now = clock.now_ms()
    for value in (b"a" * 90, b"b" * 90, b"c" * 90):
        log.append(make_batch([value], now), 0)
    log.write()
    log.advance_high_watermark(log.end_offset)
    manager.run_due_work()
    clock.advance(1_000)
    settle(manager, clock, random.randint(1, 6))
    assert log.expired_before == 6
    image = power_loss_within(disk, random.randint(0, 40), lambda: settle(manager, clock, 3))
    again, _ = open_manager(image, clock, [A], config=EXPIRING)
    assert read_values(served(again, ORDERS))[-3:] == [b"a" * 90, b"b" * 90, b"c" * 90]
    again.check_invariants()
