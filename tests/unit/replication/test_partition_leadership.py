"""The end of a leadership, and the leader epochs of a partition."""

import asyncio

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.storage.log.epochs import UNKNOWN_END, EpochEnd
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.led_partition import ALL, NOT_LEADER, WITH_FOLLOWER, LedPartition, scenario

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
