"""What is healed can be read."""

from barnabas.sim.checkers.readable import check_readable
from tests.sim.checkers.written import Written


def found(written: Written) -> list[str]:
    return list(check_readable(written.history))


def test_unreadable_partition_is_found() -> None:
    written = Written("plain")
    written.happened("unreadable", "plain-0: no leader", to="director")
    assert found(written) == ["at 3.000 s, with everything healed, this could not be read: plain-0: no leader"]


def test_unreadable_group_is_found() -> None:
    written = Written("plain")
    written.commit(1)
    written.happened("unreadable", "group-1: no coordinator", to="director")
    assert len(found(written)) == 1


def test_damaged_partition_may_be_refused() -> None:
    written = Written("plain")
    written.commit(1)
    written.happened("flip", "disk-1/plain-0/00000000000000000000.log")
    written.happened("flip", "disk-1/__consumer_offsets-0/00000000000000000000.log")
    written.happened("unreadable", "plain-0: corrupt", to="director")
    written.happened("unreadable", "group-1: corrupt", to="director")
    assert not found(written)
