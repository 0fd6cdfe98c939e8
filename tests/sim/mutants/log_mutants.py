"""Mistakes in what goes into a log, what comes out of it, and what is removed from it."""

from dataclasses import replace
from typing import Any

from barnabas.replication.partition import Partition
from barnabas.replication.partition_reading import PartitionReading
from barnabas.storage.compaction import compaction_job
from barnabas.storage.log import expiry
from barnabas.storage.log.appending import Appending
from barnabas.storage.log.log import Log
from barnabas.storage.producers import producer_state, producers
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.producers.producers import Producers
from barnabas.storage.producers.snapshots import Snapshots
from barnabas.storage.segment.index import OffsetIndex
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.segments import Segments
from barnabas.storage.settings import LogConfig
from tests.sim.mutants.planting import Mutants, with_fault

mutants = Mutants()
_CRASH = with_fault("kill", "power_loss", "crash_at_disk_call")
_BROKEN = with_fault("break", "cut", "kill", "pause", "slow_link")
_DISK = with_fault("disk_full", "disk_error")


@mutants.plant(
    "acknowledged-before-write",
    "An append is acknowledged when it is staged, whether or not its write succeeds.",
    Partition,
    "when_committed",
    checkers=("acked records",),
    telling=_DISK,
)
def _(original: Any) -> Any:
    def when_committed(self: Partition, last_offset: int, acks: int, deadline: float, callback: Any) -> None:
        callback(self._refusal if self.is_closed else None)

    return when_committed


@mutants.plant(
    "failed-write-keeps-sequences",
    "A write that fails is taken back, but the producers' sequence numbers are not: the retry counts as a duplicate.",
    Producers,
    "rollback",
    checkers=("acked records",),
    telling=_DISK,
)
def _(original: Any) -> Any:
    return lambda self, savepoint: None


@mutants.plant(
    "failed-write-keeps-offsets",
    "A write that fails is taken back, but the offsets that it was given are not.",
    Appending,
    "undo",
    checkers=("positions", "disks", "acked records"),
    telling=_DISK,
)
def _(original: Any) -> Any:
    def undo(self: Appending, staged: Any, end_offset: int, log_start_offset: int) -> None:
        given = self.end_offset
        original(self, staged, end_offset, log_start_offset)
        self.end_offset = given

    return undo


@mutants.plant(
    "failed-write-moves-end",
    "The end of the log moves before the write, and stays there when the write fails.",
    Log,
    "_write",
    checkers=("acked records", "positions", "readable", "disks"),
    telling=_DISK,
)
def _(original: Any) -> Any:
    def write(self: Log, staged: Any) -> Any:
        self.end_offset = self.appending.end_offset
        return original(self, staged)

    return write


@mutants.plant(
    "sequences-not-checked",
    "Sequence numbers are compared for the broker's own batches, and not for those of clients.",
    producers,
    "check_batch",
    checkers=("duplicates",),
    telling=_BROKEN,
)
def _(original: Any) -> Any:
    return lambda state, header, origin: original(state, header, Origin.COORDINATOR)


@mutants.plant(
    "retry-told-wrong-offset",
    "The answer to a batch that is sent again names its last offset as its first.",
    producer_state,
    "_find_duplicate",
    checkers=("acked records", "producer order"),
    telling=_BROKEN,
)
def _(original: Any) -> Any:
    def find_duplicate(state: Any, header: Any) -> Any:
        found = original(state, header)
        return found and found._replace(base_offset=found.last_offset)

    return find_duplicate


@mutants.plant(
    "snapshot-not-loaded",
    "A start replays the batches after the newest snapshot of the producers, but does not load the snapshot.",
    Snapshots,
    "load_at_or_below",
    checkers=("duplicates",),
    telling=with_fault("stop", "kill"),
)
def _(original: Any) -> Any:
    def load_at_or_below(self: Snapshots, offset: int) -> Any:
        found = original(self, offset)
        return found and (found[0], [])

    return load_at_or_below


@mutants.plant(
    "read-past-high-watermark",
    "A fetch reads up to the end of the log, also what is not synced yet and may be lost.",
    PartitionReading,
    "read",
    checkers=("positions",),
)
def _(original: Any) -> Any:
    def read(self: Partition, offset: int, max_bytes: int, **options: Any) -> Any:
        log = self._log
        told, log.high_watermark = log.high_watermark, log.end_offset
        try:
            return original(self, offset, max_bytes, **options)._replace(high_watermark=told)
        finally:
            log.high_watermark = told

    return read


@mutants.plant(
    "fetch-begins-too-late",
    "A read of a segment begins at the record after the one that was asked for.",
    Segments,
    "read",
    checkers=("positions",),
)
def _(original: Any) -> Any:
    def read(self: Segments, offset: int, max_bytes: int, upper: int, end_offset: int, **options: Any) -> Any:
        return original(self, min(offset + 1, upper - 1), max_bytes, upper, end_offset, **options)

    return read


@mutants.plant(
    "index-entry-behind-batch",
    "An index entry gives the first offset of the next batch instead of the last of its own.",
    OffsetIndex,
    "add",
    checkers=("disks", "positions"),
)
def _(original: Any) -> Any:
    return lambda self, offset, position: original(self, offset + 1, position)


@mutants.plant(
    "retention-without-limit-deletes",
    "retention.bytes=-1 counts as a limit instead of none.",
    expiry,
    "due_for_deletion",
    checkers=("log starts", "acked records"),
)
def _(original: Any) -> Any:
    def due_for_deletion(segments: Any, config: LogConfig, *, size_bytes: int, **facts: Any) -> Any:
        limited = replace(config, retention_bytes=0) if config.retention_bytes < 0 else config
        return original(segments, limited, size_bytes=size_bytes, **facts)

    return due_for_deletion


@mutants.plant(
    "compaction-takes-last-record",
    "The map of compaction says of each key an offset that is too high by one, so that its newest record goes.",
    compaction_job,
    "_map_batch",
    checkers=("compaction",),
)
def _(original: Any) -> Any:
    def map_batch(newest: Any, header: Any, batch: memoryview, first_dirty: int) -> bool:
        return original(newest, header._replace(base_offset=header.base_offset + 1), batch, first_dirty)

    return map_batch


@mutants.plant(
    "newest-batch-not-compared",
    "A batch that is sent again is compared with the last five batches of its producer but for the newest.",
    producer_state,
    "_find_duplicate",
    checkers=("refusals",),
    telling=_BROKEN,
)
def _(original: Any) -> Any:
    return lambda state, header: original(state._replace(batches=state.batches[:-1]), header)


@mutants.plant(
    "retention-by-oldest-record",
    "A segment expires when its oldest record is old enough, not when its newest one is.",
    Segment,
    "largest_timestamp_or_modified_ms",
    checkers=("early expiry",),
)
def _(original: Any) -> Any:
    return lambda self: self.first_timestamp if self.size else original(self)
