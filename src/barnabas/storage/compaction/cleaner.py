"""Chooses the log that needs compaction most, and remembers how far each one is compacted.

`cleaner-offset-checkpoint` in a log directory names, per partition, the first dirty offset. It is written after a pass
was handed over; one that is lost or old only costs work. A log that was truncated below it must say so
(`truncated`), because other records stand there now.

Owner: the thread that owns the logs. It lets the cleaner look at the logs, some at a time, then asks for the next piece
of work, has a worker run it, and finishes it; each piece is followed by the next one, so that nothing but the throttle
(`log.cleaner.io.max.bytes.per.second`) slows compaction down. There are never more passes under way than
`log.cleaner.threads`, and never two over one log. After it found nothing to do, the cleaner looks again when
`log.cleaner.backoff.ms` have passed.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from random import Random
from threading import Lock
from typing import Final, TypeAlias

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError, CorruptBatch, DiskFailed, DiskFull
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset, TopicPartition
from barnabas.base.logs import RepeatedWarning
from barnabas.records.compression import EXPANDED_BYTES_MAX
from barnabas.storage.checkpoints import CLEANER_OFFSETS, CorruptCheckpoint, read_offsets, write_offsets
from barnabas.storage.compaction.compaction_job import SECRET_BYTES, CleanerSettings, CleaningJob, CleaningTotals
from barnabas.storage.compaction.compaction_plan import Cleanable, find_cleanable, first_dirty_offset, is_roll_due
from barnabas.storage.compaction.throttle import Throttle
from barnabas.storage.log.log import Log
from barnabas.storage.segment.transaction_index import CorruptTransactionIndex
from barnabas.storage.settings import LogManagerConfig
from barnabas.storage.work import Job, Work

logger = logging.getLogger(__name__)

_KEY_MAP_LOAD_MAX: Final = 0.9
"""The key map never fills further than this."""
_KEY_MAP_BYTES_MAX: Final = 2**31 - 1
_IO_BYTES_MIN: Final = 64 * 1024
_IO_BYTES_MAX: Final = 64 << 20
"""Whatever the settings say, a pass takes no more memory than this for its keys, and to read and write with."""
_WARNING_SECONDS: Final = 60.0
_LOGS_TOGETHER: Final = 100
"""Looking at one takes some ten microseconds, more when it has many segments."""

_LogKey: TypeAlias = tuple[str, TopicPartition]
"""A partition may lie in two log directories for a while, when it moves from one to the other."""


class LogCleaner:
    """The compaction of all logs of a broker."""

    def __init__(
        self,
        files: FileSystem,
        clock: Clock,
        random: Random,
        config: LogManagerConfig,
        on_failure: Callable[[str, DiskFailed], None],
        is_served: Callable[[Log], bool] = lambda log: True,
        prepare_point: Callable[[Log], Callable[[], None]] = lambda log: lambda: None,
    ) -> None:
        """`on_failure` is called with a log directory whose disk fails; a full disk is only waited for.

        `is_served` tells whether a log that was looked at a while ago is still the one to compact. `prepare_point`
        gives what stores its recovery point, below which a pass stays: recovery takes gaps above it for losses.
        """
        self._files = files
        self._clock = clock
        self._random = random
        self._on_failure = on_failure
        self._throttle = Throttle(clock, config.log_cleaner_io_max_bytes_per_second)
        self._is_served = is_served
        self._prepare_point = prepare_point
        self.reconfigure(config)
        self._offsets: dict[str, dict[TopicPartition, Offset]] = {}
        self._unwritten: list[str] = []
        """Log directories whose checkpoint is older than what is known."""
        self._checkpoint_lock = Lock()
        self._jobs: dict[_LogKey, CleaningJob] = {}
        self._paused: list[CleaningJob] = []
        """Those of the jobs that wait for their next turn."""
        self._due: deque[Log] = deque()
        """Logs that were found due, the dirtiest first."""
        self._is_ended = False
        self._damaged: set[_LogKey] = set()
        self._waiting = RepeatedWarning(logger, clock.monotonic, _WARNING_SECONDS)
        self._told_unread: set[_LogKey] = set()
        """Logs whose batches that expand too far have been reported."""
        self._look_again_ms = 0
        self._ended = CleaningTotals()
        """Of the passes that ended."""
        self.passes = 0
        """That ended, successful or not."""
        self.dirty_ratio_max = 0.0
        """Of the dirtiest log when work was last looked for."""

    def reconfigure(self, config: LogManagerConfig) -> None:
        """Passes that have begun go on with the memory that they began with, and with the new speed."""
        self._config = config
        self._throttle.limit(config.log_cleaner_io_max_bytes_per_second)
        load = min(config.log_cleaner_io_buffer_load_factor, _KEY_MAP_LOAD_MAX) / _KEY_MAP_LOAD_MAX
        self._settings = CleanerSettings(
            key_map_bytes=min(
                int(config.log_cleaner_dedupe_buffer_size / config.log_cleaner_threads * load), _KEY_MAP_BYTES_MAX
            ),
            io_bytes=min(
                max(_IO_BYTES_MIN, config.log_cleaner_io_buffer_size // config.log_cleaner_threads), _IO_BYTES_MAX
            ),
        )

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def running_count(self) -> int:
        """Passes that are under way."""
        return len(self._jobs)

    @property
    def damaged_count(self) -> int:
        """Logs that are not compacted until they are repaired."""
        return len(self._damaged)

    def totals(self) -> CleaningTotals:
        """What all passes have done so far, those under way included."""
        return sum((job.totals for job in self._jobs.values()), self._ended)

    # -- how far -------------------------------------------------------------------------------------------------

    def first_dirty_offset(self, log: Log) -> Offset:
        directory, partition = _key(log)
        return first_dirty_offset(self._known(directory).get(partition), log.log_start_offset, log.end_offset)

    def truncated(self, log: Log, offset: Offset) -> None:
        """The log was cut: what comes at `offset` and after is new. To be followed by `write_checkpoint`."""
        directory, partition = _key(log)
        known = self._known(directory)
        if known.get(partition, -1) > offset:
            known[partition] = offset

    def forget(self, log: Log) -> None:
        """The log is deleted, moved, or not compacted any more."""
        directory, partition = key = _key(log)
        self.cancel(log)
        self._damaged.discard(key)
        self._told_unread.discard(key)
        self._known(directory).pop(partition, None)

    def keep_only(self, directory: str, partitions: Collection[TopicPartition]) -> None:
        """Forgets all other partitions: new ones of the same names would take over their checkpointed offsets."""
        known = self._known(directory)
        gone = [partition for partition in known if partition not in partitions]
        for partition in gone:
            del known[partition]
        if gone:
            self._unwritten.append(directory)

    def write_checkpoint(self, directory: str) -> None:
        """Writes how far the logs of a directory are compacted. Syncs, so it is for a worker thread."""
        with self._checkpoint_lock:
            write_offsets(self._files, os.path.join(directory, CLEANER_OFFSETS), dict(self._known(directory)))

    def _known(self, directory: str) -> dict[TopicPartition, Offset]:
        """Without a checkpoint, or with a damaged one, everything in the directory counts as dirty."""
        if directory not in self._offsets:
            try:
                self._offsets[directory] = read_offsets(self._files, os.path.join(directory, CLEANER_OFFSETS))
            except CorruptCheckpoint as problem:
                logger.warning("compaction starts over: %s", problem)
                self._offsets[directory] = {}
        return self._offsets[directory]

    # -- work ----------------------------------------------------------------------------------------------------

    def look(self, logs: Iterable[Log]) -> Iterator[None]:
        """Finds the logs that are due; pauses every `_LOGS_TOGETHER` logs, so that the owner can do other things.

        Does nothing while some are waiting, or when there was nothing to do a moment ago.
        """
        if self._due or len(self._jobs) >= self._config.log_cleaner_threads or self._is_backing_off:
            return
        found: list[tuple[float, Log]] = []
        self.dirty_ratio_max = 0.0
        for number, log in enumerate(logs, 1):
            cleanable = self._cleanable_now(log)
            if cleanable is not None:
                found.append((cleanable.dirty_ratio, log))
            if number % _LOGS_TOGETHER == 0:
                yield
        found.sort(key=lambda one: one[0], reverse=True)
        self._due.extend(log for _, log in found)
        if not found and not self._jobs:
            self._back_off()

    def next_job(self, logs: Iterable[Log] | None = None) -> Work | None:
        """The next piece of work: to write a checkpoint, to go on with a pass, or to begin with the dirtiest log.

        With `logs` it looks at these first.
        """
        if self._is_ended:
            return None
        if self._unwritten:
            return self._checkpoint_work(self._unwritten.pop(0))
        if self._paused:
            return self._pass_work(self._paused.pop(0))
        if len(self._jobs) >= self._config.log_cleaner_threads:
            return None
        if logs is not None:
            for _ in self.look(logs):
                pass
        while self._due and not self._is_backing_off:
            log = self._due.popleft()
            if self._is_served(log) and (cleanable := self._cleanable_now(log)) is not None:
                job = self._begin(log, cleanable)
                if job is not None:
                    return self._pass_work(job, before=self._prepare_point(log))
        return None

    def roll_overdue(self, log: Log) -> bool:
        """Closes the active segment of a log that gets no appends, so that its records can be compacted in time."""
        if not is_roll_due(log.segments.active, log.config, self._clock.settled_ms()):
            return False
        log.write_early()
        log.roll()
        return True

    def cleanable(self, log: Log) -> Cleanable:
        """What there is to compact in a log now."""
        return find_cleanable(
            list(log.segments),
            log.config,
            first_dirty=self.first_dirty_offset(log),
            stable_offset=min(log.last_stable_offset, log.recovery_point),
            now_ms=self._clock.settled_ms(),
        )

    def cancel(self, log: Log) -> None:
        """Ends the log's pass, if there is one: before the log is closed, or its directory given up."""
        job = self._jobs.get(_key(log))
        if job is not None:
            job.cancel()

    def cancel_all(self) -> None:
        """At a stop. Workers return soon, and hand nothing over; nothing is begun any more."""
        self._is_ended = True
        for job in self._jobs.values():
            job.cancel()

    def _cleanable_now(self, log: Log) -> Cleanable | None:
        """What there is to compact in a log, if that is due and nobody is at it."""
        key = _key(log)
        if not log.config.is_compacted or log.is_truncating or key in self._jobs or key in self._damaged:
            return None
        try:
            cleanable = self.cleanable(log)
        except DiskFailed as error:
            self._on_failure(key[0], error)
            return None
        self.dirty_ratio_max = max(self.dirty_ratio_max, cleanable.dirty_ratio)
        return cleanable if cleanable.is_due(log.config.min_cleanable_dirty_ratio) else None

    def _begin(self, log: Log, cleanable: Cleanable) -> CleaningJob | None:
        key = _key(log)
        try:
            self._jobs[key] = CleaningJob.plan_for(
                log,
                cleanable,
                files=self._files,
                clock=self._clock,
                throttle=self._throttle,
                settings=self._settings,
                secret=self._random.randbytes(SECRET_BYTES),
            )
        except CorruptBatch as problem:
            self._give_up(log.partition, key, problem)
            return None
        except DiskFailed as error:
            self._on_failure(key[0], error)
            return None
        return self._jobs[key]

    def _give_up(self, partition: TopicPartition, key: _LogKey, problem: BarnabasError) -> None:
        logger.error("%s: not compacted until it is repaired: %s", partition, problem)
        self._damaged.add(key)

    def _pass_work(self, job: CleaningJob, before: Callable[[], None] = lambda: None) -> Work:
        def run() -> None:
            before()
            job.run()

        return Job(
            f"compact {job.log.partition}",
            run=run,
            finish=lambda _: self._finish(job),
            failed=lambda error: self._pass_failed(job, error),
            following=self.next_job,
        )

    def _finish(self, job: CleaningJob) -> None:
        directory, partition = key = _key(job.log)
        try:
            if job.finish():
                self._paused.append(job)
                return
        except (CorruptBatch, CorruptTransactionIndex) as problem:
            self._give_up(partition, key, problem)
        self._end(key)
        if job.end_offset is not None:
            self._known(directory)[partition] = job.end_offset
            self._unwritten.append(directory)
            self._due.append(job.log)  # the map may have been full, or more have come meanwhile
            self._tell_unread(key, job.totals)

    def _tell_unread(self, key: _LogKey, totals: CleaningTotals) -> None:
        if totals.unread_batches and key not in self._told_unread:
            self._told_unread.add(key)
            logger.warning(
                "%s: compaction skips batches that expand to more than %d bytes: %d in all, the first at offset %d",
                key[1],
                EXPANDED_BYTES_MAX,
                totals.unread_batches,
                totals.first_unread_offset,
            )

    def _pass_failed(self, job: CleaningJob, error: DiskFailed) -> None:
        key = _key(job.log)
        self._end(key)
        if isinstance(error, DiskFull) and not job.is_torn:
            self._waiting.warn("%s: compaction waits for space: %s", job.log.partition, error)
            self._back_off()
        else:
            self._on_failure(key[0], error)

    def _end(self, key: _LogKey) -> None:
        self._ended += self._jobs.pop(key).totals
        self.passes += 1

    @property
    def _is_backing_off(self) -> bool:
        return self._clock.steady_ms() < self._look_again_ms

    def _back_off(self) -> None:
        self._look_again_ms = self._clock.steady_ms() + self._config.log_cleaner_backoff_ms

    def _checkpoint_work(self, directory: str) -> Work:
        def run() -> None:
            self.write_checkpoint(directory)

        def failed(error: DiskFailed) -> None:
            if not isinstance(error, DiskFull):  # then the next pass writes it, and an old one only costs work
                self._on_failure(directory, error)

        title = f"checkpoint compaction in {directory}"
        return Job(title, run=run, finish=lambda _: None, failed=failed, following=self.next_job)


def _key(log: Log) -> _LogKey:
    return os.path.dirname(log.directory), log.partition
