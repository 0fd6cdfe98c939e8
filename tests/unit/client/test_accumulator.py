"""Batches by partition: when they are ready, and in which order they go."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.client.producing.accumulator import Accumulator, Appended, PendingBatch
from barnabas.client.reading.column_builder import ColumnBuilder, record_bytes_max
from barnabas.records.batch import Codec
from barnabas.records.columns import encode_batches
from barnabas.records.reader import read_records
from barnabas.wire.errors import ErrorCode, KafkaError

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)
LOOP = asyncio.new_event_loop()
LOOP.close()
REFUSED = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)


def _accumulator(batch_bytes_max: int = 1000, linger_seconds: float = 0.5) -> Accumulator:
    return Accumulator(batch_bytes_max, linger_seconds, lambda: asyncio.Future(loop=LOOP))


def _append(accumulator: Accumulator, partition: TopicPartition, value: bytes, now: float = 0.0) -> Appended:
    size = record_bytes_max(None, value, ())
    return accumulator.append(partition, 0, None, value, (), size, now)


def _ready(accumulator: Accumulator, now: float, is_urgent: bool = False) -> list[PendingBatch]:
    return list(accumulator.ready(now, is_urgent=is_urgent))


def test_batch_waits_for_more_records_until_it_lingered_long_enough() -> None:
    accumulator = _accumulator(linger_seconds=0.5)
    appended = _append(accumulator, A, b"x", now=10.0)
    assert appended.is_new_batch
    assert not _append(accumulator, A, b"y", now=10.1).is_new_batch
    assert _ready(accumulator, 10.4) == []
    assert accumulator.next_ready_at(is_urgent=False) == 10.5
    assert _ready(accumulator, 10.5) == [appended.batch]
    assert _ready(accumulator, 10.0, is_urgent=True) == [appended.batch]


def test_full_batch_does_not_wait() -> None:
    accumulator = _accumulator(batch_bytes_max=200, linger_seconds=100)
    first = _append(accumulator, A, b"x" * 100)
    assert first.is_full
    assert _append(accumulator, A, b"y" * 100).is_new_batch
    assert _ready(accumulator, 0.0) == [first.batch]


def test_record_larger_than_a_batch_gets_its_own() -> None:
    accumulator = _accumulator(batch_bytes_max=100)
    _append(accumulator, A, b"x")
    large = _append(accumulator, A, b"y" * 1000)
    assert large.is_new_batch
    assert large.row == 0


def test_second_batch_of_a_partition_waits_for_the_first() -> None:
    accumulator = _accumulator(linger_seconds=0)
    first = _append(accumulator, A, b"x").batch
    accumulator.take(first)
    second = _append(accumulator, A, b"y")
    assert second.is_new_batch, "what is on its way takes no more records"
    other = _append(accumulator, B, b"z").batch
    assert _ready(accumulator, 1.0) == [other]
    accumulator.put_back(first, 5.0, REFUSED)
    assert _ready(accumulator, 1.0) == [other]
    assert _ready(accumulator, 5.0) == [first, other]
    accumulator.take(first)
    accumulator.finish(first)
    assert _ready(accumulator, 5.0) == [second.batch, other]
    accumulator.check_invariants()


@given(st.lists(st.tuples(st.sampled_from("aftpx"), st.integers(0, 2), st.binary(max_size=60)), max_size=60))
def test_batches_of_a_partition_leave_in_order_whatever_happens(steps: list[tuple[str, int, bytes]]) -> None:
    accumulator = _accumulator(batch_bytes_max=250, linger_seconds=0)
    appended: dict[TopicPartition, list[PendingBatch]] = {}
    finished: dict[TopicPartition, list[PendingBatch]] = {}
    in_flight: list[PendingBatch] = []
    for step, index, value in steps:
        partition = TopicPartition("orders", index)
        if step in "ax":
            batch = _append(accumulator, partition, value).batch
            if batch not in appended.setdefault(partition, []):
                appended[partition].append(batch)
        elif step == "t":
            for batch in _ready(accumulator, 1.0):
                accumulator.take(batch)
                in_flight.append(batch)
        elif in_flight:
            batch = in_flight.pop(index % len(in_flight))
            if step == "f":
                accumulator.finish(batch)
                finished.setdefault(batch.partition, []).append(batch)
            else:
                accumulator.put_back(batch, 0.0, REFUSED)
        accumulator.check_invariants()
    for partition, batches in finished.items():
        assert appended[partition][: len(batches)] == batches


RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**45),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=20),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


@given(RECORDS)
def test_columns_encode_to_the_records_that_were_appended_within_the_counted_size(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    builder = ColumnBuilder()
    counted_bytes = 61
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
        counted_bytes += record_bytes_max(key, value, headers)
    (batch,) = encode_batches(builder.finish(), codec=Codec.NONE, max_batch_bytes=2**31 - 1)
    decoded = [
        (one.timestamp, one.key, one.value, [tuple(header) for header in one.headers]) for one in read_records(batch)
    ]
    assert decoded == records
    assert len(batch) <= counted_bytes
