"""`verify` of a whole log directory: what counts as a partition, damaged checkpoints, and how much is reported."""

from pathlib import Path

import pytest

from barnabas.base.filesystem import LocalFileSystem
from barnabas.storage.directories.names import SegmentFileName, parse_segment_file_name
from barnabas.storage.tools.findings import Findings
from barnabas.storage.tools.verify_directory import NoLogs, find_target, was_closed
from tests.support.sample_log import FIRST
from tests.support.verified_logs import check, errors, overwrite


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


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_checkpoint_beyond_the_end_of_its_log_is_found(data: Path, name: str) -> None:
    (data / name).write_text("0\n1\norders 0 19\n")

    (error,) = errors(check(data))

    assert error.offset == 19
    assert error.problem.endswith("of orders-0 is 19, but its log ends at 18")


def test_leader_epochs_of_deleted_records_need_not_be_known(data: Path) -> None:
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert {error.problem for error in errors(check(data))} == {
        "leader epoch 0, which begins here, is missing",
        "leader epoch 1, which begins here, is missing",
    }
    (data / "log-start-offset-checkpoint").write_text("0\n1\norders 0 18\n")

    assert errors(check(data)) == []


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
        "not checked: its name is not that of a partition (TOPIC-NUMBER)",
    ]
    assert [partition.name for partition in report.partitions] == ["orders-0"]


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
