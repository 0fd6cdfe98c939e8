"""One log directory: whose it is, what lies in it, and its checkpoint files.

```
.lock                             held while a process uses the directory
meta.properties                   cluster, node, and this directory's own id
.kafka_cleanshutdown              only between a clean stop and the next start
recovery-point-offset-checkpoint  and three more, see `barnabas.storage.checkpoints`
orders-0/                         a partition
orders-0.5f0c...-delete/          deleted, to be removed
orders-0.5f0c...-stray/           of a topic that the metadata does not know: kept, not served (`storage.strays`)
orders-0.5f0c...-future/          a move between directories: kept, said once, not served
__cluster_metadata-0/             and whatever else is not listed here: somebody else's, left alone
```

Owner: the log manager's thread. Only `CheckpointFile.write` and `lower` are for worker threads.
Crash: every file is replaced as a whole. The mark of a clean stop is removed durably before anything else changes, so
that it never speaks for files that were written to since.
"""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Lock as ThreadLock
from typing import Final
from uuid import UUID

from barnabas.base.errors import BarnabasError, DiskFailed, DiskFull
from barnabas.base.filesystem import FileSystem, Lock, make_durable_directory
from barnabas.base.ids import Offset, TopicPartition, topic_name_problem
from barnabas.base.uuid import new_uuid
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CleanShutdown,
    CorruptCheckpoint,
    read_clean_shutdown,
    read_stored_offsets,
    write_clean_shutdown,
    write_offsets,
)
from barnabas.storage.directories.meta_properties import (
    LOCK,
    META_PROPERTIES,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from barnabas.storage.directories.space import DirectorySpace
from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)

CLUSTER_METADATA: Final = TopicPartition("__cluster_metadata", 0)

_SET_ASIDE: Final = re.compile(r"(?P<partition>.+-\d+)\.\w+-(?P<reason>delete|future|stray)")
_PARTITION_MAX: Final = 2**31 - 1
_NAME_LENGTH_MAX: Final = 255


class UnusableDirectory(BarnabasError):  # noqa: N818 - a fact about a directory, named as one
    """A log directory that this node must not touch; the message says why and what to do."""


def parse_partition(name: str) -> TopicPartition | None:
    """The partition that a directory of this name holds, or None when it is not such a name."""
    topic, _, number = name.rpartition("-")
    if topic_name_problem(topic) or not (number.isascii() and number.isdigit()) or int(number) > _PARTITION_MAX:
        return None
    partition = TopicPartition(topic, int(number))
    return partition if str(partition) == name else None


def doomed_name(partition: TopicPartition, unique: UUID) -> str:
    """What a deleted partition's directory is called until it is removed."""
    return _name_aside(partition, unique, "delete")


def stray_name(partition: TopicPartition, unique: UUID) -> str:
    """What the directory of a partition is called that the metadata does not know."""
    return _name_aside(partition, unique, "stray")


def _name_aside(partition: TopicPartition, unique: UUID, reason: str) -> str:
    """Kafka's form. A long topic name loses its end."""
    suffix = f"-{partition.partition}.{unique.hex}-{reason}"
    return partition.topic[: _NAME_LENGTH_MAX - len(suffix)] + suffix


def partition_set_aside(name: str) -> TopicPartition | None:
    """The partition that such a directory held; None when its name cannot tell."""
    match = _SET_ASIDE.fullmatch(name)
    return None if match is None or len(name) >= _NAME_LENGTH_MAX else parse_partition(match["partition"])


@dataclass(slots=True)
class DirectoryListing:
    """The contents of a log directory, grouped by how they are treated. Names are relative to it."""

    partitions: list[TopicPartition] = field(default_factory=list)
    doomed: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckpointVersion:
    """The content of a checkpoint file at some time; a higher number is a later time."""

    number: int
    offsets: dict[TopicPartition, Offset]


