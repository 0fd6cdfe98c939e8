"""LeaveGroup: members that go, one or many in a request, and by instance id alone when an administrator removes them.

Pure. A member that was only given an id yet takes no part in the group, so that its leaving changes nothing but what
the others wait for.
"""

from collections.abc import Sequence

from barnabas.groups.effects import Cause, Reason
from barnabas.groups.group import Group
from barnabas.groups.rebalance import Step, after_removal, complete_join_if_due, remove_member, session_timer
from barnabas.groups.requests import UNKNOWN_MEMBER_ID, LeavingMember, LeftMember
from barnabas.wire.errors import ErrorCode


def leave(group: Group, leaving: Sequence[LeavingMember], step: Step) -> list[LeftMember]:
    causes: list[Cause] = []
    left = [LeftMember(who.member_id, who.instance_id, _leave_one(group, who, causes, step)) for who in leaving]
    if causes:
        after_removal(group, causes, step)
    else:
        complete_join_if_due(group, step)
    return left


def _leave_one(group: Group, who: LeavingMember, causes: list[Cause], step: Step) -> ErrorCode:
    member_id = who.member_id
    if member_id == UNKNOWN_MEMBER_ID:
        known_id = group.static_ids.get(who.instance_id) if who.instance_id is not None else None
        if known_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known_id
    elif member_id in group.pending:
        group.pending.remove(member_id)
        step.cancel_timer(session_timer(group, member_id))
        return ErrorCode.NONE
    else:
        error = group.member_error(member_id, who.instance_id)
        if error is not None:
            return error
    member = group.members[member_id]
    causes.append(step.cause(Reason.MEMBER_LEFT, member, said=who.reason or ""))
    remove_member(group, member, step)
    return ErrorCode.NONE


def forget_pending(group: Group, step: Step) -> None:
    """Takes back the ids that were given out: their owners will be told to start over."""
    for member_id in sorted(group.pending):
        step.cancel_timer(session_timer(group, member_id))
    group.pending.clear()
