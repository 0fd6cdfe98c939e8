"""What is read of a partition that this broker leads: by clients, followers, coordinators, and searches.

Clients see what is below the high watermark, and nothing between it and the end of the log. Followers see everything
that is written. A disk that fails is reported before the error goes on.

Owner: the broker's event loop.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from barnabas.base.errors import DiskFailed
from barnabas.base.ids import NO_EPOCH, LeaderEpoch, Offset, TimestampMs
from barnabas.storage.log.epochs import UNKNOWN_END, EpochEnd
from barnabas.storage.log.log import Log
from barnabas.storage.segment.batch_search import BatchSearch, search_batch
from barnabas.storage.segment.slices import FileSlice
from barnabas.storage.segment.timestamp_lookup import TimestampLookup
from barnabas.storage.segment.transaction_index import AbortedTransaction as StoredAborted
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch import AbortedTransaction, FetchResult

_WRITTEN_BYTES_MAX: Final = 16 << 10
"""More than this is better sent from the file than copied."""


class PartitionReading:
    """The reading half of `Partition`, which has the state."""

    __slots__ = ()

    _log: Log
    leader_epoch: LeaderEpoch
    is_closed: bool

    def _report(self, failure: DiskFailed) -> None:
        """The disk has failed."""
        raise NotImplementedError

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """For reads that take several steps: reports a failure of the disk, and raises it."""
        try:
            yield
        except DiskFailed as failure:
            self._report(failure)
            raise

    def read(self, offset: Offset, max_bytes: int, *, is_committed_only: bool, at_least_one: bool) -> FetchResult:
        """Batches from `offset` on that a client may see; none between the high watermark and the end of the log."""
        log = self._log
        if log.failure is not None or not log.log_start_offset <= offset <= log.end_offset:
            self._check_range(offset)
        high_watermark = log.high_watermark
        stable = log.last_stable_offset
        upper = stable if is_committed_only else high_watermark
        found: FileSlice | bytes | None = None
        aborted = None
        try:
            if offset < upper:
                if upper == log.end_offset:
                    found = log.read_written(offset, min(max_bytes, _WRITTEN_BYTES_MAX))
                if found is None:
                    found = log.read(offset, max_bytes, upper, at_least_one=at_least_one).slice
            if is_committed_only:
                aborted = _told_aborted(log.aborted_transactions(offset, upper)) if found else []
        except DiskFailed as failure:
            if isinstance(found, FileSlice):
                found.release()
            self._report(failure)
            raise
        return FetchResult(found, high_watermark, stable, log.log_start_offset, aborted)

    def _check_range(self, offset: Offset) -> None:
        log = self._log
        if log.failure is not None:  # its files were given back: nobody opens them again
            raise log.failure
        if not log.log_start_offset <= offset <= log.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {log.log_start_offset} to {log.end_offset}",
            )

    def read_for_follower(self, offset: Offset, max_bytes: int, *, at_least_one: bool) -> FetchResult:
        """Batches from `offset` on that are written, committed or not."""
        log = self._log
        self._check_range(offset)
        found: FileSlice | bytes | None = None
        if offset < log.end_offset:
            with self.reporting():
                found = log.read_written(offset, min(max_bytes, _WRITTEN_BYTES_MAX))
                if found is None:
                    found = log.read(offset, max_bytes, log.end_offset, at_least_one=at_least_one).slice
        return FetchResult(found, log.high_watermark, log.last_stable_offset, log.log_start_offset)

    def read_all(self, offset: Offset, max_bytes: int) -> FileSlice | None:
        """Batches from `offset` on, committed or not, for a coordinator that loads its state."""
        with self.reporting():
            return self._log.read(offset, max_bytes).slice

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """Where an epoch ends here, for a client that checks whether its history was truncated.

        The log has an epoch from its first record on. Until then this leadership's starts and ends at the log end.
        """
        epochs, end_offset = self._log.epochs, self._log.end_offset
        latest = epochs.latest_epoch
        if latest == self.leader_epoch or epoch == NO_EPOCH or (latest is not None and epoch < latest):
            return epochs.end_offset_for(epoch, end_offset)
        if epoch > self.leader_epoch:
            return UNKNOWN_END
        return EpochEnd(epoch if latest is None or epoch == self.leader_epoch else latest, end_offset)

    @property
    def start_epoch(self) -> LeaderEpoch:
        """In which epoch the first record was written, or will be; `NO_EPOCH` when nobody knows."""
        log = self._log
        if log.log_start_offset == log.end_offset:
            return self.leader_epoch
        epoch = log.epochs.epoch_for_offset(log.log_start_offset)
        return NO_EPOCH if epoch is None else epoch

    @property
    def largest_timestamp(self) -> TimestampMs:
        """Negative when no record has one."""
        return self._log.segments.largest_timestamp

    def look_for_timestamp(self, target: TimestampMs, first_offset: Offset) -> TimestampLookup | None:
        """One step of `Log.find_timestamp`, from `first_offset` on: a look into a batch may be for a worker thread."""
        return self._log.look_for_timestamp(target, first_offset)

    def place_of_search(self, target: TimestampMs | None) -> FileSlice | None:
        """About where the log is read for the first step of such a search; None as target is the largest timestamp."""
        return self._log.segments.place_of_search(target, self._log.log_start_offset)

    def search_batch(self, offset: Offset) -> BatchSearch | None:
        """A search for the first committed record from `offset` on; None when there is nothing to search in."""
        log = self._log
        if self.is_closed or offset < log.log_start_offset:
            return None  # deleted meanwhile
        try:
            return search_batch(log.segments, offset, log.high_watermark)
        except DiskFailed:
            return None  # reading the records reports the error


def _told_aborted(stored: Iterable[StoredAborted]) -> list[AbortedTransaction]:
    """What a reader learns of aborted transactions."""
    return [AbortedTransaction(one.producer_id, one.first_offset) for one in stored]
