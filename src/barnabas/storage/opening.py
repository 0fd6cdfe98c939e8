"""Opens the logs of all log directories at the start, and creates new ones.

`Opening` is the owner's part: it takes possession of the directories, sorts what lies in them and makes a job of each
partition. `PartitionOpener` is the workers' part. Workers share only what is immutable or stateless (file system,
clock, configuration) and the progress, which has a lock. `open_log` uses private handles and touches nobody else's, so
that logs can be opened beside each other; a log belongs to the manager's thread from the moment it is handed over.

Crash: a new partition's directory appears with its topic id or not at all; one without segments opens as an empty log.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from threading import Lock
from typing import NamedTuple, TypeAlias
from uuid import UUID

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import TopicPartition
from barnabas.storage.checkpoints import (
    PARTITION_METADATA,
    CorruptCheckpoint,
    read_partition_metadata,
    write_partition_metadata,
)
from barnabas.storage.directories import LogDirectories
from barnabas.storage.directory import LogDirectory, UnusableDirectory
from barnabas.storage.handles import Handles
from barnabas.storage.log import Log
from barnabas.storage.recovery import RecoveryReport, open_log
from barnabas.storage.settings import LogConfig
from barnabas.storage.work import Job, Work

logger = logging.getLogger(__name__)

ConfigOfTopic: TypeAlias = Callable[[str], LogConfig]
OnFailure: TypeAlias = Callable[[LogDirectory, DiskFailed], None]


@dataclass(frozen=True, slots=True)
class OpeningProgress:
    logs_done: int
    logs_total: int
    checked_bytes: int


OnProgress: TypeAlias = Callable[[OpeningProgress], None]


class ProgressMeter:
    """Adds up what the workers have done, and tells it, one call at a time."""

    def __init__(self, logs_total: int, on_progress: OnProgress | None) -> None:
        self._lock = Lock()
        self._progress = OpeningProgress(0, logs_total, 0)
        self._on_progress = on_progress

    def add(self, *, logs: int = 0, checked_bytes: int = 0) -> None:
        if self._on_progress is None:
            return
        with self._lock:
            before = self._progress
            self._progress = OpeningProgress(
                before.logs_done + logs, before.logs_total, before.checked_bytes + checked_bytes
            )
            self._on_progress(self._progress)


@dataclass(slots=True)
class OpeningReport:
    """What opening all directories found, for people and for tests."""

    logs: int = 0
    checked_bytes: int = 0
    removed_bytes: int = 0
    repaired: list[RecoveryReport] = field(default_factory=list)
    """Of the logs where anything was cut, rebuilt or removed."""
    set_aside: list[str] = field(default_factory=list)
    """Partitions' directories that are kept and not served (`-future`, `-stray`)."""
    malformed: list[str] = field(default_factory=list)
    """Directories whose names mean nothing here; they are left alone."""
    unopened: list[TopicPartition] = field(default_factory=list)
    offline: list[str] = field(default_factory=list)

    def add(self, report: RecoveryReport) -> None:
        self.logs += 1
        self.checked_bytes += report.checked_bytes
        self.removed_bytes += report.removed_bytes
        if report.notes:
            self.repaired.append(report)


class OpenedLog(NamedTuple):
    log: Log
    topic_id: UUID | None
    report: RecoveryReport


class PartitionOpener:
    """What every opening needs. Its methods are for worker threads."""

    def __init__(self, files: FileSystem, handles: Handles, clock: Clock, random: Random) -> None:
        self._files = files
        self._handles = handles
        self._clock = clock
        self._random = random

    def open(
        self,
        directory: LogDirectory,
        partition: TopicPartition,
        config: LogConfig,
        *,
        was_clean: bool,
        meter: ProgressMeter,
    ) -> OpenedLog:
        """Opens what is there, from the recovery point and the log start that the checkpoints had."""
        log, report = open_log(
            self._files,
            self._handles,
            self._clock,
            self._random,
            directory.path_of(partition),
            partition,
            config,
            recovery_point=directory.recovery_points.found.get(partition, 0),
            log_start_offset=directory.start_offsets.found.get(partition, 0),
            was_clean=was_clean,
            on_progress=lambda checked_bytes: meter.add(checked_bytes=checked_bytes),
        )
        topic_id = self._read_topic_id(directory.path_of(partition), report)
        meter.add(logs=1)
        return OpenedLog(log, topic_id, report)

    def _read_topic_id(self, path: str, report: RecoveryReport) -> UUID | None:
        try:
            return read_partition_metadata(self._files, os.path.join(path, PARTITION_METADATA))
        except CorruptCheckpoint as problem:
            report.note(f"the topic id is not known: {problem}")
            return None

    def create(
        self, directory: LogDirectory, partition: TopicPartition, topic_id: UUID | None, config: LogConfig
    ) -> OpenedLog:
        """Makes a new partition. One that cannot be finished leaves nothing behind."""
        path = directory.path_of(partition)
        assert not self._files.exists(path), f"{path} exists, and is not known"
        try:
            self._files.make_directory(path)
            if topic_id is not None:
                write_partition_metadata(self._files, os.path.join(path, PARTITION_METADATA), topic_id)
            log, report = open_log(
                self._files, self._handles, self._clock, self._random, path, partition, config, was_clean=True
            )
            self._files.sync_directory(directory.path)
        except DiskFailed:
            with suppress(DiskFailed):
                self._files.remove_tree(path)
            raise
        return OpenedLog(log, topic_id, report)


