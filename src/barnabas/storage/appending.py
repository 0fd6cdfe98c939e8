"""The part of a partition's log that records come into and are read from: staging, writing, rolling, reading.

Appending has two steps. `append` checks a batch, gives it its offsets and stages it in memory; `write` puts everything
that was staged since the last one into the active segment with one system call. An event loop stages all requests of a
tick and writes once; nothing staged is readable or acknowledged before. When a write fails, everything staged is undone
(offsets, producers, epochs) and the log is as if it had not been asked. An append is in the log exactly if, after
`write`, its last offset lies below the end offset.

```
 log start            high watermark        end offset      staged end
     |  readable records    |   written          |  staged       |
-----+----------------------+--------------------+---------------+--->  offsets
```

What the last write put in can be read from memory until `forget_written`: readers that wait at the end want just that.
`barnabas.storage.log` makes a whole log of it. Owner: one thread (a broker's event loop), which never waits here for
anything but the page cache.
"""

import logging
from collections.abc import Sequence
from random import Random

from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFailed, InvalidRecords
from barnabas.base.filesystem import Buffer, FileSystem
from barnabas.base.ids import NO_PRODUCER, NO_TIMESTAMP, LeaderEpoch, Offset, SteadyMs, TimestampMs, TopicPartition
from barnabas.base.settings import LONG_MAX
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader, assign, split_batches
from barnabas.records.control import read_batch_marker
from barnabas.storage.epochs import LeaderEpochs
from barnabas.storage.flush import Flushing
from barnabas.storage.handles import Handles
from barnabas.storage.producer_state import Duplicate, Origin
from barnabas.storage.producers import Producers
from barnabas.storage.replay import track_producer
from barnabas.storage.segment import Segment
from barnabas.storage.segments import Segments
from barnabas.storage.settings import LogConfig
from barnabas.storage.snapshots import Snapshots
from barnabas.storage.staging import Appended, LogRead, Staged
from barnabas.storage.timestamp_lookup import FoundTimestamp, TimestampLookup
from barnabas.storage.traffic import TopicTraffic
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.storage.validate import AcceptedBatch, BatchCheck, accept_batch
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class AppendableLog:
    """See the module's text."""

    __slots__ = (
        "_announced",
        "_clock",
        "_doomed",
        "_failure",
        "_files",
        "_flushing",
        "_handles",
        "_is_untouched",
        "_random",
        "_staged",
        "_staged_end",
        "_written",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "failure",
        "high_watermark",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "snapshots",
        "traffic",
        "truncations",
    )

    def __init__(
        self,
        files: FileSystem,
        handles: Handles,
        clock: Clock,
        random: Random,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        *,
        segments: Segments,
        snapshots: Snapshots,
        producers: Producers,
        epochs: LeaderEpochs,
        log_start_offset: Offset,
        end_offset: Offset,
        recovery_point: Offset,
        is_whole: bool = False,
    ) -> None:
        """`is_whole` says that the files are as a clean stop left them: closing the log needs nothing, either."""
        self._files = files
        self._handles = handles
        self._clock = clock
        self._random = random
        self.directory = directory
        self.partition = partition
        self.config = config
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset
        self.recovery_point = recovery_point
        self.high_watermark = log_start_offset
        self.snapshots = snapshots
        self._staged: Staged | None = None
        self._staged_end = end_offset
        self._written: Staged | None = None
        """The last write, while it is in memory: until whoever called `write` has told those that wait for records."""
        self._failure: DiskFailed | None = None
        self.failure: DiskFailed | None = None
        """Why nothing is written any more: the disk has failed."""
        self._is_untouched = is_whole
        self._flushing = Flushing(clock.steady_ms())
        self._doomed: list[tuple[SteadyMs, Segment]] = []
        self.traffic = TopicTraffic()
        """Its own until it is served with the other partitions of its topic."""
        self._announced: tuple[Segment, ...] = ()
        """Compacted segments that are about to take the place of others."""
        self.truncations = 0

    # -- facts ---------------------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def staged_end_offset(self) -> Offset:
        """The next offset that an append will get."""
        return self._staged_end

    @property
    def last_stable_offset(self) -> Offset:
        return self.producers.last_stable_offset(self.high_watermark)

    def advance_high_watermark(self, offset: Offset) -> None:
        """Everything below is on every in-sync replica: readable, and deletable by retention."""
        assert offset <= self.end_offset
        self.high_watermark = offset
        self.producers.advance_high_watermark(offset)

    # -- appending -----------------------------------------------------------------------------------------------

    def append(self, records: Buffer, leader_epoch: LeaderEpoch, origin: Origin = Origin.CLIENT) -> Appended:
        """Stages batches that get their offsets here, on the leader. Raises without a trace when one is refused.

        A retried batch that the log has already is not staged again; the answer says where it is.
        """
        if origin is Origin.CLIENT:
            usual = self.append_usual(records, leader_epoch)
            return self.append_accepted([self.check(records).finish()], leader_epoch) if usual is None else usual
        if not records:
            raise InvalidRecords("there is no batch to append")
        now_ms = self._clock.now_ms()
        config = self.config
        if len(records) <= config.usual_bytes_max:
            # The broker's own coordinators write one batch that needs nothing but its offsets, at a time they know.
            bounds = (LONG_MAX, LONG_MAX)
            header = kernel.admit_batch(records, self._staged_end, leader_epoch, config.is_compacted, now_ms, *bounds)
            if header is not None:
                return self._append_admitted(records, header, origin, now_ms)
        accepted = [accept_batch(batch, self.config, now_ms, origin) for _, batch in split_batches(records)]
        return self.append_accepted(accepted, leader_epoch, origin)

    def append_usual(self, batch: Buffer, leader_epoch: LeaderEpoch) -> Appended | None:
        """Stages what clients send most: one batch that needs nothing but its offsets. One call of the kernel does it.

        None leaves the batch to `check` and `append_accepted`: it is compressed, or large, or something is wrong.
        """
        config, now_ms = self.config, self._clock.now_ms()
        if len(batch) > config.usual_bytes_max:
            return None
        header = kernel.admit_batch(
            batch,
            self._staged_end,
            leader_epoch,
            config.is_compacted,
            now_ms,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )
        return None if header is None else self._append_admitted(batch, header, Origin.CLIENT, now_ms)

    def check(self, batch: Buffer) -> BatchCheck:
        """What must be done with a client's batch before `append_accepted` takes it; it may take long."""
        if not batch:
            raise InvalidRecords("there is no batch to append")
        return BatchCheck(memoryview(batch), self.config, self._clock.now_ms(), Origin.CLIENT)

    def _append_admitted(self, batch: Buffer, header: BatchHeader, origin: Origin, now_ms: TimestampMs) -> Appended:
        """Stages a batch that has been checked and has its offsets. Should it be refused now, they do no harm."""
        if header.producer_id > NO_PRODUCER:
            duplicate = self.producers.check(header, origin=origin)
            if duplicate:
                return Appended(duplicate.base_offset, duplicate.last_offset, duplicate.timestamp, True)
        size_bytes = len(batch)
        self._check_fits(size_bytes)
        last_offset = header.base_offset + header.last_offset_delta
        self._make_room(size_bytes, header.max_timestamp, last_offset, now_ms)
        self._stage(header, batch)
        return Appended(header.base_offset, last_offset, NO_TIMESTAMP)

    def append_accepted(
        self, accepted: Sequence[AcceptedBatch], leader_epoch: LeaderEpoch, origin: Origin = Origin.CLIENT
    ) -> Appended:
        """Stages batches that have been checked: all of them, or none."""
        total_bytes, count = 0, 0
        for header, batch, _ in accepted:
            total_bytes += len(batch)
            count += header.count
            if header.has_producer:
                duplicate = self._check_producer(header, batch, origin)
                if duplicate:
                    return Appended(duplicate.base_offset, duplicate.last_offset, duplicate.timestamp, True)
        base_offset = self._staged_end
        self._check_fits(total_bytes)
        last_offset = base_offset + count - 1
        self._make_room(total_bytes, accepted[0].header.max_timestamp, last_offset, self._clock.now_ms())
        for header, batch, _ in accepted:
            self._stage(assign(header, batch, self._staged_end, leader_epoch), batch)
        return Appended(base_offset, self._staged_end - 1, accepted[0].append_time_ms)

    def append_as_follower(self, records: Buffer) -> None:
        """Stages batches that a leader has given their offsets; they are checked, and never changed."""
        scan = kernel.scan_batches(records)
        if scan.problem or scan.valid_bytes != len(records):
            raise InvalidRecords(scan.problem or f"{len(records) - scan.valid_bytes} bytes of an incomplete batch")
        position = 0
        view = memoryview(records)
        for header in scan.headers:
            if header.base_offset < self._staged_end:
                raise InvalidRecords(f"offset {header.base_offset}, but the log ends at {self._staged_end}")
            batch = view[position : position + header.size_bytes]
            if header.has_producer:
                self._check_producer(header, batch, Origin.REPLICATION)
            self._make_room(header.size_bytes, header.max_timestamp, header.last_offset, self._clock.now_ms())
            self._stage(header, batch)
            position += header.size_bytes

    def _check_producer(self, header: BatchHeader, batch: memoryview, origin: Origin) -> Duplicate | None:
        if not header.is_control:
            return self.producers.check(header, origin=origin)
        marker = read_batch_marker(batch)
        if marker:
            self.producers.check_marker(header, coordinator_epoch=marker.coordinator_epoch, origin=origin)
        return None

    def _check_fits(self, size_bytes: int) -> None:
        if size_bytes > self.config.segment_bytes_max:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size_bytes} bytes do not fit into segment.bytes={self.config.segment_bytes_max}",
            )

    def _make_room(self, size_bytes: int, max_timestamp: TimestampMs, last_offset: Offset, now_ms: TimestampMs) -> None:
        """Rolls when the active segment must not take this append any more."""
        active, staged, config = self.segments.active, self._staged, self.config
        filled_bytes = active.size if staged is None else active.size + staged.size_bytes
        is_due = filled_bytes > 0 and (
            filled_bytes + size_bytes > config.segment_bytes_max
            or not active.accepts(last_offset)
            or active.waited_ms(now_ms, max_timestamp) > config.roll_after_ms - active.roll_jitter_ms
        )
        if is_due:
            try:
                self.write()
            except DiskFailed as error:
                self._failure = error  # those who staged before must hear of it from their own call of `write`
                raise
            self.roll()

    def _stage(self, header: BatchHeader, batch: Buffer) -> None:
        staged = self._staged
        if staged is None:
            staged = self._staged = Staged(self.producers.savepoint(), self.epochs.entries)
        if header.leader_epoch >= 0:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id > NO_PRODUCER:
            completed = track_producer(self.producers, header, batch)
            if completed and completed.is_aborted:
                staged.aborted.append(completed)
        size_bytes = len(batch)
        staged.buffers.append(batch)
        staged.headers.append(header)
        staged.size_bytes += size_bytes
        staged.messages += header.count
        self._staged_end = header.base_offset + header.last_offset_delta + 1

    def write(self) -> None:
        """Writes everything staged. When the disk refuses, all of it is undone and the error raised."""
        staged, self._staged = self._staged, None
        failure, self._failure = self._failure, self.failure
        if staged is not None:
            if failure is None:
                failure = self._write(staged)
            if failure is not None:
                self._undo(staged)
            self.producers.release()
        if failure is not None:
            raise failure

    def discard_staged(self) -> None:
        """Takes back everything staged, as if nobody had asked for it: the leadership has ended."""
        staged, self._staged = self._staged, None
        if staged is not None:
            self._undo(staged)
            self.producers.release()

    def _undo(self, staged: Staged) -> None:
        self.producers.rollback(staged.savepoint)
        self.epochs.restore(staged.epochs)
        self.epochs.truncate_from_start(self.log_start_offset)  # which may have moved meanwhile
        self._staged_end = self.end_offset

    def give_up(self, failure: DiskFailed) -> None:
        """The disk has failed: from now on every write is refused, also one that it would take."""
        self.failure = self._failure = failure

    def _write(self, staged: Staged) -> DiskFailed | None:
        active = self.segments.active
        self._is_untouched = False
        try:
            active.append(staged.buffers, staged.headers, self.config.index_interval_bytes)
        except DiskFailed as error:
            return error
        for completed in staged.aborted:
            active.transaction_index.append(AbortedTransaction.of(completed))
        self.end_offset = self._staged_end
        self._written = staged
        self._flushing.messages += staged.messages
        traffic = self.traffic
        traffic.appended_bytes += staged.size_bytes
        traffic.appended_records += staged.messages
        active.store_index_blocks()
        return None

    def roll(self, at_offset: Offset | None = None) -> Segment:
        """Begins a new active segment at the end of the log; the old one is complete from now on."""
        assert self._staged is None
        active = self.segments.active
        base_offset = self.end_offset if at_offset is None else at_offset
        if active.base_offset == base_offset:
            assert not active.size
            return active
        self._is_untouched = False
        active.complete()
        self.snapshots.take(base_offset, self.producers)
        segment = self._new_segment(base_offset)
        self.segments.add(segment)
        self._flushing.has_new_names = True
        logger.info("%s: rolled to a new segment at offset %d", self.partition, base_offset)
        return segment

    def _new_segment(self, base_offset: Offset) -> Segment:
        segment = Segment(
            self._files,
            self._handles,
            self.directory,
            base_offset,
            index_bytes_max=self.config.segment_index_bytes,
            created_ms=self._clock.now_ms(),
        )
        segment.roll_jitter_ms = int(self._random.random() * self.config.roll_jitter_ms_max)
        segment.create(self.config.segment_bytes_max if self.config.preallocate else 0)
        return segment

    # -- reading -------------------------------------------------------------------------------------------------

    def read(
        self, offset: Offset, max_bytes: int, upper_offset: Offset | None = None, *, at_least_one: bool = True
    ) -> LogRead:
        """Batches from the one that holds `offset` on, never a byte of one that reaches `upper_offset` or beyond.

        With `at_least_one` the first batch comes whole, however big; without, there is nothing if it does not fit. The
        range ends where its segment ends, so a reader comes again; its last batch may be cut short by `max_bytes`.
        """
        upper = self.end_offset if upper_offset is None else min(upper_offset, self.end_offset)
        if not self.log_start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log_start_offset} to {self.end_offset}",
            )
        return LogRead(self.segments.read(offset, max_bytes, upper, self.end_offset, at_least_one=at_least_one))

    def read_written(self, offset: Offset, max_bytes: int) -> bytes | None:
        """All of the last write, without a look at the file: if it is still here, begins at `offset`, and fits."""
        written = self._written
        if written is None or written.size_bytes > max_bytes or written.headers[0].base_offset != offset:
            return None
        return b"".join(written.buffers)

    def forget_written(self) -> None:
        """Everybody has been told: the buffers are given back."""
        self._written = None

    def find_timestamp(self, target: TimestampMs) -> FoundTimestamp | None:
        """The first record whose timestamp is at least `target`, however long it takes to find it."""
        first_offset = self.log_start_offset
        while (look := self.look_for_timestamp(target, first_offset)) is not None:
            if (found := look.run()) is not None:
                return found
            first_offset = look.header.next_offset
        return None

    def find_largest_timestamp(self) -> FoundTimestamp | None:
        """The first record with the largest timestamp of all."""
        largest = self.segments.largest_timestamp
        return None if largest < 0 else self.find_timestamp(largest)

    def look_for_timestamp(self, target: TimestampMs, first_offset: Offset) -> TimestampLookup | None:
        """One step of `find_timestamp`, from `first_offset` on: the look into a batch may be for a worker thread."""
        return self.segments.look_for_timestamp(target, max(first_offset, self.log_start_offset))

    def aborted_transactions(self, offset: Offset, upper_offset: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of this range must leave out."""
        return self.segments.aborted_transactions(offset, upper_offset)
