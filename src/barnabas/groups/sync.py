"""SyncGroup: the leader hands in the assignment, and every member gets its part once it is in the log.

Pure. Members that ask while the generation waits for its leader wait, too. The assignment goes into the log before
anybody gets it (`assignment_written`), so that no member ever works by an assignment that a failover forgets. A
member that has not asked for its part within the rebalance timeout is removed (`sync_time_over`).
"""

from barnabas.groups.effects import AssignmentWritten, Outcome, Reason, TimerKind, Token
from barnabas.groups.group import Group
from barnabas.groups.rebalance import Step, end_account, keep_alive, prepare, refuse_all_syncs, remove_member
from barnabas.groups.requests import SyncRequest, SyncResult
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode


def sync(group: Group, request: SyncRequest, token: Token, step: Step) -> None:
    error = _sync_error(group, request)
    if error is not None:
        step.reply(token, SyncResult(error))
        return
    member_id = request.member_id
    group.unsynced.discard(member_id)
    if not group.unsynced:
        step.cancel_timer(group.timer(TimerKind.SYNC))
    if group.state is GroupState.STABLE:
        assignment = group.members[member_id].assignment
        step.reply(token, SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol, assignment))
        return
    earlier = group.syncing.pop(member_id, None)
    if earlier is not None:  # the client lost that connection, and asks again
        step.reply(earlier, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
    group.syncing[member_id] = token
    if group.account is not None:
        group.account.sync_received(group.members[member_id].ref)
    if member_id == group.leader and not group.assignment_in_flight:
        _write_assignment(group, request, step)


def _sync_error(group: Group, request: SyncRequest) -> ErrorCode | None:
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.member_error(request.member_id, request.instance_id)
    if error is not None:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return None


def _differs(said: str | None, actual: str | None) -> bool:
    """Older clients do not say what they believe."""
    return said is not None and actual is not None and said != actual


def _write_assignment(group: Group, request: SyncRequest, step: Step) -> None:
    assignments = {member_id: bytes(assignment) for member_id, assignment in request.assignments}
    group.assignment_in_flight = True
    step.write(group, group.metadata(assignments))
    step.effects.continuation = AssignmentWritten(group, group.generation, assignments)


def assignment_written(written: AssignmentWritten, step: Step) -> None:
    """The assignment is committed: members that wait for it get it, unless the group has gone on meanwhile."""
    group = written.group
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != written.generation:
        return
    group.assignment_in_flight = False
    for member_id, member in group.members.items():
        member.assignment = written.assignments.get(member_id, b"")
    group.move_to(GroupState.STABLE, step.now.wall_ms)
    for member_id, token in group.syncing.items():
        member = group.members[member_id]
        step.reply(token, SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment))
        keep_alive(group, member, step)
    group.syncing.clear()
    end_account(group, Outcome.STABLE, step)


def assignment_refused(written: AssignmentWritten, error: ErrorCode, step: Step) -> None:
    """The log did not take the assignment: those that wait are told, and the group tries again."""
    group = written.group
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != written.generation:
        return
    refuse_all_syncs(group, error, step)
    prepare(group, (step.cause(Reason.WRITE_REFUSED),), step)


def sync_time_over(group: Group, step: Step) -> None:
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.unsynced:
        return
    absent = [member for member_id, member in group.members.items() if member_id in group.unsynced]
    causes = [step.silence(Reason.SYNC_MISSED, member) for member in absent]
    for member in absent:
        remove_member(group, member, step)
    group.unsynced.clear()
    prepare(group, causes, step)
