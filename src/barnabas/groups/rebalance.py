"""The rules of a rebalance that joining, leaving, syncing and timers share: how it begins, and how its join phase ends.

Pure. Functions take the group and a `Step`, which collects the effects of one call on the state.

A rebalance begins with `prepare` (every member must join again) and its join phase ends with `complete_join`, when all
members have joined or their time is over. Dynamic members that did not join are removed then; static ones stay, because
they may return under their instance id. The first rebalance of an empty group waits
`group.initial.rebalance.delay.ms`, and as long again whenever somebody joined meanwhile, up to the rebalance timeout.
Without a delay it waits a moment for those that were just given an id and are about to join with it: of members that
start together the fastest would otherwise be a generation of their own, and all would have to join again.

Session timers are lazy: a heartbeat only notes the time. When the timer fires, it checks that time and restarts, so
it is set here only when it must fire earlier than scheduled.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.base.clock import Moment
from barnabas.groups.account import RebalanceAccount
from barnabas.groups.effects import (
    CancelTimer,
    Cause,
    DurableRecord,
    Effects,
    JoinPhaseEnded,
    Outcome,
    Reason,
    RebalanceStarted,
    Reply,
    SetTimer,
    TimerKey,
    TimerKind,
    Token,
)
from barnabas.groups.group import Group
from barnabas.groups.member import NO_TIMER, Member
from barnabas.groups.records import GroupChange, GroupMetadata, encode_group, encode_group_key
from barnabas.groups.requests import UNKNOWN_MEMBER_ID, JoinResult, SyncResult
from barnabas.groups.settings import GroupSettings
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""How long a new member may wait in its first join: longer than a session, because it sends no heartbeats yet."""

RETURN_MS: Final = 200
"""How long a first rebalance without a delay waits for the owners of new ids, who mostly come back at once."""

_DEPARTURES: Final = (Reason.MEMBER_LEFT, Reason.HEARTBEAT_MISSED, Reason.SYNC_MISSED)


