"""Nothing expires before its time."""

from barnabas.sim.checkers.early_expiry import check_early_expiry
from tests.sim.checkers.written import EXPIRING, Written


def found(written: Written) -> list[str]:
    return list(check_early_expiry(written.history))


def listed(written: Written, start: int) -> None:
    written.admin("list_offsets", ((EXPIRING, start, 9),), seconds=0.1, topic="expiring")


def test_old_records_may_expire() -> None:
    written = Written("expiring")
    written.stored(EXPIRING, "a", 0)
    written.happened("pause", "5 s")
    written.happened("pause", "5 s")
    listed(written, 1)
    assert not found(written)


def test_young_record_below_a_listed_start_is_found() -> None:
    written = Written("expiring")
    written.stored(EXPIRING, "a", 0)
    listed(written, 1)
    (problem,) = found(written)
    assert problem.startswith("expiring-0 starts at 1 at ")
    assert problem.endswith("and is kept for 3 s")


def test_reader_that_had_to_go_ahead_tells_the_start() -> None:
    written = Written("expiring")
    written.positioned(EXPIRING, 0)
    written.stored(EXPIRING, "a", 0)
    written.shown(EXPIRING, 1, 2, (1, "b"))
    assert len(found(written)) == 1


def test_records_that_somebody_deleted_and_changed_clocks_tell_nothing() -> None:
    written = Written("expiring")
    written.stored(EXPIRING, "a", 0)
    written.admin("delete_records", 1, topic="expiring", partition=0)
    listed(written, 1)
    assert not found(written)
    written = Written("expiring")
    written.happened("clock jump", "500 ms")
    written.stored(EXPIRING, "a", 0)
    listed(written, 1)
    assert not found(written)
