"""A compacted log on a simulated disk, with what tests of compaction do to it and ask of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from random import Random

from barnabas.base.clock import ManualClock
from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import Offset, TopicPartition
from barnabas.records.batch import BatchHeader, Codec, split_batches
from barnabas.records.builder import BatchBuilder, Record
from barnabas.records.control import EndTransactionMarker, build_marker
from barnabas.records.reader import read_records
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import CLEANER_OFFSETS
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.log.log import Log
from barnabas.storage.log.recovery import open_log
from barnabas.storage.log.staging import Appended
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.segment.handles import Handles
from barnabas.storage.settings import LogConfig, LogManagerConfig

DIRECTORY = "/data"
CHECKPOINT = f"{DIRECTORY}/{CLEANER_OFFSETS}"
PARTITION = TopicPartition("accounts", 0)
RETENTION_MS = 10_000
COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=1024,
    index_interval_bytes=128,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
)
CLEANER = LogManagerConfig(log_cleaner_backoff_ms=0, log_cleaner_dedupe_buffer_size=1 << 16)

KeyValue = tuple[bytes | None, bytes | None]


@dataclass
class CompactedLog:
    """`log` is open on `files`; `cleaner` has the passes."""

    files: FileSystem
    clock: ManualClock = field(default_factory=ManualClock)
    config: LogConfig = COMPACTED
    cleaner_config: LogManagerConfig = CLEANER
    failures: list[DiskFailed] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files.make_directory(DIRECTORY)
        self.open()
        for directory in ("/", DIRECTORY):
            self.files.sync_directory(directory)

    def open(self, recovery_point: Offset = 0) -> None:
        self.log, self.report = open_log(
            self.files, Handles(), self.clock, Random(1), f"{DIRECTORY}/{PARTITION}", PARTITION, self.config,
            recovery_point=recovery_point,
        )  # fmt: skip
        self.log.advance_high_watermark(self.log.end_offset)
        self.cleaner = LogCleaner(
            self.files, self.clock, Random(2), self.cleaner_config, lambda _, error: self.failures.append(error)
        )

    def reopen(self, files: FileSystem) -> None:
        """After a crash: on what is left of the disk, from the recovery point that a checkpoint would name."""
        self.files = files
        self.open(self.log.recovery_point)

    # -- changes -------------------------------------------------------------------------------------------------

    def append(
        self, *pairs: KeyValue, codec: Codec = Codec.NONE, producer_id: int = -1, is_transactional: bool = False
    ) -> Appended:
        """A batch of records, a millisecond apart."""
        has_producer = producer_id >= 0
        sequence = self.sequences.get(producer_id, 0)
        builder = BatchBuilder(
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if has_producer else -1,
            base_sequence=sequence if has_producer else -1,
            is_transactional=is_transactional,
        )
        for key, value in pairs:
            builder.append(self.clock.now_ms(), key, value, headers=[("sent", b"now")])
            self.clock.advance(1)
        appended = self.log.append(builder.build(), leader_epoch=3)
        if has_producer:
            self.sequences[producer_id] = sequence + len(pairs)
        self._settle()
        return appended

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> Appended:
        marker = build_marker(
            EndTransactionMarker(is_commit, coordinator_epoch=0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=self.clock.now_ms(),
        )
        appended = self.log.append(marker, leader_epoch=3, origin=Origin.COORDINATOR)
        self._settle()
        return appended

    def _settle(self) -> None:
        self.log.write()
        self.log.advance_high_watermark(self.log.end_offset)

    def roll(self) -> None:
        """Everything so far becomes durable and may be compacted."""
        if self.log.segments.active.size:
            self.log.roll()
        self.log.flush()

    def compact(self) -> int:
        """Passes until nothing is due; returns how many pieces of work that took."""
        count = sum(1 for _ in self.pieces())
        for remove in self.log.doomed.take(self.clock.now_ms()):
            remove()
        return count

    def pieces(self) -> Iterator[None]:
        """Does what is due, one piece of work at a time."""
        while work := self.cleaner.next_job([self.log]):
            try:
                work.run()
            except DiskFailed as error:
                work.failed(error)
            else:
                work.finish()
            yield

    def configure(self, **changes: object) -> None:
        self.config = replace(self.config, **changes)  # type: ignore[arg-type]
        self.log.config = self.config

    # -- views ---------------------------------------------------------------------------------------------------

    def batches(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        return read_batches(self.log)

    def records(self) -> list[Record]:
        """Every data record in the log, those of aborted and open transactions included."""
        return [record for header, batch in self.batches() if not header.is_control for record in read_records(batch)]

    def committed(self) -> list[Record]:
        """What a `read_committed` consumer that starts at the beginning gets."""
        log = self.log
        aborted = log.aborted_transactions(log.log_start_offset, log.last_stable_offset)
        return [
            record
            for header, batch in self.batches()
            if not header.is_control and header.base_offset < log.last_stable_offset
            for record in read_records(batch)
            if not any(
                transaction.producer_id == header.producer_id
                and header.is_transactional
                and transaction.first_offset <= record.offset <= transaction.last_offset
                for transaction in aborted
            )
        ]

    def newest(self) -> dict[bytes, Record]:
        """The newest committed record of each key, tombstones left out: what a table made of the log holds."""
        table: dict[bytes, Record] = {}
        for record in self.committed():
            assert record.key is not None
            table[record.key] = record
        return {key: record for key, record in table.items() if record.value is not None}

    def values(self) -> list[tuple[Offset, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.records()]


def read_batches(log: Log) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch, by way of the log's own reads."""
    offset = log.log_start_offset
    while (found := log.read(offset, 1 << 30)).slice is not None:
        content = found.slice.read()
        found.slice.release()
        for header, batch in split_batches(content):
            yield header, batch
            offset = header.next_offset


def simulated(seed: int = 0) -> SimulatedDisk:
    return SimulatedDisk(Random(seed), strict=False)


def suffixed_names(accounts: CompactedLog) -> list[str]:
    return suffixed(accounts.files)


def suffixed(disk: FileSystem) -> list[str]:
    names = disk.list(f"{DIRECTORY}/{PARTITION}")
    return [name for name in names if PurePosixPath(name).suffix in (".cleaned", ".swap", ".deleted")]
