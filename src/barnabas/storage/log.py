"""The log of one partition: records in, offsets out, kept in segments on disk.

Appending has two steps. `append` checks a batch, gives it its offsets and stages it in memory; `write` puts everything
that was staged since the last one into the active segment with one system call. An event loop stages all requests of a
tick and writes once; nothing staged is readable or acknowledged before. When a write fails, everything staged is undone
(offsets, producers, epochs) and the log is as if it had not been asked. An append is in the log exactly if, after
`write`, its last offset lies below the end offset.

```
 log start            high watermark        end offset      staged end
     |  readable records    |   written          |  staged       |
-----+----------------------+--------------------+---------------+--->  offsets
```

Flushing is lazy: `plan_flush` says what to sync, the plan runs in a worker thread, `finish_flush` moves the recovery
point. Deleting is lazy too: `delete_due_segments` renames, `take_doomed` hands over what a worker then removes.

Owner: one thread (a broker's event loop). It never waits here for anything but the page cache.
Crash: `barnabas.storage.recovery` opens what is left; everything below the recovery point is intact, above it a valid
prefix of what was written.
"""

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFailed, DiskFull, InvalidRecords
from barnabas.base.filesystem import Buffer, FileSystem
from barnabas.base.ids import NO_PRODUCER, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs, TopicPartition
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader, assign, split_batches
from barnabas.records.control import read_batch_marker
from barnabas.storage.checkpoints import write_leader_epochs
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.flush import Flushing, FlushPlan
from barnabas.storage.handles import Handles
from barnabas.storage.producer_state import Duplicate, Origin
from barnabas.storage.producers import Producers
from barnabas.storage.replay import rebuild_producers, track_producer
from barnabas.storage.retention import due_for_deletion
from barnabas.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    FoundTimestamp,
    Segment,
)
from barnabas.storage.segments import Segments
from barnabas.storage.settings import LogConfig
from barnabas.storage.snapshots import Snapshots
from barnabas.storage.staging import Appended, LogRead, Staged
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.storage.validate import accept_batch
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

DELETED_SUFFIX: Final = ".deleted"
SWAP_SUFFIX: Final = ".swap"
CLEANED_SUFFIX: Final = ".cleaned"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"


