"""JoinGroup: who may be in a group, and what a join does in each state.

Pure. As in Apache Kafka 4.3:

| who | Empty, PreparingRebalance | CompletingRebalance | Stable |
|---|---|---|---|
| a new dynamic member | waits (with an id of its own first: KIP-394) | rebalance | rebalance |
| a new static member | waits | rebalance | rebalance |
| a static member that returns without its id | replaced, waits | replaced, rebalance | replaced (below) |
| a known member, same metadata | waits | the generation again | the leader: rebalance; else the generation again |
| a known member, new metadata | waits | rebalance | rebalance |

In a stable group a returning static member takes its old assignment; only when the elected protocol changes by it does
the group rebalance. A member's second join replaces a waiting first one, which is told to join again: its client lost
that connection, or would wait on it forever.
"""

from collections.abc import Callable

from barnabas.groups.effects import MembershipWritten, Reason, StaticMemberReplaced, Token
from barnabas.groups.group import Group
from barnabas.groups.member import NO_TIMER, Member
from barnabas.groups.rebalance import (
    Step,
    complete_join_if_due,
    joined_result,
    keep_alive,
    note,
    prepare,
    refuse_waiting,
    remove_member,
    session_timer,
)
from barnabas.groups.requests import UNKNOWN_MEMBER_ID, JoinRequest, JoinResult
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode
from barnabas.wire.primitives import TEXT_BYTES_MAX

NewUuidText = Callable[[], str]


def join_error(request: JoinRequest, session_timeout_min_ms: int, session_timeout_max_ms: int) -> ErrorCode | None:
    """What is wrong with a join whatever the group is."""
    if not session_timeout_min_ms <= request.session_timeout_ms <= session_timeout_max_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    texts = (
        request.group_id,
        request.member_id,
        request.instance_id or "",
        request.client_id,
        request.client_host,
        request.protocol_type,
        *(name for name, _ in request.protocols),
    )
    if sum(map(len, texts)) > _SURELY_SHORT and any(len(text.encode()) > _TEXT_LENGTH_MAX for text in texts):
        return ErrorCode.INVALID_REQUEST
    return None


_TEXT_LENGTH_MAX = TEXT_BYTES_MAX - 64
"""A member id is the client's or instance's id, a dash and a UUID."""
_SURELY_SHORT = _TEXT_LENGTH_MAX // 4
"""Characters that are not too many bytes, whatever they are."""


def join(group: Group, request: JoinRequest, token: Token, new_uuid_text: NewUuidText, step: Step) -> None:
    if not _has_room_for(group, request.member_id, step.settings.group_size_max):
        _turn_away(group, request.member_id, step)
        step.reply(token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports(request.protocol_type, request.protocols):
        step.reply(token, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id))
    elif request.member_id == UNKNOWN_MEMBER_ID:
        _join_new(group, request, token, new_uuid_text, step)
    else:
        _join_known(group, request, token, step)


def _has_room_for(group: Group, member_id: str, group_size_max: int) -> bool:
    """While members join again, those that joined count: if there are too many of them, the last ones must go."""
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        return member_id in group.joining or len(group.joining) < group_size_max
    return member_id in group.members or len(group.members) < group_size_max


def _turn_away(group: Group, member_id: str, step: Step) -> None:
    member = group.members.get(member_id)
    if member is not None:
        note(group, (step.cause(Reason.OVER_CAPACITY, member),))
        remove_member(group, member, step)
    elif member_id in group.pending:
        group.pending.remove(member_id)
        step.cancel_timer(session_timer(group, member_id))
    complete_join_if_due(group, step)


# --- without a member id ----------------------------------------------------------------------------------


def _join_new(group: Group, request: JoinRequest, token: Token, new_uuid_text: NewUuidText, step: Step) -> None:
    owner = request.client_id if request.instance_id is None else request.instance_id
    new_member_id = f"{owner}-{new_uuid_text()}"
    if request.instance_id is not None:
        known_id = group.static_ids.get(request.instance_id)
        if known_id is not None:
            _replace_static(group, group.members[known_id], new_member_id, request, token, step)
            return
    elif request.requires_known_member_id:
        group.pending.add(new_member_id)
        step.set_timer(session_timer(group, new_member_id), request.session_timeout_ms)
        step.reply(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id=new_member_id))
        return
    _add(group, new_member_id, request, token, step)


