"""What is asked of a group and what it answers: the requests' contents without their encoding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.groups.protocols import Protocols
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode

NO_GENERATION: Final = -1
UNKNOWN_MEMBER_ID: Final = ""
"""What a client sends that has no member id yet."""
CLASSIC_GROUP_TYPE: Final = "classic"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member_id: bool
    """Version 4 and up: a new member first gets an id and joins with it (KIP-394)."""
    supports_skipping_assignment: bool
    """Version 9 and up: a returning static leader can be told to skip the assignment (KIP-814)."""
    reason: str = ""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """`members` is for the leader, who assigns; empty for all others."""

    error: ErrorCode
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    member_id: str = UNKNOWN_MEMBER_ID
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class SyncResult:
    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None
    reason: str | None = None


class LeftMember(NamedTuple):
    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveResult:
    error: ErrorCode
    members: Sequence[LeftMember]


class OffsetToCommit(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class MemberDescription(NamedTuple):
    """`metadata` is empty while the group is not stable; `assignment` is the last one that it was given."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: Sequence[MemberDescription]


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: GroupState
    group_type: str = CLASSIC_GROUP_TYPE
