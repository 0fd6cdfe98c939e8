"""A partition that is led: when its records count as written and committed, and what those who wait are told."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.records.batch import split_batches
from barnabas.storage.log.epochs import UNKNOWN_END, EpochEnd
from barnabas.storage.log.expiry import delete_due_segments
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.led_partition import BROKER, LedPartition
from tests.support.network import run, until

ALL, LEADER, NOBODY = -1, 1, 0
TIMED_OUT, NOT_LEADER = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER
WITH_FOLLOWER = (BROKER, 2)


def scenario(main: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def test() -> None:
        run(main())

    test.__name__, test.__doc__ = main.__name__, main.__doc__
    return test


# -- alone ---------------------------------------------------------------------------------------------------------


@scenario
async def test_alone_every_acks_is_told_by_the_write_of_the_tick() -> None:
    led = LedPartition()
    told = [led.append(acks=acks, deadline=led.clock.monotonic()) for acks in (NOBODY, LEADER, ALL)]
    assert [one.outcome for one in told] == ["waiting"] * 3
    assert led.offsets == (0, 0)
    await asyncio.sleep(0)
    assert [one.outcome for one in told] == ["committed"] * 3
    assert led.offsets == (3, 3)
    assert led.timers == [], "the usual append needs no timer, however little time it has"


@scenario
async def test_retried_batch_is_told_when_the_first_one_is() -> None:
    led = LedPartition()
    batch = led.batch(producer_id=7, producer_epoch=0, base_sequence=0)
    first, again = led.send(batch), led.send(batch)
    assert (first.outcome, again.outcome) == ("waiting", "waiting")
    await asyncio.sleep(0)
    assert (first.outcome, again.outcome) == ("committed", "committed")
    assert led.send(batch).outcome == "committed", "what is so already is told at once"
    assert led.partition.end_offset == 1


@scenario
async def test_waiting_fetches_are_called_before_the_producers_are_told() -> None:
    led, order = LedPartition(), []
    led.partition.watchers[lambda partition: order.append(f"fetch at {partition.high_watermark}")] = None
    appended = led.partition.append(led.batch())
    led.partition.when_committed(appended.last_offset, ALL, 1e9, lambda error: order.append("producer"))
    await asyncio.sleep(0)
    assert order == ["fetch at 1", "producer"]


# -- with followers ------------------------------------------------------------------------------------------------


@scenario
async def test_with_a_follower_in_sync_only_acks_all_waits_for_the_high_watermark() -> None:
    led = LedPartition(WITH_FOLLOWER)
    told = [led.append(acks=acks) for acks in (NOBODY, LEADER, ALL)]
    await asyncio.sleep(0)
    assert [one.outcome for one in told] == ["committed", "committed", "waiting"]
    assert led.offsets == (0, 3)
    led.partition.commit(2)
    assert told[2].outcome == "waiting"
    led.partition.commit(3)
    assert told[2].outcome == "committed"


@scenario
async def test_commits_are_told_in_the_order_of_their_offsets() -> None:
    led, order = LedPartition(WITH_FOLLOWER), []
    for _ in range(3):
        led.partition.append(led.batch())
    await asyncio.sleep(0)
    for offset in (2, 0, 1):
        led.partition.when_committed(offset, ALL, 1e12, lambda error, offset=offset: order.append(offset))
    led.partition.commit(3)
    assert order == [0, 1, 2]


@scenario
async def test_commit_that_does_not_come_in_time_is_timed_out_and_counts_all_the_same() -> None:
    led = LedPartition(WITH_FOLLOWER)
    late, patient = led.append(deadline=led.clock.monotonic() + 0.01), led.append()
    assert led.timers == []
    await asyncio.sleep(0)
    assert len(led.timers) == 1
    led.clock.advance(10)
    await until(lambda: late.outcome != "waiting")
    assert (late.outcome, patient.outcome) == (TIMED_OUT, "waiting")
    led.partition.commit(2)
    assert patient.outcome == "committed"


@scenario
async def test_deadlines_of_all_who_wait_share_a_timer_that_comes_for_the_earliest() -> None:
    led = LedPartition(WITH_FOLLOWER)
    now = led.clock.monotonic()
    slow, quick, never = led.append(deadline=now + 0.03), led.append(deadline=now + 0.01), led.append()
    await asyncio.sleep(0)
    assert led.timers == [now + 0.01]
    led.clock.advance(10)
    await until(lambda: quick.outcome == TIMED_OUT)
    assert slow.outcome == "waiting"
    led.clock.advance(20)
    await until(lambda: slow.outcome == TIMED_OUT)
    assert never.outcome == "waiting"
    assert led.timers == [now + 0.01, now + 0.03], "who has no deadline needs no timer"


@scenario
async def test_leader_that_is_left_alone_commits_what_it_has() -> None:
    led = LedPartition(WITH_FOLLOWER)
    told = led.append()
    await asyncio.sleep(0)
    led.partition.lead(BROKER, 0, (BROKER,), WITH_FOLLOWER, partition_epoch=1)
    assert (told.outcome, led.offsets) == ("committed", (1, 1))


@scenario
async def test_nothing_is_committed_while_fewer_are_in_sync_than_the_minimum() -> None:
    """Rule 8: for the high watermark as for produce. What acks=1 wrote meanwhile is not shown to anybody."""
    led = LedPartition((BROKER,), WITH_FOLLOWER, min_insync_replicas=2)
    with pytest.raises(KafkaError, match=r"min\.insync\.replicas is 2"):
        led.partition.check_in_sync()
    told = [led.append(acks=LEADER), led.append(acks=ALL)]
    await asyncio.sleep(0)
    assert [one.outcome for one in told] == ["committed", "waiting"]
    assert led.offsets == (0, 2)
    led.simulated.configure(min_insync_replicas=1)
    led.partition.configure(led.log.config)
    assert told[1].outcome == "committed"
    assert led.offsets == (2, 2)


@scenario
async def test_leadership_does_not_move_the_high_watermark_of_a_log_that_others_share() -> None:
    first = LedPartition()
    first.append()
    await asyncio.sleep(0)
    first.append()
    first.log.write()
    again = LedPartition(WITH_FOLLOWER, log=first.log)
    assert again.offsets == (1, 2)
    assert LedPartition(log=first.log).offsets == (2, 2), "alone it follows what is written"


@scenario
async def test_older_state_of_the_partition_is_not_taken_back() -> None:
    led = LedPartition(WITH_FOLLOWER)
    led.partition.lead(BROKER, 0, (BROKER, 2, 3), (BROKER, 2, 3), partition_epoch=5)
    led.partition.lead(BROKER, 0, (BROKER,), (BROKER, 2, 3), partition_epoch=4)
    assert (led.partition.isr, led.partition.partition_epoch) == ((BROKER, 2, 3), 5)


# -- reading while the high watermark lags --------------------------------------------------------------------------


@scenario
async def test_read_between_high_watermark_and_end_is_empty() -> None:
    led = LedPartition(WITH_FOLLOWER)
    for _ in range(5):
        led.append()
    await asyncio.sleep(0)
    led.partition.commit(2)

    def read(offset: int, *, is_committed_only: bool = False) -> list[int]:
        found = led.partition.read(offset, 1 << 20, is_committed_only=is_committed_only, at_least_one=True)
        assert (found.high_watermark, found.log_start_offset) == (2, 0)
        records = found.records
        if records is None:
            return []
        content = records if isinstance(records, bytes) else records.read()
        found.release()
        return [header.base_offset for header, _ in split_batches(content)]

    for is_committed_only in (False, True):
        assert read(0, is_committed_only=is_committed_only) == [0, 1]
        assert [read(offset, is_committed_only=is_committed_only) for offset in (2, 3, 4, 5)] == [[]] * 4
        for offset in (-1, 6):
            with pytest.raises(KafkaError) as caught:
                read(offset, is_committed_only=is_committed_only)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@scenario
async def test_records_above_the_high_watermark_are_loaded_and_not_searched_or_deleted() -> None:
    led = LedPartition(WITH_FOLLOWER)
    for _ in range(3):
        led.append()
    await asyncio.sleep(0)
    led.partition.commit(1)
    found = led.partition.read_all(0, 1 << 20)
    assert found is not None
    assert [header.base_offset for header, _ in split_batches(found.read())] == [0, 1, 2]
    found.release()
    search = led.partition.search_batch(1)
    assert search is not None
    assert search.run() is None
    search.release()
    with pytest.raises(KafkaError, match="above the high watermark 1"):
        led.partition.delete_records_before(2)


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
        delete_due_segments(led.log, led.clock)
    after = led.append()
    await asyncio.sleep(0)
    assert (lost.outcome, after.outcome) == (DiskFull, DiskFull)
    assert led.offsets == (0, 0)
    again = led.append()
    await asyncio.sleep(0)
    assert (again.outcome, led.offsets) == ("committed", (1, 1))


# -- the end of a leadership ----------------------------------------------------------------------------------------


@scenario
async def test_what_is_staged_when_the_leadership_ends_is_refused_and_never_written() -> None:
    led = LedPartition()
    written = led.append()
    await asyncio.sleep(0)
    batch = led.batch(producer_id=7, producer_epoch=0, base_sequence=0)
    staged = led.send(batch)
    led.partition.close()
    assert (written.outcome, staged.outcome) == ("committed", NOT_LEADER)
    await asyncio.sleep(0)
    assert led.partition.end_offset == led.log.staged_end_offset == 1
    assert led.log.producers.get(7) is None, "nor does its producer count as having sent it"
    led.log.check_invariants()


@scenario
async def test_everybody_who_waits_when_the_leadership_ends_is_told() -> None:
    led = LedPartition(WITH_FOLLOWER)
    ended = []
    led.partition.watchers[lambda partition: ended.append(partition.is_closed)] = None
    led.partition.end_watchers[lambda partition: ended.append(partition.is_closed)] = None
    uncommitted = led.append(deadline=led.clock.monotonic() + 0.001)
    await asyncio.sleep(0)
    led.partition.close()
    led.partition.close()
    assert uncommitted.outcome == NOT_LEADER
    assert ended == [True, True]
    led.clock.advance(10)
    await asyncio.sleep(0.01)  # its timer must not come any more: it would be told twice


@scenario
async def test_nothing_is_staged_after_the_leadership_has_ended() -> None:
    led = LedPartition()
    batch = led.batch()
    accepted = led.partition.check(batch).finish()
    led.partition.close()
    for stage in (
        lambda: led.partition.append_usual(batch, ALL),
        lambda: led.partition.append_checked(accepted),
        lambda: led.partition.append(batch),
        lambda: led.partition.check(batch),
    ):
        with pytest.raises(KafkaError) as caught:
            stage()
        assert caught.value.code is NOT_LEADER
    told = led.wait(0)
    assert told.outcome == NOT_LEADER
    assert led.log.staged_end_offset == 0


@scenario
async def test_partition_whose_directory_fails_tells_what_has_failed() -> None:
    led = LedPartition()
    told = led.append()
    led.partition.close(DiskFailed("sync", "segment", OSError(5, "I/O error")))
    assert told.outcome == DiskFailed


@scenario
async def test_partition_that_refuses_appends_can_be_read() -> None:
    led = LedPartition()
    led.append()
    await asyncio.sleep(0)
    led.partition.refuse_appends(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    with pytest.raises(KafkaError):
        led.append()
    assert led.partition.read(0, 100, is_committed_only=False, at_least_one=True).size_bytes


# -- epochs --------------------------------------------------------------------------------------------------------


@scenario
async def test_epoch_without_records_begins_and_ends_at_the_end_of_the_log() -> None:
    """As if it had an entry there, which would make every log dirty at every start."""
    led = LedPartition()
    led.append(3)
    await asyncio.sleep(0)
    later = LedPartition(log=led.log, epoch=4)
    assert not led.log.epochs.entries[1:]
    ends = {epoch: later.partition.end_of_epoch(epoch) for epoch in range(-1, 6)}
    assert ends == {
        -1: UNKNOWN_END,
        0: EpochEnd(0, 3),
        1: EpochEnd(0, 3),
        3: EpochEnd(0, 3),
        2: EpochEnd(0, 3),
        4: EpochEnd(4, 3),
        5: UNKNOWN_END,
    }
    later.append()
    await asyncio.sleep(0)
    assert [later.partition.end_of_epoch(epoch) for epoch in (0, 3, 4)] == [
        EpochEnd(0, 3),
        EpochEnd(0, 3),
        EpochEnd(4, 4),
    ]
    assert later.partition.start_epoch == 0


@scenario
async def test_epochs_of_a_log_without_records() -> None:
    led = LedPartition(epoch=4)
    assert led.partition.start_epoch == 4
    assert [led.partition.end_of_epoch(epoch) for epoch in (3, 4, 5)] == [EpochEnd(3, 0), EpochEnd(4, 0), UNKNOWN_END]
