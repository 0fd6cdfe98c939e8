"""The assignors: who gets what, that it is fair, that it stays, and that other clients understand the bytes."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import TopicPartition
from barnabas.client.group.assignors import (
    ASSIGNORS,
    Assignments,
    CooperativeStickyAssignor,
    JoinedMember,
    PartitionCounts,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    assignors_named,
)
from barnabas.client.group.consumer_protocol import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.wire.errors import MalformedMessage

OWNED = (TopicPartition("s", 0), TopicPartition("t", 0), TopicPartition("t", 1))
SUBSCRIPTION = MemberSubscription(("s", "t"), b"\x01\x02", OWNED, 7, "r")
JAVA_SUBSCRIPTIONS = {
    0: "000000000002000173000174000000020102",
    1: "000100000002000173000174000000020102000000020001730000000100000000000174000000020000000000000001",
    2: "00020000000200017300017400000002010200000002000173000000010000000000017400000002000000000000000100000007",
    3: "00030000000200017300017400000002010200000002000173000000010000000000017400000002000000000000000100000007000172",
}
"""What Kafka's Java client writes for the subscription above."""
JAVA_ASSIGNMENT = "0003000000020001730000000100000000000174000000020000000000000001ffffffff"
JAVA_STICKY_USER_DATA = "00000002000173000000010000000000017400000002000000000000000100000007"

topic_counts = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 9), min_size=1)
member_ids = st.lists(st.sampled_from([f"m{number}" for number in range(8)]), min_size=1, unique=True)


def members_of(ids: list[str], topics: tuple[str, ...]) -> list[JoinedMember]:
    return [JoinedMember(member_id, None, MemberSubscription(topics)) for member_id in ids]


@st.composite
def mixed_members(draw: st.DrawFn) -> list[JoinedMember]:
    """Members that do not all want the same, some of them topics that nobody made."""
    wanted = st.sets(st.sampled_from(["a", "b", "c", "d", "missing"]), max_size=4)
    return [JoinedMember(member_id, None, MemberSubscription(tuple(draw(wanted)))) for member_id in draw(member_ids)]


def holding(members: list[JoinedMember], held: Assignments, generation: int) -> list[JoinedMember]:
    """The members as they join again with what they have, for both sticky assignors."""
    joined = []
    for member in members:
        owned = tuple(held.get(member.member_id, ()))
        user_data = StickyAssignor().user_data(owned, generation)
        subscription = MemberSubscription(member.subscription.topics, user_data, owned, generation if owned else -1)
        joined.append(JoinedMember(member.member_id, member.instance_id, subscription))
    return joined


def assert_complete(assigned: Assignments, counts: PartitionCounts, members: list[JoinedMember]) -> None:
    """Every partition that somebody wants has one owner, who wants it."""
    topics = {member.member_id: member.subscription.topics for member in members}
    assert assigned.keys() == topics.keys()
    for member_id, partitions in assigned.items():
        assert all(partition.topic in topics[member_id] for partition in partitions)
    wanted = {topic for subscribed in topics.values() for topic in subscribed}
    everything = Counter(
        TopicPartition(name, i) for name, size in counts.items() if name in wanted for i in range(size)
    )
    assert Counter(partition for partitions in assigned.values() for partition in partitions) == everything


def numbers(assigned: Assignments) -> dict[str, list[str]]:
    return {member_id: [str(partition) for partition in owned] for member_id, owned in assigned.items()}


# --- bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", JAVA_SUBSCRIPTIONS)
def test_subscription_of_java_in_each_version_is_read(version: int) -> None:
    read = decode_subscription(bytes.fromhex(JAVA_SUBSCRIPTIONS[version]))
    assert (read.topics, read.user_data) == (("s", "t"), b"\x01\x02")
    assert read.owned == (OWNED if version >= 1 else ())
    assert read.generation == (7 if version >= 2 else -1)
    assert read.rack == ("r" if version >= 3 else None)


