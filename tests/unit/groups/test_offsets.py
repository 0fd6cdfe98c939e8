"""Committed offsets: who may commit, what is read back, what is deleted, and what expires."""

import pytest

from barnabas.base.uuid import ZERO_UUID, parse_uuid
from barnabas.groups.protocols import Protocols
from barnabas.groups.requests import GroupListing, LeavingMember, OffsetToCommit
from barnabas.groups.settings import GroupSettings
from barnabas.groups.state import GroupShardState
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.group_shard import PlayedShard, subscription

WHERE = ("orders", 0)
ELSEWHERE = ("bills", 0)
RETENTION_MS = 50_000
TOPIC_ID = parse_uuid("AAECAwQFBgcICQoLDA0ODw")
OTHER_ID = parse_uuid("BBECAwQFBgcICQoLDA0ODw")


@pytest.fixture
def shard() -> PlayedShard:
    return PlayedShard(GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=RETENTION_MS))


def refused(shard: PlayedShard, group_id: str = "g", **options: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        shard.commit(group_id, {WHERE: 1}, **options)
    return caught.value.code


def deleted(shard: PlayedShard, *partitions: tuple[str, int]) -> list[ErrorCode]:
    token = shard.new_token()
    shard.carry_out(shard.state.delete_offsets("g", partitions, token))
    errors: list[ErrorCode] = shard.replies[token]
    return errors


# --- commit -----------------------------------------------------------------------------------------------


def test_simple_commit_makes_a_group_and_is_read_back(shard: PlayedShard) -> None:
    assert shard.commit("g", {WHERE: 7, ELSEWHERE: 8}) == [ErrorCode.NONE, ErrorCode.NONE]
    assert (shard.offset("g", *WHERE), shard.offset("g", *ELSEWHERE)) == (7, 8)
    assert shard.state_of("g") is GroupState.EMPTY
    assert list(shard.state.list_groups()) == [GroupListing("g", "", GroupState.EMPTY)]


def test_commit_is_not_read_before_it_is_in_the_log(shard: PlayedShard) -> None:
    shard.holds_appends = True
    token = shard.send_commit("g", {WHERE: 7})
    assert shard.offset("g", *WHERE) is None
    assert token not in shard.replies
    shard.commit_appended()
    assert shard.offset("g", *WHERE) == 7


def test_commit_lost_with_its_append_was_never_there(shard: PlayedShard) -> None:
    shard.commit("g", {WHERE: 7})
    shard.holds_appends = True
    token = shard.send_commit("g", {WHERE: 8})
    shard.restart()
    assert shard.replies[token] is ErrorCode.NOT_COORDINATOR
    assert shard.offset("g", *WHERE) == 7


def test_refused_commit_of_a_new_group_leaves_no_group(shard: PlayedShard) -> None:
    shard.holds_appends = True
    shard.send_commit("g", {WHERE: 8})
    shard.refuse_appended()
    assert len(shard.state.groups) == 0


def test_member_commits_in_its_generation_only(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1)
    assert shard.commit("g", {WHERE: 1}, generation=1, member_id=member) == [ErrorCode.NONE]
    assert refused(shard, generation=0, member_id=member) is ErrorCode.ILLEGAL_GENERATION
    assert refused(shard, generation=-1, member_id=member) is ErrorCode.ILLEGAL_GENERATION
    assert refused(shard, generation=1, member_id="stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(shard, generation=1, member_id=member, instance_id="nobody") is ErrorCode.UNKNOWN_MEMBER_ID


def test_simple_commit_to_a_group_with_members_is_refused(shard: PlayedShard) -> None:
    shard.stable_group("g", 1)
    assert refused(shard) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_of_a_member_to_unknown_or_empty_group_is_refused(shard: PlayedShard) -> None:
    assert refused(shard, generation=1, member_id="m") is ErrorCode.GROUP_ID_NOT_FOUND
    shard.commit("g", {WHERE: 1})
    assert refused(shard, generation=1, member_id="m") is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_while_members_join_is_taken_and_while_they_sync_refused(shard: PlayedShard) -> None:
    first, second = shard.stable_group("g", 2)
    shard.send_join("g", first)
    assert shard.commit("g", {WHERE: 1}, generation=1, member_id=second) == [ErrorCode.NONE]
    shard.send_join("g", second)
    assert refused(shard, generation=2, member_id=second) is ErrorCode.REBALANCE_IN_PROGRESS


def test_commit_of_fenced_static_member_is_refused(shard: PlayedShard) -> None:
    token = shard.send_join("g", instance_id="one")
    shard.finish_initial_delay()
    old_id = shard.joined(token).member_id
    shard.send_sync("g", 1, old_id, instance_id="one")
    shard.send_join("g", instance_id="one")
    assert refused(shard, generation=1, member_id=old_id, instance_id="one") is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("x" * 4096, ErrorCode.NONE),
        ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("ä" * 4096, ErrorCode.NONE),
        ("\U0001f600" * 2049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (None, ErrorCode.NONE),
    ],
)
def test_size_of_metadata_is_counted_as_kafka_does(shard: PlayedShard, metadata: str | None, error: ErrorCode) -> None:
    assert shard.commit("g", {WHERE: 1}, metadata=metadata) == [error]


def test_offset_with_bad_metadata_does_not_stop_the_others(shard: PlayedShard) -> None:
    token = shard.new_token()
    offsets = [
        OffsetToCommit("orders", ZERO_UUID, 0, 5, 2, "x" * 5000),
        OffsetToCommit("orders", ZERO_UUID, 1, 6, 2, "note"),
    ]
    shard.carry_out(shard.state.commit_offsets("g", -1, "", None, offsets, token, shard.now))
    assert shard.replies[token] == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    (missing, value) = shard.state.fetch_offsets("g", "orders", [0, 1])
    assert missing is None
    assert value is not None
    assert (value.offset, value.leader_epoch, value.metadata) == (6, 2, "note")


def test_group_id_too_long_for_the_log_is_refused(shard: PlayedShard) -> None:
    assert refused(shard, "g" * 40_000) is ErrorCode.INVALID_GROUP_ID


def test_offset_of_an_earlier_topic_of_that_name_counts_as_none(shard: PlayedShard) -> None:
    offsets = [OffsetToCommit("orders", TOPIC_ID, 0, 5, 0, "")]
    shard.carry_out(shard.state.commit_offsets("g", -1, "", None, offsets, shard.new_token(), shard.now))
    shard.restart()
    found = [shard.state.fetch_offsets("g", "orders", [0], wanted) for wanted in (TOPIC_ID, ZERO_UUID, OTHER_ID)]
    assert [value is not None for (value,) in found] == [True, True, False]


def test_fetch_of_all_offsets_is_sorted(shard: PlayedShard) -> None:
    shard.commit("g", {("b", 2): 1, ("b", 0): 2, ("a", 1): 3})
    found = shard.state.fetch_all_offsets("g")
    assert [(topic, [(index, value.offset) for index, value in rows]) for topic, rows in found] == [
        ("a", [(1, 3)]),
        ("b", [(0, 2), (2, 1)]),
    ]
    assert list(shard.state.fetch_all_offsets("nobody")) == []
    assert list(shard.state.fetch_offsets("nobody", "a", [0, 1])) == [None, None]


def test_offsets_that_change_while_they_are_told_do_not_disturb(shard: PlayedShard) -> None:
    shard.commit("g", {("a", 0): 1, ("b", 0): 2})
    found = shard.state.fetch_all_offsets("g")
    first, _ = next(found)
    shard.commit("g", {("a", 1): 3, ("c", 0): 4})
    assert (first, [topic for topic, _ in found]) == ("a", ["b"])


# --- deletion ---------------------------------------------------------------------------------------------


def test_deleted_offset_is_gone_also_after_a_restart(shard: PlayedShard) -> None:
    shard.commit("g", {WHERE: 1, ELSEWHERE: 2})
    assert deleted(shard, WHERE, ("orders", 99)) == [ErrorCode.NONE, ErrorCode.NONE]
    shard.restart()
    assert (shard.offset("g", *WHERE), shard.offset("g", *ELSEWHERE)) == (None, 2)


def test_offset_of_subscribed_topic_is_not_deleted(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1)
    shard.commit("g", {WHERE: 1, ELSEWHERE: 2}, generation=1, member_id=member)
    assert deleted(shard, WHERE, ELSEWHERE) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    assert (shard.offset("g", *WHERE), shard.offset("g", *ELSEWHERE)) == (1, None)


def test_offset_of_consumers_with_unreadable_metadata_is_not_deleted(shard: PlayedShard) -> None:
    shard.stable_group("g", 1, protocols=(("range", b"\x00"),))
    assert deleted(shard, ELSEWHERE) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


@pytest.mark.parametrize("in_use", [True, False])
def test_offsets_of_other_groups_than_consumers_are_deleted_when_empty_only(shard: PlayedShard, in_use: bool) -> None:
    with pytest.raises(KafkaError) as unknown:
        deleted(shard, WHERE)
    assert unknown.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    if in_use:
        shard.new_member("g", protocol_type="connect")
        with pytest.raises(KafkaError) as caught:
            deleted(shard, WHERE)
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    else:
        shard.commit("g", {WHERE: 1})
        assert deleted(shard, WHERE) == [ErrorCode.NONE]


def test_group_is_deleted_with_everything_it_has_in_the_log(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1)
    shard.commit("g", {WHERE: 1}, generation=1, member_id=member)
    assert shard.delete_group("g") is ErrorCode.NON_EMPTY_GROUP
    shard.leave("g", LeavingMember(member, None))
    assert shard.delete_group("g") is ErrorCode.NONE
    assert shard.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert len(shard.state.groups) == 0
    latest = dict(shard.log)
    assert set(latest.values()) == {None}


def test_simple_group_without_offsets_stays_until_it_is_swept_or_reloaded(shard: PlayedShard) -> None:
    for group_id in ("g", "h"):
        shard.commit(group_id, {WHERE: 1})
        shard.carry_out(shard.state.delete_offsets(group_id, [WHERE], shard.new_token()))
        assert shard.state_of(group_id) is GroupState.EMPTY
    shard.expire("g")
    assert shard.state.groups.group_ids() == ["h"]
    shard.restart()
    assert len(shard.state.groups) == 0


def test_group_deletion_takes_back_the_ids_that_were_given_out(shard: PlayedShard) -> None:
    pending = shard.joined(shard.send_join("g")).member_id
    assert shard.delete_group("g") is ErrorCode.NONE
    assert shard.state_of("g") is GroupState.DEAD
    assert not shard.timers
    assert shard.joined(shard.send_join("g", pending)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_of_nothing_makes_no_group(shard: PlayedShard) -> None:
    assert shard.commit("g", {WHERE: 1}, metadata="x" * 5000) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert len(shard.state.groups) == 0


def test_group_deletion_covers_a_commit_that_is_still_on_its_way(shard: PlayedShard) -> None:
    shard.commit("g", {WHERE: 1})
    shard.holds_appends = True
    shard.send_commit("g", {ELSEWHERE: 2})
    shard.carry_out(shard.state.delete_group("g", shard.new_token()))
    shard.commit_appended()
    assert len(shard.state.groups) == 0
    shard.restart()
    assert len(shard.state.groups) == 0


def test_group_that_is_joined_while_its_deletion_is_on_its_way_lives_on(shard: PlayedShard) -> None:
    shard.commit("g", {WHERE: 1})
    shard.holds_appends = True
    shard.carry_out(shard.state.delete_group("g", shard.new_token()))
    _, token = shard.new_member("g")
    shard.commit_appended()
    shard.finish_initial_delay()
    assert shard.joined(token).error is ErrorCode.NONE
    assert shard.offset("g", *WHERE) is None


def test_offsets_of_deleted_topics_go(shard: PlayedShard) -> None:
    shard.commit("g", {WHERE: 1, ELSEWHERE: 2})
    shard.commit("h", {WHERE: 3})
    for effects in shard.state.topics_deleted({"orders": ZERO_UUID}):
        shard.carry_out(effects)
    assert shard.offset("h", *WHERE) is None
    assert (shard.offset("g", *WHERE), shard.offset("g", *ELSEWHERE)) == (None, 2)


# --- expiry -----------------------------------------------------------------------------------------------


def test_offset_of_a_simple_group_expires_after_its_commit(shard: PlayedShard) -> None:
    shard.commit("g", {WHERE: 1})
    shard.advance(RETENTION_MS - 1)
    shard.expire("g")
    assert shard.offset("g", *WHERE) == 1
    shard.advance(1)
    shard.expire("g")
    assert len(shard.state.groups) == 0
    assert set(dict(shard.log).values()) == {None}


def test_offsets_of_an_empty_group_expire_after_it_became_empty(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1, session_ms=1_000_000)
    shard.commit("g", {ELSEWHERE: 1}, generation=1, member_id=member)
    shard.advance(RETENTION_MS - 1)
    shard.leave("g", LeavingMember(member, None))
    shard.advance(1)
    shard.restart()
    shard.expire("g")
    assert shard.offset("g", *ELSEWHERE) == 1, "counted from the leaving, also after a restart"
    shard.advance(RETENTION_MS - 1)
    shard.expire("g")
    assert len(shard.state.groups) == 0


def test_offset_committed_for_a_group_long_empty_is_kept_for_the_whole_retention(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1)
    shard.leave("g", LeavingMember(member, None))
    shard.advance(RETENTION_MS)
    shard.commit("g", {WHERE: 1})
    shard.advance(RETENTION_MS - 1)
    shard.expire("g")
    assert shard.offset("g", *WHERE) == 1
    shard.advance(1)
    shard.expire("g")
    assert shard.state_of("g") is GroupState.DEAD


def test_only_offsets_of_topics_that_nobody_reads_expire_in_a_stable_group(shard: PlayedShard) -> None:
    (member,) = shard.stable_group("g", 1, session_ms=1_000_000)
    shard.commit("g", {WHERE: 1, ELSEWHERE: 2}, generation=1, member_id=member)
    shard.advance(RETENTION_MS)
    shard.expire("g")
    assert (shard.offset("g", *WHERE), shard.offset("g", *ELSEWHERE)) == (1, None)
    assert shard.state_of("g") is GroupState.STABLE


@pytest.mark.parametrize(("protocol_type", "metadata"), [("connect", subscription("orders")), ("consumer", b"\x00")])
def test_nothing_expires_while_it_is_unknown_what_members_read(
    shard: PlayedShard, protocol_type: str, metadata: bytes
) -> None:
    protocols: Protocols = (("range", metadata),)
    member, _ = shard.new_member("g", protocol_type=protocol_type, protocols=protocols, session_ms=1_000_000)
    shard.finish_initial_delay()
    shard.send_sync("g", 1, member, {}, protocol_type=None)
    shard.commit("g", {ELSEWHERE: 2}, generation=1, member_id=member)
    shard.advance(RETENTION_MS)
    shard.expire("g")
    assert shard.offset("g", *ELSEWHERE) == 2


def test_retention_beyond_all_time_never_ends(shard: PlayedShard) -> None:
    shard.commit("g", {WHERE: 1}, retention_ms=2**63 - 1)
    shard.advance(100 * RETENTION_MS)
    shard.expire("g")
    assert shard.offset("g", *WHERE) == 1


def test_own_time_of_expiry_goes_before_the_retention(shard: PlayedShard) -> None:
    shard.commit("g", {WHERE: 1}, retention_ms=1_000)
    shard.commit("g", {ELSEWHERE: 2}, retention_ms=2 * RETENTION_MS)
    shard.restart()
    shard.advance(1_000)
    shard.expire("g")
    assert (shard.offset("g", *WHERE), shard.offset("g", *ELSEWHERE)) == (None, 2)
    shard.advance(RETENTION_MS)
    shard.expire("g")
    assert shard.offset("g", *ELSEWHERE) == 2


def test_group_without_offsets_and_members_is_removed_but_not_while_one_is_about_to_join(shard: PlayedShard) -> None:
    member_id = shard.joined(shard.send_join("g")).member_id
    shard.expire("g")
    assert shard.state_of("g") is GroupState.EMPTY
    shard.leave("g", LeavingMember(member_id, None))
    shard.expire("g")
    assert shard.state_of("g") is GroupState.DEAD
    shard.restart()
    assert len(shard.state.groups) == 0


def test_expiry_leaves_a_group_alone_while_a_commit_is_on_its_way(shard: PlayedShard) -> None:
    shard.commit("g", {WHERE: 1})
    shard.advance(RETENTION_MS)
    shard.holds_appends = True
    shard.send_commit("g", {WHERE: 2})
    shard.expire("g")
    shard.commit_appended()
    assert shard.offset("g", *WHERE) == 2


# --- looking at groups ------------------------------------------------------------------------------------


def test_listing_filters_by_state_and_type(shard: PlayedShard) -> None:
    shard.stable_group("s", 1)
    shard.commit("e", {WHERE: 1})
    names = [
        [listing.group_id for listing in shard.state.list_groups(states, types)]
        for states, types in [((), ()), (["stable"], ()), (["empty", "dead"], ["classic"]), ((), ["consumer"])]
    ]
    assert names == [["s", "e"], ["s"], ["e"], []]
    counts = shard.state.groups.counts()
    assert (counts[GroupState.STABLE], counts[GroupState.EMPTY], sum(counts.values())) == (1, 1, 2)


def test_description_has_metadata_when_stable_only_and_always_the_last_assignment(shard: PlayedShard) -> None:
    first, second = shard.stable_group("g", 2)
    stable = shard.state.describe("g")
    assert stable is not None
    assert (stable.protocol_type, stable.protocol) == ("consumer", "range")
    assert [(member.member_id, member.assignment) for member in stable.members] == [
        (first, first.encode()),
        (second, second.encode()),
    ]
    shard.send_join("g", first)
    preparing = shard.state.describe("g")
    assert preparing is not None
    assert (preparing.protocol_type, preparing.protocol) == ("consumer", "")
    assert [(member.metadata, member.assignment) for member in preparing.members] == [
        (b"", first.encode()),
        (b"", second.encode()),
    ]
    assert shard.state.describe("nobody") is None


def test_records_of_other_kinds_of_groups_are_counted_and_skipped() -> None:
    state = GroupShardState(GroupSettings(), lambda: "")
    state.groups.replay(b"\x00\x03\x00\x01g", b"\x00\x00\x00\x00\x00\x01")
    assert (state.groups.skipped_records, len(state.groups)) == (1, 0)
