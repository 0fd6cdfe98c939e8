"""A partition whose records must be synced before they count, and one whose disk fails."""

import asyncio

import pytest

from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.storage.log.expiry import delete_due_segments
from tests.support.led_partition import ALL, LEADER, NOBODY, TIMED_OUT, LedPartition, scenario
from tests.support.network import until

# -- flushing ------------------------------------------------------------------------------------------------------


@scenario
async def test_where_the_topic_asks_for_it_nothing_counts_before_it_is_synced() -> None:
    led = LedPartition(flush_messages=1)
    told = [led.append(acks=LEADER), led.append(acks=ALL)]
    await asyncio.sleep(0)
    assert led.flushes_wanted == 1
    assert [one.outcome for one in told] == ["waiting"] * 2
    assert led.offsets == (0, 2)
    led.flush()
    assert [one.outcome for one in told] == ["committed"] * 2
    assert led.offsets == (2, 2)


@scenario
async def test_what_a_killed_process_has_not_synced_counts_when_it_is_synced() -> None:
    """A retry finds its batch in the log; so do readers."""
    killed = LedPartition(flush_messages=1)
    killed.append()
    killed.append()
    await asyncio.sleep(0)
    killed.simulated.reopen(killed.simulated.disk.kill())
    led = LedPartition(log=killed.simulated.log, epoch=1)
    assert (led.flushes_wanted, led.offsets) == (1, (0, 2))
    retry, fresh = led.wait(1), led.append()
    await asyncio.sleep(0)
    assert (retry.outcome, fresh.outcome) == ("waiting", "waiting")
    led.flush()
    assert (retry.outcome, fresh.outcome, led.offsets) == ("committed", "committed", (3, 3))


@scenario
async def test_what_a_killed_process_has_not_synced_counts_at_once_where_nobody_asks_for_syncs() -> None:
    killed = LedPartition()
    killed.append()
    await asyncio.sleep(0)
    killed.simulated.reopen(killed.simulated.disk.kill())
    led = LedPartition(log=killed.simulated.log, epoch=1)
    assert (led.flushes_wanted, led.offsets) == (0, (1, 1))


@scenario
async def test_what_is_written_while_a_flush_runs_waits_for_the_next_one() -> None:
    led = LedPartition(flush_messages=1)
    first = led.append()
    await asyncio.sleep(0)
    plan = led.log.plan_flush()
    second = led.append()
    await asyncio.sleep(0)
    plan.run()
    led.log.finish_flush(plan)
    led.partition.flushed(None)
    assert (first.outcome, second.outcome) == ("committed", "waiting")
    assert led.offsets == (1, 2)
    led.flush()
    assert second.outcome == "committed"


@scenario
async def test_what_needs_no_flush_itself_waits_for_one_that_is_awaited() -> None:
    """With flush.messages=2 the third record needs none, but must not be seen before the first two are safe."""
    led = LedPartition(flush_messages=2)
    first = led.append(2)
    await asyncio.sleep(0)
    plan = led.log.plan_flush()
    second = led.append()
    await asyncio.sleep(0)
    assert (second.outcome, led.offsets) == ("waiting", (0, 3))
    plan.run()
    led.log.finish_flush(plan)
    led.partition.flushed(None)
    assert (first.outcome, second.outcome, led.offsets) == ("committed", "committed", (3, 3))


@scenario
async def test_flush_of_somebody_else_that_is_under_way_is_followed_by_ours() -> None:
    led = LedPartition(flush_messages=3)
    first = led.append(2)
    await asyncio.sleep(0)
    assert first.outcome == "committed"
    plan = led.log.plan_flush()  # housekeeping's
    second = led.append(3)
    await asyncio.sleep(0)
    wanted = led.flushes_wanted
    plan.run()
    led.log.finish_flush(plan)
    led.partition.flushed(None)
    assert second.outcome == "waiting"
    assert led.flushes_wanted == wanted + 1
    led.flush()
    assert second.outcome == "committed"


