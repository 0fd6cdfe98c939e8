"""Checks everything that must be true of a partition's directory, or of a log directory with many, without writing.

| file | what is checked |
|---|---|
| names | every file and directory is one that the log knows; indexes and snapshots belong to a segment |
| `.log` | structure and checksum of each batch, its records (decompressed in bounded chunks), offsets that increase and stay within the segment, leader epochs that never decrease |
| `.index` | entries increase, point to batches, name their last offsets |
| `.timeindex` | entries increase, name the largest timestamp so far and a batch that has it; the last one that of the segment |
| `.txnindex` | exactly the aborted transactions of the markers in the segment |
| `.snapshot` | readable, and equal to what a replay of the log gives |
| `leader-epoch-checkpoint` | epochs and offsets increase, and agree with the batches |
| other checkpoints | readable; recovery point, high watermark, start and cleaned offset not beyond the end of the log |

A log that was not closed (`is_settled` is false: in use, or after a crash) may lack the newest entries of its derived
files, and may end within a batch; that is a note, not an error. Files may grow or go while they are read.
"""  # noqa: E501 - the table

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from barnabas.base.errors import CorruptBatch, DiskFailed
from barnabas.base.filesystem import File, FileSystem
from barnabas.base.ids import NO_EPOCH, Offset, Position
from barnabas.records.batch import BatchHeader
from barnabas.records.compression import EXPANDED_BYTES_MAX
from barnabas.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CorruptCheckpoint,
    read_leader_epochs,
    read_partition_metadata,
)
from barnabas.storage.directories.names import is_temporary, parse_segment_file_name
from barnabas.storage.log.epochs import EpochEntry, LeaderEpochs
from barnabas.storage.producers.snapshots import SNAPSHOT_SUFFIX
from barnabas.storage.segment.doomed import DELETED_SUFFIX
from barnabas.storage.segment.index import RELATIVE_OFFSET_MAX
from barnabas.storage.segment.replacement import CLEANED_SUFFIX, SWAP_SUFFIX
from barnabas.storage.segment.segment import INDEX_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, TIME_INDEX_SUFFIX
from barnabas.storage.segment.transaction_index import TRANSACTION_INDEX_SUFFIX
from barnabas.storage.tools.batch_stream import Damage, records_problem, stream_batches, walk_batch
from barnabas.storage.tools.findings import Finding, Findings, Severity
from barnabas.storage.tools.verify_index import OffsetIndexCheck, TimeIndexCheck
from barnabas.storage.tools.verify_producers import ProducerReplay

_ZEROS_BYTES: Final = 1 << 20
_GAPS_MAX: Final = 20
_NAMES_MAX: Final = 5
_SUFFIX_NOTES: Final = {
    DELETED_SUFFIX: "already deleted, and removed when the log is next opened",
    CLEANED_SUFFIX: "not finished by compaction, and removed when the log is next opened",
    SWAP_SUFFIX: "about to replace older segments, which happens when the log is next opened",
}


@dataclass(slots=True)
class PartitionReport:
    """What was found in one partition's directory."""

    directory: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    log_bytes: int = 0
    start_offset: Offset = 0
    end_offset: Offset = 0
    is_compacted: bool = False
    """Whether compaction has been here, as far as the batches or the caller tell."""
    may_have_gaps: bool = False
    """Whether missing offsets can be right: it is compacted, or nobody knows that it is not."""
    findings: list[Finding] = field(default_factory=list)
    errors: int = 0
    has_strangers: bool = False
    """Whether a finding is about files of somebody else, which are left alone."""

    @property
    def name(self) -> str:
        return os.path.basename(os.path.abspath(self.directory))

    @property
    def is_sound(self) -> bool:
        return not self.errors

    @property
    def is_in_order(self) -> bool:
        """Whether opening the log would change nothing: what was found is nothing of the log's."""
        return len(self.findings) == self.has_strangers


def partition_log_bytes(files: FileSystem, directory: str) -> int:
    """How much a check will read, for progress."""
    return sum(files.size(os.path.join(directory, name)) for name in files.list(directory) if name.endswith(LOG_SUFFIX))


