"""What a broker's logs need from time to time: flushes, retention, removal of files, expiry, checkpoints, compaction.

`due_in_slices` is meant to be called about once a second, by the owner of the logs. It does at once what is quick
(retention renames, producers expire) and yields jobs for what may block; between them it pauses, because there may be
ten thousand logs and an event loop must not stand still for them. A log that was just written to is asked by itself
with `flush_if_due`, so that `flush.messages` does not wait for the round; one flush covers all that was written before
it began, and a log has one at a time: that is group commit.

Intervals go by the steady clock, the age of records by the settled one (`barnabas.base.clock`).

| what | how often |
|---|---|
| flush | `flush.messages`, `flush.ms`, after a roll, and while expired segments wait for durable names |
| retention | `log.retention.check.interval.ms`; every round in a log whose expired segments had to wait |
| removal of deleted files and partitions | once `file.delete.delay.ms` has passed |
| new indexes for a segment | when a reader found that the old ones are damaged |
| expiry of producers | `producer.id.expiration.check.interval.ms` |
| recovery points | `log.flush.offset.checkpoint.interval.ms` |
| log starts | `log.flush.start.offset.checkpoint.interval.ms`; one that a client moved, before the answer |
| high watermarks | every five seconds |
| compaction | at once while there is something to do, `log.cleaner.backoff.ms` after there was nothing |

Checkpoints are never ahead of the disk: a recovery point moves only after the sync it stands for. They are written one
at a time per directory, and only when they have changed.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import SteadyMs
from barnabas.base.metrics import Histogram
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.directories.directories import LogDirectories
from barnabas.storage.directories.directory import CheckpointFile, CheckpointVersion, LogDirectory
from barnabas.storage.log.expiry import delete_due_segments
from barnabas.storage.log.log import Log
from barnabas.storage.log.reindexing import Reindexing
from barnabas.storage.settings import LogManagerConfig
from barnabas.storage.work import Job, Work

logger = logging.getLogger(__name__)

HIGH_WATERMARK_INTERVAL_MS: Final = 5_000
LOGS_TOGETHER: Final = 250
"""Logs that are looked at between two pauses: about a millisecond."""
RETENTION_LOGS_TOGETHER: Final = 50
SEGMENTS_TOGETHER: Final = 50
"""Segments of a log that retention takes between two pauses: each is some renames."""
REMOVALS_TOGETHER: Final = 16
"""Directories that one job removes."""

OnFailure: TypeAlias = Callable[[LogDirectory, DiskFailed], None]
OnFlushed: TypeAlias = Callable[[Log, DiskFailed | None], None]


@dataclass(frozen=True, slots=True)
class _DoomedDirectory:
    due_ms: SteadyMs
    directory: LogDirectory
    path: str


class _Timer:
    """Something that is due every so often, the first time after a delay."""

    __slots__ = ("_due_ms", "_interval_ms")

    def __init__(self, first_ms: SteadyMs, interval_ms: int) -> None:
        self._due_ms = first_ms
        self._interval_ms = interval_ms

    def strikes(self, now_ms: SteadyMs) -> bool:
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._interval_ms
        return True

    def hurry(self) -> None:
        self._due_ms = 0


class Housekeeping:
    """Owner: the log manager; it touches only directories that are online."""

    def __init__(
        self,
        files: FileSystem,
        config: LogManagerConfig,
        directories: LogDirectories,
        *,
        clock: Clock,
        on_failure: OnFailure,
        cleaner: LogCleaner | None,
        flush_seconds: Histogram,
    ) -> None:
        self._files = files
        self._config = config
        self._directories = directories
        self._on_failure = on_failure
        self._clock = clock
        self._cleaner = cleaner
        self._flush_seconds = flush_seconds
        self.on_flushed: OnFlushed = lambda log, error: None
        self._doomed: list[_DoomedDirectory] = []
        now_ms = clock.steady_ms()
        first_ms = now_ms + config.log_initial_task_delay_ms
        self._retention = _Timer(first_ms, config.log_retention_check_interval_ms)
        self._recovery_points = _Timer(first_ms, config.log_flush_offset_checkpoint_interval_ms)
        self._start_offsets = _Timer(first_ms, config.log_flush_start_offset_checkpoint_interval_ms)
        self._high_watermarks = _Timer(now_ms + HIGH_WATERMARK_INTERVAL_MS, HIGH_WATERMARK_INTERVAL_MS)
        self._expiry = _Timer(
            now_ms + config.producer_id_expiration_check_interval_ms, config.producer_id_expiration_check_interval_ms
        )

    def reconfigure(self, config: LogManagerConfig) -> None:
        """Intervals are those of the start."""
        self._config = config

    def due_in_slices(self, now_ms: SteadyMs) -> Iterator[Work | None]:
        """The jobs that are due, and None wherever the owner may do other things before it goes on."""
        settled_ms = self._clock.settled_ms()  # a clock that was set is noticed soon, whether or not anything is due
        yield from self._apply_retention(now_ms)
        is_expiry_due = self._expiry.strikes(now_ms)
        for number, (directory, log) in enumerate(self._online(), 1):
            if is_expiry_due and len(log.producers):
                log.producers.expire(settled_ms, self._config.producer_id_expiration_ms)
            if log.has_expired_segments:
                while self._delete_due_segments(directory, log):
                    yield None
            if work := self.flush_if_due(directory, log, now_ms):
                yield work
            if removals := log.doomed.take(now_ms):
                yield self._removal(f"remove segments of {log.partition}", directory, removals)
            if log.segments.distrusted and (work := self._reindexing(directory, log)):
                yield work
            if number % LOGS_TOGETHER == 0:
                yield None
        yield from self._removals(now_ms)
        yield from self._checkpoints(now_ms)
        yield from self._cleaning()

    def _online(self) -> Iterator[tuple[LogDirectory, Log]]:
        """Every served log. One that takes its directory offline on the way ends that directory's turn."""
        for directory in self._directories:
            for partition, log in list(directory.logs.items()):
                if not directory.is_online:
                    break
                if directory.logs.get(partition) is log:  # it may have been deleted during a pause
                    yield directory, log

    # -- flushing ------------------------------------------------------------------------------------------------

    def flush_if_due(self, directory: LogDirectory, log: Log, now_ms: SteadyMs) -> Work | None:
        """Makes what is written durable, if it is time: all of it, or after a roll the segments that are complete.

        With it the directory is synced, if names have changed, or without it when expired segments wait for that.

        A log with staged records has its turn after they are written: who staged them must hear how that went.
        """
        if log.is_flushing or log.is_truncating or log.staged_end_offset != log.end_offset:
            return None
        must_flush = log.must_flush(now_ms)
        try:
            if must_flush or log.has_unflushed_segments:
                plan = log.plan_flush(complete_only=not must_flush)
            elif log.must_sync_names:
                plan = log.plan_name_sync()
            else:
                return None
        except DiskFailed as error:
            self._flush_failed(directory, log, error)
            if not (directory.is_online and log.must_sync_names):
                return None
            plan = log.plan_name_sync()

        def failed(error: DiskFailed) -> None:
            log.abandon_flush(plan)
            self._flush_failed(directory, log, error)

        def finish(_: None) -> None:
            log.finish_flush(plan)
            self._flush_seconds.observe(plan.seconds)
            self.on_flushed(log, None)

        return Job(f"flush {log.partition}", run=plan.run, finish=finish, failed=failed)

    def _flush_failed(self, directory: LogDirectory, log: Log, error: DiskFailed) -> None:
        """Notifies those that wait for the records first: when the directory goes offline, they are gone too."""
        self.on_flushed(log, error)
        self._on_failure(directory, error)

    # -- deleting ------------------------------------------------------------------------------------------------

    def _apply_retention(self, now_ms: SteadyMs) -> Iterator[None]:
        if not self._retention.strikes(now_ms):
            return
        for number, (directory, log) in enumerate(self._online(), 1):
            while self._delete_due_segments(directory, log):
                yield None
            if number % RETENTION_LOGS_TOGETHER == 0:
                yield None

    def _delete_due_segments(self, directory: LogDirectory, log: Log) -> bool:
        """Whether there may be more to delete."""
        if directory.logs.get(log.partition) is not log or log.is_truncating:
            return False
        try:
            if self._cleaner is not None and log.config.is_compacted:
                self._cleaner.roll_overdue(log)
            deleted = delete_due_segments(
                log,
                self._clock,
                stored_start=directory.start_offsets.stored.get(log.partition, 0),
                count_max=SEGMENTS_TOGETHER,
            )
            if log.has_expired_segments:
                self.hurry_start_offsets()
            return deleted == SEGMENTS_TOGETHER
        except DiskFailed as error:
            self._on_failure(directory, error)
            return False

    def doom(self, directory: LogDirectory, path: str, due_ms: SteadyMs) -> None:
        """A deleted partition's directory, to be removed when it is time."""
        self._doomed.append(_DoomedDirectory(due_ms, directory, path))

    def _removals(self, now_ms: SteadyMs) -> Iterator[Work]:
        due: dict[str, tuple[LogDirectory, list[str]]] = {}
        left = []
        for doomed in self._doomed:
            if doomed.due_ms > now_ms:
                left.append(doomed)
            elif doomed.directory.is_online:
                due.setdefault(doomed.directory.path, (doomed.directory, []))[1].append(doomed.path)
        self._doomed = left
        for directory, paths in due.values():
            for start in range(0, len(paths), REMOVALS_TOGETHER):
                together = paths[start : start + REMOVALS_TOGETHER]
                removals = [partial(self._files.remove_tree, path) for path in together]
                yield self._removal(f"remove {', '.join(together)}", directory, removals)

    def _removal(self, title: str, directory: LogDirectory, removals: Sequence[Callable[[], None]]) -> Work:
        """What a failed removal leaves behind is found and removed at the next start."""

        def run() -> None:
            for remove in removals:
                remove()

        return Job(title, run=run, finish=_nothing, failed=partial(self._on_failure, directory))

    def _reindexing(self, directory: LogDirectory, log: Log) -> Work | None:
        """New indexes for one segment whose old ones contradict its log; the others have their turn in later rounds."""
        if log.is_truncating or log.staged_end_offset != log.end_offset:
            return None
        segment = log.segments.distrusted[0]
        try:
            if segment is log.segments.active:
                log.roll()
        except DiskFailed as error:
            self._on_failure(directory, error)
            return None
        log.segments.distrusted.remove(segment)
        job = Reindexing(self._files, log, segment)

        def failed(error: DiskFailed) -> None:
            log.segments.distrusted.append(segment)
            self._on_failure(directory, error)

        return Job(f"index {segment.path('')}", run=job.run, finish=lambda _: job.finish(), failed=failed)

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def hurry_start_offsets(self) -> None:
        """They could not be written when a client moved them: the next round tries again."""
        self._start_offsets.hurry()

    def _checkpoints(self, now_ms: SteadyMs) -> Iterator[Work | None]:
        """One file at a time: what it says is gathered in one go, because it must fit together."""
        with_points = self._recovery_points.strikes(now_ms)
        with_starts = self._start_offsets.strikes(now_ms)
        with_watermarks = self._high_watermarks.strikes(now_ms)
        if not (with_points or with_starts or with_watermarks):
            return
        for directory in self._directories:
            if directory.is_checkpointing and with_starts:
                self.hurry_start_offsets()
            if not directory.is_online or directory.is_checkpointing:
                continue
            versions = []
            for checkpoint, current, is_due in (
                (directory.recovery_points, directory.current_recovery_points, with_points),
                (directory.start_offsets, directory.current_start_offsets, with_starts),
                (directory.high_watermarks, directory.current_high_watermarks, with_watermarks),
            ):
                if is_due and checkpoint.is_news(offsets := current()):
                    versions.append((checkpoint, checkpoint.prepare(offsets)))
                yield None
            if versions and directory.is_online:
                yield self._checkpoint(directory, versions)

    def _checkpoint(
        self, directory: LogDirectory, versions: Sequence[tuple[CheckpointFile, CheckpointVersion]]
    ) -> Work:
        directory.is_checkpointing = True

        def run() -> None:
            for checkpoint, version in versions:
                checkpoint.write(version)

        def finish(_: None) -> None:
            directory.is_checkpointing = False

        def failed(error: DiskFailed) -> None:
            directory.is_checkpointing = False
            self._on_failure(directory, error)

        return Job(f"checkpoint {directory.path}", run=run, finish=finish, failed=failed)

    # -- compaction ----------------------------------------------------------------------------------------------

    def _cleaning(self) -> Iterator[Work | None]:
        """The one place where compaction is asked for. The cleaner limits how much of it goes on at a time."""
        if self._cleaner is not None:
            yield from self._cleaner.look(log for _, log in self._online() if log.config.is_compacted)
            while work := self._cleaner.next_job():
                yield work


def _nothing(_: None) -> None:
    pass
