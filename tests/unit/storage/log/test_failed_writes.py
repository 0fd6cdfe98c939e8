"""A log whose disk refuses a write: what is undone, who is told, and how the log goes on."""

import errno

import pytest

from barnabas.base.errors import DiskFull
from barnabas.storage.log.epochs import EpochEntry
from barnabas.storage.log.staging import Appended
from barnabas.storage.settings import LogConfig
from tests.support.log_model import check_indexes, read_all
from tests.support.simulated_log import SimulatedLog, filled, path


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
