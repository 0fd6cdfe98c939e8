"""`verify` finds producer snapshots and leader epochs that the batches contradict."""

import struct
from pathlib import Path

import pytest

from barnabas.records.checksum import compute_crc
from tests.support.sample_log import FIRST, SECOND, START_MS
from tests.support.verified_logs import check_partition, errors, notes, overwrite


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

    assert error.problem == "it is after the end of the log, 18"


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
        ("0\n1\n0 0\n", "leader epoch 1, which begins here, is missing"),
        ("0\n3\n0 0\n1 10\n2 99\n", "leader epoch 2 begins after the end of the log, 18"),
        ("0\n1\nx 0\n", "line 3: not a number from 0 to 2147483647: 'x'"),
    ],
)
def test_epochs_that_the_batches_contradict_are_found(data: Path, content: str, problem: str) -> None:
    (data / "orders-0" / "leader-epoch-checkpoint").write_text(content)

    assert problem in [error.problem for error in errors(check_partition(data))]


def test_epochs_of_an_open_log_may_be_behind(data: Path) -> None:
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")

    assert notes(check_partition(data, is_settled=False)) == ["leader epoch 1, which begins here, is missing"]
