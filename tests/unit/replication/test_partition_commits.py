"""A partition that is led: when its records count as written and committed, and what readers see before that."""

import asyncio

import pytest

from barnabas.records.batch import split_batches
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.led_partition import (
    ALL,
    BROKER,
    LEADER,
    NOBODY,
    TIMED_OUT,
    WITH_FOLLOWER,
    LedPartition,
    grant,
    scenario,
)
from tests.support.network import until

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
    led.partition.lead(grant((BROKER,), WITH_FOLLOWER, 1))
    assert (told.outcome, led.offsets) == ("committed", (1, 1))


@scenario
async def test_nothing_is_committed_while_fewer_are_in_sync_than_the_minimum() -> None:
    """Rule 8: for the high watermark as for produce. What acks=1 wrote meanwhile is not shown to anybody."""
    led = LedPartition((BROKER,), WITH_FOLLOWER, min_insync_replicas=2)
    with pytest.raises(KafkaError, match=r"min\.insync\.replicas is 2"):
        led.partition.check_in_sync()
    told = [led.append(acks=LEADER), led.append(acks=ALL)]
    await asyncio.sleep(0)
    assert [one.outcome for one in told] == ["committed", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert led.offsets == (0, 2)
    led.simulated.configure(min_insync_replicas=1)
    led.partition.configure(led.log.config)
    assert led.offsets == (2, 2)


@scenario
async def test_who_waits_is_told_when_too_few_are_left_in_sync() -> None:
    led = LedPartition(WITH_FOLLOWER, min_insync_replicas=2)
    told = [led.append(acks=LEADER), led.append(acks=ALL)]
    await asyncio.sleep(0)
    assert [one.outcome for one in told] == ["committed", "waiting"]
    led.partition.lead(grant((BROKER,), WITH_FOLLOWER, 1))
    assert told[1].outcome is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert led.offsets == (0, 2)


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
    led.partition.lead(grant((BROKER, 2, 3), (BROKER, 2, 3), 5))
    led.partition.lead(grant((BROKER,), (BROKER, 2, 3), 4))
    state = led.partition.state
    assert (tuple(state.isr), state.partition_epoch) == ((BROKER, 2, 3), 5)


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
