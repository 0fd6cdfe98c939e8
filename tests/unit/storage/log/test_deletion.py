"""Deletion of a log's oldest records, by request or by retention."""

import errno

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.storage.log.expiry import delete_due_segments
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.simulated_log import SimulatedLog, code_of, filled, restart, truncate


def expire(orders: SimulatedLog) -> int:
    """With a checkpoint file that is up to date."""
    return delete_due_segments(orders.log, orders.clock, stored_start=orders.log.recovery_point)


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
    small.log.flush()
    assert expire(small) == 2
    assert small.bases == [8]
    assert len(small.names(".log.deleted")) == 2
    assert small.log.snapshots.offsets == (8,)
    assert small.log.doomed.take(small.clock.now_ms() + 49) == []
    for remove in small.log.doomed.take(small.clock.now_ms() + 50):
        remove()
    assert small.names(".deleted") == []
    assert small.log.doomed.take(small.clock.now_ms() + 500) == []


def test_segment_whose_renaming_fails_leaves_no_open_file(small: SimulatedLog) -> None:
    filled(small)
    small.log.advance_high_watermark(12)
    next(small.log.segments[0].headers(0))  # its file is open
    small.log.delete_records_before(9)
    small.log.flush()
    small.disk.fail(errno.EIO, operations=["rename"])
    with pytest.raises(DiskFailed):
        expire(small)
    small.log.finish_close()
    assert small.disk.open_files == 0


def test_retention_of_everything_rolls_and_offsets_go_on(small: SimulatedLog) -> None:
    filled(small)
    small.configure(retention_ms=5)
    small.log.advance_high_watermark(12)
    small.clock.advance(100)
    assert expire(small) == 0
    assert (small.bases, small.log.log_start_offset, small.log.end_offset) == ([0, 4, 8, 12], 0, 12)
    assert small.log.has_expired_segments
    small.log.flush()
    assert expire(small) == 3
    assert (small.bases, small.log.log_start_offset, small.log.end_offset) == ([12], 12, 12)
    assert small.append().base_offset == 12


def test_retention_on_a_full_disk_deletes_all_but_the_active_segment(small: SimulatedLog) -> None:
    filled(small)
    small.configure(retention_ms=5)
    small.log.advance_high_watermark(12)
    small.clock.advance(100)
    small.log.flush()
    small.disk.capacity_bytes = small.disk.used_bytes
    assert expire(small) == 2
    assert (small.bases, small.log.log_start_offset) == ([8], 8)
    small.clock.advance(100)
    for remove in small.log.doomed.take(small.clock.now_ms()):
        remove()
    assert expire(small) == 0
    small.log.flush()
    assert expire(small) == 1
    assert small.bases == [12]


def test_retention_by_size_keeps_the_newest(small: SimulatedLog) -> None:
    filled(small)
    small.configure(retention_bytes=240)
    small.log.advance_high_watermark(12)
    small.log.flush()
    assert expire(small) == 2
    assert small.log.log_start_offset == 8
    assert expire(small) == 0


# -- what leaves, and what waits ---------------------------------------------------------------------------------------


def expired(orders: SimulatedLog, start: int) -> SimulatedLog:
    """Segments at 0, 4, 8 and a log start."""
    filled(orders)
    orders.log.advance_high_watermark(12)
    orders.log.delete_records_before(start)
    return orders


def test_no_segment_leaves_a_log_that_was_never_flushed(small: SimulatedLog) -> None:
    expired(small, 9)
    assert delete_due_segments(small.log, small.clock, stored_start=12) == 0
    assert small.bases == [0, 4, 8]
    assert small.log.has_expired_segments
    assert small.log.must_sync_names


def test_segments_before_the_newest_with_a_durable_name_leave(small: SimulatedLog) -> None:
    filled(small, 4)
    small.log.flush()
    filled(small, 2)
    small.log.advance_high_watermark(12)
    small.log.delete_records_before(9)
    assert delete_due_segments(small.log, small.clock, stored_start=12) == 1
    assert small.bases == [4, 8]
    small.log.flush()
    assert delete_due_segments(small.log, small.clock, stored_start=12) == 1
    assert not small.log.has_expired_segments


def test_segments_above_the_stored_start_leave_one_for_each_sync(small: SimulatedLog) -> None:
    expired(small, 9)
    small.log.flush()
    assert delete_due_segments(small.log, small.clock, stored_start=0) == 1
    assert delete_due_segments(small.log, small.clock, stored_start=3) == 0
    assert small.log.must_sync_names
    small.log.flush()
    assert delete_due_segments(small.log, small.clock, stored_start=3) == 1
    assert small.bases == [8]
    assert not small.log.must_sync_names


def test_failed_or_cancelled_flush_makes_no_name_durable(small: SimulatedLog) -> None:
    expired(small, 9)
    failed = small.log.plan_flush()
    small.log.abandon_flush(failed)
    cancelled = small.log.plan_flush()
    cancelled.cancel()
    small.log.finish_flush(cancelled)
    assert delete_due_segments(small.log, small.clock, stored_start=12) == 0


def test_segment_rolled_after_a_plan_was_made_is_not_covered_by_it(small: SimulatedLog) -> None:
    filled(small, 4)
    plan = small.log.plan_flush()
    filled(small, 2)
    plan.run()
    small.log.finish_flush(plan)
    assert small.log.names.last_offset == 4


@pytest.mark.parametrize(
    ("recovery_point", "was_clean", "last_offset"), [(12, True, 8), (12, False, 8), (8, False, 4), (0, False, -1)]
)
def test_names_that_are_durable_when_a_log_is_opened(
    small: SimulatedLog, recovery_point: int, was_clean: bool, last_offset: int
) -> None:
    """One that begins just at the recovery point may have come after it was reached."""
    filled(small)
    small.log.close()
    small.reopen(recovery_point=recovery_point, was_clean=was_clean)
    assert small.log.names.last_offset == last_offset


def test_truncation_takes_durable_names_back(small: SimulatedLog) -> None:
    filled(small)
    small.log.flush()
    truncate(small.log, 5)
    assert small.log.names.last_offset == 4
    restart(small.log, 20)
    assert (small.log.names.first_offset, small.log.names.last_offset) == (20, 20)
