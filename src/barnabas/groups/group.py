"""One group: its members, who of them waits for what, its committed offsets, and what the log says of it.

Pure book-keeping; the rules are in `join`, `sync`, `leave`, `rebalance` and `offsets`. Two kinds of state:

- **durable**: `durable` (the last group record below the high watermark) and `offsets`. They change in
  `apply_metadata` and `apply_offset` alone, which are called for replayed and for newly committed records alike;
- **soft**: all else. It is lost with the coordinator, and rebuilt from `durable` by `restore`.

Invariants (`check_invariants`): the leader is a member; every static member is a member; only members wait for a join
or a sync; nobody waits for a join but in PreparingRebalance, or for a sync but in CompletingRebalance; the ballots
count exactly the members.
"""

from collections.abc import Collection, Iterator
from typing import Final

from barnabas.base.ids import NO_TIMESTAMP
from barnabas.groups.account import RebalanceAccount
from barnabas.groups.effects import Effects, MemberRef, TimerKey, TimerKind, Token
from barnabas.groups.member import Member
from barnabas.groups.protocols import CONSUMER_PROTOCOL_TYPE, Ballots, Protocols, subscribed_topics
from barnabas.groups.records import GroupMetadata, MemberMetadata, OffsetChange, offset_key_prefix
from barnabas.groups.requests import JoinedMember
from barnabas.groups.transitions import ALLOWED, GroupState
from barnabas.wire.errors import ErrorCode

GENERATION_MAX: Final = 2**31 - 1