def _add(group: Group, member_id: str, request: JoinRequest, token: Token, step: Step) -> None:
    member = Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
    )
    member.is_new = True
    group.has_new_member = True
    group.add(member, request.protocol_type)
    keep_alive(group, member, step)  # this replaces the timer that it had while it was pending
    if group.state is GroupState.PREPARING_REBALANCE and group.account is not None:
        group.account.member_added(member.ref)
    _rebalance(group, member, Reason.MEMBER_JOINED, request, token, step)


def _rebalance(group: Group, member: Member, reason: Reason, request: JoinRequest, token: Token, step: Step) -> None:
    """The member waits for the next generation, which all others must join, too."""
    cause = step.cause(reason, member, said=request.reason)
    if group.state is GroupState.PREPARING_REBALANCE:
        _wait(group, member, token, step)
        if reason in _NEWS:
            note(group, (cause,))
        complete_join_if_due(group, step)
    else:
        group.joining[member.member_id] = token  # before `prepare`, which may end the join phase at once
        prepare(group, (cause,), step)


_NEWS = (Reason.MEMBER_JOINED, Reason.STATIC_MEMBER_REPLACED)
"""Causes that count while a rebalance runs already, when every member is expected to join again."""


def _wait(group: Group, member: Member, token: Token, step: Step) -> None:
    earlier = group.joining.pop(member.member_id, None)
    if earlier is not None:
        step.reply(earlier, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
    group.joining[member.member_id] = token
    if group.account is not None:
        group.account.join_received(member.ref)


# --- with a member id -------------------------------------------------------------------------------------


def _join_known(group: Group, request: JoinRequest, token: Token, step: Step) -> None:
    member_id = request.member_id
    if member_id in group.pending and request.instance_id is None:
        _add(group, member_id, request, token, step)
        return
    error = group.member_error(member_id, request.instance_id)
    if error is not None:
        step.reply(token, JoinResult(error, member_id=member_id))
        return
    member = group.members[member_id]
    is_unchanged = member.protocols == request.protocols
    is_leader = group.leader == member_id
    if group.state is GroupState.COMPLETING_REBALANCE and is_unchanged:
        step.reply(token, joined_result(group, member_id, with_members=is_leader))
    elif group.state is GroupState.STABLE and is_unchanged and not is_leader:
        step.reply(token, joined_result(group, member_id, with_members=False))
    else:
        if not is_unchanged:
            reason = Reason.METADATA_CHANGED
        elif group.state is GroupState.STABLE:
            reason = Reason.LEADER_REJOINED
        else:
            reason = Reason.MEMBER_REJOINED
        _update(group, member, request, step)
        _rebalance(group, member, reason, request, token, step)


def _update(group: Group, member: Member, request: JoinRequest, step: Step) -> None:
    group.change_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    keep_alive(group, member, step)


# --- static members that return ---------------------------------------------------------------------------


def _replace_static(
    group: Group, member: Member, new_member_id: str, request: JoinRequest, token: Token, step: Step
) -> None:
    """The process behind an instance id was restarted; the old one, if it still runs, is fenced."""
    old_leader, old = group.leader, member.ref
    refuse_waiting(group, member.member_id, ErrorCode.FENCED_INSTANCE_ID, member.member_id, step)
    if member.timer_at_ms != NO_TIMER:
        step.cancel_timer(session_timer(group, member.member_id))
        member.timer_at_ms = NO_TIMER
    group.replace_id(member, new_member_id)
    member.client_id, member.client_host = request.client_id, request.client_host
    is_unchanged = member.protocols == request.protocols
    _update(group, member, request, step)
    if group.state is not GroupState.STABLE or group.ballots.elected() != group.protocol:
        _rebalance(group, member, Reason.STATIC_MEMBER_REPLACED, request, token, step)
        return
    assert request.instance_id is not None
    if not is_unchanged:
        group.find_subscribed()
    step.write(group, group.metadata({known.member_id: known.assignment for known in group.members.values()}))
    step.effects.continuation = MembershipWritten(group)
    step.effects.events.append(
        StaticMemberReplaced(group.group_id, step.now.wall_ms, group.generation, request.instance_id, old, member.ref)
    )
    if request.supports_skipping_assignment:
        is_leader = group.leader == new_member_id
        result = joined_result(group, new_member_id, with_members=is_leader, skip_assignment=is_leader)
    else:
        # An old client would assign again if told that it leads, so the answer has its former id as the leader.
        result = joined_result(group, new_member_id, with_members=False, leader=old_leader)
    step.reply(token, result)


def pending_timer_fired(group: Group, member_id: str, step: Step) -> None:
    """The owner of an id did not join with it."""
    group.pending.discard(member_id)
    complete_join_if_due(group, step)
