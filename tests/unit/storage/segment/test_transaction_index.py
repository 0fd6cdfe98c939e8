import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import LocalFile, LocalFileSystem, disk_error
from barnabas.storage.segment.transaction_index import (
    ENTRY_BYTES,
    AbortedTransaction,
    AbortedTransactions,
    CorruptTransactionIndex,
    TransactionIndex,
)

BY_KAFKA = bytes.fromhex(
    "0000 0000000000000000 0000000000000000 0000000000000014 0000000000000015"
    "0000 0000000000000000 000000000000002a 000000000000003e 000000000000003f"
)
FIRST = AbortedTransaction(0, 0, 20, 21)
SECOND = AbortedTransaction(0, 42, 62, 63)


class CountingFileSystem(LocalFileSystem):
    """Counts the opened files that are not closed again."""

    def __init__(self) -> None:
        self.opened = []

    def open(self, path, *, write=False, create=False):
        file = super().open(path, write=write, create=create)
        self.opened.append(file)
        return file

    @property
    def open_count(self) -> int:
        return sum(file.fileno() >= 0 for file in self.opened)


@pytest.fixture
def files():
    return CountingFileSystem()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "00000000000000000000.txnindex")


@pytest.fixture
def index(files, path):
    return TransactionIndex(files, path, base_offset=0)


def content(path) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def test_entries_are_written_as_kafka_writes_them(index, path):
    index.append(FIRST)
    index.append(SECOND)
    index.store()
    assert content(path) == BY_KAFKA
    assert list(index) == [FIRST, SECOND]


def test_entry_counts_before_it_is_stored(index, path):
    index.append(FIRST)
    index.store()
    index.append(SECOND)
    assert content(path) == BY_KAFKA[:ENTRY_BYTES]
    assert len(index) == 2
    assert list(index) == [FIRST, SECOND]
    assert index.collect(21, 70) == AbortedTransactions([SECOND], is_complete=False)


def test_index_of_kafka_is_read(index, path):
    with open(path, "wb") as file:
        file.write(BY_KAFKA)
    index.check()
    assert list(index) == [FIRST, SECOND]


def test_missing_file_means_no_aborted_transaction(index, files, path):
    assert len(index) == 0
    assert list(index) == []
    assert index.collect(0, 100) == AbortedTransactions([], is_complete=False)
    index.truncate_to(0)
    index.reset()
    index.store()
    index.check()
    assert files.opened == []
    assert not os.path.exists(path)


def test_no_descriptor_stays_open(index, files):
    index.append(FIRST)
    index.append(SECOND)
    index.store()
    index.collect(0, 10)
    index.truncate_to(30)
    index.check()
    assert files.opened
    assert files.open_count == 0


def test_append_goes_on_after_reopening(index, files, path):
    index.append(FIRST)
    index.store()
    reopened = TransactionIndex(files, path, base_offset=0)
    reopened.append(SECOND)
    reopened.store()
    assert content(path) == BY_KAFKA


def test_append_of_a_marker_that_is_not_newer_is_refused(index, files, path):
    index.append(SECOND)
    with pytest.raises(CorruptTransactionIndex, match="offset 62"):
        index.append(SECOND)
    index.store()
    with pytest.raises(CorruptTransactionIndex, match="offset 20"):
        TransactionIndex(files, path, base_offset=0).append(FIRST)


def test_store_that_fails_loses_nothing_and_the_next_overwrites_its_torn_entry(index, path, monkeypatch):
    def torn_write(file, buffers, position):
        os.pwrite(file.fileno(), b"torn", position)
        raise disk_error("write", file.path, OSError(errno.EIO, "torn"))

    index.append(FIRST)
    index.store()
    index.append(SECOND)
    with monkeypatch.context() as patch:
        patch.setattr(LocalFile, "write_at", torn_write)
        with pytest.raises(DiskFailed):
            index.store()
    assert content(path) == BY_KAFKA[:ENTRY_BYTES] + b"torn"
    assert list(index) == [FIRST, SECOND]
    index.store()
    assert content(path) == BY_KAFKA


def test_move_follows_the_file_and_works_without_one(index, path):
    index.move(path + ".swap")
    index.append(FIRST)
    index.store()
    index.move(path)
    assert content(path) == BY_KAFKA[:ENTRY_BYTES]
    assert list(index) == [FIRST]


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "expected", "is_complete"),
    [
        (0, 21, [FIRST], True),
        (20, 21, [FIRST], True),
        (21, 40, [], True),
        (21, 43, [SECOND], True),
        (0, 63, [FIRST, SECOND], True),
        (0, 64, [FIRST, SECOND], False),
        (62, 70, [SECOND], False),
        (63, 70, [], False),
    ],
)
@pytest.mark.parametrize("stored", [0, 1, 2])
def test_collect_finds_transactions_with_records_in_the_range(
    index, fetch_offset, upper_bound, expected, is_complete, stored
):
    for place, transaction in enumerate((FIRST, SECOND)):
        index.append(transaction)
        if place < stored:
            index.store()
    assert index.collect(fetch_offset, upper_bound) == AbortedTransactions(expected, is_complete)


