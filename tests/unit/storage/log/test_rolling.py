"""When a log begins a new segment, and which files a segment begins with."""

import errno

import pytest

from barnabas.base.errors import DiskFull
from barnabas.records.batch import read_header
from barnabas.sim.faults import Operation
from barnabas.storage.settings import LogConfig
from tests.support.log_model import data_batch
from tests.support.simulated_log import DIRECTORY, SimulatedLog, filled


def test_log_rolls_when_a_segment_would_grow_too_large(small: SimulatedLog) -> None:
    filled(small)
    assert small.bases == [0, 4, 8]
    assert small.log.snapshots.offsets == (4, 8)
    assert all(segment.size <= 300 for segment in small.log.segments)


def test_roll_writes_what_is_staged_first(small: SimulatedLog) -> None:
    for _ in range(3):
        small.append(2, is_written=False)
    assert small.log.end_offset == 4
    assert small.log.staged_end_offset == 6


def test_log_rolls_when_the_segments_time_is_over(orders: SimulatedLog) -> None:
    orders.configure(segment_ms=100)
    orders.append(timestamp=1_000)
    orders.append(timestamp=1_100)
    orders.append(timestamp=1_101)
    assert orders.bases == [0, 2]


def test_log_rolls_when_an_index_is_full() -> None:
    orders = filled(SimulatedLog(LogConfig(index_interval_bytes=0, segment_index_bytes=24)), 6)
    assert orders.bases == [0, 4, 8]


def test_log_rolls_when_offsets_outgrow_the_index(orders: SimulatedLog) -> None:
    orders.log.append_as_follower(data_batch([5], 9, base_offset=0))
    orders.log.append_as_follower(data_batch([5], 9, base_offset=2**31))
    orders.log.write()
    assert orders.bases == [0, 1]
    assert read_header(orders.log.read(1, 100).slice.read()).base_offset == 2**31  # type: ignore[union-attr]


def test_roll_of_an_empty_segment_does_nothing(orders: SimulatedLog) -> None:
    assert orders.log.roll() is orders.log.segments.active
    assert orders.bases == [0]


@pytest.mark.parametrize("operation", ["open", "write", "truncate", "allocate"])
def test_roll_on_a_full_disk_fails_and_leaves_no_file(operation: Operation) -> None:
    orders = SimulatedLog(LogConfig(preallocate=True, segment_bytes=1_000))
    orders.append()
    orders.disk.fail(errno.ENOSPC, operations=[operation], path_pattern="*0001.*")
    with pytest.raises(DiskFull):
        orders.log.roll()
    orders.disk.heal()
    orders.append(value_bytes=5)  # goes into the old segment, beyond where the new one would have begun
    assert orders.bases == [0]
    orders.reopen(orders.disk.kill())
    assert orders.log.end_offset == 2


def test_segments_of_a_broker_roll_at_different_times() -> None:
    orders = SimulatedLog(LogConfig(segment_ms=1_000, segment_jitter_ms=900))
    orders.append()
    jitters = set()
    for _ in range(5):
        jitters.add(orders.log.roll().roll_jitter_ms)
        orders.append()
    assert len(jitters) > 1
    assert all(0 <= jitter < 900 for jitter in jitters)


def test_names_of_a_new_log_are_those_of_an_empty_segment(orders: SimulatedLog) -> None:
    assert orders.disk.list(DIRECTORY) == [f"{0:020d}{kind}" for kind in (".index", ".log", ".timeindex")]
