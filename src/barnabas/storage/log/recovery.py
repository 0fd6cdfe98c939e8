"""Opens the log of a partition from whatever a stop or a crash has left in its directory.

1. Replacements: what compaction had not finished is undone, what it had decided is completed (`.cleaned`, `.swap`).
2. Segments: each is loaded; one with a missing or impossible index is checked whole and gets new indexes.
3. After an unclean stop, every batch from the recovery point on is checked, and the log is cut at the first bad one.
4. Epochs and producers are brought to the end of the log, from their files and from the batches after them.

A full disk is no reason to keep a log closed: what its indexes have no room for waits in memory until a flush.

After a clean stop nothing is scanned: the last index entry, and the newest snapshot, lead to the end.
Runs in a worker thread on files that nobody else has open; the log it returns belongs to the caller.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.errors import CorruptBatch
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset, TopicPartition
from barnabas.storage.checkpoints import CorruptCheckpoint, read_leader_epochs
from barnabas.storage.directories.names import is_temporary, parse_segment_file_name
from barnabas.storage.log.epochs import LeaderEpochs
from barnabas.storage.log.flush import LEADER_EPOCH_CHECKPOINT
from barnabas.storage.log.log import Log
from barnabas.storage.log.replay import rebuild_producers
from barnabas.storage.producers.producers import CompletedTransaction, Producers
from barnabas.storage.producers.snapshots import SNAPSHOT_SUFFIX, Snapshots
from barnabas.storage.segment.doomed import DELETED_SUFFIX
from barnabas.storage.segment.durable_names import DurableNames
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.index import CorruptIndex
from barnabas.storage.segment.replacement import CLEANED_SUFFIX, SWAP_SUFFIX
from barnabas.storage.segment.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    Segment,
    remove_segment_files,
)
from barnabas.storage.segment.segment_recovery import SegmentScan, rebuild_segment, recover_segment, reindex_segment
from barnabas.storage.segment.segments import Segments
from barnabas.storage.segment.transaction_index import AbortedTransaction, CorruptTransactionIndex
from barnabas.storage.settings import LogConfig

logger = logging.getLogger(__name__)

_HANDLES_WHILE_OPENING: Final = 64


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log had to do, for people and for tests."""

    partition: TopicPartition
    checked_bytes: int = 0
    removed_bytes: int = 0
    removed_segments: int = 0
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Every repair is said once, here and in the log of the process."""
        self.notes.append(text)
        logger.warning("%s: %s", self.partition, text)


@dataclass(slots=True)
class _Names:
    """The files of a partition's directory, sorted by what they are."""

    segments: list[Offset] = field(default_factory=list)
    snapshots: list[Offset] = field(default_factory=list)
    indexes: list[tuple[Offset, str]] = field(default_factory=list)
    suffixed: dict[str, set[Offset]] = field(default_factory=dict)
    temporary: list[str] = field(default_factory=list)


def _sort_names(names: list[str]) -> _Names:
    found = _Names()
    for name in names:
        if is_temporary(name):
            found.temporary.append(name)
            continue
        parsed = parse_segment_file_name(name)
        if parsed is None:
            continue
        base, kind, suffix = parsed
        if suffix:
            found.suffixed.setdefault(suffix, set()).add(base)
        elif kind == LOG_SUFFIX:
            found.segments.append(base)
        elif kind == SNAPSHOT_SUFFIX:
            found.snapshots.append(base)
        elif kind in SEGMENT_SUFFIXES:
            found.indexes.append((base, kind))
    return found


