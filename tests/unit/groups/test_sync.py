"""SyncGroup, Heartbeat and LeaveGroup, the timers between them, and what a restart keeps."""

import pytest

from barnabas.groups.requests import LeavingMember
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode
from tests.support.group_shard import REBALANCE_MS, SESSION_MS, PlayedShard


@pytest.fixture
def shard() -> PlayedShard:
    return PlayedShard()


def completing_group(shard: PlayedShard, members: int, **options: int) -> list[str]:
    """A group that waits for its leader's assignment."""
    ids = [shard.joined(shard.send_join("g", **options)).member_id for _ in range(members)]
    for member_id in ids:
        shard.send_join("g", member_id, **options)
    shard.finish_initial_delay()
    assert shard.state_of("g") is GroupState.COMPLETING_REBALANCE
    return ids


# --- sync -------------------------------------------------------------------------------------------------


def test_followers_wait_for_the_leaders_assignment(shard: PlayedShard) -> None:
    leader, follower = completing_group(shard, 2)
    waiting = shard.send_sync("g", 1, follower)
    assert waiting not in shard.replies
    token = shard.send_sync("g", 1, leader, {leader: b"a", follower: b"b"})
    assert (shard.synced(token).assignment, shard.synced(waiting).assignment) == (b"a", b"b")
    assert (shard.synced(token).protocol_type, shard.synced(token).protocol) == ("consumer", "range")
    assert shard.state_of("g") is GroupState.STABLE


def test_assignment_is_given_only_when_it_is_in_the_log(shard: PlayedShard) -> None:
    (leader,) = completing_group(shard, 1)
    shard.holds_appends = True
    token = shard.send_sync("g", 1, leader, {leader: b"a"})
    assert token not in shard.replies
    assert shard.state_of("g") is GroupState.COMPLETING_REBALANCE
    shard.commit_appended()
    assert shard.synced(token).assignment == b"a"


def test_member_without_assignment_gets_an_empty_one(shard: PlayedShard) -> None:
    leader, follower = completing_group(shard, 2)
    waiting = shard.send_sync("g", 1, follower)
    shard.send_sync("g", 1, leader, {leader: b"a", "stranger": b"x"})
    assert shard.synced(waiting).assignment == b""


def test_sync_of_a_stable_group_gives_the_assignment_again(shard: PlayedShard) -> None:
    _, follower = shard.stable_group("g", 2)
    assert shard.synced(shard.send_sync("g", 1, follower)).assignment == follower.encode()


def test_sync_while_members_join_is_told_to_join(shard: PlayedShard) -> None:
    _, follower = shard.stable_group("g", 2)
    shard.new_member("g")
    assert shard.synced(shard.send_sync("g", 1, follower)).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("generation", "member", "protocol_type", "protocol", "error"),
    [
        (2, None, "consumer", "range", ErrorCode.ILLEGAL_GENERATION),
        (0, None, "consumer", "range", ErrorCode.ILLEGAL_GENERATION),
        (1, "stranger", "consumer", "range", ErrorCode.UNKNOWN_MEMBER_ID),
        (1, None, "connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (1, None, "consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (1, None, None, None, ErrorCode.NONE),
    ],
)
def test_sync_is_checked(
    shard: PlayedShard,
    generation: int,
    member: str | None,
    protocol_type: str | None,
    protocol: str | None,
    error: ErrorCode,
) -> None:
    (known,) = shard.stable_group("g", 1)
    token = shard.send_sync("g", generation, member or known, protocol_type=protocol_type, protocol=protocol)
    assert shard.synced(token).error is error


