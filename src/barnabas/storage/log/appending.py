"""How batches enter a log, up to their write: checked, given their offsets, staged.

What is staged is neither readable nor acknowledged. Producers and epochs know of it already, because later batches of
the same tick are checked against them; `undo` takes that back when the write fails. Owner: the log, which writes.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from barnabas.base.buffers import Buffer
from barnabas.base.clock import Clock
from barnabas.base.errors import InvalidRecords
from barnabas.base.ids import NO_PRODUCER, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from barnabas.base.named_tuples import new_tuple
from barnabas.base.settings import LONG_MAX
from barnabas.records import kernel
from barnabas.records.batch import BatchHeader, assign, split_batches
from barnabas.records.control import read_batch_marker
from barnabas.storage.log.epochs import LeaderEpochs
from barnabas.storage.log.replay import track_producer
from barnabas.storage.log.staging import Appended, Staged
from barnabas.storage.log.validate import AcceptedBatch, BatchCheck, accept_batch
from barnabas.storage.producers.producer_state import Duplicate, Origin
from barnabas.storage.producers.producers import Producers
from barnabas.storage.segment.segment import BatchMark, Room, mark_of
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError

MakeRoom: TypeAlias = Callable[[int, TimestampMs, Offset, TimestampMs], Room]
"""Takes size, timestamp and last offset of an append, and the time. Rolls when the active segment must not take it;
returns the room beside what is already written. May refuse."""
_CLIENT: Final = Origin.CLIENT
"""A member of an enumeration takes long to look up."""


class Appending:
    """What is staged in a log, and where that ends."""

    __slots__ = ("_clock", "_epochs", "_make_room", "_producers", "end_offset", "staged")

    def __init__(
        self, clock: Clock, producers: Producers, epochs: LeaderEpochs, end_offset: Offset, make_room: MakeRoom
    ) -> None:
        self._clock = clock
        self._producers = producers
        self._epochs = epochs
        self._make_room = make_room
        self.staged: Staged | None = None
        """None when nothing waits. The log takes it when it writes."""
        self.end_offset = end_offset
        """The next offset that an append gets."""

    # -- checking ------------------------------------------------------------------------------------------------

    def from_client(self, records: Buffer, leader_epoch: LeaderEpoch, config: LogConfig) -> Appended:
        """However long it takes to check them."""
        usual = self.usual(records, leader_epoch, config)
        if usual is not None:
            return usual
        return self.accepted([self.check(records, config).finish()], leader_epoch, config, _CLIENT)

    def from_broker(self, records: Buffer, leader_epoch: LeaderEpoch, config: LogConfig, origin: Origin) -> Appended:
        """The broker's own coordinators mostly write one batch that needs nothing but its offsets."""
        if not records:
            raise InvalidRecords("there is no batch to append")
        usual = self.usual(records, leader_epoch, config, origin)
        if usual is not None:
            return usual
        now_ms = self._clock.now_ms()
        accepted = [accept_batch(batch, config, now_ms, origin) for _, batch in split_batches(records)]
        return self.accepted(accepted, leader_epoch, config, origin)

    def usual(
        self, batch: Buffer, leader_epoch: LeaderEpoch, config: LogConfig, origin: Origin = _CLIENT
    ) -> Appended | None:
        """What is sent most: stages a batch that needs nothing but its offsets. None leaves it to `check` and
        `accepted`. Only clients may be wrong about the time."""
        size_bytes = len(batch)
        if size_bytes > config.usual_bytes_max:
            return None
        now_ms = self._clock.now_ms()
        base_offset, is_client = self.end_offset, origin is _CLIENT
        admitted = kernel.admit_batch(
            batch,
            base_offset,
            leader_epoch,
            config.is_compacted,
            now_ms,
            config.message_timestamp_before_max_ms if is_client else LONG_MAX,
            config.message_timestamp_after_max_ms if is_client else LONG_MAX,
        )
        if admitted is None:
            return None
        last_offset, max_timestamp, count, header = admitted
        # Should it be refused from here on, the offsets that it has been given do no harm.
        if header is not None:
            duplicate = self._producers.check(header, origin=origin)
            if duplicate:
                return Appended(duplicate.base_offset, duplicate.last_offset, duplicate.timestamp, True)
        if size_bytes > config.segment_bytes_max:
            raise _too_large(size_bytes, config)
        staged = self._staged_with_room(size_bytes, max_timestamp, last_offset, now_ms)
        self._stage(staged, batch, (last_offset, size_bytes, max_timestamp, count), leader_epoch, header)
        return new_tuple(Appended, (base_offset, last_offset, NO_TIMESTAMP, False))

    def check(self, batch: Buffer, config: LogConfig) -> BatchCheck:
        if not batch:
            raise InvalidRecords("there is no batch to append")
        return BatchCheck(memoryview(batch), config, self._clock.now_ms(), _CLIENT)

    def accepted(
        self, accepted: Sequence[AcceptedBatch], leader_epoch: LeaderEpoch, config: LogConfig, origin: Origin
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
        if total_bytes > config.segment_bytes_max:
            raise _too_large(total_bytes, config)
        base_offset = self.end_offset
        last_offset = base_offset + count - 1
        max_timestamp, now_ms = accepted[0].header.max_timestamp, self._clock.now_ms()
        staged = self._staged_with_room(total_bytes, max_timestamp, last_offset, now_ms)
        for given, batch, _ in accepted:
            header = assign(given, batch, self.end_offset, leader_epoch)
            self._stage(staged, batch, mark_of(header), leader_epoch, header)
        return Appended(base_offset, self.end_offset - 1, accepted[0].append_time_ms)

    def from_leader(self, records: Buffer) -> None:
        """Batches that have their offsets; they are checked, and never changed.

        What the leader sends ends where it is long enough: the beginning of one more batch is left out.
        """
        scan = kernel.scan_batches(records)
        if scan.problem or not scan.valid_bytes:
            raise InvalidRecords(scan.problem or f"{len(records)} bytes of an incomplete batch")
        position = 0
        view = memoryview(records)
        for header in scan.headers:
            if header.base_offset < self.end_offset:
                raise InvalidRecords(f"offset {header.base_offset}, but the log ends at {self.end_offset}")
            batch = view[position : position + header.size_bytes]
            if header.has_producer:
                self._check_producer(header, batch, Origin.REPLICATION)
            now_ms = self._clock.now_ms()
            staged = self._staged_with_room(header.size_bytes, header.max_timestamp, header.last_offset, now_ms)
            self._stage(staged, batch, mark_of(header), header.leader_epoch, header)
            position += header.size_bytes

    def _check_producer(self, header: BatchHeader, batch: memoryview, origin: Origin) -> Duplicate | None:
        if not header.is_control:
            return self._producers.check(header, origin=origin)
        marker = read_batch_marker(batch)
        if marker:
            self._producers.check_marker(header, coordinator_epoch=marker.coordinator_epoch, origin=origin)
        return None

    # -- staging -------------------------------------------------------------------------------------------------

    def _staged_with_room(
        self, size_bytes: int, max_timestamp: TimestampMs, last_offset: Offset, now_ms: TimestampMs
    ) -> Staged:
        """The staged write that an append of `size_bytes` joins. While it has room, nothing asks the segment again."""
        staged = self.staged
        if staged is not None:
            bytes_max, last_offset_max, timestamp_max = staged.room
            has_room = last_offset <= last_offset_max and max_timestamp <= timestamp_max
            if has_room and staged.size_bytes + size_bytes <= bytes_max:
                return staged
        room = self._make_room(size_bytes, max_timestamp, last_offset, now_ms)
        staged = self.staged
        if staged is None:
            savepoint, epochs = self._producers.savepoint(), self._epochs.entries
            staged = self.staged = Staged(self.end_offset, room, savepoint, epochs)
        return staged

    def _stage(
        self, staged: Staged, batch: Buffer, mark: BatchMark, leader_epoch: LeaderEpoch, header: BatchHeader | None
    ) -> None:
        """`header` is needed where a producer is known."""
        if leader_epoch != staged.leader_epoch:
            staged.leader_epoch = leader_epoch
            if leader_epoch >= 0:
                self._epochs.assign(leader_epoch, self.end_offset if header is None else header.base_offset)
        if header is not None and header.producer_id > NO_PRODUCER:
            completed = track_producer(self._producers, header, batch)
            if completed and completed.is_aborted:
                staged.aborted.append(completed)
        last_offset, size_bytes, _, count = mark
        staged.buffers.append(batch)
        staged.marks.append(mark)
        staged.size_bytes += size_bytes
        staged.messages += count
        self.end_offset = last_offset + 1

    def undo(self, staged: Staged, end_offset: Offset, log_start_offset: Offset) -> None:
        """What was staged is not written: the log ends at `end_offset`, as before."""
        self._producers.rollback(staged.savepoint)
        self._epochs.restore(staged.epochs)
        self._epochs.truncate_from_start(log_start_offset)  # which may have moved meanwhile
        self.end_offset = end_offset


def _too_large(size_bytes: int, config: LogConfig) -> KafkaError:
    problem = f"{size_bytes} bytes do not fit into segment.bytes={config.segment_bytes_max}"
    return KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, problem)
