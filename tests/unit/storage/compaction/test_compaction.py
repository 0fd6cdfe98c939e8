"""The decisions of compaction: how far, which log, which segments together, and what is left of a batch."""

from dataclasses import dataclass

import pytest

from barnabas.records.batch import DELETE_HORIZON, BatchHeader, Codec, read_header
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import EndTransactionMarker, build_marker
from barnabas.records.kernel import KeyOffsets
from barnabas.records.reader import read_records
from barnabas.storage.compaction.compacted_batches import (
    BatchCleaner,
    CleanedBatch,
    CleanedTransactions,
    MarkerFate,
    ProducerTail,
)
from barnabas.storage.compaction.compaction_plan import (
    Cleanable,
    SegmentExtent,
    find_cleanable,
    first_dirty_offset,
    group_segments,
    is_roll_due,
)
from barnabas.storage.producers.producer_state import ProducedBatch, ProducerState
from barnabas.storage.segment.transaction_index import AbortedTransaction
from barnabas.storage.settings import LogConfig

NOW_MS = 1_000_000
COMMIT = EndTransactionMarker(is_commit=True, coordinator_epoch=0)
ABORT = EndTransactionMarker(is_commit=False, coordinator_epoch=0)


@dataclass
class Facts:
    base_offset: int
    size: int = 100
    first_timestamp: int = 1
    largest_timestamp: int = 1

    def largest_timestamp_or_modified_ms(self) -> int:
        return self.largest_timestamp


SEGMENTS = [Facts(0), Facts(10), Facts(20), Facts(30), Facts(40)]


def cleanable(
    segments: list[Facts] = SEGMENTS, first_dirty: int = 0, stable_offset: int = 1000, **settings: int
) -> Cleanable:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), **settings)  # type: ignore[arg-type]
    return find_cleanable(segments, config, first_dirty=first_dirty, stable_offset=stable_offset, now_ms=NOW_MS)


# Where to begin


@pytest.mark.parametrize(
    ("checkpoint", "expected"), [(None, 5), (4, 5), (5, 5), (50, 50), (100, 100), (101, 5)], ids=str
)
def test_first_dirty_offset_is_the_checkpoint_where_it_lies_in_the_log(checkpoint: int | None, expected: int) -> None:
    assert first_dirty_offset(checkpoint, log_start_offset=5, end_offset=100) == expected


# How far


def test_cleanable_ends_at_the_active_segment() -> None:
    found = cleanable()
    assert (found.first_uncleanable_offset, found.dirty_bytes, found.clean_bytes) == (40, 400, 0)


def test_cleanable_ends_at_the_segment_that_holds_the_stable_offset() -> None:
    assert cleanable(stable_offset=29).first_uncleanable_offset == 20
    assert cleanable(stable_offset=30).first_uncleanable_offset == 30
    assert cleanable(stable_offset=0).dirty_bytes == 0


def test_cleanable_ends_at_the_first_segment_younger_than_the_minimal_lag() -> None:
    young = [Facts(0), Facts(10, largest_timestamp=NOW_MS - 50), Facts(20), Facts(30)]
    assert cleanable(young, min_compaction_lag_ms=51).first_uncleanable_offset == 10
    assert cleanable(young, min_compaction_lag_ms=50).first_uncleanable_offset == 30


def test_cleanable_does_not_ask_for_the_age_of_clean_segments() -> None:
    young = [Facts(0, largest_timestamp=NOW_MS), Facts(10), Facts(20)]
    assert cleanable(young, first_dirty=10, min_compaction_lag_ms=100).first_uncleanable_offset == 20


def test_cleanable_counts_the_segment_that_the_first_dirty_offset_divides_as_dirty() -> None:
    found = cleanable(first_dirty=15)
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (100, 300, 0.75)


def test_cleanable_with_everything_clean_is_never_due() -> None:
    found = cleanable(first_dirty=40)
    assert (found.first_uncleanable_offset, found.dirty_bytes) == (40, 0)
    assert not found.is_due(0.0)


def test_cleanable_is_due_above_the_ratio() -> None:
    found = cleanable(first_dirty=20)
    assert found.is_due(0.49)
    assert not found.is_due(0.5)


def test_cleanable_is_due_whatever_the_ratio_once_the_maximal_lag_is_passed() -> None:
    old = [Facts(0), Facts(10, first_timestamp=NOW_MS - 100), Facts(20)]
    assert cleanable(old, first_dirty=10, max_compaction_lag_ms=99).is_due(0.9)
    assert not cleanable(old, first_dirty=10, max_compaction_lag_ms=100).is_due(0.9)


