"""A reader is shown everything, in order, once."""

import pytest

from barnabas.sim.checkers.positions import check_positions
from tests.sim.checkers.written import COMPACTED, EXPIRING, PLACE, Written


def found(written: Written) -> list[str]:
    return list(check_positions(written.history))


def reader(*topics: str) -> Written:
    written = Written(*topics)
    for place in (PLACE, COMPACTED, EXPIRING):
        written.positioned(place, 0)
    return written


def test_runs_that_follow_each_other_pass() -> None:
    written = reader("plain")
    written.shown(PLACE, 0, 2, (0, "a"), (1, "b"))
    written.shown(PLACE, 2, 3, (2, "c"))
    assert not found(written)


def test_run_from_a_chosen_position_passes() -> None:
    written = reader("plain")
    written.shown(PLACE, 0, 2, (0, "a"), (1, "b"))
    written.positioned(PLACE, 1)
    written.shown(PLACE, 1, 2, (1, "b"))
    assert not found(written)


def test_readers_do_not_know_of_each_other() -> None:
    written = reader("plain")
    written.positioned(PLACE, 5, by="reader-2")
    written.shown(PLACE, 0, 1, (0, "a"))
    written.shown(PLACE, 5, 6, (5, "f"), by="reader-2")
    assert not found(written)


def test_reader_without_a_position_is_found() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 1, (0, "a"))
    assert found(written) == ["reader-1 was shown 0 to 1 of plain-0 at 3.000 s, but had no position there"]


def test_skipped_records_are_found() -> None:
    written = reader("plain")
    written.shown(PLACE, 0, 1, (0, "a"))
    written.shown(PLACE, 2, 3, (2, "c"))
    assert found(written) == [
        "reader-1 was shown 2 to 3 of plain-0 at 7.000 s, but its position was 1: "
        "records are skipped, and nothing moves the start of this log"
    ]


def test_record_that_comes_again_is_found() -> None:
    written = reader("plain")
    written.shown(PLACE, 0, 1, (0, "a"))
    written.happened("kill")
    written.shown(PLACE, 0, 1, (0, "a"))
    (problem,) = found(written)
    assert "records come again, and nothing was lost" in problem


def test_reader_goes_back_to_the_start_after_a_power_loss() -> None:
    written = reader("plain")
    written.shown(PLACE, 0, 2, (0, "a"), (1, "b"))
    written.power_loss()
    written.shown(PLACE, 0, 1, (0, "a"))
    assert not found(written)


def test_reader_goes_back_to_nothing_but_the_start() -> None:
    written = reader("plain")
    written.shown(PLACE, 0, 2, (0, "a"), (1, "b"))
    written.power_loss()
    written.shown(PLACE, 1, 2, (1, "b"))
    (problem,) = found(written)
    assert "it went back, but not to the start of the log" in problem


def test_power_loss_long_before_explains_nothing() -> None:
    written = reader("plain")
    written.power_loss()
    for number in range(8):
        written.shown(PLACE, number, number + 1, (number, "a"))
    written.shown(PLACE, 0, 1, (0, "a"))
    assert len(found(written)) == 1


def test_retention_moves_a_reader_ahead_to_the_start() -> None:
    written = reader("expiring")
    written.shown(EXPIRING, 0, 1, (0, "a"))
    written.shown(EXPIRING, 5, 6, (5, "f"))
    written.final(EXPIRING, start=5, end=6)
    assert not found(written)


def test_retention_moves_nobody_beyond_the_start() -> None:
    written = reader("expiring")
    written.shown(EXPIRING, 0, 1, (0, "a"))
    written.shown(EXPIRING, 5, 6, (5, "f"))
    written.final(EXPIRING, start=4, end=6)
    (problem,) = found(written)
    assert "records are skipped, and the log still starts at 4 in the end" in problem


def test_delete_records_moves_a_reader_ahead() -> None:
    written = reader("plain")
    written.admin("delete_records", 5, topic="plain", partition=0)
    written.shown(PLACE, 5, 6, (5, "f"))
    written.final(PLACE, start=5, end=6)
    assert not found(written)


def test_gaps_are_of_compacted_topics() -> None:
    written = reader("plain", "compacted")
    written.shown(COMPACTED, 0, 9, (2, "c", "k"), (5, "f", "l"))
    assert not found(written)
    written.shown(PLACE, 0, 3, (0, "a"), (2, "c"))
    (problem,) = found(written)
    assert "with offset 2 where 1 comes next" in problem


@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_offsets_that_descend_are_found(topic: str) -> None:
    written = reader(topic)
    place = PLACE if topic == "plain" else COMPACTED
    written.shown(place, 0, 2, (0, "a"), (1, "b"), (1, "b"))
    (problem,) = found(written)
    assert "with offset 1 where 2 or a later one comes next" in problem


def test_run_that_ends_elsewhere_than_its_records_is_found() -> None:
    written = reader("plain")
    written.shown(PLACE, 0, 3, (0, "a"), (1, "b"))
    (problem,) = found(written)
    assert "whose records end at 2" in problem


def test_records_beyond_the_high_watermark_are_found() -> None:
    written = reader("plain")
    written.shown(PLACE, 0, 2, (0, "a"), (1, "b"), high_watermark=1)
    (problem,) = found(written)
    assert "beyond the high watermark 1" in problem


def test_damaged_partition_proves_nothing() -> None:
    written = reader("plain")
    written.happened("flip", "disk-1/plain-0/00000000000000000000.log")
    written.shown(PLACE, 3, 9, (3, "a"))
    assert not found(written)
