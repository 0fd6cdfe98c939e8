"""Who is in sync, eligible and elected, by what is registered; and what leaders may ask for."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from barnabas.controller.in_sync import (
    Alteration,
    LogEnd,
    altered,
    elected,
    led_by_anybody,
    led_by_longest,
    led_by_preferred,
    next_state,
    with_minimum,
    with_offline_replica,
    without_broker,
)
from barnabas.metadata.image import Partition, RegisteredBroker
from barnabas.metadata.znodes import NO_LEADER, PartitionState
from barnabas.wire.errors import ErrorCode

EPOCH = 7
ALL = {1: 10, 2: 20, 3: 30}


def registered(
    epochs: Mapping[int, int] = ALL, intact: Mapping[int, tuple[int, int]] | None = None
) -> dict[int, RegisteredBroker]:
    """Brokers with their epochs; those of `intact` with (intact since, previous epoch)."""
    pasts = intact or {}
    return {
        one: RegisteredBroker(one, epoch, (), intact_since=pasts[one][0], previous_epoch=pasts[one][1])
        if one in pasts
        else RegisteredBroker(one, epoch, ())
        for one, epoch in epochs.items()
    }


def partition(
    isr: Mapping[int, int] = ALL,
    elr: Mapping[int, int] | None = None,
    *,
    leader: int = 1,
    minimum: int = 2,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> Partition:
    return Partition(
        0,
        replicas,
        leader=leader,
        leader_epoch=3,
        isr=tuple(isr),
        partition_epoch=5,
        isr_epochs=tuple(isr.values()),
        elr=tuple(elr or ()),
        elr_epochs=tuple((elr or {}).values()),
        min_insync_replicas=minimum,
    )


def state(
    leader: int,
    leader_epoch: int,
    isr: Mapping[int, int],
    elr: Mapping[int, int] | None = None,
    *,
    minimum: int = 2,
    is_recovering: bool = False,
) -> PartitionState:
    return PartitionState(
        leader,
        leader_epoch,
        tuple(isr),
        EPOCH,
        is_recovering,
        tuple(isr.values()),
        tuple(elr or ()),
        tuple((elr or {}).values()),
        minimum,
    )


# -- registrations come and go ---------------------------------------------------------------------------------------


def test_nothing_is_written_while_everybody_is_there() -> None:
    assert next_state(partition(), registered(), EPOCH) is None


def test_dead_follower_leaves_and_the_leader_stays_in_its_epoch() -> None:
    assert next_state(partition(), registered({1: 10, 2: 20}), EPOCH) == state(1, 3, {1: 10, 2: 20})


def test_next_replica_in_the_order_of_assignment_leads() -> None:
    assert next_state(partition(), registered({2: 20, 3: 30}), EPOCH) == state(2, 4, {2: 20, 3: 30})
    other = partition(replicas=(1, 3, 2))
    assert next_state(other, registered({2: 20, 3: 30}), EPOCH) == state(3, 4, {3: 30, 2: 20})


def test_who_left_below_the_minimum_is_eligible() -> None:
    assert next_state(partition(), registered({1: 10}), EPOCH) == state(1, 3, {1: 10}, {2: 20, 3: 30})


def test_last_one_stays_eligible_and_leads_again_when_it_is_back() -> None:
    alone = partition({1: 10}, {2: 20})
    offline = next_state(alone, registered({3: 30}), EPOCH)
    assert offline == state(NO_LEADER, 4, {}, {1: 10, 2: 20})
    waiting = alone.with_state(offline, 6)
    assert next_state(waiting, registered({3: 30}), EPOCH) is None
    back = registered({1: 11, 3: 30}, intact={1: (10, 10)})
    assert next_state(waiting, back, EPOCH) == state(1, 5, {1: 11}, {2: 20})


def test_who_is_back_and_intact_stays_in_its_new_registration() -> None:
    intact = registered({**ALL, 2: 25}, intact={2: (15, 22)})
    assert next_state(partition(), intact, EPOCH) == state(1, 3, {1: 10, 2: 25, 3: 30})


@pytest.mark.parametrize("past", [(21, 24), (15, 19)], ids=["lost before", "a registration between that it forgot"])
def test_who_is_back_and_proves_nothing_is_out(past: tuple[int, int]) -> None:
    lost = registered({**ALL, 2: 25}, intact={2: past})
    assert next_state(partition(), lost, EPOCH) == state(1, 3, {1: 10, 3: 30})


def test_eligible_who_proves_nothing_is_out() -> None:
    known = partition({1: 10}, {2: 20, 3: 30})
    lost = registered({1: 10, 2: 25})
    assert next_state(known, lost, EPOCH) == state(1, 3, {1: 10}, {3: 30})


def test_leader_that_registered_again_leads_in_a_later_epoch() -> None:
    back = registered({**ALL, 1: 11}, intact={1: (10, 10)})
    assert next_state(partition(), back, EPOCH) == state(1, 4, {1: 11, 2: 20, 3: 30})
    lost = registered({**ALL, 1: 11})
    assert next_state(partition(), lost, EPOCH) == state(2, 4, {2: 20, 3: 30})


def test_eligible_leads_when_nobody_is_in_sync() -> None:
    known = partition({1: 10}, {2: 20, 3: 30})
    assert next_state(known, registered({2: 20, 3: 30}), EPOCH) == state(2, 4, {2: 20}, {1: 10, 3: 30})


def test_eligible_that_is_enough_leads_without_others_that_are_eligible() -> None:
    """It acknowledges alone at once: who comes back later may lack what it has."""
    known = partition({}, {1: 10, 2: 20}, leader=NO_LEADER, minimum=1)
    assert next_state(known, registered({1: 10}), EPOCH) == state(1, 4, {1: 10}, minimum=1)


# -- nobody is left --------------------------------------------------------------------------------------------------

LOST = partition({1: 10, 2: 20})
BACK = registered({1: 11, 2: 21, 3: 30})
ENDS = {1: LogEnd(11, 3, 50), 2: LogEnd(21, 3, 80), 3: LogEnd(30, 3, 90)}


def test_all_assigned_replicas_are_asked_and_the_longest_log_leads() -> None:
    """Two in sync lost power, and the third, which had left, has most."""
    election = elected(LOST, BACK)
    assert (election.leader, election.must_ask) == (NO_LEADER, True)
    for missing in ENDS:
        some = {one: end for one, end in ENDS.items() if one != missing}
        assert elected(LOST, BACK, ends=some).must_ask
    election = elected(LOST, BACK, ends=ENDS)
    assert (election.leader, election.is_unclean, election.must_ask) == (3, True, False)
    assert next_state(LOST, BACK, EPOCH, ends=ENDS) == state(3, 4, {3: 30}, is_recovering=True)


def test_later_epoch_counts_more_than_a_longer_log() -> None:
    assert elected(LOST, BACK, ends={**ENDS, 1: LogEnd(11, 4, 5)}).leader == 1


def test_answer_of_an_earlier_registration_does_not_count() -> None:
    assert elected(LOST, BACK, ends={**ENDS, 3: LogEnd(29, 3, 90)}).must_ask


def test_setting_allows_an_election_of_anybody() -> None:
    election = elected(LOST, BACK, is_unclean_allowed=True)
    assert (election.leader, election.is_unclean) == (1, True)


def test_only_replica_leads_whatever_it_lost() -> None:
    alone = partition({1: 10}, replicas=(1,), minimum=1)
    lost = registered({1: 11})
    assert next_state(alone, lost, EPOCH) == state(1, 4, {1: 11}, minimum=1)
    unknown = Partition(0, (1,), leader=1, leader_epoch=3, isr=(1,), partition_epoch=5)
    written = next_state(unknown, lost, EPOCH)
    assert written == PartitionState(1, 4, (1,), EPOCH, isr_epochs=(11,))


def test_partition_that_is_lost_has_nobody_to_ask() -> None:
    """A rebuilt topic may lack all replicas of a partition."""
    lost = Partition(0, (), leader=NO_LEADER, leader_epoch=0, partition_epoch=5, min_insync_replicas=2)
    assert not elected(lost, registered()).must_ask
    assert next_state(lost, registered(), EPOCH) is None


# -- elections that somebody asks for ---------------------------------------------------------------------------------


def test_preferred_replica_leads_if_it_is_in_sync_and_registered() -> None:
    led = partition(leader=2)
    assert led_by_preferred(led, registered(), EPOCH) == state(1, 4, ALL)
    assert led_by_preferred(led, registered({2: 20, 3: 30}), EPOCH) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert led_by_preferred(led, registered({**ALL, 1: 11}), EPOCH) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    lagging = partition({2: 20, 3: 30}, leader=2)
    assert led_by_preferred(lagging, registered(), EPOCH) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert led_by_preferred(partition(), registered(), EPOCH) is ErrorCode.ELECTION_NOT_NEEDED


def test_longest_log_leads_only_when_all_replicas_have_told_and_nobody_leads() -> None:
    offline = partition({}, leader=NO_LEADER)
    assert led_by_longest(offline, BACK, EPOCH, ends=ENDS) == state(3, 4, {3: 30}, is_recovering=True)
    some = {one: ENDS[one] for one in (1, 3)}
    assert led_by_longest(offline, BACK, EPOCH, ends=some) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert led_by_longest(partition(), registered(), EPOCH, ends=ENDS) is ErrorCode.ELECTION_NOT_NEEDED


def test_anybody_leads_only_where_nobody_does() -> None:
    assert led_by_anybody(partition(), registered(), EPOCH) is ErrorCode.ELECTION_NOT_NEEDED
    offline = partition({}, {1: 10}, leader=NO_LEADER)
    assert led_by_anybody(offline, registered({3: 30}), EPOCH) == state(3, 4, {3: 30}, is_recovering=True)
    assert led_by_anybody(offline, registered({1: 10, 3: 30}), EPOCH) == state(1, 4, {1: 10})
    assert led_by_anybody(offline, registered({}), EPOCH) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


# -- brokers that stop -------------------------------------------------------------------------------------------------


def test_broker_that_stops_leaves_the_isr_and_another_one_in_sync_leads() -> None:
    assert without_broker(partition(), 1, registered(), ALL, EPOCH) == state(2, 4, {2: 20, 3: 30})
    assert without_broker(partition(), 1, registered(), {1, 3}, EPOCH) == state(3, 4, {2: 20, 3: 30})
    assert without_broker(partition(), 3, registered(), ALL, EPOCH) == state(1, 3, {1: 10, 2: 20})
    small = partition({1: 10, 2: 20})
    assert without_broker(small, 2, registered(), ALL, EPOCH) == state(1, 3, {1: 10}, {2: 20})


def test_partition_that_nobody_else_could_lead_stays_with_the_broker_that_stops() -> None:
    assert without_broker(partition({1: 10}, {2: 20}), 1, registered(), ALL, EPOCH) is None
    assert without_broker(partition(), 1, registered(), {1}, EPOCH) is None
    assert without_broker(partition({1: 10, 2: 20}), 3, registered(), ALL, EPOCH) is None
    offline = partition({}, {1: 10}, leader=NO_LEADER)
    assert without_broker(offline, 1, registered(), ALL, EPOCH) is None


# -- what leaders ask for --------------------------------------------------------------------------------------------


def ask(isr: Mapping[int, int], **changes: int) -> Alteration:
    fields = {"leader": 1, "leader_broker_epoch": 10, "leader_epoch": 3, "partition_epoch": 5, **changes}
    return Alteration(isr=isr, **fields)


def test_shrink_and_expansion_are_written() -> None:
    assert altered(partition(), ask({1: 10, 2: 20}), registered(), EPOCH) == state(1, 3, {1: 10, 2: 20})
    small = partition({1: 10}, {2: 20})
    assert altered(small, ask({1: 10, 3: 30}), registered(), EPOCH) == state(1, 3, {1: 10, 3: 30})


def test_shrink_below_the_minimum_makes_eligible() -> None:
    small = partition({1: 10, 2: 20})
    assert altered(small, ask({1: 10}), registered(), EPOCH) == state(1, 3, {1: 10}, {2: 20})


def test_isr_as_it_is_is_written_too() -> None:
    assert altered(partition(), ask(ALL), registered(), EPOCH) == state(1, 3, ALL)


@pytest.mark.parametrize(
    ("alteration", "code"),
    [
        (ask(ALL, leader_epoch=2), ErrorCode.FENCED_LEADER_EPOCH),
        (ask(ALL, leader_epoch=4), ErrorCode.NOT_CONTROLLER),
        (ask(ALL, partition_epoch=4), ErrorCode.INVALID_UPDATE_VERSION),
        (ask(ALL, partition_epoch=6), ErrorCode.NOT_CONTROLLER),
        (ask(ALL, leader=2), ErrorCode.INVALID_REQUEST),
        (ask({2: 20}), ErrorCode.INVALID_REQUEST),
        (ask(ALL, leader_broker_epoch=9), ErrorCode.STALE_BROKER_EPOCH),
        (ask({1: 10, 3: 29}), ErrorCode.INELIGIBLE_REPLICA),
        (ask({1: 10, 4: 40}), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_is_refused(alteration: Alteration, code: ErrorCode) -> None:
    known = registered({**ALL, 4: 40})
    assert altered(partition({1: 10, 2: 20}), alteration, known, EPOCH) is code


def test_member_that_is_added_must_be_registered() -> None:
    assert altered(partition({1: 10}), ask({1: 10, 2: 20}), registered({1: 10}), EPOCH) is ErrorCode.INELIGIBLE_REPLICA


# -- the minimum -----------------------------------------------------------------------------------------------------


def test_lower_minimum_empties_the_eligible_and_a_higher_one_does_not() -> None:
    known = partition({1: 10}, {2: 20})
    assert with_minimum(known, 1, EPOCH) == state(1, 3, {1: 10}, minimum=1)
    assert with_minimum(known, 3, EPOCH) == state(1, 3, {1: 10}, {2: 20}, minimum=3)
    assert with_minimum(known, 2, EPOCH) is None


def test_minimum_is_at_most_the_number_of_replicas() -> None:
    alone = partition({1: 10}, minimum=2)._replace(replicas=(1,))
    bounded = with_minimum(alone, 2, EPOCH)
    assert bounded == state(1, 3, {1: 10}, minimum=1)
    assert with_minimum(alone.with_state(bounded, 6), 3, EPOCH) is None


def growing(isr: dict[int, int], *, minimum: int) -> Partition:
    """One replica there was, and two are being added."""
    return partition(isr, minimum=minimum)._replace(adding=(2, 3))


def test_replica_that_is_added_counts_for_the_minimum_once_it_is_in_sync() -> None:
    assert with_minimum(growing({1: 10}, minimum=1), 2, EPOCH) is None
    assert with_minimum(growing({1: 10, 2: 20}, minimum=1), 3, EPOCH) == state(1, 3, {1: 10, 2: 20}, minimum=2)
    assert with_minimum(growing(ALL, minimum=2), 3, EPOCH) == state(1, 3, ALL, minimum=3)


def test_minimum_stays_when_a_replica_that_is_added_leaves_again() -> None:
    assert with_minimum(growing({1: 10}, minimum=2), 2, EPOCH) is None
    assert with_minimum(growing({1: 10}, minimum=2), 1, EPOCH) == state(1, 3, {1: 10}, minimum=1)


def test_lower_minimum_keeps_the_eligible_while_nobody_is_in_sync() -> None:
    known = partition({}, {1: 10, 2: 20}, leader=NO_LEADER)
    lower = with_minimum(known, 1, EPOCH)
    assert lower == state(NO_LEADER, 3, {}, {1: 10, 2: 20}, minimum=1)
    waiting = partition({}, {1: 10, 2: 20}, leader=NO_LEADER, minimum=1)
    assert next_state(waiting, registered({2: 20}), EPOCH) == state(2, 4, {2: 20}, minimum=1)


# -- log directories that have failed ------------------------------------------------------------------------------


def offline(one: Partition, *brokers: int, epochs: Mapping[int, int] = ALL) -> Partition:
    return one._replace(offline=brokers, offline_epochs=tuple(epochs[broker] for broker in brokers))


def test_leader_whose_directory_fails_is_followed_by_another_in_sync() -> None:
    written = with_offline_replica(partition(), 1, registered(), EPOCH)
    assert written == replace(state(2, 4, {2: 20, 3: 30}), offline=(1,), offline_epochs=(10,))


def test_follower_whose_directory_fails_leaves_those_in_sync_and_the_leader_stays() -> None:
    written = with_offline_replica(partition(), 3, registered(), EPOCH)
    assert written == replace(state(1, 3, {1: 10, 2: 20}), offline=(3,), offline_epochs=(30,))


def test_failed_replica_is_not_eligible_though_too_few_are_left_in_sync() -> None:
    """It is not intact: rule 4."""
    written = with_offline_replica(partition({1: 10, 2: 20}), 1, registered(), EPOCH)
    assert written == replace(state(2, 4, {2: 20}), offline=(1,), offline_epochs=(10,))
    written = with_offline_replica(partition({1: 10}, {2: 20, 3: 30}), 2, registered(), EPOCH)
    assert written == replace(state(1, 3, {1: 10}, {3: 30}), offline=(2,), offline_epochs=(20,))


def test_failed_replica_that_was_neither_leader_nor_in_sync_is_recorded_all_the_same() -> None:
    written = with_offline_replica(partition({1: 10, 2: 20}), 3, registered(), EPOCH)
    assert written == replace(state(1, 3, {1: 10, 2: 20}), offline=(3,), offline_epochs=(30,))


@pytest.mark.parametrize("replicas", [(1,), (1, 2, 3)])
def test_failed_replica_that_alone_was_in_sync_leaves_the_partition_offline(replicas: tuple[int, ...]) -> None:
    one = partition({1: 10}, minimum=1, replicas=replicas)
    written = with_offline_replica(one, 1, registered(), EPOCH)
    assert written == replace(state(NO_LEADER, 4, {}, minimum=1), offline=(1,), offline_epochs=(10,))
    assert written is not None
    after = one.with_state(written, 6)
    election = elected(after, registered())
    assert (election.leader, election.must_ask) == (NO_LEADER, False), "its log cannot be asked"
    assert next_state(after, registered(), EPOCH + 1) is None, "another controller leaves it so"
    ends = {1: LogEnd(10, 3, 100), 2: LogEnd(20, 3, 90), 3: LogEnd(30, 3, 80)}
    assert elected(after, registered(), ends=ends).leader == NO_LEADER


def test_unclean_election_passes_over_a_failed_replica() -> None:
    one = partition({1: 10}, minimum=1)
    written = with_offline_replica(one, 1, registered(), EPOCH, is_unclean_allowed=True)
    assert written is not None
    assert (written.leader, written.isr, written.is_recovering) == (2, (2,), True)
    nobody = offline(partition({}, leader=NO_LEADER), 1, 2, 3)
    assert led_by_anybody(nobody, registered(), EPOCH) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_failed_replica_is_a_candidate_again_when_its_broker_has_registered_again() -> None:
    again = registered({**ALL, 1: 11})
    single = offline(partition({}, leader=NO_LEADER, minimum=1, replicas=(1,)), 1)
    assert next_state(single, again, EPOCH) == state(1, 4, {1: 11}, minimum=1)
    one = offline(partition({}, leader=NO_LEADER), 1)
    assert elected(one, again).must_ask
    ends = {1: LogEnd(11, -1, 0), 2: LogEnd(20, 3, 90), 3: LogEnd(30, 3, 80)}
    assert elected(one, again, ends=ends).leader == 2


def test_report_that_the_state_has_or_that_means_no_replica_changes_nothing() -> None:
    one = offline(partition({2: 20, 3: 30}, leader=2), 1)
    assert with_offline_replica(one, 1, registered(), EPOCH) is None
    assert with_offline_replica(one, 4, registered({**ALL, 4: 40}), EPOCH) is None
    assert with_offline_replica(one, 3, registered({1: 10, 2: 20}), EPOCH) is None


def test_second_failed_replica_is_recorded_beside_the_first() -> None:
    one = offline(partition({2: 20, 3: 30}, leader=2), 1)
    written = with_offline_replica(one, 2, registered(), EPOCH)
    assert written == replace(state(3, 4, {3: 30}), offline=(1, 2), offline_epochs=(10, 20))


def test_failed_replica_may_join_in_its_next_registration_only() -> None:
    one = offline(partition({2: 20, 3: 30}, leader=2), 1)
    asked = Alteration(2, 20, 3, 5, {1: 10, 2: 20, 3: 30})
    assert altered(one, asked, registered(), EPOCH) is ErrorCode.INELIGIBLE_REPLICA
    again = Alteration(2, 20, 3, 5, {1: 11, 2: 20, 3: 30})
    assert altered(one, again, registered({**ALL, 1: 11}), EPOCH) == state(2, 3, {1: 11, 2: 20, 3: 30})


def test_failed_replica_does_not_become_preferred_leader() -> None:
    one = offline(partition({2: 20, 3: 30}, leader=2), 1)
    assert led_by_preferred(one, registered(), EPOCH) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
