"""Reads of a log: by offset and by timestamp, and which transactions a reader must know about."""

import pytest

from barnabas.records.batch import read_header
from barnabas.storage.log.expiry import delete_due_segments
from barnabas.storage.segment.timestamp_lookup import FoundTimestamp
from barnabas.storage.segment.transaction_index import AbortedTransaction
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.log_model import data_batch, read_all
from tests.support.simulated_log import SMALL, SimulatedLog, code_of, filled, truncate

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
    small.log.flush()
    assert delete_due_segments(small.log, small.clock, stored_start=small.log.recovery_point) == 2
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


def test_log_works_with_a_single_open_file() -> None:
    orders = filled(SimulatedLog(SMALL, handles_max=1), 20)
    assert len(read_all(orders.log)) == 20
    assert orders.log.find_timestamp(0) is not None
    truncate(orders.log, 9)
    orders.log.close()
    orders.reopen(was_clean=True)
    assert orders.log.end_offset == 8
