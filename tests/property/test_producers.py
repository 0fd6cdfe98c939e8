"""`Producers` against a model that keeps everything and works out every answer anew."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from barnabas.storage.producers.producer_state import Duplicate, Origin
from barnabas.storage.producers.producers import Producers, Savepoint
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.headers import data_header, marker_header

SEQUENCES = 2**31


class Written(NamedTuple):
    """A batch in the model's log; `sequence` is None for a marker."""

    producer_id: int
    epoch: int
    sequence: int | None
    count: int
    base_offset: int
    timestamp: int
    is_transactional: bool

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.count - 1


class Model:
    """What was written by producers that are still remembered, and the transactions that ended."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.ended: list[tuple[int, int]] = []

    def copy(self) -> "Model":
        copied = Model()
        copied.written, copied.ended = list(self.written), list(self.ended)
        return copied

    def of(self, producer_id: int) -> list[Written]:
        return [batch for batch in self.written if batch.producer_id == producer_id]

    def in_current_epoch(self, producer_id: int) -> list[Written]:
        mine = self.of(producer_id)
        return [batch for batch in mine if batch.epoch == mine[-1].epoch and batch.sequence is not None]

    def next_sequence(self, producer_id: int) -> int:
        batches = self.in_current_epoch(producer_id)
        return (batches[-1].sequence + batches[-1].count) % SEQUENCES if batches else 0

    def open_since(self, producer_id: int) -> int | None:
        since = None
        for batch in self.of(producer_id):
            if batch.sequence is None:
                since = None
            elif batch.is_transactional and since is None:
                since = batch.base_offset
        return since

    def verdict(self, batch: Written) -> ErrorCode | Duplicate | None:
        mine = self.of(batch.producer_id)
        if not mine:
            return None
        current = mine[-1].epoch
        if batch.epoch == current:
            for earlier in self.in_current_epoch(batch.producer_id)[-5:]:
                if (earlier.sequence, earlier.count) == (batch.sequence, batch.count):
                    return Duplicate(earlier.base_offset, earlier.last_offset, earlier.timestamp)
        if batch.epoch < current:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        expected = self.next_sequence(batch.producer_id) if batch.epoch == current else 0
        if batch.sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.open_since(batch.producer_id) is not None and not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def ongoing(self) -> list[int]:
        starts = (self.open_since(producer_id) for producer_id in {batch.producer_id for batch in self.written})
        return sorted(start for start in starts if start is not None)

    def first_unstable(self, high_watermark: int) -> int | None:
        unreplicated = [first for first, last in self.ended if last >= high_watermark]
        return min([*self.ongoing(), *unreplicated], default=None)


producer_ids = st.integers(1, 3)


class ProducersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.producers = Producers()
        self.model = Model()
        self.end_offset = 0
        self.high_watermark = 0
        self.now_ms = 1_000
        self.savepoints: list[tuple[Savepoint, Model, int]] = []

    @initialize(sequence=st.sampled_from([0, 7, SEQUENCES - 3]))
    def start_near_the_wrap(self, sequence):
        self.produce(1, 0, "given", 2, False, sequence)

    @rule(
        producer_id=producer_ids,
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        sequence_kind=st.sampled_from(["next", "next", "next", "retry", "given", "zero"]),
        count=st.integers(1, 3),
        is_transactional=st.booleans(),
        sequence=st.integers(0, 12),
    )
    def produce(self, producer_id, epoch_step, sequence_kind, count, is_transactional, sequence):
        mine = self.model.of(producer_id)
        epoch = max(0, (mine[-1].epoch if mine else 0) + epoch_step)
        if sequence_kind == "next":
            sequence = self.model.next_sequence(producer_id) if mine else 0
        elif sequence_kind == "zero":
            sequence = 0
        elif sequence_kind == "retry" and (batches := self.model.in_current_epoch(producer_id)):
            retried = batches[sequence % len(batches)]
            sequence, count = retried.sequence, retried.count
        self.now_ms += 1
        batch = Written(producer_id, epoch, sequence, count, self.end_offset, self.now_ms, is_transactional)
        header = data_header(producer_id, epoch, sequence, count, transactional=is_transactional, timestamp=self.now_ms)
        try:
            answer = self.producers.check(header, origin=Origin.CLIENT)
        except KafkaError as error:
            answer = error.code
        assert answer == self.model.verdict(batch)
        if answer is None:
            self.producers.update(header, self.end_offset, self.now_ms)
            self.model.written.append(batch)
            self.end_offset += count

    @rule(producer_id=producer_ids, epoch_step=st.integers(0, 1), is_abort=st.booleans())
    def end_transaction(self, producer_id, epoch_step, is_abort):
        mine = self.model.of(producer_id)
        epoch = (mine[-1].epoch if mine else 0) + epoch_step
        header = marker_header(producer_id, epoch)
        self.producers.check_marker(header, coordinator_epoch=0, origin=Origin.COORDINATOR)
        self.now_ms += 1
        completed = self.producers.end_transaction(
            header, self.end_offset, self.now_ms, coordinator_epoch=0, is_abort=is_abort
        )
        first_offset = self.model.open_since(producer_id)
        self.model.written.append(Written(producer_id, epoch, None, 1, self.end_offset, self.now_ms, True))
        assert (None if completed is None else completed.first_offset) == first_offset
        if completed is not None:
            self.model.ended.append((first_offset, self.end_offset))
            assert completed.is_aborted == is_abort
            assert completed.last_stable_offset == min([*self.model.ongoing(), self.end_offset + 1])
        self.end_offset += 1

    @rule(step=st.integers(0, 6))
    def replicate(self, step):
        written_end = self.savepoints[0][2] if self.savepoints else self.end_offset
        self.high_watermark = min(self.high_watermark + step, written_end)
        self.producers.advance_high_watermark(self.high_watermark)

    @rule(age_ms=st.integers(1, 12))
    def expire(self, age_ms):
        self.producers.expire(self.now_ms, age_ms)
        for producer_id in {batch.producer_id for batch in self.model.written}:
            newest = self.model.of(producer_id)[-1].timestamp
            if self.model.open_since(producer_id) is None and self.now_ms - newest >= age_ms:
                self.model.written = [batch for batch in self.model.written if batch.producer_id != producer_id]

    @precondition(lambda self: len(self.savepoints) < 3)
    @rule()
    def save(self):
        self.savepoints.append((self.producers.savepoint(), self.model.copy(), self.end_offset))

    @precondition(lambda self: self.savepoints)
    @rule(depth=st.integers(0, 2))
    def rollback(self, depth):
        del self.savepoints[min(depth, len(self.savepoints) - 1) + 1 :]
        savepoint, model, end_offset = self.savepoints[-1]
        self.producers.rollback(savepoint)
        self.model = model.copy()
        self.end_offset = end_offset

    @precondition(lambda self: self.savepoints)
    @rule()
    def release(self):
        self.producers.release()
        self.savepoints.clear()

    @invariant()
    def agrees_with_the_model(self):
        self.producers.check_invariants()
        assert {state.producer_id for state in self.producers} == {batch.producer_id for batch in self.model.written}
        ongoing = [transaction.first_offset for transaction in self.producers.ongoing_transactions]
        assert ongoing == self.model.ongoing()
        assert self.producers.first_unstable_offset == self.model.first_unstable(self.high_watermark)

    @invariant()
    def survives_its_snapshot(self):
        expected = [
            state._replace(
                batches=tuple(batch._replace(timestamp=state.last_timestamp) for batch in state.batches[-1:])
            )
            for state in self.producers
        ]
        assert decode_snapshot(encode_snapshot(self.producers)) == expected


TestProducers = ProducersMachine.TestCase
TestProducers.settings = settings(max_examples=60, stateful_step_count=40)
