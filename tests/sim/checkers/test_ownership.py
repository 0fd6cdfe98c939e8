"""One owner for each partition and generation."""

from barnabas.sim.checkers.ownership import check_ownership
from tests.sim.checkers.written import FLUSHED, PLACE, Written


def found(written: Written) -> list[str]:
    return list(check_ownership(written.history))


def test_members_with_their_own_partitions_pass() -> None:
    written = Written("plain")
    written.owned("member-1", 1, PLACE)
    written.owned("member-2", 1, FLUSHED)
    written.owned("member-1", 2, FLUSHED)
    written.owned("member-2", 2, PLACE)
    assert not found(written)


def test_two_owners_are_found() -> None:
    written = Written("plain")
    written.owned("member-1", 1, PLACE)
    written.happened("kill")
    written.owned("member-2", 1, PLACE, FLUSHED)
    assert found(written) == [
        "plain-0 has two owners in generation 1 of group-1: member-1 (id of member-1, 3.000 s) and "
        "member-2 (id of member-2, 5.000 s)"
    ]


def test_restarted_member_gets_its_partitions_back() -> None:
    written = Written("plain")
    written.owned("member-1", 1, PLACE)
    written.happened("kill", to="member-1")
    written.owned("member-1", 1, PLACE)
    assert not found(written)


def test_generation_may_be_counted_again_after_a_power_loss() -> None:
    written = Written("plain")
    written.owned("member-1", 1, PLACE)
    written.power_loss()
    written.owned("member-2", 1, PLACE)
    assert not found(written)


def test_power_loss_long_before_explains_nothing() -> None:
    written = Written("plain")
    written.power_loss()
    written.at += 20.0
    written.owned("member-1", 1, PLACE)
    written.owned("member-2", 1, PLACE)
    assert len(found(written)) == 1


def test_damaged_log_of_the_groups_proves_nothing() -> None:
    written = Written("plain")
    written.happened("flip", "disk-1/__consumer_offsets-0/00000000000000000000.log")
    written.owned("member-1", 1, PLACE)
    written.owned("member-2", 1, PLACE)
    assert not found(written)
