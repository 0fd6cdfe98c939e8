"""The cleaner against a log on a simulated disk: what it keeps, what it drops, and who hears of trouble."""

import errno
from pathlib import PurePosixPath
from random import Random

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import DELETE_HORIZON, Codec, assign, read_header
from barnabas.records.reader import read_records
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import CLEANER_OFFSETS, read_offsets
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.log.expiry import delete_due_segments
from barnabas.storage.settings import LogManagerConfig
from barnabas.storage.work import Job, perform
from tests.support.bombs import zstd_bomb
from tests.support.compaction import (
    DIRECTORY,
    PARTITION,
    RETENTION_MS,
    CompactedLog,
    simulated,
)
from tests.support.simulated_log import truncate

CHECKPOINT = f"{DIRECTORY}/{CLEANER_OFFSETS}"


@pytest.fixture
def disk() -> SimulatedDisk:
    return simulated()


@pytest.fixture
def accounts(disk: SimulatedDisk) -> CompactedLog:
    return CompactedLog(disk)


def suffixed_names(accounts: CompactedLog) -> list[str]:
    return suffixed(accounts.files)


def suffixed(disk: FileSystem) -> list[str]:
    names = disk.list(f"{DIRECTORY}/{PARTITION}")
    return [name for name in names if PurePosixPath(name).suffix in (".cleaned", ".swap", ".deleted")]


@pytest.mark.parametrize("codec", list(Codec))
def test_cleaner_with_repeated_keys_keeps_the_newest_at_its_offset(accounts: CompactedLog, codec: Codec) -> None:
    accounts.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=codec)
    accounts.append((b"b", b"2"), (b"c", b"1"), codec=codec)
    accounts.roll()
    before = {record.offset: record for record in accounts.records()}
    accounts.compact()
    assert accounts.values() == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]
    assert all(before[record.offset] == record for record in accounts.records())
    assert [header.codec_number for header, _ in accounts.batches()] == [codec, codec]
    accounts.log.check_invariants()


