"""An idempotent producer writes each record once."""

from barnabas.sim.checkers.duplicates import check_duplicates
from tests.sim.checkers.written import COMPACTED, PLACE, Written


def found(written: Written) -> list[str]:
    return list(check_duplicates(written.history))


def test_records_stored_once_pass() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.stored(PLACE, "b", 1)
    written.final(PLACE, (0, "a"), (1, "b"))
    assert not found(written)


def test_duplicate_of_an_idempotent_producer_is_found() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.final(PLACE, (0, "a"), (7, "a"))
    assert found(written) == ["b'a' of the idempotent producer-1 is stored twice in plain-0: at offsets 0 and 7"]


def test_other_producers_may_write_twice() -> None:
    written = Written("plain")
    written.sent(PLACE, "a", is_idempotent=False)
    written.final(PLACE, (0, "a"), (1, "a"))
    assert not found(written)


def test_tombstones_tell_nothing() -> None:
    written = Written("compacted")
    written.sent(COMPACTED, None, key="k")
    written.sent(COMPACTED, None, key="k")
    written.final(COMPACTED, (0, None, "k"), (1, None, "k"))
    assert not found(written)


def test_producer_is_forgotten_when_the_clock_jumps_by_a_day() -> None:
    written = Written("plain")
    written.stored(PLACE, "a", 0)
    written.happened("clock jump", "86400000 ms")
    written.final(PLACE, (0, "a"), (7, "a"))
    assert not found(written)
