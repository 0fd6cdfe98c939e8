"""What a group keeps of its last rebalances: when, why, who, how long each phase took. Pure.

The coordinator adds each finished rebalance (an event of `effects`) and writes the whole `GroupHistory` to the internal
compacted topic `HISTORY_TOPIC`: key = the group's id, value = this JSON, so that the newest record tells everything.

```
{"version": 1, "group": "billing", "entries": [{"kind": "rebalance", "started_ms": …, "causes": […], …}, …]}
```

A history is bounded: `ENTRIES_MAX` entries, `PEOPLE_MAX` causes and members in each, texts of `TEXT_LENGTH_MAX`. A
reader ignores entries and fields that it does not know and fills in what is missing, so that older and newer brokers
read each other's. It is a story for people, and no state: losing it changes nothing for the group. `story` tells it in
sentences.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TimestampMs
from barnabas.groups.effects import Cause, MemberRef, Outcome, Reason, RebalanceCompleted, StaticMemberReplaced

HISTORY_TOPIC: Final = "__barnabas_group_history"
ENTRIES_MAX: Final = 20
PEOPLE_MAX: Final = 8
TEXT_LENGTH_MAX: Final = 255

_VERSION: Final = 1
_REBALANCE: Final = "rebalance"
_REPLACED: Final = "static_member_replaced"

HistoryEntry: TypeAlias = RebalanceCompleted | StaticMemberReplaced
_Choice = TypeVar("_Choice", bound=Enum)


class UnreadableHistory(BarnabasError):  # noqa: N818 - a fact about bytes
    """Bytes that are not a group's history."""


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """What happened last in a group, oldest first."""

    group_id: str
    entries: tuple[HistoryEntry, ...] = ()

    def with_entry(self, entry: HistoryEntry) -> "GroupHistory":
        """Bounded: the oldest one goes, long lists and texts are cut."""
        return replace(self, entries=(*self.entries, _bounded(entry))[-ENTRIES_MAX:])


def _bounded(entry: HistoryEntry) -> HistoryEntry:
    if isinstance(entry, StaticMemberReplaced):
        return replace(
            entry,
            instance_id=entry.instance_id[:TEXT_LENGTH_MAX],
            old=_bounded_member(entry.old),
            new=_bounded_member(entry.new),
        )
    return replace(
        entry,
        causes=tuple(_bounded_cause(cause) for cause in entry.causes[:PEOPLE_MAX]),
        causes_left_out=entry.causes_left_out + len(entry.causes[PEOPLE_MAX:]),
        joined=tuple(_bounded_member(member) for member in entry.joined[:PEOPLE_MAX]),
        left=tuple(_bounded_member(member) for member in entry.left[:PEOPLE_MAX]),
        last_joined=_bounded_or_none(entry.last_joined),
        last_synced=_bounded_or_none(entry.last_synced),
        leader=_bounded_or_none(entry.leader),
        protocol=None if entry.protocol is None else entry.protocol[:TEXT_LENGTH_MAX],
    )


def _bounded_cause(cause: Cause) -> Cause:
    return replace(cause, member=_bounded_or_none(cause.member), said=cause.said[:TEXT_LENGTH_MAX])


def _bounded_or_none(member: MemberRef | None) -> MemberRef | None:
    return None if member is None else _bounded_member(member)


def _bounded_member(member: MemberRef) -> MemberRef:
    return MemberRef(
        member_id=member.member_id[:TEXT_LENGTH_MAX],
        instance_id=None if member.instance_id is None else member.instance_id[:TEXT_LENGTH_MAX],
        client_id=member.client_id[:TEXT_LENGTH_MAX],
        client_host=member.client_host[:TEXT_LENGTH_MAX],
    )


# --- durations ------------------------------------------------------------------------------------------------


def duration_ms(rebalance: RebalanceCompleted) -> int:
    return max(0, rebalance.completed_at_ms - rebalance.started_at_ms)


def joining_ms(rebalance: RebalanceCompleted) -> int:
    """Until all members that were waited for had joined, or had gone."""
    ended_ms = rebalance.completed_at_ms if rebalance.join_ended_at_ms is None else rebalance.join_ended_at_ms
    return max(0, ended_ms - rebalance.started_at_ms)


def syncing_ms(rebalance: RebalanceCompleted) -> int:
    """From then until the leader's assignment was there."""
    return max(0, duration_ms(rebalance) - joining_ms(rebalance))


# --- the record -----------------------------------------------------------------------------------------------


def encode_key(group_id: str) -> bytes:
    return group_id.encode("utf-8", "surrogatepass")