def test_cleaner_leaves_a_batch_without_old_records_byte_for_byte(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"), (b"b", b"1"))
    accounts.append((b"c", b"1"), codec=Codec.ZSTD)
    accounts.roll()
    before = [bytes(batch) for _, batch in accounts.batches()]
    accounts.compact()
    assert [bytes(batch) for _, batch in accounts.batches()] == before


def test_cleaner_never_touches_the_active_segment(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"))
    accounts.append((b"a", b"2"))
    accounts.log.flush()
    assert accounts.compact() == 0
    assert accounts.values() == [(0, b"a", b"1"), (1, b"a", b"2")]


def test_cleaner_leaves_records_that_are_not_flushed_alone(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"))
    accounts.append((b"a", b"2"))
    accounts.log.roll()
    assert accounts.compact() == 0


def test_cleaner_joins_small_segments_and_the_log_reads_on(accounts: CompactedLog) -> None:
    for number in range(40):
        accounts.append((b"k%d" % (number % 5), b"v" * 50))
        if number % 2:
            accounts.roll()
    count = len(accounts.log.segments)
    accounts.compact()
    assert len(accounts.log.segments) < count
    assert accounts.log.segments[0].base_offset == 0
    assert [record.offset for record in accounts.records()] == [35, 36, 37, 38, 39]
    assert accounts.append((b"k0", b"new")).base_offset == 40


def test_cleaner_keeps_readers_of_replaced_segments_going(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"))
    accounts.append((b"a", b"2"))
    accounts.roll()
    taken = accounts.log.read(0, 1 << 20).slice
    assert taken is not None
    before = taken.read()
    accounts.compact()
    assert not taken.is_revoked
    assert taken.read() == before
    taken.release()


def test_tombstone_waits_for_its_horizon_and_goes(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"), (b"b", b"1"))
    accounts.append((b"a", None), (b"c", b"1"))
    accounts.roll()
    timestamps = {record.offset: record.timestamp for record in accounts.records()}
    accounts.compact()
    horizon_ms = accounts.clock.now_ms() + RETENTION_MS
    assert accounts.values() == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    assert [header.delete_horizon_ms for header, _ in accounts.batches()] == [None, horizon_ms]
    assert all(timestamps[record.offset] == record.timestamp for record in accounts.records())

    accounts.clock.advance(RETENTION_MS - 1)
    accounts.append((b"d", b"1"))
    accounts.clock.advance(-1)
    accounts.roll()
    accounts.compact()
    assert (2, b"a", None) in accounts.values()

    accounts.clock.advance(1)
    accounts.append((b"e", b"1"))
    accounts.roll()
    accounts.compact()
    assert accounts.values() == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1"), (5, b"e", b"1")]


def test_cleaner_with_log_append_time_keeps_the_batch_timestamp(accounts: CompactedLog) -> None:
    accounts.configure(message_timestamp_type="LogAppendTime")
    accounts.append((b"a", b"1"), (b"b", None))
    accounts.append((b"a", b"2"))
    accounts.roll()
    before = {record.offset: record.timestamp for record in accounts.records()}
    accounts.compact()
    assert {record.offset: record.timestamp for record in accounts.records()} == {
        offset: timestamp for offset, timestamp in before.items() if offset in (1, 2)
    }


def test_aborted_records_go_and_do_not_hide_committed_ones(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"committed"), producer_id=7, is_transactional=True)
    accounts.end_transaction(7, is_commit=True)
    accounts.append((b"a", b"aborted"), producer_id=7, is_transactional=True)
    accounts.append((b"b", b"aborted"), producer_id=8, is_transactional=True)
    accounts.end_transaction(7, is_commit=False)
    accounts.roll()
    accounts.end_transaction(8, is_commit=False)
    accounts.append((b"z", b"1"), producer_id=7)
    accounts.append((b"z", b"1"), producer_id=8)
    accounts.roll()
    accounts.compact()
    assert accounts.values() == [(0, b"a", b"committed"), (7, b"z", b"1")]
    assert accounts.newest().keys() == {b"a", b"z"}


def test_open_transaction_ends_what_may_be_compacted(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"))
    accounts.append((b"a", b"2"))
    accounts.roll()
    accounts.append((b"a", b"3"), producer_id=7, is_transactional=True)
    accounts.roll()
    accounts.append((b"a", b"4"))
    accounts.roll()
    accounts.compact()
    assert accounts.values() == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]
    assert accounts.cleaner.first_dirty_offset(accounts.log) == 2
    accounts.end_transaction(7, is_commit=False)
    accounts.roll()
    accounts.compact()
    assert accounts.values() == [(3, b"a", b"4")]


def test_marker_goes_one_retention_after_the_last_record_of_its_transaction(accounts: CompactedLog) -> None:
    def controls() -> list[tuple[int, bool]]:
        return [
            (header.base_offset, bool(header.attributes & DELETE_HORIZON))
            for header, _ in accounts.batches()
            if header.is_control
        ]

    def another_pass() -> None:
        accounts.append((b"z", b"1"), producer_id=7)
        accounts.roll()
        accounts.compact()

    accounts.append((b"a", b"1"), producer_id=7, is_transactional=True)
    accounts.end_transaction(7, is_commit=False)
    another_pass()
    assert controls() == [(1, False)]
    assert len(accounts.log.aborted_transactions(0, 100)) == 1
    another_pass()
    assert controls() == [(1, True)]
    assert accounts.log.aborted_transactions(0, 100) == []
    accounts.clock.advance(RETENTION_MS - 1)
    another_pass()
    another_pass()
    assert controls() == []


def test_last_batch_of_a_producer_stays_without_records(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"), producer_id=7, codec=Codec.LZ4)
    accounts.append((b"a", b"3"), (b"b", b"1"))
    accounts.roll()
    accounts.compact()
    header, _ = next(accounts.batches())
    assert (header.base_offset, header.last_offset, header.count, header.codec_number) == (0, 1, 0, Codec.NONE)
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (7, 0, 1)
    accounts.log.snapshots.remove_where(lambda _: True)
    accounts.open()
    assert accounts.append((b"c", b"1"), producer_id=7).base_offset == 4


def test_largest_timestamp_is_found_when_its_batch_was_emptied(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"))
    accounts.clock.advance(1000)
    accounts.append((b"b", b"1"), producer_id=7)
    accounts.clock.advance(-1000)
    accounts.append((b"b", b"2"), (b"c", b"1"))
    accounts.roll()
    accounts.compact()
    found = accounts.log.find_largest_timestamp()
    assert found is not None
    assert found.offset == 3


def test_new_segment_that_lost_its_end_keeps_an_empty_batch_there(accounts: CompactedLog) -> None:
    """Else a crash during the replacement could not tell how many of the old segments the new one stands for."""
    accounts.append((b"a", b"1"), (b"b", b"1"))
    accounts.roll()
    accounts.append((b"b", b"2"))
    accounts.roll()
    accounts.configure(segment_bytes=150)
    accounts.append((b"b", b"3"))
    accounts.roll()
    accounts.configure(segment_bytes=180)
    accounts.compact()
    assert accounts.values() == [(0, b"a", b"1"), (3, b"b", b"3")]
    assert [(header.base_offset, header.count) for header, _ in accounts.batches()] == [(0, 1), (2, 0), (3, 1)]


def test_full_key_map_ends_the_pass_and_the_next_goes_on(disk: SimulatedDisk) -> None:
    config = LogManagerConfig(log_cleaner_backoff_ms=0, log_cleaner_dedupe_buffer_size=24 * 10)
    accounts = CompactedLog(disk, cleaner_config=config)
    accounts.configure(segment_bytes=1 << 20)
    pairs = [(b"k%d" % (number % 20), b"%d" % number) for number in range(60)]
    accounts.append(*pairs, codec=Codec.ZSTD)
    accounts.append(*pairs)
    accounts.roll()
    assert accounts.compact() > 4
    assert [record.offset for record in accounts.records()] == list(range(100, 120))
    assert accounts.cleaner.first_dirty_offset(accounts.log) == 120


def test_tombstone_beyond_a_full_key_map_never_uncovers_an_older_record(disk: SimulatedDisk) -> None:
    config = LogManagerConfig(log_cleaner_backoff_ms=0, log_cleaner_dedupe_buffer_size=24 * 4)
    accounts = CompactedLog(disk, cleaner_config=config)
    accounts.append((b"gone", b"1"), (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"gone", None))
    accounts.roll()
    for _ in accounts.pieces():
        accounts.clock.advance(2 * RETENTION_MS)
        assert b"gone" not in accounts.newest()


def test_segment_that_grows_by_delete_horizons_becomes_two(accounts: CompactedLog) -> None:
    for number in range(3):
        accounts.append(*((b"%d-%d" % (number, key), None) for key in range(10)))
    accounts.roll()
    accounts.configure(segment_bytes=accounts.log.segments[0].size)
    accounts.compact()
    assert [segment.base_offset for segment in accounts.log.segments] == [0, 20, 30]
    assert len(accounts.records()) == 30
    accounts.log.check_invariants()


def test_cleaner_checkpoint_names_the_first_dirty_offset(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    accounts.compact()
    assert read_offsets(disk, CHECKPOINT) == {PARTITION: 2}
    accounts.open(recovery_point=2)
    assert accounts.cleaner.first_dirty_offset(accounts.log) == 2
    accounts.cleaner.truncated(accounts.log, 1)
    assert accounts.cleaner.first_dirty_offset(accounts.log) == 1


def test_cleaner_with_a_damaged_checkpoint_begins_at_the_log_start(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    file = disk.open(CHECKPOINT, write=True, create=True)
    file.write_at([b"nonsense"], 0)
    accounts.append((b"a", b"1"))
    assert accounts.cleaner.first_dirty_offset(accounts.log) == 0


def test_cleaner_takes_the_dirtiest_log_first(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    accounts.compact()
    accounts.append((b"a", b"3"))
    accounts.roll()
    dirtier = CompactedLog(simulated())
    dirtier.log.partition = TopicPartition("dirtier", 0)
    dirtier.append((b"a", b"1"), (b"a", b"2"))
    dirtier.roll()
    work = accounts.cleaner.next_job([accounts.log, dirtier.log, accounts.log])
    assert isinstance(work, Job)
    assert work.title == "compact dirtier-0"


def test_piece_of_work_is_followed_by_the_next_until_nothing_is_due(accounts: CompactedLog) -> None:
    """Nobody has to ask again: only the throttle slows compaction down."""
    for number in range(40):
        accounts.append((b"k%d" % (number % 5), b"v" * 300))
        accounts.roll()
    assert len(accounts.log.segments) > 10
    work = accounts.cleaner.next_job([accounts.log])
    assert work is not None
    perform(work)
    assert [record.offset for record in accounts.records()] == [35, 36, 37, 38, 39]
    assert accounts.cleaner.first_dirty_offset(accounts.log) == 40
    assert read_offsets(accounts.files, CHECKPOINT) == {PARTITION: 40}


def test_owner_of_the_logs_never_waits_for_a_sync(accounts: CompactedLog, disk: SimulatedDisk) -> None:
    for number in range(40):
        accounts.append((b"k%d" % (number % 5), b"v" * 300))
        accounts.roll()
    calls: list[str] = []
    disk.before_call = lambda operation, path: calls.append(operation)
    while work := accounts.cleaner.next_job([accounts.log]):
        work.run()
        calls.clear()
        work.finish()
        assert not {"sync", "sync_directory"} & {*calls}
    assert [record.offset for record in accounts.records()] == [35, 36, 37, 38, 39]


def test_retention_waits_while_new_segments_are_announced(accounts: CompactedLog) -> None:
    for number in range(6):
        accounts.append((b"k", b"%d" % number))
        accounts.roll()
    accounts.configure(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=0)
    accounts.clock.advance(1_000)
    pieces = accounts.pieces()
    next(pieces)
    assert any(name.endswith(".swap") for name in suffixed_names(accounts))
    assert delete_due_segments(accounts.log, accounts.clock) == 0
    next(pieces)
    assert not any(name.endswith(".swap") for name in suffixed_names(accounts))
    assert delete_due_segments(accounts.log, accounts.clock) > 0
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


def test_cleaner_that_is_told_to_end_begins_nothing_any_more(accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"))
    accounts.roll()
    accounts.cleaner.cancel_all()
    assert accounts.cleaner.next_job([accounts.log]) is None


def test_log_that_is_not_served_any_more_when_its_turn_comes_is_left_alone(accounts: CompactedLog) -> None:
    served = [accounts.log]
    cleaner = LogCleaner(
        accounts.files, accounts.clock, Random(3), accounts.cleaner_config, lambda *_: None, served.__contains__
    )
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    list(cleaner.look(served))
    served.clear()
    assert cleaner.next_job() is None


def test_look_at_many_logs_pauses(disk: SimulatedDisk, accounts: CompactedLog) -> None:
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    pauses = accounts.cleaner.look([accounts.log] * 1000)
    assert sum(1 for _ in pauses) >= 5
    assert accounts.cleaner.next_job() is not None


def test_cleaner_gives_no_log_to_two_jobs(disk: SimulatedDisk) -> None:
    accounts = CompactedLog(disk, cleaner_config=LogManagerConfig(log_cleaner_backoff_ms=0, log_cleaner_threads=2))
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    assert accounts.cleaner.next_job([accounts.log]) is not None
    assert accounts.cleaner.next_job([accounts.log]) is None


def test_cleaner_that_found_nothing_looks_again_after_the_backoff(disk: SimulatedDisk) -> None:
    accounts = CompactedLog(disk, cleaner_config=LogManagerConfig(log_cleaner_backoff_ms=1000))
    assert accounts.cleaner.next_job([accounts.log]) is None
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    assert accounts.cleaner.next_job([accounts.log]) is None
    accounts.clock.advance(1000)
    assert accounts.cleaner.next_job([accounts.log]) is not None


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
    assert delete_due_segments(accounts.log, accounts.clock) == 1
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


def test_cleaner_counts_what_it_does_while_it_does_it(accounts: CompactedLog) -> None:
    cleaner = accounts.cleaner
    assert (cleaner.running_count, cleaner.passes, cleaner.totals().read_bytes) == (0, 0, 0)
    for number in range(40):
        accounts.append((b"k%d" % (number % 5), b"v" * 50))
        accounts.roll()
    read_bytes = []
    while work := cleaner.next_job([accounts.log]):
        work.run()
        read_bytes.append(cleaner.totals().read_bytes)
        work.finish()
        if cleaner.running_count:
            assert cleaner.dirty_ratio_max == 1.0
    assert read_bytes == sorted(read_bytes)
    assert 0 < read_bytes[0] < read_bytes[-1]
    assert cleaner.running_count == 0
    assert cleaner.passes == 1
    totals = cleaner.totals()
    assert totals.read_bytes == read_bytes[-1]
    assert totals.written_bytes > 0
    assert totals.replaced_segments == 40
    accounts.clock.advance(60_000)  # it looks again after `log.cleaner.backoff.ms`
    assert cleaner.next_job([accounts.log]) is None
    assert cleaner.dirty_ratio_max == 0.0


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
        f"{PARTITION}: compaction leaves alone what expands to more than 134217728 bytes: 1 in all, the first at offset"
        f" {base_offset}"
    ]


def test_throttled_pass_takes_its_time(disk: SimulatedDisk) -> None:
    config = LogManagerConfig(log_cleaner_backoff_ms=0, log_cleaner_io_max_bytes_per_second=1000.0)
    accounts = CompactedLog(disk, cleaner_config=config)
    for number in range(20):
        accounts.append((b"k%d" % number, b"v" * 100))
    accounts.roll()
    size_bytes = sum(segment.size for segment in accounts.log.segments)
    begun_ms = accounts.clock.now_ms()
    accounts.compact()
    assert accounts.clock.now_ms() - begun_ms >= 3 * size_bytes - 200


def test_idle_log_is_rolled_once_its_records_are_overdue(accounts: CompactedLog) -> None:
    accounts.configure(max_compaction_lag_ms=5000, min_cleanable_dirty_ratio=1.0)
    accounts.append((b"a", b"1"), (b"a", b"2"))
    assert not accounts.cleaner.roll_overdue(accounts.log)
    accounts.clock.advance(5001)
    assert accounts.cleaner.roll_overdue(accounts.log)
    accounts.log.flush()
    accounts.compact()
    assert accounts.values() == [(1, b"a", b"2")]


def test_log_that_is_not_compacted_is_never_chosen(accounts: CompactedLog) -> None:
    accounts.configure(cleanup_policy=frozenset({"delete"}))
    accounts.append((b"a", b"1"), (b"a", b"2"))
    accounts.roll()
    assert accounts.compact() == 0
