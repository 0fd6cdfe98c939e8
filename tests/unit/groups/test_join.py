"""JoinGroup: who may be in a group, in which state, and when its join phase ends."""

import pytest

from barnabas.groups.protocols import Protocols
from barnabas.groups.rebalance import RETURN_MS
from barnabas.groups.requests import JoinResult, LeavingMember
from barnabas.groups.settings import GroupSettings
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode
from tests.support.group_shard import NO_DELAY, RANGE, REBALANCE_MS, SESSION_MS, PlayedShard, subscription

CHANGED: Protocols = (("range", subscription("orders", "bills")),)
DELAY_MS = 3_000


@pytest.fixture
def shard() -> PlayedShard:
    return PlayedShard()


def static_group(shard: PlayedShard, *instances: str, **options: object) -> list[str]:
    """A stable group of static members."""
    tokens = [shard.send_join("g", instance_id=name, **options) for name in instances]  # type: ignore[arg-type]
    shard.finish_initial_delay()
    member_ids = [shard.joined(token).member_id for token in tokens]
    assignments = {member_id: member_id.encode() for member_id in member_ids}
    for member_id, instance in zip(member_ids, instances, strict=True):
        shard.send_sync("g", 1, member_id, assignments, instance_id=instance)
    assert shard.state_of("g") is GroupState.STABLE
    return member_ids


# --- new members ------------------------------------------------------------------------------------------


def test_join_without_id_gets_one_and_is_not_a_member_yet(shard: PlayedShard) -> None:
    result = shard.joined(shard.send_join("g", client_id="app"))
    assert result == JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id="app-uuid1")
    assert shard.state_of("g") is GroupState.EMPTY


def test_join_without_id_of_old_client_waits_at_once(shard: PlayedShard) -> None:
    token = shard.send_join("g", known_id=False)
    assert token not in shard.replies
    shard.finish_initial_delay()
    assert shard.joined(token).error is ErrorCode.NONE


def test_join_of_static_member_needs_no_second_step(shard: PlayedShard) -> None:
    token = shard.send_join("g", instance_id="one")
    shard.finish_initial_delay()
    assert shard.joined(token).member_id == "one-uuid1"


def test_pending_member_that_never_returns_is_forgotten_after_its_session(shard: PlayedShard) -> None:
    member_id = shard.joined(shard.send_join("g")).member_id
    shard.advance(SESSION_MS)
    assert shard.joined(shard.send_join("g", member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_join_with_unknown_id_is_refused_with_or_without_group(shard: PlayedShard) -> None:
    refused = JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member_id="stranger")
    assert shard.joined(shard.send_join("g", "stranger")) == refused
    shard.stable_group("g", 1)
    assert shard.joined(shard.send_join("g", "stranger")) == refused


def test_only_the_leader_gets_the_members(shard: PlayedShard) -> None:
    ids = [shard.joined(shard.send_join("g")).member_id for _ in range(2)]
    tokens = [shard.send_join("g", member_id) for member_id in ids]
    shard.finish_initial_delay()
    leader, follower = (shard.joined(token) for token in tokens)
    assert (leader.leader, follower.leader) == (ids[0], ids[0])
    assert [(member.member_id, member.metadata) for member in leader.members] == [(id_, RANGE[0][1]) for id_ in ids]
    assert follower.members == ()


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1])
def test_session_timeout_out_of_bounds_is_refused(shard: PlayedShard, session_ms: int) -> None:
    assert shard.joined(shard.send_join("g", session_ms=session_ms)).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert shard.state_of("g") is GroupState.DEAD


def test_client_id_too_long_for_the_log_is_refused(shard: PlayedShard) -> None:
    assert shard.joined(shard.send_join("g", client_id="x" * 32_760)).error is ErrorCode.INVALID_REQUEST


def test_new_group_is_written_before_its_first_member_has_an_id(shard: PlayedShard) -> None:
    shard.holds_appends = True
    token = shard.send_join("g")
    assert token not in shard.replies
    shard.commit_appended()
    assert shard.joined(token).error is ErrorCode.MEMBER_ID_REQUIRED
    assert len(shard.log) == 1


