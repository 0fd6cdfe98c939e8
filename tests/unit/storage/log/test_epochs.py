import pytest

from barnabas.base.ids import NO_EPOCH
from barnabas.storage.log.epochs import UNKNOWN_END, EpochEnd, EpochEntry, LeaderEpochs


def history(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(EpochEntry(*entry) for entry in entries)
    epochs.check_invariants()
    return epochs


def pairs(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    epochs.check_invariants()
    return [tuple(entry) for entry in epochs.entries]


def test_empty_history_knows_nothing():
    epochs = history()
    assert epochs.latest is None
    assert epochs.earliest is None
    assert epochs.latest_epoch is None
    assert epochs.epoch_for_offset(0) is None
    assert epochs.end_offset_for(0, 10) == UNKNOWN_END


@pytest.mark.parametrize(
    ("epoch", "start_offset", "expected"),
    [
        (5, 20, [(2, 0), (4, 10), (5, 20)]),
        (4, 10, [(2, 0), (4, 10)]),
        (4, 15, [(2, 0), (4, 10)]),
        (4, 7, [(2, 0), (4, 7)]),
        (5, 10, [(2, 0), (5, 10)]),
        (5, 5, [(2, 0), (5, 5)]),
        (5, 0, [(5, 0)]),
        (3, 12, [(2, 0), (3, 12)]),
        (3, 5, [(2, 0), (3, 5)]),
        (1, 20, [(1, 20)]),
    ],
    ids=[
        "new epoch",
        "same entry",
        "same epoch later",
        "same epoch earlier",
        "same offset, newer epoch",
        "newer epoch within an older",
        "newer epoch at the start",
        "older epoch later",
        "older epoch earlier",
        "oldest epoch",
    ],
)
def test_assign_replaces_what_contradicts_the_new_entry(epoch, start_offset, expected):
    epochs = history((2, 0), (4, 10))
    is_news = epochs.assign(epoch, start_offset)
    assert pairs(epochs) == expected
    assert is_news == (expected != [(2, 0), (4, 10)])


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (NO_EPOCH, UNKNOWN_END),
        (1, EpochEnd(1, 5)),
        (2, EpochEnd(2, 10)),
        (3, EpochEnd(2, 10)),
        (4, EpochEnd(4, 30)),
        (6, EpochEnd(4, 30)),
        (7, EpochEnd(7, 99)),
        (8, UNKNOWN_END),
    ],
)
def test_end_offset_is_where_the_next_known_epoch_starts(epoch, expected):
    assert history((2, 5), (4, 10), (7, 30)).end_offset_for(epoch, 99) == expected


@pytest.mark.parametrize(("offset", "epoch"), [(4, None), (5, 2), (9, 2), (10, 4), (29, 4), (30, 7), (1_000, 7)])
def test_epoch_for_offset_is_the_last_that_started_by_then(offset, epoch):
    assert history((2, 5), (4, 10), (7, 30)).epoch_for_offset(offset) == epoch


def test_neighbours_of_an_epoch():
    epochs = history((2, 5), (4, 10))
    assert epochs.previous(2) is None
    assert epochs.previous(3) == (2, 5)
    assert epochs.previous(9) == (4, 10)
    assert epochs.next(1) == (2, 5)
    assert epochs.next(2) == (4, 10)
    assert epochs.next(4) is None
    assert epochs.earliest == (2, 5)


@pytest.mark.parametrize(
    ("end_offset", "expected"),
    [
        (31, [(2, 5), (4, 10), (7, 30)]),
        (30, [(2, 5), (4, 10)]),
        (11, [(2, 5), (4, 10)]),
        (10, [(2, 5)]),
        (0, []),
    ],
)
def test_truncate_from_end_drops_epochs_that_began_there_or_later(end_offset, expected):
    epochs = history((2, 5), (4, 10), (7, 30))
    assert epochs.truncate_from_end(end_offset) == (len(expected) < 3)
    assert pairs(epochs) == expected


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (0, [(2, 5), (4, 10), (7, 30)]),
        (5, [(2, 5), (4, 10), (7, 30)]),
        (6, [(2, 6), (4, 10), (7, 30)]),
        (10, [(4, 10), (7, 30)]),
        (29, [(4, 29), (7, 30)]),
        (500, [(7, 500)]),
    ],
)
def test_truncate_from_start_moves_the_covering_epoch_up(start_offset, expected):
    epochs = history((2, 5), (4, 10), (7, 30))
    assert epochs.truncate_from_start(start_offset) == (expected[0] != (2, 5))
    assert pairs(epochs) == expected


def test_entries_in_range_leave_the_history_alone():
    epochs = history((2, 5), (4, 10), (7, 30))
    assert epochs.entries_in_range(7, 30) == ((2, 7), (4, 10))
    assert len(epochs.entries) == 3


def test_history_from_its_file_is_clean_until_it_changes():
    epochs = history((2, 5))
    assert not epochs.is_dirty
    epochs.assign(3, 9)
    assert epochs.is_dirty


def test_change_while_the_file_is_written_keeps_the_history_dirty():
    epochs = history((2, 5))
    epochs.assign(3, 9)
    being_written = epochs.entries
    epochs.assign(4, 11)
    epochs.mark_written(being_written)
    assert epochs.is_dirty
    epochs.mark_written(epochs.entries)
    assert not epochs.is_dirty


def test_contradicting_file_is_put_right_and_dirty():
    epochs = history((2, 5), (4, 3))
    assert pairs(epochs) == [(4, 3)]
    assert epochs.is_dirty


def test_clear_empties_the_history():
    epochs = history((2, 5))
    epochs.clear()
    assert epochs.entries == ()
    assert epochs.is_dirty


def test_restore_puts_earlier_entries_back():
    epochs = history((2, 5))
    before = epochs.entries
    epochs.assign(3, 9)
    epochs.restore(before)
    assert pairs(epochs) == [(2, 5)]
    assert not epochs.is_dirty
