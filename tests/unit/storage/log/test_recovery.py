"""Opening a log from what a stop or a crash has left."""

from collections.abc import Callable

import pytest

from barnabas.base.filesystem import read_file
from barnabas.records.builder import BatchBuilder
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import write_leader_epochs
from barnabas.storage.log.epochs import EpochEntry
from barnabas.storage.segment.transaction_index import AbortedTransaction
from barnabas.storage.settings import LogConfig
from tests.support.log_model import check_indexes, data_batch, read_all
from tests.support.simulated_log import SimulatedLog, path, truncate

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=0)


@pytest.fixture
def orders() -> SimulatedLog:
    """Two batches of two records to a segment: 0, 4, 8."""
    orders = SimulatedLog(SMALL)
    for _ in range(6):
        orders.append(2)
        orders.clock.advance(10)
    return orders


def log_path(base: int) -> str:
    return path(f"{base:020d}.log")


def overwrite(disk: SimulatedDisk, name: str, content: bytes, position: int = 0) -> None:
    file = disk.open(name, write=True, create=True)
    file.write_at([content], position)
    file.close()


def cut(disk: SimulatedDisk, name: str, size: int) -> None:
    disk.open(name, write=True).truncate(size)


def test_new_directory_becomes_an_empty_log_at_the_log_start() -> None:
    orders = SimulatedLog()
    report = orders.reopen(SimulatedDisk(orders.disk.cut.random), log_start=17)
    assert (orders.bases, orders.log.log_start_offset, orders.log.end_offset) == ([17], 17, 17)
    assert not report.notes


def test_clean_stop_opens_without_a_scan(orders: SimulatedLog) -> None:
    orders.log.close()
    reads: list[str] = []
    disk = orders.disk.kill()
    disk.before_call = lambda operation, name: reads.append(name) if operation == "read" else None
    report = orders.reopen(disk, was_clean=True)
    assert (report.checked_bytes, report.removed_bytes, report.notes) == (0, 0, [])
    assert {name for name in reads if name.endswith(".log")} == {log_path(8)}
    assert orders.log.recovery_point == orders.log.end_offset == 12


def test_crash_checks_only_from_the_recovery_point(orders: SimulatedLog) -> None:
    orders.log.flush()
    checked_all = orders.reopen(orders.disk.kill()).checked_bytes
    assert checked_all == orders.log.size_bytes
    checked = orders.reopen(orders.disk.kill(), recovery_point=9).checked_bytes
    assert checked == orders.log.segments.active.size
    assert orders.log.recovery_point == 9


def test_torn_tail_is_cut_and_said(orders: SimulatedLog) -> None:
    cut(orders.disk, log_path(8), 200)
    report = orders.reopen(orders.disk.kill(), recovery_point=8)
    assert orders.log.end_offset == 10
    assert report.removed_bytes == 200 - orders.log.segments.active.size
    assert any("cut" in note and "incomplete" in note for note in report.notes)
    check_indexes(orders.log, read_all(orders.log))


def test_bad_batch_ends_the_log_and_later_segments_go(orders: SimulatedLog) -> None:
    expected = read_all(orders.log)[:3]
    overwrite(orders.disk, log_path(4), b"\xff", 200)
    report = orders.reopen(orders.disk.kill(), recovery_point=4)
    assert orders.bases == [0, 4]
    assert read_all(orders.log) == expected
    assert report.removed_segments == 1
    assert orders.names("08.log") == []


def test_cut_of_a_bad_batch_is_durable_before_the_log_goes_on(orders: SimulatedLog) -> None:
    orders.log.flush()
    overwrite(orders.disk, log_path(4), b"\xff", 200)
    orders.reopen(orders.disk.kill(), recovery_point=4)
    size = orders.log.segments.active.size
    for _ in range(20):
        image = orders.disk.power_loss_image()
        assert image.size(log_path(4)) == size
        assert not image.exists(log_path(8))


