"""A log that was closed is durable, opens without a scan, and remembers only what it holds."""

import pytest

from barnabas.base.errors import DiskFull
from barnabas.storage.log.epochs import EpochEntry
from tests.support.log_model import read_all
from tests.support.simulated_log import SimulatedLog, filled, truncate


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
