"""A segment that is checked: what is cut off, what is not believed, and how indexes are built again."""

import pytest

from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.segment.index import CorruptIndex, TimestampOffset
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.segment_recovery import rebuild_segment, recover_segment
from tests.support.log_model import data_batch
from tests.support.simulated_segment import BASE, INTERVAL, append, filled, new_segment


def recovered(disk: SimulatedDisk, from_offset: int = BASE) -> tuple[Segment, str | None]:
    segment = new_segment(disk)
    segment.load()
    scan = recover_segment(segment, INTERVAL, from_offset)
    segment.check_invariants()
    return segment, scan.problem


def test_recovery_of_a_good_segment_changes_nothing(disk: SimulatedDisk, segment: Segment) -> None:
    filled(segment).complete()
    again, problem = recovered(disk)
    assert problem is None
    assert again.size == segment.size
    assert list(again.offset_index) == list(segment.offset_index)
    assert list(again.time_index) == list(segment.time_index)


def test_recovery_from_an_offset_checks_only_what_follows(disk: SimulatedDisk, segment: Segment) -> None:
    filled(segment).complete()
    again = new_segment(disk)
    again.load()
    scan = recover_segment(again, INTERVAL, BASE + 18)
    assert scan.checked_bytes == 2 * segment.size // 10
    assert list(again.offset_index) == list(segment.offset_index)
    assert list(again.time_index) == list(segment.time_index)


@pytest.mark.parametrize("cut_bytes", [1, 30, 60, 80])
def test_recovery_cuts_a_torn_batch(disk: SimulatedDisk, segment: Segment, cut_bytes: int) -> None:
    filled(segment).complete()
    size = segment.size // 10
    segment.file.truncate(segment.size - cut_bytes)
    again, problem = recovered(disk)
    assert again.size == (10 - 1) * size if cut_bytes < size else 8 * size
    assert problem is not None
    assert again.next_offset() == BASE + 2 * (again.size // size)


def test_recovery_cuts_at_a_flipped_byte_and_all_after_it(disk: SimulatedDisk, segment: Segment) -> None:
    filled(segment).complete()
    size = segment.size // 10
    segment.file.write_at([b"\xff"], 4 * size + 70)
    again, problem = recovered(disk)
    assert problem is not None
    assert (again.size, again.next_offset()) == (4 * size, BASE + 8)
    assert again.largest == TimestampOffset(1_007, BASE + 7)
    assert again.time_index.last() == again.largest


@pytest.mark.parametrize("offset", [BASE - 1, BASE, BASE + 2**31])
def test_recovery_cuts_at_an_offset_that_cannot_follow(disk: SimulatedDisk, segment: Segment, offset: int) -> None:
    append(segment, BASE)
    size = segment.size
    segment.file.write_at([data_batch([1], 5, base_offset=offset)], size)
    again, problem = recovered(disk)
    assert again.size == size
    assert problem is not None
    assert str(offset) in problem


def test_recovery_cuts_at_a_leader_epoch_that_goes_back(disk: SimulatedDisk, segment: Segment) -> None:
    append(segment, BASE, epoch=5)
    size = segment.size
    segment.file.write_at([data_batch([1], 5, base_offset=BASE + 1, leader_epoch=4)], size)
    again, problem = recovered(disk)
    assert again.size == size
    assert problem == f"leader epoch 4 after 5 at offset {BASE + 1}"


def test_recovery_reports_where_epochs_begin(disk: SimulatedDisk, segment: Segment) -> None:
    for offset, epoch in ((BASE, 1), (BASE + 1, 1), (BASE + 2, 4), (BASE + 3, -1), (BASE + 4, 6)):
        append(segment, offset, epoch=epoch)
    segment.complete()
    again = new_segment(disk)
    again.load()
    assert recover_segment(again, INTERVAL, BASE).epochs == [(1, BASE), (4, BASE + 2), (6, BASE + 4)]


@pytest.mark.parametrize("column", [0, 4])
def test_recovery_does_not_believe_an_index_that_contradicts_the_log(
    disk: SimulatedDisk, segment: Segment, column: int
) -> None:
    filled(segment).complete()
    expected = list(segment.offset_index)
    segment.drop_handles()
    with_flaw = disk.open(segment.offset_index.path, write=True)
    value = int.from_bytes(with_flaw.read_at(4, column), "big") + 1
    with_flaw.write_at([value.to_bytes(4, "big")], column)
    again, problem = recovered(disk, BASE + 19)
    assert problem is None
    assert list(again.offset_index) == expected


def test_recovery_does_not_believe_a_time_index_that_contradicts_the_log(disk: SimulatedDisk, segment: Segment) -> None:
    filled(segment).complete()
    expected = list(segment.time_index)
    segment.drop_handles()
    disk.open(segment.time_index.path, write=True).write_at([b"\x00"], 6)
    again, problem = recovered(disk, BASE + 19)
    assert problem is None
    assert list(again.time_index) == expected


def test_recovery_finds_again_what_the_time_index_lost(disk: SimulatedDisk, segment: Segment) -> None:
    append(segment, BASE, 9_000)
    for offset in range(BASE + 1, BASE + 9):
        append(segment, offset, 1_000)
    segment.complete()
    disk.open(segment.time_index.path, write=True).truncate(0)
    again, _ = recovered(disk, BASE + 9)
    assert again.largest == TimestampOffset(9_000, BASE)


def test_rebuilt_indexes_are_those_that_were_lost(disk: SimulatedDisk, segment: Segment) -> None:
    filled(segment).complete()
    expected = list(segment.offset_index), list(segment.time_index)
    for index in (segment.offset_index, segment.time_index):
        disk.remove(index.path)
    again = new_segment(disk)
    with pytest.raises(CorruptIndex):
        again.load()
    assert rebuild_segment(again, INTERVAL).problem is None
    again.sync()
    assert (list(again.offset_index), list(again.time_index)) == expected
