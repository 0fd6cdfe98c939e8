"""Random histories of a compacted log against a model that forgets nothing."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from types import ModuleType
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.ids import Offset
from barnabas.records import kernel, reference
from barnabas.records.batch import Codec
from barnabas.records.builder import Record
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.settings import LogManagerConfig
from tests.support.compaction import RETENTION_MS, CompactedLog

SLOTS = (1, 2)
"""Of producers. One that expired is followed by another in the same slot."""
NO_PRODUCER = -1


@dataclass(frozen=True)
class Append:
    slot: int
    is_transactional: bool
    pairs: tuple[tuple[int, int | None], ...]
    codec: Codec


@dataclass(frozen=True)
class End:
    """Of the first open transaction, if there is one."""

    is_commit: bool


@dataclass(frozen=True)
class Roll:
    pass


@dataclass(frozen=True)
class Compact:
    wait_ms: int = 0
    """How long before the passes."""
    is_rolled: bool = True
    """Whether everything up to now may be compacted, or only what an earlier roll has closed."""


@dataclass(frozen=True)
class Expire:
    pass


@dataclass(frozen=True)
class Reopen:
    """The process dies, and everything is replayed from the first segment on."""


Step = Append | End | Roll | Compact | Expire | Reopen

APPENDS = st.builds(
    Append,
    slot=st.sampled_from((NO_PRODUCER, *SLOTS)),
    is_transactional=st.booleans(),
    pairs=st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(0, 99)), min_size=1, max_size=6).map(tuple),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, *Codec]),
)
ENDS = st.builds(End, st.booleans())
COMPACTIONS = st.builds(Compact, st.sampled_from([0, 1, RETENTION_MS - 1, RETENTION_MS, RETENTION_MS]), st.booleans())
STEPS = st.one_of(
    *[APPENDS] * 5, *[ENDS] * 3, *[COMPACTIONS] * 2, st.sampled_from([Roll(), Roll(), Roll(), Expire(), Reopen()])
)
HISTORIES = st.lists(STEPS, min_size=30, max_size=60)


@dataclass
class Model:
    """Every record that was ever appended, and what became of its transaction."""

    records: dict[Offset, Record] = field(default_factory=dict)
    committed: set[Offset] = field(default_factory=set)
    open: dict[int, list[Offset]] = field(default_factory=dict)
    compacted_ms: dict[Offset, int] = field(default_factory=dict)
    """When a tombstone was first compacted."""

    def newest(self, stable_offset: Offset) -> dict[bytes, Record]:
        table: dict[bytes, Record] = {}
        for offset in sorted(self.committed):
            record = self.records[offset]
            if offset < stable_offset:
                assert record.key is not None
                table[record.key] = record
        return table


class History:
    """Applies steps to the log and to the model, and compares them."""

    def __init__(self, seed: int, key_map_bytes: int) -> None:
        self.disk = SimulatedDisk(Random(seed))
        config = LogManagerConfig(log_cleaner_backoff_ms=0, log_cleaner_dedupe_buffer_size=key_map_bytes)
        self.accounts = CompactedLog(self.disk, cleaner_config=config)
        self.model = Model()
        self.producer_ids = {NO_PRODUCER: NO_PRODUCER} | {slot: slot for slot in SLOTS}

    def apply(self, step: Step) -> None:
        accounts = self.accounts
        match step:
            case Append():
                self.append(step)
            case End(is_commit) if self.model.open:
                producer_id = next(iter(self.model.open))
                accounts.end_transaction(producer_id, is_commit=is_commit)
                offsets = self.model.open.pop(producer_id)
                self.model.committed.update(offsets if is_commit else ())
            case Roll():
                accounts.roll()
            case Compact(wait_ms, is_rolled):
                accounts.clock.advance(wait_ms)
                if is_rolled:
                    accounts.roll()
                accounts.compact()
                self.check_compacted()
            case Expire():
                self.expire()
            case Reopen():
                self.reopen()
        self.compare()

    def expire(self) -> None:
        producers = self.accounts.log.producers
        producers.expire(self.accounts.clock.now_ms(), expiration_ms=1)
        for slot in SLOTS:
            if producers.get(self.producer_ids[slot]) is None:
                self.producer_ids[slot] += len(SLOTS)

    def append(self, step: Append) -> None:
        producer_id = self.producer_ids[step.slot]
        is_transactional = producer_id in self.model.open or (step.is_transactional and producer_id != NO_PRODUCER)
        pairs = [(b"key-%d" % key, None if value is None else b"%d" % value) for key, value in step.pairs]
        begun_ms = self.accounts.clock.now_ms()
        appended = self.accounts.append(
            *pairs, codec=step.codec, producer_id=producer_id, is_transactional=is_transactional
        )
        offsets = list(range(appended.base_offset, appended.last_offset + 1))
        for number, (key, value) in enumerate(pairs):
            offset = offsets[number]
            self.model.records[offset] = Record(key, value, (("sent", b"now"),), begun_ms + number, offset)  # type: ignore[arg-type]
        if is_transactional:
            self.model.open.setdefault(producer_id, []).extend(offsets)
        else:
            self.model.committed.update(offsets)

    def reopen(self) -> None:
        # One of whom only a marker is left has no sequence that could be lost.
        producers = {state.producer_id: state for state in self.accounts.log.producers if state.batches}
        self.disk = self.disk.kill()
        self.accounts.files = self.disk
        self.accounts.open(recovery_point=0)
        for producer_id, state in producers.items():
            replayed = self.accounts.log.producers.get(producer_id)
            assert replayed is not None
            assert (replayed.epoch, replayed.last_sequence) == (state.epoch, state.last_sequence)
            assert (replayed.transaction_first_offset is None) == (state.transaction_first_offset is None)
        self.accounts.log.flush()

    def check_compacted(self) -> None:
        """What the passes reached has one record of a key and none that was aborted; tombstones begin to wait."""
        first_dirty = self.accounts.cleaner.first_dirty_offset(self.accounts.log)
        reached = [record for record in self.accounts.records() if record.offset < first_dirty]
        assert len({record.key for record in reached}) == len(reached)
        assert {record.offset for record in reached} <= self.model.committed
        for offset in self.model.committed:
            if offset < first_dirty and self.model.records[offset].value is None:
                self.model.compacted_ms.setdefault(offset, self.accounts.clock.now_ms())

    def compare(self) -> None:
        log, model = self.accounts.log, self.model
        log.check_invariants()
        assert model.open.keys() == {transaction.producer_id for transaction in log.producers.ongoing_transactions}
        stored = self.accounts.records()
        assert [record.offset for record in stored] == sorted({record.offset for record in stored})
        assert all(model.records[record.offset] == record for record in stored)
        visible = {record.offset for record in self.accounts.committed()}
        assert visible <= model.committed
        newest = model.newest(log.last_stable_offset)
        assert self.accounts.newest() == {key: record for key, record in newest.items() if record.value is not None}
        for record in newest.values():
            if record.value is None and record.offset not in visible:
                assert log._clock.now_ms() >= model.compacted_ms[record.offset] + RETENTION_MS


@contextmanager
def use_kernel(implementation: ModuleType) -> Iterator[None]:
    """Compaction with one of the two kernels, whichever the rest of the log uses."""
    with ExitStack() as stack:
        for module in ("compacted_batches", "compaction_job"):
            stack.enter_context(patch(f"barnabas.storage.compaction.{module}.kernel", implementation))
            stack.enter_context(patch(f"barnabas.storage.compaction.{module}.KeyOffsets", implementation.KeyOffsets))
        yield


@pytest.mark.parametrize("implementation", [kernel, reference], ids=["chosen", "reference"])
@settings(max_examples=40)
@given(history=HISTORIES, seed=st.integers(0, 9), key_map_bytes=st.sampled_from([24 * 2, 24 * 5, 1 << 16]))
def test_compaction_at_any_time_keeps_the_newest_of_every_key(
    implementation: ModuleType, history: list[Step], seed: int, key_map_bytes: int
) -> None:
    with use_kernel(implementation):
        run = History(seed, key_map_bytes)
        for step in history:
            run.apply(step)
        for step in (Compact(), Compact(RETENTION_MS), Reopen()):
            run.apply(step)


@settings(max_examples=15)
@given(history=HISTORIES)
def test_compaction_leaves_the_same_bytes_with_both_kernels(history: list[Step]) -> None:
    logs = []
    for implementation in (kernel, reference):
        with use_kernel(implementation):
            run = History(0, 1 << 16)
            for step in (*history, Compact()):
                run.apply(step)
            logs.append([bytes(batch) for _, batch in run.accounts.batches()])
    assert logs[0] == logs[1]
