"""One segment: appends, lookups, slices and truncation."""

import errno

import pytest

from barnabas.base.errors import CorruptBatch, DiskFailed, DiskFull
from barnabas.base.ids import NO_TIMESTAMP
from barnabas.base.settings import LONG_MAX
from barnabas.records.batch import LOG_APPEND_TIME, Codec, read_header
from barnabas.sim.disk import SimulatedDisk
from barnabas.sim.faults import Operation
from barnabas.storage.segment.handles import Handles
from barnabas.storage.segment.index import CorruptIndex, TimestampOffset
from barnabas.storage.segment.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, Segment
from barnabas.storage.segment.timestamp_lookup import FoundTimestamp, TimestampLookup
from tests.support.bombs import zstd_bomb
from tests.support.log_model import data_batch
from tests.support.simulated_segment import BASE, INTERVAL, append, filled, new_segment, truncate


def test_new_segment_has_its_files_and_no_bytes(disk: SimulatedDisk, segment: Segment) -> None:
    assert disk.list("") == [f"{BASE:020d}{kind}" for kind in (".index", ".log", ".timeindex")]
    assert (segment.size, segment.next_offset(), segment.first_timestamp) == (0, BASE, NO_TIMESTAMP)


@pytest.mark.parametrize("operation", ["open", "truncate", "allocate"])
def test_segment_that_cannot_be_made_leaves_no_file(disk: SimulatedDisk, operation: Operation) -> None:
    segment = new_segment(disk)
    disk.fail(errno.ENOSPC, operations=[operation], path_pattern="*.log")
    with pytest.raises(DiskFull):
        segment.create(preallocate_bytes=1_000)
    assert disk.list("") == []


def test_preallocated_segment_gives_back_its_spare_bytes_when_complete(disk: SimulatedDisk) -> None:
    segment = new_segment(disk)
    segment.create(preallocate_bytes=5_000)
    append(segment, BASE)
    assert disk.size(segment.path(LOG_SUFFIX)) == 5_000
    segment.complete()
    assert disk.size(segment.path(LOG_SUFFIX)) == segment.size


def test_append_indexes_a_batch_per_interval(segment: Segment) -> None:
    filled(segment)
    size = segment.size // 10
    assert size < INTERVAL < 2 * size
    assert list(segment.offset_index) == [(BASE + 2 * slot + 1, slot * size) for slot in (2, 4, 6, 8)]
    assert list(segment.time_index) == [(1_000 + 2 * slot + 1, BASE + 2 * slot + 1) for slot in (2, 4, 6, 8)]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_append_that_fails_leaves_nothing_behind(disk: SimulatedDisk, segment: Segment, code: int) -> None:
    append(segment, BASE)
    size = segment.size
    for _ in range(20):
        disk.fail(code, operations=["write"])
        with pytest.raises(DiskFailed):
            append(segment, BASE + 1, value_bytes=500)
        assert disk.size(segment.path(LOG_SUFFIX)) == segment.size == size


def test_position_of_every_offset_is_that_of_its_batch(segment: Segment) -> None:
    filled(segment)
    size = segment.size // 10
    for offset in range(BASE, BASE + 20):
        assert segment.position_of(offset) == (offset - BASE) // 2 * size
    assert segment.position_of(BASE + 20) is None


def test_position_of_the_last_write_is_forgotten_with_it(segment: Segment) -> None:
    size = filled(segment).size // 10
    assert segment.position_of(BASE + 18) == 9 * size
    truncate(segment, BASE + 16)
    assert segment.position_of(BASE + 18) is None
    append(segment, BASE + 16, 1_000, 1_001, 1_002)
    assert segment.position_of(BASE + 16) == segment.position_of(BASE + 18) == 8 * size


def test_position_of_an_offset_in_a_gap_is_that_of_the_next_batch(segment: Segment) -> None:
    append(segment, BASE)
    size = segment.size
    append(segment, BASE + 50)
    assert segment.position_of(BASE + 7) == size


def test_position_in_stray_bytes_is_corrupt(segment: Segment) -> None:
    append(segment, BASE)
    segment.file.write_at([bytes(10)], segment.size)
    segment.size += 10
    with pytest.raises(CorruptBatch):
        segment.position_of(BASE + 1)
    with pytest.raises(CorruptBatch):
        list(segment.headers(0))


