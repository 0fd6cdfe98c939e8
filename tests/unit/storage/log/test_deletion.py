"""Deletion of a log's oldest records, by request or by retention."""

import pytest

from barnabas.storage.log.expiry import delete_due_segments
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.simulated_log import SimulatedLog, code_of, filled


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
