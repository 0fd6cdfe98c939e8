"""The log of one partition: records in, offsets out, kept in segments on disk.

How records come in and are read is in `barnabas.storage.appending`; here is what keeps them, and what ends them.

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
from itertools import islice
from typing import Final

from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.base.ids import Offset, SteadyMs, TimestampMs
from barnabas.storage.appending import AppendableLog
from barnabas.storage.checkpoints import write_leader_epochs
from barnabas.storage.flush import FlushPlan
from barnabas.storage.replay import rebuild_producers
from barnabas.storage.retention import Expiry, due_for_deletion
from barnabas.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment, remove_segment_files
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

DELETED_SUFFIX: Final = ".deleted"
SWAP_SUFFIX: Final = ".swap"
CLEANED_SUFFIX: Final = ".cleaned"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"


class Log(AppendableLog):
    """See the module's text."""

    __slots__ = ()

    # -- flushing ------------------------------------------------------------------------------------------------

    def must_flush(self, now_ms: SteadyMs) -> bool:
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
        if self.failure is not None:
            raise self.failure
        self._flushing.cancel()
        end_offset = self.segments.active.base_offset if complete_only else self.end_offset
        plan = FlushPlan(self._files, self._clock, end_offset, self.truncations)
        try:
            self._plan_files(plan, complete_only)
        except DiskFailed:
            plan.close()
            raise
        if self.epochs.is_dirty:
            plan.write_epochs(self._epochs_path, self.epochs.entries)
        self._flushing.begin(plan, self.directory, self._clock.steady_ms(), is_whole=not complete_only)
        return plan

    def _plan_files(self, plan: FlushPlan, complete_only: bool) -> None:
        # One that ends at the recovery point may have been completed, and its indexes with it, since that was reached.
        for segment in self.segments.since(self.recovery_point - 1):
            if segment is not self.segments.active:
                if segment.has_unstored_entries:  # there was no room when the log was opened
                    segment.store_indexes()
                plan.add_files([segment.path(LOG_SUFFIX), *segment.index_paths()])
            elif not complete_only:  # of the indexes what the files hold by now: mostly nothing since the last flush
                plan.add_files([segment.path(kind) for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)])
        plan.snapshots = self.snapshots.unsynced
        plan.add_files([self.snapshots.path(offset) for offset in plan.snapshots])

    def finish_flush(self, plan: FlushPlan) -> None:
        """The plan has run: what it covered is durable, unless a truncation has cut it meanwhile.

        Raises when the disk has failed meanwhile, be it in another log: nothing may be acknowledged then.
        """
        self._flushing.end(plan)
        if self.failure is not None:
            raise self.failure
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

    def delete_due_segments(self, count_max: int | None = None) -> int:
        """Applies retention, the oldest first; returns how many segments were taken out of the log."""
        if self._announced:
            return 0
        self.write()
        now_ms = self._clock.settled_ms()
        due = self._due_for_deletion(now_ms, count_max)
        if self.config.is_deleted and self.config.retention_ms >= 0:
            # A damaged index must neither delete a segment early nor keep it for ever: those that decide are asked.
            while unsure := [one for one in self.segments.first(due.count + 1) if not one.is_largest_sure]:
                for segment in unsure:
                    segment.sure_largest()
                due = self._due_for_deletion(now_ms, count_max)
        count = due.count
        if count == len(self.segments):
            try:
                self.roll()
            except DiskFull:
                count -= 1  # the active one stays for now; without the others there is room again
        if count:
            self._delete_oldest(count, due.reason)
        return count

    def _due_for_deletion(self, now_ms: TimestampMs, count_max: int | None) -> Expiry:
        return due_for_deletion(
            islice(self.segments.facts(self.end_offset), count_max),
            self.config,
            size_bytes=self.size_bytes,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )

    def _delete_oldest(self, count: int, reason: str) -> None:
        doomed = [self.segments[slot] for slot in range(count)]
        self.delete_records_before(max(self.log_start_offset, self.segments[count].base_offset))
        self._doom(doomed)
        first_offset = self.segments[0].base_offset
        self.snapshots.remove_where(lambda offset: offset < first_offset)
        logger.info("%s: deleted %d segments (%s)", self.partition, count, reason)

    def _doom(self, segments: Sequence[Segment]) -> None:
        """Takes segments out of the log; their files are renamed now and removed after `file.delete.delay.ms`."""
        self._is_untouched = False
        due_ms = self._clock.steady_ms() + self.config.file_delete_delay_ms
        for segment in segments:
            self.segments.remove(segment)
            segment.rename(DELETED_SUFFIX)
            segment.drop_handles()
            self._doomed.append((due_ms, segment))

    def take_doomed(self, now_ms: SteadyMs) -> list[Callable[[], None]]:
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
        self._take_back_replacement()
        self.truncations += 1
        self._flushing.cancel()
        # The newest goes first: a crash in between must not leave a hole.
        gone = [segment for segment in reversed(self.segments) if segment.base_offset > offset]
        for segment in gone:
            segment.revoke_slices()
        self._doom(gone)
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
        self._take_back_replacement()
        self.truncations += 1
        self._flushing.cancel()
        old = list(self.segments)
        for segment in old:
            segment.revoke_slices()
        self._doom(old)
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

    def announce_replacement(self, new: Sequence[Segment]) -> None:
        """Begins to put compacted segments, complete and synced under `.cleaned`, in the place of old ones.

        The directory must be synced then, by a worker; `complete_replacement` does the rest. A crash at any moment
        leaves one set or the other: once every new segment is called `.swap`, recovery finishes what was begun; before,
        it removes what is there of them. So that the two never mean different records, retention waits meanwhile, and a
        truncation takes the new ones away.
        """
        assert not self._announced
        self._announced = tuple(new)
        for segment in reversed(new):
            segment.rename(SWAP_SUFFIX)

    def complete_replacement(self, old: Sequence[Segment]) -> None:
        """The new segments are announced, durably: they take the place of the old ones."""
        new, self._announced = self._announced, ()
        self._doom(old)
        for segment in new:
            segment.attach(self._handles)
            segment.rename("")
            self.segments.add(segment)
        self._flushing.has_new_names = True
        first, last = old[0].base_offset, old[-1].base_offset
        kept = {segment.base_offset for segment in new}
        self.snapshots.remove_where(lambda taken: first < taken <= last and taken not in kept)

    def forget_replacement(self) -> None:
        """Nothing comes of what was announced; whoever did it removes the files."""
        self._announced = ()

    def _take_back_replacement(self) -> None:
        """Before other records take the place of those that were compacted."""
        if self._announced:
            for segment in self._announced:
                remove_segment_files(self._files, self.directory, segment.base_offset, SWAP_SUFFIX)
            self._files.sync_directory(self.directory)
            self._announced = ()

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
            return FlushPlan(self._files, self._clock, self.end_offset, self.truncations)
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
