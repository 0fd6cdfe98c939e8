"""What is remembered of one producer, and the rules by which its next batch or marker is judged.

Pure: no I/O, no clock. The rules are Apache Kafka's, with its error codes:

- Sequences. A producer numbers its records 0, 1, 2, ... (wrapping from 2^31 - 1 to 0) in each partition and
  epoch. The last five batches are remembered, because a client may have five requests in flight: a batch
  whose epoch and sequence range equal one of them is a retry. Anything else must continue where the newest
  batch ended, or start a higher epoch at 0.
- Epochs. A batch or marker of a lower epoch comes from a producer that another one has replaced.
- Transactions. From the first transactional batch to the marker, all batches of a producer are transactional.

`producers` has the table of all producers of a partition.
"""

from enum import Enum
from typing import Final, NamedTuple

from barnabas.base.ids import (
    NO_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from barnabas.records.batch import SEQUENCE_MAX, BatchHeader, advance_sequence
from barnabas.wire.errors import ErrorCode, KafkaError

BATCHES_REMEMBERED: Final = 5
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
EPOCH_BUMPING_TRANSACTION_VERSION: Final = 2
"""From this `transaction.version` on, a marker carries the producer's next epoch, not the current one."""


class Origin(Enum):
    """Who appends. Only a leader refuses: what a follower is sent, its leader has already accepted."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class ProducedBatch(NamedTuple):
    """One of the last batches of a producer, as much of it as recognises a retry."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: TimestampMs

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def base_offset(self) -> Offset:
        return self.last_offset - self.offset_delta


class ProducerState(NamedTuple):
    """Everything known of one producer. A plain tuple, because every append makes a new one."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    coordinator_epoch: int = NO_EPOCH
    last_timestamp: TimestampMs = NO_TIMESTAMP
    transaction_first_offset: Offset | None = None
    batches: tuple[ProducedBatch, ...] = ()

    @property
    def last_sequence(self) -> int:
        """Of the newest batch in this epoch, or `NO_SEQUENCE` when there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class Duplicate(NamedTuple):
    """A retried batch that the log already has, and where."""

    base_offset: Offset
    last_offset: Offset
    timestamp: TimestampMs


def check_batch(state: ProducerState, header: BatchHeader, origin: Origin) -> Duplicate | None:
    """Whether this data batch may come next: None, or where the log has it already, or a `KafkaError`."""
    if origin is Origin.CLIENT:
        duplicate = _find_duplicate(state, header)
        if duplicate is not None:
            return duplicate
    if origin is not Origin.REPLICATION and header.producer_epoch < state.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} has epoch {header.producer_epoch}, but epoch {state.epoch} has taken over",
        )
    if origin is Origin.CLIENT:
        _check_sequence(state, header)
    if state.transaction_first_offset is not None and not header.is_transactional:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} sent a batch outside its transaction, which is open since offset "
            f"{state.transaction_first_offset}",
        )
    return None


def check_marker(
    state: ProducerState,
    header: BatchHeader,
    origin: Origin,
    coordinator_epoch: int,
    transaction_version: int,
) -> None:
    """Raises `KafkaError` when this end-of-transaction marker must not come next."""
    if origin is Origin.REPLICATION:
        return
    if _is_fenced_marker(state, header.producer_epoch, transaction_version):
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"the marker for producer {header.producer_id} has epoch {header.producer_epoch}, "
            f"but epoch {state.epoch} was seen (transaction version {transaction_version})",
        )
    if coordinator_epoch < state.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"the marker for producer {header.producer_id} has coordinator epoch {coordinator_epoch}, "
            f"but coordinator epoch {state.coordinator_epoch} was seen",
        )


def _find_duplicate(state: ProducerState, header: BatchHeader) -> Duplicate | None:
    if header.producer_epoch != state.epoch:
        return None
    base_sequence = header.base_sequence
    for last_sequence, last_offset, delta, timestamp in state.batches:
        if (last_sequence - delta) & SEQUENCE_MAX == base_sequence and last_sequence == header.last_sequence:
            return Duplicate(last_offset - delta, last_offset, timestamp)
    return None


def _check_sequence(state: ProducerState, header: BatchHeader) -> None:
    if header.producer_epoch != state.epoch:
        expected = 0
    else:
        expected = advance_sequence(state.last_sequence, 1)
    if header.base_sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} in epoch {header.producer_epoch} sent sequence "
            f"{header.base_sequence}, but {expected} comes next",
        )


def _is_fenced_marker(state: ProducerState, epoch: ProducerEpoch, transaction_version: int) -> bool:
    if transaction_version < EPOCH_BUMPING_TRANSACTION_VERSION:
        return epoch < state.epoch
    if epoch != state.epoch:
        return epoch < state.epoch
    # The same epoch again is a retry of the marker that ended the transaction, or an epoch that cannot grow.
    return state.transaction_first_offset is not None and epoch != PRODUCER_EPOCH_MAX
