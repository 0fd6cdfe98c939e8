"""Checks what a tool is pointed at: a log directory (its own small files, and each partition in it), or one partition.

Reads only; `verify` has the partitions.

What belongs to a KRaft node is left alone. Checkpoints are read before the logs, so that those of a directory in use,
which only grows, cannot have run ahead of what is seen of the logs.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset, TopicPartition
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    read_offsets,
)
from barnabas.storage.directories.directory import CLUSTER_METADATA, LogDirectory, parse_partition
from barnabas.storage.directories.meta_properties import LOCK, META_PROPERTIES, read_meta_properties
from barnabas.storage.directories.recognition import holds_log
from barnabas.storage.tools.findings import Finding, Findings
from barnabas.storage.tools.verify import PartitionReport, partition_log_bytes, verify_partition

OFFSET_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
_MEANINGS: Final = {
    RECOVERY_POINTS: "the recovery point",
    LOG_START_OFFSETS: "the start of the log",
    HIGH_WATERMARKS: "the high watermark",
    CLEANER_OFFSETS: "the cleaned offset",
}
_DURABLE: Final = frozenset({RECOVERY_POINTS, LOG_START_OFFSETS})
"""These never pass what is on the disk; the others may, when a crash loses the newest records."""

_KNOWN: Final = frozenset({*OFFSET_CHECKPOINTS, META_PROPERTIES, CLEAN_SHUTDOWN, LOCK})
_OWN_PREFIX: Final = "barnabas-metadata."
"""Of the file with the cluster's state, what SQLite keeps beside it, its lock and older copies."""
_KRAFT_NAMES: Final = frozenset({"bootstrap.checkpoint", str(CLUSTER_METADATA)})


@dataclass(slots=True)
class DirectoryReport:
    """What was found in a log directory: in its own files, and in its partitions."""

    directory: str
    findings: list[Finding] = field(default_factory=list)
    errors: int = 0
    partitions: list[PartitionReport] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.errors and all(partition.is_sound for partition in self.partitions)


class NoLogs(BarnabasError):  # noqa: N818 - a fact about a directory, named as one
    """A directory in which no log lies; the message says what would be one."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a tool was pointed at: a log directory, or a single partition, which may lie in one."""

    directory: str
    partitions: tuple[TopicPartition, ...]
    is_single: bool
    log_directory: str | None
    """Where the checkpoints and the lock are; None for partitions that lie somewhere else."""
    strangers: tuple[TopicPartition, ...] = ()
    """Directories whose names are those of partitions, and which hold no log."""

    def path_of(self, partition: TopicPartition) -> str:
        return self.directory if self.is_single else os.path.join(self.directory, str(partition))


def find_target(files: FileSystem, directory: str) -> Target:
    """What lies in a directory. `NoLogs` when it is neither a log nor a directory that holds logs."""
    directory = os.path.normpath(directory)
    if holds_log(files, directory):
        parent, name = os.path.split(os.path.abspath(directory))
        partition = parse_partition(name) or TopicPartition(name, 0)
        log_directory = parent if _is_log_directory(files, parent) else None
        return Target(directory, (partition,), is_single=True, log_directory=log_directory)
    partitions: list[TopicPartition] = []
    strangers: list[TopicPartition] = []
    for partition in LogDirectory(files, directory).list().partitions:
        is_log = holds_log(files, os.path.join(directory, str(partition)))
        (partitions if is_log else strangers).append(partition)
    log_directory = directory if _is_log_directory(files, directory) else None
    if not partitions and log_directory is None:
        raise NoLogs(
            f"there is no log in {directory}: give the directory of a partition (TOPIC-NUMBER, with .log files), or a "
            "log directory that holds such directories"
        )
    return Target(directory, tuple(partitions), False, log_directory, tuple(strangers))


def _is_log_directory(files: FileSystem, directory: str) -> bool:
    """Whether a broker has used it: its own small files are there."""
    return any(files.exists(os.path.join(directory, known)) for known in (META_PROPERTIES, *OFFSET_CHECKPOINTS))


def target_log_bytes(files: FileSystem, target: Target) -> int:
    """How much a check will read, for progress."""
    return sum(partition_log_bytes(files, target.path_of(partition)) for partition in target.partitions)


