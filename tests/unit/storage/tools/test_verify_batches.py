"""`verify` finds each broken invariant of a segment's batches at its exact place."""

import struct
from pathlib import Path

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.records.batch import Codec, assign, read_header
from barnabas.records.builder import BatchBuilder
from barnabas.storage.settings import LogConfig
from barnabas.storage.tools.verify import verify_partition
from tests.support.bombs import zstd_bomb
from tests.support.sample_log import FIRST, SECOND, START_MS, append_plain, append_transaction, open_sample
from tests.support.verified_logs import check, check_partition, errors, notes, overwrite, patch_batch


def test_flipped_bit_in_records_is_found_at_its_batch_and_the_rest_is_checked(data: Path) -> None:
    overwrite(data / "orders-0" / f"{FIRST}.log", 250, b"X")

    report = check_partition(data)

    (error,) = errors(report)
    assert (error.path, error.position, error.offset) == (str(data / "orders-0" / f"{FIRST}.log"), 141, 4)
    assert error.problem == "the checksum does not match"
    assert report.records == 15


def test_impossible_header_ends_the_segment_and_the_next_is_checked(data: Path) -> None:
    overwrite(data / "orders-0" / f"{FIRST}.log", 141 + 16, b"\x09")

    report = check_partition(data)

    assert [(error.position, error.problem) for error in errors(report)] == [(141, "the magic is not 2")]
    assert report.batches == 1 + 4


def test_log_that_ends_within_a_batch_is_an_error_unless_it_was_not_closed(data: Path) -> None:
    path = data / "orders-0" / f"{SECOND}.log"
    overwrite(path, path.stat().st_size, b"\x00\x00\x00\x00\x00\x00\x00\x12")

    (error,) = errors(check_partition(data))
    assert (error.position, error.problem) == (400, "8 bytes are left, but a batch header begins here")

    overwrite(path, path.stat().st_size - 1, b"\x13")
    report = check_partition(data, is_settled=False)
    assert report.is_sound
    assert notes(report) == ["8 bytes after the last whole batch: a write in progress, or one that recovery truncates"]


def test_space_allocated_ahead_in_an_open_log_is_a_note(data: Path) -> None:
    with (data / "orders-0" / f"{SECOND}.log").open("r+b") as file:
        file.truncate(4096)

    assert notes(check_partition(data, is_settled=False)) == ["3696 bytes allocated ahead"]
    assert not check_partition(data).is_sound


def test_offset_before_the_previous_batch_is_found(data: Path) -> None:
    overwrite(data / "orders-0" / f"{SECOND}.log", 124, struct.pack(">q", 11))

    problems = [(error.position, error.problem) for error in errors(check_partition(data))]

    assert (124, "offset 11 comes after offset 12") in problems


def test_offset_of_the_next_segment_is_found(data: Path) -> None:
    overwrite(data / "orders-0" / f"{FIRST}.log", 373, struct.pack(">q", 10))

    problems = [(error.position, error.problem) for error in errors(check_partition(data))]

    assert (373, "offset 10 belongs to the next segment, which begins at 10") in problems


def test_missing_offsets_are_an_error_only_where_compaction_is_known_not_to_be(data: Path) -> None:
    log = data / "orders-0" / f"{SECOND}.log"
    log.write_bytes(log.read_bytes()[:297] + struct.pack(">q", 20) + log.read_bytes()[305:])
    (data / "orders-0" / "00000000000000000018.snapshot").unlink()
    directory, files = str(data / "orders-0"), LocalFileSystem()

    unknown = verify_partition(files, directory)
    assert unknown.is_sound
    assert "the offsets from 16 to 19 are missing before it" in notes(unknown)[0]
    (error,) = errors(verify_partition(files, directory, is_compacted=False))
    assert (error.position, error.offset) == (297, 20)
    assert verify_partition(files, directory, is_compacted=True).findings == []


def test_largest_timestamp_that_no_record_has_is_found(data: Path) -> None:
    path = data / "orders-0" / f"{FIRST}.log"
    patch_batch(path, 0, lambda batch: struct.pack_into(">q", batch, 35, START_MS + 500))

    (error,) = errors(check_partition(data))

    assert error.position == 0
    assert error.problem == f"the largest timestamp is {START_MS + 3}, but the header says {START_MS + 500}"


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_compressed_records_are_unpacked_and_checked(tmp_path: Path, codec: Codec) -> None:
    log = open_sample(tmp_path / "orders-0")
    for count in (3, 4):
        builder = BatchBuilder(codec=codec)
        for index in range(count):
            builder.append(START_MS + index, b"key", b"value " * 100)
        log.append(memoryview(builder.build()), leader_epoch=0)
    log.close()
    path = tmp_path / "orders-0" / f"{FIRST}.log"
    assert check(tmp_path / "orders-0").is_sound

    patch_batch(path, 0, lambda batch: struct.pack_into(">i", batch, 57, 2))

    (error,) = errors(check(tmp_path / "orders-0"))
    assert (error.position, error.offset) == (0, 0)
    assert "left over" in error.problem


def test_batch_that_expands_too_far_is_a_note(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    log = open_sample(directory)
    bomb = bytearray(zstd_bomb(144))
    assign(read_header(bomb), memoryview(bomb), 0, 0)
    log.append_as_follower(bomb)
    log.close()
    report = verify_partition(LocalFileSystem(), str(directory))
    assert not errors(report)
    [note] = [note for note in notes(report) if "expand" in note]
    assert note.startswith("its records expand to 150995")


def test_leader_epoch_that_decreases_is_found(data: Path) -> None:
    overwrite(data / "orders-0" / f"{SECOND}.log", 124 + 12, struct.pack(">i", 0))

    assert (124, "leader epoch 0 after 1") in [
        (error.position, error.problem) for error in errors(check_partition(data))
    ]


def test_log_with_thousands_of_batches_verifies_across_chunks(tmp_path: Path) -> None:
    log = open_sample(tmp_path / "orders-0", config=LogConfig(segment_bytes=3 << 20))
    for _ in range(100):
        append_plain(log, 20, value_bytes=2000)
    append_transaction(log, 0, is_commit=False)
    log.close()
    seen: list[int] = []

    report = verify_partition(LocalFileSystem(), str(tmp_path / "orders-0"), on_progress=seen.append)

    assert report.findings == []
    assert report.records == 2003
    assert sum(seen) == report.log_bytes
