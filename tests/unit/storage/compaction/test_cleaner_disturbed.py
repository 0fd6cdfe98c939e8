"""A pass of the cleaner that is disturbed: by truncation, deletion, a full or failing disk, or damaged records."""

import errno

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.records.batch import assign, read_header
from barnabas.records.reader import read_records
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.log.expiry import delete_due_segments
from barnabas.storage.settings import LogManagerConfig
from barnabas.storage.work import perform
from tests.support.bombs import zstd_bomb
from tests.support.compaction import PARTITION, RETENTION_MS, CompactedLog, suffixed, suffixed_names
from tests.support.simulated_log import truncate


def test_retention_waits_while_new_segments_are_announced(accounts: CompactedLog) -> None:
    for number in range(6):
        accounts.append((b"k", b"%d" % number))
        accounts.roll()
    accounts.configure(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=0)
    accounts.clock.advance(1_000)
    pieces = accounts.pieces()
    next(pieces)
    assert any(name.endswith(".swap") for name in suffixed_names(accounts))
    assert delete_due_segments(accounts.log, accounts.clock, stored_start=accounts.log.recovery_point) == 0
    next(pieces)
    assert not any(name.endswith(".swap") for name in suffixed_names(accounts))
    assert delete_due_segments(accounts.log, accounts.clock, stored_start=accounts.log.recovery_point) > 0
    accounts.log.check_invariants()


@pytest.mark.parametrize(("offset", "left"), [(0, []), (2, [1])])
def test_truncation_takes_back_new_segments_that_are_announced(
    accounts: CompactedLog, disk: SimulatedDisk, offset: int, left: list[int]
) -> None:
    for number in range(6):
        accounts.append((b"k", b"%d" % number))
        accounts.roll()
    pieces = accounts.pieces()
    next(pieces)
    truncate(accounts.log, offset)
    assert not any(name.endswith(".swap") for name in suffixed(disk.power_loss_image()))
    for _ in pieces:
        pass
    assert [record.offset for record in accounts.records()] == left
    assert not any(name.endswith((".swap", ".cleaned")) for name in suffixed_names(accounts))


def test_log_truncated_during_a_pass_drops_the_work(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    accounts.append((b"a", b"1"))
    accounts.append((b"a", b"2"))
    accounts.roll()
    work = accounts.cleaner.next_job([accounts.log])
    assert work is not None
    work.run()
    truncate(accounts.log, 1)
    work.finish()
    assert accounts.values() == [(0, b"a", b"1")]
    assert not [name for name in suffixed(disk) if not name.endswith(".deleted")]
    accounts.log.check_invariants()


def test_segment_deleted_before_the_worker_opens_it_drops_the_work(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    accounts.configure(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1)
    work = accounts.cleaner.next_job([accounts.log])
    assert work is not None
    accounts.clock.advance(100)
    assert delete_due_segments(accounts.log, accounts.clock, stored_start=accounts.log.recovery_point) == 1
    perform(work)
    assert accounts.failures == []
    assert accounts.compact() == 0
    assert suffixed(disk) == []


def test_cancelled_pass_hands_nothing_over(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    work = accounts.cleaner.next_job([accounts.log])
    assert work is not None
    accounts.cleaner.cancel_all()
    perform(work)
    assert len(accounts.records()) == 2
    assert suffixed(disk) == []


def test_full_disk_leaves_the_old_segments_and_is_waited_for(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    accounts.append((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
    accounts.roll()
    accounts.cleaner_config = LogManagerConfig(log_cleaner_backoff_ms=1000)
    accounts.open(recovery_point=3)
    disk.fail(errno.ENOSPC, operations=["write"], path_pattern="*.log.cleaned")
    assert accounts.compact() == 1
    assert len(accounts.records()) == 3
    assert suffixed(disk) == []
    accounts.clock.advance(1000)
    accounts.compact()
    assert len(accounts.records()) == 2
    assert accounts.failures == []


@pytest.mark.parametrize("operation", ["read", "sync", "rename"])
def test_failing_disk_is_reported_once(accounts: CompactedLog, disk: SimulatedDisk, operation: str) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    work = accounts.cleaner.next_job([accounts.log])
    assert work is not None
    disk.fail(errno.EIO, operations=[operation])  # type: ignore[list-item]
    perform(work)
    assert [type(error) for error in accounts.failures] == [DiskFailed]
    assert len(accounts.records()) == 2
    assert suffixed(disk) == []


def test_damaged_log_is_left_alone_until_it_is_repaired(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    accounts.log.segments[0].file.write_at([b"\xff"], 70)
    assert accounts.compact() == 1
    assert accounts.compact() == 0
    assert accounts.cleaner.damaged_count == 1
    assert accounts.failures == []
    assert suffixed(disk) == []


def test_batch_that_expands_too_far_stays_and_the_rest_is_compacted(
    accounts: CompactedLog, caplog: pytest.LogCaptureFixture
) -> None:
    """An older version took such batches, of which nobody knows the keys."""
    accounts.append((b"a", b"1"))
    base_offset = accounts.log.end_offset
    bomb = bytearray(zstd_bomb(144))
    assign(read_header(bomb), memoryview(bomb), base_offset, 0)
    accounts.log.append_as_follower(bomb)
    accounts.log.write()
    accounts.log.advance_high_watermark(accounts.log.end_offset)
    accounts.append((b"a", b"2"), (b"key", None))
    accounts.roll()
    for _ in range(3):
        accounts.append((b"b", b"dirty"))
        accounts.roll()
        accounts.compact()
        accounts.clock.advance(2 * RETENTION_MS)
    batches = {header.base_offset: bytes(batch) for header, batch in accounts.batches()}
    assert batches.pop(base_offset) == bomb
    left = [(one.key, one.value) for batch in batches.values() for one in read_records(batch)]
    # The tombstone may hide a record in there, so it stays although its horizon has passed.
    assert left == [(b"a", b"2"), (b"key", None), (b"b", b"dirty")]
    assert [line for line in caplog.messages if "expand" in line] == [
        f"{PARTITION}: compaction skips batches that expand to more than 134217728 bytes: 1 in all, the first at offset"
        f" {base_offset}"
    ]
