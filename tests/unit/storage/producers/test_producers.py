import pytest

from barnabas.records.batch import SEQUENCE_MAX
from barnabas.storage.producers.producer_state import (
    PRODUCER_EPOCH_MAX,
    Duplicate,
    Origin,
    ProducedBatch,
    ProducerState,
)
from barnabas.storage.producers.producers import CompletedTransaction, Producers
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.headers import data_header, marker_header


class Partition:
    """A log of nothing but offsets around the table under test."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end_offset = 0

    def produce(self, *args, origin=Origin.CLIENT, **kwargs) -> Duplicate | int:
        header = data_header(*args, **kwargs)
        duplicate = self.producers.check(header, origin=origin)
        if duplicate is not None:
            return duplicate
        base_offset = self.end_offset
        self.producers.update(header, base_offset, header.max_timestamp)
        self.end_offset += header.count
        self.producers.check_invariants()
        return base_offset

    def end(
        self,
        producer_id=1,
        epoch=0,
        *,
        coordinator_epoch=0,
        is_abort=False,
        origin=Origin.COORDINATOR,
        version=0,
    ) -> CompletedTransaction | None:
        header = marker_header(producer_id, epoch)
        self.producers.check_marker(
            header, coordinator_epoch=coordinator_epoch, origin=origin, transaction_version=version
        )
        completed = self.producers.end_transaction(
            header, self.end_offset, 2_000, coordinator_epoch=coordinator_epoch, is_abort=is_abort
        )
        self.end_offset += 1
        self.producers.check_invariants()
        return completed


@pytest.fixture
def partition() -> Partition:
    return Partition()


def refused_with(code: ErrorCode):
    return pytest.raises(KafkaError, match=f"^{code.name}:")


def test_unknown_producer_may_start_at_any_sequence(partition):
    assert partition.produce(sequence=4711) == 0
    assert partition.produce(sequence=4712, count=3) == 1
    assert partition.producers.get(1).last_sequence == 4714


@pytest.mark.parametrize("sequence", [0, 2, 3, SEQUENCE_MAX])
def test_sequence_with_gap_or_overlap_is_refused(partition, sequence):
    partition.produce(sequence=0, count=4)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(sequence=sequence, count=2)


def test_sequence_after_the_largest_is_zero(partition):
    partition.produce(sequence=SEQUENCE_MAX)
    assert partition.produce(sequence=0) == 1


def test_batch_across_the_wrap_is_continued_and_recognised(partition):
    partition.produce(sequence=SEQUENCE_MAX - 1, count=4)
    assert partition.produce(sequence=2, count=1) == 4
    assert partition.produce(sequence=SEQUENCE_MAX - 1, count=4) == Duplicate(0, 3, 1_000)


def test_retry_of_one_of_the_last_five_batches_is_answered_with_its_offsets(partition):
    for sequence in range(0, 12, 2):
        partition.produce(sequence=sequence, count=2, timestamp=100 + sequence)
    for sequence in range(2, 12, 2):
        assert partition.produce(sequence=sequence, count=2) == Duplicate(sequence, sequence + 1, 100 + sequence)


def test_retry_of_the_sixth_last_batch_is_refused(partition):
    for sequence in range(6):
        partition.produce(sequence=sequence)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(sequence=0)


def test_batch_with_the_start_but_not_the_end_of_an_earlier_one_is_refused(partition):
    partition.produce(sequence=0, count=3)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(sequence=0, count=2)


def test_old_epoch_is_refused_even_as_a_retry(partition):
    partition.produce(sequence=0)
    partition.produce(epoch=1, sequence=0)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.produce(epoch=0, sequence=0)


def test_new_epoch_starts_at_sequence_zero(partition):
    partition.produce(sequence=0)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(epoch=1, sequence=1)
    assert partition.produce(epoch=1, sequence=0) == 1
    assert len(partition.producers.get(1).batches) == 1


def test_coordinator_is_held_to_the_epoch_but_not_to_sequences(partition):
    partition.produce(epoch=3, sequence=-1, origin=Origin.COORDINATOR)
    partition.produce(epoch=3, sequence=-1, origin=Origin.COORDINATOR)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.produce(epoch=2, sequence=-1, origin=Origin.COORDINATOR)


def test_replication_takes_what_the_leader_took(partition):
    partition.produce(epoch=3, sequence=0)
    partition.produce(epoch=3, sequence=9, origin=Origin.REPLICATION)
    partition.produce(epoch=2, sequence=0, origin=Origin.REPLICATION)
    assert partition.producers.get(1).epoch == 2


def test_refused_batch_changes_nothing(partition):
    partition.produce(sequence=0)
    before = partition.producers.get(1)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(sequence=7)
    assert partition.producers.get(1) is before


def test_plain_batch_within_a_transaction_is_refused(partition):
    partition.produce(sequence=0, transactional=True)
    with refused_with(ErrorCode.INVALID_TXN_STATE):
        partition.produce(sequence=1)


def test_transaction_keeps_its_first_offset_and_ends_with_the_marker(partition):
    partition.produce(2, sequence=0, count=3)
    partition.produce(sequence=0, count=2, transactional=True)
    partition.produce(sequence=2, transactional=True)
    assert partition.producers.has_ongoing_transaction(1, 0)
    assert not partition.producers.has_ongoing_transaction(1, 1)
    assert partition.end(is_abort=True) == CompletedTransaction(3, 6, 1, True, 7)
    assert not partition.producers.has_ongoing_transaction(1, 0)
    assert partition.producers.get(1).coordinator_epoch == 0
    assert partition.producers.get(1).last_timestamp == 2_000


def test_marker_of_the_same_epoch_keeps_the_sequence(partition):
    partition.produce(sequence=0, transactional=True)
    partition.end()
    assert partition.produce(sequence=1, transactional=True) == 2


def test_marker_of_a_higher_epoch_restarts_the_sequence(partition):
    partition.produce(sequence=0, transactional=True)
    partition.end(epoch=1)
    with refused_with(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        partition.produce(epoch=1, sequence=1, transactional=True)
    assert partition.produce(epoch=1, sequence=0, transactional=True) == 2


def test_marker_without_transaction_completes_nothing_but_is_remembered(partition):
    assert partition.end(producer_id=7, epoch=4, coordinator_epoch=2) is None
    assert partition.producers.get(7) == ProducerState(7, 4, 2, 2_000)


def test_marker_of_an_old_epoch_is_refused(partition):
    partition.produce(epoch=1, sequence=0, transactional=True)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.end(epoch=0)


def test_marker_of_an_old_coordinator_is_refused(partition):
    partition.produce(sequence=0, transactional=True)
    partition.end(coordinator_epoch=5)
    with refused_with(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        partition.end(coordinator_epoch=4)
    assert partition.end(coordinator_epoch=4, origin=Origin.REPLICATION) is None


def test_marker_of_transaction_version_two_needs_a_higher_epoch(partition):
    partition.produce(epoch=1, sequence=0, transactional=True)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.end(epoch=1, version=2)
    with refused_with(ErrorCode.INVALID_PRODUCER_EPOCH):
        partition.end(epoch=0, version=2)
    assert partition.end(epoch=2, version=2) is not None
    assert partition.end(epoch=2, version=2) is None, "a retry of the marker"


def test_marker_of_transaction_version_two_may_repeat_the_largest_epoch(partition):
    partition.produce(epoch=PRODUCER_EPOCH_MAX, sequence=0, transactional=True)
    assert partition.end(epoch=PRODUCER_EPOCH_MAX, version=2) is not None


def test_first_unstable_offset_is_the_oldest_open_or_unreplicated_transaction(partition):
    producers = partition.producers
    assert producers.first_unstable_offset is None
    partition.produce(1, sequence=0, transactional=True)
    partition.produce(2, sequence=0, transactional=True)
    assert producers.first_unstable_offset == 0
    assert partition.end(1).last_stable_offset == 1
    assert producers.first_undecided_offset == 1
    assert producers.first_unstable_offset == 0, "the marker is not replicated yet"
    producers.advance_high_watermark(2)
    assert producers.first_unstable_offset == 0
    producers.advance_high_watermark(3)
    assert producers.first_unstable_offset == 1
    assert partition.end(2).last_stable_offset == 4
    producers.advance_high_watermark(4)
    assert producers.first_unstable_offset is None


def test_last_stable_offset_is_bounded_by_the_high_watermark(partition):
    partition.produce(sequence=0, count=3)
    partition.produce(sequence=3, transactional=True)
    assert partition.producers.last_stable_offset(2) == 2
    assert partition.producers.last_stable_offset(4) == 3
    partition.end()
    partition.producers.advance_high_watermark(5)
    assert partition.producers.last_stable_offset(5) == 5


def test_remove_below_forgets_ended_transactions_but_no_producer(partition):
    partition.produce(sequence=0, transactional=True)
    partition.end()
    partition.producers.remove_below(2)
    assert partition.producers.first_unstable_offset is None
    assert partition.producers.get(1) is not None


def test_expire_forgets_idle_producers_but_not_open_transactions(partition):
    partition.produce(1, sequence=0, timestamp=1_000)
    partition.produce(2, sequence=0, timestamp=1_001)
    partition.produce(3, sequence=0, timestamp=1_000, transactional=True)
    assert partition.producers.expire(now_ms=1_100, expiration_ms=100) == 1
    assert [state.producer_id for state in partition.producers] == [2, 3]
    partition.producers.check_invariants()
    assert partition.produce(1, sequence=55) == 3, "an expired producer is unknown again"


def test_rollback_restores_producers_and_transactions(partition):
    producers = partition.producers
    partition.produce(1, sequence=0, transactional=True)
    partition.produce(2, sequence=0)
    before = list(producers), producers.ongoing_transactions, producers.unreplicated_transactions
    savepoint = producers.savepoint()
    partition.produce(1, sequence=1, transactional=True)
    partition.end(1, is_abort=True)
    partition.produce(1, sequence=2, transactional=True)
    partition.produce(3, sequence=0, transactional=True)
    producers.expire(now_ms=10_000, expiration_ms=1)
    producers.rollback(savepoint)
    producers.check_invariants()
    after = sorted(producers), producers.ongoing_transactions, producers.unreplicated_transactions
    assert after == before


def test_rollback_to_an_inner_savepoint_keeps_what_came_before_it(partition):
    producers = partition.producers
    outer = producers.savepoint()
    partition.produce(sequence=0)
    inner = producers.savepoint()
    partition.produce(sequence=1)
    producers.rollback(inner)
    assert producers.get(1).last_sequence == 0
    producers.rollback(outer)
    assert producers.is_empty


def test_release_makes_changes_final_and_stops_recording(partition):
    producers = partition.producers
    producers.savepoint()
    partition.produce(sequence=0)
    producers.release()
    partition.produce(sequence=1)
    producers.check_invariants()
    assert producers.get(1).last_sequence == 1


def test_clear_and_load_replace_everything(partition):
    partition.produce(sequence=0, transactional=True)
    partition.producers.savepoint()
    partition.producers.clear()
    assert partition.producers.is_empty
    loaded = ProducerState(9, 1, 0, 500, 40, (ProducedBatch(7, 41, 1, 500),))
    partition.producers.load([loaded])
    partition.producers.check_invariants()
    assert list(partition.producers) == [loaded]
    assert partition.producers.first_unstable_offset == 40
