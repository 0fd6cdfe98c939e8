"""What a log must hold, worked out the slow way: from the list of all batches that were ever written to it.

The model keeps whole batches with their final bytes and derives every answer anew, so that it shares no state with the
log. Where the log may forget (a snapshot keeps one batch of each producer, a replay begins at the first record that is
left), the comparison says what it allows.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.records.batch import LOG_APPEND_TIME, BatchHeader, Codec, assign, read_header, split_batches
from barnabas.records.builder import BatchBuilder
from barnabas.records.checksum import rewrite
from barnabas.records.control import EndTransactionMarker, build_marker, read_batch_marker
from barnabas.records.reader import read_records
from barnabas.storage.log.epochs import EpochEntry
from barnabas.storage.log.log import Log
from barnabas.storage.producers.producer_state import ProducedBatch, ProducerState
from barnabas.storage.segment.timestamp_lookup import FoundTimestamp
from barnabas.storage.segment.transaction_index import AbortedTransaction


class ModelBatch(NamedTuple):
    """A batch as it must stand in the file."""

    header: BatchHeader
    content: bytes

    @property
    def next_offset(self) -> int:
        return self.header.next_offset


class Transaction(NamedTuple):
    first_offset: int
    marker_offset: int
    aborted: AbortedTransaction | None


def stored(batch: bytes | bytearray, base_offset: int, leader_epoch: int, append_time_ms: int | None) -> ModelBatch:
    """What the log makes of a batch that it accepts."""
    content = bytearray(batch)
    assign(read_header(content), memoryview(content), base_offset, leader_epoch)
    if append_time_ms is not None:
        rewrite(memoryview(content), read_header(content).attributes | LOG_APPEND_TIME, append_time_ms)
    return ModelBatch(read_header(content), bytes(content))


def data_batch(
    timestamps: Sequence[int],
    value_bytes: int,
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    builder = BatchBuilder(
        codec=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    for timestamp in timestamps:
        builder.append(timestamp, b"key", bytes(value_bytes))
    return builder.build()


def marker_batch(producer_id: int, producer_epoch: int, timestamp: int, *, is_commit: bool) -> bytearray:
    return build_marker(
        EndTransactionMarker(is_commit, 0), producer_id=producer_id, producer_epoch=producer_epoch, timestamp=timestamp
    )


# -- what follows from the batches -----------------------------------------------------------------------------------


def producers_of(batches: Iterable[ModelBatch]) -> dict[int, ProducerState]:
    states: dict[int, ProducerState] = {}
    for header, content in batches:
        if not header.has_producer:
            continue
        old = states.get(header.producer_id, ProducerState(header.producer_id, header.producer_epoch))
        remembered = old.batches if old.epoch == header.producer_epoch else ()
        if marker := read_batch_marker(content):
            new = old._replace(transaction_first_offset=None, coordinator_epoch=marker.coordinator_epoch)
        else:
            first_offset = old.transaction_first_offset
            if first_offset is None and header.is_transactional:
                first_offset = header.base_offset
            produced = ProducedBatch(
                header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
            )
            remembered = (*remembered, produced)[-5:]
            new = old._replace(transaction_first_offset=first_offset)
        states[header.producer_id] = new._replace(
            epoch=header.producer_epoch, last_timestamp=header.max_timestamp, batches=remembered
        )
    return states


def transactions_of(batches: Iterable[ModelBatch]) -> tuple[list[Transaction], dict[int, int]]:
    """The completed transactions in the order of their markers, and the first offsets of the open ones."""
    completed: list[Transaction] = []
    ongoing: dict[int, int] = {}
    for header, content in batches:
        if not header.has_producer:
            continue
        marker = read_batch_marker(content)
        if marker is None:
            if header.is_transactional:
                ongoing.setdefault(header.producer_id, header.base_offset)
            continue
        first_offset = ongoing.pop(header.producer_id, None)
        if first_offset is None:
            continue
        stable = min(ongoing.values(), default=header.base_offset + 1)
        aborted = AbortedTransaction(header.producer_id, first_offset, header.base_offset, stable)
        completed.append(Transaction(first_offset, header.base_offset, None if marker.is_commit else aborted))
    return completed, ongoing


def last_stable_of(batches: Sequence[ModelBatch], high_watermark: int, forgotten_below: int) -> tuple[int, int]:
    """The last stable offset: the smallest and the largest that it may be.

    They differ by the transactions that ended below `forgotten_below`, which a reopened log may know or not.
    """
    completed, ongoing = transactions_of(batches)
    unreplicated = [transaction for transaction in completed if transaction.marker_offset >= high_watermark]
    known = [transaction.first_offset for transaction in unreplicated]
    surely = [transaction.first_offset for transaction in unreplicated if transaction.marker_offset >= forgotten_below]
    return (
        min([*ongoing.values(), *known, high_watermark]),
        min([*ongoing.values(), *surely, high_watermark]),
    )


def epochs_of(batches: Iterable[ModelBatch], start_offset: int) -> list[EpochEntry]:
    """Where the leader epochs of the records from `start_offset` on begin."""
    entries: list[EpochEntry] = []
    for header, _ in batches:
        if header.next_offset > start_offset and (not entries or entries[-1].epoch != header.leader_epoch):
            entries.append(EpochEntry(header.leader_epoch, max(header.base_offset, start_offset)))
    return entries


def first_at_or_after(batches: Iterable[ModelBatch], target: int, start_offset: int) -> FoundTimestamp | None:
    for header, content in batches:
        for record in read_records(content):
            if record.timestamp >= target and record.offset >= start_offset:
                return FoundTimestamp(record.timestamp, record.offset, header.leader_epoch)
    return None


def producer_agrees(found: ProducerState, expected: ProducerState) -> bool:
    """A producer that was loaded from a snapshot remembers its last batch only, with the producer's timestamp."""
    if found._replace(batches=()) != expected._replace(batches=()):
        return False
    if not found.batches or not expected.batches:
        return len(found.batches) == len(expected.batches)
    count = len(found.batches)
    return [batch[:3] for batch in found.batches] == [batch[:3] for batch in expected.batches[-count:]]


def read_all(log: Log) -> list[ModelBatch]:
    """Every batch that a reader can get, by reading until nothing comes."""
    batches: list[ModelBatch] = []
    offset = log.log_start_offset
    while taken := log.read(offset, 1 << 20).slice:
        content = taken.read()
        taken.release()
        batches += [ModelBatch(header, bytes(batch)) for header, batch in split_batches(content)]
        offset = batches[-1].next_offset
    return batches


def check_indexes(log: Log, batches: Sequence[ModelBatch]) -> None:
    """Every entry leads to a batch that is there, and the largest timestamp of each segment is known."""
    bases = [segment.base_offset for segment in log.segments]
    for segment, end in zip(log.segments, [*bases[1:], log.end_offset], strict=True):
        inside = [batch.header for batch in batches if segment.base_offset <= batch.header.base_offset < end]
        ends = {header.last_offset: header for header in inside}
        for offset, position in segment.offset_index:
            assert segment.header_at(position) == ends[offset]
        for timestamp, offset in segment.time_index:
            assert ends[offset].max_timestamp == timestamp
            assert all(header.max_timestamp <= timestamp for header in inside if header.last_offset < offset)
        assert segment.largest.timestamp == max((header.max_timestamp for header in inside), default=-1)