class CheckpointFile:
    """One file of offsets: its owner prepares versions, workers write them. A stale one never replaces a newer one."""

    __slots__ = (
        "_files",
        "_lock",
        "_newest",
        "_prepared_number",
        "_written_number",
        "found",
        "found_ours",
        "path",
        "stored",
    )

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self.path = path
        self._lock = ThreadLock()
        self._prepared_number = 0
        self._written_number = 0
        self._newest: dict[TopicPartition, Offset] | None = None
        """What was prepared last; None when the file may say something else."""
        self.found: dict[TopicPartition, Offset] = {}
        """The content of the file at the start; opening a log uses it."""
        self.found_ours = False
        """Whether it was written by us, not by Apache Kafka."""
        self.stored: Mapping[TopicPartition, Offset] = {}
        """The content of the file, durably. A worker exchanges it; nobody changes it."""

    def read(self) -> None:
        """A damaged file counts as none: every log is then checked from its beginning."""
        try:
            self.found, self.found_ours = read_stored_offsets(self._files, self.path)
            self._newest = dict(self.found)
            self.stored = self._newest
        except CorruptCheckpoint as problem:
            logger.warning("continuing without a checkpoint: %s", problem)

    def is_news(self, offsets: dict[TopicPartition, Offset]) -> bool:
        return offsets != self._newest

    def prepare(self, offsets: dict[TopicPartition, Offset]) -> CheckpointVersion:
        self._prepared_number += 1
        self._newest = offsets
        return CheckpointVersion(self._prepared_number, offsets)

    def prepare_changes(
        self, partitions: Iterable[TopicPartition], offsets: Mapping[TopicPartition, Offset]
    ) -> CheckpointVersion | None:
        """What the file says, with the offsets of these partitions as they are now; those without one are left out.

        Costs little however many other partitions there are. Where nothing changes it is the version prepared last,
        which may still be on its way to the disk; writing it once more costs nothing. None when it is not known what
        the file says.
        """
        newest = self._newest
        if newest is None:
            return None
        changed = [partition for partition in partitions if newest.get(partition) != offsets.get(partition)]
        if not changed:
            return CheckpointVersion(self._prepared_number, newest)
        revised = dict(newest)
        for partition in changed:
            revised.pop(partition, None)
            if partition in offsets:
                revised[partition] = offsets[partition]
        return self.prepare(revised)

    def write(self, version: CheckpointVersion) -> None:
        """Durable when it returns. For a worker thread."""
        with self._lock:
            if version.number <= self._written_number:
                return
            try:
                write_offsets(self._files, self.path, version.offsets)
            except DiskFailed:
                self._newest = None
                raise
            self._written_number = version.number
            self.stored = version.offsets

    def lower(self, version: CheckpointVersion) -> None:
        """Like `write`, for offsets that must not stay as high as they are, even if there is no room for a file.

        Without the file every offset counts as zero, which is always safe: it only makes the next recovery longer.
        """
        try:
            self.write(version)
        except DiskFull:
            with self._lock:
                self.stored = {}
                self._files.remove(self.path)
                self._files.sync_directory(os.path.dirname(self.path))
                self._written_number = max(self._written_number, version.number)