def test_headers_walks_batches_larger_than_what_it_reads_at_once(segment: Segment) -> None:
    offset = append(segment, BASE, value_bytes=50_000)
    offset = append(segment, offset, value_bytes=10)
    append(segment, offset, value_bytes=20_000)
    assert [header.base_offset for _, header in segment.headers(0)] == [BASE, BASE + 1, BASE + 2]


def test_reopened_segment_knows_what_it_knew(disk: SimulatedDisk, segment: Segment) -> None:
    filled(segment).complete()
    again = new_segment(disk)
    again.load()
    assert again.size == segment.size
    assert again.next_offset() == BASE + 20
    assert again.largest == TimestampOffset(1_019, BASE + 19)
    assert again.first_timestamp == 1_001
    again.check_invariants()


def test_load_without_an_index_is_corrupt(disk: SimulatedDisk, segment: Segment) -> None:
    disk.remove(segment.offset_index.path)
    with pytest.raises(CorruptIndex, match="missing"):
        new_segment(disk).load()


def test_load_with_an_index_beyond_the_log_is_corrupt(disk: SimulatedDisk, segment: Segment) -> None:
    filled(segment).complete()
    segment.file.truncate(300)
    with pytest.raises(CorruptIndex, match="past the end"):
        new_segment(disk).load()


def test_segment_accepts_until_an_index_is_full_or_offsets_run_out(disk: SimulatedDisk) -> None:
    segment = Segment(disk, Handles(), "", BASE, index_bytes_max=36, created_ms=0)
    segment.create()
    assert segment.accepts(BASE + 2**31 - 1)
    assert not segment.accepts(BASE + 2**31)
    offset, accepted = BASE, 0
    while segment.accepts(offset):
        offset = append(segment, offset, 1_000 + offset, 1_001 + offset)
        accepted += 1
    assert accepted == 5
    assert (segment.offset_index.count, segment.time_index.count) == (2, 2)


def test_room_of_an_empty_segment_is_all_of_it(segment: Segment) -> None:
    assert segment.room(100, 0, 9_999) == (100, BASE + 2**31 - 1, LONG_MAX)


def test_room_ends_by_the_time_of_the_records(segment: Segment) -> None:
    append(segment, BASE, 1_000)
    assert segment.room(1_000, 300, 9_999) == (1_000 - segment.size, BASE + 2**31 - 1, 1_300)


def test_room_without_timestamps_ends_by_the_clock(segment: Segment) -> None:
    append(segment, BASE, -1)
    assert segment.room(1_000, 700, 5_700).timestamp_max == LONG_MAX
    assert segment.room(1_000, 699, 5_700).timestamp_max < -1


def test_room_ends_with_that_of_the_indexes(disk: SimulatedDisk) -> None:
    segment = Segment(disk, Handles(), "", BASE, index_bytes_max=36, created_ms=0)
    segment.create()
    offset = BASE
    while segment.accepts(offset):
        assert segment.room(10_000, 10_000, 0).last_offset_max == BASE + 2**31 - 1
        offset = append(segment, offset, 1_000 + offset, 1_001 + offset)
    assert segment.room(10_000, 10_000, 0).last_offset_max < 0


def test_age_without_timestamps_is_that_of_the_file(disk: SimulatedDisk, segment: Segment) -> None:
    append(segment, BASE, -1)
    assert segment.largest_timestamp_or_modified_ms() == disk.modified_ms(segment.path(LOG_SUFFIX))
    append(segment, BASE + 1, 77)
    assert segment.largest_timestamp_or_modified_ms() == 77


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_look_for_a_timestamp_is_exact_within_a_batch(segment: Segment, codec: Codec) -> None:
    append(segment, BASE, 10, 30, 20, codec=codec)
    append(segment, BASE + 3, 25, 40, codec=codec)

    def find(target: int, first_offset: int) -> FoundTimestamp | None:
        look = segment.look_for_timestamp(target, first_offset)
        assert look is not None
        assert look.is_long == (codec is not Codec.NONE)
        return look.run()

    assert find(20, BASE) == FoundTimestamp(30, BASE + 1, 2)
    assert find(20, BASE + 2) == FoundTimestamp(20, BASE + 2, 2)
    assert find(21, BASE + 2) is None, "only a record before the first offset made the batch look promising"
    assert find(21, BASE + 3) == FoundTimestamp(25, BASE + 3, 2)
    assert find(31, BASE) == FoundTimestamp(40, BASE + 4, 2)
    assert segment.look_for_timestamp(41, BASE) is None
    assert segment.look_for_timestamp(40, BASE + 5) is None