def test_roll_is_due_when_the_active_segment_has_kept_a_record_for_too_long() -> None:
    active = Facts(40, first_timestamp=NOW_MS - 100)
    config = LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=99)
    assert is_roll_due(active, config, NOW_MS)
    assert not is_roll_due(Facts(40, size=0, first_timestamp=1), config, NOW_MS)
    assert not is_roll_due(active, LogConfig(max_compaction_lag_ms=99), NOW_MS)


# Which segments together


def extents(*sizes: int, index_bytes: int = 8, span: int = 10) -> list[SegmentExtent]:
    return [SegmentExtent(slot * span, (slot + 1) * span, size, index_bytes) for slot, size in enumerate(sizes)]


def test_group_takes_neighbours_up_to_the_segment_size() -> None:
    assert group_segments(extents(60, 40, 1, 99, 100, 0), 100, 1000) == [range(2), range(2, 4), range(4, 6)]


def test_group_never_leaves_out_a_segment_that_is_too_large_by_itself() -> None:
    assert group_segments(extents(500, 10, 500), 100, 1000) == [range(1), range(1, 2), range(2, 3)]


def test_group_ends_where_the_index_would_be_full() -> None:
    assert group_segments(extents(1, 1, 1, index_bytes=40), 100, 80) == [range(2), range(2, 3)]


def test_group_ends_where_offsets_would_not_fit_into_the_index() -> None:
    assert group_segments(extents(1, 1, 1, span=2**30), 100, 80) == [range(2), range(2, 3)]


def test_no_segments_make_no_group() -> None:
    assert group_segments([], 100, 100) == []


# Transactions


def header_of(offset: int, producer_id: int = 1, count: int = 1, **settings: bool) -> BatchHeader:
    builder = BatchBuilder(base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, **settings)  # type: ignore[arg-type]
    for number in range(count):
        builder.append(NOW_MS, b"k%d" % number, b"v")
    return read_header(builder.build())


def marker_header(offset: int, producer_id: int = 1) -> BatchHeader:
    return header_of(offset, producer_id, is_transactional=True, is_control=True)


def test_transactions_name_the_batches_between_first_offset_and_marker_as_aborted() -> None:
    transactions = CleanedTransactions()
    transactions.announce([AbortedTransaction(1, 10, 12, 13)])
    transactions.announce([AbortedTransaction(1, 10, 12, 13)])
    assert not transactions.observe_data(header_of(8, is_transactional=True))
    assert transactions.observe_marker(marker_header(9), COMMIT) == MarkerFate(is_removable=False, aborted=None)
    assert transactions.observe_data(header_of(10, is_transactional=True))
    assert not transactions.observe_data(header_of(11, producer_id=2, is_transactional=True))
    fate = transactions.observe_marker(marker_header(12), ABORT)
    assert fate == MarkerFate(is_removable=False, aborted=AbortedTransaction(1, 10, 12, 13))
    assert not transactions.observe_data(header_of(13, is_transactional=True))


@pytest.mark.parametrize("marker", [COMMIT, ABORT, None], ids=["commit", "abort", "emptied"])
def test_marker_without_batches_before_it_is_removable(marker: EndTransactionMarker | None) -> None:
    transactions = CleanedTransactions()
    transactions.announce([AbortedTransaction(1, 10, 12, 13)])
    assert transactions.observe_marker(marker_header(12), marker).is_removable


# What is left of a batch


def cleaner(
    newest: dict[bytes, int], latest_offset: int = 1000, tails: dict[int, ProducerTail] | None = None
) -> BatchCleaner:
    offsets = KeyOffsets(10_000, bytes(16))
    for key, offset in newest.items():
        builder = BatchBuilder(base_offset=offset)
        builder.append(0, key, None)
        offsets.add_records(builder.build()[61:], 1, offset)
    return BatchCleaner(
        offsets,
        latest_offset,
        CleanedTransactions(),
        tails or {},
        now_ms=NOW_MS,
        delete_retention_ms=500,
        compression_level=lambda _: None,
    )


def batch_of(*pairs: tuple[bytes | None, bytes | None], **settings: int) -> tuple[BatchHeader, memoryview]:
    builder = BatchBuilder(base_offset=10, leader_epoch=4, **settings)  # type: ignore[arg-type]
    for number, (key, value) in enumerate(pairs):
        builder.append(1000 + number, key, value)
    batch = memoryview(builder.build())
    return read_header(batch), batch


def offsets_of(cleaned: CleanedBatch | None) -> list[int]:
    assert cleaned is not None
    return [record.offset for record in read_records(cleaned.batch)]


def test_batch_keeps_offsets_epoch_and_sequence_when_it_loses_records() -> None:
    header, batch = batch_of((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), producer_id=7, producer_epoch=2, base_sequence=5)
    cleaned = cleaner({b"a": 90, b"c": 90}).clean(header, batch, is_last=False)
    assert cleaned is not None
    assert offsets_of(cleaned) == [11]
    kept = cleaned.header
    assert (kept.base_offset, kept.last_offset, kept.leader_epoch, kept.last_sequence) == (10, 12, 4, 7)
    assert (kept.count, kept.max_timestamp) == (1, 1001)


