"""Repairs the logs of a directory, as recovery does after a crash, but believing nothing: every batch is checked.

A partition in which a check finds nothing is left as it is, and so is everything that is no log (`recognition`): other
files in a partition's directory, other directories. Any other is opened by recovery with its recovery point at
the beginning: the log is cut at the first bad batch, whatever follows it is removed, indexes, snapshots and epochs are
made again from the batches; then it is closed. Checkpoints that say more than the logs hold are lowered. At the end
everything is checked once more.

It works on any `FileSystem`: on an `OverlayFileSystem` it is a rehearsal. The caller holds the directory's lock.
Crash: as in recovery, what is left can be recovered, or repaired, again.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset, TopicPartition
from barnabas.storage.checkpoints import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    StoredOffsets,
    read_stored_offsets,
    write_offsets,
)
from barnabas.storage.log.recovery import open_log
from barnabas.storage.segment.handles import Handles
from barnabas.storage.settings import LogConfig
from barnabas.storage.tools.verify import PartitionReport
from barnabas.storage.tools.verify_directory import OFFSET_CHECKPOINTS, DirectoryReport, Target, verify_target

_HANDLES: Final = 64


@dataclass(frozen=True, slots=True)
class PartitionRepair:
    """What was done to one partition."""

    partition: TopicPartition
    notes: tuple[str, ...]
    old_end_offset: Offset
    """As far as batches could be read before, bad ones in between left out."""
    new_end_offset: Offset
    removed_bytes: int
    failure: BarnabasError | None = None
    """Why it could not be opened; then it is as it was."""


@dataclass(slots=True)
class RepairReport:
    before: DirectoryReport
    after: DirectoryReport
    partitions: list[PartitionRepair] = field(default_factory=list)
    lowered: list[str] = field(default_factory=list)
    """Checkpoint files that were rewritten."""

    @property
    def has_changes(self) -> bool:
        return bool(self.partitions or self.lowered)


def repair(
    files: FileSystem,
    target: Target,
    clock: Clock,
    random: Random,
    *,
    is_settled: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> RepairReport:
    """Repairs what a check finds. Reads everything up to three times, which is what `on_progress` counts."""
    before = verify_target(files, target, is_settled=is_settled, on_progress=on_progress)
    report = RepairReport(before, before)
    starts = (_read_checkpoint(files, target, LOG_START_OFFSETS) or StoredOffsets({}, False)).offsets
    for partition, found in zip(target.partitions, before.partitions, strict=True):
        if not found.is_in_order:
            report.partitions.append(
                _repair_partition(
                    files, target, partition, found, clock, random, starts.get(partition, 0), on_progress=on_progress
                )
            )
    ends = {partition: found.end_offset for partition, found in zip(target.partitions, before.partitions, strict=True)}
    repaired = {done.partition: done.new_end_offset for done in report.partitions if done.failure is None}
    if target.log_directory is not None:
        report.lowered = _lower_checkpoints(files, target, ends | repaired, repaired)
    if report.has_changes:
        report.after = verify_target(files, target, is_settled=True, on_progress=on_progress)
    return report


def _repair_partition(
    files: FileSystem,
    target: Target,
    partition: TopicPartition,
    found: PartitionReport,
    clock: Clock,
    random: Random,
    start_offset: Offset,
    *,
    on_progress: Callable[[int], None] | None,
) -> PartitionRepair:
    # The topic's settings are not known here. What matters is whether a gap in the offsets is right, and nothing is
    # cut for a gap of which that is not certain.
    config = LogConfig(cleanup_policy=frozenset({"compact"} if found.may_have_gaps else {"delete"}))
    try:
        log, recovery = open_log(
            files,
            Handles(_HANDLES),
            clock,
            random,
            target.path_of(partition),
            partition,
            config,
            log_start_offset=start_offset,
            on_progress=on_progress,
        )
    except BarnabasError as failure:
        return PartitionRepair(partition, (), found.end_offset, found.end_offset, 0, failure)
    log.close()
    return PartitionRepair(partition, tuple(recovery.notes), found.end_offset, log.end_offset, recovery.removed_bytes)


def _read_checkpoint(files: FileSystem, target: Target, name: str) -> StoredOffsets | None:
    """None when it cannot be read."""
    if target.log_directory is not None:
        with suppress(CorruptCheckpoint):
            return read_stored_offsets(files, os.path.join(target.log_directory, name))
    return None


def _lower_checkpoints(
    files: FileSystem,
    target: Target,
    ends: dict[TopicPartition, Offset],
    repaired: dict[TopicPartition, Offset],
) -> list[str]:
    """No checkpoint may say more than its log holds; what was repaired and closed is durable up to its end."""
    assert target.log_directory is not None
    written = []
    for name in OFFSET_CHECKPOINTS:
        old, is_ours = _read_checkpoint(files, target, name) or (None, False)
        new = {partition: min(offset, ends.get(partition, offset)) for partition, offset in (old or {}).items()}
        if name == RECOVERY_POINTS:  # one of Kafka's in a file of ours would say too much about compaction
            new = (new if is_ours else {}) | repaired
        if new != old:
            path = os.path.join(target.log_directory, name)
            write_offsets(files, path, new)
            written.append(path)
    return written