@dataclass(slots=True)
class Step:
    """One call on the state: the time, the settings, and the effects so far."""

    settings: GroupSettings
    now: Moment
    effects: Effects = field(default_factory=Effects)

    def reply(self, token: Token, result: object) -> None:
        self.effects.replies.append(Reply(token, result))

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        self.effects.timers.append(SetTimer(key, delay_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self.effects.timers.append(CancelTimer(key))

    def write(self, group: Group, value: GroupMetadata | None) -> None:
        """Appends the group's record, or its tombstone."""
        encoded = encode_group(value) if value is not None else None
        change = GroupChange(group.group_id, value)
        self.effects.records.append(DurableRecord(encode_group_key(group.group_id), encoded, change))

    def cause(self, reason: Reason, member: Member | None = None, said: str = "") -> Cause:
        return Cause(reason, self.now.wall_ms, member.ref if member is not None else None, said)

    def silence(self, reason: Reason, member: Member) -> Cause:
        """A cause that lies in not hearing of a member."""
        now = self.now
        return Cause(reason, now.wall_ms, member.ref, since_ms=now.wall_ms - (now.steady_ms - member.last_seen_ms))


# --- sessions ---------------------------------------------------------------------------------------------


def session_timer(group: Group, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def session_deadline_ms(member: Member) -> int:
    return member.last_seen_ms + (NEW_MEMBER_TIMEOUT_MS if member.is_new else member.session_timeout_ms)


def keep_alive(group: Group, member: Member, step: Step) -> None:
    """The member sent a request, or got an answer: its session timeout restarts."""
    now_ms = step.now.steady_ms
    member.last_seen_ms = now_ms
    deadline_ms = session_deadline_ms(member)
    if deadline_ms < member.timer_at_ms:
        member.timer_at_ms = deadline_ms
        step.set_timer(session_timer(group, member.member_id), deadline_ms - now_ms)


def session_timer_fired(group: Group, member: Member, step: Step) -> None:
    now_ms = step.now.steady_ms
    deadline_ms = session_deadline_ms(member)
    is_waiting = member.member_id in group.joining or member.member_id in group.syncing
    if now_ms >= deadline_ms and is_waiting and not member.is_new:
        deadline_ms = now_ms + member.session_timeout_ms  # it is we who let it wait
    if now_ms < deadline_ms:
        member.timer_at_ms = deadline_ms
        step.set_timer(session_timer(group, member.member_id), deadline_ms - now_ms)
        return
    member.timer_at_ms = NO_TIMER
    cause = step.silence(Reason.HEARTBEAT_MISSED, member)
    remove_member(group, member, step)
    after_removal(group, (cause,), step)


# --- removal ----------------------------------------------------------------------------------------------


def remove_member(group: Group, member: Member, step: Step) -> None:
    """Takes a member out and answers what it waits for. `after_removal` says what follows for the others."""
    refuse_waiting(group, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID, step)
    group.remove(member)
    if member.timer_at_ms != NO_TIMER:
        step.cancel_timer(session_timer(group, member.member_id))
    if group.account is not None:
        group.account.member_removed(member.ref)


def refuse_waiting(group: Group, member_id: str, error: ErrorCode, said_id: str, step: Step) -> None:
    """Answers a member's waiting join and sync with an error."""
    if member_id in group.joining:
        step.reply(group.joining.pop(member_id), JoinResult(error, member_id=said_id))
    if member_id in group.syncing:
        step.reply(group.syncing.pop(member_id), SyncResult(error))


def after_removal(group: Group, causes: Iterable[Cause], step: Step) -> None:
    """Members are gone: the rest rebalances, or need not wait for them any longer."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare(group, causes, step)
    elif group.state is GroupState.PREPARING_REBALANCE:
        note(group, causes)
        complete_join_if_due(group, step)


def note(group: Group, causes: Iterable[Cause]) -> None:
    """Adds causes to a rebalance that runs already."""
    if group.account is not None:
        for cause in causes:
            group.account.add_cause(cause)


# --- the join phase ---------------------------------------------------------------------------------------


def prepare(group: Group, causes: Iterable[Cause], step: Step) -> None:
    """Begins a rebalance: every member must join again."""
    _end_interrupted(group, step)
    if group.unsynced:
        step.cancel_timer(group.timer(TimerKind.SYNC))
        group.unsynced.clear()
    _open_account(group, tuple(causes), step)
    group.is_initial_rebalance = group.state is GroupState.EMPTY
    group.move_to(GroupState.PREPARING_REBALANCE, step.now.wall_ms)
    if group.is_initial_rebalance:
        delay_ms = step.settings.initial_rebalance_delay_ms
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.has_new_member = False
        step.set_timer(group.timer(TimerKind.JOIN), delay_ms)
    elif group.has_all_joined:
        complete_join(group, step)
    else:
        step.set_timer(group.timer(TimerKind.JOIN), group.rebalance_timeout_ms)


def _open_account(group: Group, causes: tuple[Cause, ...], step: Step) -> None:
    """Members that caused the rebalance by coming or going have come or gone already."""
    came = sum(cause.reason is Reason.MEMBER_JOINED for cause in causes)
    gone = [cause.member for cause in causes if cause.reason in _DEPARTURES and cause.member is not None]
    members_before = len(group.members) - came + len(gone)
    account = RebalanceAccount(group.group_id, step.now, group.generation, members_before)
    for cause in causes:
        account.add_cause(cause)
        if cause.reason is Reason.MEMBER_JOINED and cause.member is not None:
            account.member_added(cause.member)
    for member in gone:
        account.member_removed(member)
    for member_id in group.joining:
        account.join_received(group.members[member_id].ref)
    group.account = account
    step.effects.events.append(RebalanceStarted(group.group_id, step.now.wall_ms, group.generation, causes[0]))


def _end_interrupted(group: Group, step: Step) -> None:
    """Ends a rebalance whose members never got their assignment."""
    if group.state is not GroupState.COMPLETING_REBALANCE:
        return
    refuse_all_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, step)
    group.assignment_in_flight = False
    end_account(group, Outcome.INTERRUPTED, step)


def refuse_all_syncs(group: Group, error: ErrorCode, step: Step) -> None:
    for member in group.members.values():
        member.assignment = b""
    for member_id, token in group.syncing.items():
        step.reply(token, SyncResult(error))
        keep_alive(group, group.members[member_id], step)
    group.syncing.clear()


def end_account(group: Group, outcome: Outcome, step: Step) -> None:
    account = group.account
    assert account is not None
    group.account = None
    step.effects.events.append(
        account.ended(
            outcome,
            step.now,
            group.generation,
            len(group.members),
            group.ref_of(group.leader),
            group.protocol,
        )
    )


def complete_join_if_due(group: Group, step: Step) -> None:
    """Ends the join phase once everybody is there; the first rebalance of a group waits for its timer instead."""
    if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance and group.has_all_joined:
        complete_join(group, step)


def initial_delay_over(group: Group, step: Step) -> None:
    """The delay of a first rebalance is over; it is extended while new members come."""
    remaining_ms = group.initial_remaining_ms
    if group.pending and not step.settings.initial_rebalance_delay_ms:
        group.is_initial_rebalance = False  # so that the last of them ends the join phase
        step.set_timer(group.timer(TimerKind.JOIN), min(remaining_ms, RETURN_MS))
        return
    if not group.has_new_member or not remaining_ms:
        complete_join(group, step)
        return
    group.has_new_member = False
    waited_ms = group.initial_delay_ms
    group.initial_delay_ms = min(step.settings.initial_rebalance_delay_ms, remaining_ms)
    group.initial_remaining_ms = max(remaining_ms - waited_ms, 0)
    step.set_timer(group.timer(TimerKind.JOIN), group.initial_delay_ms)


def complete_join(group: Group, step: Step) -> None:
    """Ends the join phase: a new generation, with those that are there."""
    step.cancel_timer(group.timer(TimerKind.JOIN))
    _remove_absent(group, step)
    if not _elect_leader(group):
        # Only static members are left, and none of them is back: they get another rebalance timeout.
        step.set_timer(group.timer(TimerKind.JOIN), group.rebalance_timeout_ms)
        return
    group.next_generation()
    group.is_initial_rebalance = False
    group.protocol = group.ballots.elected() if group.members else None
    group.find_subscribed()
    if group.members:
        _begin_sync_phase(group, step)
    else:
        group.move_to(GroupState.EMPTY, step.now.wall_ms)
        step.write(group, group.metadata({}))
        end_account(group, Outcome.EMPTY, step)


def _remove_absent(group: Group, step: Step) -> None:
    if len(group.joining) == len(group.members):
        return
    absent = [
        member
        for member_id, member in group.members.items()
        if member.instance_id is None and member_id not in group.joining
    ]
    for member in absent:
        note(group, (step.silence(Reason.JOIN_MISSED, member),))
        remove_member(group, member, step)


def _elect_leader(group: Group) -> bool:
    """The leader must be one that joined, because it assigns. Returns whether there is one, or no member at all."""
    if not group.members or group.leader in group.joining:
        return True
    joined = next(iter(group.joining), None)
    if joined is not None:
        group.leader = joined
    return joined is not None


def _begin_sync_phase(group: Group, step: Step) -> None:
    group.move_to(GroupState.COMPLETING_REBALANCE, step.now.wall_ms)
    leader = group.leader
    assert leader is not None
    assert group.protocol is not None
    for member_id, token in group.joining.items():
        step.reply(token, joined_result(group, member_id, with_members=member_id == leader))
    group.joining.clear()
    for member in group.members.values():
        member.is_new = False
        keep_alive(group, member, step)
    group.unsynced = set(group.members)
    step.set_timer(group.timer(TimerKind.SYNC), group.rebalance_timeout_ms)
    account = group.account
    assert account is not None
    account.join_ended(step.now)
    step.effects.events.append(
        JoinPhaseEnded(
            group.group_id,
            step.now.wall_ms,
            group.generation,
            group.protocol,
            group.members[leader].ref,
            len(group.members),
            account.last_joined,
        )
    )


def joined_result(
    group: Group, member_id: str, *, with_members: bool, skip_assignment: bool = False, leader: str | None = None
) -> JoinResult:
    return JoinResult(
        ErrorCode.NONE,
        group.generation,
        group.protocol_type,
        group.protocol,
        leader if leader is not None else group.leader or "",
        member_id,
        skip_assignment,
        group.joined_members() if with_members else (),
    )
