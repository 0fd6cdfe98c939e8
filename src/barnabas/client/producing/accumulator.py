"""The records that a producer has not sent yet, in batches by partition. Pure: time comes as an argument.

```
append ──▶ open batch ──full, or a newer one is opened──▶ closed batches ──ready──▶ in flight ──finish──▶ gone
                     └────── old enough, or flushed ────────────────────────────▶  ▲      │
                                                                                   └─ put_back
```

Invariants: the batches of a partition leave in the order of their records, and only the oldest may be in flight. So a
batch that is sent again can never overtake another, and an idempotent producer has one unconfirmed batch a partition.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.base.ids import NO_PRODUCER, NO_SEQUENCE, Offset, TimestampMs, TopicPartition
from barnabas.client.producing.delivery_status import Problem
from barnabas.client.reading.column_builder import ColumnBuilder
from barnabas.client.reading.column_rows import ColumnRows
from barnabas.records.batch import HEADER_BYTES
from barnabas.wire.errors import KafkaError


class BatchOutcome(NamedTuple):
    """What became of a batch: where it is in the log, or why it is not."""

    base_offset: Offset
    """-1 when the broker did not tell: with acks=0, or when it had the batch already."""
    append_time_ms: TimestampMs
    """When the topic has the broker's time; else -1."""
    error: KafkaError | None


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER, -1)


@dataclass(slots=True, eq=False)
class PendingBatch:
    partition: TopicPartition
    outcome: "asyncio.Future[BatchOutcome]"
    opened_at: float
    contents: ColumnBuilder | ColumnRows = field(default_factory=ColumnBuilder)
    """Rows of columns came as a whole: such a batch takes no other records and waits for none."""
    size_bytes: int = HEADER_BYTES
    """At most, before compression."""
    encoded: bytearray | None = None
    """What is sent, the same bytes each time: a broker knows a batch again by its sequence."""
    identity: ProducerIdentity = NO_IDENTITY
    base_sequence: int = NO_SEQUENCE
    tries: int = 0
    not_before: float = 0.0
    problem: Problem | None = None
    """Of the last try that failed."""


class Appended(NamedTuple):
    batch: PendingBatch
    row: int
    """Of the record in its batch."""
    is_new_batch: bool
    is_full: bool
    """The batch takes no more such records."""


@dataclass(slots=True)
class _Queue:
    batches: deque[PendingBatch] = field(default_factory=deque)
    is_in_flight: bool = False
    """The first one."""