def test_sync_of_unknown_or_empty_group_is_of_an_unknown_member(shard: PlayedShard) -> None:
    assert shard.synced(shard.send_sync("g", 1, "m")).error is ErrorCode.UNKNOWN_MEMBER_ID
    shard.commit("g", {("orders", 0): 1})
    assert shard.synced(shard.send_sync("g", 0, "")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_tells_waiting_syncs_to_join(shard: PlayedShard) -> None:
    _, follower = completing_group(shard, 2)
    waiting = shard.send_sync("g", 1, follower)
    shard.new_member("g")
    assert shard.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_second_sync_of_a_waiting_member_replaces_the_first(shard: PlayedShard) -> None:
    _, follower = completing_group(shard, 2)
    earlier = shard.send_sync("g", 1, follower)
    later = shard.send_sync("g", 1, follower)
    assert shard.synced(earlier).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert later not in shard.replies


def test_second_sync_of_the_leader_writes_its_assignment_once(shard: PlayedShard) -> None:
    (leader,) = completing_group(shard, 1)
    shard.holds_appends = True
    shard.send_sync("g", 1, leader, {leader: b"a"})
    later = shard.send_sync("g", 1, leader, {leader: b"b"})
    assert len(shard.appended) == 1
    shard.commit_appended()
    assert shard.synced(later).assignment == b"a"


def test_members_that_do_not_sync_in_time_are_removed(shard: PlayedShard) -> None:
    leader, follower, silent = completing_group(shard, 3, session_ms=100_000)
    shard.send_sync("g", 1, follower)
    shard.send_sync("g", 1, leader, {})
    shard.advance(REBALANCE_MS)
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE
    assert shard.heartbeat("g", 1, silent) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("g", 1, follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_refused_assignment_is_told_and_the_group_rebalances(shard: PlayedShard) -> None:
    leader, follower = completing_group(shard, 2)
    shard.holds_appends = True
    tokens = [shard.send_sync("g", 1, follower), shard.send_sync("g", 1, leader, {})]
    shard.refuse_appended(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert {shard.synced(token).error for token in tokens} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE
    assert not shard.appended


def test_assignment_committed_after_the_next_rebalance_began_is_not_given(shard: PlayedShard) -> None:
    leader, follower = completing_group(shard, 2)
    shard.holds_appends = True
    waiting = shard.send_sync("g", 1, leader, {leader: b"a"})
    shard.leave("g", LeavingMember(follower, None))
    shard.commit_appended()
    assert shard.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE


# --- heartbeats and sessions ------------------------------------------------------------------------------


def test_heartbeat_is_checked(shard: PlayedShard) -> None:
    assert shard.heartbeat("g", 1, "m") is ErrorCode.UNKNOWN_MEMBER_ID
    (member,) = shard.stable_group("g", 1)
    assert shard.heartbeat("g", 1, member) is ErrorCode.NONE
    assert shard.heartbeat("g", 2, member) is ErrorCode.ILLEGAL_GENERATION
    assert shard.heartbeat("g", 1, "stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("g", 1, member, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_of_a_completing_group_is_fine(shard: PlayedShard) -> None:
    (member,) = completing_group(shard, 1)
    assert shard.heartbeat("g", 1, member) is ErrorCode.NONE


def test_heartbeat_of_pending_member_is_of_an_unknown_one(shard: PlayedShard) -> None:
    pending = shard.joined(shard.send_join("g")).member_id
    assert shard.heartbeat("g", 0, pending) is ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_member_is_removed_exactly_after_its_session(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1)
    shard.advance(4_000)
    shard.heartbeat("g", 1, member)
    shard.advance(SESSION_MS - 1)
    assert shard.state_of("g") is GroupState.STABLE
    shard.advance(1)
    assert shard.state_of("g") is GroupState.EMPTY


def test_commit_counts_as_a_sign_of_life(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1)
    shard.advance(SESSION_MS - 1)
    shard.commit("g", {("orders", 0): 1}, generation=1, member_id=member)
    shard.advance(SESSION_MS - 1)
    assert shard.state_of("g") is GroupState.STABLE


def test_shorter_session_timeout_counts_from_the_next_join(shard: PlayedShard) -> None:
    leader, _ = shard.stable_group("g", 2, session_ms=60_000)
    shard.send_join("g", leader, session_ms=6_000)
    shard.advance(REBALANCE_MS)  # the other one is removed, and the leader's generation begins
    assert shard.state_of("g") is GroupState.COMPLETING_REBALANCE
    shard.advance(6_000)
    assert shard.state_of("g") is GroupState.EMPTY


def test_member_that_waits_for_a_join_does_not_expire(shard: PlayedShard) -> None:
    first, second = shard.stable_group("g", 2)
    token = shard.send_join("g", first)
    for _ in range(5):
        shard.advance(SESSION_MS - 1)
        shard.heartbeat("g", 1, second)
    assert token not in shard.replies
    assert shard.joined(shard.send_join("g", second)).generation == 2


def test_new_member_that_waits_for_its_first_join_expires_after_five_minutes(shard: PlayedShard) -> None:
    (first,) = shard.stable_group("g", 1, rebalance_ms=1_000_000)
    _, token = shard.new_member("g", rebalance_ms=1_000_000)
    for _ in range(50):
        shard.advance(6_000)
        shard.heartbeat("g", 1, first)
    assert shard.joined(token).error is ErrorCode.UNKNOWN_MEMBER_ID


# --- leave ------------------------------------------------------------------------------------------------


def test_last_member_to_leave_empties_the_group_durably(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1)
    assert shard.leave("g", LeavingMember(member, None, "bye")) == [ErrorCode.NONE]
    assert shard.state_of("g") is GroupState.EMPTY
    shard.restart()
    assert shard.state_of("g") is GroupState.EMPTY
    _, token = shard.new_member("g")
    shard.finish_initial_delay()
    assert shard.joined(token).generation == 3, "each change of the members is a generation"


def test_many_leave_in_one_request_with_an_answer_each(shard: PlayedShard) -> None:
    first, second, third = shard.stable_group("g", 3)
    errors = shard.leave("g", LeavingMember(first, None), LeavingMember("stranger", None), LeavingMember(second, None))
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert shard.joined(shard.send_join("g", third)).leader == third


def test_administrator_removes_static_member_by_instance_id_alone(shard: PlayedShard) -> None:
    token = shard.send_join("g", instance_id="one")
    shard.finish_initial_delay()
    assert shard.leave("g", LeavingMember("", "one"), LeavingMember("", "two"), LeavingMember("", None)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert shard.joined(token).error is ErrorCode.NONE
    assert shard.state_of("g") is GroupState.EMPTY


def test_leaving_of_unknown_group_is_each_members_error(shard: PlayedShard) -> None:
    assert shard.leave("g", LeavingMember("m", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_waiting_requests_of_a_leaving_member_are_answered(shard: PlayedShard) -> None:
    _, follower = completing_group(shard, 2)
    waiting = shard.send_sync("g", 1, follower)
    shard.leave("g", LeavingMember(follower, None))
    assert shard.synced(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_of_the_one_that_others_wait_for_ends_the_join_phase(shard: PlayedShard) -> None:
    first, second = shard.stable_group("g", 2)
    token = shard.send_join("g", first)
    shard.leave("g", LeavingMember(second, None))
    assert shard.joined(token).generation == 2


def test_leaving_of_pending_member_does_not_disturb_a_stable_group(shard: PlayedShard) -> None:
    shard.stable_group("g", 1)
    pending = shard.joined(shard.send_join("g")).member_id
    assert shard.leave("g", LeavingMember(pending, None)) == [ErrorCode.NONE]
    assert shard.state_of("g") is GroupState.STABLE


# --- restarts ---------------------------------------------------------------------------------------------


def test_members_of_a_stable_group_go_on_after_a_restart(shard: PlayedShard) -> None:
    leader, follower = shard.stable_group("g", 2)
    shard.restart()
    assert shard.heartbeat("g", 1, follower) is ErrorCode.NONE
    assert shard.synced(shard.send_sync("g", 1, follower)).assignment == follower.encode()
    assert shard.commit("g", {("orders", 0): 5}, generation=1, member_id=leader) == [ErrorCode.NONE]
    shard.advance(SESSION_MS)
    assert shard.state_of("g") is GroupState.EMPTY, "their sessions began anew, and ended"


def test_waiting_requests_are_given_up_by_a_restart(shard: PlayedShard) -> None:
    first, _ = shard.stable_group("g", 2)
    token = shard.send_join("g", first)
    shard.restart()
    assert shard.replies[token] is ErrorCode.NOT_COORDINATOR
    assert shard.state_of("g") is GroupState.STABLE


def test_assignment_lost_with_its_append_leaves_the_former_generation(shard: PlayedShard) -> None:
    first, second = shard.stable_group("g", 2)
    for member_id in (first, second):
        shard.send_join("g", member_id)
    shard.holds_appends = True
    token = shard.send_sync("g", 2, first, {first: b"new"})
    shard.restart()
    assert shard.replies[token] is ErrorCode.NOT_COORDINATOR
    assert shard.synced(shard.send_sync("g", 1, first)).assignment == first.encode()
