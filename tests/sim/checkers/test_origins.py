"""Nobody is shown what nobody sent."""

from barnabas.sim.checkers.origins import check_origins
from tests.sim.checkers.written import FLUSHED, PLACE, Written


def found(written: Written) -> list[str]:
    return list(check_origins(written.history))


def test_sent_records_pass() -> None:
    written = Written("plain")
    written.sent(PLACE, "a", key="k")
    written.sent(PLACE, None, key="k")
    written.shown(PLACE, 0, 2, (0, "a", "k"), (1, None, "k"))
    written.final(PLACE, (0, "a", "k"), (1, None, "k"))
    assert not found(written)


def test_invented_record_is_found_even_where_a_bit_was_changed() -> None:
    written = Written("plain")
    written.happened("flip", "disk-1/plain-0/00000000000000000000.log")
    written.sent(PLACE, "a")
    written.shown(PLACE, 0, 1, (0, "b"))
    assert found(written) == ["None=b'b' at offset 0 of plain-0, shown to reader-1 at 5.000 s, was never sent"]


def test_record_with_another_key_is_found() -> None:
    written = Written("plain")
    written.sent(PLACE, "a", key="k")
    written.final(PLACE, (0, "a", "l"))
    assert found(written) == ["b'l'=b'a' at offset 0 of plain-0, in the final log, was never sent"]


def test_record_of_another_partition_is_found() -> None:
    written = Written("plain", "flushed")
    written.sent(PLACE, "a")
    written.final(FLUSHED, (0, "a"))
    (problem,) = found(written)
    assert "of flushed-0" in problem


def test_tombstone_that_nobody_sent_is_found() -> None:
    written = Written("plain")
    written.sent(PLACE, "a", key="k")
    written.final(PLACE, (0, None, "k"))
    assert found(written) == ["b'k'=None at offset 0 of plain-0, in the final log, was never sent"]


def test_record_shown_before_it_was_sent_is_found() -> None:
    written = Written("plain")
    written.shown(PLACE, 0, 1, (0, "a"))
    written.sent(PLACE, "a")
    assert len(found(written)) == 1
