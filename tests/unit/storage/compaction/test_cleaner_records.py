"""Which records, tombstones and markers a cleaned log keeps, at which offsets and in which segments."""

import pytest

from barnabas.records.batch import DELETE_HORIZON, Codec
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.settings import LogManagerConfig
from tests.support.compaction import RETENTION_MS, CompactedLog


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