def test_written_bytes_are_those_of_java() -> None:
    assert encode_subscription(SUBSCRIPTION).hex() == JAVA_SUBSCRIPTIONS[3]
    assert encode_assignment(reversed(OWNED)).hex() == JAVA_ASSIGNMENT
    sticky = StickyAssignor().user_data(OWNED, 7)
    assert sticky is not None
    assert sticky.hex() == JAVA_STICKY_USER_DATA
    assert CooperativeStickyAssignor().user_data(OWNED, 7) == b"\x00\x00\x00\x07"


def test_subscription_of_a_newer_version_is_read_as_the_newest_known() -> None:
    newer = b"\x00\x09" + encode_subscription(SUBSCRIPTION)[2:] + b"more"
    assert decode_subscription(newer) == SUBSCRIPTION


def test_assignment_of_nobody_is_empty() -> None:
    assert decode_assignment(b"") == ()
    assert decode_assignment(encode_assignment(())) == ()


@given(st.binary(max_size=60))
def test_unreadable_bytes_raise_malformed(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(data)
        except MalformedMessage:
            continue


@given(st.binary(max_size=60))
def test_unreadable_user_data_counts_as_nothing_held(data: bytes) -> None:
    member = JoinedMember("m", None, MemberSubscription(("t",), data))
    assert len(StickyAssignor().assign({"t": 3}, [member])["m"]) == 3


# --- range and round robin ------------------------------------------------------------------------------------------


def test_range_gives_each_reader_a_stretch_of_each_topic() -> None:
    assigned = RangeAssignor().assign({"s": 3, "t": 3}, members_of(["b", "a"], ("s", "t")))
    assert numbers(assigned) == {"b": ["s-2", "t-2"], "a": ["s-0", "s-1", "t-0", "t-1"]}


def test_range_puts_static_members_first_by_instance() -> None:
    members = [
        JoinedMember("a", None, MemberSubscription(("t",))),
        JoinedMember("z", "two", MemberSubscription(("t",))),
        JoinedMember("y", "three", MemberSubscription(("t",))),
    ]
    assert numbers(RangeAssignor().assign({"t": 3}, members)) == {"a": ["t-2"], "z": ["t-1"], "y": ["t-0"]}


def test_round_robin_passes_over_those_who_do_not_subscribe() -> None:
    members = [
        JoinedMember("a", None, MemberSubscription(("s",))),
        JoinedMember("b", None, MemberSubscription(("s", "t"))),
        JoinedMember("c", None, MemberSubscription(("s", "t"))),
    ]
    assigned = RoundRobinAssignor().assign({"s": 1, "t": 3}, members)
    assert numbers(assigned) == {"a": ["s-0"], "b": ["t-0", "t-2"], "c": ["t-1"]}


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(counts=topic_counts, members=mixed_members())
def test_every_wanted_partition_has_exactly_one_owner_who_wants_it(
    name: str, counts: dict[str, int], members: list[JoinedMember]
) -> None:
    assert_complete(ASSIGNORS[name].assign(counts, members), counts, members)


@pytest.mark.parametrize("name", list(ASSIGNORS))
@given(counts=topic_counts, members=mixed_members(), randoms=st.randoms())
def test_order_of_the_members_does_not_matter(
    name: str, counts: dict[str, int], members: list[JoinedMember], randoms: Random
) -> None:
    expected = ASSIGNORS[name].assign(counts, members)
    shuffled = list(members)
    randoms.shuffle(shuffled)
    assert ASSIGNORS[name].assign(counts, shuffled) == expected


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "cooperative-sticky"])
@given(counts=topic_counts, ids=member_ids)
def test_members_who_want_the_same_differ_by_one_at_most(name: str, counts: dict[str, int], ids: list[str]) -> None:
    assigned = ASSIGNORS[name].assign(counts, members_of(ids, tuple(counts)))
    sizes = [len(partitions) for partitions in assigned.values()]
    assert max(sizes) - min(sizes) <= 1


def test_unknown_assignor_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        InvalidSetting, match="'fair'; known assignors are range, roundrobin, sticky, cooperative-sticky"
    ):
        assignors_named(["range", "fair"])
    with pytest.raises(InvalidSetting):
        assignors_named([])


# --- sticky ---------------------------------------------------------------------------------------------------------


