"""The log of one partition: records in, offsets out, kept in segments on disk.

An append has two steps. `append` checks a batch, gives it its offsets and stages it in memory; `write` puts everything
that was staged since the last one into the active segment with one system call. An event loop stages all requests of a
tick and writes once; nothing staged is readable or acknowledged before. When a write fails, everything staged is undone
(offsets, producers, epochs) and the log is as if it had not been asked. An append is in the log exactly if, after
`write`, its last offset lies below the end offset.

```
 log start            high watermark        end offset      staged end
     |  readable records    |   written          |  staged       |
-----+----------------------+--------------------+---------------+--->  offsets
```

What the last write put in can be read from memory until `forget_written`: readers that wait at the end want just that.

`Log` takes records and gives them out; each part does one more thing:

| part | owns |
|---|---|
| `segments` | the files of records, and what is read across them |
| `producers`, `epochs`, `snapshots` | what is known of producers and leaders, and where that is stored |
| `Appending` | checking batches, and what waits for its write |
| `Flushing` | what is not durable, and the plan that a worker runs to make it so |
| `names` | which segments a power loss leaves in the directory |
| `doomed` | segments that left the log, until a worker has removed their files |
| `replacement` | compacted segments that take the place of others |
| `Truncation` | a cut that is under way |

Owner: one thread (a broker's event loop). It never waits here for anything but the page cache.
Crash: `storage.log.recovery` opens what is left; everything below the recovery point is intact, above it a valid
prefix of what was written.
"""

import logging
from collections.abc import Sequence
from random import Random

