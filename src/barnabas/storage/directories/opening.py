"""Opens the logs of all log directories at the start, and creates new ones.

`Opening` is the owner's part: it takes possession of the directories, sorts what lies in them and makes a job of each
partition. `PartitionOpener` is the workers' part. Workers share only what is immutable or stateless (file system,
clock, configuration) and the progress, which has a lock. `open_log` uses private handles and touches nobody else's, so
that logs can be opened beside each other; a log belongs to the manager's thread from the moment it is handed over.

Directories that do not belong to a partition of the metadata are set aside (`storage.directories.ownership`).

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
from barnabas.base.errors import BarnabasError, DiskFailed, DiskFull
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import new_uuid
from barnabas.storage.checkpoints import PARTITION_METADATA, write_partition_metadata
from barnabas.storage.directories.directories import LogDirectories
from barnabas.storage.directories.directory import LogDirectory, doomed_name
from barnabas.storage.directories.ownership import OnDoomed, Owner, Ownership, SetAside, set_aside, write_topic_id
from barnabas.storage.directories.strays import Fate
from barnabas.storage.log.log import Log
from barnabas.storage.log.recovery import RecoveryReport, open_log
from barnabas.storage.segment.handles import Handles
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
    strays: list[str] = field(default_factory=list)
    """Directories of partitions that the metadata does not have: kept, not served."""
    set_aside: list[str] = field(default_factory=list)
    """Other directories of partitions that are kept, not served (`-future`)."""
    malformed: list[str] = field(default_factory=list)
    """Directories that are left alone: their names mean nothing here, or they hold no log."""
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
        owner: Owner,
        *,
        was_clean: bool,
        meter: ProgressMeter,
    ) -> OpenedLog | SetAside:
        """Opens what is there, from the recovery point and the log start that the checkpoints had."""
        if owner.fate is not Fate.SERVED:
            meter.add(logs=1)
            return set_aside(self._files, self._random, directory, partition, owner.fate, owner.topic_id)
        path = directory.path_of(partition)
        if owner.topic_id is not None and not owner.is_written:
            write_topic_id(self._files, path, owner.topic_id)
        log, report = open_log(
            self._files,
            self._handles,
            self._clock,
            self._random,
            path,
            partition,
            config,
            recovery_point=directory.recovery_points.found.get(partition, 0),
            is_point_sure=directory.has_sure_point(partition),
            log_start_offset=directory.start_offsets.found.get(partition, 0),
            was_clean=was_clean,
            on_progress=lambda checked_bytes: meter.add(checked_bytes=checked_bytes),
        )
        if not owner.is_written:
            report.note(f"{PARTITION_METADATA} was missing or damaged: using the topic id in the metadata")
        if log.must_flush(self._clock.steady_ms()):  # a killed process has not synced it, and it counts from now on
            with suppress(DiskFull):  # later, when there is room for its indexes
                log.flush()
        meter.add(logs=1)
        return OpenedLog(log, owner.topic_id, report)

    def create(
        self,
        directory: LogDirectory,
        partition: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig,
        store_point: Callable[[], None],
    ) -> OpenedLog:
        """Makes a new partition. One that cannot be finished leaves nothing behind.

        The recovery point of one that will be compacted is stored: while it has none, gaps mean nothing.
        Its directory counts as deleted until it has its topic id. One that somebody has put in its place is set aside.
        """
        path = directory.path_of(partition)
        unfinished = directory.file(doomed_name(partition, new_uuid(self._random)))
        if self._files.exists(path):
            aside = set_aside(self._files, self._random, directory, partition, Fate.STRAY, None)
            logger.warning("%s is not known to this broker: it is kept as %s", path, aside.name)
        try:
            store_point()
            self._files.make_directory(unfinished)
            if topic_id is not None:
                write_partition_metadata(self._files, os.path.join(unfinished, PARTITION_METADATA), topic_id)
            self._files.rename(unfinished, path)
            log, report = open_log(
                self._files, self._handles, self._clock, self._random, path, partition, config, was_clean=True
            )
            directory.sync_names()
        except DiskFailed:
            for leftover in (unfinished, path):
                with suppress(DiskFailed):
                    self._files.remove_tree(leftover)
            raise
        return OpenedLog(log, topic_id, report)

    def bring_back(
        self, directory: LogDirectory, name: str, partition: TopicPartition, topic_id: UUID | None, config: LogConfig
    ) -> OpenedLog:
        """Opens what was set aside: the metadata has its topic id again."""
        path = directory.path_of(partition)
        self._files.rename(directory.file(name), path)
        directory.sync_names()
        log, report = open_log(self._files, self._handles, self._clock, self._random, path, partition, config)
        return OpenedLog(log, topic_id, report)


class Opening:
    """One opening of all directories. Owner: the log manager's thread."""

    def __init__(
        self,
        directories: LogDirectories,
        opener: PartitionOpener,
        config_of_topic: ConfigOfTopic,
        ownership: Ownership,
        on_failure: OnFailure,
        on_doomed: OnDoomed,
    ) -> None:
        self._directories = directories
        self._opener = opener
        self._config_of_topic = config_of_topic
        self._ownership = ownership
        self._on_failure = on_failure
        self._on_doomed = on_doomed
        self._partitions: dict[LogDirectory, list[TopicPartition]] = {}
        self._strays: dict[LogDirectory, list[str]] = {}
        self._meter = ProgressMeter(0, None)
        self.report = OpeningReport()

    def claim(self, cluster_id: str, node_id: int, random: Random) -> None:
        """Locks the directories and sorts what lies in them. Nothing of any log has changed when this raises."""
        for directory in self._directories.online:
            try:
                directory.claim(cluster_id, node_id, random)
                self._list(directory)
            except DiskFailed as error:
                self._give_up(directory, error)
        self._ownership.settle_rivals({one: self._partitions[one] for one in self._directories.online})
        for directory in self._directories.online:
            try:
                directory.begin()
                self._ownership.review_strays(directory, self._strays[directory], self._partitions)
            except DiskFailed as error:
                self._give_up(directory, error)

    def _give_up(self, directory: LogDirectory, error: DiskFailed) -> None:
        directory.give_up(error)
        logger.error("%s is offline from the start: %s", directory.path, error)

    def _list(self, directory: LogDirectory) -> None:
        listing = directory.list()
        self._partitions[directory] = []
        for partition in listing.partitions:
            if self._ownership.is_strangers(directory, partition):
                self.report.malformed.append(directory.path_of(partition))
                logger.warning("%s is left alone: it holds no log", directory.path_of(partition))
            else:
                self._partitions[directory].append(partition)
        self._strays[directory] = listing.strays
        for name in listing.doomed:
            self._on_doomed(directory, directory.file(name))
        for name in listing.set_aside:
            self.report.set_aside.append(directory.file(name))
            logger.warning("%s is kept, but not served", directory.file(name))
        for name in listing.malformed:
            self.report.malformed.append(directory.file(name))
            logger.warning("%s is left alone: its name is not that of a partition", directory.file(name))

    @property
    def needs_recovery(self) -> bool:
        return any(directory.clean_shutdown is None for directory in self._directories.online)

    def queues(self, on_progress: OnProgress | None) -> list[Iterator[Work]]:
        """A job for each partition, in a queue for each directory."""
        directories = self._directories.online
        self._meter = ProgressMeter(sum(len(self._partitions[one]) for one in directories), on_progress)
        return [self._queue(directory) for directory in directories]

    def _queue(self, directory: LogDirectory) -> Iterator[Work]:
        for partition in self._partitions[directory]:
            if directory.is_online:
                yield self._job(directory, partition)

    def reopening(self, directory: LogDirectory, partition: TopicPartition) -> Work:
        """Tries again to open a log. What may have happened to it since the start is not known."""
        return self._job(directory, partition, is_again=True)

    def _job(self, directory: LogDirectory, partition: TopicPartition, *, is_again: bool = False) -> Work:
        """Opens a log. When its files make no sense it is not served, and requests for it get the reason."""
        config = self._config_of_topic(partition.topic)
        was_clean = directory.clean_shutdown is not None and not is_again
        owner: Owner | None = None
        if is_again:
            directory.reopening.add(partition)

        def run() -> OpenedLog | SetAside | BarnabasError:
            nonlocal owner
            owner = self._ownership.owner_of(directory, partition)
            try:
                return self._opener.open(directory, partition, config, owner, was_clean=was_clean, meter=self._meter)
            except DiskFailed:
                raise
            except BarnabasError as problem:
                return problem

        def finish(result: OpenedLog | SetAside | BarnabasError) -> None:
            directory.reopening.discard(partition)
            if not directory.is_online:
                return
            if isinstance(result, SetAside):
                self._ownership.take_aside(directory, partition, result)
                if is_again:
                    self._ownership.make_durable(directory)
                return
            remember_owner()
            if isinstance(result, BarnabasError):
                directory.unopened[partition] = result
                logger.error("%s is not served: %s", directory.path_of(partition), result)
                return
            directory.admit(result.log, result.topic_id)
            self.report.add(result.report)
            if is_again:
                directory.lower_after_opening()

        def remember_owner() -> None:
            if owner is not None and owner.topic_id is not None:
                directory.topic_ids[partition] = owner.topic_id

        def failed(error: DiskFailed) -> None:
            directory.reopening.discard(partition)
            self._on_failure(directory, error)
            if directory.is_online and not self._ownership.is_rivalled(directory, partition):
                remember_owner()
                directory.logs.pop(partition, None)
                directory.unopened[partition] = error

        return Job(f"open {partition}", run=run, finish=finish, failed=failed)

    def settle(self) -> None:
        """All jobs are done: makes durable what must be before anything is appended, and completes the report."""
        self._meter = ProgressMeter(0, None)
        self.report.strays = self._ownership.strays
        for directory in self._directories.online:
            try:
                self._ownership.make_durable(directory)
                directory.lower_after_opening()
            except DiskFailed as error:
                self._give_up(directory, error)
            self.report.unopened += directory.unopened
        self.report.offline = [directory.path for directory in self._directories.offline]
