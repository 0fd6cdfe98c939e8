"""What a partition remembers of each producer: which sequence comes next, and which transactions are open.

Pure: no I/O, no clock. `Producers` is the table of one partition, owned by its log; its entries are
immutable, so that undoing a change is putting the old entry back.

`producer_state` has the rules for a producer that is known. One that is not (new, or expired) may start with
any sequence.

Transactions. The first transactional batch of a producer opens a transaction at its offset; a marker ends it.

```
           transactional batch             marker                  high watermark passes the marker
  (none) ----------------------> ongoing ----------> unreplicated ----------------------------------> (none)
```

The first unstable offset is the smallest first offset of all that are ongoing or unreplicated: readers may
rely on a marker only when it is replicated. The last stable offset is the smaller of it and the high
watermark.

How appends use it: `check` (which changes nothing), then `update` or `end_transaction`. When several appends
are staged before one write, `savepoint` comes first, then `rollback` when the write fails or `release` when
it succeeds; this costs only what was touched in between.

Nothing here survives a crash by itself: `producer_snapshot` has the file, and the log replays the batches
after it. Whether the coordinator knows the transaction that a batch claims to belong to is not checked here.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from barnabas.base.ids import NO_EPOCH, NO_PRODUCER, Offset, ProducerEpoch, ProducerId, TimestampMs
from barnabas.records.batch import CONTROL, BatchHeader
from barnabas.storage.producers.producer_state import (
    BATCHES_REMEMBERED,
    Duplicate,
    Origin,
    ProducedBatch,
    ProducerState,
    check_batch,
    check_marker,
)

Savepoint: TypeAlias = int


class OngoingTransaction(NamedTuple):
    first_offset: Offset
    producer_id: ProducerId


class CompletedTransaction(NamedTuple):
    """A transaction that a marker at `last_offset` has ended.

    `last_stable_offset` is where the next open transaction began at that moment, or the offset after the
    marker; the index of aborted transactions stores it.
    """

    first_offset: Offset
    last_offset: Offset
    producer_id: ProducerId
    is_aborted: bool
    last_stable_offset: Offset


class _Undo(NamedTuple):
    producer_id: ProducerId
    state: ProducerState | None
    completed: CompletedTransaction | None


class Producers:
    """The producers of one partition. One task owns it."""

    __slots__ = ("_is_recording", "_ongoing", "_states", "_undo", "_unreplicated")

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._states: dict[ProducerId, ProducerState] = {}
        self._ongoing: list[OngoingTransaction] = []
        self._unreplicated: list[CompletedTransaction] = []
        self._undo: list[_Undo] = []
        self._is_recording = False
        self.load(states)

    # Reading

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def get(self, producer_id: ProducerId) -> ProducerState | None:
        return self._states.get(producer_id)

    @property
    def is_empty(self) -> bool:
        return not self._states and not self._unreplicated

    @property
    def ongoing_transactions(self) -> tuple[OngoingTransaction, ...]:
        """Oldest first."""
        return tuple(self._ongoing)

    @property
    def unreplicated_transactions(self) -> tuple[CompletedTransaction, ...]:
        """In the order of their first offsets."""
        return tuple(self._unreplicated)

    def has_ongoing_transaction(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        state = self._states.get(producer_id)
        return state is not None and state.transaction_first_offset is not None and state.epoch == epoch

    @property
    def first_undecided_offset(self) -> Offset | None:
        """Where the oldest transaction without a marker begins: compaction must stay below it."""
        return self._ongoing[0].first_offset if self._ongoing else None

    @property
    def first_unstable_offset(self) -> Offset | None:
        """Where the oldest transaction begins whose marker is missing, or not yet replicated."""
        if not self._unreplicated:
            return self.first_undecided_offset
        first = self._unreplicated[0].first_offset
        return min(first, self._ongoing[0].first_offset) if self._ongoing else first

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """The end of what a `read_committed` reader may see."""
        first_unstable = self.first_unstable_offset
        return high_watermark if first_unstable is None else min(first_unstable, high_watermark)

    # Checking

    def check(self, header: BatchHeader, *, origin: Origin) -> Duplicate | None:
        """Whether this data batch may be appended now.

        Returns where it is when the log already has it, and raises `KafkaError` when it must be refused.
        """
        assert header.producer_id > NO_PRODUCER
        assert not header.attributes & CONTROL
        state = self._states.get(header.producer_id)
        return None if state is None else check_batch(state, header, origin)

    def check_marker(
        self,
        header: BatchHeader,
        *,
        coordinator_epoch: int,
        origin: Origin,
        transaction_version: int = 0,
    ) -> None:
        """Whether this end-of-transaction marker may be appended now; raises `KafkaError` when not."""
        assert header.producer_id > NO_PRODUCER
        assert header.attributes & CONTROL
        state = self._states.get(header.producer_id)
        if state is not None:
            check_marker(state, header, origin, coordinator_epoch, transaction_version)

    # Changing

    def update(self, header: BatchHeader, base_offset: Offset, max_timestamp: TimestampMs) -> None:
        """Takes note of a data batch that the log has accepted at `base_offset`.

        Offset and timestamp are what the log assigned; the header may still be the one the client sent.
        """
        assert header.producer_id > NO_PRODUCER
        assert not header.attributes & CONTROL
        producer_id = header.producer_id
        delta = header.last_offset_delta
        batch = ProducedBatch(header.last_sequence, base_offset + delta, delta, max_timestamp)
        state = self._states.get(producer_id)
        coordinator_epoch, first_offset = NO_EPOCH, None
        batches: tuple[ProducedBatch, ...] = (batch,)
        if state is not None:
            coordinator_epoch, first_offset = state.coordinator_epoch, state.transaction_first_offset
            if state.epoch == header.producer_epoch:
                batches = (*state.batches[1 - BATCHES_REMEMBERED :], batch)
        if first_offset is None and header.is_transactional:
            first_offset = base_offset
        self._replace(
            producer_id,
            state,
            ProducerState(producer_id, header.producer_epoch, coordinator_epoch, max_timestamp, first_offset, batches),
        )

    def end_transaction(
        self,
        header: BatchHeader,
        base_offset: Offset,
        max_timestamp: TimestampMs,
        *,
        coordinator_epoch: int,
        is_abort: bool,
    ) -> CompletedTransaction | None:
        """Takes note of a marker that the log has accepted at `base_offset`.

        Returns the transaction that it ended; None when none was open (nothing was written to this partition,
        or the marker is a retry).
        """
        assert header.producer_id > NO_PRODUCER
        assert header.attributes & CONTROL
        producer_id, epoch = header.producer_id, header.producer_epoch
        state = self._states.get(producer_id)
        batches: tuple[ProducedBatch, ...] = ()
        first_offset: Offset | None = None
        if state is not None:
            first_offset = state.transaction_first_offset
            if state.epoch == epoch:
                batches = state.batches
        self._replace(
            producer_id,
            state,
            ProducerState(producer_id, epoch, coordinator_epoch, max_timestamp, None, batches),
        )
        if first_offset is None:
            return None
        stable = self._ongoing[0].first_offset if self._ongoing else base_offset + 1
        completed = CompletedTransaction(first_offset, base_offset, producer_id, is_abort, stable)
        insort(self._unreplicated, completed)
        if self._is_recording:
            self._undo[-1] = self._undo[-1]._replace(completed=completed)
        return completed

    def advance_high_watermark(self, high_watermark: Offset) -> None:
        """Forgets the completed transactions whose marker is replicated."""
        if self._unreplicated:
            self._unreplicated = [
                transaction for transaction in self._unreplicated if transaction.last_offset >= high_watermark
            ]

    def remove_below(self, log_start_offset: Offset) -> None:
        """Forgets what ended below the log's new start. Producers stay until they expire."""
        self.advance_high_watermark(log_start_offset)

    def expire(self, now_ms: TimestampMs, expiration_ms: int) -> int:
        """Forgets producers that wrote nothing for `expiration_ms` and have no open transaction; returns how many."""
        expired = [
            state
            for state in self._states.values()
            if state.transaction_first_offset is None and now_ms - state.last_timestamp >= expiration_ms
        ]
        for state in expired:
            self._replace(state.producer_id, state, None)
        return len(expired)

    def clear(self) -> None:
        """Forgets everything, savepoints included: the log was truncated, and `load` and replay follow."""
        self._states.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.release()

    def take_over(self, rebuilt: "Producers") -> None:
        """Goes on with what was rebuilt elsewhere: the log was truncated."""
        assert not self._is_recording
        self._states = rebuilt._states
        self._ongoing = rebuilt._ongoing
        self._unreplicated = rebuilt._unreplicated

    def load(self, states: Iterable[ProducerState]) -> None:
        """Adds what a snapshot holds."""
        for state in states:
            self._replace(state.producer_id, self._states.get(state.producer_id), state)

    # Undoing

    def savepoint(self) -> Savepoint:
        """Marks the present state. Savepoints nest; they are good until a `release`."""
        self._is_recording = True
        return len(self._undo)

    def rollback(self, savepoint: Savepoint) -> None:
        """Undoes what happened since the savepoint, which stays usable."""
        assert self._is_recording
        assert savepoint <= len(self._undo)
        while len(self._undo) > savepoint:
            undo = self._undo.pop()
            self.restore(undo.producer_id, undo.state)
            if undo.completed is not None:
                # Gone only when the log start or the high watermark has passed it meanwhile.
                index = bisect_left(self._unreplicated, undo.completed)
                if self._unreplicated[index : index + 1] == [undo.completed]:
                    del self._unreplicated[index]

    def release(self) -> None:
        """Makes what happened final: forgets every savepoint."""
        self._undo.clear()
        self._is_recording = False

    def restore(self, producer_id: ProducerId, state: ProducerState | None) -> None:
        """Puts an earlier state of a producer back (None: it was not known). Savepoints do not see it."""
        self._exchange(producer_id, self._states.get(producer_id), state)

    def _replace(self, producer_id: ProducerId, old: ProducerState | None, new: ProducerState | None) -> None:
        if self._is_recording:
            self._undo.append(_Undo(producer_id, old, None))
        self._exchange(producer_id, old, new)

    def _exchange(self, producer_id: ProducerId, old: ProducerState | None, new: ProducerState | None) -> None:
        """The one place that changes a producer's state, and with it the list of ongoing transactions."""
        old_offset = None if old is None else old.transaction_first_offset
        new_offset = None if new is None else new.transaction_first_offset
        if old_offset != new_offset:
            if old_offset is not None:
                del self._ongoing[bisect_left(self._ongoing, OngoingTransaction(old_offset, producer_id))]
            if new_offset is not None:
                insort(self._ongoing, OngoingTransaction(new_offset, producer_id))
        if new is not None:
            self._states[producer_id] = new
        elif old is not None:
            del self._states[producer_id]

    def check_invariants(self) -> None:
        ongoing = []
        for producer_id, state in self._states.items():
            assert state.producer_id == producer_id
            assert len(state.batches) <= BATCHES_REMEMBERED
            if state.transaction_first_offset is not None:
                ongoing.append(OngoingTransaction(state.transaction_first_offset, producer_id))
        assert self._ongoing == sorted(ongoing)
        assert self._unreplicated == sorted(self._unreplicated)
        assert all(transaction.first_offset <= transaction.last_offset for transaction in self._unreplicated)
        assert self._is_recording or not self._undo
