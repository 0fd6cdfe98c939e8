"""What a step of the group state machine asks of the world: records, replies, timers, and events for the story.

Pure data. A call on `state.GroupShardState` returns `Effects`; the caller carries them out:

- `timers` and `events` take effect at once;
- `records` are appended together and in order. When they are below the high watermark, the caller calls
  `GroupShardState.committed`, which changes the durable state and may return further effects;
- `replies` are sent at once when there are no records, and otherwise after `committed`.

A reply's token is the driver's own object: the state keeps it and hands it back exactly once, or gives it up in
`GroupShardState.abandon`.
"""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from barnabas.groups.records import DurableChange

if TYPE_CHECKING:
    from barnabas.groups.group import Group

Token: TypeAlias = object

CAUSES_MAX: Final = 20
MEMBERS_MAX: Final = 50
"""A rebalance of ten thousand members is reported by its first few and by counts."""


# --- what to do -------------------------------------------------------------------------------------------


class DurableRecord(NamedTuple):
    """A record of `__consumer_offsets`, and the same as a value: what replaying the bytes would give."""

    key: bytes
    value: bytes | None
    change: DurableChange


class Reply(NamedTuple):
    token: Token
    result: object


class TimerKind(IntEnum):
    SESSION = 1
    """A member, or one that was only given an id, was silent for its session timeout."""
    JOIN = 2
    """The time for joining is over."""
    SYNC = 3
    """The time for asking for the assignment is over."""


class TimerKey(NamedTuple):
    kind: TimerKind
    group_id: str
    member_id: str = ""


class SetTimer(NamedTuple):
    """Replaces a timer with the same key."""

    key: TimerKey
    delay_ms: int


class CancelTimer(NamedTuple):
    """Does nothing when there is no such timer."""

    key: TimerKey


class AssignmentWritten(NamedTuple):
    """These records hold the assignment of a generation; once committed, the members get it."""

    group: "Group"
    generation: int
    assignments: dict[str, bytes]


class MembershipWritten(NamedTuple):
    """These records hold a static member's new id, already in force."""

    group: "Group"


Continuation: TypeAlias = AssignmentWritten | MembershipWritten


@dataclass(slots=True, eq=False)
class Effects:
    records: list[DurableRecord] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    events: "list[StoryEvent]" = field(default_factory=list)
    continuation: Continuation | None = None
    """For `GroupShardState.committed` and `refused` alone."""
    groups: "tuple[Group, ...]" = ()
    """Groups that these records are in flight for; the state's own book-keeping."""


# --- the story --------------------------------------------------------------------------------------------


class Reason(StrEnum):
    """Why a group rebalanced."""

    MEMBER_JOINED = "member_joined"
    MEMBER_LEFT = "member_left"
    HEARTBEAT_MISSED = "heartbeat_missed"
    METADATA_CHANGED = "metadata_changed"
    LEADER_REJOINED = "leader_rejoined"
    """Also how changed partitions of a topic show: the leader sees them and joins again."""
    STATIC_MEMBER_REPLACED = "static_member_replaced"
    MEMBER_REJOINED = "member_rejoined"
    JOIN_MISSED = "join_missed"
    SYNC_MISSED = "sync_missed"
    OVER_CAPACITY = "over_capacity"
    WRITE_REFUSED = "write_refused"


class Outcome(StrEnum):
    """How a rebalance ended."""

    STABLE = "stable"
    EMPTY = "empty"
    INTERRUPTED = "interrupted"
    """Another rebalance began before the members had their assignment."""


class MemberRef(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class Cause:
    reason: Reason
    at_ms: int
    member: MemberRef | None = None
    said: str = ""
    """The reason that the client itself gave."""
    since_ms: int | None = None
    """When a member was last seen, if its silence is the cause."""


@dataclass(frozen=True, slots=True)
class RebalanceStarted:
    group_id: str
    at_ms: int
    generation: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class JoinPhaseEnded:
    group_id: str
    at_ms: int
    generation: int
    protocol: str
    leader: MemberRef
    member_count: int
    last_joined: MemberRef | None


@dataclass(frozen=True, slots=True)
class RebalanceCompleted:
    """A whole rebalance. `joined` and `left` hold the first `MEMBERS_MAX` each, `causes` the first `CAUSES_MAX`."""

    group_id: str
    started_at_ms: int
    join_ended_at_ms: int | None
    completed_at_ms: int
    outcome: Outcome
    generation_before: int
    generation_after: int
    causes: tuple[Cause, ...]
    causes_left_out: int
    members_before: int
    members_after: int
    joined: tuple[MemberRef, ...]
    left: tuple[MemberRef, ...]
    last_joined: MemberRef | None
    last_synced: MemberRef | None
    leader: MemberRef | None
    protocol: str | None


@dataclass(frozen=True, slots=True)
class StaticMemberReplaced:
    """A static member came back under a new id, and nothing else changed: no rebalance."""

    group_id: str
    at_ms: int
    generation: int
    instance_id: str
    old: MemberRef
    new: MemberRef


StoryEvent: TypeAlias = RebalanceStarted | JoinPhaseEnded | RebalanceCompleted | StaticMemberReplaced