# --- protocols --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_first_member_without_protocol_is_refused_and_the_group_is_empty(
    shard: PlayedShard, protocol_type: str, protocols: Protocols
) -> None:
    result = shard.joined(shard.send_join("g", protocol_type=protocol_type, protocols=protocols))
    assert result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.state_of("g") is GroupState.EMPTY
    shard.expire("g")
    assert shard.state_of("g") is GroupState.DEAD


@pytest.mark.parametrize(("protocol_type", "protocols"), [("connect", RANGE), ("consumer", (("sticky", b""),))])
def test_member_without_common_protocol_is_refused(
    shard: PlayedShard, protocol_type: str, protocols: Protocols
) -> None:
    shard.stable_group("g", 1)
    result = shard.joined(shard.send_join("g", protocol_type=protocol_type, protocols=protocols))
    assert result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.state_of("g") is GroupState.STABLE


def test_protocol_that_all_know_wins_by_votes(shard: PlayedShard) -> None:
    lists: list[Protocols] = [
        (("range", b""), ("sticky", b""), ("own", b"")),
        (("sticky", b""), ("range", b"")),
        (("sticky", b""), ("range", b"")),
    ]
    ids = [shard.joined(shard.send_join("g", protocols=protocols)).member_id for protocols in lists]
    tokens = [shard.send_join("g", id_, protocols=protocols) for id_, protocols in zip(ids, lists, strict=True)]
    shard.finish_initial_delay()
    assert {shard.joined(token).protocol for token in tokens} == {"sticky"}


def test_protocol_type_may_change_once_the_group_is_empty(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1)
    shard.leave("g", LeavingMember(member, None))
    _, token = shard.new_member("g", protocol_type="connect", protocols=(("v1", b""),))
    shard.finish_initial_delay()
    assert (shard.joined(token).protocol_type, shard.joined(token).protocol) == ("connect", "v1")


# --- the initial delay ------------------------------------------------------------------------------------


