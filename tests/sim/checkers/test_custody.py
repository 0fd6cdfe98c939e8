"""What was committed is lost only when every replica that must have it has lost it."""

from barnabas.sim.checkers.acked_records import check_acked_records
from barnabas.sim.checkers.custody import Custody
from tests.sim.checkers.written import FLUSHED, PLACE, Written


def cluster(*topics: str) -> Written:
    """Three brokers, registered in the epochs 11 to 13."""
    written = Written(*topics or ("plain",))
    for broker_id in (1, 2, 3):
        written.registered(broker_id, 10 + broker_id)
    return written


def lost(written: Written, since: float) -> float | None:
    return Custody(written.history).lost_at(PLACE, since, since)


def test_one_replica_that_has_lost_nothing_keeps_the_promise() -> None:
    written = cluster()
    written.state(PLACE, 1, 0, {1: 11, 2: 12, 3: 13})
    acked_at = written.at
    written.power_loss(to="broker-1")
    written.power_loss(to="broker-2")
    assert lost(written, acked_at) is None


def test_when_all_in_sync_have_lost_power_nothing_is_promised() -> None:
    written = cluster()
    written.state(PLACE, 1, 0, {1: 11, 2: 12})
    acked_at = written.at
    written.power_loss(to="broker-1")
    written.power_loss(to="broker-2")
    assert lost(written, acked_at) == written.at


def test_replica_that_has_left_still_has_what_was_committed_before() -> None:
    written = cluster()
    written.state(PLACE, 1, 0, {1: 11, 2: 12, 3: 13})
    acked_at = written.at
    written.state(PLACE, 1, 0, {1: 11, 2: 12})
    later = written.at
    written.power_loss(to="broker-1")
    written.power_loss(to="broker-2")
    assert lost(written, acked_at) is None
    assert lost(written, later) == written.at


def test_eligible_replica_has_what_was_committed() -> None:
    written = cluster()
    written.state(PLACE, 1, 0, {1: 11}, {2: 12})
    acked_at = written.at
    written.power_loss(to="broker-1")
    assert lost(written, acked_at) is None


def test_replica_that_joins_again_counts_again() -> None:
    written = cluster()
    written.state(PLACE, 1, 0, {1: 11, 2: 12})
    acked_at = written.at
    written.power_loss(to="broker-2")
    written.registered(2, 22)
    written.state(PLACE, 1, 0, {1: 11, 2: 22})
    written.power_loss(to="broker-1")
    assert lost(written, acked_at) is None


def test_replica_that_is_said_to_be_in_sync_in_the_registration_that_lost_does_not_count() -> None:
    written = cluster()
    written.state(PLACE, 1, 0, {1: 11, 2: 12})
    written.power_loss(to="broker-2")
    written.state(PLACE, 1, 1, {1: 11, 2: 12})
    acked_at = written.at
    written.power_loss(to="broker-1")
    assert lost(written, acked_at) == written.at


def test_synced_topic_loses_nothing_with_the_power() -> None:
    written = cluster("flushed")
    written.state(FLUSHED, 1, 0, {1: 11, 2: 12})
    acked_at = written.at
    for broker in ("broker-1", "broker-2"):
        written.power_loss(to=broker)
    assert Custody(written.history).lost_at(FLUSHED, acked_at, acked_at) is None
    for broker in ("broker-1", "broker-2"):
        written.happened("wipe", to=broker)
    assert Custody(written.history).lost_at(FLUSHED, acked_at, acked_at) == written.at


def test_record_acked_by_all_is_missed_though_brokers_have_lost_power() -> None:
    written = cluster()
    written.state(PLACE, 1, 0, {1: 11, 2: 12})
    written.stored(PLACE, "a", 0)
    written.power_loss(to="broker-1")
    written.final(PLACE)
    (problem,) = check_acked_records(written.history)
    assert "is lost: the log holds 0 to 0; no loss of power explains it" in problem


def test_record_acked_by_the_leader_alone_is_not_missed() -> None:
    written = cluster()
    written.state(PLACE, 1, 0, {1: 11, 2: 12})
    written.sent(PLACE, "a", acks=1)
    written.acked(PLACE, "a", 0)
    written.final(PLACE)
    assert not list(check_acked_records(written.history))
