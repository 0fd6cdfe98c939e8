"""A group's history in sentences for people, with likely causes and the setting to change. Pure.

What is told of a rebalance are facts that the coordinator saw. What is advised are guesses, and say so: a rule for each
kind of cause, one for a rebalance that took long, and one for many rebalances in a row (`advise_group`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final

from barnabas.groups.effects import Cause, MemberRef, Outcome, Reason, RebalanceCompleted, StaticMemberReplaced
from barnabas.groups.history import GroupHistory, HistoryEntry, duration_ms, joining_ms, syncing_ms

_POLL_TOO_LATE: Final = ("poll timeout", "max.poll.interval", "max poll interval", "maximum poll interval")
"""How clients say in LeaveGroup that the application did not come back for records: Java's words, and others'."""
_FORMALITIES: Final = ("re-join with the given member-id", "not provided")
"""Reasons of clients that tell nothing: the second step of every first join."""
_ID_LENGTH: Final = 8
_SLOW_JOIN_MS: Final = 5_000
_ROW_LENGTH: Final = 4
_ROW_MS: Final = 5 * 60_000


@dataclass(frozen=True, slots=True)
class Advice:
    likely: str
    """The likely cause."""
    change: str
    """What to do about it."""
    settings: tuple[str, ...] = ()
    """The settings that `change` speaks of."""


# --- what happened --------------------------------------------------------------------------------------------


def tell_entry(entry: HistoryEntry, zone: tzinfo | None = UTC) -> list[str]:
    """The first line is a heading; the others tell of causes and members. `zone` None means local time."""
    if isinstance(entry, StaticMemberReplaced):
        return [
            f"{_time_text(entry.at_ms, zone)}  generation {entry.generation} continued without a rebalance",
            f"{member_text(entry.new)} was started again with the same group.instance.id",
        ]
    return [
        _heading(entry, zone),
        *(_tell_cause(cause) for cause in entry.causes),
        *_left_out(entry.causes_left_out),
        *_tell_last(entry),
    ]


def _heading(rebalance: RebalanceCompleted, zone: tzinfo | None) -> str:
    generations = f"generation {rebalance.generation_before} to {rebalance.generation_after}"
    members = f"{rebalance.members_before} to {rebalance.members_after} members"
    phases = f"joining {duration_text(joining_ms(rebalance))}, syncing {duration_text(syncing_ms(rebalance))}"
    took = f"took {duration_text(duration_ms(rebalance))} ({phases})"
    match rebalance.outcome:
        case Outcome.STABLE:
            end = ""
        case Outcome.EMPTY:
            end = "; nobody was left"
        case Outcome.INTERRUPTED:
            end = "; the next one began before it had ended"
    return f"{_time_text(rebalance.started_at_ms, zone)}  {generations}, {members}, {took}{end}"


def _time_text(timestamp_ms: int, zone: tzinfo | None) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, zone).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"@{timestamp_ms}"


def _tell_cause(cause: Cause) -> str:
    who = "somebody" if cause.member is None else member_text(cause.member)
    words = _own_words(cause)
    match cause.reason:
        case Reason.MEMBER_JOINED:
            return f"{who} joined{words}"
        case Reason.MEMBER_LEFT:
            return f"{who} left{words or ' without a reason'}"
        case Reason.HEARTBEAT_MISSED:
            return f"{who} missed its heartbeat{_silence(cause)}"
        case Reason.METADATA_CHANGED:
            return f"{who} rejoined with a different subscription{words}"
        case Reason.LEADER_REJOINED:
            return f"{who}, the leader, asked for a new assignment{words}"
        case Reason.STATIC_MEMBER_REPLACED:
            return f"{who} was started again with the same group.instance.id{words}"
        case Reason.MEMBER_REJOINED:
            return f"{who} asked to rejoin{words}"
        case Reason.SYNC_MISSED:
            return f"{who} joined, but did not ask for its partitions in time"
        case Reason.JOIN_MISSED:
            return f"{who} was removed, because it did not rejoin in time"
        case Reason.OVER_CAPACITY:
            return f"{who} was refused: the group had reached group.max.size"
        case Reason.WRITE_REFUSED:
            return "the broker could not store the assignment"


def _own_words(cause: Cause) -> str:
    said = cause.said.strip().rstrip(".")
    if not said or any(formality in said for formality in _FORMALITIES):
        return ""
    return f': "{said}"'


def _silence(cause: Cause) -> str:
    if cause.since_ms is None:
        return ""
    return f": it was silent for {duration_text(max(0, cause.at_ms - cause.since_ms))}"


def _tell_last(rebalance: RebalanceCompleted) -> Iterator[str]:
    if rebalance.members_after > 1 and rebalance.last_joined is not None:
        yield f"{member_text(rebalance.last_joined)} was the last to join"


def _left_out(count: int) -> Iterator[str]:
    if count:
        yield f"and {count} more {'cause' if count == 1 else 'causes'}"


def member_text(member: MemberRef) -> str:
    """A name that people recognise and that differs from others', and where it ran: "worker-9f2c81aa (10.0.0.7)"."""
    name = _name(member)
    if not member.instance_id and member.client_id:
        name = short_member_id(member.member_id, member.client_id) or name
    host = member.client_host.removeprefix("/")
    return f"{name} ({host})" if host else name


