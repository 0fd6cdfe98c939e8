"""Checks producer snapshots and indexes of aborted transactions by replaying the batches of a partition.

Replay is exact from the beginning of a log, or from any snapshot, up to the first gap that compaction has left: what
was removed there may have changed a producer. From then on snapshots and indexes are only checked for what the markers
that are left still tell, until the next snapshot makes replay exact again.
"""

import os
from collections.abc import Iterator, Sequence

from barnabas.base.errors import InvalidRecords
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset
from barnabas.records.batch import BatchHeader
from barnabas.records.control import read_batch_marker
from barnabas.storage.log.replay import track_producer
from barnabas.storage.producers.producer_snapshot import (
    SNAPSHOT_SUFFIX,
    CorruptSnapshot,
    encode_snapshot,
    read_snapshot,
)
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.storage.producers.producers import CompletedTransaction, Producers
from barnabas.storage.segment.transaction_index import (
    ENTRY_BYTES,
    AbortedTransaction,
    CorruptTransactionIndex,
    TransactionIndex,
)
from barnabas.storage.tools.findings import Findings


class ProducerReplay:
    """Sees every batch of a partition in order, segment by segment."""

    def __init__(
        self, files: FileSystem, directory: str, snapshots: Sequence[Offset], first_offset: Offset, findings: Findings
    ) -> None:
        self._files = files
        self._directory = directory
        self._findings = findings
        self._producers = Producers()
        self._snapshots = list(snapshots)
        self._next_offset = first_offset
        self._is_exact = first_offset == 0
        self._was_exact = True
        """Whether replay was exact since the beginning of the present segment."""
        self._index_path = ""
        self._aborted: Iterator[AbortedTransaction] = iter(())
        self._next_aborted: AbortedTransaction | None = None
        self._next_position = 0
        self._missing: list[Offset] = []

    # -- segments ------------------------------------------------------------------------------------------------

    def begin_segment(self, base_offset: Offset, index_path: str) -> None:
        self._see_snapshots(base_offset)
        self._was_exact = self._is_exact
        self._index_path = index_path
        self._missing = []
        self._next_aborted = None
        self._next_position = -ENTRY_BYTES
        self._aborted = iter(())
        if not self._files.exists(index_path):
            return
        index = TransactionIndex(self._files, index_path, base_offset)
        try:
            index.check()
        except CorruptTransactionIndex as problem:
            self._findings.error(index_path, str(problem).removeprefix(index_path).lstrip(":, "))
            return
        self._aborted = iter(index)
        self._advance()

    def _advance(self) -> None:
        self._next_aborted = next(self._aborted, None)
        self._next_position += ENTRY_BYTES

    def end_segment(self, end_offset: Offset, *, is_open: bool, is_readable: bool) -> None:
        """An open segment's newest entries may still be in the memory of the process that writes it.

        Of one that could not be read to its end, nothing is said of entries for markers that were not seen.
        """
        while is_readable and (entry := self._next_aborted) is not None:
            if self._was_exact or entry.last_offset >= end_offset:
                self._error(f"{_show(entry)}, but there is no such marker in the segment", entry.last_offset)
            self._advance()
        for offset in self._missing:
            report = self._findings.note if is_open else self._findings.error
            report(self._index_path, "the transaction that the marker at this offset aborts is missing", offset=offset)

    def finish(self, end_offset: Offset) -> None:
        """All segments have come by."""
        self._see_snapshots(end_offset)
        for offset in self._snapshots:
            self._findings.error(self._snapshot_path(offset), f"it is after the end of the log, {end_offset}")

    # -- batches -------------------------------------------------------------------------------------------------

    def see(self, header: BatchHeader, batch: memoryview) -> None:
        self._see_snapshots(header.base_offset)
        if header.base_offset != self._next_offset or header.count != header.last_offset_delta + 1:
            self.lose_track()
        self._next_offset = header.next_offset
        if not header.has_producer:
            return
        try:
            completed = track_producer(self._producers, header, batch)
            if header.is_control:
                self._see_marker(header, batch, completed)
        except InvalidRecords:
            self.lose_track()  # said already, where the records were checked

    def lose_track(self) -> None:
        """Something is missing: what follows cannot be compared exactly."""
        self._is_exact = self._was_exact = False

    def _see_marker(self, header: BatchHeader, batch: memoryview, completed: CompletedTransaction | None) -> None:
        self._producers.advance_high_watermark(header.next_offset)
        while (entry := self._next_aborted) is not None and entry.last_offset < header.base_offset:
            if self._was_exact:
                self._error(f"{_show(entry)}, but the log has no such marker", entry.last_offset)
            self._advance()
        entry = self._next_aborted
        if entry is None or entry.last_offset != header.base_offset:
            if self._was_exact and completed is not None and completed.is_aborted:
                self._missing.append(header.base_offset)
            return
        marker = read_batch_marker(batch)
        if marker is not None and (marker.is_commit or entry.producer_id != header.producer_id):
            ending = "commits" if marker.is_commit else "aborts"
            self._error(
                f"{_show(entry)}, but the marker there {ending} one of producer {header.producer_id}", entry.last_offset
            )
        elif self._was_exact and completed is not None and entry != AbortedTransaction.of(completed):
            expected = AbortedTransaction.of(completed)
            self._error(f"{_show(entry)}, but the log says {_show(expected)}", entry.last_offset)
        elif self._was_exact and completed is None:
            self._error(f"{_show(entry)}, but no transaction was open", entry.last_offset)
        self._advance()

    def _error(self, problem: str, offset: Offset) -> None:
        self._findings.error(self._index_path, problem, position=self._next_position, offset=offset)

    # -- snapshots -----------------------------------------------------------------------------------------------

    def _snapshot_path(self, offset: Offset) -> str:
        return os.path.join(self._directory, f"{offset:020d}{SNAPSHOT_SUFFIX}")

    def _see_snapshots(self, offset: Offset) -> None:
        while self._snapshots and self._snapshots[0] <= offset:
            self._see_snapshot(self._snapshots.pop(0))

    def _see_snapshot(self, offset: Offset) -> None:
        path = self._snapshot_path(offset)
        if not self._files.size(path):
            self._findings.note(path, "empty, as a broker leaves it when killed before writing; it is not used")
            return
        try:
            states = read_snapshot(self._files, path)
        except CorruptSnapshot as problem:
            self._findings.error(path, str(problem).removeprefix(path).lstrip(": "))
            return
        if offset < self._next_offset:
            self._findings.note(path, f"it cannot be compared: the log continues at {self._next_offset}")
        elif self._is_exact and offset == self._next_offset:
            self._compare(path, states)
        else:  # batches before it are missing, as compaction leaves a log
            self._producers.clear()
            self._producers.load(states)
            self._next_offset = offset
            self._is_exact = True

    def _compare(self, path: str, states: list[ProducerState]) -> None:
        listed = {state.producer_id: state for state in states}
        for producer_id, state in sorted(listed.items()):
            replayed = self._producers.get(producer_id)
            if replayed is None:
                self._findings.error(path, f"producer {producer_id} is in it, but wrote nothing to the log before it")
            elif encode_snapshot([state]) != encode_snapshot([replayed]):
                self._findings.error(
                    path, f"producer {producer_id}: {_summary(state)}, but the log says {_summary(replayed)}"
                )
        for state in list(self._producers):
            if state.producer_id not in listed:
                if state.transaction_first_offset is not None:
                    self._findings.error(
                        path,
                        f"producer {state.producer_id} is missing, although its transaction is open since offset "
                        f"{state.transaction_first_offset}",
                    )
                # Otherwise it had expired when the snapshot was taken; the broker knew no more of it.
                self._producers.restore(state.producer_id, None)


def _show(entry: AbortedTransaction) -> str:
    return (
        f"producer {entry.producer_id} aborted {entry.first_offset} to {entry.last_offset} "
        f"(stable up to {entry.last_stable_offset})"
    )


def _summary(state: ProducerState) -> str:
    """Everything of a state that a snapshot stores."""
    newest = state.batches[-1] if state.batches else None
    written = "no batch" if newest is None else f"sequence {newest.last_sequence} at offset {newest.last_offset}"
    first = state.transaction_first_offset
    transaction = "no open transaction" if first is None else f"a transaction open since offset {first}"
    return (
        f"epoch {state.epoch}, {written}, timestamp {state.last_timestamp}, coordinator epoch "
        f"{state.coordinator_epoch}, {transaction}"
    )
