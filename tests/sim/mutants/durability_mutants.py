"""Mistakes in what is on the disk when it must be, and in what is made of it after a crash."""

from typing import Any

from barnabas.metadata.image import Partition as PartitionImage
from barnabas.replication.log_starts import LogStarts
from barnabas.replication.partition import Partition
from barnabas.sim.histories.plan import Plan
from barnabas.storage.compaction import compacted_segments
from barnabas.storage.directories.directory import LogDirectory
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.log import recovery
from barnabas.storage.log.flush import Flushing, FlushPlan
from barnabas.storage.log.log import Log
from barnabas.storage.segment import segment_recovery
from barnabas.storage.segment.index import SparseIndex
from barnabas.storage.segment.segment import Segment
from tests.sim.mutants.planting import Mutants, loses_power, loses_power_slowly, with_fault

mutants = Mutants()


def _loses_indexed_records(plan: Plan) -> bool:
    """Index entries are close, and recovery points stored often."""
    has_entries = plan.settings["log.index.interval.bytes"] in ("0", "200")
    return loses_power(plan) and has_entries and plan.settings["log.flush.offset.checkpoint.interval.ms"] == "500"


_CRASH = with_fault("kill", "power_loss", "crash_at_disk_call")


def _crashes_after_deletion(plan: Plan) -> bool:
    """Somebody deletes records, and a crash may come before their checkpoint is written anyway."""
    deletes = any(operation.action == "delete_records" for operation in plan.operations)
    return _CRASH(plan) and deletes and plan.settings["log.flush.start.offset.checkpoint.interval.ms"] == "5000"


@mutants.plant(
    "flush-without-sync",
    "A flush syncs no file, and counts as done.",
    FlushPlan,
    "run",
    checkers=("acked records",),
    telling=loses_power,
)
def _(original: Any) -> Any:
    def run(self: FlushPlan) -> None:
        self.close()
        original(self)

    return run


@mutants.plant(
    "flush-without-directory-sync",
    "A flush after a roll syncs the new segment's files, but not their names.",
    FlushPlan,
    "_store_names",
    checkers=("acked records", "disks"),
    telling=loses_power,
)
def _(original: Any) -> Any:
    def store_names(self: FlushPlan) -> None:
        directory, self.directory = self.directory, None
        original(self)
        self.directory, self.has_synced_names = directory, directory is not None

    return store_names


@mutants.plant(
    "rolled-segment-not-synced",
    "The flush after a roll moves the recovery point, but does not sync the segments that are complete.",
    Flushing,
    "_add_files",
    checkers=("disks", "readable", "acked records", "positions"),
    telling=loses_power,
)
def _(original: Any) -> Any:
    def add_files(self: Flushing, plan: FlushPlan, recovery_point: int, complete_only: bool) -> None:
        if not complete_only:
            original(self, plan, recovery_point, complete_only)

    return add_files


@mutants.plant(
    "flush-moves-recovery-point-to-end",
    "A flush of the complete segments sets the recovery point to the end of the log.",
    Log,
    "finish_flush",
    checkers=("disks", "readable", "acked records", "positions", "origins"),
    telling=_loses_indexed_records,
)
def _(original: Any) -> Any:
    def finish_flush(self: Log, plan: FlushPlan) -> None:
        original(self, plan)
        self.recovery_point = self.end_offset

    return finish_flush


@mutants.plant(
    "acknowledged-before-flush",
    "A topic with flush.messages=1 acknowledges what is written, before it is synced.",
    Partition,
    "_settle",
    checkers=("acked records",),
    telling=loses_power_slowly,
)
def _(original: Any) -> Any:
    def settle(self: Partition, now_ms: int) -> None:
        original(self, now_ms)
        self._reach(self._log.end_offset, now_ms)

    return settle


@mutants.plant(
    "checksum-skipped-at-recovery",
    "Recovery looks at the headers of batches only, and takes torn ones for whole.",
    segment_recovery,
    "note_batches",
    checkers=("disks", "readable", "origins", "positions"),
    telling=loses_power,
)
def _(original: Any) -> Any:
    def note_batches(*arguments: Any, verify: bool = True) -> str | None:
        return original(*arguments, verify=False)

    return note_batches


