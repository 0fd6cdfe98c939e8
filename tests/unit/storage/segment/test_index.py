"""The sparse indexes: lookups over file and memory, cutting, and files that cannot be indexes."""

from random import Random

import pytest

from barnabas.base.filesystem import read_file
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.index import (
    CorruptIndex,
    OffsetIndex,
    OffsetPosition,
    SparseIndex,
    TimeIndex,
    TimestampOffset,
)

BASE = 1_000
PATH = "index"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


def offset_index(disk: SimulatedDisk, bytes_max: int = 10_000) -> OffsetIndex:
    index = OffsetIndex(disk, Handles(), PATH, BASE, bytes_max)
    index.reset()
    return index


def time_index(disk: SimulatedDisk) -> TimeIndex:
    index = TimeIndex(disk, Handles(), PATH, BASE, 10_000)
    index.reset()
    return index


def loaded(disk: SimulatedDisk, content: bytes, kind: type[SparseIndex] = OffsetIndex) -> SparseIndex:
    file = disk.open(PATH, write=True, create=True)
    file.write_at([content], 0)
    index = kind(disk, Handles(), PATH, BASE, 10_000)
    index.load()
    return index


def test_offset_index_file_has_kafkas_layout(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    index.add(1_007, 4_096)
    index.store()
    assert read_file(disk, PATH) == bytes.fromhex("00000007 00001000")


def test_time_index_file_has_kafkas_layout(disk: SimulatedDisk) -> None:
    index = time_index(disk)
    index.add(0x0102030405, 1_009)
    index.store()
    assert read_file(disk, PATH) == bytes.fromhex("0000000102030405 00000009")


@pytest.mark.parametrize("stored", [0, 1, 2, 3])
def test_lookup_finds_the_floor_in_file_and_memory(disk: SimulatedDisk, stored: int) -> None:
    index = offset_index(disk)
    for number, entry in enumerate([(1_010, 100), (1_020, 200), (1_030, 300)]):
        index.add(*entry)
        if number + 1 == stored:
            index.store()
    assert index.lookup(1_009) == OffsetPosition(BASE, 0)
    assert index.lookup(1_010) == OffsetPosition(1_010, 100)
    assert index.lookup(1_029) == OffsetPosition(1_020, 200)
    assert index.lookup(9_999) == index.last() == OffsetPosition(1_030, 300)
    assert list(index) == [(1_010, 100), (1_020, 200), (1_030, 300)]


def test_empty_indexes_lead_to_the_start(disk: SimulatedDisk) -> None:
    assert offset_index(disk).last() == OffsetPosition(BASE, 0)
    assert time_index(disk).last() == TimestampOffset(-1, BASE)
    assert time_index(disk).lookup(5) == TimestampOffset(-1, BASE)
    assert time_index(disk).last_at_or_before(BASE) == TimestampOffset(-1, BASE)


def test_time_index_takes_only_later_timestamps(disk: SimulatedDisk) -> None:
    index = time_index(disk)
    index.add(50, 1_001)
    index.add(50, 1_002)
    index.add(40, 1_003)
    index.add(51, 1_004)
    assert list(index) == [(50, 1_001), (51, 1_004)]
    assert index.lookup(50) == (50, 1_001)
    assert index.lookup(49) == (-1, BASE)
    assert index.last_at_or_before(1_003) == (50, 1_001)


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize(("offset", "kept"), [(1_000, 0), (1_010, 0), (1_011, 1), (1_030, 2), (1_031, 3), (9_000, 3)])
def test_truncation_drops_entries_from_the_offset_on(
    disk: SimulatedDisk, offset: int, kept: int, is_stored: bool
) -> None:
    index = offset_index(disk)
    times = TimeIndex(disk, Handles(), "times", BASE, 10_000)
    times.reset()
    for number in (1, 2, 3):
        index.add(1_000 + number * 10, number)
        times.add(number, 1_000 + number * 10)
    if is_stored:
        index.store()
        times.store()
    index.truncate_to(offset)
    times.truncate_to(offset)
    assert (index.count, times.count) == (kept, kept)
    index.add(2_000, 900)
    index.store()
    assert disk.size(PATH) == (kept + 1) * 8
    assert index.last() == (2_000, 900)


def test_entries_wait_in_memory_until_a_block_is_full(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    for number in range(1, 512):
        index.add(BASE + number, number)
        assert not index.has_block
    assert disk.size(PATH) == 0
    index.add(BASE + 512, 512)
    assert index.has_block
    index.store()
    assert disk.size(PATH) == 4_096
    assert not index.has_block
    assert index.lookup(BASE + 300) == (BASE + 300, 300)


def test_store_without_entries_makes_the_file(disk: SimulatedDisk) -> None:
    index = OffsetIndex(disk, Handles(), PATH, BASE, 100)
    index.store()
    assert disk.size(PATH) == 0


def test_index_is_full_one_entry_early(disk: SimulatedDisk) -> None:
    index = offset_index(disk, bytes_max=24)
    index.add(1_001, 1)
    assert not index.is_full
    index.add(1_002, 2)
    assert index.is_full


@pytest.mark.parametrize("size", [1, 7, 9, 20])
def test_load_of_a_torn_offset_index_fails(disk: SimulatedDisk, size: int) -> None:
    with pytest.raises(CorruptIndex, match="whole number"):
        loaded(disk, bytes(size))


def test_load_of_a_missing_file_fails(disk: SimulatedDisk) -> None:
    with pytest.raises(CorruptIndex, match="missing"):
        OffsetIndex(disk, Handles(), PATH, BASE, 100).load()


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_load_of_an_index_that_ends_in_zeros_fails(disk: SimulatedDisk, kind: type[SparseIndex]) -> None:
    good = b"\x00\x00\x00\x05" * (kind.ENTRY.size // 4)
    with pytest.raises(CorruptIndex, match="zeros"):
        loaded(disk, good + bytes(kind.ENTRY.size), kind)


def test_load_of_an_index_that_ends_below_its_base_fails(disk: SimulatedDisk) -> None:
    with pytest.raises(CorruptIndex, match="is negative"):
        loaded(disk, bytes.fromhex("ffffffff 00001000"))


def test_loaded_index_goes_on_where_it_ended(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    index.add(1_010, 100)
    index.store()
    again = OffsetIndex(disk, Handles(), PATH, BASE, 10_000)
    again.load()
    again.add(1_020, 200)
    assert list(again) == [(1_010, 100), (1_020, 200)]
    again.check_invariants()


@pytest.mark.parametrize("entry", ["00000004 00000200", "00000006 00000100", "00000000 00000000"])
def test_index_that_does_not_increase_is_noticed(disk: SimulatedDisk, entry: str) -> None:
    index = loaded(disk, bytes.fromhex("00000005 00000100" + entry + "00000009 00000900"))
    assert not index.is_increasing()
    with pytest.raises(AssertionError, match="not increasing"):
        index.check_invariants()


def test_reset_forgets_file_and_memory(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    index.add(1_010, 100)
    index.store()
    index.add(1_020, 200)
    index.reset()
    assert (index.count, disk.size(PATH)) == (0, 0)


def test_moved_index_follows_its_file(disk: SimulatedDisk) -> None:
    index = offset_index(disk)
    index.add(1_010, 100)
    index.store()
    index.move("elsewhere")
    index.drop_handle()
    assert index.lookup(1_010) == (1_010, 100)
    assert not disk.exists(PATH)


def test_move_of_an_index_without_a_file_only_changes_the_name(disk: SimulatedDisk) -> None:
    index = OffsetIndex(disk, Handles(), PATH, BASE, 100)
    index.move("elsewhere")
    assert index.path == "elsewhere"


def test_entries_that_a_crash_may_have_torn_are_the_last_ones(disk: SimulatedDisk) -> None:
    index = offset_index(disk, bytes_max=1 << 20)
    for number in range(1, 3_000):
        index.add(BASE + number, number)
    latest = index.latest_up_to(BASE + 2_500)
    assert latest[-1] == (BASE + 2_500, 2_500)
    assert len(latest) == 1_024
    assert index.latest_up_to(BASE) == []