class LogOpener:
    """One opening of one log. `open_log` is the way in."""

    def __init__(
        self,
        files: FileSystem,
        clock: Clock,
        random: Random,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        *,
        recovery_point: Offset,
        is_point_sure: bool,
        log_start_offset: Offset,
        was_clean: bool,
        on_progress: Callable[[int], None] | None,
    ) -> None:
        self._files = files
        self._handles = Handles(_HANDLES_WHILE_OPENING)
        self._clock = clock
        self._random = random
        self._directory = directory
        self._config = config
        self._recovery_point = recovery_point
        self._is_point_sure = is_point_sure
        self._log_start_offset = log_start_offset
        self._was_clean = was_clean
        self._on_progress = on_progress
        self._segments = Segments()
        self._epochs = LeaderEpochs()
        self._recovered: list[Segment] = []
        self.report = RecoveryReport(partition)

    def open(self, handles: Handles) -> Log:
        if not self._files.exists(self._directory):
            self._files.make_directory(self._directory)
        names = self._finish_replacements(_sort_names(self._files.list(self._directory)))
        doubtful = self._load_segments(names)
        self._read_epochs()
        self._recover(doubtful)
        end_offset = self._find_end()
        first_offset = self._segments[0].base_offset
        self._log_start_offset = max(self._log_start_offset, first_offset)
        if self._log_start_offset > end_offset and self._was_clean:
            self.report.note(f"the log ends at {end_offset}: ignoring its start offset {self._log_start_offset}")
            self._log_start_offset = first_offset
        elif self._log_start_offset > end_offset:
            self.report.note(
                f"the log ends at {end_offset}, before its start {self._log_start_offset}: emptied, to continue there"
            )
            self._remove_segments(list(self._segments), "after the cut")
            self._add_empty_segment(self._log_start_offset)
            end_offset = self._log_start_offset
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        snapshots, producers = self._rebuild_producers(names.snapshots, end_offset)
        self._reindex_distrusted()
        for segment in self._segments:
            segment.attach(handles)
        return Log(
            self._files,
            handles,
            self._clock,
            self._random,
            self._directory,
            self.report.partition,
            self._config,
            segments=self._segments,
            snapshots=snapshots,
            producers=producers,
            epochs=self._epochs,
            names=self._durable_names(is_new=not names.segments),
            log_start_offset=self._log_start_offset,
            end_offset=end_offset,
            recovery_point=end_offset if self._was_clean and not doubtful else min(self._recovery_point, end_offset),
            gaps_end_offset=end_offset if self._may_have_gaps else 0,
            is_whole=self._was_clean and not self.report.notes and end_offset in snapshots.offsets,
        )

    def _durable_names(self, *, is_new: bool) -> DurableNames:
        if is_new:
            return DurableNames()
        if self._was_clean:
            return DurableNames.after_clean_stop(self._segments)
        return DurableNames.after_crash(self._segments, self._recovery_point)

    # -- 1. replacements -----------------------------------------------------------------------------------------

    def _finish_replacements(self, names: _Names) -> _Names:
        """Leaves no file with a suffix. Returns the names that are there then."""
        if not names.suffixed and not names.temporary:
            return names
        for name in names.temporary:
            self._files.remove(os.path.join(self._directory, name))
        for suffix in (DELETED_SUFFIX, CLEANED_SUFFIX):
            for base in sorted(names.suffixed.get(suffix, ())):
                self._remove_files(base, suffix)
        swaps = sorted(names.suffixed.get(SWAP_SUFFIX, ()))
        undecided = min(names.suffixed.get(CLEANED_SUFFIX, ()), default=None)
        for base in swaps:
            if undecided is not None and base >= undecided:
                self.report.note(f"removed an unfinished replacement of the segment at {base}")
                self._remove_files(base, SWAP_SUFFIX)
            else:
                self._complete_swap(base, names.segments)
        self._files.sync_directory(self._directory)
        return _sort_names(self._files.list(self._directory))

    def _remove_files(self, base: Offset, suffix: str) -> None:
        remove_segment_files(self._files, self._directory, base, suffix)
        self._files.remove(os.path.join(self._directory, f"{base:020d}{SNAPSHOT_SUFFIX}{suffix}"))

    def _complete_swap(self, base: Offset, originals: list[Offset]) -> None:
        """The new segment is whole and its fellows too: it takes the place of those whose records it holds."""
        swap = self._segment(base, SWAP_SUFFIX)
        if not self._files.exists(swap.path(LOG_SUFFIX)):
            # The log has its name already, or never had this one: the indexes that go with it are made anew.
            self._remove_files(base, SWAP_SUFFIX)
            self._files.remove(os.path.join(self._directory, f"{base:020d}{INDEX_SUFFIX}"))
            return
        swap.size = self._files.size(swap.path(LOG_SUFFIX))
        last = base
        for _, header in swap.headers(0):
            last = header.last_offset
        swap.drop_handles()
        for original in originals:
            if base <= original <= last:
                remove_segment_files(self._files, self._directory, original, "")
        for kind in (*SEGMENT_SUFFIXES[1:], LOG_SUFFIX):
            if self._files.exists(swap.path(kind)):
                self._files.rename(swap.path(kind), swap.path(kind).removesuffix(SWAP_SUFFIX))
        self.report.note(f"completed the replacement of the segments from {base} to {last}")

    # -- 2. segments ---------------------------------------------------------------------------------------------

    def _segment(self, base: Offset, suffix: str = "") -> Segment:
        return Segment(
            self._files,
            self._handles,
            self._directory,
            base,
            index_bytes_max=self._config.segment_index_bytes,
            created_ms=self._clock.now_ms(),
            suffix=suffix,
        )

    def _add_empty_segment(self, base: Offset) -> None:
        segment = self._segment(base)
        segment.create()
        self._segments.add(segment)

    def _load_segments(self, names: _Names) -> list[Segment]:
        """Returns the segments whose indexes cannot be used."""
        known = set(names.segments)
        for base, kind in names.indexes:
            if base not in known:
                self.report.note(f"removed {base:020d}{kind}, which has no log")
                self._files.remove(os.path.join(self._directory, f"{base:020d}{kind}"))
        doubtful = []
        for base in names.segments:
            segment = self._segment(base)
            self._segments.add(segment)
            try:
                segment.load()
            except (CorruptIndex, CorruptTransactionIndex) as problem:
                self.report.note(f"rebuilding indexes: {problem}")
                doubtful.append(segment)
        if not names.segments:
            self._add_empty_segment(self._log_start_offset)
        return doubtful

    # -- 3. checking ---------------------------------------------------------------------------------------------

    def _recover(self, doubtful: list[Segment]) -> None:
        # Also a segment that ends at the recovery point: its last index entries may have come later.
        unflushed = [] if self._was_clean else self._segments.since(self._recovery_point - 1)
        if unflushed:
            # What follows is read again from the batches; the file may know epochs that a truncation took back.
            self._epochs.truncate_from_end(self._recovery_point)
        is_first = True
        for segment in list(self._segments):
            if self._segments.floor(segment.base_offset) is not segment:
                continue  # an earlier one has replaced it
            if segment not in unflushed and segment not in doubtful:
                self._remove_replaced(segment)
                continue
            interval = self._config.index_interval_bytes
            if segment not in unflushed:
                scan = reindex_segment(segment, interval)
            elif segment in doubtful:
                scan = rebuild_segment(segment, interval)
            else:
                scan = recover_segment(segment, interval, self._recovery_point)
            if segment in unflushed and is_first:
                # The file may be older than a truncation; from here on the batches have the last word.
                self._epochs.truncate_from_end(scan.epochs[0][1] if scan.epochs else segment.next_offset())
                is_first = False
            self._recovered.append(segment)
            self._account(segment, scan)
            if segment not in unflushed:
                segment.store_indexes()
            if segment not in unflushed or scan.problem:
                segment.sync()  # no flush comes back to it, or what was cut must not: other records will stand there
            self._remove_replaced(segment)
            if segment in unflushed and (scan.problem or self._ends_early(segment)):
                self._remove_segments(self._segments.starting_at_or_after(segment.base_offset + 1), "after the cut")
                break

    def _remove_replaced(self, segment: Segment) -> None:
        """Removes what compaction had put into this segment, and a power loss has brought back."""
        if self._was_clean or not self._config.is_compacted:
            return
        with suppress(CorruptBatch):  # flushed long ago and damaged since: not for here to judge
            end_offset = segment.next_offset()
            later = self._segments.starting_at_or_after(segment.base_offset + 1)
            replaced = [one for one in later if one.base_offset < end_offset]
            self._remove_segments(replaced, f"which the one at {segment.base_offset} replaces")

    @property
    def _may_have_gaps(self) -> bool:
        """Whether compaction may have left gaps above the recovery point, too."""
        return self._config.is_compacted and not self._is_point_sure

    def _ends_early(self, segment: Segment) -> bool:
        """Whether the next segment does not follow: the crash has cut this one between two batches.

        Compaction leaves such gaps on purpose: ours below the recovery point, Kafka's anywhere. Below the recovery
        point, or the log start, a gap may also be what a power loss has kept of a deletion: some segments came back,
        others between them and the rest of the log did not.
        """
        slot = self._segments.slot_of(segment.base_offset) + 1
        if slot == len(self._segments):
            return False
        end_offset, following = segment.next_offset(), self._segments[slot].base_offset
        is_meant = self._may_have_gaps or following <= max(self._log_start_offset, self._recovery_point)
        is_gap = end_offset > following or (end_offset < following and not is_meant)
        if is_gap:
            self.report.note(f"{segment.base_offset:020d}.log ends at offset {end_offset}, not at {following}")
        return is_gap

    def _account(self, segment: Segment, scan: SegmentScan) -> None:
        for epoch, offset in scan.epochs:
            if epoch > (-1 if self._epochs.latest_epoch is None else self._epochs.latest_epoch):
                self._epochs.assign(epoch, offset)
        self.report.checked_bytes += scan.checked_bytes
        self.report.removed_bytes += scan.removed_bytes
        if scan.problem:
            self.report.note(
                f"cut {scan.removed_bytes} bytes from {segment.base_offset:020d}.log at position {segment.size}: "
                f"{scan.problem}"
            )
        if self._on_progress:
            self._on_progress(scan.checked_bytes)

    def _remove_segments(self, segments: list[Segment], reason: str) -> None:
        for segment in reversed(segments):  # the newest first: another crash must not leave a hole
            self.report.note(f"removed the segment at {segment.base_offset}, {segment.size} bytes, {reason}")
            self.report.removed_bytes += segment.size
            self.report.removed_segments += 1
            self._segments.remove(segment)
            segment.drop_handles()
            segment.remove_files()
            self._files.sync_directory(self._directory)

    def _find_end(self) -> Offset:
        active = self._segments.active
        try:
            end_offset = active.next_offset()
            active.sure_largest()  # what is appended is indexed by it
            return end_offset
        except CorruptBatch as problem:
            self.report.note(f"checking the last segment after all: {problem}")
            scan = rebuild_segment(active, self._config.index_interval_bytes)
            self._recovered.append(active)
            self._account(active, scan)
            return active.next_offset()

    def _reindex_distrusted(self) -> None:
        """Rebuilds the indexes that opening found to contradict their log: quick while nobody else has the files."""
        while self._segments.distrusted:
            segment = self._segments.distrusted.pop()
            self.report.note(f"the indexes of {segment.base_offset:020d}.log contradict it, and were rebuilt")
            self._account(segment, reindex_segment(segment, self._config.index_interval_bytes))
            segment.sync()

    # -- 4. epochs and producers ---------------------------------------------------------------------------------

    def _read_epochs(self) -> None:
        path = os.path.join(self._directory, LEADER_EPOCH_CHECKPOINT)
        try:
            self._epochs = LeaderEpochs(read_leader_epochs(self._files, path))
            if self._epochs.entries or not self._has_known_epochs():
                return
            self.report.note(f"reading the leader epochs from the batches: {path} is missing or empty")
        except CorruptCheckpoint as problem:
            self.report.note(f"reading the leader epochs from the batches: {problem}")
        for segment in self._segments:
            with suppress(CorruptBatch):  # a torn tail, which is cut later, or damage that is not for here to judge
                for _, header in segment.headers(0):
                    if header.leader_epoch >= 0:
                        self._epochs.assign(header.leader_epoch, header.base_offset)

    def _has_known_epochs(self) -> bool:
        """Whether a file without epochs cannot be right: flushed records have them."""
        start_offset = max(self._log_start_offset, self._segments[0].base_offset)
        if not self._was_clean and self._recovery_point <= start_offset:
            return False
        segment = self._segments[self._segments.slot_of(start_offset)]
        with suppress(CorruptBatch):
            position = segment.position_of(start_offset)
            return position is not None and segment.header_at(position).leader_epoch >= 0
        return False

    def _rebuild_producers(self, offsets: list[Offset], end_offset: Offset) -> tuple[Snapshots, Producers]:
        bases = {segment.base_offset for segment in self._segments}
        newest = max((offset for offset in offsets if offset <= end_offset), default=None)
        snapshots = Snapshots(self._files, self._directory, offsets)
        snapshots.remove_where(lambda offset: offset != newest and (offset > end_offset or offset not in bases))
        start = self._recovered[0].base_offset if self._recovered else end_offset
        if self._recovered and not self._was_clean:  # not flushed, so they may be of records that were truncated since
            snapshots.remove_where(lambda offset: offset > start)
        for segment in self._recovered:
            segment.transaction_index.reset()

        def on_completed(segment: Segment, completed: CompletedTransaction) -> None:
            if completed.is_aborted and segment in self._recovered:
                segment.transaction_index.append(AbortedTransaction.of(completed))

        producers = Producers()
        rebuild_producers(producers, self._segments, snapshots, from_offset=start, on_completed=on_completed)
        for segment in self._recovered:
            segment.store_indexes_if_room()
        return snapshots, producers


def open_log(
    files: FileSystem,
    handles: Handles,
    clock: Clock,
    random: Random,
    directory: str,
    partition: TopicPartition,
    config: LogConfig,
    *,
    recovery_point: Offset = 0,
    is_point_sure: bool = False,
    log_start_offset: Offset = 0,
    was_clean: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> tuple[Log, RecoveryReport]:
    """Opens a log, or makes an empty one; `recovery_point` and `log_start_offset` come from the checkpoints.

    With `is_point_sure` nobody has compacted at or above the recovery point: gaps there are losses, and cut.
    """
    opener = LogOpener(
        files,
        clock,
        random,
        directory,
        partition,
        config,
        recovery_point=recovery_point,
        is_point_sure=is_point_sure,
        log_start_offset=log_start_offset,
        was_clean=was_clean,
        on_progress=on_progress,
    )
    return opener.open(handles), opener.report
