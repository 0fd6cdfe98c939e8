"""`verify` finds offset, time and transaction indexes that are missing or contradict their batches."""

import struct
from pathlib import Path

import pytest

from tests.support.sample_log import FIRST, SECOND, START_MS
from tests.support.verified_logs import check_partition, errors, notes, overwrite


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


def test_index_without_a_log_is_an_error_and_other_names_are_notes(data: Path) -> None:
    partition = data / "orders-0"
    (partition / "00000000000000000099.index").touch()
    (partition / "00000000000000000000.log.deleted").touch()
    (partition / "00000000000000000000.index.cleaned").touch()
    (partition / "shopping-list").touch()

    report = check_partition(data)

    assert [error.problem for error in errors(report)] == ["it belongs to no segment: there is no .log of this name"]
    assert notes(report) == [
        "files that do not belong to the log, and are left alone: shopping-list",
        "1 file, not finished by compaction, and removed when the log is next opened",
        "1 file, already deleted, and removed when the log is next opened",
    ]