def encode_history(history: GroupHistory) -> bytes:
    value = {
        "version": _VERSION,
        "group": history.group_id,
        "entries": [entry_fields(entry) for entry in history.entries],
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def decode_history(data: bytes) -> GroupHistory:
    """UnreadableHistory when the bytes are none."""
    try:
        value = json.loads(data.decode("utf-8", "surrogatepass"))
        group_id = str(value["group"])
        entries = [_entry(group_id, fields) for fields in value["entries"]]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise UnreadableHistory(f"not a group's history: {type(error).__name__}: {error}") from error
    return GroupHistory(group_id, tuple(entry for entry in entries if entry is not None)[-ENTRIES_MAX:])


def entry_fields(entry: HistoryEntry) -> dict[str, Any]:
    """For JSON: what is written, and what tools are shown."""
    if isinstance(entry, StaticMemberReplaced):
        return {
            "kind": _REPLACED,
            "at_ms": entry.at_ms,
            "generation": entry.generation,
            "instance_id": entry.instance_id,
            "old": _member_fields(entry.old),
            "new": _member_fields(entry.new),
        }
    return {
        "kind": _REBALANCE,
        "started_ms": entry.started_at_ms,
        "join_ended_ms": entry.join_ended_at_ms,
        "completed_ms": entry.completed_at_ms,
        "outcome": entry.outcome.name.lower(),
        "generation_before": entry.generation_before,
        "generation_after": entry.generation_after,
        "causes": [_cause_fields(cause) for cause in entry.causes],
        "causes_left_out": entry.causes_left_out,
        "members_before": entry.members_before,
        "members_after": entry.members_after,
        "joined": [_member_fields(member) for member in entry.joined],
        "left": [_member_fields(member) for member in entry.left],
        "last_joined": _member_fields(entry.last_joined),
        "last_synced": _member_fields(entry.last_synced),
        "leader": _member_fields(entry.leader),
        "protocol": entry.protocol,
    }


def _cause_fields(cause: Cause) -> dict[str, Any]:
    return {
        "reason": cause.reason.name.lower(),
        "at_ms": cause.at_ms,
        "member": _member_fields(cause.member),
        "said": cause.said,
        "since_ms": cause.since_ms,
    }


def _member_fields(member: MemberRef | None) -> dict[str, Any] | None:
    if member is None:
        return None
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
    }


def _entry(group_id: str, fields: Mapping[str, Any]) -> HistoryEntry | None:
    kind = fields.get("kind")
    if kind == _REBALANCE:
        return _rebalance(group_id, fields)
    if kind == _REPLACED:
        return StaticMemberReplaced(
            group_id=group_id,
            at_ms=int(fields["at_ms"]),
            generation=int(fields.get("generation", -1)),
            instance_id=str(fields.get("instance_id", "")),
            old=_member(fields.get("old") or {}),
            new=_member(fields.get("new") or {}),
        )
    return None


def _rebalance(group_id: str, fields: Mapping[str, Any]) -> RebalanceCompleted:
    started_ms = int(fields["started_ms"])
    protocol = fields.get("protocol")
    return RebalanceCompleted(
        group_id=group_id,
        started_at_ms=started_ms,
        join_ended_at_ms=_optional_number(fields.get("join_ended_ms")),
        completed_at_ms=int(fields.get("completed_ms", started_ms)),
        outcome=_choice(Outcome, fields.get("outcome")) or Outcome.STABLE,
        generation_before=int(fields.get("generation_before", -1)),
        generation_after=int(fields.get("generation_after", -1)),
        causes=tuple(_cause(cause, started_ms) for cause in fields.get("causes", ())),
        causes_left_out=int(fields.get("causes_left_out", 0)),
        members_before=int(fields.get("members_before", 0)),
        members_after=int(fields.get("members_after", 0)),
        joined=_members(fields.get("joined", ())),
        left=_members(fields.get("left", ())),
        last_joined=_member_or_none(fields.get("last_joined")),
        last_synced=_member_or_none(fields.get("last_synced")),
        leader=_member_or_none(fields.get("leader")),
        protocol=None if protocol is None else str(protocol),
    )


def _cause(fields: Mapping[str, Any], started_ms: TimestampMs) -> Cause:
    name = str(fields.get("reason", ""))
    reason = _choice(Reason, name)
    said = str(fields.get("said", ""))
    return Cause(
        # What an older reader cannot name it can still quote.
        reason=Reason.MEMBER_REJOINED if reason is None else reason,
        at_ms=int(fields.get("at_ms", started_ms)),
        member=_member_or_none(fields.get("member")),
        said=said if reason is not None else said or name.replace("_", " "),
        since_ms=_optional_number(fields.get("since_ms")),
    )


def _choice(kind: type[_Choice], name: object) -> _Choice | None:
    return kind.__members__.get(name.upper()) if isinstance(name, str) else None


def _members(values: Iterable[Mapping[str, Any]]) -> tuple[MemberRef, ...]:
    return tuple(_member(fields) for fields in values)


def _member_or_none(fields: Mapping[str, Any] | None) -> MemberRef | None:
    return None if fields is None else _member(fields)


def _member(fields: Mapping[str, Any]) -> MemberRef:
    instance_id = fields.get("instance_id")
    return MemberRef(
        member_id=str(fields.get("member_id", "")),
        instance_id=None if instance_id is None else str(instance_id),
        client_id=str(fields.get("client_id", "")),
        client_host=str(fields.get("client_host", "")),
    )


def _optional_number(value: Any) -> int | None:
    return None if value is None else int(value)