def test_batch_without_a_newer_record_stays_the_same_object() -> None:
    header, batch = batch_of((b"a", b"1"), (b"b", b"1"))
    cleaned = cleaner({b"a": 10, b"b": 11}).clean(header, batch, is_last=False)
    assert cleaned is not None
    assert cleaned.batch is batch


def test_batch_of_old_records_vanishes_unless_it_is_last() -> None:
    header, batch = batch_of((b"a", b"1"), codec=Codec.GZIP)
    assert cleaner({b"a": 90}).clean(header, batch, is_last=False) is None
    emptied = cleaner({b"a": 90}).clean(header, batch, is_last=True)
    assert emptied is not None
    assert (emptied.header.count, emptied.header.codec_number, len(emptied.batch)) == (0, Codec.NONE, 61)
    assert emptied.header.max_timestamp == header.max_timestamp


def test_batch_that_carries_the_last_sequence_stays_empty() -> None:
    header, batch = batch_of((b"a", b"1"), producer_id=7, producer_epoch=2, base_sequence=5)
    tail = ProducerTail.of(ProducerState(7, 2, batches=(ProducedBatch(5, 10, 0, 1000),)))
    emptied = cleaner({b"a": 90}, tails={7: tail}).clean(header, batch, is_last=False)
    assert emptied is not None
    assert (emptied.header.count, emptied.header.last_sequence) == (0, 5)
    assert cleaner({b"a": 90}, tails={8: tail}).clean(header, batch, is_last=False) is None


def test_records_without_keys_go() -> None:
    header, batch = batch_of((None, b"1"), (b"b", b"1"))
    assert offsets_of(cleaner({}).clean(header, batch, is_last=False)) == [11]


def test_batch_beyond_the_map_is_not_looked_at() -> None:
    header, batch = batch_of((None, b"1"), (b"b", None))
    cleaned = cleaner({}, latest_offset=9).clean(header, batch, is_last=False)
    assert cleaned is not None
    assert cleaned.batch is batch


def test_tombstone_that_the_map_does_not_cover_gets_no_horizon() -> None:
    header, batch = batch_of((b"a", b"1"), (b"b", None))
    covered = cleaner({}, latest_offset=11).clean(header, batch, is_last=False)
    halved = cleaner({}, latest_offset=10).clean(header, batch, is_last=False)
    assert covered is not None
    assert halved is not None
    assert covered.header.delete_horizon_ms == NOW_MS + 500
    assert halved.header.delete_horizon_ms is None


@pytest.mark.parametrize(("horizon_ms", "left"), [(NOW_MS + 1, [10, 11]), (NOW_MS, [10])])
def test_tombstone_goes_when_its_horizon_has_come(horizon_ms: int, left: list[int]) -> None:
    header, batch = batch_of((b"a", b"1"), (b"b", None), delete_horizon_ms=horizon_ms)
    cleaned = cleaner({}).clean(header, batch, is_last=False)
    assert offsets_of(cleaned) == left
    assert cleaned is not None
    assert cleaned.header.delete_horizon_ms == horizon_ms
    assert next(read_records(cleaned.batch)).timestamp == 1000


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_of_an_empty_transaction_waits_and_goes(is_commit: bool) -> None:
    marker = EndTransactionMarker(is_commit, coordinator_epoch=3)
    batch = memoryview(build_marker(marker, producer_id=7, producer_epoch=0, timestamp=1000, base_offset=10))
    patient = cleaner({marker.encode_key(): 900})
    waiting = patient.clean(read_header(batch), batch, is_last=False)
    assert waiting is not None
    assert waiting.header.attributes & DELETE_HORIZON
    assert [record.timestamp for record in read_records(waiting.batch)] == [1000]
    again = patient.clean(waiting.header, memoryview(waiting.batch), is_last=False)
    assert again is not None
    assert again.batch == waiting.batch
    patient.now_ms += 500
    assert patient.clean(waiting.header, memoryview(waiting.batch), is_last=False) is None


def test_marker_that_is_all_a_producer_has_left_stays_empty() -> None:
    batch = memoryview(build_marker(COMMIT, producer_id=7, producer_epoch=2, timestamp=1000, base_offset=10))
    patient = cleaner({}, tails={7: ProducerTail(epoch=2, last_offset=None)})
    waiting = patient.clean(read_header(batch), batch, is_last=False)
    assert waiting is not None
    patient.now_ms += 500
    emptied = patient.clean(waiting.header, memoryview(waiting.batch), is_last=False)
    assert emptied is not None
    assert (emptied.header.count, emptied.header.is_control, emptied.header.delete_horizon_ms) == (0, True, None)
