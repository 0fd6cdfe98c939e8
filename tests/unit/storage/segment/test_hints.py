"""Indexes that lie: what is not believed, what it costs, and how they are made anew."""

import errno
from collections.abc import Iterable
from random import Random
from struct import pack

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import CorruptBatch
from barnabas.base.filesystem import read_file
from barnabas.records.batch import read_header
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.log.log import Log
from barnabas.storage.segment import hints
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment, mark_of
from barnabas.storage.settings import LogConfig
from tests.support.log_directories import ORDERS, TOPIC_ID, append, open_manager, read_values
from tests.support.log_model import data_batch

BASE = 100
INTERVAL = 150
A = "/a"
SMALL_SEGMENTS = LogConfig(segment_bytes=1_500, index_interval_bytes=100)


def filled_segment(
    disk: SimulatedDisk, batches: int = 20, *, value_bytes: int = 60, timestamps: Iterable[int] = range(1_000, 9_999)
) -> Segment:
    """Batches of one record each, at 100, 101, ..."""
    segment = Segment(disk, Handles(), "", BASE, index_bytes_max=1 << 20, created_ms=0)
    segment.create()
    for offset, timestamp in zip(range(BASE, BASE + batches), timestamps, strict=False):
        batch = data_batch([timestamp], value_bytes, base_offset=offset, leader_epoch=0)
        header = read_header(batch)
        segment.append([batch], header.base_offset, [mark_of(header)], INTERVAL)
    segment.complete()
    return segment


def reloaded(disk: SimulatedDisk, segment: Segment) -> Segment:
    segment.drop_handles()
    again = Segment(disk, Handles(), "", BASE, index_bytes_max=1 << 20, created_ms=0)
    again.load()
    return again


def put(disk: SimulatedDisk, path: str, content: bytes, position: int) -> None:
    file = disk.open(path, write=True)
    file.write_at([content], position)
    file.close()


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