def test_segment_cut_between_two_batches_ends_the_log(orders: SimulatedLog) -> None:
    """A file system may lose the end of one file and keep the next file."""
    cut(orders.disk, log_path(4), orders.log.segments[1].size // 2)
    report = orders.reopen(orders.disk.kill(), recovery_point=4)
    assert (orders.bases, orders.log.end_offset) == ([0, 4], 6)
    assert any("ends at offset 6, not at 8" in note for note in report.notes)


def test_segment_that_reaches_into_the_next_one_ends_the_log(orders: SimulatedLog) -> None:
    batch = data_batch([1], 5, base_offset=8, leader_epoch=0)
    overwrite(orders.disk, log_path(4), bytes(batch), orders.log.segments[1].size)
    orders.reopen(orders.disk.kill(), recovery_point=4)
    assert (orders.bases, orders.log.end_offset) == ([0, 4], 9)


@pytest.fixture
def with_gap() -> SimulatedLog:
    """A compacted log of two segments, from 0 to 1 and from 6 to 7."""
    orders = SimulatedLog(LogConfig(cleanup_policy=frozenset({"compact"})))
    orders.log.append_as_follower(data_batch([5], 9, base_offset=0, leader_epoch=0))
    orders.log.write()
    orders.log.roll(at_offset=6)
    orders.log.append_as_follower(data_batch([5], 9, base_offset=6, leader_epoch=0))
    orders.log.write()
    orders.log.flush()
    return orders


@pytest.mark.parametrize(("recovery_point", "is_point_sure"), [(0, False), (6, True), (7, True)])
def test_gap_that_compaction_may_have_left_stays(
    with_gap: SimulatedLog, recovery_point: int, is_point_sure: bool
) -> None:
    report = with_gap.reopen(with_gap.disk.kill(), recovery_point=recovery_point, is_point_sure=is_point_sure)
    assert (with_gap.bases, with_gap.log.end_offset, report.notes) == ([0, 6], 7, [])
    assert with_gap.log.gaps_end_offset == (0 if is_point_sure else 7)


def test_gap_of_a_compacted_log_where_it_was_never_compacted_ends_the_log(with_gap: SimulatedLog) -> None:
    report = with_gap.reopen(with_gap.disk.kill(), recovery_point=5, is_point_sure=True)
    assert (with_gap.bases, with_gap.log.end_offset) == ([0], 1)
    assert any("ends at offset 1, not at 6" in note for note in report.notes)


def test_cut_takes_gaps_above_it_away(with_gap: SimulatedLog) -> None:
    with_gap.reopen(with_gap.disk.kill())
    truncate(with_gap.log, 1)
    assert with_gap.log.gaps_end_offset == 1


def test_gap_below_the_recovery_point_stays(orders: SimulatedLog) -> None:
    orders.log.flush()
    cut(orders.disk, log_path(0), orders.log.segments[0].size // 2)
    cut(orders.disk, path(f"{0:020d}.index"), 0)
    orders.reopen(orders.disk.kill(), recovery_point=12)
    assert (orders.bases, orders.log.end_offset) == ([0, 4, 8], 12)


def test_preallocated_space_is_given_back_after_a_crash() -> None:
    orders = SimulatedLog(LogConfig(preallocate=True, segment_bytes=10_000))
    orders.append()
    orders.log.roll()
    orders.append(3)
    assert orders.disk.size(log_path(1)) == 10_000
    orders.reopen(orders.disk.kill())
    assert orders.log.end_offset == 4
    assert orders.disk.size(log_path(1)) == orders.log.segments.active.size


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", [lambda disk, name: disk.remove(name), lambda disk, name: cut(disk, name, 3)])
@pytest.mark.parametrize("was_clean", [True, False])
def test_missing_or_torn_index_is_rebuilt(
    orders: SimulatedLog, kind: str, damage: Callable[[SimulatedDisk, str], None], was_clean: bool
) -> None:
    orders.log.close()
    disk = orders.disk.kill()
    damage(disk, path(f"{4:020d}{kind}"))
    report = orders.reopen(disk, recovery_point=12, was_clean=was_clean)
    assert any("rebuilding indexes" in note for note in report.notes)
    check_indexes(orders.log, read_all(orders.log))
    assert orders.log.end_offset == 12
    orders.append()
    orders.log.flush()
    image = orders.disk.power_loss_image()
    assert image.size(path(f"{4:020d}{kind}")) == orders.disk.size(path(f"{4:020d}{kind}"))


def test_index_without_a_log_is_removed(orders: SimulatedLog) -> None:
    overwrite(orders.disk, path(f"{77:020d}.index"), b"")
    report = orders.reopen(orders.disk.kill())
    assert orders.names("77.index") == []
    assert any("has no log" in note for note in report.notes)


def test_temporary_and_deleted_files_are_removed(orders: SimulatedLog) -> None:
    for name in ("leader-epoch-checkpoint.tmp", f"{77:020d}.log.deleted", f"{77:020d}.index.cleaned"):
        overwrite(orders.disk, path(name), b"anything")
    orders.reopen(orders.disk.kill())
    assert not [name for name in orders.names() if name.endswith((".tmp", ".deleted", ".cleaned"))]
    assert orders.log.end_offset == 12


def test_files_of_others_are_left_alone(orders: SimulatedLog) -> None:
    for name in ("partition.metadata", "notes.txt"):
        overwrite(orders.disk, path(name), b"mine")
    orders.reopen(orders.disk.kill())
    assert read_file(orders.disk, path("notes.txt")) == read_file(orders.disk, path("partition.metadata")) == b"mine"


def test_log_that_ends_before_its_start_begins_anew(orders: SimulatedLog) -> None:
    report = orders.reopen(orders.disk.kill(), log_start=50)
    assert (orders.bases, orders.log.log_start_offset, orders.log.end_offset) == ([50], 50, 50)
    assert any("emptied, to continue there" in note for note in report.notes)
    assert orders.append().base_offset == 50


def test_log_start_within_the_log_is_kept(orders: SimulatedLog) -> None:
    orders.reopen(orders.disk.kill(), log_start=5)
    assert orders.log.log_start_offset == orders.log.high_watermark == 5
    assert orders.log.epochs.entries == (EpochEntry(0, 5),)


def test_recovery_point_beyond_the_end_is_lowered(orders: SimulatedLog) -> None:
    orders.reopen(orders.disk.kill(), recovery_point=500)
    assert orders.log.recovery_point == orders.log.end_offset == 12


def test_clean_stop_with_a_damaged_tail_is_checked_after_all(orders: SimulatedLog) -> None:
    orders.log.close()
    last = orders.log.segments.active.offset_index.last().position
    disk = orders.disk.kill()
    overwrite(disk, log_path(8), b"\x07", last + 16)
    report = orders.reopen(disk, was_clean=True)
    assert orders.log.end_offset == 10
    assert any("after all" in note for note in report.notes)


# -- what is derived from the batches --------------------------------------------------------------------------------


def test_producers_are_rebuilt_from_the_snapshot_and_the_batches_after_it() -> None:
    orders = SimulatedLog(SMALL)
    for sequence in range(9):
        orders.produce(sequence, value_bytes=60)
    orders.reopen(orders.disk.kill(), recovery_point=9)
    state = orders.log.producers.get(7)
    assert state is not None
    assert state.last_sequence == 8
    assert orders.produce(8).is_duplicate
    assert orders.produce(9).base_offset == 9


@pytest.mark.parametrize("damage", [lambda disk, name: disk.remove(name), lambda disk, name: cut(disk, name, 9)])
def test_missing_or_torn_snapshots_are_taken_again(damage: Callable[[SimulatedDisk, str], None]) -> None:
    orders = SimulatedLog(SMALL)
    for sequence in range(9):
        orders.produce(sequence, value_bytes=60)
    orders.log.close()
    offsets = orders.log.snapshots.offsets
    assert len(offsets) > 2
    disk = orders.disk.kill()
    for offset in offsets:
        damage(disk, path(f"{offset:020d}.snapshot"))
    orders.reopen(disk, was_clean=True)
    state = orders.log.producers.get(7)
    assert state is not None
    assert state.last_sequence == 8
    assert orders.log.snapshots.offsets == tuple(base for base in orders.bases if base)


def test_snapshot_above_the_recovery_point_is_not_believed(orders: SimulatedLog) -> None:
    """It may be of records that were truncated, if the removal did not reach the disk."""
    other = SimulatedLog(SMALL)
    other.produce(5, producer_id=99)
    other.log.close()
    stale = read_file(other.disk, path(f"{1:020d}.snapshot"))
    overwrite(orders.disk, path(f"{8:020d}.snapshot"), stale)
    orders.reopen(orders.disk.kill(), recovery_point=5)
    assert orders.log.producers.get(99) is None
    orders.log.close()
    orders.reopen(orders.disk.kill(), recovery_point=12)
    assert orders.log.producers.get(99) is None


def test_aborted_transactions_above_the_recovery_point_are_found_again() -> None:
    orders = SimulatedLog(SMALL)
    orders.produce(0, is_transactional=True)
    for _ in range(4):
        orders.append(2)
    orders.end_transaction()
    orders.reopen(orders.disk.kill(), recovery_point=2)
    assert orders.log.aborted_transactions(0, 10) == [AbortedTransaction(7, 0, 9, 10)]
    assert orders.log.producers.first_undecided_offset is None


def test_epochs_above_the_recovery_point_come_from_the_batches() -> None:
    """The file may be older than a truncation, and name epochs that the records no longer have."""
    orders = SimulatedLog(SMALL)
    orders.append(4, epoch=1)
    orders.append(4, epoch=3)
    orders.append(4, epoch=5)
    write_leader_epochs(orders.disk, path("leader-epoch-checkpoint"), [EpochEntry(1, 0), EpochEntry(5, 6)])
    orders.reopen(orders.disk.kill(), recovery_point=2)
    assert orders.log.epochs.entries == (EpochEntry(1, 0), EpochEntry(3, 4), EpochEntry(5, 8))


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"0\n7\n"])
def test_damaged_epochs_of_a_clean_stop_come_from_the_batches(content: bytes) -> None:
    orders = SimulatedLog(SMALL)
    orders.append(4, epoch=1)
    orders.append(4, epoch=3)
    orders.log.close()
    disk = orders.disk.kill()
    disk.remove(path("leader-epoch-checkpoint"))
    overwrite(disk, path("leader-epoch-checkpoint"), content)
    report = orders.reopen(disk, was_clean=True)
    assert orders.log.epochs.entries == (EpochEntry(1, 0), EpochEntry(3, 4))
    assert any("epochs" in note for note in report.notes)


