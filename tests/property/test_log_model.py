"""The log against a model, over a disk that forgets what was not synced, tears writes and fails at any call.

After every step the log agrees with the model. After a power loss it holds a prefix of what was written, with
everything that was flushed; after the death of the process, everything that was written. The owner of the log (its
checkpoints of the recovery point and of the log's start) is played by the machine.
"""

import errno
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import BatchHeader, Codec
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.log.expiry import delete_due_segments
from barnabas.storage.log.flush import FlushPlan
from barnabas.storage.log.recovery import RecoveryReport, open_log
from barnabas.storage.log.truncation import Truncation
from barnabas.storage.producers.producer_state import Duplicate, Origin, ProducerState, check_batch
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.slices import FileSlice
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.log_model import (
    ModelBatch,
    check_indexes,
    data_batch,
    epochs_of,
    first_at_or_after,
    last_stable_of,
    marker_batch,
    producer_agrees,
    producers_of,
    read_all,
    stored,
    transactions_of,
)

PARTITION = TopicPartition("orders", 0)
DIRECTORY = "data/orders-0"

configs = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from([400, 1_000, 4_000]),
    segment_ms=st.sampled_from([50, 1_000_000]),
    segment_index_bytes=st.sampled_from([40, 10_000]),
    index_interval_bytes=st.sampled_from([0, 150, 500]),
    preallocate=st.booleans(),
    retention_ms=st.sampled_from([-1, 100]),
    retention_bytes=st.sampled_from([-1, 900]),
    file_delete_delay_ms=st.sampled_from([0, 20]),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
)
producer_ids = st.integers(1, 3)
endings = st.sampled_from(["finished", "finished", "finished", "killed before", "killed after", "power lost after"])
"""Of a truncation: before and after the part that a worker does."""


class Ends(NamedTuple):
    """Between which offsets a log must end when it is opened anew."""

    lower: int
    upper: int
    restarts: bool
    """All of its records may be gone."""


