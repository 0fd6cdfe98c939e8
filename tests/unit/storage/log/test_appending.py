"""Appends to a log: what the leader assigns and refuses, and what a follower takes over byte for byte."""

import pytest

from barnabas.base.errors import CorruptBatch, InvalidRecords
from barnabas.records.batch import Codec
from barnabas.storage.log.epochs import EpochEntry
from barnabas.storage.log.staging import Appended
from barnabas.storage.producers.producer_state import Origin
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.log_model import data_batch, marker_batch, read_all
from tests.support.simulated_log import SimulatedLog, code_of

# -- appending -------------------------------------------------------------------------------------------------------


def test_append_assigns_offsets_and_epoch_and_shows_nothing_before_write(orders: SimulatedLog) -> None:
    log = orders.log
    assert orders.append(3, epoch=4, is_written=False) == Appended(0, 2, -1)
    assert orders.append(2, epoch=4, is_written=False) == Appended(3, 4, -1)
    assert (log.end_offset, log.staged_end_offset, log.size_bytes) == (0, 5, 0)
    assert read_all(log) == []
    log.write()
    assert (log.end_offset, log.staged_end_offset) == (5, 5)
    assert [(batch.header.base_offset, batch.header.leader_epoch) for batch in read_all(log)] == [(0, 4), (3, 4)]
    log.check_invariants()


def test_staged_batches_reach_the_disk_in_one_write(orders: SimulatedLog) -> None:
    for _ in range(5):
        orders.append(is_written=False)
    calls: list[str] = []
    orders.disk.before_call = lambda operation, _: calls.append(operation)
    orders.log.write()
    assert calls.count("write") == 1


def test_append_with_log_append_time_says_when(orders: SimulatedLog) -> None:
    orders.configure(message_timestamp_type="LogAppendTime")
    assert orders.append(timestamp=5).append_time_ms == orders.clock.now_ms()


def test_append_of_nothing_is_invalid(orders: SimulatedLog) -> None:
    with pytest.raises(InvalidRecords):
        orders.log.append(b"", 0)


def test_append_of_two_batches_by_a_client_is_invalid(orders: SimulatedLog) -> None:
    with pytest.raises(InvalidRecords):
        orders.log.append(data_batch([1], 1) + data_batch([1], 1), 0)


def test_append_of_two_batches_by_the_coordinator_is_one_append(orders: SimulatedLog) -> None:
    markers = marker_batch(1, 0, 5, is_commit=True) + marker_batch(2, 0, 5, is_commit=True)
    assert orders.log.append(markers, 0, Origin.COORDINATOR) == Appended(0, 1, -1)


def test_append_of_a_torn_batch_is_corrupt(orders: SimulatedLog) -> None:
    with pytest.raises(CorruptBatch):
        orders.log.append(data_batch([1], 10)[:-1], 0)
    assert orders.log.staged_end_offset == 0


def test_append_larger_than_a_segment_is_refused(small: SimulatedLog) -> None:
    with pytest.raises(KafkaError) as raised:
        small.append(value_bytes=400)
    assert code_of(raised) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_retry_is_answered_with_its_first_place(orders: SimulatedLog) -> None:
    orders.produce(0, 3)
    orders.append()
    assert orders.produce(0, 3, is_written=False) == Appended(0, 2, orders.clock.now_ms(), is_duplicate=True)
    assert orders.log.staged_end_offset == 4


def test_retry_of_a_staged_batch_is_a_duplicate(orders: SimulatedLog) -> None:
    orders.produce(0, is_written=False)
    assert orders.produce(0, is_written=False).is_duplicate
    orders.log.write()
    assert orders.log.end_offset == 1


def test_gap_in_the_sequence_is_refused_without_a_trace(orders: SimulatedLog) -> None:
    orders.produce(0)
    with pytest.raises(KafkaError) as raised:
        orders.produce(2)
    assert code_of(raised) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert orders.log.staged_end_offset == 1
    orders.log.check_invariants()


def test_old_producer_epoch_is_fenced(orders: SimulatedLog) -> None:
    orders.append(producer_id=7, producer_epoch=3, base_sequence=0)
    with pytest.raises(KafkaError) as raised:
        orders.append(producer_id=7, producer_epoch=2, base_sequence=1)
    assert code_of(raised) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_of_an_old_coordinator_is_fenced(orders: SimulatedLog) -> None:
    orders.append(producer_id=7, producer_epoch=3, base_sequence=0)
    with pytest.raises(KafkaError) as raised:
        orders.end_transaction(7)
    assert code_of(raised) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("codec", list(Codec))
def test_append_of_every_codec_is_read_back(orders: SimulatedLog, codec: Codec) -> None:
    orders.append(5, value_bytes=200, codec=codec)
    (batch,) = read_all(orders.log)
    assert batch.header.codec_number == codec


# -- as a follower ---------------------------------------------------------------------------------------------------


def test_follower_keeps_the_leaders_bytes(orders: SimulatedLog) -> None:
    records = data_batch([5], 9, base_offset=3, leader_epoch=8) + data_batch([6], 9, base_offset=10, leader_epoch=9)
    orders.log.append_as_follower(bytes(records))
    orders.log.write()
    assert b"".join(batch.content for batch in read_all(orders.log)) == records
    assert orders.log.end_offset == 11
    assert orders.log.epochs.entries == (EpochEntry(8, 3), EpochEntry(9, 10))


def test_follower_refuses_offsets_that_it_has(orders: SimulatedLog) -> None:
    orders.append(3)
    with pytest.raises(InvalidRecords, match="ends at 3"):
        orders.log.append_as_follower(data_batch([5], 9, base_offset=2))


@pytest.mark.parametrize("tail_bytes", [1, 11, 12, 60, 61, 70])
def test_follower_leaves_out_the_beginning_of_one_more_batch(orders: SimulatedLog, tail_bytes: int) -> None:
    """A leader sends as many bytes as the follower asks for, and does not look where batches end."""
    records = bytes(data_batch([5, 6], 9)) + bytes(data_batch([7], 9, base_offset=2))[:tail_bytes]
    orders.log.append_as_follower(records)
    orders.log.write()
    assert orders.log.end_offset == 2


@pytest.mark.parametrize("damage", [lambda batch: batch[:-1], lambda batch: batch[:-1] + b"\xff"])
def test_follower_refuses_damaged_batches(orders: SimulatedLog, damage: object) -> None:
    with pytest.raises(InvalidRecords):
        orders.log.append_as_follower(damage(bytes(data_batch([5], 9))))  # type: ignore[operator]
    assert orders.log.staged_end_offset == 0


def test_follower_rolls_like_a_leader(small: SimulatedLog) -> None:
    records = b"".join(data_batch([5], 60, base_offset=offset) for offset in range(6))
    small.log.append_as_follower(records)
    small.log.write()
    assert small.bases == [0, 2, 4]