class Group:
    __slots__ = (
        "_counts",
        "account",
        "assignment_in_flight",
        "ballots",
        "durable",
        "generation",
        "group_id",
        "has_new_member",
        "in_flight",
        "initial_delay_ms",
        "initial_remaining_ms",
        "is_buried",
        "is_initial_rebalance",
        "joining",
        "key_prefixes",
        "leader",
        "members",
        "offsets",
        "pending",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_ids",
        "subscribed",
        "syncing",
        "unsynced",
    )

    def __init__(self, group_id: str, now_ms: int | None, counts: dict[GroupState, int]) -> None:
        self.group_id = group_id
        self.durable: GroupMetadata | None = None
        self.offsets: dict[str, dict[int, bytes]] = {}
        """By topic and partition, each as `records.encode_offset` writes it."""
        self.is_buried = False
        """The last word of the log on the group itself is a tombstone."""

        self.state = GroupState.EMPTY
        self.state_timestamp_ms = now_ms
        """Since when it is in this state; None when the log does not say."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.subscribed: frozenset[str] | None = None
        """Topics that the members read; None when they cannot be known."""
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """The member id of each instance id."""
        self.pending: set[str] = set()
        """Ids that were given out, and whose owners are yet to join with them."""
        self.joining: dict[str, Token] = {}
        self.syncing: dict[str, Token] = {}
        self.unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.assignment_in_flight = False
        """The leader's assignment is on its way into the log."""
        self.ballots = Ballots()
        self.is_initial_rebalance = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        self.has_new_member = False
        self.account: RebalanceAccount | None = None
        self.in_flight: dict[int, Effects] = {}
        """Records of this group that are appended, but not yet known to be committed."""
        self.key_prefixes: dict[str, bytes] = {}
        """The beginning of an offset's key by topic: most of the work of making one."""
        self._counts = counts
        counts[self.state] += 1

    # --- state ----------------------------------------------------------------------------------------------

    def move_to(self, state: GroupState, now_ms: int) -> None:
        assert (self.state, state) in ALLOWED, f"{self.group_id}: {self.state} to {state}"
        self._counts[self.state] -= 1
        self._counts[state] += 1
        self.state = state
        self.state_timestamp_ms = now_ms

    def forget(self) -> None:
        """The group is removed: it does not count any more."""
        assert (self.state, GroupState.DEAD) in ALLOWED
        self._counts[self.state] -= 1
        self.state = GroupState.DEAD

    @property
    def is_unused(self) -> bool:
        """Neither members nor offsets, nothing in the log and nothing on its way there."""
        return (
            self.state is GroupState.EMPTY
            and not self.pending
            and not self.offsets
            and self.durable is None
            and not self.in_flight
        )

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def next_generation(self) -> None:
        self.generation = self.generation + 1 if self.generation < GENERATION_MAX else 0

    def timer(self, kind: TimerKind) -> TimerKey:
        return TimerKey(kind, self.group_id)

    # --- members --------------------------------------------------------------------------------------------

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Why a request of this member is refused; None when it is one of the group's."""
        if instance_id is not None:
            known_id = self.static_ids.get(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in this group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and self.ballots.know_one_of(name for name, _ in protocols)

    def add(self, member: Member, protocol_type: str) -> None:
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        self.ballots.add(member.protocols)
        self.pending.discard(member.member_id)

    def remove(self, member: Member) -> None:
        """Takes a member out. Its waiting requests are the caller's."""
        member_id = member.member_id
        del self.members[member_id]
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        self.ballots.remove(member.protocols)
        self.unsynced.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace_id(self, member: Member, new_member_id: str) -> None:
        """A static member came back: the same member, but under a new id."""
        assert member.instance_id is not None
        old_member_id = member.member_id
        del self.members[old_member_id]
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_ids[member.instance_id] = new_member_id
        if old_member_id in self.unsynced:
            self.unsynced.remove(old_member_id)
            self.unsynced.add(new_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id

    def change_protocols(self, member: Member, protocols: Protocols) -> None:
        if protocols != member.protocols:
            self.ballots.remove(member.protocols)
            member.protocols = protocols
            self.ballots.add(protocols)

    def ref_of(self, member_id: str | None) -> MemberRef | None:
        member = self.members.get(member_id) if member_id is not None else None
        return member.ref if member is not None else None

    @property
    def has_all_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member's. Looks at all of them, so it is asked once in a phase."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        protocol = self.protocol
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata_for(protocol))
            for member in self.members.values()
        )

    def find_subscribed(self) -> None:
        """Looks up which topics the members read."""
        if not self.is_consumer_group:
            self.subscribed = None
        elif not self.members:
            self.subscribed = frozenset()
        elif self.protocol is None:
            self.subscribed = None
        else:
            protocol = self.protocol
            self.subscribed = subscribed_topics(member.metadata_for(protocol) for member in self.members.values())

    def is_subscribed_to(self, topic: str) -> bool:
        """When it cannot be known, a consumer group may read any topic."""
        return topic in self.subscribed if self.subscribed is not None else self.is_consumer_group

    # --- what the log says ----------------------------------------------------------------------------------

    def apply_metadata(self, value: GroupMetadata | None) -> None:
        self.durable = value
        self.is_buried = value is None

    def apply_offset(self, topic: str, partition: int, value: bytes | None) -> None:
        if value is not None:
            partitions = self.offsets.get(topic)
            if partitions is None:
                partitions = self.offsets[topic] = {}
            partitions[partition] = value
            self.is_buried = False
            return
        partitions = self.offsets.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self.offsets[topic]
                self.key_prefixes.pop(topic, None)

    def apply_offsets(self, topic: str, offsets: dict[int, bytes]) -> None:
        """Many commits of one topic. The dictionary is the group's from then on."""
        assert offsets
        partitions = self.offsets.setdefault(topic, offsets)
        if partitions is not offsets:
            partitions.update(offsets)
        self.is_buried = False

    def key_prefix(self, topic: str) -> bytes:
        prefix = self.key_prefixes.get(topic)
        if prefix is None:
            prefix = self.key_prefixes[topic] = offset_key_prefix(self.group_id, topic)
        return prefix

    def offset_keys(self, topics: Collection[str] | None = None) -> Iterator[tuple[str, int]]:
        """Every partition (of these topics, or of all) with an offset in the log, committed or only appended."""
        for topic, partitions in self.offsets.items():
            if topics is None or topic in topics:
                for partition in partitions:
                    yield topic, partition
        seen: set[tuple[str, int]] = set()
        for effects in self.in_flight.values():
            for record in effects.records:
                change = record.change
                if not isinstance(change, OffsetChange) or (topics is not None and change.topic not in topics):
                    continue
                topic_partition = (change.topic, change.partition)
                if topic_partition not in seen and change.partition not in self.offsets.get(change.topic, ()):
                    seen.add(topic_partition)
                    yield topic_partition

    def coming_offsets(self) -> dict[tuple[str, int], bytes | None]:
        """What was appended, and is not committed yet: the last value of each partition, None for a tombstone."""
        coming = {}
        for effects in self.in_flight.values():
            for record in effects.records:
                if isinstance(record.change, OffsetChange):
                    coming[record.change.topic, record.change.partition] = record.change.value
        return coming

    def metadata(self, assignments: dict[str, bytes]) -> GroupMetadata:
        """The group as it is now, as a value for the log."""
        protocol = self.protocol
        members = tuple(
            MemberMetadata(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata_for(protocol),
                assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        timestamp_ms = NO_TIMESTAMP if self.state_timestamp_ms is None else self.state_timestamp_ms
        return GroupMetadata(self.protocol_type or "", self.generation, protocol, self.leader, timestamp_ms, members)

    def restore(self) -> None:
        """Goes on where the log says that the group was, after loading."""
        value = self.durable
        assert value is not None
        assert self.state is GroupState.EMPTY
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.state_timestamp_ms = None if value.state_timestamp_ms == NO_TIMESTAMP else value.state_timestamp_ms
        for stored in value.members:
            if stored.member_id in self.members or stored.instance_id in self.static_ids:
                continue  # no coordinator writes one twice, but the log is not ours to trust
            member = Member(
                stored.member_id,
                stored.instance_id,
                stored.client_id,
                stored.client_host,
                stored.rebalance_timeout_ms,
                stored.session_timeout_ms,
                ((value.protocol or "", stored.subscription),),
                stored.assignment,
            )
            self.add(member, value.protocol_type)
        if self.members:
            self.leader = value.leader if value.leader in self.members else next(iter(self.members))
            self._counts[self.state] -= 1
            self.state = GroupState.STABLE  # not a transition: it is what the group was all the time
            self._counts[self.state] += 1
        self.find_subscribed()

    # --- checks ---------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        members = self.members.keys()
        assert (self.leader in members) if members else self.leader is None
        assert all(self.members[member_id].instance_id == instance for instance, member_id in self.static_ids.items())
        assert len(self.static_ids) == sum(member.instance_id is not None for member in self.members.values())
        assert self.joining.keys() <= members
        assert self.syncing.keys() <= members
        assert self.unsynced <= members
        assert not self.joining or self.state is GroupState.PREPARING_REBALANCE
        assert not self.syncing or self.state is GroupState.COMPLETING_REBALANCE
        assert not self.pending & members
        assert self.ballots.member_count == len(self.members)
        assert bool(members) or self.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)
        assert not members or self.state is not GroupState.EMPTY
        assert (self.account is not None) == (
            self.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
        )
