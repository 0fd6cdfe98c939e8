"""All logs of a broker, in several log directories: opens, creates, deletes, truncates and closes them.

Owner: one thread (a broker's event loop), which owns every log too. What may block is a `Job`: `creation`, `deletions`
and `truncation` return them, `due_work` those that are due; `create`, `delete`, `truncate` and `run_due_work` do the
same at once, for synchronous users. `open` and `close` block, and use threads of their own.

Checkpoints and crashes. Recovery checks a log only from its recovery point in the checkpoint file on, which must thus
never lie above records that are not synced. It rises after a sync (`storage.directories.housekeeping`); before a log is
cut or deleted, whose offsets may be written again, it is lowered durably, and only then are its files touched.

Failures. A directory whose disk fails goes offline alone and stays so until the next start: its logs are no longer
served, everything else goes on. A full disk takes nothing offline: what needs space is refused and tried again. But a
failed sync always does, whatever the reason: the kernel may have dropped the bytes, and a second sync would not say so.
Callers report a `DiskFailed` from a log to `on_log_failure`, and one from a file of a log to `on_file_failure`.
"""

import errno
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, TypeAlias
from uuid import UUID

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError, DiskFailed, DiskFull
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset, SteadyMs, TopicPartition
from barnabas.base.logs import RepeatedWarning
from barnabas.base.machine import UNKNOWN_BOOT
from barnabas.base.metric_table import FLUSH_SECONDS
from barnabas.base.metrics import Histogram
from barnabas.base.uuid import new_uuid
from barnabas.storage.checkpoints import UNKNOWN_BROKER_EPOCH
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.directories.deletion import Leaving, deletion_of
from barnabas.storage.directories.directories import LogDirectories
from barnabas.storage.directories.directory import LogDirectory, doomed_name, stray_name
from barnabas.storage.directories.housekeeping import Housekeeping, OnFlushed
from barnabas.storage.directories.opening import (
    ConfigOfTopic,
    OnProgress,
    OpenedLog,
    Opening,
    OpeningReport,
    PartitionOpener,
)
from barnabas.storage.directories.ownership import Ownership
from barnabas.storage.directories.registrations import Registrations
from barnabas.storage.directories.strays import KnownPartitions
from barnabas.storage.log.flush import FlushPlan
from barnabas.storage.log.log import Log
from barnabas.storage.log.truncation import Truncation
from barnabas.storage.segment.handles import Handles
from barnabas.storage.settings import LogConfig, LogManagerConfig
from barnabas.storage.work import Job, ThreadWorkers, Work, Workers, perform
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

OnOffline: TypeAlias = Callable[[LogDirectory], None]

_NOT_THE_DISK: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_RETRY_INTERVAL_MS: Final = 5_000
_WARNING_SECONDS: Final = 60.0


