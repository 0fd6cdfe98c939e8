"""What a leader makes of its followers' fetches: what is committed, and which ISR it asks for."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from barnabas.replication.leader import CommittedState, Fetched, LeaderState, Proposal

LAG_MS = 1000
ALL = {1: 10, 2: 20, 3: 30}


def committed(isr: Mapping[int, int] = ALL, partition_epoch: int = 5, minimum: int = 2) -> CommittedState:
    return CommittedState(partition_epoch, isr, minimum, (1, 2, 3))


def leading(isr: Mapping[int, int] = ALL, *, start: int = 0, watermark: int = 0, minimum: int = 2) -> LeaderState:
    return LeaderState(1, 10, 7, start, watermark, committed(isr, minimum=minimum), 0)


def fetched(leader: LeaderState, broker: int, end: int, now_ms: int = 0, *, epoch: int | None = None) -> bool:
    moved = leader.fetched(Fetched(broker, ALL[broker] if epoch is None else epoch, end, 0, now_ms))
    leader.check_invariants()
    return moved


def test_committed_is_what_every_member_has() -> None:
    leader = leading()
    assert not leader.written(10, 0)
    assert not fetched(leader, 2, 8)
    assert fetched(leader, 3, 6)
    assert leader.high_watermark == 6
    assert fetched(leader, 3, 9)
    assert leader.high_watermark == 8
    assert not fetched(leader, 3, 9)


def test_watermark_never_goes_back() -> None:
    leader = leading()
    leader.written(10, 0)
    fetched(leader, 2, 10)
    fetched(leader, 3, 10)
    assert not fetched(leader, 2, 4, epoch=21)
    assert leader.high_watermark == 10


def test_fetch_of_an_earlier_registration_or_of_a_stranger_proves_nothing() -> None:
    leader = leading({1: 10, 2: 21})
    leader.written(10, 0)
    assert fetched(leader, 2, 4, epoch=21)
    assert not fetched(leader, 2, 9, epoch=20)
    assert not leader.fetched(Fetched(4, 40, 9, 0, 0))
    assert leader.high_watermark == 4


def test_nothing_is_committed_below_the_minimum() -> None:
    leader = leading({1: 10})
    assert not leader.has_enough
    assert not leader.written(10, 0)
    fetched(leader, 2, 10)
    leader.propose({1: 10, 2: 20})
    assert not fetched(leader, 2, 10)
    assert leader.told(committed({1: 10, 2: 20}, 6))
    assert leader.high_watermark == 10


def test_replicas_are_added_without_a_new_state_and_what_was_proposed_stays() -> None:
    two, three = CommittedState(5, {1: 10}, 1, (1, 2)), CommittedState(5, {1: 10}, 1, (1, 2, 3))
    leader = LeaderState(1, 10, 7, 0, 0, two, 0)
    leader.written(10, 0)
    fetched(leader, 2, 10)
    proposal = leader.due_proposal(0, LAG_MS)
    assert proposal == Proposal(5, {1: 10, 2: 20})
    assert not leader.told(three)
    assert leader.is_sent(proposal)
    assert not leader.may_join(3)
    fetched(leader, 3, 10)
    assert leader.may_join(3)
    assert not leader.told(replace(two, partition_epoch=4)), "older news"
    assert leader.state == three
    leader.told(CommittedState(6, {1: 10, 2: 20}, 1, (1, 2, 3)))
    assert leader.due_proposal(0, LAG_MS) == Proposal(6, ALL)


def test_alone_it_commits_what_it_writes() -> None:
    leader = LeaderState(1, 10, 7, 0, 0, CommittedState(0, {1: 10}, 1, (1,)), 0)
    assert leader.written(3, 0)
    assert leader.high_watermark == 3
    assert leader.due_proposal(10**9, LAG_MS) is None


def test_new_leader_is_settled_when_its_watermark_reaches_its_epoch() -> None:
    leader = leading(start=10, watermark=4)
    assert not leader.is_settled
    fetched(leader, 2, 10)
    fetched(leader, 3, 9)
    assert not leader.is_settled
    fetched(leader, 3, 10)
    assert leader.is_settled


# -- joining ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("end", "may_join"), [(3, False), (4, False), (9, False), (10, True), (12, True)])
def test_follower_may_join_with_what_the_log_had_at_the_beginning(end: int, may_join: bool) -> None:
    leader = leading({1: 10, 2: 20}, start=10, watermark=4)
    leader.written(12, 0)
    fetched(leader, 3, end)
    assert leader.may_join(3) is may_join
    proposal = leader.due_proposal(0, LAG_MS)
    assert proposal == (Proposal(5, ALL) if may_join else None)


def test_member_cannot_join_and_nobody_unheard_of() -> None:
    leader = leading({1: 10, 2: 20})
    assert not leader.may_join(2)
    assert not leader.may_join(3)
    assert not leader.may_join(4)


def test_expansion_counts_from_the_moment_it_is_sent() -> None:
    leader = leading({1: 10, 2: 20})
    fetched(leader, 2, 0)
    fetched(leader, 3, 0)
    proposal = leader.due_proposal(0, LAG_MS)
    assert proposal is not None
    leader.written(5, 0)
    assert not fetched(leader, 2, 5)
    assert leader.maximal_isr == {1, 2, 3}
    assert fetched(leader, 3, 5)
    assert leader.due_proposal(0, LAG_MS) is None, "one at a time"


# -- leaving ---------------------------------------------------------------------------------------------------------


def test_follower_that_lags_is_to_leave_and_counts_until_that_is_written() -> None:
    leader = leading()
    leader.written(10, 0)
    fetched(leader, 2, 10, 100)
    fetched(leader, 3, 4, 100)
    assert leader.due_proposal(LAG_MS, LAG_MS) is None
    proposal = leader.due_proposal(LAG_MS + 1, LAG_MS)
    assert proposal == Proposal(5, {1: 10, 2: 20})
    assert leader.high_watermark == 4
    assert leader.told(committed({1: 10, 2: 20}, 6))
    assert leader.high_watermark == 10


def test_follower_that_keeps_pace_is_not_late_though_it_never_has_everything() -> None:
    """Each fetch has what the leader had at the fetch before."""
    leader = leading()
    for turn in range(1, 20):
        leader.written(turn * 10, 0)
        for broker in (2, 3):
            fetched(leader, broker, (turn - 1) * 10, turn * 500)
        assert leader.due_proposal(turn * 500, LAG_MS) is None


def test_follower_that_has_everything_is_not_late_however_long_nothing_comes() -> None:
    leader = leading()
    leader.written(10, 0)
    fetched(leader, 2, 10, 1)
    fetched(leader, 3, 10, 1)
    assert leader.due_proposal(10**9, LAG_MS) is None


# -- what became of a proposal ---------------------------------------------------------------------------------------


def proposing() -> tuple[LeaderState, Proposal]:
    """Broker 3 is proposed, and has nothing of what came since."""
    leader = leading({1: 10, 2: 20})
    fetched(leader, 3, 0)
    proposal = leader.due_proposal(0, LAG_MS)
    assert proposal is not None
    leader.written(5, 0)
    fetched(leader, 2, 5)
    assert leader.high_watermark == 0
    return leader, proposal


def test_refusal_of_the_only_copy_ends_it() -> None:
    leader, proposal = proposing()
    assert leader.refused(proposal)
    assert (leader.high_watermark, leader.maximal_isr) == (5, {1, 2})


def test_refusal_of_one_copy_of_several_does_not() -> None:
    leader, proposal = proposing()
    leader.sent_again(proposal)
    assert not leader.refused(proposal)
    assert (leader.high_watermark, leader.maximal_isr) == (0, {1, 2, 3})
    fence = leader.due_proposal(0, LAG_MS)
    assert fence == Proposal(5, {1: 10, 2: 20}), "the ISR as it is: what is written raises the partition epoch"
    assert leader.maximal_isr == {1, 2, 3}
    assert leader.told(committed({1: 10, 2: 20}, 6))
    assert (leader.high_watermark, leader.maximal_isr) == (5, {1, 2})
    leader.check_invariants()


def test_answer_to_another_proposal_changes_nothing() -> None:
    leader, proposal = proposing()
    other = replace(proposal, partition_epoch=4)
    leader.sent_again(other)
    assert not leader.refused(other)
    assert leader.has_proposal
    assert leader.refused(proposal)


def test_older_state_changes_nothing() -> None:
    leader, _ = proposing()
    assert not leader.told(committed({1: 10}, 5))
    assert not leader.told(committed({1: 10}, 4))
    assert leader.maximal_isr == {1, 2, 3}


def test_follower_that_is_no_replica_any_more_is_forgotten() -> None:
    leader, _ = proposing()
    leader.told(CommittedState(6, {1: 10, 2: 20}, 2, (1, 2)))
    assert set(leader.followers) == {2}
    assert not leader.may_join(3)
    leader.check_invariants()


def test_follower_whose_log_directory_failed_is_proposed_in_its_next_registration_only() -> None:
    leader = leading()
    leader.told(CommittedState(6, {1: 10, 2: 20}, 2, (1, 2, 3), {3: 30}))
    fetched(leader, 3, 0)
    assert not leader.may_join(3)
    assert leader.due_proposal(0, LAG_MS) is None
    fetched(leader, 3, 0, epoch=31)
    proposal = leader.due_proposal(0, LAG_MS)
    assert proposal is not None
    assert proposal.isr == {1: 10, 2: 20, 3: 31}