def test_damaged_epochs_with_a_torn_tail_do_not_stop_the_opening(orders: SimulatedLog) -> None:
    overwrite(orders.disk, path("leader-epoch-checkpoint"), b"?")
    cut(orders.disk, log_path(8), 20)
    orders.reopen(orders.disk.kill(), recovery_point=8)
    assert orders.log.epochs.entries == (EpochEntry(0, 0),)
    assert orders.log.end_offset == 8


def test_log_without_epochs_is_not_searched_for_them() -> None:
    orders = SimulatedLog()
    orders.append(4, epoch=-1)
    orders.log.close()
    report = orders.reopen(orders.disk.kill(), was_clean=True)
    assert not report.notes


def test_log_that_starts_at_its_end_is_not_searched_for_epochs(orders: SimulatedLog) -> None:
    for _ in range(2):
        orders.log.advance_high_watermark(12)
        orders.log.delete_records_before(12)
        orders.log.close()
        report = orders.reopen(orders.disk.kill(), log_start=12, was_clean=True)
        assert not report.notes


def test_damage_below_the_recovery_point_does_not_stop_the_replay() -> None:
    orders = SimulatedLog(SMALL)
    for sequence in range(6):
        orders.produce(sequence, value_bytes=60)
    orders.log.close()
    disk = orders.disk.kill()
    overwrite(disk, log_path(0), b"\x07", 16)
    for offset in orders.log.snapshots.offsets:
        disk.remove(path(f"{offset:020d}.snapshot"))
    orders.reopen(disk, was_clean=True)
    state = orders.log.producers.get(7)
    assert state is not None
    assert state.last_sequence == 5