class Accumulator:
    def __init__(
        self, batch_bytes_max: int, linger_seconds: float, new_outcome: "Callable[[], asyncio.Future[BatchOutcome]]"
    ) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._linger_seconds = linger_seconds
        self._new_outcome = new_outcome
        self._queues: dict[TopicPartition, _Queue] = {}
        self.size_bytes = 0
        """Of everything that has not been finished."""

    def append(
        self,
        partition: TopicPartition,
        timestamp_ms: TimestampMs,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
        record_bytes: int,
        now: float,
    ) -> Appended:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue()
        batch = self._open_batch(queue, record_bytes)
        is_new = batch is None
        if batch is None:
            batch = PendingBatch(partition, self._new_outcome(), now)
            queue.batches.append(batch)
        assert isinstance(batch.contents, ColumnBuilder), "a batch of whole columns is never open"
        row = batch.contents.append(timestamp_ms, key, value, headers)
        batch.size_bytes += record_bytes
        self.size_bytes += record_bytes
        return Appended(batch, row, is_new, batch.size_bytes + record_bytes > self._batch_bytes_max)

    def append_rows(self, partition: TopicPartition, rows: ColumnRows, now: float) -> PendingBatch:
        """A batch of its own, after all others of the partition."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue()
        batch = self._batch_of(partition, rows, self._new_outcome(), now)
        queue.batches.append(batch)
        self.size_bytes += batch.size_bytes - HEADER_BYTES
        return batch

    def _batch_of(
        self, partition: TopicPartition, rows: ColumnRows, outcome: "asyncio.Future[BatchOutcome]", now: float
    ) -> PendingBatch:
        return PendingBatch(partition, outcome, now, rows, HEADER_BYTES + len(rows.section().records))

    def _open_batch(self, queue: _Queue, record_bytes: int) -> PendingBatch | None:
        if not queue.batches or (queue.is_in_flight and len(queue.batches) == 1):
            return None
        batch = queue.batches[-1]
        is_open = batch.encoded is None and isinstance(batch.contents, ColumnBuilder)
        has_room = is_open and batch.size_bytes + record_bytes <= self._batch_bytes_max
        return batch if has_room else None

    def ready(self, now: float, *, is_urgent: bool) -> Iterator[PendingBatch]:
        """The batches that may go now. Urgent: without waiting for more records."""
        for queue in self._queues.values():
            if not queue.batches or queue.is_in_flight:
                continue
            first = queue.batches[0]
            if now >= first.not_before and (is_urgent or now >= self._due_at(queue)):
                yield first

    def next_ready_at(self, *, is_urgent: bool) -> float | None:
        """When the next one is ready by itself; None when nothing waits for time to pass."""
        times = [
            max(queue.batches[0].not_before, 0.0 if is_urgent else self._due_at(queue))
            for queue in self._queues.values()
            if queue.batches and not queue.is_in_flight
        ]
        return min(times, default=None)

    def _due_at(self, queue: _Queue) -> float:
        first = queue.batches[0]
        is_closed = (
            len(queue.batches) > 1
            or first.encoded is not None
            or first.size_bytes >= self._batch_bytes_max
            or isinstance(first.contents, ColumnRows)
        )
        return 0.0 if is_closed else first.opened_at + self._linger_seconds

    def take(self, batch: PendingBatch) -> None:
        """It is being sent."""
        queue = self._queues[batch.partition]
        assert not queue.is_in_flight, f"two batches of {batch.partition} in flight"
        assert queue.batches[0] is batch, f"a batch of {batch.partition} out of turn"
        queue.is_in_flight = True

    def put_back(self, batch: PendingBatch, not_before: float, problem: Problem) -> None:
        """It must be sent again, not before some time, because of a problem."""
        queue = self._queues[batch.partition]
        assert queue.is_in_flight, "only what was sent is put back"
        queue.is_in_flight = False
        batch.not_before = not_before
        batch.problem = problem
        batch.tries += 1

    def part(self, batch: PendingBatch, parts: Iterable[ColumnRows]) -> None:
        """Replaces a batch that was sent with smaller ones; the last of them carries its outcome."""
        self.finish(batch)
        queue = self._queues.setdefault(batch.partition, _Queue())
        smaller = [self._batch_of(batch.partition, rows, self._new_outcome(), batch.opened_at) for rows in parts]
        smaller[-1].outcome = batch.outcome
        queue.batches.extendleft(reversed(smaller))
        self.size_bytes += sum(one.size_bytes - HEADER_BYTES for one in smaller)

    def finish(self, batch: PendingBatch) -> None:
        queue = self._queues[batch.partition]
        assert queue.is_in_flight, "only what was sent is finished"
        assert queue.batches[0] is batch, "only the oldest is in flight"
        queue.batches.popleft()
        queue.is_in_flight = False
        self.size_bytes -= batch.size_bytes - HEADER_BYTES
        if not queue.batches:
            del self._queues[batch.partition]

    def oldest(self) -> list[PendingBatch]:
        """The first one of each partition, which the others wait for."""
        return [queue.batches[0] for queue in self._queues.values()]

    def batches(self) -> list[PendingBatch]:
        """All that have not been finished."""
        return [batch for queue in self._queues.values() for batch in queue.batches]

    def check_invariants(self) -> None:
        counted = sum(batch.size_bytes - HEADER_BYTES for batch in self.batches())
        assert counted == self.size_bytes, f"{counted} bytes are there, {self.size_bytes} were counted"
        for partition, queue in self._queues.items():
            assert queue.batches, f"{partition} has an empty queue"
            assert all(batch.encoded is None for batch in list(queue.batches)[1:]), "only the oldest is encoded"
