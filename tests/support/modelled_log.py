"""A log beside its model, on a disk that forgets what was not synced, tears writes and fails at any call.

`ModelledLog` does one thing to the log, asks the model what must be true then, and compares. It plays the owner of the
log, who keeps checkpoints of the recovery point and of the log's start. What happens, and in which order, is up to the
machine in tests/property/test_log_model.py.
"""

import errno
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.records.batch import BatchHeader
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
    producer_agrees,
    producers_of,
    read_all,
    stored,
    transactions_of,
)
from tests.support.simulated_log import DIRECTORY, PARTITION


class Ends(NamedTuple):
    """Between which offsets a log must end when it is opened anew."""

    lower: int
    upper: int
    restarts: bool
    """All of its records may be gone."""


class ModelledLog:
    """`history` has all batches that were written, `staged` those that are not yet."""

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

    def attempt(self, action: Callable[[], object], *, ends: Ends | None = None) -> bool:
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

    # -- deleting and cutting ----------------------------------------------------------------------------------------

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
        assert delete_due_segments(log, self.clock, stored_start=log.recovery_point) == 0
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

    def kill(self, ends: Ends) -> None:
        self.leave_disk(self.disk.kill())
        self.reopen(ends)

    def reopen_after_power_loss(self, ends: Ends) -> None:
        self.history += self.staged
        self.leave_disk(self.disk.crash())
        self.reopen(ends)

    def reopen(self, ends: Ends) -> None:
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
