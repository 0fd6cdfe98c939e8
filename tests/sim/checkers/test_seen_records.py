"""What anybody was shown stays, and so does what lies below a high watermark that anybody was shown."""

from barnabas.sim.checkers.seen_records import check_seen_records
from barnabas.sim.checkers.watermarks import check_watermarks
from tests.sim.checkers.written import COMPACTED, EXPIRING, PLACE, Written, records


def test_records_that_stay_pass() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 2, (0, "a"), (1, "b"))
    written.final(PLACE, (0, "a"), (1, "b"))
    assert not list(check_seen_records(written.history))
    assert not list(check_watermarks(written.history))


def test_lost_record_is_found() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 2, (0, "a"), (1, "b"))
    written.final(PLACE, (0, "a"))
    (problem,) = check_seen_records(written.history)
    assert "offset 1 of plain-0, b'b' in epoch 1 as reader-1 was shown it at 3.000 s, is gone at the end" in problem


def test_another_content_is_found_when_it_is_shown_and_in_the_end() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 1, (0, "a"))
    written.shown(PLACE, 0, 1, (0, "b"), by="reader-2", epoch=2)
    written.final(PLACE, later=records((0, "c"), epoch=3))
    first, second = check_seen_records(written.history)
    assert "was b'b' in epoch 2 when reader-2 was shown it at 4.000 s" in first
    assert "is b'c' in epoch 3 at the end" in second


def test_loss_of_power_excuses() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 1, (0, "a"))
    written.power_loss()
    written.shown(PLACE, 0, 1, (0, "b"), epoch=2)
    written.final(PLACE, later=records((0, "b"), epoch=2))
    assert not list(check_seen_records(written.history))


def test_retention_and_compaction_remove_but_never_replace() -> None:
    written = Written("expiring", "compacted")
    written.shown(EXPIRING, 0, 1, (0, "a"))
    written.shown(COMPACTED, 0, 2, (0, "a", "k"), (1, "b", "k"))
    written.final(EXPIRING, start=1, end=1)
    written.final(COMPACTED, (1, "b", "k"))
    assert not list(check_seen_records(written.history))
    written.final(COMPACTED, (1, "c", "k"))
    (problem,) = check_seen_records(written.history)
    assert "is b'c' in epoch 1 at the end" in problem


def test_log_that_ends_below_a_shown_watermark_is_found() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 1, (0, "a"), high_watermark=3)
    written.final(PLACE, (0, "a"))
    (problem,) = check_watermarks(written.history)
    assert "was shown 3 as the high watermark of plain-0 at 3.000 s, and the log ends at 1" in problem


def test_what_a_reader_held_back_over_a_loss_of_power_is_excused() -> None:
    written = Written("plain")
    written.sent(PLACE, "a")
    written.power_loss()
    written.sent(PLACE, "b")
    written.shown(PLACE, 0, 1, (0, "b"), by="reader-2", epoch=2)
    written.shown(PLACE, 0, 1, (0, "a"), high_watermark=3)
    written.final(PLACE, later=records((0, "b"), epoch=2))
    assert not list(check_seen_records(written.history))
    assert not list(check_watermarks(written.history))


def test_record_that_was_sent_after_the_loss_of_power_is_not_excused() -> None:
    written = Written("plain")
    written.power_loss()
    written.sent(PLACE, "a")
    written.shown(PLACE, 0, 1, (0, "a"), high_watermark=3)
    written.final(PLACE, later=records((0, "b"), epoch=2))
    (changed,) = check_seen_records(written.history)
    assert "is b'b' in epoch 2 at the end; no loss of power explains it" in changed
    (short,) = check_watermarks(written.history)
    assert "the log ends at 1; no loss of power explains it" in short