def verify_partition(
    files: FileSystem,
    directory: str,
    *,
    is_settled: bool = True,
    is_compacted: bool | None = None,
    log_start_offset: Offset = 0,
    on_progress: Callable[[int], None] | None = None,
) -> PartitionReport:
    """Checks one partition's directory. Only a disk that cannot be read raises.

    `is_compacted` says whether offsets may be missing between batches; None means that nobody knows. Of the records
    before `log_start_offset`, which were deleted and are still in the file, no leader epoch need be known.
    """
    check = _PartitionCheck(files, directory, log_start_offset, is_settled=is_settled, on_progress=on_progress)
    check.report.is_compacted = bool(is_compacted)
    check.run()
    check.judge_gaps(is_known=is_compacted is not None)
    report = check.report
    report.findings, report.errors = check.findings.all(), check.findings.error_count
    return report


class _PartitionCheck:
    """One check of one partition."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        log_start_offset: Offset,
        *,
        is_settled: bool,
        on_progress: Callable[[int], None] | None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._log_start_offset = log_start_offset
        self._is_settled = is_settled
        self._on_progress = on_progress
        self._bases: list[Offset] = []
        self._snapshots: list[Offset] = []
        self._gaps: list[Finding] = []
        self.has_lost_track = False
        """Whether damage lies before the present place, so that the next offset cannot be known."""
        self.findings = Findings()
        self.report = PartitionReport(directory)

    def run(self) -> None:
        self._sort_names()
        self._check_metadata()
        epochs = _EpochCheck(
            self._files,
            self._path(LEADER_EPOCHS),
            self._log_start_offset,
            self.findings,
            is_settled=self._is_settled,
        )
        if not self._bases:
            self.findings.note(self._directory, "there is no segment: the log is empty")
        first = self._bases[0] if self._bases else 0
        self.report.start_offset = self.report.end_offset = first
        for offset in [offset for offset in self._snapshots if offset < first]:
            self.findings.note(self._path(f"{offset:020d}{SNAPSHOT_SUFFIX}"), "it is before the first segment")
            self._snapshots.remove(offset)
        producers = ProducerReplay(self._files, self._directory, self._snapshots, first, self.findings)
        for slot in range(len(self._bases)):
            self._check_segment(slot, epochs, producers)
        producers.finish(self.report.end_offset)
        epochs.finish(self.report.end_offset)

    def see_offset(self, path: str, position: Position, offset: Offset) -> None:
        """The log goes on here. What a gap means is known only at the end; the first few are enough to find it."""
        end = self.report.end_offset
        if offset > end and not self.has_lost_track and len(self._gaps) < _GAPS_MAX:
            problem = f"the offsets from {end} to {offset - 1} are missing before it"
            self._gaps.append(Finding(Severity.ERROR, path, problem, position, offset))
        self.report.end_offset = max(end, offset)
        self.has_lost_track = False

    def judge_gaps(self, *, is_known: bool) -> None:
        """Compaction leaves gaps; in any other log they are lost records."""
        self.report.may_have_gaps = self.report.is_compacted or not is_known
        if self.report.is_compacted:
            return
        for gap in self._gaps:
            report = self.findings.error if is_known else self.findings.note
            problem = gap.problem if is_known else f"{gap.problem}, which is right only in a compacted topic"
            report(gap.path, problem, position=gap.position, offset=gap.offset)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    # -- names ---------------------------------------------------------------------------------------------------

    def _sort_names(self) -> None:
        others: list[tuple[Offset, str]] = []
        suffixed: Counter[str] = Counter()
        unknown: list[str] = []
        for name in self._files.list(self._directory):
            parsed = parse_segment_file_name(name)
            if parsed is None or (parsed.suffix and parsed.suffix not in _SUFFIX_NOTES):
                self._see_other(name, unknown)
            elif parsed.suffix:
                suffixed[parsed.suffix] += 1
            elif parsed.kind == LOG_SUFFIX:
                self._bases.append(parsed.base_offset)
            elif parsed.kind == SNAPSHOT_SUFFIX:
                self._snapshots.append(parsed.base_offset)
            elif parsed.kind in SEGMENT_SUFFIXES:
                others.append((parsed.base_offset, name))
            else:
                unknown.append(name)
        if unknown:
            more = ", ..." if len(unknown) > _NAMES_MAX else ""
            named = ", ".join(unknown[:_NAMES_MAX]) + more
            self.report.has_strangers = True
            self.findings.note(self._directory, f"files that do not belong to the log, and are left alone: {named}")
        for base, name in others:
            if base not in self._bases:
                self.findings.error(self._path(name), "it belongs to no segment: there is no .log of this name")
        for suffix, count in sorted(suffixed.items()):
            self.findings.note(
                self._path(f"*{suffix}"), f"{count} file{'' if count == 1 else 's'}, {_SUFFIX_NOTES[suffix]}"
            )

    def _see_other(self, name: str, unknown: list[str]) -> None:
        if is_temporary(name):
            self.findings.note(self._path(name), "a file that was being replaced; opening the log removes it")
        elif name not in (LEADER_EPOCHS, PARTITION_METADATA):
            unknown.append(name)

    def _check_metadata(self) -> None:
        path = self._path(PARTITION_METADATA)
        try:
            read_partition_metadata(self._files, path)
        except CorruptCheckpoint as problem:
            self.findings.error(path, problem.describe())

    # -- segments ------------------------------------------------------------------------------------------------

    def _check_segment(self, slot: int, epochs: "_EpochCheck", producers: ProducerReplay) -> None:
        base = self._bases[slot]
        is_last = slot + 1 == len(self._bases)
        next_base = None if is_last else self._bases[slot + 1]
        path = self._path(f"{base:020d}")
        self.see_offset(path + LOG_SUFFIX, 0, base)
        try:
            with ExitStack() as stack:
                file = stack.enter_context(closing(self._files.open(path + LOG_SUFFIX)))
                is_open = is_last and not self._is_settled
                offsets = OffsetIndexCheck(self._files, path + INDEX_SUFFIX, base, self.findings, is_open=is_open)
                times = TimeIndexCheck(self._files, path + TIME_INDEX_SUFFIX, base, self.findings, is_open=is_open)
                stack.callback(offsets.close)
                stack.callback(times.close)
                producers.begin_segment(base, path + TRANSACTION_INDEX_SUFFIX)
                segment = _SegmentCheck(self, path + LOG_SUFFIX, base, next_base)
                segment.run(file, (offsets, times, epochs, producers))
                if segment.is_readable:
                    offsets.finish()
                    times.finish(is_complete=not is_open)
                producers.end_segment(self.report.end_offset, is_open=is_open, is_readable=segment.is_readable)
        except DiskFailed as problem:
            if self._is_settled or self._files.exists(path + LOG_SUFFIX):
                raise
            self.findings.note(path + LOG_SUFFIX, f"it was deleted during the check ({problem})")

    def see_damage(self, path: str, file: File, damage: Damage, *, is_last: bool) -> None:
        """A log that nobody has closed may end within a write, or in space allocated ahead."""
        left = file.size() - damage.position
        is_open = is_last and not self._is_settled
        if is_open and _is_zeros(file, damage.position):
            self.findings.note(path, f"{left} bytes allocated ahead", position=damage.position)
        elif is_open and damage.is_end:
            self.findings.note(
                path,
                f"{left} bytes after the last whole batch: a write in progress, or one that recovery truncates",
                position=damage.position,
            )
        else:
            offset = damage.header.base_offset if damage.header is not None else None
            self.findings.error(path, damage.problem, position=damage.position, offset=offset)

    def progress(self, count: int) -> None:
        if self._on_progress is not None:
            self._on_progress(count)


class _SegmentCheck:
    """The batches of one segment, each shown to the checks that watch them."""

    def __init__(self, partition: _PartitionCheck, path: str, base: Offset, next_base: Offset | None) -> None:
        self._partition = partition
        self._findings = partition.findings
        self._path = path
        self._base = base
        self._next_base = next_base
        self.is_readable = True
        """Whether the batches could be followed to the end of the segment."""

    def run(self, file: File, watchers: tuple[OffsetIndexCheck, TimeIndexCheck, "_EpochCheck", ProducerReplay]) -> None:
        offsets, times, epochs, producers = watchers
        report = self._partition.report
        report.segments += 1
        report.log_bytes += file.size()
        previous = self._base - 1
        stream = stream_batches(file, skip_damage=True, on_progress=self._partition.progress)
        for item in stream:
            if isinstance(item, Damage):
                self._partition.see_damage(self._path, file, item, is_last=self._next_base is None)
                self.is_readable = False
                self._partition.has_lost_track = True
                producers.lose_track()
                continue
            position, header, batch = item
            self._check_records(position, header, batch)
            self._check_offsets(position, header, previous)
            self._partition.see_offset(self._path, position, header.base_offset)
            if header.count != header.last_offset_delta + 1:
                report.is_compacted = True
            previous = max(previous, header.last_offset)
            offsets.see(position, header)
            times.see(header)
            epochs.see(self._path, position, header)
            producers.see(header, batch)
            report.batches += 1
            report.records += header.count
            report.end_offset = max(report.end_offset, header.next_offset)

    def _check_records(self, position: Position, header: BatchHeader, batch: memoryview) -> None:
        try:
            walked = walk_batch(header, batch)
        except CorruptBatch as error:
            self._findings.error(self._path, str(error), position=position, offset=header.base_offset)
            return
        if problem := records_problem(header, walked):
            self._findings.error(self._path, problem, position=position, offset=header.base_offset)
        if walked.expanded_bytes > EXPANDED_BYTES_MAX:
            self._findings.note(
                self._path,
                f"its records expand to {walked.expanded_bytes} bytes, more than allowed: compaction skips it",
                position=position,
                offset=header.base_offset,
            )

    def _check_offsets(self, position: Position, header: BatchHeader, previous: Offset) -> None:
        problem = None
        if header.base_offset < self._base:
            problem = f"offset {header.base_offset} is before the segment's first, {self._base}"
        elif header.base_offset <= previous:
            problem = f"offset {header.base_offset} comes after offset {previous}"
        elif header.last_offset - self._base > RELATIVE_OFFSET_MAX:
            problem = f"offset {header.last_offset} is too far from the segment's first, {self._base}"
        elif self._next_base is not None and header.last_offset >= self._next_base:
            problem = f"offset {header.last_offset} belongs to the next segment, which begins at {self._next_base}"
        if problem is not None:
            self._findings.error(self._path, problem, position=position, offset=header.base_offset)


class _EpochCheck:
    """The history of leader epochs against the epochs that stand in the batches."""

    def __init__(
        self, files: FileSystem, path: str, log_start_offset: Offset, findings: Findings, *, is_settled: bool
    ) -> None:
        self._path = path
        self._log_start_offset = log_start_offset
        self._findings = findings
        self._is_settled = is_settled
        self._epochs = LeaderEpochs()
        self._is_known = files.exists(path)
        self._newest = NO_EPOCH
        self._missing = NO_EPOCH
        try:
            entries = read_leader_epochs(files, path)
        except CorruptCheckpoint as problem:
            findings.error(path, problem.describe())
            self._is_known = False
            return
        self._check_order(entries)
        self._epochs = LeaderEpochs(entries)

    def _check_order(self, entries: Sequence[EpochEntry]) -> None:
        for earlier, later in pairwise(entries):
            if not (earlier.epoch < later.epoch and earlier.start_offset < later.start_offset):
                self._findings.error(
                    self._path,
                    f"epoch {later.epoch} from offset {later.start_offset} on does not come after epoch "
                    f"{earlier.epoch} from offset {earlier.start_offset} on",
                    offset=later.start_offset,
                )

    def see(self, log_path: str, position: Position, header: BatchHeader) -> None:
        epoch = header.leader_epoch
        if epoch == NO_EPOCH:
            return
        if epoch < self._newest:
            self._findings.error(
                log_path,
                f"leader epoch {epoch} after {self._newest}",
                position=position,
                offset=header.base_offset,
            )
        if epoch > self._newest:
            self._newest = epoch
        listed = self._epochs.epoch_for_offset(header.base_offset)
        latest = self._epochs.latest_epoch
        if not self._is_known or epoch == self._missing or header.next_offset <= self._log_start_offset:
            return
        if latest is None or epoch > latest:
            self._missing = epoch
            report = self._findings.error if self._is_settled else self._findings.note
            report(self._path, f"leader epoch {epoch}, which begins here, is missing", offset=header.base_offset)
        elif listed is not None and listed != epoch:
            self._findings.error(
                self._path, f"it says leader epoch {listed}, but the batch has {epoch}", offset=header.base_offset
            )

    def finish(self, end_offset: Offset) -> None:
        latest = self._epochs.latest
        if latest is not None and latest.start_offset > end_offset:
            self._findings.error(
                self._path,
                f"leader epoch {latest.epoch} begins after the end of the log, {end_offset}",
                offset=latest.start_offset,
            )


def _is_zeros(file: File, position: Position) -> bool:
    size = file.size()
    return all(not file.read_at(_ZEROS_BYTES, place).strip(b"\x00") for place in range(position, size, _ZEROS_BYTES))