def test_look_into_a_batch_that_expands_too_far_answers_its_first_record() -> None:
    bomb = zstd_bomb(144)
    header = read_header(bomb)._replace(base_offset=BASE, leader_epoch=3)
    look = TimestampLookup(header, bomb, header.max_timestamp, BASE + 2)
    assert look.run() == FoundTimestamp(header.max_timestamp, BASE + 2, 3)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_look_with_log_append_time_answers_that_of_the_batch(codec: Codec) -> None:
    batch = bytes(data_batch([10, 20], 5, codec=codec))
    header = read_header(batch)
    stamped = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=77, base_offset=BASE)
    assert TimestampLookup(stamped, batch, 50, BASE + 1).run() == FoundTimestamp(77, BASE + 1, stamped.leader_epoch)


# -- slices ----------------------------------------------------------------------------------------------------------


def test_slice_survives_rename_removal_and_dropped_handles(segment: Segment) -> None:
    filled(segment)
    taken = segment.slice(0, segment.size)
    content = taken.read()
    segment.rename(".deleted")
    segment.drop_handles()
    segment.remove_files()
    assert taken.read() == content
    assert not taken.is_revoked
    taken.release()
    assert segment.slices == []


def test_slice_can_be_loaded_and_is_resident(segment: Segment) -> None:
    filled(segment)
    taken = segment.slice(10, 20)
    taken.load(ahead_bytes=100)
    assert taken.is_resident()
    taken.release()


def test_truncation_revokes_only_slices_that_reach_beyond_it(segment: Segment) -> None:
    filled(segment)
    size = segment.size // 10
    below, across, above = segment.slice(0, size), segment.slice(0, size + 1), segment.slice(2 * size, size)
    truncate(segment, BASE + 2)
    assert [taken.is_revoked for taken in (below, across, above)] == [False, True, True]
    segment.check_invariants()


# -- cutting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [BASE, BASE + 1, BASE + 6, BASE + 11, BASE + 19])
def test_truncated_segment_is_as_if_no_more_had_been_appended(
    disk: SimulatedDisk, segment: Segment, offset: int
) -> None:
    filled(segment)
    kept = (offset - BASE) // 2
    size = segment.size // 10
    truncate(segment, offset)
    assert disk.size(segment.path(LOG_SUFFIX)) == segment.size == kept * size
    assert segment.next_offset() == BASE + 2 * kept
    assert segment.largest.timestamp == (999 + 2 * kept if kept else NO_TIMESTAMP)
    append(segment, BASE + 2 * kept, 5_000)
    assert segment.next_offset() == BASE + 2 * kept + 1
    assert all(segment.header_at(position).last_offset == last for last, position in segment.offset_index)
    segment.check_invariants()


def test_truncation_beyond_the_end_does_nothing(segment: Segment) -> None:
    size = filled(segment).size
    assert segment.cut_to(BASE + 20) is None
    assert segment.size == size


def test_truncation_is_durable_once_it_is_synced(disk: SimulatedDisk, segment: Segment) -> None:
    filled(segment)
    segment.file.sync()
    disk.sync_directory("")
    truncate(segment, BASE + 4)
    for _ in range(20):
        assert disk.power_loss_image().size(segment.path(LOG_SUFFIX)) == segment.size


# -- checking --------------------------------------------------------------------------------------------------------


def test_segment_moves_with_all_its_files(disk: SimulatedDisk, segment: Segment) -> None:
    filled(segment).complete()
    segment.rename(".swap")
    assert disk.list("") == [f"{BASE:020d}{kind}.swap" for kind in sorted(SEGMENT_SUFFIXES) if kind != ".txnindex"]
    assert segment.position_of(BASE + 5) is not None