class LogMachine(RuleBasedStateMachine):
    @initialize(config=configs, seed=st.integers(0, 2**32), is_strict=st.booleans(), handles=st.sampled_from([3, 50]))
    def begin(self, config: LogConfig, seed: int, is_strict: bool, handles: int) -> None:
        self.config = config
        self.handles_max = handles
        self.clock = ManualClock(1_000_000)
        self.random = Random(seed)
        self.disk = SimulatedDisk(self.random, clock=self.clock, strict=is_strict)
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory("")
        self.disk.sync_directory("data")
        self.history: list[ModelBatch] = []
        self.staged: list[ModelBatch] = []
        self.leader_epoch = 0
        self.saved_recovery_point = 0
        self.saved_log_start = 0
        self.forgotten_below = 0
        self.plans: list[FlushPlan] = []
        self.slices: list[tuple[FileSlice, bytes]] = []
        self.fault: tuple[str, int] | None = None
        self.open()

    def open(self, was_clean: bool = False) -> RecoveryReport:
        self.log, report = open_log(
            self.disk,
            Handles(self.handles_max),
            self.clock,
            self.random,
            DIRECTORY,
            PARTITION,
            self.config,
            recovery_point=self.saved_recovery_point,
            log_start_offset=self.saved_log_start,
            was_clean=was_clean,
        )
        return report

    # -- the disk fails ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.fault is None)
    @rule(kind=st.sampled_from(["full", "full", "no space", "broken"]), after=st.integers(0, 12))
    def arm(self, kind: str, after: int) -> None:
        """The next operation meets a full disk, a write that finds no space, or a disk that fails from then on."""
        self.fault = (kind, after)

    def attempt(self, action: Callable[[], object], *, ends: "Ends | None" = None) -> bool:
        """Whether the action got to its end. A broken disk means a power loss: the log is opened anew.

        With `ends`, where the log may end then, any failure does: the action leaves it half changed.
        """
        if self.fault is not None:
            kind, after = self.fault
            if kind == "full":
                self.disk.capacity_bytes = self.disk.used_bytes + after * 20
            elif kind == "no space":
                self.disk.fail(errno.ENOSPC, after_calls=after // 4, operations=("write", "allocate"))
            else:
                self.disk.fail(errno.EIO, after_calls=after, times=None)
        self.fault = None
        synced = Ends(self.log.recovery_point, self.staged_end, restarts=False)
        try:
            action()
        except DiskFailed as error:
            self.heal()
            if not isinstance(error, DiskFull) or ends is not None:
                self.reopen_after_power_loss(synced if ends is None else ends)
            return False
        finally:
            self.heal()
        return True

    def heal(self) -> None:
        self.disk.heal()
        self.disk.capacity_bytes = None

    # -- appending ---------------------------------------------------------------------------------------------------

    @property
    def staged_end(self) -> int:
        return self.staged[-1].next_offset if self.staged else self.log.end_offset

    def settle(self, *, has_failed: bool = False) -> None:
        """Follows the log, which writes what is staged when it must roll; a failure drops all of it or none."""
        if has_failed:
            try:
                self.log.write()
            except DiskFull:
                assert self.log.end_offset == self.log.staged_end_offset
        while self.staged and self.staged[0].header.base_offset < self.log.end_offset:
            self.history.append(self.staged.pop(0))
        if has_failed:
            self.staged.clear()
        assert self.log.staged_end_offset == self.staged_end

    def submit(self, batch: bytearray, origin: Origin) -> None:
        """Appends, after asking the model what the answer must be."""
        append_time_ms = self.clock.now_ms() if self.config.is_log_append_time else None
        expected = stored(batch, self.staged_end, self.leader_epoch, append_time_ms)
        verdict: Duplicate | ErrorCode | None = None
        state = producers_of([*self.history, *self.staged]).get(expected.header.producer_id)
        if state is not None and origin is Origin.CLIENT:
            verdict = self.judge(state, expected.header)
            known = self.log.producers.get(state.producer_id)
            if isinstance(verdict, Duplicate) and known is not None and len(known.batches) < len(state.batches):
                verdict = self.judge(known, expected.header)  # after a restart only the last batch is remembered
        self.attempt_append(batch, expected, origin, verdict)

    def judge(self, state: ProducerState, header: BatchHeader) -> Duplicate | ErrorCode | None:
        try:
            return check_batch(state, header, Origin.CLIENT)
        except KafkaError as error:
            return error.code

    def attempt_append(
        self, batch: bytearray, expected: ModelBatch, origin: Origin, verdict: Duplicate | ErrorCode | None
    ) -> None:
        answers = []

        def append() -> None:
            answers.append(self.log.append(batch, self.leader_epoch, origin))

        log = self.log
        try:
            succeeded = self.attempt(append)
        except KafkaError as error:
            is_too_large = len(batch) > self.config.segment_bytes
            wanted = ErrorCode.RECORD_LIST_TOO_LARGE if is_too_large else verdict
            if error.code is not wanted:
                raise
            self.settle()
            return
        if not succeeded:
            if self.log is log:
                self.settle(has_failed=True)
            return
        (answer,) = answers
        if isinstance(verdict, Duplicate):
            assert (answer.is_duplicate, answer.base_offset, answer.last_offset) == (True, *verdict[:2])
        else:
            assert verdict is None
            assert (answer.is_duplicate, answer.base_offset, answer.last_offset) == (
                False,
                expected.header.base_offset,
                expected.header.last_offset,
            )
            self.staged.append(expected)
        self.settle()

    def timestamps(self, count: int, step: int) -> list[int]:
        return [self.clock.now_ms() + step * number for number in range(count)]

    @rule(
        count=st.integers(1, 4),
        value_bytes=st.sampled_from([1, 30, 61, 150]),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]),
        step=st.integers(-20, 20),
    )
    def append(self, count: int, value_bytes: int, codec: Codec, step: int) -> None:
        self.submit(data_batch(self.timestamps(count, step), value_bytes, codec=codec), Origin.CLIENT)

    @rule(
        sizes=st.lists(st.sampled_from([1, 30, 61, 150]), min_size=2, max_size=12),
        step=st.integers(-20, 20),
        is_flushed=st.booleans(),
    )
    def fill(self, sizes: list[int], step: int, is_flushed: bool) -> None:
        """Enough for some segments."""
        for value_bytes in sizes:
            self.submit(data_batch(self.timestamps(1, 0), value_bytes), Origin.CLIENT)
            self.clock.advance(max(0, step))
        self.write()
        if is_flushed:
            self.flush(is_saved=True)

    @rule(
        producer_id=producer_ids,
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        sequence_step=st.sampled_from([0, 0, 0, 0, 1, 5]),
        retry=st.sampled_from([None, None, None, 0, 1, 2]),
        count=st.integers(1, 3),
        is_transactional=st.booleans(),
    )
    def append_idempotent(
        self,
        producer_id: int,
        epoch_step: int,
        sequence_step: int,
        retry: int | None,
        count: int,
        is_transactional: bool,
    ) -> None:
        state = producers_of([*self.history, *self.staged]).get(producer_id)
        epoch = max(0, (state.epoch if state else 0) + epoch_step)
        sequence = sequence_step
        if state is not None and epoch == state.epoch:
            sequence += state.last_sequence + 1
            if retry is not None and state.batches:
                retried = state.batches[-1 - retry % len(state.batches)]
                sequence, count = retried.base_sequence, retried.offset_delta + 1
        batch = data_batch(
            self.timestamps(count, 1),
            20,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        self.submit(batch, Origin.CLIENT)

    @rule(producer_id=producer_ids, is_commit=st.booleans())
    def append_marker(self, producer_id: int, is_commit: bool) -> None:
        state = producers_of([*self.history, *self.staged]).get(producer_id)
        epoch = state.epoch if state else 0
        self.submit(marker_batch(producer_id, epoch, self.clock.now_ms(), is_commit=is_commit), Origin.COORDINATOR)

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=3), value_bytes=st.sampled_from([1, 61, 150]))
    def append_as_follower(self, counts: list[int], value_bytes: int) -> None:
        self.write()
        expected: list[ModelBatch] = []
        for count in counts:
            end = expected[-1].next_offset if expected else self.log.end_offset
            batch = data_batch(self.timestamps(count, 1), value_bytes, base_offset=end, leader_epoch=self.leader_epoch)
            expected.append(stored(batch, end, self.leader_epoch, None))
        log = self.log
        if self.attempt(lambda: self.log.append_as_follower(b"".join(batch.content for batch in expected))):
            self.staged += expected
            self.settle()
        elif self.log is log:
            self.staged += expected  # those before the one that failed may have been written by a roll
            self.settle(has_failed=True)

    @rule()
    def write(self) -> None:
        log = self.log
        if self.attempt(lambda: self.log.write()):
            self.settle()
        elif self.log is log:
            self.settle(has_failed=True)

    @rule()
    def change_leader(self) -> None:
        self.leader_epoch += 1

    @rule(milliseconds=st.integers(1, 60))
    def wait(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    @rule()
    def roll(self) -> None:
        self.write()
        log = self.log
        if self.log.segments.active.size:
            self.attempt(lambda: self.log.roll())
        if self.log is log:
            self.settle()

    # -- flushing ----------------------------------------------------------------------------------------------------

    @rule(is_saved=st.booleans())
    def flush(self, is_saved: bool) -> None:
        log = self.log
        if self.attempt(lambda: self.log.flush()):
            self.settle()
            assert self.log.recovery_point == self.log.end_offset
            if is_saved:
                self.save()
        elif self.log is log:
            self.settle(has_failed=True)

    @precondition(lambda self: len(self.plans) < 2)
    @rule(complete_only=st.booleans())
    def plan_flush(self, complete_only: bool) -> None:
        self.write()
        log = self.log
        plans: list[FlushPlan] = []
        if self.attempt(lambda: plans.append(log.plan_flush(complete_only=complete_only))) and self.log is log:
            self.plans += plans

    @precondition(lambda self: self.plans)
    @rule(slot=st.integers(0, 1))
    def run_plan(self, slot: int) -> None:
        plan = self.plans.pop(slot % len(self.plans))
        log = self.log
        if self.attempt(plan.run):
            self.log.finish_flush(plan)
        elif self.log is log:
            self.log.abandon_flush(plan)

    @rule()
    def save(self) -> None:
        """The owner writes its checkpoints."""
        self.saved_recovery_point = self.log.recovery_point
        self.saved_log_start = self.log.log_start_offset

    # -- reading -----------------------------------------------------------------------------------------------------

    @rule(
        place=st.integers(0, 200),
        max_bytes=st.integers(0, 2_000),
        upper=st.none() | st.integers(0, 200),
        is_held=st.booleans(),
    )
    def read(self, place: int, max_bytes: int, upper: int | None, is_held: bool) -> None:
        start, end = self.log.log_start_offset, self.log.end_offset
        offset = start + place % (end - start + 2)
        if offset > end:
            with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
                self.log.read(offset, max_bytes)
            return
        upper_offset = end if upper is None else start + upper % (end - start + 1)
        readable = [
            batch for batch in self.history if batch.header.last_offset >= offset and batch.next_offset <= upper_offset
        ]
        expected = b"".join(batch.content for batch in readable)
        taken = self.log.read(offset, max_bytes, None if upper is None else upper_offset).slice
        if taken is None:
            assert not readable
            return
        content = taken.read()
        assert expected.startswith(content)
        limit = max(max_bytes, len(readable[0].content))
        if len(content) < min(limit, len(expected)):
            ends = {batch.next_offset for batch in readable}
            bases = {segment.base_offset for segment in self.log.segments}
            whole = [batch for batch in readable if batch.next_offset <= min(ends & bases)]
            assert content == b"".join(batch.content for batch in whole)
        if is_held and len(self.slices) < 3:
            self.slices.append((taken, content))
        else:
            taken.release()

    @precondition(lambda self: self.slices)
    @rule()
    def release(self) -> None:
        self.slices.pop(0)[0].release()

    @rule(back_ms=st.integers(-30, 200))
    def find_timestamp(self, back_ms: int) -> None:
        target = self.clock.now_ms() - back_ms
        start = self.log.log_start_offset
        assert self.log.find_timestamp(target) == first_at_or_after(self.remaining(), target, start)

    @rule(place=st.integers(0, 200))
    def advance_high_watermark(self, place: int) -> None:
        low, high = self.log.high_watermark, self.log.end_offset
        self.log.advance_high_watermark(low + place % (high - low + 1))

    # -- deleting and cutting ----------------------------------------------------------------------------------------

    @rule(place=st.integers(0, 200))
    def delete_records(self, place: int) -> None:
        low, high = self.log.log_start_offset, self.log.high_watermark
        self.log.delete_records_before(low + place % (high - low + 1))

    @rule()
    def delete_due_segments(self) -> None:
        log, start = self.log, self.log.log_start_offset
        bases = [segment.base_offset for segment in self.log.segments]
        succeeded = self.attempt(lambda: delete_due_segments(self.log, self.clock))
        if self.log is not log:
            return
        self.settle(has_failed=not succeeded)
        kept = [segment.base_offset for segment in self.log.segments]
        assert start <= self.log.log_start_offset <= self.log.high_watermark
        assert kept == [*bases, *kept][-len(kept) :]
        self.check_content()

    @rule()
    def remove_doomed(self) -> None:
        for remove in self.log.doomed.take(self.clock.now_ms()):
            remove()

    @rule(place=st.integers(0, 60), ending=endings)
    def truncate(self, place: int, ending: str) -> None:
        """Only the leader of a new epoch makes a follower cut its log."""
        self.write()
        self.leader_epoch += 1
        low, high = self.log.log_start_offset, self.log.end_offset
        offset = max(low, high - place)
        restarts = self.floor(offset) < low
        if self.cut(lambda: self.log.plan_truncation(offset), offset, restarts=restarts, ending=ending):
            assert self.log.end_offset == max(low, self.floor(offset))
            self.history = [batch for batch in self.history if batch.next_offset <= offset and not restarts]
            self.check_content()

    @rule(step=st.integers(-5, 20), ending=endings)
    def restart(self, step: int, ending: str) -> None:
        self.write()
        self.leader_epoch += 1
        offset = max(0, self.log.end_offset + step)
        if self.cut(lambda: self.log.plan_restart(offset), offset, restarts=True, ending=ending):
            assert self.log.end_offset == self.log.log_start_offset == offset
            self.history.clear()
            self.saved_log_start = offset

    def cut(self, plan: Callable[[], Truncation | None], offset: int, *, restarts: bool, ending: str) -> bool:
        """Whether the log was cut to its end: the disk may fail, and the process or the power, before that."""
        high, lower_end = self.log.end_offset, 0 if restarts else offset
        ends = Ends(min(lower_end, self.log.recovery_point), high, restarts)
        planned: list[Truncation | None] = []
        if not self.attempt(lambda: planned.append(plan()), ends=ends):
            return False
        if planned[0] is None:
            assert offset >= high
            return False
        self.check_while_cut(planned[0])
        self.saved_recovery_point = min(self.saved_recovery_point, self.log.recovery_point)
        self.saved_log_start = min(self.saved_log_start, self.log.log_start_offset)
        if ending == "killed before":
            self.kill(Ends(high, high, restarts=False))
            return False
        if not self.attempt(planned[0].run, ends=ends):
            return False
        if ending == "killed after":
            self.kill(ends)
            return False
        if ending == "power lost after":
            self.reopen_after_power_loss(ends)
            return False
        self.log.finish_truncation(planned[0])
        self.forgotten_below = self.log.end_offset
        return True

    def check_while_cut(self, truncation: Truncation) -> None:
        """The log ends at the cut, takes nothing, and shows what lies below."""
        log = self.log
        log.check_invariants()
        with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
            log.append(data_batch(self.timestamps(1, 0), 1), self.leader_epoch)
        with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
            log.read(log.end_offset + 1, 100)
        kept = [batch for batch in self.remaining() if batch.next_offset <= log.end_offset]
        assert read_all(log) == ([] if truncation.is_restart else kept)
        assert delete_due_segments(log, self.clock) == 0
        plan = log.plan_flush()
        plan.run()
        log.finish_flush(plan)
        for taken, content in self.slices:
            assert taken.is_revoked or taken.read() == content
        self.drop_revoked()

    def drop_revoked(self) -> None:
        for taken, _ in self.slices:
            if taken.is_revoked:
                taken.release()
        self.slices = [held for held in self.slices if not held[0].is_revoked]

    # -- stopping ----------------------------------------------------------------------------------------------------

    def leave_disk(self, successor: SimulatedDisk) -> None:
        self.disk = successor
        self.staged.clear()
        self.plans.clear()
        self.slices.clear()
        self.fault = None

    @rule()
    def stop_and_start(self) -> None:
        self.write()
        log = self.log
        if not self.attempt(lambda: self.log.close()) or self.log is not log:
            return
        end_offset, start = self.log.end_offset, self.log.log_start_offset
        self.save()
        self.leave_disk(self.disk.crash())
        report = self.open(was_clean=True)
        assert not report.notes, report.notes
        assert not report.checked_bytes
        assert self.log.log_start_offset == start
        self.check_reopened(end_offset, end_offset)

    @rule()
    def die(self) -> None:
        """The process dies: what was staged is lost, what was written is there."""
        self.kill(Ends(self.log.end_offset, self.log.end_offset, restarts=False))

    def kill(self, ends: "Ends") -> None:
        self.leave_disk(self.disk.kill())
        self.reopen(ends)

    @rule()
    def lose_power(self) -> None:
        self.reopen_after_power_loss(Ends(self.log.recovery_point, self.staged_end, restarts=False))

    def reopen_after_power_loss(self, ends: "Ends") -> None:
        self.history += self.staged
        self.leave_disk(self.disk.crash())
        self.reopen(ends)

    def reopen(self, ends: "Ends") -> None:
        self.open()
        if ends.restarts and not self.remaining_of(self.log.end_offset):
            assert read_all(self.log) == []
            self.history = []
        self.check_reopened(ends.lower, ends.upper)

    def remaining_of(self, end_offset: int) -> list[ModelBatch]:
        return [batch for batch in self.remaining() if batch.next_offset <= end_offset]

    def floor(self, offset: int) -> int:
        """The end of the last batch that ends at or below the offset."""
        ends = [batch.next_offset for batch in self.history if batch.next_offset <= offset]
        return ends[-1] if ends else 0

    def check_reopened(self, lower_end: int, upper_end: int) -> None:
        end_offset = self.log.end_offset
        if self.history:
            assert self.floor(lower_end) <= end_offset <= upper_end
        self.history = [batch for batch in self.history if batch.next_offset <= end_offset]
        if self.history and end_offset > self.log.segments[0].base_offset:
            assert self.history[-1].next_offset == end_offset
        assert self.saved_log_start <= self.log.log_start_offset
        self.forgotten_below = end_offset
        self.saved_recovery_point = min(self.saved_recovery_point, end_offset)
        self.check_content()

    # -- what always holds -------------------------------------------------------------------------------------------

    def remaining(self) -> list[ModelBatch]:
        start = self.log.log_start_offset
        return [batch for batch in self.history if batch.next_offset > start]

    def stored(self) -> list[ModelBatch]:
        """Below the start of the log a crash may take what was not synced, and leave what follows."""
        start = self.log.log_start_offset
        there = {header.base_offset for segment in self.log.segments for _, header in segment.headers(0)}
        return [batch for batch in self.history if batch.next_offset > start or batch.header.base_offset in there]

    def check_content(self) -> None:
        assert read_all(self.log) == self.remaining()
        check_indexes(self.log, self.stored())

    @invariant()
    def log_is_sound(self) -> None:
        self.log.check_invariants()
        assert self.log.staged_end_offset == self.staged_end
        for taken, content in self.slices:
            assert not taken.is_revoked
            assert taken.read() == content

    @invariant()
    def knowledge_agrees(self) -> None:
        """Producers, transactions and epochs follow from all batches, or, after a crash, from those that are left."""
        batches = [*self.history, *self.staged]
        base = self.log.segments[0].base_offset
        left = [batch for batch in batches if batch.header.base_offset >= base]
        assert (
            self.producers_agree(batches)
            or self.producers_agree(left)
            or self.producers_agree([*self.stored(), *self.staged])
        )
        assert self.aborted_agree(self.history) or self.aborted_agree(left)
        low, high = last_stable_of(batches, self.log.high_watermark, self.forgotten_below)
        assert low <= self.log.last_stable_offset <= high
        end = self.staged_end
        found = [entry for entry in self.log.epochs.entries if entry.start_offset < end]
        expected = epochs_of(batches, self.log.log_start_offset)
        assert found == expected, f"{found} != {expected}"

    def producers_agree(self, batches: list[ModelBatch]) -> bool:
        expected = producers_of(batches)
        found = {state.producer_id: state for state in self.log.producers}
        return found.keys() == expected.keys() and all(
            producer_agrees(found[producer_id], expected[producer_id]) for producer_id in found
        )

    def aborted_agree(self, batches: list[ModelBatch]) -> bool:
        start, end = self.log.log_start_offset, self.log.end_offset
        expected = [
            transaction.aborted
            for transaction in transactions_of(batches)[0]
            if transaction.aborted and start <= transaction.marker_offset < end
        ]
        return self.log.aborted_transactions(start, end) == expected


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=200, stateful_step_count=50)