class LogManager:
    def __init__(
        self,
        files: FileSystem,
        clock: Clock,
        random: Random,
        config: LogManagerConfig,
        *,
        cluster_id: str,
        node_id: int,
        handles: Handles | None = None,
        workers: Workers | None = None,
        on_offline: OnOffline | None = None,
        flush_seconds: Histogram | None = None,
        boot_id: str = UNKNOWN_BOOT,
    ) -> None:
        """`flush_seconds` takes the times of flushes, if somebody wants to know."""
        self._files = files
        self._clock = clock
        self._random = random
        self._config = config
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._opener = PartitionOpener(files, Handles() if handles is None else handles, clock, random)
        self._workers = workers or ThreadWorkers()
        self.on_offline = on_offline
        """Called when a directory goes offline; by the thread that opens, as long as `open` runs."""
        self._opening: Opening | None = None
        self._moving: set[TopicPartition] = set()
        """Partitions that are being created or deleted."""
        self._retry_ms: SteadyMs = 0
        self._exhaustion = RepeatedWarning(logger, clock.monotonic, _WARNING_SECONDS)
        self.cleaner: LogCleaner | None = None
        if config.log_cleaner_enable:
            self.cleaner = LogCleaner(
                files,
                clock,
                random,
                config,
                on_failure=self.on_directory_failure,
                is_served=self._is_served,
                prepare_point=self._prepare_point,
            )
        self.directories = LogDirectories(files, config)
        self.registrations = Registrations(files, self.directories, boot_id)
        self._housekeeping = Housekeeping(
            files,
            config,
            self.directories,
            clock=clock,
            on_failure=self._on_failure,
            cleaner=self.cleaner,
            flush_seconds=Histogram(FLUSH_SECONDS.bounds) if flush_seconds is None else flush_seconds,
        )

    def reconfigure(self, config: LogManagerConfig) -> None:
        """Takes over what may change at run time; directories, and whether there is a cleaner, stay."""
        self._config = config
        self.directories.cordon(config.cordoned_log_dirs)
        self._housekeeping.reconfigure(config)
        if self.cleaner is not None:
            self.cleaner.reconfigure(config)

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogManagerConfig:
        return self._config

    def __iter__(self) -> Iterator[Log]:
        """Every log that is served."""
        for directory in self.directories:
            yield from directory.logs.values()

    def __len__(self) -> int:
        return sum(len(directory.logs) for directory in self.directories)

    @property
    def offline_directories(self) -> list[LogDirectory]:
        return self.directories.offline

    def get(self, partition: TopicPartition, topic_id: UUID | None = None) -> Log | None:
        """The partition's log; None when there is none, an error when there is one that cannot be used.

        With a topic id, the log must be that topic's: one of the same name may have been deleted and made again.
        """
        return self.directories.get(partition, topic_id)

    def _is_served(self, log: Log) -> bool:
        return any(directory.logs.get(log.partition) is log for directory in self.directories.online)

    def _prepare_point(self, log: Log) -> Callable[[], None]:
        """Returns a function, for a worker, that stores the log's recovery point."""
        directory, _ = self.directories.served(log.partition)
        return directory.prepare_points([log.partition])

    def topic_id(self, partition: TopicPartition) -> UUID | None:
        """What the partition's directory says; None also when it says nothing."""
        directory = self.directories.of(partition)
        return directory.topic_ids.get(partition) if directory else None

    @property
    def stray_count(self) -> int:
        """Directories that are set aside because the metadata does not have their topic ids."""
        return sum(len(directory.strays) for directory in self.directories)

    # -- opening and closing -------------------------------------------------------------------------------------

    def open(
        self,
        config_of_topic: ConfigOfTopic,
        on_progress: OnProgress | None = None,
        known: KnownPartitions | None = None,
    ) -> OpeningReport:
        """Opens the logs of all directories, in parallel. Progress may be told from any thread, one call at a time.

        Directories that the metadata does not know are set aside; without `known`, every one is served.

        Raises `DirectoryLocked` or `UnusableDirectory` when it must not touch a directory, before any log has changed,
        and `AllDirectoriesOffline` when no disk works.
        """
        ownership = Ownership(self._files, self._random, known, self._doom_now)
        opening = self._opening = Opening(
            self.directories, self._opener, config_of_topic, ownership, self._on_failure, self._doom_now
        )
        try:
            opening.claim(self._cluster_id, self._node_id, self._random)
        except BarnabasError:
            for directory in self.directories:
                directory.release()
            raise
        # Without anything to check there is little to wait for, and a second thread would only contend for the first.
        threads_each = self._config.num_recovery_threads_per_data_dir if opening.needs_recovery else 1
        self._workers.run(opening.queues(on_progress), threads_each)
        opening.settle()
        for work in self._samples(self._clock.steady_ms()):
            perform(work)
        self._forget_cleaned()
        report = opening.report
        is_whole = not (report.removed_bytes or report.unopened or report.offline)
        self.registrations.read(self._on_failure, is_whole=is_whole)
        self.directories.require_online()
        return report

    def _forget_cleaned(self) -> None:
        """How far partitions were compacted that are gone."""
        for directory in self.directories.online if self.cleaner is not None else ():
            assert self.cleaner is not None
            try:
                self.cleaner.keep_only(directory.path, {*directory.logs, *directory.unopened})
            except DiskFailed as error:
                self._on_failure(directory, error)

    def _doom_now(self, directory: LogDirectory, path: str) -> None:
        self._housekeeping.doom(directory, path, self._clock.steady_ms())

    def close(self) -> None:
        """Closes all logs, in parallel. The jobs that were handed out must have finished (`stop_cleaning` helps).

        A directory in which all went well is marked, so that opening it again needs no scan.
        """
        self.stop_cleaning()
        unclean: set[str] = set()
        queues = [self._closings(directory, unclean) for directory in self.directories.online]
        self._workers.run(queues, self._config.num_recovery_threads_per_data_dir)
        if unclean:
            self.registrations.lost()
        for directory in self.directories.online:
            try:
                directory.write_all_checkpoints()
                if directory.path not in unclean and not directory.unopened:
                    broker_epoch = self.registrations.store(directory)
                    directory.mark_clean(UNKNOWN_BROKER_EPOCH if broker_epoch is None else broker_epoch)
            except DiskFailed as error:
                logger.error("%s needs recovery at the next start: %s", directory.path, error)
            directory.logs.clear()
            directory.release()

    def stop_cleaning(self) -> None:
        """Lets compaction, whose jobs may take minutes, end soon."""
        if self.cleaner is not None:
            self.cleaner.cancel_all()

    def _closings(self, directory: LogDirectory, unclean: set[str]) -> Iterator[Work]:
        def failed(log: Log, error: DiskFailed) -> None:
            unclean.add(directory.path)
            logger.error("%s needs recovery at the next start: %s", log.partition, error)
            log.finish_close()

        def finish(log: Log, plan: FlushPlan, _: None) -> None:
            log.finish_flush(plan)
            log.finish_close()

        for log in directory.logs.values():
            try:
                plan = log.plan_close()
            except DiskFailed as error:
                failed(log, error)
                continue
            yield Job(
                f"close {log.partition}", run=plan.run, finish=partial(finish, log, plan), failed=partial(failed, log)
            )

    def remembering(self, broker_epoch: int) -> Iterator[Work]:
        """The broker is registered with this epoch, which its directories remember."""
        return self.registrations.remembering(broker_epoch, self._on_failure)

    # -- creating and deleting -----------------------------------------------------------------------------------

    def create(
        self, partition: TopicPartition, topic_id: UUID | None, config: LogConfig, *, is_new: bool = True
    ) -> Log:
        """`creation`, at once."""
        self.creation(partition, topic_id, config, is_new=is_new).complete()
        return self.directories.served(partition)[1]

    def creation(
        self, partition: TopicPartition, topic_id: UUID | None, config: LogConfig, *, is_new: bool = True
    ) -> Job[OpenedLog]:
        """Makes a partition in the emptiest directory. `get` finds it once the job has finished.

        If a directory with this topic id was set aside, because the metadata did not have it, that one is opened.

        With `is_new` false it may lie in a directory that is offline: then it is refused, because an empty log in its
        place would lose its records.
        """
        assert self.directories.of(partition) is None, f"{partition} exists"
        assert partition not in self._moving, f"{partition} is being created or deleted"
        if not is_new and self.directories.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition} may be in a directory that is offline")
        stray = self.directories.stray_of(partition, topic_id)
        if stray is None:
            directory = self.directories.emptiest()
            directory.newborn.add(partition)
            store = directory.prepare_points([partition]) if config.is_compacted else _nothing
            run = partial(self._opener.create, directory, partition, topic_id, config, store)
        else:
            directory, name = stray
            del directory.strays[name]
            run = partial(self._opener.bring_back, directory, name, partition, topic_id, config)
            logger.warning("%s is served again: the metadata has its topic id", directory.path_of(partition))
        directory.arriving.add(partition)
        self._moving.add(partition)

        def finish(opened: OpenedLog) -> None:
            end()
            if directory.is_online:
                directory.admit(opened.log, opened.topic_id)

        def failed(error: DiskFailed) -> None:
            end()
            self._on_failure(directory, error)

        def end() -> None:
            directory.arriving.discard(partition)
            directory.newborn.discard(partition)
            self._moving.discard(partition)

        return Job(f"create {partition}", run=run, finish=finish, failed=failed)

    def delete(self, partition: TopicPartition) -> None:
        """`deletions` of one, at once."""
        for work in self.deletions([partition]):
            work.complete()

    def deletions(self, partitions: Iterable[TopicPartition], *, is_stray: bool = False) -> list[Job[None]]:
        """Takes partitions out of service now and renames their directories, which go after `file.delete.delay.ms`.

        One job for each log directory: however many partitions go, their checkpoints are lowered once. Partitions of
        the same names can be created once the job has finished, when nothing on the disk could be mistaken for
        theirs. With `is_stray` (the metadata does not record them as deleted) the directories are kept.
        """
        found = [(self._holder(partition), partition) for partition in partitions]
        leaving: dict[str, list[Leaving]] = {}
        for directory, partition in found:
            leaving.setdefault(directory.path, []).append(self._dismiss(directory, partition, is_stray=is_stray))
        return [
            self._deletion(one, leaving[one.path], is_stray=is_stray) for one in self.directories if one.path in leaving
        ]

    def _holder(self, partition: TopicPartition) -> LogDirectory:
        """Where a partition lies, also one that could not be opened."""
        assert partition not in self._moving, f"{partition} is being created or deleted"
        unopened = next((one for one in self.directories if partition in one.unopened), None)
        return self.directories.served(partition)[0] if unopened is None else unopened

    def _dismiss(self, directory: LogDirectory, partition: TopicPartition, *, is_stray: bool) -> Leaving:
        log, problem = directory.logs.get(partition), directory.unopened.get(partition)
        if log is not None:
            log.finish_close()
        directory.dismiss(partition)
        self._moving.add(partition)
        name_of = stray_name if is_stray else doomed_name
        return Leaving(partition, log, problem, directory.file(name_of(partition, new_uuid(self._random))))

    def _deletion(self, directory: LogDirectory, leaving: Sequence[Leaving], *, is_stray: bool) -> Job[None]:
        names = [one.partition for one in leaving]

        def gone(one: Leaving) -> None:
            self._moving.discard(one.partition)
            topic_id = directory.topic_ids.pop(one.partition, None)
            if is_stray:
                directory.strays[os.path.basename(one.path)] = topic_id
                logger.warning("%s is kept, but not served: the metadata does not have its topic", one.path)
                return
            delay_ms = one.log.config.file_delete_delay_ms if one.log else 0
            self._housekeeping.doom(directory, one.path, self._clock.steady_ms() + delay_ms)
            logger.info("%s: deleted, its files will be removed", one.partition)

        def failed(error: DiskFailed) -> None:
            self._moving.difference_update(names)
            self._on_failure(directory, error)

        lower = self._prepare_lowering(directory, names, [one.log for one in leaving if one.log])
        return deletion_of(self._files, directory, leaving, lower=lower, on_gone=gone, on_failure=failed)

    # -- cutting -------------------------------------------------------------------------------------------------

    def truncate(self, partition: TopicPartition, offset: Offset) -> None:
        """`truncation`, at once."""
        self.truncation(partition, offset).complete()

    def truncation(self, partition: TopicPartition, offset: Offset) -> Job[None]:
        """Cuts a log so that it ends at `offset`, or below if a batch held that (`barnabas.storage.log.truncation`).

        The log ends there at once and refuses appends until the job has finished. If the disk fails, the log is taken
        out of service and reopened.
        """
        return self._cut(partition, offset, Log.plan_truncation)

    def restart(self, partition: TopicPartition, offset: Offset) -> Job[None]:
        """Drops every record of a log, which goes on at `offset` when the job has finished."""
        return self._cut(partition, offset, Log.plan_restart)

    def _cut(
        self, partition: TopicPartition, offset: Offset, plan_of: Callable[[Log, Offset], Truncation | None]
    ) -> Job[None]:
        """The checkpoints are lowered, durably, before anything is cut on the disk."""
        directory, log = self.directories.served(partition)
        assert not log.is_truncating, f"{partition} is being truncated"
        title, on_failure = f"truncate {partition} to {offset}", partial(self._on_failure, directory)
        try:
            plan = plan_of(log, offset)
        except DiskFailed as error:
            directory.suspend(log, error)
            return Job(title, run=partial(_refuse, error), finish=_nothing, failed=on_failure)
        if plan is None:
            return Job(title, run=lambda: None, finish=_nothing, failed=on_failure)
        truncation = plan
        lower = self._prepare_lowering(directory, [partition], [log], offset)

        def run() -> None:
            lower()
            truncation.run()

        def finish(_: None) -> None:
            if directory.logs.get(partition) is log:
                log.finish_truncation(truncation)

        def failed(error: DiskFailed) -> None:
            if directory.logs.get(partition) is log:
                directory.suspend(log, error)
            on_failure(error)

        return Job(title, run=run, finish=finish, failed=failed)

    def _prepare_lowering(
        self,
        directory: LogDirectory,
        partitions: Collection[TopicPartition],
        logs: Iterable[Log],
        end_offset: Offset | None = None,
    ) -> Callable[[], None]:
        """`LogDirectory.prepare_lowering`, and the same for what is compacted: of logs that go, or end lower."""
        lower = directory.prepare_lowering(partitions)
        cleaner, is_compacted = self.cleaner, False
        for log in logs if cleaner is not None else ():
            assert cleaner is not None
            is_compacted |= log.config.is_compacted
            if end_offset is None:
                cleaner.forget(log)  # also one that was compacted until a moment ago: a pass may be under way
            else:
                segment = log.segments.floor(end_offset)
                cleaner.truncated(log, segment.base_offset if segment else end_offset)
        if cleaner is None or not is_compacted:
            return lower

        def lower_all() -> None:
            lower()
            with suppress(DiskFull):  # then more counts as compacted than is: those records wait for newer ones
                cleaner.write_checkpoint(directory.path)

        return lower_all

    def delete_records(self, partition: TopicPartition, offset: Offset) -> Offset:
        """Moves the start of a log up to `offset`; returns where it starts. `storing_starts` makes that durable."""
        _, log = self.directories.served(partition)
        log.delete_records_before(offset)
        return log.log_start_offset

    def storing_starts(self, partitions: Iterable[TopicPartition]) -> list[tuple[Job[None], list[TopicPartition]]]:
        """Makes durable where these logs start now: a job for each log directory, with those of them that lie there."""
        wanted = list(partitions)
        return [
            (self._storing_starts(directory, together), together)
            for directory in self.directories.online
            if (together := [partition for partition in wanted if partition in directory.logs])
        ]

    def _storing_starts(self, directory: LogDirectory, partitions: Collection[TopicPartition]) -> Job[None]:
        version = directory.prepare_start_offsets(partitions)

        def failed(error: DiskFailed) -> None:
            self._housekeeping.hurry_start_offsets()
            self._on_failure(directory, error)

        return Job(
            f"checkpoint log starts in {directory.path}",
            run=partial(directory.start_offsets.write, version),
            finish=_nothing,
            failed=failed,
        )

    # -- from time to time ---------------------------------------------------------------------------------------

    def due_in_slices(self, now_ms: SteadyMs) -> Iterator[Work | None]:
        """The jobs that are due, about once a second. None is a place where the owner may do other things.

        Raises `AllDirectoriesOffline` when there is nothing left.
        """
        self.directories.require_online()
        yield from self._housekeeping.due_in_slices(now_ms)
        yield from self._reopenings(now_ms)
        yield from self._samples(now_ms)

    def due_work(self, now_ms: SteadyMs) -> list[Work]:
        """All of them at once."""
        return [work for work in self.due_in_slices(now_ms) if work is not None]

    def run_due_work(self) -> None:
        """Everything that is due, at once."""
        for work in self.due_work(self._clock.steady_ms()):
            perform(work)

    def flush_if_due(self, partition: TopicPartition) -> Work | None:
        """For a log that was just written: its flush, if the settings ask for one and none is under way."""
        directory, log = self.directories.served(partition)
        return self._housekeeping.flush_if_due(directory, log, self._clock.steady_ms())

    def tell_flushes(self, on_flushed: OnFlushed) -> None:
        """Has `on_flushed` called at the end of every flush but a log's last one, no matter who began it."""
        self._housekeeping.on_flushed = on_flushed

    def _reopenings(self, now_ms: SteadyMs) -> Iterator[Work]:
        """Logs that had no room to recover, or no descriptor to open a file with, get another chance."""
        if self._opening is None or now_ms < self._retry_ms:
            return
        self._retry_ms = now_ms + _RETRY_INTERVAL_MS
        for directory in self.directories.online:
            for partition, problem in directory.unopened.items():
                if isinstance(problem, DiskFailed):
                    yield self._opening.reopening(directory, partition)

    def _samples(self, now_ms: SteadyMs) -> Iterator[Work]:
        """Looks how much space is left in each directory."""
        for directory in self.directories.online:
            if directory.space.must_sample(now_ms):
                yield self._sample(directory)

    def _sample(self, directory: LogDirectory) -> Work:
        def finish(free_bytes: int) -> None:
            directory.space.sampled(free_bytes, self._clock.steady_ms())

        def failed(error: DiskFailed) -> None:
            directory.space.sample_failed()
            self._on_failure(directory, error)

        run = partial(self._files.free_bytes, directory.path)
        return Job(f"look at the space in {directory.path}", run=run, finish=finish, failed=failed)

    # -- failures ------------------------------------------------------------------------------------------------

    def on_log_failure(self, partition: TopicPartition, error: DiskFailed) -> None:
        """Handles the error that a write to a log, or a read from it, has raised."""
        for directory in self.directories.online:
            if (log := directory.logs.get(partition)) is not None:
                self._on_failure(directory, error, log)

    def on_file_failure(self, error: DiskFailed) -> None:
        """Handles a failed read of a range of a log's file."""
        for directory in self.directories.online:
            if error.path.startswith(os.path.join(directory.path, "")):
                self._on_failure(directory, error)

    def on_directory_failure(self, path: str, error: DiskFailed) -> None:
        """Compaction cannot go on in a directory, and it is not for want of space."""
        for directory in self.directories.online:
            if directory.path == path and error.errno not in _NOT_THE_DISK:
                self._take_offline(directory, error)

    def _on_failure(self, directory: LogDirectory, error: DiskFailed, log: Log | None = None) -> None:
        """Decides whether a directory can go on."""
        if isinstance(error, DiskFull) and error.operation != "sync":
            directory.space.refused(error, log, self._clock)
        elif error.errno in _NOT_THE_DISK:
            self._exhaustion.warn("%s: refused for now: %s", directory.path, error)
        else:
            self._take_offline(directory, error)

    def _take_offline(self, directory: LogDirectory, error: DiskFailed) -> None:
        if not directory.is_online:
            return
        if self.cleaner is not None:
            for log in directory.logs.values():
                self.cleaner.cancel(log)
        directory.give_up(error)
        self.registrations.lost()
        logger.error("%s is offline, its partitions are not served: %s", directory.path, error)
        if self.on_offline is not None:
            self.on_offline(directory)

    def check_invariants(self) -> None:
        for log in self:
            log.check_invariants()


def _nothing(_: None = None) -> None:
    pass


def _refuse(error: DiskFailed) -> None:
    raise error