def test_first_rebalance_waits_for_its_delay() -> None:
    shard = PlayedShard(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
    _, token = shard.new_member("g")
    shard.advance(DELAY_MS - 1)
    assert token not in shard.replies
    shard.advance(1)
    assert shard.joined(token).generation == 1


def test_first_rebalance_is_extended_by_new_members_up_to_the_rebalance_timeout() -> None:
    shard = PlayedShard(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
    tokens = [shard.new_member("g", rebalance_ms=8_000)[1]]
    for _ in range(3):  # at 2, 4 and 6 s
        shard.advance(2_000)
        tokens.append(shard.new_member("g", rebalance_ms=8_000)[1])
    shard.advance(1_999)
    assert not any(token in shard.replies for token in tokens)
    shard.advance(1)
    assert [shard.joined(token).generation for token in tokens] == [1, 1, 1, 1]


def test_first_rebalance_without_delay_ends_when_all_that_were_given_an_id_have_joined(shard: PlayedShard) -> None:
    ids = [shard.joined(shard.send_join("g")).member_id for _ in range(3)]
    tokens = [shard.send_join("g", ids[0])]
    shard.advance(0)
    tokens.append(shard.send_join("g", ids[1]))
    shard.advance(RETURN_MS - 1)
    assert not any(token in shard.replies for token in tokens)
    tokens.append(shard.send_join("g", ids[2]))
    assert [shard.joined(token).generation for token in tokens] == [1, 1, 1]


def test_first_rebalance_without_delay_does_not_wait_long_for_an_id_that_nobody_uses(shard: PlayedShard) -> None:
    late = shard.joined(shard.send_join("g")).member_id
    _, token = shard.new_member("g")
    shard.advance(RETURN_MS - 1)
    assert token not in shard.replies
    shard.advance(1)
    assert shard.joined(token).generation == 1
    shard.send_join("g", late)
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE


def test_first_rebalance_with_delay_does_not_wait_for_ids() -> None:
    shard = PlayedShard(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
    shard.send_join("g")
    _, token = shard.new_member("g")
    shard.advance(DELAY_MS)
    assert shard.joined(token).generation == 1


# --- later joins ------------------------------------------------------------------------------------------


def test_new_member_makes_a_stable_group_rebalance_when_all_have_joined(shard: PlayedShard) -> None:
    (first,) = shard.stable_group("g", 1)
    second, token = shard.new_member("g")
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE
    assert shard.heartbeat("g", 1, first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.joined(shard.send_join("g", first)).generation == 2
    assert shard.joined(token).generation == 2
    shard.sync_all("g", 2, [first, second])


def test_dynamic_member_that_does_not_join_again_is_removed_at_the_deadline(shard: PlayedShard) -> None:
    first, second = shard.stable_group("g", 2, session_ms=100_000)
    third, token = shard.new_member("g", session_ms=100_000)
    again = shard.send_join("g", second, session_ms=100_000)
    shard.advance(REBALANCE_MS)
    assert shard.joined(token).generation == 2
    leader = shard.joined(again)
    assert leader.leader == second, "the former leader is gone"
    assert [member.member_id for member in leader.members] == [second, third]
    assert shard.heartbeat("g", 1, first) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_that_does_not_join_again_keeps_its_place(shard: PlayedShard) -> None:
    first, second = static_group(shard, "one", "two", session_ms=200_000)
    token = shard.send_join("g", second, instance_id="two", session_ms=200_000, protocols=CHANGED)
    shard.advance(REBALANCE_MS)
    result = shard.joined(token)
    assert (result.generation, result.leader) == (2, second)
    assert {member.member_id for member in result.members} == {first, second}


def test_group_of_absent_static_members_waits_for_another_timeout(shard: PlayedShard) -> None:
    first, second = static_group(shard, "one", "two", session_ms=200_000)
    shard.leave("g", LeavingMember(second, "two"))
    shard.advance(REBALANCE_MS)
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE
    token = shard.send_join("g", first, instance_id="one", session_ms=200_000)
    assert shard.joined(token).generation == 2


def test_follower_that_joins_a_stable_group_unchanged_gets_its_generation_again(shard: PlayedShard) -> None:
    _, follower = shard.stable_group("g", 2)
    result = shard.joined(shard.send_join("g", follower))
    assert (result.error, result.generation, result.members) == (ErrorCode.NONE, 1, ())
    assert shard.state_of("g") is GroupState.STABLE


def test_leader_that_joins_a_stable_group_makes_it_rebalance(shard: PlayedShard) -> None:
    leader, _ = shard.stable_group("g", 2)
    shard.send_join("g", leader)
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE


def test_follower_with_new_metadata_makes_a_stable_group_rebalance(shard: PlayedShard) -> None:
    _, follower = shard.stable_group("g", 2)
    shard.send_join("g", follower, protocols=CHANGED)
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE


def test_member_that_joins_a_completing_group_unchanged_gets_its_generation_again(shard: PlayedShard) -> None:
    first, token = shard.new_member("g")
    shard.finish_initial_delay()
    again = shard.joined(shard.send_join("g", first))
    assert again == shard.joined(token)
    assert [member.member_id for member in again.members] == [first]


def test_member_with_new_metadata_makes_a_completing_group_rebalance(shard: PlayedShard) -> None:
    first, _ = shard.new_member("g")
    shard.finish_initial_delay()
    assert shard.joined(shard.send_join("g", first, protocols=CHANGED)).generation == 2


def test_second_join_of_a_waiting_member_replaces_the_first(shard: PlayedShard) -> None:
    first, _ = shard.stable_group("g", 2)
    earlier = shard.send_join("g", first)
    later = shard.send_join("g", first)
    assert shard.joined(earlier).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert later not in shard.replies


# --- group.max.size ---------------------------------------------------------------------------------------


def test_new_member_of_a_full_group_is_turned_away() -> None:
    shard = PlayedShard(GroupSettings(initial_rebalance_delay_ms=0, group_size_max=2))
    shard.stable_group("g", 2)
    assert shard.joined(shard.send_join("g")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.state_of("g") is GroupState.STABLE


def test_last_members_to_rejoin_a_group_over_its_new_size_are_turned_away() -> None:
    shard = PlayedShard()
    ids = shard.stable_group("g", 3)
    shard.settings = GroupSettings(initial_rebalance_delay_ms=0, group_size_max=2)
    shard.restart()
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE
    tokens = [shard.send_join("g", member_id) for member_id in ids]
    assert shard.joined(tokens[2]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [shard.joined(token).generation for token in tokens[:2]] == [2, 2]


# --- static members ---------------------------------------------------------------------------------------


def test_returning_static_member_takes_its_assignment_without_rebalance(shard: PlayedShard) -> None:
    first, second = static_group(shard, "one", "two")
    result = shard.joined(shard.send_join("g", instance_id="two"))
    assert (result.error, result.generation, result.leader) == (ErrorCode.NONE, 1, first)
    assert shard.state_of("g") is GroupState.STABLE
    token = shard.send_sync("g", 1, result.member_id, instance_id="two")
    assert shard.synced(token).assignment == second.encode()


def test_returning_static_leader_is_told_to_skip_the_assignment(shard: PlayedShard) -> None:
    static_group(shard, "one", "two")
    result = shard.joined(shard.send_join("g", instance_id="one"))
    assert (result.skip_assignment, result.leader) == (True, result.member_id)
    assert len(result.members) == 2


def test_returning_static_leader_with_old_client_is_not_told_that_it_leads(shard: PlayedShard) -> None:
    first, _ = static_group(shard, "one", "two")
    result = shard.joined(shard.send_join("g", instance_id="one", skips=False))
    assert (result.skip_assignment, result.leader, result.members) == (False, first, ())
    assert result.member_id != first


def test_returning_static_member_is_known_after_a_restart(shard: PlayedShard) -> None:
    static_group(shard, "one")
    new_id = shard.joined(shard.send_join("g", instance_id="one")).member_id
    shard.restart()
    assert shard.heartbeat("g", 1, new_id, "one") is ErrorCode.NONE


def test_former_id_of_a_returning_static_member_is_fenced(shard: PlayedShard) -> None:
    first, _ = static_group(shard, "one", "two")
    shard.send_join("g", instance_id="one")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert shard.heartbeat("g", 1, first, "one") is fenced
    assert shard.synced(shard.send_sync("g", 1, first, instance_id="one")).error is fenced
    assert shard.joined(shard.send_join("g", first, instance_id="one")).error is fenced
    assert shard.leave("g", LeavingMember(first, "one")) == [fenced]


def test_waiting_join_of_a_replaced_static_member_is_fenced(shard: PlayedShard) -> None:
    first, _ = static_group(shard, "one", "two")
    waiting = shard.send_join("g", first, instance_id="one", protocols=CHANGED)
    shard.send_join("g", instance_id="one")
    assert shard.joined(waiting) == JoinResult(ErrorCode.FENCED_INSTANCE_ID, member_id=first)


def test_returning_static_member_that_changes_the_protocol_makes_the_group_rebalance(shard: PlayedShard) -> None:
    both: Protocols = (("range", b""), ("sticky", b""))
    static_group(shard, "one", protocols=both)
    assert shard.joined(shard.send_join("g", instance_id="one", protocols=both[::-1])).protocol == "sticky"
    assert shard.state_of("g") is GroupState.COMPLETING_REBALANCE


def test_returning_static_member_makes_a_completing_group_rebalance(shard: PlayedShard) -> None:
    tokens = [shard.send_join("g", instance_id=name) for name in ("one", "two")]
    shard.finish_initial_delay()
    waiting = shard.send_sync("g", 1, shard.joined(tokens[1]).member_id, instance_id="two")
    shard.send_join("g", instance_id="one")
    assert shard.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE


def test_refused_write_of_a_returning_static_member_makes_the_group_rebalance(shard: PlayedShard) -> None:
    static_group(shard, "one", "two")
    shard.holds_appends = True
    token = shard.send_join("g", instance_id="two")
    shard.refuse_appended()
    assert shard.replies[token] is ErrorCode.UNKNOWN_SERVER_ERROR
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE


def test_join_with_unknown_instance_and_an_id_is_refused(shard: PlayedShard) -> None:
    member_id = shard.stable_group("g", 1)[0]
    result = shard.joined(shard.send_join("g", member_id, instance_id="nobody"))
    assert result.error is ErrorCode.UNKNOWN_MEMBER_ID


# --- storms -----------------------------------------------------------------------------------------------


def test_join_storm_is_one_rebalance_and_one_record() -> None:
    shard = PlayedShard(NO_DELAY)
    ids = [shard.joined(shard.send_join("g")).member_id for _ in range(300)]
    tokens = [shard.send_join("g", member_id) for member_id in ids]
    assert len(shard.events) == 1
    assert len(shard.log) == 1
    shard.finish_initial_delay()
    assert {shard.joined(token).generation for token in tokens} == {1}
