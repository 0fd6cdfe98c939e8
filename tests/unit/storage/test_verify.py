"""Every invariant that `verify` knows is broken here once, and must be found at its exact place."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.records.batch import Codec, assign, read_header
from barnabas.records.builder import BatchBuilder
from barnabas.records.checksum import compute_crc
from barnabas.storage.directories.names import SegmentFileName, parse_segment_file_name
from barnabas.storage.settings import LogConfig
from barnabas.storage.tools.findings import Finding, Findings, Severity
from barnabas.storage.tools.verify import PartitionReport, verify_partition
from barnabas.storage.tools.verify_directory import DirectoryReport, NoLogs, find_target, verify_target, was_closed
from tests.support.bombs import zstd_bomb
from tests.support.sample_log import START_MS, append_plain, append_transaction, make_sample, open_sample

FIRST = "00000000000000000000"
SECOND = "00000000000000000010"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_sample(tmp_path)


def check(directory: Path, *, is_settled: bool = True) -> DirectoryReport:
    files = LocalFileSystem()
    return verify_target(files, find_target(files, str(directory)), is_settled=is_settled)


def check_partition(data: Path, *, is_settled: bool = True) -> PartitionReport:
    return verify_partition(LocalFileSystem(), str(data / "orders-0"), is_settled=is_settled)


def errors(report: DirectoryReport | PartitionReport) -> list[Finding]:
    partitions = report.partitions if isinstance(report, DirectoryReport) else []
    findings = [*report.findings, *(finding for one in partitions for finding in one.findings)]
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def notes(report: PartitionReport) -> list[str]:
    return [finding.problem for finding in report.findings if finding.severity is Severity.NOTE]


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def patch_batch(path: Path, position: int, patch: Callable[[bytearray], None]) -> None:
    """Changes a batch and gives it the checksum that fits."""
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack_from(">i", content, position + 8)
    batch = content[position : position + 12 + length]
    patch(batch)
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    overwrite(path, position, batch)


def test_sound_directory_has_no_findings(data: Path) -> None:
    report = check(data)

    assert report.is_sound
    assert report.findings == []
    (partition,) = report.partitions
    assert partition.findings == []
    assert (partition.segments, partition.batches, partition.records) == (2, 8, 18)
    assert (partition.start_offset, partition.end_offset) == (0, 18)


def test_sound_partition_alone_is_checked_like_a_directory(data: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone" / "orders-0"
    alone.parent.mkdir()
    (data / "orders-0").rename(alone)
    target = find_target(LocalFileSystem(), str(alone))

    assert target.log_directory is None
    assert was_closed(LocalFileSystem(), target)
    assert check(alone).partitions[0].records == 18


def test_directory_without_logs_is_refused_with_advice(tmp_path: Path) -> None:
    with pytest.raises(NoLogs, match="give the directory of a partition"):
        find_target(LocalFileSystem(), str(tmp_path))


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
    assert notes(report) == ["8 bytes after the last whole batch: a write under way, or one that recovery cuts"]


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


def test_index_entry_that_names_another_offset_is_found(data: Path) -> None:
    overwrite(data / "orders-0" / f"{FIRST}.index", 0, struct.pack(">ii", 7, 278))

    (error,) = errors(check_partition(data))

    assert (error.position, error.problem) == (
        0,
        "(offset 7, position 278), but the batch there ends with offset 8",
    )


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(8, 279)], "(offset 8, position 279) does not point to the beginning of a batch"),
        ([(8, 278), (9, 4000)], "(offset 9, position 4000) points past the last batch"),
        ([(8, 278), (6, 373)], "(offset 6, position 373) does not come after (offset 8, position 278)"),
    ],
)
def test_index_that_leads_astray_is_found(data: Path, entries: list[tuple[int, int]], problem: str) -> None:
    content = b"".join(struct.pack(">ii", *entry) for entry in entries)
    (data / "orders-0" / f"{FIRST}.index").write_bytes(content)

    assert problem in [error.problem for error in errors(check_partition(data))]


def test_missing_index_is_an_error_unless_the_segment_is_open(data: Path) -> None:
    (data / "orders-0" / f"{SECOND}.index").unlink()

    assert [error.problem for error in errors(check_partition(data))] == ["the index is missing"]
    assert notes(check_partition(data, is_settled=False)) == ["the index is missing"]


def test_zeros_after_the_index_entries_are_a_note(data: Path) -> None:
    for kind in ("index", "timeindex"):
        with (data / "orders-0" / f"{SECOND}.{kind}").open("r+b") as file:
            file.truncate(12 * 8 * 100)

    report = check_partition(data)

    assert report.is_sound
    assert notes(report) == [
        "1199 entries of zeros at the end, as Kafka leaves them when it is killed",
        "799 entries of zeros at the end, as Kafka leaves them when it is killed",
    ]


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(1001, 8)], f"the last entry has timestamp {START_MS + 1001}, but a record has {START_MS + 2000}"),
        ([(1000, 8), (2000, 9)], f"(timestamp {START_MS + 1000}, offset 8), but the batch there has timestamp"),
        ([(2000, 9), (2001, 12)], f"(timestamp {START_MS + 2001}, offset 12) names an offset past the last batch"),
        ([(1001, 8), (900, 9)], "does not come after"),
    ],
)
def test_time_index_that_is_wrong_is_found(data: Path, entries: list[tuple[int, int]], problem: str) -> None:
    content = b"".join(struct.pack(">qi", START_MS + time, offset) for time, offset in entries)
    (data / "orders-0" / f"{FIRST}.timeindex").write_bytes(content)

    assert any(problem in error.problem for error in errors(check_partition(data)))


def test_stray_bytes_after_the_last_entry_are_found(data: Path) -> None:
    overwrite(data / "orders-0" / f"{FIRST}.index", 8, b"\x00\x00\x01")

    assert [(error.position, error.problem) for error in errors(check_partition(data))] == [
        (8, "3 bytes after the last entry")
    ]


def test_aborted_transaction_that_is_not_indexed_is_found(data: Path) -> None:
    (data / "orders-0" / f"{FIRST}.txnindex").unlink()

    (error,) = errors(check_partition(data))

    assert error.offset == 9
    assert error.problem == "the transaction that the marker at this offset aborts is missing"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ((8, 7, 9, 10), "but the marker there aborts one of producer 7"),
        ((7, 6, 9, 10), "but the log says producer 7 aborted 7 to 9"),
        ((7, 7, 5, 10), "offsets 7 to 5"),
        ((7, 7, 8, 9), "but the log has no such marker"),
    ],
)
def test_transaction_index_that_is_wrong_is_found(data: Path, fields: tuple[int, ...], problem: str) -> None:
    (data / "orders-0" / f"{FIRST}.txnindex").write_bytes(struct.pack(">hqqqq", 0, *fields))

    assert any(problem in error.problem for error in errors(check_partition(data)))


def test_committed_transaction_in_the_index_is_found(data: Path) -> None:
    path = data / "orders-0" / f"{SECOND}.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 7, 13, 15, 16))

    (error,) = errors(check_partition(data))

    assert (error.position, error.offset) == (0, 15)
    assert "but the marker there commits one of producer 7" in error.problem


def test_snapshot_with_a_wrong_checksum_is_found(data: Path) -> None:
    overwrite(data / "orders-0" / f"{SECOND}.snapshot", 20, b"\xff")

    (error,) = errors(check_partition(data))

    assert error.path.endswith(f"{SECOND}.snapshot")
    assert error.problem.startswith("CRC ")


def test_snapshot_that_was_begun_and_not_written_is_a_note(data: Path) -> None:
    (data / "orders-0" / f"{SECOND}.snapshot").write_bytes(b"")

    report = check_partition(data)

    assert errors(report) == []
    assert any("empty, as a broker" in note for note in notes(report))


def test_snapshot_that_replay_contradicts_is_found(data: Path) -> None:
    partition = data / "orders-0"
    (partition / f"{SECOND}.snapshot").write_bytes((partition / "00000000000000000018.snapshot").read_bytes())

    (error,) = errors(check_partition(data))

    assert error.problem == (
        f"producer 7: epoch 0, sequence 3 at offset 14, timestamp {START_MS + 2002}, coordinator epoch 3, no open "
        f"transaction, but the log says epoch 0, sequence 1 at offset 8, timestamp {START_MS + 2000}, coordinator "
        "epoch 3, no open transaction"
    )


def test_snapshot_after_the_end_of_the_log_is_found(data: Path) -> None:
    partition = data / "orders-0"
    (partition / "00000000000000000018.snapshot").rename(partition / "00000000000000000019.snapshot")

    (error,) = errors(check_partition(data))

    assert error.problem == "it lies after the end of the log, 18"


def test_snapshot_without_an_expired_producer_is_sound(data: Path) -> None:
    partition = data / "orders-0"
    empty = struct.pack(">hIi", 1, 0, 0)
    crc = compute_crc(b"\x00" * 21 + empty[6:])
    (partition / "00000000000000000018.snapshot").write_bytes(struct.pack(">hIi", 1, crc, 0))

    assert check_partition(data).findings == []


def test_replay_begins_at_the_snapshot_of_a_trimmed_log(data: Path) -> None:
    partition = data / "orders-0"
    for path in partition.glob(f"{FIRST}.*"):
        path.unlink()

    report = check_partition(data)

    assert report.findings == []
    assert (report.start_offset, report.end_offset) == (10, 18)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("0\n2\n0 0\n1 9\n", "it says leader epoch 1, but the batch has 0"),
        ("0\n2\n1 0\n0 10\n", "epoch 0 from offset 10 on does not come after epoch 1 from offset 0 on"),
        ("0\n1\n0 0\n", "leader epoch 1 is missing, which begins here"),
        ("0\n3\n0 0\n1 10\n2 99\n", "leader epoch 2 begins after the end of the log, 18"),
        ("0\n1\nx 0\n", "line 3: not a number from 0 to 2147483647: 'x'"),
    ],
)
def test_epochs_that_the_batches_contradict_are_found(data: Path, content: str, problem: str) -> None:
    (data / "orders-0" / "leader-epoch-checkpoint").write_text(content)

    assert problem in [error.problem for error in errors(check_partition(data))]


def test_epochs_of_an_open_log_may_be_behind(data: Path) -> None:
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")

    assert notes(check_partition(data, is_settled=False)) == ["leader epoch 1 is missing, which begins here"]


def test_leader_epoch_that_decreases_is_found(data: Path) -> None:
    overwrite(data / "orders-0" / f"{SECOND}.log", 124 + 12, struct.pack(">i", 0))

    assert (124, "leader epoch 0 after 1") in [
        (error.position, error.problem) for error in errors(check_partition(data))
    ]


def test_index_without_a_log_is_an_error_and_other_names_are_notes(data: Path) -> None:
    partition = data / "orders-0"
    (partition / "00000000000000000099.index").touch()
    (partition / "00000000000000000000.log.deleted").touch()
    (partition / "00000000000000000000.index.cleaned").touch()
    (partition / "shopping-list").touch()

    report = check_partition(data)

    assert [error.problem for error in errors(report)] == ["it belongs to no segment: there is no .log of this name"]
    assert notes(report) == [
        "these names mean nothing to the log, and are left alone: shopping-list",
        "1 files, not finished by compaction, and removed when the log is opened next",
        "1 files, already deleted, and removed when the log is opened next",
    ]


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_checkpoint_beyond_the_end_of_its_log_is_found(data: Path, name: str) -> None:
    (data / name).write_text("0\n1\norders 0 19\n")

    (error,) = errors(check(data))

    assert error.offset == 19
    assert error.problem.endswith("of orders-0 is 19, but its log ends at 18")


def test_damaged_files_of_a_log_directory_are_found_together(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n7\n")
    (data / "meta.properties").write_text("version=4\n")
    (data / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: x\n")

    assert sorted(Path(error.path).name for error in errors(check(data))) == [
        "meta.properties",
        "partition.metadata",
        "recovery-point-offset-checkpoint",
    ]


def test_what_is_not_a_partition_is_noted_and_left_out(data: Path) -> None:
    (data / "__cluster_metadata-0").mkdir()
    (data / f"orders-1.{'0' * 32}-delete").mkdir()
    (data / "photos").mkdir()

    report = check(data)

    assert report.is_sound
    assert [finding.problem for finding in report.findings] == [
        "not checked: it belongs to a KRaft node and is left alone",
        "not checked: the partition is being deleted",
        "not checked: its name is not that of a partition, TOPIC-NUMBER",
    ]
    assert [partition.name for partition in report.partitions] == ["orders-0"]


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


def test_verify_changes_nothing(data: Path) -> None:
    overwrite(data / "orders-0" / f"{FIRST}.log", 250, b"X")
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}

    check(data)

    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_findings_of_one_file_are_bounded_and_counted() -> None:
    findings = Findings()
    for position in range(1000):
        findings.error("a.log", "bad", position=position)
    findings.note("b.log", "odd")

    assert findings.error_count == 1000
    assert len(findings.all()) == 22
    assert str(findings.all()[-1]) == "a.log: and 980 more"
    assert str(findings.all()[0]) == "a.log, position 0: bad"


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000042.log", SegmentFileName(42, ".log", "")),
        ("00000000000000000042.timeindex.deleted", SegmentFileName(42, ".timeindex", ".deleted")),
        ("42.log", None),
        ("99999999999999999999.log", None),
        ("leader-epoch-checkpoint", None),
    ],
)
def test_segment_file_name_is_taken_apart(name: str, parsed: SegmentFileName | None) -> None:
    assert parse_segment_file_name(name) == parsed