@scenario
async def test_flush_that_does_not_end_in_time_is_timed_out() -> None:
    led = LedPartition(flush_messages=1)
    told = led.append(acks=LEADER, deadline=led.clock.monotonic() + 0.01)
    await asyncio.sleep(0)
    led.clock.advance(10)
    await until(lambda: told.outcome == TIMED_OUT)


@scenario
async def test_flush_that_fails_is_told_to_those_who_wait_for_it() -> None:
    led = LedPartition(flush_messages=1)
    told = [led.append(acks=LEADER), led.append(acks=ALL)]
    await asyncio.sleep(0)
    led.partition.flushed(DiskFailed("sync", "segment", OSError(5, "I/O error")))
    assert [one.outcome for one in told] == [DiskFailed] * 2
    assert led.offsets == (0, 2)


# -- a disk that fails ---------------------------------------------------------------------------------------------


@scenario
async def test_write_that_fails_is_told_to_everybody_who_staged() -> None:
    led = LedPartition()
    told = [led.append(acks=acks) for acks in (NOBODY, LEADER, ALL)]
    led.simulated.disk.fail(5, operations=["write"])
    await asyncio.sleep(0)
    assert [one.outcome for one in told] == [DiskFailed] * 3
    assert len(led.failures) == 1
    assert led.offsets == (0, 0)
    led.log.check_invariants()


@scenario
async def test_what_a_roll_in_mid_tick_has_written_is_told_as_written_when_the_rest_fails() -> None:
    led = LedPartition(segment_bytes=1200)
    before = [led.append(value_bytes=900, acks=acks) for acks in (LEADER,)]
    after = led.append(value_bytes=900)  # the log had to roll, and wrote the first one for that
    assert led.partition.end_offset == 1
    led.simulated.disk.fail(5, operations=["write"])
    await asyncio.sleep(0)
    assert [one.outcome for one in before] == ["committed"]
    assert after.outcome == DiskFailed
    assert led.offsets == (1, 1)
    assert len(led.failures) == 1


@scenario
async def test_roll_that_fails_to_write_fails_the_append_and_those_before_it() -> None:
    led = LedPartition(segment_bytes=1200)
    before = led.append(value_bytes=900)
    led.simulated.disk.fail(5, operations=["write"])
    with pytest.raises(DiskFailed):
        led.append(value_bytes=900)
    assert before.outcome == DiskFailed
    assert led.partition.end_offset == 0
    await asyncio.sleep(0)
    assert led.offsets == (0, 0)
    assert led.append().outcome == "waiting"
    await asyncio.sleep(0)
    assert led.offsets == (1, 1), "a disk that was full for a moment"


@scenario
async def test_roll_that_fails_to_begin_a_segment_leaves_those_before_it_written() -> None:
    led = LedPartition(segment_bytes=1200)
    before = led.append(value_bytes=900)
    led.simulated.disk.fail(28, operations=["open"], path_pattern="*0001.*")
    with pytest.raises(DiskFailed):
        led.append(value_bytes=900)
    await asyncio.sleep(0)
    assert before.outcome == "committed"
    assert led.offsets == (1, 1)


@scenario
async def test_write_by_housekeeping_that_fails_in_mid_tick_is_told_to_those_who_staged() -> None:
    """Retention writes what is staged first. A batch that then gets the offset of a lost one is not its witness."""
    led = LedPartition()
    lost = led.append()
    led.simulated.disk.fail(28, operations=["write"], times=1)
    with pytest.raises(DiskFailed):
        delete_due_segments(led.log, led.clock, stored_start=led.log.recovery_point)
    after = led.append()
    await asyncio.sleep(0)
    assert (lost.outcome, after.outcome) == (DiskFull, DiskFull)
    assert led.offsets == (0, 0)
    again = led.append()
    await asyncio.sleep(0)
    assert (again.outcome, led.offsets) == ("committed", (1, 1))