class Opening:
    """One opening of all directories. Owner: the log manager's thread."""

    def __init__(
        self,
        directories: LogDirectories,
        opener: PartitionOpener,
        config_of_topic: ConfigOfTopic,
        on_failure: OnFailure,
    ) -> None:
        self._directories = directories
        self._opener = opener
        self._config_of_topic = config_of_topic
        self._on_failure = on_failure
        self._partitions: dict[str, list[TopicPartition]] = {}
        self._meter = ProgressMeter(0, None)
        self.doomed: list[tuple[LogDirectory, str]] = []
        """Directories of deleted partitions, still to be removed."""
        self.report = OpeningReport()

    def claim(self, cluster_id: str, node_id: int, random: Random) -> None:
        """Locks the directories and sorts what lies in them. Nothing of any log has changed when this raises."""
        for directory in self._directories.online:
            try:
                directory.claim(cluster_id, node_id, random)
                self._list(directory)
            except DiskFailed as error:
                self._give_up(directory, error)
        self._refuse_duplicates()
        for directory in self._directories.online:
            try:
                directory.begin()
            except DiskFailed as error:
                self._give_up(directory, error)

    def _give_up(self, directory: LogDirectory, error: DiskFailed) -> None:
        directory.give_up(error)
        logger.error("%s is offline from the start: %s", directory.path, error)

    def _list(self, directory: LogDirectory) -> None:
        listing = directory.list()
        self._partitions[directory.path] = listing.partitions
        self.doomed += [(directory, directory.file(name)) for name in listing.doomed]
        for name in listing.set_aside:
            self.report.set_aside.append(directory.file(name))
            logger.warning("%s is kept, but not served", directory.file(name))
        for name in listing.malformed:
            self.report.malformed.append(directory.file(name))
            logger.warning("%s is left alone: its name is not that of a partition", directory.file(name))

    def _refuse_duplicates(self) -> None:
        paths: dict[TopicPartition, str] = {}
        for path, partitions in self._partitions.items():
            for partition in partitions:
                if partition in paths:
                    raise UnusableDirectory(
                        f"{partition} lies both in {paths[partition]} and in {path}: "
                        "move the one that is not wanted to another place"
                    )
                paths[partition] = path

    @property
    def needs_recovery(self) -> bool:
        return any(directory.clean_shutdown is None for directory in self._directories.online)

    def queues(self, on_progress: OnProgress | None) -> list[Iterator[Work]]:
        """A job for each partition, in a queue for each directory."""
        directories = self._directories.online
        self._meter = ProgressMeter(sum(len(self._partitions[one.path]) for one in directories), on_progress)
        return [self._queue(directory) for directory in directories]

    def _queue(self, directory: LogDirectory) -> Iterator[Work]:
        for partition in self._partitions[directory.path]:
            if directory.is_online:
                yield self._job(directory, partition)

    def reopening(self, directory: LogDirectory, partition: TopicPartition) -> Work:
        """Tries again to open a log. What may have happened to it since the start is not known."""
        return self._job(directory, partition, is_again=True)

    def _job(self, directory: LogDirectory, partition: TopicPartition, *, is_again: bool = False) -> Work:
        """Opens a log. When its files make no sense it is not served, and whoever asks for it hears why."""
        config = self._config_of_topic(partition.topic)
        was_clean = directory.clean_shutdown is not None and not is_again

        def run() -> OpenedLog | BarnabasError:
            try:
                return self._opener.open(directory, partition, config, was_clean=was_clean, meter=self._meter)
            except DiskFailed:
                raise
            except BarnabasError as problem:
                return problem

        def finish(result: OpenedLog | BarnabasError) -> None:
            if not directory.is_online:
                return
            if isinstance(result, BarnabasError):
                directory.unopened[partition] = result
                logger.error("%s is not served: %s", directory.path_of(partition), result)
                return
            directory.admit(result.log, result.topic_id)
            self.report.add(result.report)
            if is_again:
                directory.lower_after_opening()

        def failed(error: DiskFailed) -> None:
            self._on_failure(directory, error)
            if directory.is_online:
                directory.logs.pop(partition, None)
                directory.unopened[partition] = error

        return Job(f"open {partition}", run=run, finish=finish, failed=failed)

    def settle(self) -> None:
        """All jobs are done: makes durable what must be before anything is appended, and completes the report."""
        self._meter = ProgressMeter(0, None)
        for directory in self._directories.online:
            try:
                directory.lower_after_opening()
            except DiskFailed as error:
                self._give_up(directory, error)
            self.report.unopened += directory.unopened
        self.report.offline = [directory.path for directory in self._directories.offline]
