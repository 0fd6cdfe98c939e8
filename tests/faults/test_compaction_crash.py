"""Crashes and failing calls at every call to the disk that a compaction makes."""

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from barnabas.records.batch import Codec
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.work import perform
from tests.support.compaction import DIRECTORY, PARTITION, RETENTION_MS, CompactedLog

Crash = Callable[[SimulatedDisk], SimulatedDisk]

CRASHES: list[Crash] = [SimulatedDisk.crash, SimulatedDisk.kill]


class _PowerLoss(Exception):  # noqa: N818
    """Stops the process that is being simulated, at the call that never comes back."""


def written_log(disk: SimulatedDisk) -> CompactedLog:
    """Segments of every kind: compacted before and not, with tombstones that wait and that may go, and transactions."""
    accounts = CompactedLog(disk)
    accounts.append((b"gone", b"1"), (b"a", b"1"), (b"b", b"1"))
    accounts.append((b"gone", None), (b"a", b"2"), codec=Codec.ZSTD)
    accounts.append((b"c", b"1"), producer_id=7, is_transactional=True)
    accounts.end_transaction(7, is_commit=False)
    accounts.roll()
    accounts.compact()
    accounts.clock.advance(RETENTION_MS)
    for number in range(12):
        accounts.append((b"k%d" % (number % 3), b"v" * 100), (b"z", None), producer_id=8)
    accounts.append((b"c", b"2"), (b"a", b"3"), producer_id=7, is_transactional=True)
    accounts.append((b"d", b"1"), (b"k0", None))
    accounts.roll()
    accounts.end_transaction(7, is_commit=True)
    accounts.append((b"b", b"2"), (b"e", b"1"))
    accounts.roll()
    accounts.append((b"a", b"4"), (b"f", b"1"))
    accounts.log.flush()
    return accounts


def calls_of_a_compaction() -> int:
    disk = SimulatedDisk(Random(0))
    accounts = written_log(disk)
    accounts.newest()
    before = disk.calls
    accounts.compact()
    return disk.calls - before


CALLS = calls_of_a_compaction()


def crash_at(disk: SimulatedDisk, call: int, crash: Crash) -> list[SimulatedDisk]:
    """Arms the disk: its `call`-th call from now on never happens. What is left is put into the list."""
    left: list[SimulatedDisk] = []
    last = disk.calls + call

    def before_call(operation: str, path: str) -> None:
        if disk.calls == last:
            left.append(crash(disk))
            raise _PowerLoss

    disk.before_call = before_call
    return left


def check_same_table(accounts: CompactedLog, expected: object, producers: dict[int, int]) -> None:
    accounts.log.check_invariants()
    assert accounts.newest() == expected
    names = accounts.files.list(f"{DIRECTORY}/{PARTITION}")
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    for producer_id, last_sequence in producers.items():
        state = accounts.log.producers.get(producer_id)
        assert state is not None
        assert state.last_sequence == last_sequence


@pytest.mark.parametrize("crash", CRASHES, ids=lambda crash: crash.__name__)
@pytest.mark.parametrize("call", range(1, CALLS + 1))
def test_compaction_after_a_crash_at_any_call_leaves_the_same_table(call: int, crash: Crash) -> None:
    disk = SimulatedDisk(Random(call))
    accounts = written_log(disk)
    expected = accounts.newest()
    producers = {state.producer_id: state.last_sequence for state in accounts.log.producers}
    left = crash_at(disk, call, crash)
    with pytest.raises(_PowerLoss):
        accounts.compact()
    accounts.reopen(left[0])
    check_same_table(accounts, expected, producers)
    accounts.log.flush()
    accounts.compact()
    check_same_table(accounts, expected, producers)


@pytest.mark.parametrize("call", range(CALLS * 4 // 5, CALLS + 1))
def test_segments_that_a_power_loss_brings_back_do_not_cut_the_log(call: int) -> None:
    """Compaction has replaced them; the recovery point in the checkpoint file is old, so that all is checked."""
    disk = SimulatedDisk(Random(call))
    accounts = written_log(disk)
    expected = accounts.newest()
    producers = {state.producer_id: state.last_sequence for state in accounts.log.producers}
    left: list[SimulatedDisk] = []
    crash_at(disk, call, lambda disk: left.extend(disk.power_loss_image() for _ in range(10)) or disk)
    with suppress(_PowerLoss):
        accounts.compact()
    for image in left or [disk.power_loss_image() for _ in range(10)]:
        accounts.files = image
        accounts.open(recovery_point=0)
        check_same_table(accounts, expected, producers)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", range(CALLS))
def test_compaction_with_a_failing_call_leaves_the_same_table(call: int, code: int) -> None:
    disk = SimulatedDisk(Random(call))
    accounts = written_log(disk)
    expected = accounts.newest()
    producers = {state.producer_id: state.last_sequence for state in accounts.log.producers}
    disk.fail(code, after_calls=call)
    while not accounts.failures and (work := accounts.cleaner.next_job([accounts.log])):
        perform(work)
    disk.heal()
    if not accounts.failures:
        accounts.compact()
        check_same_table(accounts, expected, producers)
    accounts.reopen(disk.kill())
    check_same_table(accounts, expected, producers)