def was_closed(files: FileSystem, target: Target) -> bool:
    """Whether the last stop was clean; a partition outside a log directory counts as closed."""
    return target.log_directory is None or files.exists(os.path.join(target.log_directory, CLEAN_SHUTDOWN))


def verify_target(
    files: FileSystem,
    target: Target,
    *,
    is_settled: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> DirectoryReport:
    """Checks a log directory with all its partitions, or one partition. Only a disk that cannot be read raises."""
    findings = Findings()
    report = DirectoryReport(target.directory)
    checkpoints: dict[str, dict[TopicPartition, Offset] | None] = {}
    if target.log_directory is not None:
        seen = Findings() if target.is_single else findings
        checkpoints = {name: _read_checkpoint(files, target.log_directory, name, seen) for name in OFFSET_CHECKPOINTS}
    if not target.is_single:
        _check_names(files, target, findings)
        _check_meta_properties(files, target.directory, findings)
    cleaned = checkpoints.get(CLEANER_OFFSETS)
    starts = checkpoints.get(LOG_START_OFFSETS) or {}
    ends: dict[TopicPartition, Offset] = {}
    for partition in target.partitions:
        checked = verify_partition(
            files,
            target.path_of(partition),
            is_settled=is_settled,
            is_compacted=None if cleaned is None else partition in cleaned,
            log_start_offset=starts.get(partition, 0),
            on_progress=on_progress,
        )
        report.partitions.append(checked)
        ends[partition] = checked.end_offset
    for name, offsets in checkpoints.items():
        listed = {
            partition: offset
            for partition, offset in (offsets or {}).items()
            if partition in ends or not target.is_single
        }
        path = os.path.join(target.log_directory or "", name)
        _check_offsets(path, name, listed, ends, findings, is_settled=is_settled)
    report.findings, report.errors = findings.all(), findings.error_count
    return report


def _check_names(files: FileSystem, target: Target, findings: Findings) -> None:
    directory = target.directory
    for name in files.list(directory):
        path = os.path.join(directory, name)
        if name in _KRAFT_NAMES:
            findings.note(path, "not checked: it belongs to a KRaft node and is left alone")
        elif name not in _KNOWN and not name.startswith(_OWN_PREFIX) and not files.is_directory(path):
            findings.note(path, "not a file of a log directory")
    listing = LogDirectory(files, directory).list()
    for names, reason in (
        (map(str, target.strangers), "it holds no log, in spite of its name"),
        (listing.doomed, "the partition is being deleted"),
        (listing.strays, "the partition's topic was not in the metadata; it is set aside and not served"),
        (listing.set_aside, "the partition is set aside and not served"),
        (listing.malformed, "its name is not that of a partition (TOPIC-NUMBER)"),
    ):
        for name in names:
            findings.note(os.path.join(directory, name), f"not checked: {reason}")


def _check_meta_properties(files: FileSystem, directory: str, findings: Findings) -> None:
    path = os.path.join(directory, META_PROPERTIES)
    try:
        if read_meta_properties(files, path) is None:
            findings.note(path, "it is missing; the first start of a broker writes it")
    except CorruptCheckpoint as problem:
        findings.error(path, problem.describe())


def _read_checkpoint(
    files: FileSystem, directory: str, name: str, findings: Findings
) -> dict[TopicPartition, Offset] | None:
    """None when there is none, or none that can be read."""
    path = os.path.join(directory, name)
    try:
        return read_offsets(files, path) if files.exists(path) else None
    except CorruptCheckpoint as problem:
        findings.error(path, problem.describe())
        return None


def _check_offsets(
    path: str,
    name: str,
    offsets: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
    findings: Findings,
    *,
    is_settled: bool,
) -> None:
    for partition, offset in offsets.items():
        end = ends.get(partition)
        if end is None:
            findings.note(path, f"partition {partition} is not in this directory")
        elif offset > end:
            report = findings.error if is_settled or name in _DURABLE else findings.note
            report(path, f"{_MEANINGS[name]} of {partition} is {offset}, but its log ends at {end}", offset=offset)
