"""Who reads which partitions: the leader of a group decides for all its members, by the assignor they agreed on. Pure.

| name | what it does | a rebalance |
|---|---|---|
| range | each topic is cut into one stretch for each of its readers; topics of one size are cut alike | eager |
| roundrobin | all partitions are dealt out one by one | eager |
| sticky | balanced, and everybody keeps as much as possible | eager |
| cooperative-sticky | the same, and what is kept is read on all the time | cooperative |

Names and bytes are those of Kafka's Java client and of librdkafka, so that members of all of them share a group: it
does not matter who is the leader. Racks are not looked at.

*Eager*: every member gives up all its partitions before a rebalance. *Cooperative*: every member keeps reading; a
partition that must move is first assigned to no one, its owner revokes it and joins again, and the second rebalance
assigns it to its new owner.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final, Protocol, TypeAlias

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import TopicPartition
from barnabas.client.group.consumer_protocol import NO_GENERATION, MemberSubscription, by_topic
from barnabas.client.group.sticky import Claim, assign_sticky
from barnabas.wire.primitives import INT32, UNREADABLE, array_count, nullable_string, read_count, read_string

PartitionCounts: TypeAlias = Mapping[str, int]
"""How many partitions a topic has. One that is not there does not exist."""
Assignments: TypeAlias = dict[str, list[TopicPartition]]
"""By member id, everybody included."""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    subscription: MemberSubscription

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, by their instance ids: so they get the same again when they come back."""
        return (self.instance_id is None, self.instance_id or self.member_id)


class Assignor(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool: ...

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        """What a member tells the leader besides its subscription. `owned` is what it had last, given up or not."""
        ...

    def assign(self, counts: PartitionCounts, members: Sequence[JoinedMember]) -> Assignments: ...


class RangeAssignor:
    name: Final = "range"
    is_cooperative: Final = False

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(self, counts: PartitionCounts, members: Sequence[JoinedMember]) -> Assignments:
        assigned: Assignments = {member.member_id: [] for member in members}
        for topic, readers in _readers(counts, members).items():
            size, larger = divmod(counts[topic], len(readers))
            first = 0
            for number, member in enumerate(readers):
                end = first + size + (number < larger)
                assigned[member.member_id] += (TopicPartition(topic, index) for index in range(first, end))
                first = end
        return assigned


class RoundRobinAssignor:
    name: Final = "roundrobin"
    is_cooperative: Final = False

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(self, counts: PartitionCounts, members: Sequence[JoinedMember]) -> Assignments:
        assigned: Assignments = {member.member_id: [] for member in members}
        turns = cycle(sorted(members, key=lambda member: member.order))
        for topic in _readers(counts, members):
            for index in range(counts[topic]):
                reader = next(member for member in turns if topic in member.subscription.topics)
                assigned[reader.member_id].append(TopicPartition(topic, index))
        return assigned


class StickyAssignor:
    """What members had is in their user data, because they gave it up before they joined."""

    name: Final = "sticky"
    is_cooperative: Final = False

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        if not owned:
            return None
        topics = by_topic(owned)
        pieces = [array_count(len(topics), is_compact=False)]
        for topic, indexes in topics.items():
            pieces += (nullable_string(topic, is_compact=False), array_count(len(indexes), is_compact=False))
            pieces += map(INT32.pack, indexes)
        return b"".join([*pieces, INT32.pack(generation)])

    def assign(self, counts: PartitionCounts, members: Sequence[JoinedMember]) -> Assignments:
        return _assign_sticky(counts, [(member, _previous(member.subscription.user_data)) for member in members])


class CooperativeStickyAssignor:
    name: Final = "cooperative-sticky"
    is_cooperative: Final = True

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        return INT32.pack(generation)

    def assign(self, counts: PartitionCounts, members: Sequence[JoinedMember]) -> Assignments:
        claims = [(member, Claim(member.subscription.owned, _generation(member.subscription))) for member in members]
        return _without_moving(_assign_sticky(counts, claims), members)


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}


def assignors_named(names: Sequence[str]) -> list[Assignor]:
    """InvalidSetting for a name that is none of them."""
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        known = ", ".join(ASSIGNORS)
        raise InvalidSetting(
            f"no such assignor: {', '.join(map(repr, unknown)) or 'none is given'}; known assignors are {known}"
        )
    return [ASSIGNORS[name] for name in names]


def _readers(counts: PartitionCounts, members: Sequence[JoinedMember]) -> dict[str, list[JoinedMember]]:
    """Who subscribes to each topic that exists, in the order of the members; topics by name."""
    readers: dict[str, list[JoinedMember]] = {}
    for member in sorted(members, key=lambda member: member.order):
        for topic in set(member.subscription.topics):
            if counts.get(topic):
                readers.setdefault(topic, []).append(member)
    return dict(sorted(readers.items()))


def _assign_sticky(counts: PartitionCounts, claims: Sequence[tuple[JoinedMember, Claim]]) -> Assignments:
    members = sorted(claims, key=lambda claim: claim[0].order)
    topics = {member.member_id: frozenset(member.subscription.topics) for member, _ in members}
    return assign_sticky(counts, topics, {member.member_id: claim for member, claim in members})


def _without_moving(assigned: Assignments, members: Sequence[JoinedMember]) -> Assignments:
    """Leaves out what another member still reads: it has to let it go first."""
    owners: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.subscription.owned:
            owners.setdefault(partition, set()).add(member.member_id)
    return {
        member_id: [one for one in partitions if member_id in owners.get(one, {member_id})]
        for member_id, partitions in assigned.items()
    }


def _generation(subscription: MemberSubscription) -> int:
    """Older clients tell it only in their user data."""
    user_data = subscription.user_data or b""
    if subscription.generation == NO_GENERATION and len(user_data) >= INT32.size:
        return int(INT32.unpack_from(user_data, len(user_data) - INT32.size)[0])
    return subscription.generation


def _previous(user_data: bytes | None) -> Claim:
    """What a member had by its user data; nothing when that cannot be read, as it is only a wish."""
    data = user_data or b""
    owned: list[TopicPartition] = []
    try:
        count, position = read_count(data, 0, is_compact=False)
        for _ in range(count):
            topic, position = read_string(data, position, is_compact=False)
            partitions, position = read_count(data, position, is_compact=False)
            for _ in range(partitions):
                owned.append(TopicPartition(topic, INT32.unpack_from(data, position)[0]))
                position += INT32.size
        has_generation = len(data) >= position + INT32.size  # the first version of the format has none
        return Claim(tuple(owned), INT32.unpack_from(data, position)[0] if has_generation else NO_GENERATION)
    except UNREADABLE:
        return Claim((), NO_GENERATION)
