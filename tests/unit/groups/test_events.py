"""What the state tells of rebalances, and the drawing of its states."""

from pathlib import Path

import pytest

from barnabas.groups.effects import (
    CAUSES_MAX,
    MEMBERS_MAX,
    Outcome,
    Reason,
    RebalanceCompleted,
    RebalanceStarted,
    StaticMemberReplaced,
)
from barnabas.groups.requests import LeavingMember
from barnabas.groups.transitions import ALLOWED, TRANSITIONS, GroupState, mermaid
from tests.support.group_shard import REBALANCE_MS, SESSION_MS, START_MS, PlayedShard, subscription

GROUPS_PAGE = Path(__file__).resolve().parents[3] / "docs" / "groups.md"


@pytest.fixture
def shard() -> PlayedShard:
    return PlayedShard()


def completed(shard: PlayedShard) -> RebalanceCompleted:
    """The last rebalance that ended."""
    return [event for event in shard.events if isinstance(event, RebalanceCompleted)][-1]


def started(shard: PlayedShard) -> RebalanceStarted:
    return [event for event in shard.events if isinstance(event, RebalanceStarted)][-1]


def test_first_rebalance_tells_who_joined_and_how_long_it_took(shard: PlayedShard) -> None:
    ids = [shard.joined(shard.send_join("g", reason="hello")).member_id for _ in range(2)]
    shard.send_join("g", ids[0], reason="hello")
    shard.now_ms += 5
    shard.send_join("g", ids[1])
    shard.advance(0)
    shard.now_ms += 7
    shard.sync_all("g", 1, ids[::-1])
    event = completed(shard)
    assert (event.outcome, event.generation_before, event.generation_after) == (Outcome.STABLE, 0, 1)
    assert (event.started_at_ms, event.join_ended_at_ms, event.completed_at_ms) == (
        START_MS,
        START_MS + 5,
        START_MS + 12,
    )
    assert [(cause.reason, cause.said) for cause in event.causes] == [
        (Reason.MEMBER_JOINED, "hello"),
        (Reason.MEMBER_JOINED, ""),
    ]
    assert [member.member_id for member in event.joined] == ids
    assert (event.members_before, event.members_after) == (0, 2)
    assert event.last_joined is not None
    assert event.last_joined.member_id == ids[1]
    assert event.last_synced is not None
    assert event.last_synced.member_id == ids[0]
    assert event.leader is not None
    assert (event.leader.member_id, event.protocol) == (ids[0], "range")


def test_leaving_is_told_with_the_members_own_reason(shard: PlayedShard) -> None:
    first, second = shard.stable_group("g", 2)
    shard.leave("g", LeavingMember(second, None, "consumer poll timeout has expired"))
    cause = started(shard).cause
    assert (cause.reason, cause.said) == (Reason.MEMBER_LEFT, "consumer poll timeout has expired")
    shard.send_join("g", first)
    shard.sync_all("g", 2, [first])
    event = completed(shard)
    assert [member.member_id for member in event.left] == [second]
    assert (event.members_before, event.members_after) == (2, 1)


def test_missed_heartbeat_is_told_with_the_time_of_the_last_one(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1)
    shard.advance(1_000)
    shard.heartbeat("g", 1, member)
    shard.advance(SESSION_MS)
    cause = started(shard).cause
    assert (cause.reason, cause.since_ms) == (Reason.HEARTBEAT_MISSED, START_MS + 1_000)
    assert completed(shard).outcome is Outcome.EMPTY


def test_leader_and_changed_metadata_are_told_apart(shard: PlayedShard) -> None:
    leader, follower = shard.stable_group("g", 2)
    shard.send_join("g", leader, reason="partitions changed")
    assert (started(shard).cause.reason, started(shard).cause.said) == (Reason.LEADER_REJOINED, "partitions changed")
    shard.send_join("g", follower)
    shard.sync_all("g", 2, [leader, follower])
    shard.send_join("g", follower, protocols=(("range", subscription("bills")),))
    assert started(shard).cause.reason is Reason.METADATA_CHANGED


def test_interrupted_rebalance_is_told_as_such(shard: PlayedShard) -> None:
    shard.new_member("g")
    shard.finish_initial_delay()
    shard.new_member("g")
    assert completed(shard).outcome is Outcome.INTERRUPTED


def test_members_that_did_not_rejoin_are_told(shard: PlayedShard) -> None:
    first, second = shard.stable_group("g", 2, session_ms=100_000)
    shard.send_join("g", first, session_ms=100_000)
    shard.advance(REBALANCE_MS)
    shard.sync_all("g", 2, [first])
    causes = completed(shard).causes
    assert [cause.reason for cause in causes] == [Reason.LEADER_REJOINED, Reason.JOIN_MISSED]
    assert causes[1].member is not None
    assert causes[1].member.member_id == second


def test_static_replacement_without_rebalance_is_told(shard: PlayedShard) -> None:
    token = shard.send_join("g", instance_id="one")
    shard.finish_initial_delay()
    old_id = shard.joined(token).member_id
    shard.send_sync("g", 1, old_id, instance_id="one")
    new_id = shard.joined(shard.send_join("g", instance_id="one")).member_id
    event = shard.events[-1]
    assert isinstance(event, StaticMemberReplaced)
    assert (event.instance_id, event.old.member_id, event.new.member_id) == ("one", old_id, new_id)


def test_account_of_many_members_is_bounded(shard: PlayedShard) -> None:
    ids = shard.stable_group("g", 100)
    event = completed(shard)
    assert (len(event.causes), event.causes_left_out) == (CAUSES_MAX, 100 - CAUSES_MAX)
    assert (len(event.joined), event.members_after) == (MEMBERS_MAX, len(ids))


# --- the table --------------------------------------------------------------------------------------------


def test_every_state_is_reached_and_only_dead_is_final() -> None:
    targets = {transition.target for transition in TRANSITIONS}
    sources = {transition.source for transition in TRANSITIONS}
    assert targets == set(GroupState)
    assert set(GroupState) - sources == {GroupState.DEAD}
    assert len(ALLOWED) == len(TRANSITIONS)


def test_drawing_in_the_docs_is_the_table() -> None:
    page = GROUPS_PAGE.read_text()
    drawing = page.partition("```mermaid\n")[2].partition("\n```")[0]
    assert drawing == mermaid(), "write what `transitions.mermaid()` gives between the fences in docs/groups.md"
