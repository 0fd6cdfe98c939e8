"""What must be synced for a log to be durable up to an offset, gathered by its owner and run by a worker thread.

The plan opens its own descriptors, so that it shares nothing with the owner while it runs. Every dirty segment is
synced with its index files; entries that still wait in memory are not, and recovery makes them again. The leader epochs
are written before the recovery point may pass the records they name.

Two steps use names: syncing the directory and writing the leader epochs. Their owner cancels them before it truncates,
moves or closes the log under a plan that still runs: a cancelled step is not taken, now or later, and a cancelled plan
does not move the recovery point. The directory comes first: with no room for the epochs its names are durable
nevertheless, and expired segments can leave a full disk (`storage.log.expiry`).
"""

import os
from collections.abc import Iterable
from threading import Lock
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import File, FileSystem
from barnabas.base.ids import Offset
from barnabas.storage.checkpoints import write_leader_epochs
from barnabas.storage.log.epochs import EpochEntry, LeaderEpochs
from barnabas.storage.producers.snapshots import Snapshots
from barnabas.storage.segment.durable_names import DurableNames
from barnabas.storage.segment.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from barnabas.storage.segment.segments import Segments

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"


class FlushPlan:
    """Made by `Log.plan_flush`, run once anywhere, given back to `Log.finish_flush` or `Log.abandon_flush`."""

    __slots__ = (
        "_clock",
        "_files",
        "_lock",
        "_opened",
        "directory",
        "end_offset",
        "epochs",
        "epochs_path",
        "has_synced_names",
        "is_cancelled",
        "messages",
        "names",
        "seconds",
        "snapshots",
    )

    def __init__(self, files: FileSystem, clock: Clock, end_offset: Offset) -> None:
        self._files = files
        self._clock = clock
        self._opened: list[File] = []
        self._lock = Lock()
        self.is_cancelled = False
        self.end_offset = end_offset
        self.messages = 0
        self.seconds = 0.0
        """How long it ran, once it has."""
        self.snapshots: tuple[Offset, ...] = ()
        self.epochs_path = ""
        self.epochs: tuple[EpochEntry, ...] | None = None
        self.directory: str | None = None
        self.names: tuple[Offset, Offset] | None = None
        """The first and the last segment whose names are durable with the directory."""
        self.has_synced_names = False

    def add_file(self, path: str) -> None:
        self._opened.append(self._files.open(path, write=True))

    def add_files(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.add_file(path)

    def write_epochs(self, path: str, entries: tuple[EpochEntry, ...]) -> None:
        self.epochs_path = path
        self.epochs = entries

    def run(self) -> None:
        """Blocks until the disk has everything."""
        began = self._clock.monotonic()
        try:
            for file in self._opened:
                file.sync()
            with self._lock:
                if not self.is_cancelled:
                    self._store_names()
        finally:
            self.close()
        self.seconds = self._clock.monotonic() - began

    def _store_names(self) -> None:
        if self.directory is not None:
            self._files.sync_directory(self.directory)
            self.has_synced_names = True
        if self.epochs is not None:
            write_leader_epochs(self._files, self.epochs_path, self.epochs)

    def cancel(self) -> None:
        """For the owner, at any time. Waits for a step that has begun, which is as long as one small file takes."""
        with self._lock:
            self.is_cancelled = True

    def close(self) -> None:
        """Gives back the descriptors, run or not."""
        opened, self._opened = self._opened, []
        for file in opened:
            file.close()


class Flushing:
    """What a log has not flushed yet, and the plan that is on its way. Owner: the log."""

    __slots__ = (
        "_clock",
        "_directory",
        "_epochs",
        "_files",
        "_names",
        "_plan",
        "_segments",
        "_snapshots",
        "flushed_ms",
        "has_new_names",
        "messages",
    )

    def __init__(
        self,
        files: FileSystem,
        clock: Clock,
        directory: str,
        segments: Segments,
        snapshots: Snapshots,
        epochs: LeaderEpochs,
        names: DurableNames,
    ) -> None:
        self._files = files
        self._clock = clock
        self._directory = directory
        self._segments = segments
        self._snapshots = snapshots
        self._epochs = epochs
        self._names = names
        self.messages = 0
        """Written since the last flush, also by a process that was killed."""
        self.has_new_names = True
        """Files came or went since the last flush, which must become durable too."""
        self.flushed_ms = clock.steady_ms()
        self._plan: FlushPlan | None = None

    @property
    def is_running(self) -> bool:
        return self._plan is not None

    @property
    def has_messages(self) -> bool:
        """Whether a plan is on its way that makes all messages durable, not only complete segments."""
        return self._plan is not None and self._plan.messages > 0

    @property
    def epochs_path(self) -> str:
        return os.path.join(self._directory, LEADER_EPOCH_CHECKPOINT)

    def nothing(self, end_offset: Offset, *, is_cancelled: bool = False) -> FlushPlan:
        """A plan without anything to sync."""
        plan = FlushPlan(self._files, self._clock, end_offset)
        plan.is_cancelled = is_cancelled
        return plan

    def plan(self, recovery_point: Offset, end_offset: Offset, *, complete_only: bool) -> FlushPlan:
        """What makes the log durable from the recovery point on: all of it, or only the segments that are complete."""
        self.cancel()
        plan = self.nothing(end_offset)
        try:
            self._add_files(plan, recovery_point, complete_only)
        except DiskFailed:
            plan.close()
            raise
        if self._epochs.is_dirty:
            self.add_epochs(plan)
        if self.has_new_names:
            self._add_names(plan)
        if not complete_only:
            plan.messages, self.messages = self.messages, 0
            self.flushed_ms = self._clock.steady_ms()
        self._plan = plan
        return plan

    def plan_names(self, recovery_point: Offset) -> FlushPlan:
        """Only syncs the directory."""
        self.cancel()
        plan = self._plan = self.nothing(recovery_point)
        self._add_names(plan)
        return plan

    def _add_names(self, plan: FlushPlan) -> None:
        plan.directory = self._directory
        plan.names = self._segments[0].base_offset, self._segments.active.base_offset
        self.has_new_names = False

    def _add_files(self, plan: FlushPlan, recovery_point: Offset, complete_only: bool) -> None:
        # One that ends at the recovery point may have been completed, and its indexes with it, since that was reached.
        for segment in self._segments.since(recovery_point - 1):
            if segment is not self._segments.active:
                if segment.has_unstored_entries:  # there was no room when the log was opened
                    segment.store_indexes()
                plan.add_files([segment.path(LOG_SUFFIX), *segment.index_paths()])
            elif not complete_only:  # of the indexes what the files hold by now: mostly nothing since the last flush
                plan.add_files([segment.path(kind) for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)])
        plan.snapshots = self._snapshots.unsynced
        plan.add_files([self._snapshots.path(offset) for offset in plan.snapshots])

    def add_epochs(self, plan: FlushPlan) -> None:
        plan.write_epochs(self.epochs_path, self._epochs.entries)

    def finish(self, plan: FlushPlan) -> bool:
        """The plan has run; says whether the log is durable up to its end."""
        self._end(plan)
        if plan.is_cancelled:
            return False
        self._snapshots.mark_synced(plan.snapshots)
        if plan.epochs is not None:
            self._epochs.mark_written(plan.epochs)
        return True

    def abandon(self, plan: FlushPlan) -> None:
        """The plan has failed, or will not run: the next one covers what it would have covered."""
        plan.close()
        self._end(plan)
        self.has_new_names = True
        self.messages += plan.messages

    def _end(self, plan: FlushPlan) -> None:
        if self._plan is plan:
            self._plan = None
        if plan.has_synced_names and plan.names is not None and not plan.is_cancelled:
            self._names.first_offset, self._names.last_offset = plan.names

    def cancel(self) -> None:
        """A plan that still runs in a worker must not put anything back that the owner is about to change."""
        if self._plan is not None:
            self._plan.cancel()
            self.has_new_names = True

    def cut(self, end_offset: Offset) -> None:
        """The log is about to end here: what a running plan covers ends here, too."""
        self.cancel()
        if self._plan is not None:
            self._plan.end_offset = min(self._plan.end_offset, end_offset)
        self._names.cut(self._segments)