def short_member_id(member_id: str, client_id: str) -> str | None:
    """Enough of an id to tell members apart; None when it is not the client's and a UUID, as coordinators make it."""
    prefix = f"{client_id}-"
    return member_id[: len(prefix) + _ID_LENGTH] if member_id.startswith(prefix) else None


def _name(member: MemberRef) -> str:
    return member.instance_id or member.client_id or member.member_id


def duration_text(milliseconds: int) -> str:
    """As people say it, in at most two units: "320 ms", "4.2 s", "42 s", "3 min 5 s", "2 h 10 min", "3 d 4 h"."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 10_000:
        return f"{milliseconds / 1000:.1f} s".replace(".0 s", " s")
    seconds = milliseconds // 1000
    for unit, seconds_each, smaller, seconds_smaller in (
        ("d", 86_400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if seconds >= seconds_each:
            rest = seconds % seconds_each // seconds_smaller
            whole = f"{seconds // seconds_each} {unit}"
            return f"{whole} {rest} {smaller}" if rest else whole
    return f"{seconds} s"


# --- what may help --------------------------------------------------------------------------------------------


def advise_rebalance(rebalance: RebalanceCompleted) -> list[Advice]:
    """What is likely behind this rebalance, without repetition; nothing for the ordinary ones."""
    advice = [_advice_for(cause) for cause in rebalance.causes]
    if _DID_NOT_REJOIN not in advice and _is_slow(rebalance):
        advice.append(_slow_join(rebalance))
    return list(dict.fromkeys(one for one in advice if one is not None))


def _advice_for(cause: Cause) -> Advice | None:
    if cause.reason is Reason.MEMBER_LEFT and any(words in cause.said.lower() for words in _POLL_TOO_LATE):
        return _POLL_INTERVAL_EXCEEDED
    return _ADVICE.get(cause.reason)


def _is_slow(rebalance: RebalanceCompleted) -> bool:
    is_shared = rebalance.members_after > 1 and rebalance.last_joined is not None
    return is_shared and joining_ms(rebalance) >= _SLOW_JOIN_MS


def _slow_join(rebalance: RebalanceCompleted) -> Advice:
    slow = "the last member" if rebalance.last_joined is None else member_text(rebalance.last_joined)
    return Advice(
        f"all members waited {duration_text(joining_ms(rebalance))} for {slow}, which rejoins only after it has "
        "processed its records and polls again",
        "lower its max.poll.records, or let the others continue meanwhile with "
        "partition.assignment.strategy=cooperative-sticky",
        ("max.poll.records", "partition.assignment.strategy"),
    )


def advise_group(history: GroupHistory) -> list[Advice]:
    """What is likely behind many rebalances in a row; nothing when there were few."""
    row = _longest_row([entry for entry in history.entries if isinstance(entry, RebalanceCompleted)])
    if len(row) < _ROW_LENGTH:
        return []
    many = f"{len(row)} rebalances within {duration_text(row[-1].completed_at_ms - row[0].started_at_ms)}"
    causes = [cause for rebalance in row for cause in rebalance.causes]
    reasons = Counter(cause.reason for cause in causes)
    came_back = _came_back(causes)
    if came_back:
        return [
            Advice(
                f"{many}: members leave and come back ({', '.join(came_back[:3])}), as in a deployment or a crash loop",
                "give each member its own group.instance.id, so that a restart within session.timeout.ms causes no "
                "rebalance",
                ("group.instance.id", "session.timeout.ms"),
            )
        ]
    if reasons[Reason.MEMBER_JOINED] * 2 > len(causes):
        return [
            Advice(
                f"{many}: members were started one after another",
                "raise the broker's group.initial.rebalance.delay.ms, so that a new group waits for all of them, or "
                "give each member its own group.instance.id",
                ("group.initial.rebalance.delay.ms", "group.instance.id"),
            )
        ]
    return [
        Advice(
            f"{many}: the group does not settle",
            "look at the causes above; static members (group.instance.id) and cooperative-sticky make each of them "
            "cheaper",
            ("group.instance.id", "partition.assignment.strategy"),
        )
    ]


def _longest_row(rebalances: Sequence[RebalanceCompleted]) -> Sequence[RebalanceCompleted]:
    """The most rebalances that began within `_ROW_MS`; the newest of equally long rows."""
    best: Sequence[RebalanceCompleted] = ()
    first = 0
    for last, rebalance in enumerate(rebalances):
        while rebalance.started_at_ms - rebalances[first].started_at_ms > _ROW_MS:
            first += 1
        if last + 1 - first >= len(best):
            best = rebalances[first : last + 1]
    return best


def _came_back(causes: Iterable[Cause]) -> list[str]:
    """Who joined after one of the same name had gone."""
    gone: set[str] = set()
    came_back: set[str] = set()
    for cause in causes:
        if cause.member is None:
            continue
        if cause.reason in (Reason.MEMBER_LEFT, Reason.HEARTBEAT_MISSED):
            gone.add(_name(cause.member))
        elif cause.reason is Reason.MEMBER_JOINED and _name(cause.member) in gone:
            came_back.add(_name(cause.member))
    return sorted(came_back)


_HEARTBEAT_MISSED: Final = Advice(
    "the process was killed, paused (a long garbage collection, a suspended laptop or container, a full CPU), or "
    "lost its network",
    "raise session.timeout.ms if it is alive but pauses that long; if it was restarted, give it a group.instance.id",
    ("session.timeout.ms", "group.instance.id"),
)
_POLL_INTERVAL_EXCEEDED: Final = Advice(
    "processing what one poll returned took longer than max.poll.interval.ms",
    "raise max.poll.interval.ms, or lower max.poll.records so that a poll returns less work",
    ("max.poll.interval.ms", "max.poll.records"),
)
_DID_NOT_REJOIN: Final = Advice(
    "the removed member was busy processing records, or hung, for the whole rebalance timeout",
    "raise max.poll.interval.ms (it is also the rebalance timeout), or lower max.poll.records",
    ("max.poll.interval.ms", "max.poll.records"),
)
_SYNC_MISSED: Final = Advice(
    "the member stopped between joining and getting its partitions: it crashed, hung, or its assignor failed",
    "check its log at this time; raise max.poll.interval.ms if the leader takes long to assign",
    ("max.poll.interval.ms",),
)
_LEADER_REJOINED: Final = Advice(
    "a topic that the group reads was created, deleted, or got more partitions",
    "nothing, unless it happens often: then subscribe with a narrower pattern",
)
_OVER_CAPACITY: Final = Advice(
    "more members were started than the brokers allow in one group",
    "raise the broker's group.max.size, or start fewer: members beyond the number of partitions have nothing to do",
    ("group.max.size",),
)
_WRITE_REFUSED: Final = Advice(
    "the group's metadata is larger than the offsets topic accepts, or too few replicas were in sync",
    "check the broker's log at this time; raise max.message.bytes of __consumer_offsets if it says so",
    ("max.message.bytes",),
)
_ADVICE: Final = {
    Reason.HEARTBEAT_MISSED: _HEARTBEAT_MISSED,
    Reason.SYNC_MISSED: _SYNC_MISSED,
    Reason.JOIN_MISSED: _DID_NOT_REJOIN,
    Reason.LEADER_REJOINED: _LEADER_REJOINED,
    Reason.OVER_CAPACITY: _OVER_CAPACITY,
    Reason.WRITE_REFUSED: _WRITE_REFUSED,
}