class LogDirectory:
    """`logs` are those that are open and served."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self._lock: Lock | None = None
        self.path = path
        self.directory_id: UUID | None = None
        self.space = DirectorySpace(path)
        self.clean_shutdown: CleanShutdown | None = None
        """The mark that the last stop has left, if it was a clean one."""
        self.failure: DiskFailed | None = None
        """Why it is offline; it stays so until the process starts again."""
        self.logs: dict[TopicPartition, Log] = {}
        self.topic_ids: dict[TopicPartition, UUID] = {}
        self.lost: set[TopicPartition] = set()
        """What was served until the directory went offline."""
        self.unopened: dict[TopicPartition, BarnabasError] = {}
        """Partitions whose logs could not be opened, and why."""
        self.reopening: set[TopicPartition] = set()
        """Those of them that a worker tries to open again."""
        self.strays: dict[str, UUID | None] = {}
        """Names of directories that are set aside because the metadata does not have their topic ids, and these."""
        self.arriving: set[TopicPartition] = set()
        """Partitions that are being created here, or brought back."""
        self.newborn: set[TopicPartition] = set()
        """Those of them that begin empty."""
        self.is_checkpointing = False
        self.recovery_points = CheckpointFile(files, self.file(RECOVERY_POINTS))
        self.start_offsets = CheckpointFile(files, self.file(LOG_START_OFFSETS))
        self.high_watermarks = CheckpointFile(files, self.file(HIGH_WATERMARKS))

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def path_of(self, partition: TopicPartition) -> str:
        return self.file(str(partition))

    @property
    def is_online(self) -> bool:
        return self.failure is None

    @property
    def partition_count(self) -> int:
        return len(self.logs) + len(self.unopened) + len(self.arriving)

    # -- starting ------------------------------------------------------------------------------------------------

    def claim(self, cluster_id: str, node_id: int, random: Random) -> None:
        """Locks the directory and makes sure that it is this node's, or makes it so when it is nobody's."""
        try:
            self._require_own(cluster_id, node_id)
        except UnusableDirectory:
            if self._files.exists(self.file(LOCK)):
                self._files.lock(self.file(LOCK)).release()  # that somebody uses it now says more
            raise
        make_durable_directory(self._files, self.path)
        self._lock = self._files.lock(self.file(LOCK))
        try:
            self._complete_meta(cluster_id, node_id, random)
        except BarnabasError:
            self.release()
            raise

    def _require_own(self, cluster_id: str, node_id: int) -> MetaProperties:
        """The identity stored in the directory; raises `UnusableDirectory` when it is not this node's."""
        meta = read_meta_properties(self._files, self.file(META_PROPERTIES)) or MetaProperties(None, None, None)
        if meta.cluster_id not in (None, cluster_id):
            raise UnusableDirectory(
                f"{self.path} belongs to cluster {meta.cluster_id}, this node to {cluster_id}: "
                "set log.dirs to directories of one cluster, or to a new one"
            )
        if meta.node_id not in (None, node_id):
            raise UnusableDirectory(
                f"{self.path} belongs to node {meta.node_id}, this is node {node_id}: set node.id or log.dirs so "
                "that they match"
            )
        return meta

    def _complete_meta(self, cluster_id: str, node_id: int, random: Random) -> None:
        meta = self._require_own(cluster_id, node_id)
        complete = MetaProperties(cluster_id, node_id, meta.directory_id or new_uuid(random))
        if complete != meta:
            write_meta_properties(self._files, self.file(META_PROPERTIES), complete)
        self.directory_id = complete.directory_id

    def begin(self) -> None:
        """Reads what the last stop has left, and takes the mark of a clean stop away before anything changes.

        The names of partitions that a killed process had just made become durable here: nobody else syncs them again.
        """
        self.clean_shutdown = read_clean_shutdown(self._files, self.file(CLEAN_SHUTDOWN))
        if self.clean_shutdown is not None:
            self._files.remove(self.file(CLEAN_SHUTDOWN))
        self._files.sync_directory(self.path)
        for checkpoint in (self.recovery_points, self.start_offsets, self.high_watermarks):
            checkpoint.read()

    def sync_names(self) -> None:
        """Makes renames in this directory durable."""
        self._files.sync_directory(self.path)

    def list(self) -> DirectoryListing:
        """Sorts the directories by their names; files are not looked at."""
        listing = DirectoryListing()
        for name in self._files.list(self.path):
            partition, set_aside = parse_partition(name), _SET_ASIDE.fullmatch(name)
            if partition == CLUSTER_METADATA or not self._files.is_directory(self.file(name)):
                continue
            if partition is not None:
                listing.partitions.append(partition)
            elif set_aside is None:
                listing.malformed.append(name)
            elif set_aside["reason"] == "delete":
                listing.doomed.append(name)
            elif set_aside["reason"] == "stray":
                listing.strays.append(name)
            else:
                listing.set_aside.append(name)
        return listing

    # -- logs ----------------------------------------------------------------------------------------------------

    def admit(self, log: Log, topic_id: UUID | None) -> None:
        """Begins to serve a log; its high watermark is the one last written down, as far as the log reaches."""
        self.logs[log.partition] = log
        self.unopened.pop(log.partition, None)
        if topic_id is not None:
            self.topic_ids[log.partition] = topic_id
        watermark = self.high_watermarks.found.get(log.partition, 0)
        log.advance_high_watermark(max(log.log_start_offset, min(watermark, log.end_offset)))

    def dismiss(self, partition: TopicPartition) -> None:
        """Ends the service of a log, because it is being deleted."""
        self.logs.pop(partition, None)
        self.unopened.pop(partition, None)

    def suspend(self, log: Log, problem: DiskFailed) -> None:
        """Takes a log that a failure has left half changed out of service: it must be reopened."""
        partition = log.partition
        for checkpoint, offsets in (
            (self.recovery_points, self.current_recovery_points()),
            (self.start_offsets, self.current_start_offsets()),
            (self.high_watermarks, self.current_high_watermarks()),
        ):
            checkpoint.found.pop(partition, None)
            if partition in offsets:
                checkpoint.found[partition] = offsets[partition]
        with suppress(DiskFailed):
            log.finish_close()
        del self.logs[partition]
        self.unopened[partition] = problem

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def has_sure_point(self, partition: TopicPartition) -> bool:
        """Whether the recovery point that was found is also one above which compaction has left no gaps."""
        return self.recovery_points.found_ours and partition in self.recovery_points.found

    def current_recovery_points(self, among: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Offset]:
        """Only sure ones. Without one a log is checked from its start, and its gaps are taken for compaction's."""
        points = self._collect(self.recovery_points, lambda log: log.recovery_point, among)
        for partition in tuple(points):
            log = self.logs.get(partition)
            if points[partition] < log.gaps_end_offset if log else not self.has_sure_point(partition):
                del points[partition]
        for partition in self.newborn if among is None else self.newborn.intersection(among):
            points[partition] = 0
        return points

    def current_high_watermarks(self) -> dict[TopicPartition, Offset]:
        return self._collect(self.high_watermarks, lambda log: log.high_watermark)

    def current_start_offsets(self, among: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Offset]:
        """Only of logs that start within a segment, or will: the others' first segment says it.

        Once its name is durable, and the segments below it have left durably: of a log that is being cut, or of which
        segments were just deleted, a power loss may leave other ones.
        """
        offsets = self._collect(self.start_offsets, lambda log: log.coming_start_offset, among)
        for partition in tuple(offsets):
            log = self.logs.get(partition)
            if log and not log.is_truncating and offsets[partition] <= log.names.first_offset:
                del offsets[partition]
        return offsets

    def _collect(
        self,
        checkpoint: CheckpointFile,
        offset_of: Callable[[Log], Offset],
        among: Collection[TopicPartition] | None = None,
    ) -> dict[TopicPartition, Offset]:
        """What a checkpoint file should say now, of all partitions or of some.

        Of a log that could not be opened it says what it said before.
        """
        if among is None:
            offsets = {partition: offset_of(log) for partition, log in self.logs.items()}
        else:
            offsets = {partition: offset_of(self.logs[partition]) for partition in among if partition in self.logs}
        for partition in self.unopened:
            if partition in checkpoint.found and (among is None or partition in among):
                offsets[partition] = checkpoint.found[partition]
        return offsets

    def prepare_lowering(self, among: Collection[TopicPartition] | None = None) -> Callable[[], None]:
        """Takes the current offsets; returns a function, for a worker, that lowers the files to them.

        With `among` only these partitions are looked at. The files may keep their offsets of the others, which have
        only risen since.
        """
        points = _prepare(self.recovery_points, self.current_recovery_points, among)
        starts = _prepare(self.start_offsets, self.current_start_offsets, among)

        def lower() -> None:
            self.recovery_points.lower(points)
            self.start_offsets.lower(starts)

        return lower

    def prepare_points(self, among: Collection[TopicPartition]) -> Callable[[], None]:
        """Takes the current recovery points of these partitions; returns a function, for a worker, that stores them."""
        return partial(self.recovery_points.write, _prepare(self.recovery_points, self.current_recovery_points, among))

    def prepare_start_offsets(self, among: Collection[TopicPartition]) -> CheckpointVersion:
        """For a worker to write: with it the starts of these logs are durable."""
        return _prepare(self.start_offsets, self.current_start_offsets, among)

    def lower_after_opening(self) -> None:
        """Corrects the checkpoints where recovery has cut below them, or where they name a log that is gone.

        Else the records that will be written there would count as checked after the next crash.
        """
        found_points, points = self.recovery_points.found, self.current_recovery_points()
        found_starts, starts = self.start_offsets.found, self.current_start_offsets()
        if any(offset > points.get(partition, 0) for partition, offset in found_points.items()) or any(
            partition not in self.logs and partition not in starts for partition in found_starts
        ):
            self.prepare_lowering()()

    # -- ending --------------------------------------------------------------------------------------------------

    def write_all_checkpoints(self) -> None:
        """For the end, when nothing else runs: the directory's last words."""
        for checkpoint, offsets in (
            (self.recovery_points, self.current_recovery_points()),
            (self.start_offsets, self.current_start_offsets()),
            (self.high_watermarks, self.current_high_watermarks()),
        ):
            checkpoint.write(checkpoint.prepare(offsets))

    def mark_clean(self, broker_epoch: int) -> None:
        write_clean_shutdown(self._files, self.file(CLEAN_SHUTDOWN), CleanShutdown(broker_epoch))

    def give_up(self, failure: DiskFailed) -> None:
        """Takes the directory offline: nothing of it is served or written any more."""
        self.failure = failure
        for log in self.logs.values():
            log.give_up(failure)
            with suppress(DiskFailed):
                log.finish_close()
        self.lost = {*self.logs, *self.unopened}
        self.logs.clear()
        self.unopened.clear()
        self.release()

    def release(self) -> None:
        """Lets other processes in. The lock file stays: removing it would race with a process that waits for it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def _prepare(
    checkpoint: CheckpointFile,
    current: Callable[[Collection[TopicPartition] | None], dict[TopicPartition, Offset]],
    among: Collection[TopicPartition] | None,
) -> CheckpointVersion:
    if among is not None and (version := checkpoint.prepare_changes(among, current(among))) is not None:
        return version
    return checkpoint.prepare(current(None))
