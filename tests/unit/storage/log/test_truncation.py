"""Truncation of a log: what is left after a cut, and a log that restarts at another offset."""

import pytest

from barnabas.storage.log.epochs import EpochEntry
from barnabas.storage.log.expiry import delete_due_segments
from tests.support.log_model import check_indexes, read_all
from tests.support.simulated_log import SimulatedLog, filled, path, restart, truncate


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
    small.log.flush()
    assert delete_due_segments(small.log, small.clock, stored_start=small.log.recovery_point) == 2
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
