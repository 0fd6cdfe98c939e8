"""Replicas hold the same below the high watermark; one leads in each epoch; a cluster heals."""

from barnabas.sim.checkers.healing import check_healing
from barnabas.sim.checkers.leaders import check_leaders
from barnabas.sim.checkers.replicas import check_replicas
from barnabas.sim.histories.events import NotHealed
from tests.sim.checkers.written import COMPACTED, EXPIRING, PLACE, Written


def test_same_records_below_the_watermark_pass_whatever_is_above() -> None:
    written = Written("plain")
    written.history.final_watermarks[PLACE] = 1
    written.replica("broker-1", PLACE, (0, "a"), (1, "b"))
    written.replica("broker-2", PLACE, (0, "a"), (1, "c"))
    assert not list(check_replicas(written.history))


def test_different_records_are_found() -> None:
    written = Written("plain")
    written.history.final_watermarks[PLACE] = 2
    written.replica("broker-1", PLACE, (0, "a"), (1, "b"))
    written.replica("broker-2", PLACE, (0, "a"), (1, "c"))
    (problem,) = check_replicas(written.history)
    assert "offset 1 of plain-0, below the high watermark 2, is b'b' in epoch 1 on broker-1, and b'c'" in problem


def test_missing_records_are_found() -> None:
    written = Written("plain")
    written.history.final_watermarks[PLACE] = 2
    written.replica("broker-1", PLACE, (0, "a"), (1, "b"))
    written.replica("broker-2", PLACE, (0, "a"))
    (problem,) = check_replicas(written.history)
    assert problem == "broker-2 lacks offset 1 of plain-0, which is below the high watermark 2"


def test_each_replica_expires_and_compacts_by_itself() -> None:
    written = Written("expiring", "compacted")
    for place in (EXPIRING, COMPACTED):
        written.history.final_watermarks[place] = 3
        written.replica("broker-1", place, (0, "a"), (1, "b"), (2, "c"))
    written.replica("broker-2", EXPIRING, (2, "c"))
    written.replica("broker-3", EXPIRING)
    written.replica("broker-2", COMPACTED, (0, "a"), (2, "c"))
    assert not list(check_replicas(written.history))


def test_two_leaders_in_one_epoch_are_found() -> None:
    written = Written("plain")
    written.led("broker-1", PLACE, 1)
    written.led("broker-1", PLACE, 1)
    written.led("broker-2", PLACE, 2)
    assert not list(check_leaders(written.history))
    written.led("broker-2", PLACE, 1)
    (problem,) = check_leaders(written.history)
    assert "plain-0 has two leaders in epoch 1: broker-1 in its life 1 (3.000 s) and broker-2" in problem


def test_broker_that_leads_in_its_old_epoch_after_a_start_is_found() -> None:
    written = Written("plain")
    written.led("broker-1", PLACE, 1)
    written.led("broker-1", PLACE, 1, life=2)
    (problem,) = check_leaders(written.history)
    assert "broker-1 in its life 1 (3.000 s) and broker-1 in its life 2 (4.000 s)" in problem


def test_partition_that_does_not_heal_is_found() -> None:
    written = Written("plain")
    written.history.events.append(NotHealed(9.0, "director", PLACE, "nobody leads"))
    assert list(check_healing(written.history)) == ["plain-0 is not healed at 9.000 s: nobody leads"]
    written.happened("flip", "disk-1/plain-0/00000000000000000000.log")
    assert not list(check_healing(written.history))