@pytest.mark.parametrize("position", [-1, 1, 77, 2**31 - 1, 1_940])
def test_position_that_is_no_batch_is_not_believed_and_said_once(
    disk: SimulatedDisk, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    segment = filled_segment(disk)
    offset, truth = segment.offset_index.entry(2)
    put(disk, segment.path(INDEX_SUFFIX), pack(">i", position), 2 * 8 + 4)
    again = reloaded(disk, segment)
    assert [again.position_of(offset) for _ in range(3)] == [truth] * 3
    assert again.distrusted == [again]
    assert caplog.text.count("are wrong and will be rebuilt") == 1


def test_many_false_entries_end_at_the_start_of_the_segment(disk: SimulatedDisk) -> None:
    segment = filled_segment(disk, 80)
    count = segment.offset_index.count
    assert count > 30
    truth = [segment.position_of(offset) for offset in range(BASE, BASE + 80)]
    for number in range(count - 1):
        put(disk, segment.path(INDEX_SUFFIX), pack(">i", 7), number * 8 + 4)
    again = reloaded(disk, segment)
    assert hints.true_start(again, segment.offset_index.entry(count - 2).offset) == 0
    assert [again.position_of(offset) for offset in range(BASE, BASE + 80)] == truth


def test_offset_too_large_in_a_long_segment_is_noticed_by_the_walk(disk: SimulatedDisk) -> None:
    segment = filled_segment(disk, 600, value_bytes=2_000)
    middle, truth = segment.offset_index.count // 2, segment.position_of(BASE + 590)
    put(disk, segment.path(INDEX_SUFFIX), pack(">i", 2**30), middle * 8)
    again = reloaded(disk, segment)
    assert again.position_of(BASE + 590) == truth
    assert again.distrusted == [again]


def test_entry_of_several_batches_as_older_kafka_followers_write_it_is_believed(disk: SimulatedDisk) -> None:
    segment = filled_segment(disk)
    first, second = segment.offset_index.entry(2), segment.offset_index.entry(3)
    truth = segment.position_of(second.offset - 1)
    put(disk, segment.path(INDEX_SUFFIX), pack(">i", second.offset - 1 - BASE), 2 * 8)
    again = reloaded(disk, segment)
    assert again.position_of(second.offset - 1) == truth
    assert hints.is_true_offset(again, first._replace(offset=second.offset - 1))
    assert not again.distrusted


def test_batch_that_ends_behind_the_segment_is_damage_and_no_end(disk: SimulatedDisk) -> None:
    segment = filled_segment(disk)
    last = segment.position_of(BASE + 19)
    assert last is not None
    put(disk, segment.path(LOG_SUFFIX), pack(">i", 5_000), last + 8)
    with pytest.raises(CorruptBatch):
        reloaded(disk, segment).position_of(BASE + 30)


@pytest.mark.parametrize("timestamp", [0, 999, 2**62])
def test_last_timestamp_is_that_of_the_log(disk: SimulatedDisk, timestamp: int) -> None:
    segment = filled_segment(disk)
    put(disk, segment.path(TIME_INDEX_SUFFIX), pack(">q", timestamp), (segment.time_index.count - 1) * 12)
    again = reloaded(disk, segment)
    assert again.largest.timestamp == timestamp
    assert again.sure_largest() == segment.largest
    assert again.distrusted == [again]


def test_newest_record_early_in_a_segment_is_no_damage(disk: SimulatedDisk) -> None:
    segment = filled_segment(disk, 30, timestamps=[9_000, *range(29)])
    again = reloaded(disk, segment)
    assert again.sure_largest() == (9_000, BASE)
    assert not again.distrusted


# Made anew


def opened(disk: SimulatedDisk, clock: ManualClock) -> tuple[LogManager, Log]:
    manager, _ = open_manager(disk, clock, [A], config=SMALL_SEGMENTS)
    log = manager.get(ORDERS) or manager.create(ORDERS, TOPIC_ID, SMALL_SEGMENTS)
    return manager, log


@pytest.fixture
def damaged(disk: SimulatedDisk) -> tuple[SimulatedDisk, ManualClock, dict[str, bytes]]:
    """A stopped log with a false entry in the first and in the last segment, and the indexes as they were."""
    clock = ManualClock(1_700_000_000_000)
    manager, log = opened(disk, clock)
    for number in range(40):
        append(log, b"%d" % number)
    paths = [segment.path(INDEX_SUFFIX) for segment in (log.segments[0], log.segments[-1])]
    manager.close()
    whole = {path: read_file(disk, path) for path in paths}
    for path in paths:
        put(disk, path, pack(">i", 3), 4)
    return disk, clock, whole


def test_damaged_indexes_are_made_anew_beside_readers(
    damaged: tuple[SimulatedDisk, ManualClock, dict[str, bytes]],
) -> None:
    disk, clock, whole = damaged
    manager, log = opened(disk, clock)
    assert read_values(log) == [b"%d" % number for number in range(40)]
    for offset in range(40):
        held = log.read(offset, 1 << 20).slice
        assert held is not None
        held.release()
    assert len(log.segments.distrusted) == 2
    segments = len(log.segments)
    manager.run_due_work()
    manager.run_due_work()
    assert not log.segments.distrusted
    assert len(log.segments) == segments + 1, "the active one was rolled: only complete ones are indexed anew"
    assert {path: read_file(disk, path) for path in whole} == whole
    log.check_invariants()
    append(log, b"more")
    assert read_values(log)[-1] == b"more"
    assert not [name for name in disk.list(f"{A}/orders-0") if name.endswith(".tmp")]


def test_full_disk_makes_new_indexes_wait(damaged: tuple[SimulatedDisk, ManualClock, dict[str, bytes]]) -> None:
    disk, clock, whole = damaged
    manager, log = opened(disk, clock)
    for offset in range(40):
        log.segments.floor(offset).position_of(offset)  # type: ignore[union-attr]
    disk.fail(errno.ENOSPC, operations=["write"], path_pattern="*.tmp", times=None)
    manager.run_due_work()
    assert log.segments.distrusted
    disk.heal()
    for _ in range(3):
        manager.run_due_work()
    assert not log.segments.distrusted
    assert {path: read_file(disk, path) for path in whole} == whole


def test_indexes_of_a_segment_that_went_meanwhile_are_dropped(
    damaged: tuple[SimulatedDisk, ManualClock, dict[str, bytes]],
) -> None:
    disk, clock, _ = damaged
    manager, log = opened(disk, clock)
    log.segments[0].position_of(9)
    log.segments[0].position_of(3)
    [job] = [work for work in manager.due_work(clock.now_ms()) if str(getattr(work, "title", "")).startswith("index")]
    job.run()
    manager.truncate(ORDERS, 0)
    job.finish()
    assert not [name for name in disk.list(f"{A}/orders-0") if name.endswith(".tmp")]


def test_indexes_that_a_kill_left_unfinished_are_removed_at_the_next_start(
    damaged: tuple[SimulatedDisk, ManualClock, dict[str, bytes]],
) -> None:
    disk, clock, _ = damaged
    manager, log = opened(disk, clock)
    log.segments[0].position_of(3)
    [job] = [work for work in manager.due_work(clock.now_ms()) if str(getattr(work, "title", "")).startswith("index")]
    job.run()
    disk = disk.kill()
    assert [name for name in disk.list(f"{A}/orders-0") if name.endswith(".tmp")]
    _, log = opened(disk, clock)
    assert not [name for name in disk.list(f"{A}/orders-0") if name.endswith(".tmp")]
    assert read_values(log) == [b"%d" % number for number in range(40)]


def test_damaged_index_of_synced_records_cuts_no_record(disk: SimulatedDisk) -> None:
    """Not even if the log has a bad batch: the others are still there to be read."""
    clock = ManualClock(1_700_000_000_000)
    manager, log = opened(disk, clock)
    for number in range(40):
        append(log, b"%d" % number)
    first, size = log.segments[0], log.size_bytes
    manager.close()
    put(disk, first.path(LOG_SUFFIX), b"\xff", 70)
    put(disk, first.path(INDEX_SUFFIX), b"\xff" * 4, disk.size(first.path(INDEX_SUFFIX)) - 4)
    _, log = opened(disk, clock)
    assert log.size_bytes == size
    found = log.read(3, 1 << 20).slice
    assert found is not None