from barnabas.base.buffers import Buffer
from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import LeaderEpoch, Offset, SteadyMs, TimestampMs, TopicPartition
from barnabas.storage.log.appending import Appending
from barnabas.storage.log.epochs import LeaderEpochs
from barnabas.storage.log.flush import Flushing, FlushPlan
from barnabas.storage.log.staging import Appended, LogRead, Staged
from barnabas.storage.log.traffic import TopicTraffic
from barnabas.storage.log.truncation import KeptSegment, Truncation
from barnabas.storage.log.validate import AcceptedBatch, BatchCheck
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.producers.producers import Producers
from barnabas.storage.producers.snapshots import Snapshots
from barnabas.storage.segment.doomed import DoomedSegments
from barnabas.storage.segment.durable_names import DurableNames
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.replacement import Replacement
from barnabas.storage.segment.segment import Room, Segment
from barnabas.storage.segment.segment_cut import SegmentCut
from barnabas.storage.segment.segments import Segments
from barnabas.storage.segment.timestamp_lookup import FoundTimestamp, TimestampLookup
from barnabas.storage.segment.transaction_index import AbortedTransaction
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class Log:
    """One partition's log; the module says what its parts do."""

    __slots__ = (
        "_clock",
        "_failure",
        "_files",
        "_flushing",
        "_handles",
        "_is_untouched",
        "_random",
        "_truncation",
        "_written",
        "appending",
        "config",
        "directory",
        "doomed",
        "end_offset",
        "epochs",
        "expired_before",
        "failure",
        "gaps_end_offset",
        "high_watermark",
        "log_start_offset",
        "names",
        "partition",
        "producers",
        "recovery_point",
        "replacement",
        "segments",
        "snapshots",
        "traffic",
        "truncations",
    )

    def __init__(
        self,
        files: FileSystem,
        handles: Handles,
        clock: Clock,
        random: Random,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        *,
        segments: Segments,
        snapshots: Snapshots,
        producers: Producers,
        epochs: LeaderEpochs,
        names: DurableNames,
        log_start_offset: Offset,
        end_offset: Offset,
        recovery_point: Offset,
        gaps_end_offset: Offset = 0,
        is_whole: bool = False,
    ) -> None:
        """`is_whole` says that the files are as a clean stop left them: closing the log needs nothing, either."""
        self._files = files
        self._handles = handles
        self._clock = clock
        self._random = random
        self.directory = directory
        self.partition = partition
        self.config = config
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.snapshots = snapshots
        self.names = names
        self.log_start_offset = log_start_offset
        self.expired_before: Offset = log_start_offset
        """Segments below it are due to leave, and some may still wait for that (`storage.log.expiry`)."""
        self.high_watermark = log_start_offset
        self.end_offset = end_offset
        self.recovery_point = recovery_point
        self.gaps_end_offset = gaps_end_offset
        """Somebody else may have compacted up to here, also above the recovery point. We stay below that."""
        self.appending = Appending(clock, producers, epochs, end_offset, self._make_room)
        self._written: Staged | None = None
        """The last write, kept in memory until the caller of `write` has notified those that wait for records."""
        self._failure: DiskFailed | None = None
        self.failure: DiskFailed | None = None
        """Why nothing is written any more: the disk has failed."""
        self._is_untouched = is_whole
        segments.has_changed = False
        self._flushing = Flushing(files, clock, directory, segments, snapshots, epochs, names)
        self._flushing.messages = max(0, end_offset - recovery_point)
        self.doomed = DoomedSegments(segments, clock)
        self.replacement = Replacement(segments, snapshots, handles, self.doomed, self._flushing)
        self.traffic = TopicTraffic()
        """Its own until it is served with the other partitions of its topic."""
        self._truncation: Truncation | None = None
        self.truncations = 0
        """How often the log was cut: what a job learned of it before is not so any more."""

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def staged_end_offset(self) -> Offset:
        """The next offset that an append will get."""
        return self.appending.end_offset

    @property
    def last_stable_offset(self) -> Offset:
        return self.producers.last_stable_offset(self.high_watermark)

    def advance_high_watermark(self, offset: Offset) -> None:
        """Everything below is on every in-sync replica: readable, and deletable by retention."""
        assert offset <= self.end_offset
        self.high_watermark = offset
        self.producers.advance_high_watermark(offset)

    def delete_records_before(self, offset: Offset) -> None:
        """Moves the start of the log up; retention takes whole segments below it away (`storage.log.expiry`)."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the high watermark {self.high_watermark}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.remove_below(offset)
            logger.info("%s: the log now starts at offset %d", self.partition, offset)

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self, records: Buffer, leader_epoch: LeaderEpoch, origin: Origin = Origin.CLIENT) -> Appended:
        """Stages batches that get their offsets here, on the leader. Raises without a trace when one is refused.

        A retried batch that the log has already is not staged again; the answer says where it is.
        """
        if origin is Origin.CLIENT:
            return self.appending.from_client(records, leader_epoch, self.config)
        return self.appending.from_broker(records, leader_epoch, self.config, origin)

    def check(self, batch: Buffer) -> BatchCheck:
        """What must be done with a client's batch before `append_accepted` takes it; it may take long."""
        return self.appending.check(batch, self.config)

    def append_accepted(self, accepted: Sequence[AcceptedBatch], leader_epoch: LeaderEpoch) -> Appended:
        """Stages a client's batches that have been checked: all of them, or none."""
        return self.appending.accepted(accepted, leader_epoch, self.config, Origin.CLIENT)

    def append_as_follower(self, records: Buffer) -> None:
        """Stages batches that a leader has given their offsets; they are checked, and never changed."""
        self.appending.from_leader(records)

    def _make_room(self, size_bytes: int, max_timestamp: TimestampMs, last_offset: Offset, now_ms: TimestampMs) -> Room:
        """Rolls when the active segment must not take this append any more; returns the room beside what is already
        written. Refuses the append while the log is being cut."""
        if self._truncation is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.partition} is being truncated")
        active, staged, config = self.segments.active, self.appending.staged, self.config
        room = active.room(config.segment_bytes_max, config.roll_after_ms, now_ms)
        staged_bytes = 0 if staged is None else staged.size_bytes
        is_due = (active.size or staged_bytes) and (
            staged_bytes + size_bytes > room.size_bytes
            or last_offset > room.last_offset_max
            or max_timestamp > room.timestamp_max
        )
        if is_due:
            self.write_early()
            room = self.roll().room(config.segment_bytes_max, config.roll_after_ms, now_ms)
        return room

    # -- writing -------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Writes everything staged. When the disk refuses, all of it is undone and the error raised."""
        appending = self.appending
        staged, appending.staged = appending.staged, None
        failure, self._failure = self._failure, self.failure
        if staged is not None:
            if failure is None:
                failure = self._write(staged)
            if failure is not None:
                appending.undo(staged, self.end_offset, self.log_start_offset)
            self.producers.release()
        if failure is not None:
            raise failure

    def write_early(self) -> None:
        """`write` for a caller that staged nothing: those that did get the failure from their own call of `write`."""
        try:
            self.write()
        except DiskFailed as error:
            self._failure = error
            raise

    def discard_staged(self) -> None:
        """Takes back everything staged, as if nobody had asked for it: the leadership has ended."""
        appending = self.appending
        staged, appending.staged = appending.staged, None
        self._failure = self.failure
        if staged is not None:
            appending.undo(staged, self.end_offset, self.log_start_offset)
            self.producers.release()

    def give_up(self, failure: DiskFailed) -> None:
        """The disk has failed: from now on every write is refused, also one that it would take."""
        self.failure = self._failure = failure

    def _write(self, staged: Staged) -> DiskFailed | None:
        active = self.segments.active
        self._is_untouched = False
        try:
            active.append(staged.buffers, staged.base_offset, staged.marks, self.config.index_interval_bytes)
        except DiskFailed as error:
            return error
        for completed in staged.aborted:
            active.transaction_index.append(AbortedTransaction.of(completed))
        self.end_offset = self.appending.end_offset
        self._written = staged
        self._flushing.messages += staged.messages
        traffic = self.traffic
        traffic.appended_bytes += staged.size_bytes
        traffic.appended_records += staged.messages
        active.store_index_blocks()
        return None

    def roll(self, at_offset: Offset | None = None) -> Segment:
        """Begins a new active segment at the end of the log; the old one is complete from now on."""
        assert self.appending.staged is None
        assert self._truncation is None
        active = self.segments.active
        base_offset = self.end_offset if at_offset is None else at_offset
        if active.base_offset == base_offset:
            assert not active.size
            return active
        self._is_untouched = False
        active.complete()
        self.snapshots.take(base_offset, self.producers)
        segment = self._new_segment(base_offset)
        segment.create(self._preallocated_bytes)
        self.segments.add(segment)
        self._flushing.has_new_names = True
        logger.info("%s: rolled to a new segment at offset %d", self.partition, base_offset)
        return segment

    @property
    def _preallocated_bytes(self) -> int:
        return self.config.segment_bytes_max if self.config.preallocate else 0

    def _new_segment(self, base_offset: Offset) -> Segment:
        """Without its files: `Segment.create` makes them."""
        segment = Segment(
            self._files,
            self._handles,
            self.directory,
            base_offset,
            index_bytes_max=self.config.segment_index_bytes,
            created_ms=self._clock.now_ms(),
        )
        segment.roll_jitter_ms = int(self._random.random() * self.config.roll_jitter_ms_max)
        return segment

    # -- reading -------------------------------------------------------------------------------------------------

    def read(
        self, offset: Offset, max_bytes: int, upper_offset: Offset | None = None, *, at_least_one: bool = True
    ) -> LogRead:
        """Batches from the one that holds `offset` on, never a byte of one that reaches `upper_offset` or beyond.

        With `at_least_one` the first batch comes whole, however big; without, there is nothing if it does not fit. The
        range ends where its segment ends, so a reader comes again; its last batch may be cut short by `max_bytes`.
        """
        upper = self.end_offset if upper_offset is None else min(upper_offset, self.end_offset)
        if not self.log_start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log_start_offset} to {self.end_offset}",
            )
        return LogRead(self.segments.read(offset, max_bytes, upper, self.end_offset, at_least_one=at_least_one))

    def read_written(self, offset: Offset, max_bytes: int) -> bytes | None:
        """All of the last write, without a look at the file: if it is still here, begins at `offset`, and fits."""
        written = self._written
        if written is None or written.size_bytes > max_bytes or written.base_offset != offset:
            return None
        return b"".join(written.buffers)

    def forget_written(self) -> None:
        """Everybody has been notified: frees the buffers."""
        self._written = None

    def find_timestamp(self, target: TimestampMs) -> FoundTimestamp | None:
        """The first record whose timestamp is at least `target`, however long it takes to find it."""
        first_offset = self.log_start_offset
        while (look := self.look_for_timestamp(target, first_offset)) is not None:
            if (found := look.run()) is not None:
                return found
            first_offset = look.header.next_offset
        return None

    def find_largest_timestamp(self) -> FoundTimestamp | None:
        """The first record with the largest timestamp of all."""
        largest = self.segments.largest_timestamp
        return None if largest < 0 else self.find_timestamp(largest)

    def look_for_timestamp(self, target: TimestampMs, first_offset: Offset) -> TimestampLookup | None:
        """One step of `find_timestamp`, from `first_offset` on: the look into a batch may be for a worker thread."""
        return self.segments.look_for_timestamp(target, max(first_offset, self.log_start_offset))

    def aborted_transactions(self, offset: Offset, upper_offset: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of this range must leave out."""
        return self.segments.aborted_transactions(offset, upper_offset)

    # -- flushing and closing ------------------------------------------------------------------------------------

    def must_flush(self, now_ms: SteadyMs) -> bool:
        """Whether `flush.messages` or `flush.ms` want what was written to be durable before it is acknowledged."""
        flushing, config = self._flushing, self.config
        return self.recovery_point < self.end_offset and (
            flushing.messages >= config.flush_messages or now_ms - flushing.flushed_ms >= config.flush_ms
        )

    def awaits_flush(self, now_ms: SteadyMs) -> bool:
        """Whether that is so, or was when the flush began that runs: what was written is not durable yet."""
        return self.must_flush(now_ms) or (self._flushing.has_messages and self.recovery_point < self.end_offset)

    @property
    def is_flushing(self) -> bool:
        """Whether a plan is on its way."""
        return self._flushing.is_running

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether complete segments wait for a flush: a broker does it some time after each roll."""
        return self.segments.active.base_offset > self.recovery_point

    @property
    def has_expired_segments(self) -> bool:
        """Whether segments that nobody keeps are still here: they leave as durable names allow it."""
        return len(self.segments) > 1 and self.segments[1].base_offset <= self.coming_start_offset

    @property
    def coming_start_offset(self) -> Offset:
        """Where the log starts when everything has left that nobody keeps."""
        return max(self.log_start_offset, min(self.expired_before, self.high_watermark))

    @property
    def must_sync_names(self) -> bool:
        """Whether expired segments wait for a sync of the directory."""
        return self._flushing.has_new_names and self.has_expired_segments

    def plan_name_sync(self) -> FlushPlan:
        """A flush that only makes names durable; it needs no room on the disk."""
        if self.failure is not None:
            raise self.failure
        return self._flushing.plan_names(self.recovery_point)

    def remove_oldest(self, count: int) -> None:
        """Takes the oldest segments out of the log; `storage.log.expiry` says which may leave."""
        first_offset = self.segments[count].base_offset
        assert first_offset <= min(self.names.last_offset, self.log_start_offset)
        self.doomed.doom(self.segments.first(count), self.config.file_delete_delay_ms)
        self._flushing.has_new_names = True
        self.snapshots.remove_where(lambda offset: offset < first_offset)

    def plan_flush(self, *, complete_only: bool = False) -> FlushPlan:
        """What must be synced for the log to be durable up to its present end, or to that of its complete segments."""
        assert self.appending.staged is None
        if self.failure is not None:
            raise self.failure
        if self._truncation is not None:
            return self._flushing.nothing(self.end_offset, is_cancelled=True)
        end_offset = self.segments.active.base_offset if complete_only else self.end_offset
        return self._flushing.plan(self.recovery_point, end_offset, complete_only=complete_only)

    def finish_flush(self, plan: FlushPlan) -> None:
        """The plan has run: what it covered is durable, unless a truncation has cut it meanwhile.

        Raises when the disk has failed meanwhile, be it in another log: nothing may be acknowledged then.
        """
        is_durable = self._flushing.finish(plan)
        if self.failure is not None:
            raise self.failure
        if is_durable:
            self.recovery_point = max(self.recovery_point, plan.end_offset)

    def abandon_flush(self, plan: FlushPlan) -> None:
        """The plan has failed, or will not run: the next one covers what it would have covered."""
        self._flushing.abandon(plan)

    def flush(self) -> None:
        """Writes and syncs everything, here and now."""
        self.write()
        self._run(self.plan_flush())

    def _run(self, plan: FlushPlan) -> None:
        try:
            plan.run()
        except DiskFailed:
            self.abandon_flush(plan)
            raise
        self.finish_flush(plan)

    def close(self) -> None:
        """Leaves the files so that opening needs no scan."""
        plan = self.plan_close()
        self._run(plan)
        self.finish_close()

    def plan_close(self) -> FlushPlan:
        """The last flush: with it the log is whole on the disk, indexes and producers included."""
        self.write()
        assert self._truncation is None
        if self._is_untouched and not self.segments.has_changed and not self.epochs.is_dirty:
            return self._flushing.nothing(self.end_offset)
        self.segments.active.complete()
        self.snapshots.take(self.end_offset, self.producers)
        self._flushing.has_new_names = True
        plan = self.plan_flush()
        try:
            plan.add_files(self.segments.active.index_paths())
        except DiskFailed:
            self.abandon_flush(plan)
            raise
        self._flushing.add_epochs(plan)
        return plan

    def finish_close(self) -> None:
        """Gives back the open files. Also what is done with a log that is deleted, or whose disk has failed."""
        self._flushing.cancel()
        if self._truncation is not None:
            self._truncation.revoke()
        for segment in self.segments:
            segment.drop_handles()

    # -- truncating ----------------------------------------------------------------------------------------------

    @property
    def is_truncating(self) -> bool:
        """Whether the log is being cut: it takes no appends, and its segments must stay as they are."""
        return self._truncation is not None

    def plan_truncation(self, offset: Offset) -> Truncation | None:
        """Drops every batch that reaches `offset` or beyond. None when there is none.

        The log ends where its last batch does, as it would when reopened: below `offset` if a batch held it. It ends
        there at once; a worker must run the plan, and `finish_truncation` take it back, before it takes appends again.
        When the disk fails, here or there, the log must be reopened.
        """
        assert self._truncation is None, "one cut at a time"
        self.write()
        if offset >= self.end_offset:
            return None
        last = self.segments.floor(offset)
        if last is None:
            return self.plan_restart(offset)
        cut = last.cut_to(offset)
        end_offset = last.next_offset()
        if end_offset < self.log_start_offset:  # nothing is left that may be read
            return self.plan_restart(min(offset, self.log_start_offset))
        dropped = [segment for segment in reversed(self.segments) if segment.base_offset > offset]
        self.epochs.truncate_from_end(end_offset)
        return self._begin_truncation(end_offset, dropped, cut)

    def plan_restart(self, offset: Offset) -> Truncation:
        """Drops every record, to go on at `offset`; what `plan_truncation` says holds here, too.

        Until it has finished, the log is an empty one at its old start: a crash must not show what was deleted before.
        """
        self.write()
        self.log_start_offset = min(self.log_start_offset, offset)
        dropped = list(reversed(self.segments))
        self.epochs.clear()
        truncation = self._begin_truncation(self.log_start_offset, dropped, None)
        truncation.is_restart, truncation.end_offset = True, offset
        self.segments.add(self._new_segment(offset))
        return truncation

    def _begin_truncation(self, end_offset: Offset, dropped: list[Segment], cut: SegmentCut | None) -> Truncation:
        assert self._truncation is None
        for segment in dropped:
            segment.revoke_slices()
            segment.drop_handles()
            self.segments.remove(segment)
        self.truncations += 1
        self._flushing.cut(end_offset)
        self._is_untouched = False
        self._written = None
        self._end_at(end_offset)
        self._truncation = Truncation(
            self._files,
            self.directory,
            self._flushing.epochs_path,
            end_offset,
            dropped=[segment.base_offset for segment in dropped],
            swapped=self.replacement.forget(),
            cut=cut,
            kept=[KeptSegment(segment.base_offset, segment.size) for segment in self.segments],
            epochs=self.epochs.entries,
            snapshots=self.snapshots.copy(),
            index_bytes_max=self.config.segment_index_bytes,
            preallocated_bytes=self._preallocated_bytes,
        )
        return self._truncation

    def _end_at(self, offset: Offset) -> None:
        self.end_offset = self.appending.end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.gaps_end_offset = min(self.gaps_end_offset, offset)
        self.high_watermark = max(self.log_start_offset, min(self.high_watermark, offset))

    def finish_truncation(self, truncation: Truncation) -> None:
        """It has run: the log takes appends again."""
        assert self._truncation is truncation
        self._truncation = None
        if truncation.is_restart:
            self.log_start_offset = truncation.end_offset
            self._end_at(truncation.end_offset)
            self.names.restart(truncation.end_offset)
        self.producers.take_over(truncation.producers)
        self.producers.advance_high_watermark(self.high_watermark)
        self.snapshots.take_over(truncation.snapshots)
        for segment in truncation.doomed:
            self.doomed.add(segment, self.config.file_delete_delay_ms)
        if truncation.has_stored_epochs:
            self.epochs.mark_written(truncation.epochs)
        self._flushing.has_new_names = True
        if truncation.is_restart:
            logger.info("%s: emptied, to continue at offset %d", self.partition, self.end_offset)
        else:
            logger.info("%s: truncated to offset %d", self.partition, self.end_offset)

    def check_invariants(self) -> None:
        self.segments.check_invariants()
        self.producers.check_invariants()
        self.epochs.check_invariants()
        assert self.segments[0].base_offset <= self.log_start_offset or not self.segments[0].size
        assert self.log_start_offset <= self.high_watermark <= self.end_offset <= self.appending.end_offset
        assert self.recovery_point <= self.end_offset
        assert self.names.last_offset <= self.segments.active.base_offset
        assert (self.appending.staged is None) == (self.appending.end_offset == self.end_offset)
        assert self._written is None or self._written.marks[-1][0] + 1 == self.end_offset
