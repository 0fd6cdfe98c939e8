"""The log of a partition: appends and their refusals, reads, flushes, deletion, truncation."""

import errno
from typing import Any

import pytest

from barnabas.base.errors import CorruptBatch, DiskFailed, DiskFull, InvalidRecords
from barnabas.records.batch import Codec, read_header
from barnabas.sim.faults import Operation
from barnabas.storage.log.epochs import EpochEntry
from barnabas.storage.log.expiry import delete_due_segments
from barnabas.storage.log.flush import FlushPlan
from barnabas.storage.log.staging import Appended
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.segment.timestamp_lookup import FoundTimestamp
from barnabas.storage.segment.transaction_index import AbortedTransaction
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.log_model import check_indexes, data_batch, marker_batch, read_all
from tests.support.simulated_log import DIRECTORY, SimulatedLog, path, restart, truncate

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=0, file_delete_delay_ms=50)


@pytest.fixture
def orders() -> SimulatedLog:
    return SimulatedLog(LogConfig(index_interval_bytes=200))


@pytest.fixture
def small() -> SimulatedLog:
    """Two batches to a segment."""
    return SimulatedLog(SMALL)


def filled(orders: SimulatedLog, batches: int = 6) -> SimulatedLog:
    for _ in range(batches):
        orders.append(2, value_bytes=20)
        orders.clock.advance(10)
    return orders