@mutants.plant(
    "torn-tail-not-cut",
    "Recovery ignores what follows the last whole batch, and leaves it in the file.",
    Segment,
    "cut_spare_bytes",
    checkers=("disks", "readable", "positions", "acked records"),
    telling=loses_power,
)
def _(original: Any) -> Any:
    return lambda self: False


@mutants.plant(
    "segments-after-a-cut-kept",
    "Recovery cuts a segment at its first bad batch, and keeps the segments after it.",
    recovery.LogOpener,
    "_remove_segments",
    checkers=("disks", "acked records", "positions", "readable"),
    telling=loses_power,
)
def _(original: Any) -> Any:
    return lambda *_: None


@mutants.plant(
    "index-rebuilt-over-old-entries",
    "Recovery makes an index anew without emptying its file: entries of lost records stay behind the new ones.",
    SparseIndex,
    "reset",
    checkers=("disks", "readable", "positions"),
    telling=loses_power,
)
def _(original: Any) -> Any:
    def reset(self: SparseIndex) -> None:
        self._handles.drop(self)
        self._tail = b""
        self._stored = 0
        self._files.open(self.path, write=True, create=True).close()

    return reset


@mutants.plant(
    "clean-mark-without-flush",
    "A stop marks the directory as clean without syncing its logs.",
    LogManager,
    "_closings",
    checkers=("disks", "readable", "acked records", "positions"),
    telling=loses_power,
)
def _(original: Any) -> Any:
    def closings(self: LogManager, directory: LogDirectory, unclean: set[str]) -> Any:
        for job in original(self, directory, unclean):
            job._run = job._run.__self__.close
            yield job

    return closings


@mutants.plant(
    "epochs-not-raised-at-restart",
    "A broker that starts again leads its partitions in the epochs that it had before.",
    PartitionImage,
    "is_granted_to",
    checkers=("epoch contents",),
    telling=loses_power,
)
def _(original: Any) -> Any:
    def is_granted_to(self: PartitionImage, broker_id: int, broker_epoch: int) -> bool:
        return self.leader == broker_id

    return is_granted_to


@mutants.plant(
    "delete-records-answered-early",
    "DeleteRecords is answered before the new start of the log is on the disk.",
    LogStarts,
    "store",
    checkers=("log starts",),
    telling=_crashes_after_deletion,
)
def _(original: Any) -> Any:
    async def store(self: LogStarts, partitions: Any) -> dict[Any, Any]:
        return {}

    return store


@mutants.plant(
    "checkpoint-of-wrong-partition",
    "The checkpoint of recovery points gives each partition the offset of the next one.",
    LogDirectory,
    "current_recovery_points",
    checkers=("disks", "readable", "positions", "acked records"),
    telling=loses_power,
)
def _(original: Any) -> Any:
    def current_recovery_points(self: LogDirectory, among: Any = None) -> dict[Any, int]:
        points = original(self, among)
        offsets = list(points.values())
        return dict(zip(points, offsets[1:] + offsets[:1], strict=True))

    return current_recovery_points


@mutants.plant(
    "compacted-segments-not-synced",
    "Compaction hands new segments over without syncing them, and removes the old ones.",
    compacted_segments.CleanedSegments,
    "_seal",
    checkers=("compaction", "disks", "readable"),
    telling=loses_power,
)
def _(original: Any) -> Any:
    def seal(self: compacted_segments.CleanedSegments) -> None:
        self._write()
        self.segments[-1].complete()
        self.segments[-1].drop_handles()

    return seal


@mutants.plant(
    "swap-thrown-away",
    "Opening a log after a crash removes the segments that compaction had decided on, as if they were unfinished.",
    recovery.LogOpener,
    "_complete_swap",
    checkers=("compaction", "acked records", "disks"),
    telling=_CRASH,
)
def _(original: Any) -> Any:
    def complete_swap(self: recovery.LogOpener, base: int, originals: list[int]) -> None:
        self._remove_files(base, recovery.SWAP_SUFFIX)

    return complete_swap