def test_collect_over_many_chunks_finds_all(index):
    transactions = [AbortedTransaction(7, 10 * n, 10 * n + 5, 10 * n + 6) for n in range(500)]
    for transaction in transactions:
        index.append(transaction)
    index.store()
    assert index.collect(0, 10_000) == AbortedTransactions(transactions, is_complete=False)
    assert index.collect(2_500, 4_000).transactions == transactions[250:400]


@pytest.mark.parametrize(("offset", "expected"), [(63, [FIRST, SECOND]), (62, [FIRST]), (21, [FIRST]), (20, [])])
@pytest.mark.parametrize("stored", [0, 1, 2])
def test_truncate_drops_markers_at_or_after_the_offset(index, path, offset, expected, stored):
    for place, transaction in enumerate((FIRST, SECOND)):
        index.append(transaction)
        if place < stored:
            index.store()
    index.truncate_to(offset)
    assert list(index) == expected
    if SECOND not in expected:
        index.append(SECOND)
    index.store()
    assert list(index) == [*(each for each in expected if each != SECOND), SECOND]
    assert os.path.getsize(path) == len(index) * ENTRY_BYTES


def test_truncate_drops_a_torn_entry(index, path):
    index.append(FIRST)
    index.store()
    with open(path, "ab") as file:
        file.write(b"torn")
    index.truncate_to(100)
    assert content(path) == BY_KAFKA[:ENTRY_BYTES]


def test_reset_drops_whatever_is_there(index, path):
    with open(path, "wb") as file:
        file.write(b"\xff" * 50)
    index.reset()
    assert content(path) == b""
    index.append(FIRST)
    assert list(index) == [FIRST]


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        (BY_KAFKA[:-1], "67 bytes"),
        (b"\0\1" + BY_KAFKA[2:], "entry 0: version 1"),
        (BY_KAFKA[ENTRY_BYTES:] + BY_KAFKA[:ENTRY_BYTES], "entry 1: offsets 0 to 20"),
        (BY_KAFKA[:ENTRY_BYTES] * 2, "entry 1: offsets 0 to 20"),
        (
            bytes.fromhex("0000 0000000000000000 0000000000000015 0000000000000014 0000000000000015"),
            "21 to 20",
        ),
        (
            bytes.fromhex("0000 0000000000000000 ffffffffffffffff 0000000000000014 0000000000000015"),
            "-1 to 20",
        ),
    ],
)
def test_check_finds_damage(index, path, damaged, problem):
    with open(path, "wb") as file:
        file.write(damaged)
    with pytest.raises(CorruptTransactionIndex, match=problem):
        index.check()


def test_check_finds_markers_before_the_segment(files, path):
    with open(path, "wb") as file:
        file.write(BY_KAFKA[:ENTRY_BYTES])
    TransactionIndex(files, path, base_offset=20).check()
    with pytest.raises(CorruptTransactionIndex, match="entry 0"):
        TransactionIndex(files, path, base_offset=21).check()


def test_file_cut_behind_our_back_is_corrupt_not_a_crash(index, path):
    index.append(FIRST)
    index.append(SECOND)
    index.store()
    os.truncate(path, ENTRY_BYTES + 3)
    with pytest.raises(CorruptTransactionIndex, match="within entry 1"):
        list(index)


@given(
    markers=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9), st.integers(0, 9)), max_size=12),
    fetch_offset=st.integers(0, 60),
    length=st.integers(1, 30),
)
def test_collect_equals_a_scan_of_all_entries(tmp_path_factory, markers, fetch_offset, length):
    path = str(tmp_path_factory.mktemp("index") / "0.txnindex")
    index = TransactionIndex(LocalFileSystem(), path, base_offset=0)
    transactions = []
    last_offset = stable = 0
    for gap, age, instability in markers:
        last_offset += gap
        stable = max(stable, last_offset + 1 - instability)
        transactions.append(AbortedTransaction(1, max(0, last_offset - age), last_offset, stable))
        index.append(transactions[-1])
        if (gap + age) % 2:
            index.store()
    index.check()
    upper_bound = fetch_offset + length
    seen = []
    for transaction in transactions:
        seen.append(transaction)
        if transaction.last_stable_offset >= upper_bound:
            break
    assert index.collect(fetch_offset, upper_bound) == AbortedTransactions(
        [each for each in seen if each.last_offset >= fetch_offset and each.first_offset < upper_bound],
        is_complete=bool(seen) and seen[-1].last_stable_offset >= upper_bound,
    )