@given(counts=topic_counts, members=mixed_members())
def test_sticky_leaves_no_member_with_two_more_than_one_who_could_take_it(
    counts: dict[str, int], members: list[JoinedMember]
) -> None:
    assigned = StickyAssignor().assign(counts, members)
    for giver, partitions in assigned.items():
        for taker in members:
            could_take = [one for one in partitions if one.topic in taker.subscription.topics]
            assert not could_take or len(assigned[giver]) <= len(assigned[taker.member_id]) + 1


def test_sticky_balances_through_a_chain_of_members() -> None:
    members = [
        JoinedMember("a", None, MemberSubscription(("s",))),
        JoinedMember("b", None, MemberSubscription(("s", "t"))),
        JoinedMember("c", None, MemberSubscription(("t",))),
    ]
    held = {
        "a": [TopicPartition("s", index) for index in range(3)],
        "b": [TopicPartition("t", 0), TopicPartition("t", 1)],
        "c": [TopicPartition("t", 2)],
    }
    assigned = StickyAssignor().assign({"s": 3, "t": 3}, holding(members, held, 1))
    assert [len(partitions) for partitions in assigned.values()] == [2, 2, 2]


@given(counts=topic_counts, members=mixed_members())
def test_sticky_with_nothing_changed_changes_nothing(counts: dict[str, int], members: list[JoinedMember]) -> None:
    held = StickyAssignor().assign(counts, members)
    again = holding(members, held, 5)
    assert StickyAssignor().assign(counts, again) == held
    assert CooperativeStickyAssignor().assign(counts, again) == held


@given(counts=topic_counts, ids=member_ids)
def test_sticky_moves_nothing_between_those_who_stay_when_a_member_goes(counts: dict[str, int], ids: list[str]) -> None:
    members = members_of(ids, tuple(counts))
    held = StickyAssignor().assign(counts, members)
    staying = holding(members[1:], held, 5)
    assigned = StickyAssignor().assign(counts, staying)
    for member in staying:
        assert set(held[member.member_id]) <= set(assigned[member.member_id])


@given(counts=topic_counts, ids=member_ids)
def test_sticky_moves_only_to_the_one_who_comes(counts: dict[str, int], ids: list[str]) -> None:
    members = members_of(ids, tuple(counts))
    held = StickyAssignor().assign(counts, members)
    newcomer = JoinedMember("new", None, MemberSubscription(tuple(counts)))
    assigned = StickyAssignor().assign(counts, [*holding(members, held, 5), newcomer])
    for member in members:
        assert set(assigned[member.member_id]) <= set(held[member.member_id])


def test_sticky_believes_the_newest_generation() -> None:
    old = JoinedMember("old", None, MemberSubscription(("t",), StickyAssignor().user_data(OWNED[1:], 3)))
    new = JoinedMember("new", None, MemberSubscription(("t",), StickyAssignor().user_data(OWNED[1:2], 4)))
    assert numbers(StickyAssignor().assign({"t": 2}, [old, new])) == {"new": ["t-0"], "old": ["t-1"]}


@settings(deadline=None)
@given(
    counts=topic_counts,
    first=mixed_members(),
    second=mixed_members(),
)
def test_cooperative_rebalances_end_with_everything_assigned_and_never_two_owners(
    counts: dict[str, int], first: list[JoinedMember], second: list[JoinedMember]
) -> None:
    """Members and subscriptions change; then they rebalance until nobody has to give anything up."""
    assignor = CooperativeStickyAssignor()
    held = assignor.assign(counts, first)
    held = {member.member_id: held.get(member.member_id, []) for member in second}
    for generation in range(2, 6):
        assigned = assignor.assign(counts, holding(second, held, generation))
        everything = Counter(one for partitions in assigned.values() for one in partitions)
        assert max(everything.values(), default=1) == 1
        for member_id, partitions in assigned.items():
            others = {one for other, owned in held.items() if other != member_id for one in owned}
            assert not others & set(partitions), "still read by another"
        if assigned == held:
            break
        held = assigned
    assert_complete(held, counts, second)
