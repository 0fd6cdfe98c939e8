"""A partition that this broker serves: its log, who leads it, and how far it is committed.

Handlers talk to this, never to a log. Alone, the leader is the only in-sync replica, so everything written is committed
when the write (and the flush, where the topic asks for one) is done; with followers the high watermark will wait for
them, and nothing above this module changes.

```
append (staged)  ->  AppendTick writes all logs of the tick  ->  commit: high watermark up, waiting fetches woken
```

Owner: the broker's event loop.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import Buffer
from barnabas.base.ids import NO_EPOCH, LeaderEpoch, Offset, TopicPartition
from barnabas.storage.epochs import EpochEnd
from barnabas.storage.log import Log
from barnabas.storage.producer_state import Origin
from barnabas.storage.slices import FileSlice
from barnabas.storage.staging import Appended
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.storage.validate import AcceptedBatch
from barnabas.wire.errors import ErrorCode, KafkaError

_WRITTEN_BYTES_MAX: Final = 16 << 10
"""More than this is better sent from the file than copied."""


class PartitionRead(NamedTuple):
    """What a fetch of one partition found. Whoever asked releases it, or sends a slice, which releases it, too."""

    records: FileSlice | bytes | None
    """Bytes when they are few and were written a moment ago."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: list[AbortedTransaction] | None
    """Only for readers of committed records."""

    @property
    def size_bytes(self) -> int:
        records = self.records
        if records is None:
            return 0
        return len(records) if isinstance(records, bytes) else records.length

    def release(self) -> None:
        """Gives the slice back, if there is one, because nobody will send it."""
        if isinstance(self.records, FileSlice):
            self.records.release()


class Partition:
    """See the module's text."""

    __slots__ = (
        "is_admitting",
        "is_closed",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "name",
        "on_failure",
        "partition_epoch",
        "replicas",
        "topic_id",
        "traffic",
        "watchers",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: UUID,
        log: Log,
        on_failure: "Callable[[Partition, DiskFailed], None]" = lambda partition, failure: None,
    ) -> None:
        """`on_failure` is called when the disk fails: the owner of the directories decides what becomes of the log."""
        self.name = name
        self.topic_id = topic_id
        self.log = log
        self.traffic = log.traffic
        self.on_failure = on_failure
        self.is_closed = False
        self.is_admitting = False
        """Whether clients' batches wait to be checked (`barnabas.replication.admission`); those that come wait, too."""
        self.leader = -1
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        self.partition_epoch = 0
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.watchers: dict[Callable[[Partition], None], None] = {}
        """Called when the high watermark moves; a dict, because it is a set with an order."""

    def lead(self, leader: int, leader_epoch: LeaderEpoch, isr: tuple[int, ...], replicas: tuple[int, ...]) -> None:
        """Takes the leadership that the cluster's metadata gives to this broker."""
        self.leader = leader
        self.isr = isr
        self.replicas = replicas
        if leader_epoch != self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.log.epochs.assign(leader_epoch, self.log.end_offset)
        self.commit(self.log.end_offset)

    def check_leader_epoch(self, known_epoch: LeaderEpoch) -> None:
        """Refuses a client that lives in another epoch; `NO_EPOCH` means that it does not say."""
        if known_epoch == NO_EPOCH or known_epoch == self.leader_epoch:
            return
        if known_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {known_epoch}, but {self.leader_epoch} is current")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"epoch {known_epoch} is not known here yet")

    # -- writing -------------------------------------------------------------------------------------------------

    def check_in_sync(self) -> None:
        """Refuses acks=all while too few replicas are in sync; more than there are replicas are never asked for."""
        needed = min(self.log.config.min_insync_replicas, len(self.replicas))
        if len(self.isr) < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} replicas are in sync, but min.insync.replicas is {needed}",
            )

    def append_usual(self, batch: Buffer) -> Appended | None:
        """Stages a client's batch if it is one of those that clients send most; others are left to `Admission`."""
        if self.is_admitting:
            return None
        try:
            return self.log.append_usual(batch, self.leader_epoch)
        except DiskFailed as failure:  # it had to roll
            self.on_failure(self, failure)
            raise

    def append_checked(self, batch: AcceptedBatch) -> Appended:
        """Stages a client's batch that `Admission` has had checked."""
        try:
            return self.log.append_accepted([batch], self.leader_epoch)
        except DiskFailed as failure:
            self.on_failure(self, failure)
            raise

    def append(self, records: Buffer, origin: Origin = Origin.CLIENT) -> Appended:
        """Stages a batch, however long that takes; it is in the log when the tick has written it."""
        try:
            return self.log.append(records, self.leader_epoch, origin)
        except DiskFailed as failure:  # it had to roll
            self.on_failure(self, failure)
            raise

    def commit(self, end_offset: Offset) -> None:
        """Everything below `end_offset` is on every in-sync replica: on the only one."""
        if self.log.high_watermark < end_offset:
            self.log.advance_high_watermark(end_offset)
            for watcher in tuple(self.watchers):
                watcher(self)

    def close(self) -> None:
        """The partition is not served here any more: whoever waits for its records looks again, and is told so."""
        self.is_closed = True
        for watcher in tuple(self.watchers):
            watcher(self)

    # -- reading -------------------------------------------------------------------------------------------------

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """For whoever reads from the log itself: reports a failure of the disk, and raises it."""
        try:
            yield
        except DiskFailed as failure:
            self.on_failure(self, failure)
            raise

    def read(self, offset: Offset, max_bytes: int, *, is_committed_only: bool, at_least_one: bool) -> PartitionRead:
        log = self.log
        stable = log.last_stable_offset
        upper = stable if is_committed_only else log.high_watermark
        if not log.log_start_offset <= offset <= log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {log.log_start_offset} to {log.high_watermark}",
            )
        found: FileSlice | bytes | None = None
        aborted = None
        try:
            if offset < upper:
                if upper == log.end_offset:
                    found = log.read_written(offset, min(max_bytes, _WRITTEN_BYTES_MAX))
                if found is None:
                    found = log.read(offset, max_bytes, upper, at_least_one=at_least_one).slice
            if is_committed_only:
                aborted = log.aborted_transactions(offset, upper) if found else []
        except DiskFailed as failure:
            if isinstance(found, FileSlice):
                found.release()
            self.on_failure(self, failure)
            raise
        return PartitionRead(found, log.high_watermark, stable, log.log_start_offset, aborted)

    def end_of_epoch(self, epoch: LeaderEpoch) -> EpochEnd:
        """Where an epoch ends here, for whoever checks whether its history was cut."""
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)

    def delete_records_before(self, offset: Offset) -> Offset:
        """Moves the start of the log to `offset` (-1: to the high watermark); returns where it starts now."""
        self.log.delete_records_before(self.log.high_watermark if offset == -1 else offset)
        return self.log.log_start_offset
