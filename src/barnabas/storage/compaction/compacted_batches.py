"""What compaction leaves of a batch.

| batch                                          | what is left                                                     |
|------------------------------------------------|------------------------------------------------------------------|
| of an aborted transaction                      | nothing                                                          |
| beyond what the key map covers                 | all of it                                                        |
| data that expands to more than a batch may     | all of it; an older version took it, and nobody knows its keys   |
| data                                           | the records that are the newest of their key                     |
| data, of which a tombstone is left             | the same, with a delete horizon: now + `delete.retention.ms`     |
| data, its delete horizon has passed            | the newest records that are no tombstones                        |
| marker of a transaction that still has a batch | all of it                                                        |
| marker of a transaction that has none          | gets a delete horizon first, and is gone when that has passed    |

A batch of which nothing is left vanishes, unless it is the last of a known producer (the sequence that comes next must
survive), or the last of the segment that is being written (it tells how far that one reaches): then it stays as a
header without records. Offsets, sequences, leader epoch and producer stay as they were, so the deltas in a batch now
have gaps. After a batch with unknown keys every tombstone stays: it might hide a record in that batch.

Pure: no I/O, no clock.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from barnabas.base.buffers import Buffer
from barnabas.base.errors import ExpandsTooFar
from barnabas.base.ids import NO_TIMESTAMP, Offset, ProducerEpoch, ProducerId, TimestampMs
from barnabas.base.settings import LONG_MAX
from barnabas.records import kernel
from barnabas.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
    read_header,
)
from barnabas.records.checksum import with_records
from barnabas.records.compression import compress, expanded_records
from barnabas.records.control import EndTransactionMarker, read_batch_marker
from barnabas.records.kernel import FilteredRecords, KeyOffsets
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.segment.transaction_index import AbortedTransaction

_EMPTY_MAP_BYTES = 64


class ProducerTail(NamedTuple):
    """The batch that carries the newest sequence of a producer; without one, a marker of its epoch does."""

    epoch: ProducerEpoch
    last_offset: Offset | None

    @classmethod
    def of(cls, state: ProducerState) -> "ProducerTail":
        return cls(state.epoch, state.batches[-1].last_offset if state.batches else None)

    def is_batch(self, header: BatchHeader) -> bool:
        if self.last_offset is not None:
            return header.last_offset == self.last_offset
        return header.is_control and header.producer_epoch == self.epoch


class _Ongoing:
    """An aborted transaction between its first offset and its marker."""

    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class MarkerFate(NamedTuple):
    is_removable: bool
    aborted: AbortedTransaction | None
    """The transaction that the index of the new segment must go on naming."""


class CleanedTransactions:
    """Follows the transactions while batches are read in the order of their offsets.

    Aborted ones are announced by `announce`, before the first batch of theirs is read; saying so twice is fine.
    """

    __slots__ = ("_announced", "_ongoing_aborted", "_ongoing_committed")

    def __init__(self) -> None:
        self._announced: list[tuple[Offset, AbortedTransaction]] = []
        self._ongoing_aborted: dict[ProducerId, _Ongoing] = {}
        self._ongoing_committed: set[ProducerId] = set()

    def announce(self, aborted: Iterable[AbortedTransaction]) -> None:
        for transaction in aborted:
            heapq.heappush(self._announced, (transaction.first_offset, transaction))

    def observe_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        ongoing = self._ongoing_aborted.get(header.producer_id)
        if ongoing is None:
            self._ongoing_committed.add(header.producer_id)
            return False
        ongoing.has_batches = True
        return True

    def observe_marker(self, header: BatchHeader, marker: EndTransactionMarker | None) -> MarkerFate:
        """A marker may go once no batch of its transaction is left. One that is no marker is an emptied one."""
        self._begin_up_to(header.last_offset)
        if marker is None:
            return MarkerFate(is_removable=True, aborted=None)
        if marker.is_commit:
            has_batches = header.producer_id in self._ongoing_committed
            self._ongoing_committed.discard(header.producer_id)
            return MarkerFate(is_removable=not has_batches, aborted=None)
        ongoing = self._ongoing_aborted.pop(header.producer_id, None)
        if ongoing is None or not ongoing.has_batches:
            return MarkerFate(is_removable=True, aborted=None)
        return MarkerFate(is_removable=False, aborted=ongoing.transaction)

    def _begin_up_to(self, offset: Offset) -> None:
        while self._announced and self._announced[0][0] <= offset:
            _, transaction = heapq.heappop(self._announced)
            self._ongoing_aborted.setdefault(transaction.producer_id, _Ongoing(transaction))


class CleanedBatch(NamedTuple):
    """What is left of a batch, on its way into the new segment."""

    header: BatchHeader
    batch: Buffer
    aborted: AbortedTransaction | None = None


class BatchCleaner:
    """Takes the batches of a log in order, from its first segment on."""

    __slots__ = (
        "_compression_level",
        "_latest_offset",
        "_newest",
        "_nothing_newer",
        "_tails",
        "_transactions",
        "delete_retention_ms",
        "first_unread_offset",
        "now_ms",
        "unread_count",
    )

    def __init__(
        self,
        newest: KeyOffsets,
        latest_offset: Offset,
        transactions: CleanedTransactions,
        tails: Mapping[ProducerId, ProducerTail],
        *,
        now_ms: TimestampMs,
        delete_retention_ms: int,
        compression_level: Callable[[Codec], int | None],
    ) -> None:
        """`newest` knows the keys of the records up to `latest_offset`."""
        self._newest = newest
        self._latest_offset = latest_offset
        self._transactions = transactions
        self._tails = tails
        self._nothing_newer = KeyOffsets(_EMPTY_MAP_BYTES, bytes(16))
        self._compression_level = compression_level
        self.now_ms = now_ms
        self.delete_retention_ms = delete_retention_ms
        self.unread_count = 0
        """Batches that were kept because they expand too far."""
        self.first_unread_offset: Offset | None = None

    def clean(self, header: BatchHeader, batch: memoryview, *, is_last: bool) -> CleanedBatch | None:
        """None when the batch vanishes; with `is_last` it never does."""
        if header.is_control:
            cleaned = self._clean_control(header, batch)
        elif self._transactions.observe_data(header):
            cleaned = None
        elif header.base_offset > self._latest_offset:
            cleaned = CleanedBatch(header, batch)
        else:
            try:
                cleaned = self._clean_data(header, batch)
            except ExpandsTooFar:
                cleaned = self._keep_unread(header, batch)
        if cleaned is None and (is_last or self._is_tail(header)):
            return _emptied(header)
        return cleaned

    def _keep_unread(self, header: BatchHeader, batch: memoryview) -> CleanedBatch:
        if not self.unread_count:
            self.first_unread_offset = header.base_offset
        self.unread_count += 1
        return CleanedBatch(header, batch)

    def _is_tail(self, header: BatchHeader) -> bool:
        tail = self._tails.get(header.producer_id) if header.has_producer else None
        return tail is not None and tail.is_batch(header)

    def _clean_control(self, header: BatchHeader, batch: memoryview) -> CleanedBatch | None:
        marker = read_batch_marker(batch)
        if marker is None and header.count:
            return CleanedBatch(header, batch)  # a control record that ends no transaction is not ours to judge
        fate = self._transactions.observe_marker(header, marker)
        if not fate.is_removable:
            return CleanedBatch(header, batch, fate.aborted)
        if not header.count:
            return None
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is not None:
            return CleanedBatch(header, batch) if self.now_ms < horizon_ms else None
        return self._rebuilt(header, expanded_records(header, batch), self._nothing_newer, self._new_horizon_ms)

    def _clean_data(self, header: BatchHeader, batch: memoryview) -> CleanedBatch | None:
        if not header.count:
            return None
        # The map may end within the batch. Of a tombstone that it does not cover an older record may still be there,
        # so such a one neither goes nor begins to wait.
        is_covered = header.last_offset <= self._latest_offset
        horizon_ms = header.delete_horizon_ms
        records = expanded_records(header, batch)
        is_due = is_covered and horizon_ms is not None and horizon_ms <= self.now_ms
        filtered = kernel.filter_records(
            records,
            header.count,
            header.base_offset,
            header.base_timestamp,
            self._newest,
            drop_tombstones=is_due and not self.unread_count,
            new_base_timestamp=header.base_timestamp,
        )
        if not filtered.count:
            return None
        if filtered.has_tombstones and horizon_ms is None and is_covered:
            return self._rebuilt(header, records, self._newest, self._new_horizon_ms)
        if filtered.records is None:
            return CleanedBatch(header, batch)
        return self._with_records(header, filtered, filtered.records)

    @property
    def _new_horizon_ms(self) -> TimestampMs:
        return min(self.now_ms + self.delete_retention_ms, LONG_MAX)

    def _rebuilt(self, header: BatchHeader, records: Buffer, newest: KeyOffsets, horizon_ms: int) -> CleanedBatch:
        """The survivors with a delete horizon, which takes the place of the base timestamp."""
        filtered = kernel.filter_records(
            records,
            header.count,
            header.base_offset,
            header.base_timestamp,
            newest,
            drop_tombstones=False,
            new_base_timestamp=horizon_ms,
        )
        survivors = records if filtered.records is None else filtered.records
        waiting = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon_ms)
        return self._with_records(waiting, filtered, survivors)

    def _with_records(self, header: BatchHeader, filtered: FilteredRecords, survivors: Buffer) -> CleanedBatch:
        codec = Codec(header.codec_number)
        batch = with_records(
            header._replace(
                count=filtered.count,
                max_timestamp=header.max_timestamp if header.is_log_append_time else filtered.max_timestamp,
            ),
            compress(codec, survivors, self._compression_level(codec)) if codec is not Codec.NONE else survivors,
        )
        return CleanedBatch(read_header(batch), batch)


def _emptied(header: BatchHeader) -> CleanedBatch:
    """The header without records. It has no codec, because Kafka cannot decompress nothing."""
    kept_attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    batch = with_records(header._replace(attributes=kept_attributes, base_timestamp=NO_TIMESTAMP, count=0), b"")
    return CleanedBatch(read_header(batch), batch)
