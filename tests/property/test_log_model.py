"""The log against a model, over a disk that forgets what was not synced, tears writes and fails at any call.

After every step the log agrees with the model. After a power loss it holds a prefix of what was written, with
everything that was flushed; after the death of the process, everything that was written. The owner of the log (its
checkpoints of the recovery point and of the log's start) is played by the machine.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.records.batch import Codec
from barnabas.storage.log.expiry import delete_due_segments
from barnabas.storage.log.flush import FlushPlan
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import KafkaError
from tests.support.log_model import (
    ModelBatch,
    data_batch,
    epochs_of,
    first_at_or_after,
    last_stable_of,
    marker_batch,
    producers_of,
    stored,
)
from tests.support.modelled_log import Ends, ModelledLog

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


class LogMachine(ModelledLog, RuleBasedStateMachine):
    @initialize(config=configs, seed=st.integers(0, 2**32), is_strict=st.booleans(), handles=st.sampled_from([3, 50]))
    def begin(self, config: LogConfig, seed: int, is_strict: bool, handles: int) -> None:
        super().begin(config, seed, is_strict, handles)

    # -- the disk fails ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.fault is None)
    @rule(kind=st.sampled_from(["full", "full", "no space", "broken"]), after=st.integers(0, 12))
    def arm(self, kind: str, after: int) -> None:
        """The next operation meets a full disk, a write that finds no space, or a disk that fails from then on."""
        self.fault = (kind, after)

    # -- appending ---------------------------------------------------------------------------------------------------

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
        succeeded = self.attempt(lambda: delete_due_segments(log, self.clock, stored_start=log.recovery_point))
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

    # -- stopping ----------------------------------------------------------------------------------------------------

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

    @rule()
    def lose_power(self) -> None:
        self.reopen_after_power_loss(Ends(self.log.recovery_point, self.staged_end, restarts=False))

    # -- what always holds -------------------------------------------------------------------------------------------

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


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=200, stateful_step_count=50)