def test_largest_timestamp_of_a_recovered_segment_survives_a_clean_stop() -> None:
    orders = SimulatedLog(LogConfig(segment_bytes=400))
    orders.append(timestamp=9_000)
    orders.append(timestamp=1_000)
    orders.append(value_bytes=250, timestamp=1_000)
    assert len(orders.bases) == 2
    disk = orders.disk.kill()
    cut(disk, path(f"{0:020d}.timeindex"), 0)
    orders.reopen(disk)
    orders.log.close()
    orders.reopen(orders.disk.kill(), was_clean=True)
    assert orders.log.segments[0].largest.timestamp == 9_000


def test_time_index_entry_of_an_emptied_batch_does_not_hide_the_records_before_it() -> None:
    """Kafka indexes a batch that compaction has emptied; a record before it, with an earlier time, is still found."""
    record = BatchBuilder()
    record.append(1_000, b"key", b"value")
    kept = record.build()
    emptied = BatchBuilder(base_offset=1, producer_id=7, producer_epoch=0, base_sequence=0).build(
        last_offset=4, max_timestamp=2_000
    )
    orders = SimulatedLog(LogConfig(cleanup_policy=frozenset({"compact"})))
    disk = orders.disk.kill()
    overwrite(disk, log_path(0), bytes(kept) + bytes(emptied))
    overwrite(disk, path(f"{0:020d}.index"), (4).to_bytes(4, "big") + len(kept).to_bytes(4, "big"))
    overwrite(disk, path(f"{0:020d}.timeindex"), (2_000).to_bytes(8, "big") + (4).to_bytes(4, "big"))
    orders.reopen(disk, recovery_point=5)
    assert orders.log.end_offset == 5
    found = orders.log.find_timestamp(900)
    assert found is not None
    assert (found.offset, found.timestamp) == (0, 1_000)