def code_of(raised: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return raised.value.code


# -- appending -------------------------------------------------------------------------------------------------------


def test_append_assigns_offsets_and_epoch_and_shows_nothing_before_write(orders: SimulatedLog) -> None:
    log = orders.log
    assert orders.append(3, epoch=4, is_written=False) == Appended(0, 2, -1)
    assert orders.append(2, epoch=4, is_written=False) == Appended(3, 4, -1)
    assert (log.end_offset, log.staged_end_offset, log.size_bytes) == (0, 5, 0)
    assert read_all(log) == []
    log.write()
    assert (log.end_offset, log.staged_end_offset) == (5, 5)
    assert [(batch.header.base_offset, batch.header.leader_epoch) for batch in read_all(log)] == [(0, 4), (3, 4)]
    log.check_invariants()


def test_staged_batches_reach_the_disk_in_one_write(orders: SimulatedLog) -> None:
    for _ in range(5):
        orders.append(is_written=False)
    calls: list[str] = []
    orders.disk.before_call = lambda operation, _: calls.append(operation)
    orders.log.write()
    assert calls.count("write") == 1


def test_append_with_log_append_time_says_when(orders: SimulatedLog) -> None:
    orders.configure(message_timestamp_type="LogAppendTime")
    assert orders.append(timestamp=5).append_time_ms == orders.clock.now_ms()


def test_append_of_nothing_is_invalid(orders: SimulatedLog) -> None:
    with pytest.raises(InvalidRecords):
        orders.log.append(b"", 0)


def test_append_of_two_batches_by_a_client_is_invalid(orders: SimulatedLog) -> None:
    with pytest.raises(InvalidRecords):
        orders.log.append(data_batch([1], 1) + data_batch([1], 1), 0)


def test_append_of_two_batches_by_the_coordinator_is_one_append(orders: SimulatedLog) -> None:
    markers = marker_batch(1, 0, 5, is_commit=True) + marker_batch(2, 0, 5, is_commit=True)
    assert orders.log.append(markers, 0, Origin.COORDINATOR) == Appended(0, 1, -1)


def test_append_of_a_torn_batch_is_corrupt(orders: SimulatedLog) -> None:
    with pytest.raises(CorruptBatch):
        orders.log.append(data_batch([1], 10)[:-1], 0)
    assert orders.log.staged_end_offset == 0


def test_append_larger_than_a_segment_is_refused(small: SimulatedLog) -> None:
    with pytest.raises(KafkaError) as raised:
        small.append(value_bytes=400)
    assert code_of(raised) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_retry_is_answered_with_its_first_place(orders: SimulatedLog) -> None:
    orders.produce(0, 3)
    orders.append()
    assert orders.produce(0, 3, is_written=False) == Appended(0, 2, orders.clock.now_ms(), is_duplicate=True)
    assert orders.log.staged_end_offset == 4


def test_retry_of_a_staged_batch_is_a_duplicate(orders: SimulatedLog) -> None:
    orders.produce(0, is_written=False)
    assert orders.produce(0, is_written=False).is_duplicate
    orders.log.write()
    assert orders.log.end_offset == 1


def test_gap_in_the_sequence_is_refused_without_a_trace(orders: SimulatedLog) -> None:
    orders.produce(0)
    with pytest.raises(KafkaError) as raised:
        orders.produce(2)
    assert code_of(raised) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert orders.log.staged_end_offset == 1
    orders.log.check_invariants()


def test_old_producer_epoch_is_fenced(orders: SimulatedLog) -> None:
    orders.append(producer_id=7, producer_epoch=3, base_sequence=0)
    with pytest.raises(KafkaError) as raised:
        orders.append(producer_id=7, producer_epoch=2, base_sequence=1)
    assert code_of(raised) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_of_an_old_coordinator_is_fenced(orders: SimulatedLog) -> None:
    orders.append(producer_id=7, producer_epoch=3, base_sequence=0)
    with pytest.raises(KafkaError) as raised:
        orders.end_transaction(7)
    assert code_of(raised) is ErrorCode.INVALID_PRODUCER_EPOCH


# -- as a follower ---------------------------------------------------------------------------------------------------


def test_follower_keeps_the_leaders_bytes(orders: SimulatedLog) -> None:
    records = data_batch([5], 9, base_offset=3, leader_epoch=8) + data_batch([6], 9, base_offset=10, leader_epoch=9)
    orders.log.append_as_follower(bytes(records))
    orders.log.write()
    assert b"".join(batch.content for batch in read_all(orders.log)) == records
    assert orders.log.end_offset == 11
    assert orders.log.epochs.entries == (EpochEntry(8, 3), EpochEntry(9, 10))


def test_follower_refuses_offsets_that_it_has(orders: SimulatedLog) -> None:
    orders.append(3)
    with pytest.raises(InvalidRecords, match="ends at 3"):
        orders.log.append_as_follower(data_batch([5], 9, base_offset=2))


@pytest.mark.parametrize("damage", [lambda batch: batch[:-1], lambda batch: batch[:-1] + b"\xff"])
def test_follower_refuses_damaged_batches(orders: SimulatedLog, damage: object) -> None:
    with pytest.raises(InvalidRecords):
        orders.log.append_as_follower(damage(bytes(data_batch([5], 9))))  # type: ignore[operator]
    assert orders.log.staged_end_offset == 0


def test_follower_rolls_like_a_leader(small: SimulatedLog) -> None:
    records = b"".join(data_batch([5], 60, base_offset=offset) for offset in range(6))
    small.log.append_as_follower(records)
    small.log.write()
    assert small.bases == [0, 2, 4]


# -- rolling ---------------------------------------------------------------------------------------------------------


def test_log_rolls_when_a_segment_would_grow_too_large(small: SimulatedLog) -> None:
    filled(small)
    assert small.bases == [0, 4, 8]
    assert small.log.snapshots.offsets == (4, 8)
    assert all(segment.size <= 300 for segment in small.log.segments)


def test_roll_writes_what_is_staged_first(small: SimulatedLog) -> None:
    for _ in range(3):
        small.append(2, is_written=False)
    assert small.log.end_offset == 4
    assert small.log.staged_end_offset == 6


def test_log_rolls_when_the_segments_time_is_over(orders: SimulatedLog) -> None:
    orders.configure(segment_ms=100)
    orders.append(timestamp=1_000)
    orders.append(timestamp=1_100)
    orders.append(timestamp=1_101)
    assert orders.bases == [0, 2]


def test_log_rolls_when_an_index_is_full() -> None:
    orders = filled(SimulatedLog(LogConfig(index_interval_bytes=0, segment_index_bytes=24)), 6)
    assert orders.bases == [0, 4, 8]


def test_log_rolls_when_offsets_outgrow_the_index(orders: SimulatedLog) -> None:
    orders.log.append_as_follower(data_batch([5], 9, base_offset=0))
    orders.log.append_as_follower(data_batch([5], 9, base_offset=2**31))
    orders.log.write()
    assert orders.bases == [0, 1]
    assert read_header(orders.log.read(1, 100).slice.read()).base_offset == 2**31  # type: ignore[union-attr]


def test_roll_of_an_empty_segment_does_nothing(orders: SimulatedLog) -> None:
    assert orders.log.roll() is orders.log.segments.active
    assert orders.bases == [0]


@pytest.mark.parametrize("operation", ["open", "write", "truncate", "allocate"])
def test_roll_on_a_full_disk_fails_and_leaves_no_file(operation: Operation) -> None:
    orders = SimulatedLog(LogConfig(preallocate=True, segment_bytes=1_000))
    orders.append()
    orders.disk.fail(errno.ENOSPC, operations=[operation], path_pattern="*0001.*")
    with pytest.raises(DiskFull):
        orders.log.roll()
    orders.disk.heal()
    orders.append(value_bytes=5)  # goes into the old segment, beyond where the new one would have begun
    assert orders.bases == [0]
    orders.reopen(orders.disk.kill())
    assert orders.log.end_offset == 2


def test_segments_of_a_broker_roll_at_different_times() -> None:
    orders = SimulatedLog(LogConfig(segment_ms=1_000, segment_jitter_ms=900))
    orders.append()
    jitters = set()
    for _ in range(5):
        jitters.add(orders.log.roll().roll_jitter_ms)
        orders.append()
    assert len(jitters) > 1
    assert all(0 <= jitter < 900 for jitter in jitters)


# -- a disk that refuses ---------------------------------------------------------------------------------------------


def test_write_that_fails_undoes_everything_staged(orders: SimulatedLog) -> None:
    orders.produce(0, epoch=1)
    orders.produce(1, epoch=2, is_written=False)
    orders.produce(2, epoch=3, is_written=False, is_transactional=True)
    orders.disk.fail(errno.ENOSPC, operations=["write"])
    with pytest.raises(DiskFull):
        orders.log.write()
    log = orders.log
    assert (log.end_offset, log.staged_end_offset) == (1, 1)
    assert log.epochs.entries == (EpochEntry(1, 0),)
    state = log.producers.get(7)
    assert state is not None
    assert (state.last_sequence, state.transaction_first_offset) == (0, None)
    log.check_invariants()
    assert orders.produce(1) == Appended(1, 1, -1)


def test_failed_write_never_comes_back_in_a_crash(orders: SimulatedLog) -> None:
    orders.append()
    for _ in range(10):
        for _ in range(3):
            orders.append(value_bytes=5, is_written=False)
        orders.disk.fail(errno.ENOSPC, operations=["write"])
        with pytest.raises(DiskFull):
            orders.log.write()
        orders.reopen(orders.disk.kill())
        assert orders.log.end_offset == 1


def test_failed_write_by_an_append_that_rolls_is_told_to_those_who_staged(small: SimulatedLog) -> None:
    small.append(2, is_written=False)
    small.append(2, is_written=False)
    small.disk.fail(errno.ENOSPC, operations=["write"])
    with pytest.raises(DiskFull):
        small.append(2, is_written=False)
    with pytest.raises(DiskFull):
        small.log.write()
    assert small.log.end_offset == small.log.staged_end_offset == 0
    small.log.write()
    filled(small)
    small.log.check_invariants()


def test_failed_write_keeps_a_log_start_that_moved_meanwhile(orders: SimulatedLog) -> None:
    orders.append(3, epoch=1)
    orders.log.advance_high_watermark(3)
    orders.append(is_written=False, epoch=1)
    orders.log.delete_records_before(2)
    orders.disk.fail(errno.ENOSPC, operations=["write"])
    with pytest.raises(DiskFull):
        orders.log.write()
    assert orders.log.epochs.entries == (EpochEntry(1, 2),)


def test_full_disk_heals_when_space_returns(small: SimulatedLog) -> None:
    filled(small)
    small.disk.capacity_bytes = small.disk.used_bytes + 10
    for _ in range(3):
        with pytest.raises(DiskFull):
            small.append(2)
    assert len(read_all(small.log)) == 6
    small.disk.capacity_bytes = None
    filled(small)
    assert small.log.end_offset == 24
    assert len(read_all(small.log)) == 12


def test_index_block_that_finds_no_space_waits_in_memory() -> None:
    orders = SimulatedLog(LogConfig(index_interval_bytes=0, segment_bytes=1_000_000))
    orders.disk.fail(errno.ENOSPC, operations=["write"], path_pattern="*.index", times=None)
    for _ in range(600):
        orders.append(value_bytes=1)
    orders.disk.heal()
    check_indexes(orders.log, read_all(orders.log))
    orders.log.close()
    assert orders.disk.size(path("00000000000000000000.index")) == 599 * 8


# -- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-1, 7, 100])
def test_read_outside_of_the_log_is_refused(orders: SimulatedLog, offset: int) -> None:
    orders.append(6)
    with pytest.raises(KafkaError) as raised:
        orders.log.read(offset, 100)
    assert code_of(raised) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_read_below_the_log_start_is_refused(orders: SimulatedLog) -> None:
    orders.append(6)
    orders.log.advance_high_watermark(6)
    orders.log.delete_records_before(3)
    with pytest.raises(KafkaError) as raised:
        orders.log.read(2, 100)
    assert code_of(raised) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert orders.log.read(3, 1_000).length == orders.log.size_bytes


def test_read_at_the_end_finds_nothing(orders: SimulatedLog) -> None:
    orders.append(6)
    assert orders.log.read(6, 100).slice is None
    assert orders.log.read(6, 100).length == 0


def test_read_returns_the_first_batch_whole_however_small_the_limit(orders: SimulatedLog) -> None:
    filled(orders, 3)
    batch = read_all(orders.log)[1].content
    assert orders.log.read(3, 1).slice.read() == batch  # type: ignore[union-attr]
    assert orders.log.read(3, 1, at_least_one=False).slice is None
    assert orders.log.read(3, 0, at_least_one=False).slice is None


@pytest.mark.parametrize(("upper", "batches"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (99, 3)])
def test_read_never_returns_a_batch_that_reaches_the_upper_bound(
    orders: SimulatedLog, upper: int, batches: int
) -> None:
    filled(orders, 3)
    expected = b"".join(batch.content for batch in read_all(orders.log)[:batches])
    taken = orders.log.read(0, 10_000, upper).slice
    assert (taken.read() if taken else b"") == expected


def test_last_write_is_read_from_memory_until_it_is_forgotten(orders: SimulatedLog) -> None:
    filled(orders, 2)
    orders.log.append(data_batch([5], 9), 0)
    orders.log.append(data_batch([5], 9), 0)
    assert orders.log.read_written(4, 1 << 20) is None, "it is not written yet"
    orders.log.write()
    written = orders.log.read(4, 1 << 20).slice.read()  # type: ignore[union-attr]
    assert orders.log.read_written(4, len(written)) == written
    assert orders.log.read_written(4, len(written) - 1) is None
    assert orders.log.read_written(2, 1 << 20) is None
    assert orders.log.read_written(5, 1 << 20) is None
    orders.log.forget_written()
    assert orders.log.read_written(4, 1 << 20) is None


def test_last_write_that_was_truncated_is_not_read_from_memory(orders: SimulatedLog) -> None:
    filled(orders, 3)
    truncate(orders.log, 4)
    assert orders.log.read_written(4, 1 << 20) is None
    orders.log.check_invariants()


def test_read_in_a_gap_goes_on_in_the_next_segment(orders: SimulatedLog) -> None:
    orders.log.append_as_follower(data_batch([5], 9, base_offset=0))
    orders.log.append_as_follower(data_batch([5], 9, base_offset=5))
    orders.log.write()
    orders.log.roll()
    orders.log.append_as_follower(data_batch([5], 9, base_offset=20))
    orders.log.write()
    assert read_header(orders.log.read(6, 100).slice.read()).base_offset == 20  # type: ignore[union-attr]
    assert orders.log.read(6, 100, upper_offset=20).slice is None


def test_slice_outlives_deletion_and_closing(small: SimulatedLog) -> None:
    filled(small)
    taken = small.log.read(0, 1_000).slice
    assert taken is not None
    content = taken.read()
    small.log.advance_high_watermark(8)
    small.log.delete_records_before(8)
    delete_due_segments(small.log, small.clock)
    small.clock.advance(100)
    for remove in small.log.doomed.take(small.clock.now_ms()):
        remove()
    assert taken.read() == content
    assert not taken.is_revoked
    taken.release()


def test_find_timestamp_crosses_segments(small: SimulatedLog) -> None:
    start = small.clock.now_ms()
    filled(small)
    assert small.log.find_timestamp(start) == FoundTimestamp(start, 0, 0)
    assert small.log.find_timestamp(start + 21) == FoundTimestamp(start + 30, 6, 0)
    assert small.log.find_timestamp(start + 51) is None
    assert small.log.find_largest_timestamp() == FoundTimestamp(start + 50, 10, 0)


def test_largest_timestamp_of_an_empty_log_is_none(orders: SimulatedLog) -> None:
    assert orders.log.find_largest_timestamp() is None


def test_find_timestamp_never_answers_below_the_log_start(small: SimulatedLog) -> None:
    filled(small)
    small.log.advance_high_watermark(12)
    small.log.delete_records_before(7)
    found = small.log.find_timestamp(0)
    assert found is not None
    assert found.offset == 7


# -- transactions ----------------------------------------------------------------------------------------------------


def test_open_transaction_holds_the_last_stable_offset(orders: SimulatedLog) -> None:
    orders.append(2)
    orders.produce(0, is_transactional=True)
    orders.append(2)
    log = orders.log
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 2
    orders.end_transaction()
    assert log.last_stable_offset == 2
    log.advance_high_watermark(6)
    assert log.last_stable_offset == 6


def test_aborted_transactions_are_found_by_range(small: SimulatedLog) -> None:
    small.produce(0, is_transactional=True)
    small.append(2)
    small.end_transaction()
    small.append(2)
    small.produce(1, is_transactional=True)
    small.end_transaction(is_commit=True)
    small.produce(2, is_transactional=True)
    small.end_transaction()
    first, second = AbortedTransaction(7, 0, 3, 4), AbortedTransaction(7, 8, 9, 10)
    log = small.log
    assert len(log.segments) > 2
    assert log.aborted_transactions(0, 10) == [first, second]
    assert log.aborted_transactions(0, 8) == [first]
    assert log.aborted_transactions(4, 10) == [second]
    assert log.aborted_transactions(4, 8) == []


# -- flushing --------------------------------------------------------------------------------------------------------


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


# -- deleting --------------------------------------------------------------------------------------------------------


def test_delete_records_above_the_high_watermark_is_refused(orders: SimulatedLog) -> None:
    orders.append(5)
    orders.log.advance_high_watermark(3)
    with pytest.raises(KafkaError) as raised:
        orders.log.delete_records_before(4)
    assert code_of(raised) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_delete_records_never_moves_the_start_down(orders: SimulatedLog) -> None:
    orders.append(5)
    orders.log.advance_high_watermark(5)
    orders.log.delete_records_before(4)
    orders.log.delete_records_before(2)
    assert orders.log.log_start_offset == 4


def test_deleted_segments_are_renamed_first_and_removed_later(small: SimulatedLog) -> None:
    filled(small)
    small.log.advance_high_watermark(12)
    small.log.delete_records_before(9)
    assert delete_due_segments(small.log, small.clock) == 2
    assert small.bases == [8]
    assert len(small.names(".log.deleted")) == 2
    assert small.log.snapshots.offsets == (8,)
    assert small.log.doomed.take(small.clock.now_ms() + 49) == []
    for remove in small.log.doomed.take(small.clock.now_ms() + 50):
        remove()
    assert small.names(".deleted") == []
    assert small.log.doomed.take(small.clock.now_ms() + 500) == []


def test_retention_of_everything_rolls_and_offsets_go_on(small: SimulatedLog) -> None:
    filled(small)
    small.configure(retention_ms=5)
    small.log.advance_high_watermark(12)
    small.clock.advance(100)
    assert delete_due_segments(small.log, small.clock) == 3
    assert (small.bases, small.log.log_start_offset, small.log.end_offset) == ([12], 12, 12)
    assert small.append().base_offset == 12


def test_retention_on_a_full_disk_deletes_all_but_the_active_segment(small: SimulatedLog) -> None:
    filled(small)
    small.configure(retention_ms=5)
    small.log.advance_high_watermark(12)
    small.clock.advance(100)
    small.disk.capacity_bytes = small.disk.used_bytes
    assert delete_due_segments(small.log, small.clock) == 2
    assert (small.bases, small.log.log_start_offset) == ([8], 8)
    small.clock.advance(100)
    for remove in small.log.doomed.take(small.clock.now_ms()):
        remove()
    assert delete_due_segments(small.log, small.clock) == 1
    assert small.bases == [12]


def test_retention_by_size_keeps_the_newest(small: SimulatedLog) -> None:
    filled(small)
    small.configure(retention_bytes=240)
    small.log.advance_high_watermark(12)
    assert delete_due_segments(small.log, small.clock) == 2
    assert small.log.log_start_offset == 8
    assert delete_due_segments(small.log, small.clock) == 0


# -- truncating ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "end"), [(12, 12), (11, 10), (10, 10), (8, 8), (5, 4), (4, 4), (1, 0), (0, 0)])
def test_truncated_log_ends_with_a_whole_batch(small: SimulatedLog, offset: int, end: int) -> None:
    filled(small)
    small.log.flush()
    small.log.advance_high_watermark(12)
    expected = [batch for batch in read_all(small.log) if batch.next_offset <= end]
    truncate(small.log, offset)
    assert (small.log.end_offset, small.log.recovery_point, small.log.high_watermark) == (end, end, end)
    assert read_all(small.log) == expected
    small.log.check_invariants()
    filled(small)
    assert small.log.end_offset == end + 12
    check_indexes(small.log, read_all(small.log))


def test_truncation_takes_producers_transactions_and_epochs_back(small: SimulatedLog) -> None:
    small.produce(0, epoch=1, is_transactional=True)
    small.append(3, epoch=1)
    small.end_transaction(epoch=2)
    small.produce(1, epoch=3)
    truncate(small.log, 4)
    state = small.log.producers.get(7)
    assert state is not None
    assert (state.last_sequence, state.transaction_first_offset) == (0, 0)
    assert small.log.epochs.entries == (EpochEntry(1, 0),)
    assert small.log.aborted_transactions(0, 4) == []
    assert all(taken <= 4 for taken in small.log.snapshots.offsets)


def test_truncation_drops_what_is_staged_or_writes_it_first(orders: SimulatedLog) -> None:
    orders.append(2)
    orders.append(2, is_written=False)
    truncate(orders.log, 3)
    assert orders.log.end_offset == orders.log.staged_end_offset == 2


def test_truncation_revokes_slices_of_dropped_segments(small: SimulatedLog) -> None:
    filled(small)
    kept, gone = small.log.read(0, 10).slice, small.log.read(8, 10).slice
    truncate(small.log, 4)
    assert kept is not None
    assert gone is not None
    assert (kept.is_revoked, gone.is_revoked) == (False, True)


def test_truncation_drops_the_newest_segment_first(small: SimulatedLog) -> None:
    filled(small)
    renamed: list[str] = []
    small.disk.before_call = lambda operation, name: renamed.append(name) if operation == "rename" else None
    truncate(small.log, 1)
    assert [name for name in renamed if name.endswith(".log")] == [path(f"{base:020d}.log") for base in (8, 4)]


def test_truncation_below_the_first_segment_begins_anew(small: SimulatedLog) -> None:
    filled(small)
    small.log.advance_high_watermark(12)
    small.log.delete_records_before(8)
    delete_due_segments(small.log, small.clock)
    truncate(small.log, 3)
    assert (small.bases, small.log.log_start_offset, small.log.end_offset) == ([3], 3, 3)


@pytest.mark.parametrize(("offset", "end"), [(3, 2), (2, 2), (1, 1)])
def test_truncation_of_the_batch_in_which_the_log_starts_begins_anew(
    orders: SimulatedLog, offset: int, end: int
) -> None:
    orders.append(4)
    orders.log.advance_high_watermark(4)
    orders.log.delete_records_before(2)
    truncate(orders.log, offset)
    assert (orders.bases, orders.log.log_start_offset, orders.log.end_offset) == ([end], end, end)
    orders.log.check_invariants()


def test_truncation_on_a_full_disk_succeeds(small: SimulatedLog) -> None:
    filled(small)
    small.disk.capacity_bytes = small.disk.used_bytes
    truncate(small.log, 6)
    assert small.log.end_offset == 6
    small.log.check_invariants()


def test_restart_drops_everything_and_goes_on_elsewhere(small: SimulatedLog) -> None:
    small.produce(0, epoch=1)
    filled(small)
    taken = small.log.read(0, 10).slice
    restart(small.log, 100)
    log = small.log
    assert (small.bases, log.log_start_offset, log.end_offset, log.high_watermark) == ([100], 100, 100, 100)
    assert (list(log.producers), log.epochs.entries, log.snapshots.offsets) == ([], (), ())
    assert taken is not None
    assert taken.is_revoked
    assert small.append().base_offset == 100
    log.check_invariants()


# -- closing ---------------------------------------------------------------------------------------------------------


def test_closed_log_survives_a_power_loss_and_needs_no_scan(small: SimulatedLog) -> None:
    small.produce(0, 2, is_transactional=True)
    filled(small)
    small.log.close()
    expected = read_all(small.log)
    report = small.reopen(small.disk.crash(), was_clean=True)
    assert (report.checked_bytes, report.notes) == (0, [])
    assert read_all(small.log) == expected
    assert small.log.recovery_point == small.log.end_offset == 14
    assert small.log.epochs.entries == (EpochEntry(0, 0),)
    state = small.log.producers.get(7)
    assert state is not None
    assert (state.last_sequence, state.transaction_first_offset) == (1, 0)


def test_closed_log_forgets_the_transactions_that_were_truncated(orders: SimulatedLog) -> None:
    orders.produce(0, is_transactional=True)
    orders.end_transaction()
    orders.log.close()
    orders.reopen(orders.disk.kill(), was_clean=True)
    truncate(orders.log, 1)
    orders.append()
    orders.log.close()
    disk = orders.disk
    for _ in range(20):
        orders.reopen(disk.power_loss_image(), was_clean=True)
        assert orders.log.aborted_transactions(0, 2) == []


def test_close_on_a_full_disk_fails_and_the_log_goes_on(small: SimulatedLog) -> None:
    filled(small)
    small.disk.capacity_bytes = small.disk.used_bytes
    with pytest.raises(DiskFull):
        small.log.close()
    small.disk.capacity_bytes = None
    filled(small)
    small.log.close()
    report = small.reopen(small.disk.crash(), was_clean=True)
    assert not report.notes
    assert small.log.end_offset == 24


def test_log_works_with_a_single_open_file() -> None:
    orders = filled(SimulatedLog(SMALL, handles_max=1), 20)
    assert len(read_all(orders.log)) == 20
    assert orders.log.find_timestamp(0) is not None
    truncate(orders.log, 9)
    orders.log.close()
    orders.reopen(was_clean=True)
    assert orders.log.end_offset == 8


@pytest.mark.parametrize("codec", list(Codec))
def test_append_of_every_codec_is_read_back(orders: SimulatedLog, codec: Codec) -> None:
    orders.append(5, value_bytes=200, codec=codec)
    (batch,) = read_all(orders.log)
    assert batch.header.codec_number == codec


def test_names_of_a_new_log_are_those_of_an_empty_segment(orders: SimulatedLog) -> None:
    assert orders.disk.list(DIRECTORY) == [f"{0:020d}{kind}" for kind in (".index", ".log", ".timeindex")]
