"""An index is a hint: whatever stands in one, the log opens, and finds what it finds without the damage.

Any bit is flipped, or any bytes are written anywhere, in an index of any segment, after a clean stop and after a crash.
Every offset and every timestamp is looked up and compared with the same log undamaged.
"""

import os
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.clock import ManualClock
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import Codec
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.log.expiry import delete_due_segments
from barnabas.storage.log.log import Log
from barnabas.storage.log.recovery import RecoveryReport, open_log
from barnabas.storage.log.reindexing import Reindexing
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.timestamp_lookup import FoundTimestamp
from barnabas.storage.settings import LogConfig
from barnabas.storage.tools.overlay import OverlayFileSystem
from tests.support.log_model import data_batch

DIRECTORY = "data/orders-0"
START_MS = 1_700_000_000_000
INDEXES = (".index", ".timeindex")
CONFIG = LogConfig(segment_bytes=1_500, index_interval_bytes=150, file_delete_delay_ms=0, retention_ms=100)
BATCHES = 48
BITS_OF_EACH_FILE = int(os.environ.get("BARNABAS_FLIPPED_BITS", "2"))


class Stopped(NamedTuple):
    disk: SimulatedDisk
    recovery_point: int
    is_clean: bool


class Answers(NamedTuple):
    """What a log says when it is asked for everything."""

    reads: list[tuple[int, int, int] | None]
    times: list[FoundTimestamp | None]
    newest: FoundTimestamp | None
    left_by_retention: list[int]


def written(*, is_clean: bool, times: str) -> Stopped:
    """A log of some segments; the timestamps rise, or stand still and fall back, too."""
    source = Random(4)
    disk = SimulatedDisk(Random(1))
    disk.make_directory(DIRECTORY)
    log, _ = opened(disk, 0, is_clean=True)
    timestamp = START_MS
    for number in range(BATCHES):
        step = source.choice([0, 1, 2]) if times == "rising" else source.choice([-3, -1, 0, 0, 1, 5])
        timestamp += step
        stamps = [timestamp + source.randrange(2) for _ in range(source.randrange(1, 4))]
        codec = source.choice([Codec.NONE, Codec.NONE, Codec.GZIP])
        log.append(data_batch(stamps, source.randrange(60), codec=codec), leader_epoch=0)
        log.write()
        if number == BATCHES // 2:
            log.flush()
    if is_clean:
        log.close()
    else:
        for segment in log.segments:
            segment.store_indexes()
    assert len(log.segments) > 3
    return Stopped(disk, log.recovery_point, is_clean)


def opened(files: FileSystem, recovery_point: int, *, is_clean: bool) -> tuple[Log, RecoveryReport]:
    return open_log(
        files,
        Handles(20),
        ManualClock(START_MS),
        Random(2),
        DIRECTORY,
        TopicPartition("orders", 0),
        CONFIG,
        recovery_point=recovery_point,
        was_clean=is_clean,
    )


def answers_of(log: Log) -> Answers:
    reads = reads_of(log)
    times = [log.find_timestamp(timestamp) for timestamp in range(START_MS - 40, START_MS + 60)]
    newest = log.find_largest_timestamp()
    log.advance_high_watermark(log.end_offset)
    clock = log._clock
    clock.advance(115)  # type: ignore[attr-defined]
    log.flush()
    delete_due_segments(log, clock, stored_start=log.recovery_point)
    return Answers(reads, times, newest, [segment.base_offset for segment in log.segments])


def reads_of(log: Log) -> list[tuple[int, int, int] | None]:
    offsets = range(log.log_start_offset, log.end_offset)
    return [read_of(log, offset, upper) for offset in offsets for upper in (None, offset + 4)]


def read_of(log: Log, offset: int, upper: int | None) -> tuple[int, int, int] | None:
    """Where the bytes lie that a reader gets."""
    found = log.read(offset, 700, upper).slice
    if found is None:
        return None
    found.release()
    base = next(segment.base_offset for segment in reversed(log.segments) if segment.base_offset <= offset)
    return base, found.position, found.length


class Case(NamedTuple):
    stopped: Stopped
    truth: Answers


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    found = []
    for is_clean in (True, False):
        for times in ("rising", "restless"):
            stopped = written(is_clean=is_clean, times=times)
            log, report = opened(OverlayFileSystem(stopped.disk), stopped.recovery_point, is_clean=is_clean)
            assert not report.notes
            found.append(Case(stopped, answers_of(log)))
    return found


def index_paths(disk: SimulatedDisk) -> list[str]:
    paths = [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY) if name.endswith(INDEXES)]
    return [path for path in paths if disk.size(path)]


def check(case: Case, path: str, position: int, content: bytes) -> None:
    stopped, truth = case
    files = OverlayFileSystem(stopped.disk)
    files.open(path, write=True).write_at([content], position)
    log, _ = opened(files, stopped.recovery_point, is_clean=stopped.is_clean)
    assert answers_of(log) == truth
    if not log.segments.distrusted:
        return
    for segment in list(log.segments.distrusted):
        if segment is log.segments.active:
            log.roll()
        reindexing = Reindexing(files, log, segment)
        reindexing.run()
        reindexing.finish()
        assert segment.offset_index.is_increasing()
        assert segment.time_index.is_increasing()
    start = 2 * log.log_start_offset
    assert reads_of(log) == truth.reads[start:]
    log.close()
    again, _ = opened(files, log.end_offset, is_clean=True)
    assert reads_of(again) == truth.reads[start:]


def test_flipped_bit_of_any_index_changes_nothing(cases: list[Case]) -> None:
    source = Random(8)
    for case in cases:
        for path in index_paths(case.stopped.disk):
            content = OverlayFileSystem(case.stopped.disk).open(path).read_at(10_000, 0)
            for position in source.sample(range(len(content)), min(len(content), BITS_OF_EACH_FILE)):
                check(case, path, position, bytes([content[position] ^ 1 << source.randrange(8)]))


@given(draw=st.data())
def test_any_bytes_anywhere_in_an_index_change_nothing(cases: list[Case], draw: st.DataObject) -> None:
    case = draw.draw(st.sampled_from(cases))
    path = draw.draw(st.sampled_from(index_paths(case.stopped.disk)))
    size = case.stopped.disk.size(path)
    position = draw.draw(st.integers(0, size - 1))
    check(case, path, position, draw.draw(st.binary(min_size=1, max_size=12))[: size - position])


@given(draw=st.data())
def test_one_entry_that_looks_like_another_changes_nothing(cases: list[Case], draw: st.DataObject) -> None:
    """The worst damage: an entry of the same index in the place of another one."""
    case = draw.draw(st.sampled_from(cases))
    path = draw.draw(st.sampled_from(index_paths(case.stopped.disk)))
    entry_bytes = 12 if path.endswith(".timeindex") else 8
    count = case.stopped.disk.size(path) // entry_bytes
    source, target = (draw.draw(st.integers(0, count - 1)) for _ in range(2))
    content = OverlayFileSystem(case.stopped.disk).open(path).read_at(entry_bytes, source * entry_bytes)
    check(case, path, target * entry_bytes, content)