class Log:
    """See the module's text."""

    __slots__ = (
        "_clock",
        "_doomed",
        "_failure",
        "_files",
        "_flushing",
        "_handles",
        "_is_untouched",
        "_random",
        "_staged",
        "_staged_end",
        "_written",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "high_watermark",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "snapshots",
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
        log_start_offset: Offset,
        end_offset: Offset,
        recovery_point: Offset,
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
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        self.snapshots = snapshots
        self._staged: Staged | None = None
        self._staged_end = end_offset
        self._written: Staged | None = None
        """The last write, while it is in memory: until whoever called `write` has told those that wait for records."""
        self._failure: DiskFailed | None = None
        self._is_untouched = is_whole
        self._flushing = Flushing(clock.now_ms())
        self._doomed: list[tuple[TimestampMs, Segment]] = []
        self.truncations = 0

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def staged_end_offset(self) -> Offset:
        """The next offset that an append will get."""
        return self._staged_end

    @property
    def last_stable_offset(self) -> Offset:
        return self.producers.last_stable_offset(self.high_watermark)

    def advance_high_watermark(self, offset: Offset) -> None:
        """Everything below is on every in-sync replica: readable, and deletable by retention."""
        assert offset <= self.end_offset
        self.high_watermark = offset
        self.producers.advance_high_watermark(offset)

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self, records: Buffer, leader_epoch: LeaderEpoch, origin: Origin = Origin.CLIENT) -> Appended:
        """Stages batches that get their offsets here, on the leader. Raises without a trace when one is refused.

        A retried batch that the log has already is not staged again; the answer says where it is.
        """
        if not records:
            raise InvalidRecords("there is no batch to append")
        now_ms = self._clock.now_ms()
        config, size_bytes = self.config, len(records)
        if origin is Origin.CLIENT and config.is_stored_as_sent and size_bytes <= config.max_message_bytes:
            # What clients send most: one batch that needs nothing but its offsets. One call of the kernel does it all.
            header = kernel.admit_batch(
                records,
                self._staged_end,
                leader_epoch,
                config.is_compacted,
                now_ms,
                config.message_timestamp_before_max_ms,
                config.message_timestamp_after_max_ms,
            )
            if header is not None:
                return self._append_admitted(records, header, now_ms)
        return self._append_all(records, leader_epoch, origin, now_ms)

    def _append_admitted(self, batch: Buffer, header: BatchHeader, now_ms: TimestampMs) -> Appended:
        """Stages a batch that has been checked and has its offsets. Should it be refused now, they do no harm."""
        if header.producer_id > NO_PRODUCER:
            duplicate = self.producers.check(header, origin=Origin.CLIENT)
            if duplicate:
                return Appended(duplicate.base_offset, duplicate.last_offset, duplicate.timestamp, True)
        size_bytes = len(batch)
        self._check_fits(size_bytes)
        last_offset = header.base_offset + header.last_offset_delta
        self._make_room(size_bytes, header.max_timestamp, last_offset, now_ms)
        self._stage(header, batch)
        return Appended(header.base_offset, last_offset, NO_TIMESTAMP)

    def _append_all(self, records: Buffer, leader_epoch: LeaderEpoch, origin: Origin, now_ms: TimestampMs) -> Appended:
        """Stages all batches of a buffer, or none. A client sends one."""
        if origin is Origin.CLIENT:
            batches = [memoryview(records)]
        else:
            batches = [batch for _, batch in split_batches(records)]
        accepted = [accept_batch(batch, self.config, now_ms, origin) for batch in batches]
        total_bytes, count = 0, 0
        for header, batch, _ in accepted:
            total_bytes += len(batch)
            count += header.count
            if header.has_producer:
                duplicate = self._check_producer(header, batch, origin)
                if duplicate:
                    return Appended(duplicate.base_offset, duplicate.last_offset, duplicate.timestamp, True)
        base_offset = self._staged_end
        self._check_fits(total_bytes)
        self._make_room(total_bytes, accepted[0].header.max_timestamp, base_offset + count - 1, now_ms)
        for header, batch, _ in accepted:
            self._stage(assign(header, batch, self._staged_end, leader_epoch), batch)
        return Appended(base_offset, self._staged_end - 1, accepted[0].append_time_ms)

    def append_as_follower(self, records: Buffer) -> None:
        """Stages batches that a leader has given their offsets; they are checked, and never changed."""
        scan = kernel.scan_batches(records)
        if scan.problem or scan.valid_bytes != len(records):
            raise InvalidRecords(scan.problem or f"{len(records) - scan.valid_bytes} bytes of an incomplete batch")
        position = 0
        view = memoryview(records)
        for header in scan.headers:
            if header.base_offset < self._staged_end:
                raise InvalidRecords(f"offset {header.base_offset}, but the log ends at {self._staged_end}")
            batch = view[position : position + header.size_bytes]
            if header.has_producer:
                self._check_producer(header, batch, Origin.REPLICATION)
            self._make_room(header.size_bytes, header.max_timestamp, header.last_offset, self._clock.now_ms())
            self._stage(header, batch)
            position += header.size_bytes

    def _check_producer(self, header: BatchHeader, batch: memoryview, origin: Origin) -> Duplicate | None:
        if not header.is_control:
            return self.producers.check(header, origin=origin)
        marker = read_batch_marker(batch)
        if marker:
            self.producers.check_marker(header, coordinator_epoch=marker.coordinator_epoch, origin=origin)
        return None

    def _check_fits(self, size_bytes: int) -> None:
        if size_bytes > self.config.segment_bytes_max:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size_bytes} bytes do not fit into segment.bytes={self.config.segment_bytes_max}",
            )

    def _make_room(self, size_bytes: int, max_timestamp: TimestampMs, last_offset: Offset, now_ms: TimestampMs) -> None:
        """Rolls when the active segment must not take this append any more."""
        active, staged, config = self.segments.active, self._staged, self.config
        filled_bytes = active.size if staged is None else active.size + staged.size_bytes
        is_due = filled_bytes > 0 and (
            filled_bytes + size_bytes > config.segment_bytes_max
            or not active.accepts(last_offset)
            or active.waited_ms(now_ms, max_timestamp) > config.roll_after_ms - active.roll_jitter_ms
        )
        if is_due:
            try:
                self.write()
            except DiskFailed as error:
                self._failure = error  # those who staged before must hear of it from their own call of `write`
                raise
            self.roll()

    def _stage(self, header: BatchHeader, batch: Buffer) -> None:
        staged = self._staged
        if staged is None:
            staged = self._staged = Staged(self.producers.savepoint(), self.epochs.entries)
        if header.leader_epoch >= 0:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id > NO_PRODUCER:
            completed = track_producer(self.producers, header, batch)
            if completed and completed.is_aborted:
                staged.aborted.append(completed)
        size_bytes = len(batch)
        staged.buffers.append(batch)
        staged.headers.append(header)
        staged.size_bytes += size_bytes
        staged.messages += header.count
        self._staged_end = header.base_offset + header.last_offset_delta + 1

    def write(self) -> None:
        """Writes everything staged. When the disk refuses, all of it is undone and the error raised."""
        staged, self._staged = self._staged, None
        failure, self._failure = self._failure, None
        if staged is not None:
            if failure is None:
                failure = self._write(staged)
            if failure is not None:
                self.producers.rollback(staged.savepoint)
                self.epochs.restore(staged.epochs)
                self.epochs.truncate_from_start(self.log_start_offset)  # which may have moved meanwhile
                self._staged_end = self.end_offset
            self.producers.release()
        if failure is not None:
            raise failure

    def _write(self, staged: Staged) -> DiskFailed | None:
        active = self.segments.active
        self._is_untouched = False
        try:
            active.append(staged.buffers, staged.headers, self.config.index_interval_bytes)
        except DiskFailed as error:
            return error
        for completed in staged.aborted:
            active.transaction_index.append(AbortedTransaction.of(completed))
        self.end_offset = self._staged_end
        self._written = staged
        self._flushing.messages += staged.messages
        active.store_index_blocks()
        return None

    def roll(self, at_offset: Offset | None = None) -> Segment:
        """Begins a new active segment at the end of the log; the old one is complete from now on."""
        assert self._staged is None
        active = self.segments.active
        base_offset = self.end_offset if at_offset is None else at_offset
        if active.base_offset == base_offset:
            assert not active.size
            return active
        self._is_untouched = False
        active.complete()
        self.snapshots.take(base_offset, self.producers)
        segment = self._new_segment(base_offset)
        self.segments.add(segment)
        self._flushing.has_new_names = True
        logger.info("%s: rolled to a new segment at offset %d", self.partition, base_offset)
        return segment

    def _new_segment(self, base_offset: Offset) -> Segment:
        segment = Segment(
            self._files,
            self._handles,
            self.directory,
            base_offset,
            index_bytes_max=self.config.segment_index_bytes,
            created_ms=self._clock.now_ms(),
        )
        segment.roll_jitter_ms = int(self._random.random() * self.config.roll_jitter_ms_max)
        segment.create(self.config.segment_bytes_max if self.config.preallocate else 0)
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
        if written is None or written.size_bytes > max_bytes or written.headers[0].base_offset != offset:
            return None
        return b"".join(written.buffers)

    def forget_written(self) -> None:
        """Everybody has been told: the buffers are given back."""
        self._written = None

    def find_timestamp(self, target: TimestampMs) -> FoundTimestamp | None:
        """The first record whose timestamp is at least `target`."""
        return self.segments.find_timestamp(target, self.log_start_offset)

    def find_largest_timestamp(self) -> FoundTimestamp | None:
        """The first record with the largest timestamp of all."""
        return self.segments.find_largest_timestamp(self.log_start_offset)

    def aborted_transactions(self, offset: Offset, upper_offset: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of this range must leave out."""
        return self.segments.aborted_transactions(offset, upper_offset)

    # -- flushing ------------------------------------------------------------------------------------------------

    def must_flush(self, now_ms: TimestampMs) -> bool:
        """Whether `flush.messages` or `flush.ms` want what was written to be durable before it is acknowledged."""
        return self.recovery_point < self.end_offset and self._flushing.is_asked(self.config, now_ms)

    @property
    def is_flushing(self) -> bool:
        """Whether a plan is on its way."""
        return self._flushing.is_running

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether complete segments wait for a flush: a broker does it some time after each roll."""
        return self.segments.active.base_offset > self.recovery_point

    def plan_flush(self, *, complete_only: bool = False) -> FlushPlan:
        """What must be synced for the log to be durable up to its present end, or to that of its complete segments."""
        assert self._staged is None
        self._flushing.cancel()
        end_offset = self.segments.active.base_offset if complete_only else self.end_offset
        plan = FlushPlan(self._files, end_offset, self.truncations)
        try:
            self._plan_files(plan, complete_only)
        except DiskFailed:
            plan.close()
            raise
        if self.epochs.is_dirty:
            plan.write_epochs(self._epochs_path, self.epochs.entries)
        self._flushing.begin(plan, self.directory, self._clock.now_ms(), is_whole=not complete_only)
        return plan

    def _plan_files(self, plan: FlushPlan, complete_only: bool) -> None:
        # One that ends at the recovery point may have been completed, and its indexes with it, since that was reached.
        for segment in self.segments.since(self.recovery_point - 1):
            if segment is not self.segments.active:
                plan.add_files([segment.path(LOG_SUFFIX), *segment.index_paths()])
            elif not complete_only:  # of the indexes what the files hold by now: mostly nothing since the last flush
                plan.add_files([segment.path(kind) for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)])
        plan.snapshots = self.snapshots.unsynced
        plan.add_files([self.snapshots.path(offset) for offset in plan.snapshots])

    def finish_flush(self, plan: FlushPlan) -> None:
        """The plan has run: what it covered is durable, unless a truncation has cut it meanwhile."""
        self._flushing.end(plan)
        self.snapshots.mark_synced(plan.snapshots)
        if plan.truncations == self.truncations and not plan.is_cancelled:
            self.recovery_point = max(self.recovery_point, plan.end_offset)
            if plan.epochs is not None:
                self.epochs.mark_written(plan.epochs)

    def abandon_flush(self, plan: FlushPlan) -> None:
        """The plan has failed, or will not run: the next one covers what it would have covered."""
        self._flushing.abandon(plan)

    @property
    def _epochs_path(self) -> str:
        return os.path.join(self.directory, LEADER_EPOCH_CHECKPOINT)

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

    # -- deleting ------------------------------------------------------------------------------------------------

    def delete_records_before(self, offset: Offset) -> None:
        """Moves the start of the log up; whole segments below it go with the next `delete_due_segments`."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the high watermark {self.high_watermark}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.remove_below(offset)
            logger.info("%s: the log now starts at offset %d", self.partition, offset)

    def delete_due_segments(self) -> int:
        """Applies retention; returns how many segments were taken out of the log."""
        self.write()
        now_ms = self._clock.now_ms()
        due = due_for_deletion(
            self.segments.facts(self.end_offset),
            self.config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        count = due.count
        if count == len(self.segments):
            try:
                self.roll()
            except DiskFull:
                count -= 1  # the active one stays for now; without the others there is room again
        if count:
            self._delete_oldest(count, due.reason, now_ms)
        return count

    def _delete_oldest(self, count: int, reason: str, now_ms: TimestampMs) -> None:
        doomed = [self.segments[slot] for slot in range(count)]
        self.delete_records_before(max(self.log_start_offset, self.segments[count].base_offset))
        self._doom(doomed, now_ms)
        first_offset = self.segments[0].base_offset
        self.snapshots.remove_where(lambda offset: offset < first_offset)
        logger.info("%s: deleted %d segments (%s)", self.partition, count, reason)

    def _doom(self, segments: Sequence[Segment], now_ms: TimestampMs) -> None:
        """Takes segments out of the log; their files are renamed now and removed after `file.delete.delay.ms`."""
        self._is_untouched = False
        for segment in segments:
            self.segments.remove(segment)
            segment.rename(DELETED_SUFFIX)
            segment.drop_handles()
            self._doomed.append((now_ms + self.config.file_delete_delay_ms, segment))

    def take_doomed(self, now_ms: TimestampMs) -> list[Callable[[], None]]:
        """The removals that are due, each for a worker thread to call."""
        if not self._doomed:
            return []
        due = [segment for due_ms, segment in self._doomed if due_ms <= now_ms]
        self._doomed = [(due_ms, segment) for due_ms, segment in self._doomed if due_ms > now_ms]
        return [segment.remove_files for segment in due]

    # -- truncating and replacing --------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> None:
        """Drops every batch that reaches `offset` or beyond: a follower drops what its leader never had.

        The log then ends where its last batch does, as it would when opened anew: below `offset` if a batch held it.
        """
        self.write()
        if offset >= self.end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.restart_at(offset)
            return
        self.truncations += 1
        self._flushing.cancel()
        now_ms = self._clock.now_ms()
        # The newest goes first: a crash in between must not leave a hole.
        gone = [segment for segment in reversed(self.segments) if segment.base_offset > offset]
        for segment in gone:
            segment.revoke_slices()
        self._doom(gone, now_ms)
        self.segments.active.truncate_to(offset)
        end_offset = self.segments.active.next_offset()
        if end_offset < self.log_start_offset:  # nothing is left that may be read
            self.restart_at(min(offset, self.log_start_offset))
            return
        offset = end_offset
        self._end_at(offset)
        self.epochs.truncate_from_end(offset)
        self.snapshots.remove_where(lambda taken: taken > offset)
        rebuild_producers(self.producers, self.segments, self.snapshots, from_offset=offset)
        self.producers.advance_high_watermark(self.high_watermark)
        self._store_epochs()
        logger.info("%s: truncated to offset %d", self.partition, offset)

    def restart_at(self, offset: Offset) -> None:
        """Drops every record and goes on at `offset`. If the disk refuses, the log has to be opened anew."""
        self.write()
        self.truncations += 1
        self._flushing.cancel()
        now_ms = self._clock.now_ms()
        old = list(self.segments)
        for segment in old:
            segment.revoke_slices()
        self._doom(old, now_ms)
        self.segments.add(self._new_segment(offset))
        self.snapshots.remove_where(lambda taken: True)
        self.producers.clear()
        self.epochs.clear()
        self._store_epochs()
        self.log_start_offset = offset
        self._end_at(offset)
        logger.info("%s: emptied, to go on at offset %d", self.partition, offset)

    def _store_epochs(self) -> None:
        """On a full disk the next flush does it: recovery does not believe epochs from the recovery point on."""
        with suppress(DiskFull):
            write_leader_epochs(self._files, self._epochs_path, self.epochs.entries)
            self.epochs.mark_written(self.epochs.entries)

    def _end_at(self, offset: Offset) -> None:
        self._is_untouched = False
        self._written = None
        self.end_offset = self._staged_end = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.high_watermark = max(self.log_start_offset, min(self.high_watermark, offset))

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Puts compacted segments, which are complete and synced under `.cleaned`, in the place of the old ones.

        A crash at any moment leaves one set or the other: once every new segment is called `.swap`, recovery finishes
        what was begun; before, it removes what is there of them.
        """
        now_ms = self._clock.now_ms()
        for segment in reversed(new):
            segment.rename(SWAP_SUFFIX)
        self._files.sync_directory(self.directory)
        self._doom(old, now_ms)
        for segment in new:
            segment.attach(self._handles)
            segment.rename("")
            self.segments.add(segment)
        self._flushing.has_new_names = True
        first, last = old[0].base_offset, old[-1].base_offset
        kept = {segment.base_offset for segment in new}
        self.snapshots.remove_where(lambda taken: first < taken <= last and taken not in kept)

    # -- ending --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leaves the files so that opening needs no scan."""
        plan = self.plan_close()
        self._run(plan)
        self.finish_close()

    def plan_close(self) -> FlushPlan:
        """The last flush: with it the log is whole on the disk, indexes and producers included."""
        self.write()
        if self._is_untouched and not self.epochs.is_dirty:
            return FlushPlan(self._files, self.end_offset, self.truncations)
        self.segments.active.complete()
        self.snapshots.take(self.end_offset, self.producers)
        self._flushing.has_new_names = True
        plan = self.plan_flush()
        try:
            plan.add_files(self.segments.active.index_paths())
        except DiskFailed:
            self.abandon_flush(plan)
            raise
        plan.write_epochs(self._epochs_path, self.epochs.entries)
        return plan

    def finish_close(self) -> None:
        """Gives back the open files. Also what is done with a log that is deleted, or whose disk has failed."""
        self._flushing.cancel()
        for segment in self.segments:
            segment.drop_handles()

    def check_invariants(self) -> None:
        self.segments.check_invariants()
        self.producers.check_invariants()
        self.epochs.check_invariants()
        assert self.segments[0].base_offset <= self.log_start_offset or not self.segments[0].size
        assert self.log_start_offset <= self.high_watermark <= self.end_offset <= self._staged_end
        assert self.recovery_point <= self.end_offset
        assert (self._staged is None) == (self._staged_end == self.end_offset)
        assert self._written is None or self._written.headers[-1].last_offset + 1 == self.end_offset
