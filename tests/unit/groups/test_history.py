"""The story of a group: what is kept of it, how it is written, and what people are told."""

from dataclasses import replace
from datetime import UTC, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.groups.effects import Cause, MemberRef, Outcome, Reason, RebalanceCompleted, StaticMemberReplaced
from barnabas.groups.history import (
    ENTRIES_MAX,
    PEOPLE_MAX,
    TEXT_LENGTH_MAX,
    GroupHistory,
    UnreadableHistory,
    decode_history,
    duration_ms,
    encode_history,
    joining_ms,
    syncing_ms,
)
from barnabas.groups.story import advise_group, advise_rebalance, duration_text, tell_entry

START_MS = 1_794_738_667_000
WORKER = MemberRef("worker-1-7f3a", None, "worker-1", "/10.0.0.7")
OTHER = MemberRef("worker-2-99aa", "billing-2", "worker-2", "/10.0.0.8")

texts = st.text(max_size=20)
times = st.integers(0, 2**53)
members = st.builds(MemberRef, texts, st.none() | texts, texts, texts)
causes = st.builds(Cause, st.sampled_from(Reason), times, st.none() | members, texts, st.none() | times)
rebalances = st.builds(
    RebalanceCompleted,
    st.just("billing"),
    times,
    st.none() | times,
    times,
    st.sampled_from(Outcome),
    st.integers(-1, 2**31),
    st.integers(-1, 2**31),
    st.lists(causes, max_size=PEOPLE_MAX).map(tuple),
    st.integers(0, 100),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.lists(members, max_size=PEOPLE_MAX).map(tuple),
    st.lists(members, max_size=PEOPLE_MAX).map(tuple),
    st.none() | members,
    st.none() | members,
    st.none() | members,
    st.none() | texts,
)
replacements = st.builds(
    StaticMemberReplaced, st.just("billing"), times, st.integers(-1, 2**31), texts, members, members
)
entries = st.lists(rebalances | replacements, max_size=4).map(tuple)


def rebalance(*causes: Cause, started_ms: int = START_MS, **changed: Any) -> RebalanceCompleted:
    usual = RebalanceCompleted(
        group_id="billing",
        started_at_ms=started_ms,
        join_ended_at_ms=started_ms + 1200,
        completed_at_ms=started_ms + 1500,
        outcome=Outcome.STABLE,
        generation_before=4,
        generation_after=5,
        causes=causes,
        causes_left_out=0,
        members_before=1,
        members_after=2,
        joined=(WORKER,),
        left=(),
        last_joined=OTHER,
        last_synced=OTHER,
        leader=OTHER,
        protocol="range",
    )
    return replace(usual, **changed)


def cause(reason: Reason, said: str = "", *, since_ms: int | None = None, member: MemberRef = WORKER) -> Cause:
    return Cause(reason, START_MS, member, said, since_ms)


# --- what is kept -----------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(entries)
def test_history_is_read_as_it_was_written(entries: Any) -> None:
    history = GroupHistory("billing", entries)
    assert decode_history(encode_history(history)) == history


def test_history_of_many_rebalances_keeps_the_last_ones() -> None:
    history = GroupHistory("billing")
    for number in range(ENTRIES_MAX + 5):
        history = history.with_entry(rebalance(generation_after=number))
    kept = [entry.generation_after for entry in history.entries if isinstance(entry, RebalanceCompleted)]
    assert kept == list(range(5, ENTRIES_MAX + 5))


def test_rebalance_of_a_huge_group_is_cut_and_counted() -> None:
    long = MemberRef("m" * 9999, "i" * 9999, "c" * 9999, "h" * 9999)
    many = tuple(Cause(Reason.MEMBER_JOINED, START_MS, long, "s" * 9999) for _ in range(PEOPLE_MAX + 12))
    history = GroupHistory("billing")
    for _ in range(ENTRIES_MAX):
        entry = rebalance(*many, causes_left_out=3, joined=(long,) * 50, left=(long,) * 50, leader=long)
        history = history.with_entry(replace(entry, protocol="p" * 9999))

    kept = history.entries[0]
    assert isinstance(kept, RebalanceCompleted)
    assert (len(kept.causes), kept.causes_left_out) == (PEOPLE_MAX, 15)
    assert len(kept.joined) == len(kept.left) == PEOPLE_MAX
    assert kept.leader is not None
    kept_texts = [*kept.leader, kept.protocol, kept.causes[0].said]
    assert {len(text or "") for text in kept_texts} == {TEXT_LENGTH_MAX}
    assert len(encode_history(history)) < 1_000_000


def test_static_replacement_is_cut_too() -> None:
    long = MemberRef("m" * 9999, "i" * 9999, "c", "h")
    history = GroupHistory("billing").with_entry(StaticMemberReplaced("billing", START_MS, 3, "i" * 9999, long, long))
    (kept,) = history.entries
    assert isinstance(kept, StaticMemberReplaced)
    assert {len(kept.instance_id), len(kept.old.member_id), len(kept.new.member_id)} == {TEXT_LENGTH_MAX}


def test_history_of_a_newer_broker_is_read_as_far_as_it_is_understood() -> None:
    history = decode_history(
        b'{"version": 9, "group": "billing", "weather": "fine", "entries": ['
        b'{"kind": "eclipse", "at_ms": 1},'
        b'{"kind": "rebalance", "started_ms": 5, "mood": 1, "outcome": "glorious",'
        b' "causes": [{"reason": "stars_aligned", "member": {"client_id": "w", "shoe_size": 43}}]}]}'
    )
    (entry,) = history.entries
    assert isinstance(entry, RebalanceCompleted)
    assert (entry.started_at_ms, entry.completed_at_ms, entry.outcome) == (5, 5, Outcome.STABLE)
    assert tell_entry(entry)[1] == 'w asked to rejoin: "stars aligned"'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b'{"group": "g"}',
        b'{"entries": []}',
        b'{"group": "g", "entries": 3}',
        b'{"group": "g", "entries": [7]}',
        b'{"group": "g", "entries": [{"kind": "rebalance"}]}',
        b'{"group": "g", "entries": [{"kind": "rebalance", "started_ms": 1e999}]}',
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:40]),
)
def test_bytes_that_are_no_history_are_refused(data: bytes) -> None:
    with pytest.raises(UnreadableHistory, match="not a group's history"):
        decode_history(data)


def test_durations_are_those_of_the_phases() -> None:
    whole = rebalance()
    assert (duration_ms(whole), joining_ms(whole), syncing_ms(whole)) == (1500, 1200, 300)
    emptied = rebalance(join_ended_at_ms=None)
    assert (duration_ms(emptied), joining_ms(emptied), syncing_ms(emptied)) == (1500, 1500, 0)


# --- what is told -----------------------------------------------------------------------------------------------


def test_rebalance_is_told_in_sentences() -> None:
    both = (cause(Reason.MEMBER_JOINED), cause(Reason.MEMBER_LEFT, member=OTHER))
    assert tell_entry(rebalance(*both, causes_left_out=2)) == [
        "2026-11-15 10:31:07  generation 4 to 5, 1 to 2 members, took 1.5 s (joining 1.2 s, syncing 300 ms)",
        "worker-1-7f3a (10.0.0.7) joined",
        "billing-2 (10.0.0.8) left without a reason",
        "and 2 more causes",
        "billing-2 (10.0.0.8) was the last to join",
    ]


@pytest.mark.parametrize(
    ("one", "sentence"),
    [
        (
            cause(Reason.MEMBER_JOINED, "need to re-join with the given member-id: w-1"),
            "worker-1-7f3a (10.0.0.7) joined",
        ),
        (
            cause(Reason.MEMBER_LEFT, "the consumer is being closed."),
            'worker-1-7f3a (10.0.0.7) left: "the consumer is being closed"',
        ),
        (
            cause(Reason.HEARTBEAT_MISSED, since_ms=START_MS - 45_000),
            "worker-1-7f3a (10.0.0.7) missed its heartbeat: it was silent for 45 s",
        ),
        (cause(Reason.HEARTBEAT_MISSED), "worker-1-7f3a (10.0.0.7) missed its heartbeat"),
        (cause(Reason.METADATA_CHANGED), "worker-1-7f3a (10.0.0.7) rejoined with a different subscription"),
        (cause(Reason.LEADER_REJOINED), "worker-1-7f3a (10.0.0.7), the leader, asked for a new assignment"),
        (
            cause(Reason.STATIC_MEMBER_REPLACED),
            "worker-1-7f3a (10.0.0.7) was started again with the same group.instance.id",
        ),
        (cause(Reason.MEMBER_REJOINED), "worker-1-7f3a (10.0.0.7) asked to rejoin"),
        (cause(Reason.SYNC_MISSED), "worker-1-7f3a (10.0.0.7) joined, but did not ask for its partitions in time"),
        (cause(Reason.JOIN_MISSED), "worker-1-7f3a (10.0.0.7) was removed, because it did not rejoin in time"),
        (cause(Reason.OVER_CAPACITY), "worker-1-7f3a (10.0.0.7) was refused: the group had reached group.max.size"),
        (Cause(Reason.WRITE_REFUSED, START_MS), "the broker could not store the assignment"),
        (Cause(Reason.MEMBER_JOINED, START_MS), "somebody joined"),
        (cause(Reason.MEMBER_JOINED, member=MemberRef("only-an-id", None, "", "")), "only-an-id joined"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.reason.value,
)
def test_cause_is_told_in_a_sentence(one: Cause, sentence: str) -> None:
    assert tell_entry(rebalance(one))[1] == sentence


def test_members_of_one_client_id_are_told_apart() -> None:
    ids = [f"rdkafka-{letter * 8}-4081-94e3-aa8727271f56" for letter in "ab"]
    told = tell_entry(
        rebalance(*(cause(Reason.MEMBER_JOINED, member=MemberRef(one, None, "rdkafka", "")) for one in ids))
    )
    assert told[1:3] == ["rdkafka-aaaaaaaa joined", "rdkafka-bbbbbbbb joined"]


def test_every_reason_has_a_sentence() -> None:
    told = {tell_entry(rebalance(cause(reason)))[1] for reason in Reason}
    assert len(told) == len(Reason)


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (Outcome.EMPTY, "; nobody was left"),
        (Outcome.INTERRUPTED, "; the next one began before it had ended"),
    ],
)
def test_outcome_is_told_in_the_heading(outcome: Outcome, end: str) -> None:
    assert tell_entry(rebalance(outcome=outcome))[0].endswith(end)


def test_replaced_static_member_is_told_without_a_rebalance() -> None:
    assert tell_entry(StaticMemberReplaced("billing", START_MS, 7, "billing-2", WORKER, OTHER)) == [
        "2026-11-15 10:31:07  generation 7 continued without a rebalance",
        "billing-2 (10.0.0.8) was started again with the same group.instance.id",
    ]


def test_time_is_told_in_the_zone_that_is_asked_for() -> None:
    assert tell_entry(rebalance(), timezone(timedelta(hours=2)))[0].startswith("2026-11-15 12:31:07")
    assert tell_entry(rebalance(), UTC)[0].startswith("2026-11-15 10:31:07")
    assert tell_entry(rebalance(started_ms=10**18))[0].startswith(f"@{10**18}  ")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (4210, "4.2 s"),
        (42_900, "42 s"),
        (60_000, "1 min"),
        (185_000, "3 min 5 s"),
        (7_800_000, "2 h 10 min"),
        (86_400_000 * 3 + 3_600_000 * 4, "3 d 4 h"),
    ],
)
def test_duration_is_told_as_people_say_it(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


# --- what is advised --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (cause(Reason.HEARTBEAT_MISSED), "session.timeout.ms"),
        (cause(Reason.MEMBER_LEFT, "consumer poll timeout has expired."), "max.poll.interval.ms"),
        (cause(Reason.MEMBER_LEFT, "application exceeded max.poll.interval.ms"), "max.poll.records"),
        (cause(Reason.JOIN_MISSED), "max.poll.interval.ms"),
        (cause(Reason.SYNC_MISSED), "max.poll.interval.ms"),
        (cause(Reason.OVER_CAPACITY), "group.max.size"),
        (cause(Reason.WRITE_REFUSED), "max.message.bytes"),
    ],
)
def test_cause_comes_with_the_setting_to_change(one: Cause, expected: str) -> None:
    (advice,) = advise_rebalance(rebalance(one))
    assert expected in advice.settings
    assert all(setting in advice.change for setting in advice.settings)


def test_ordinary_rebalance_needs_no_advice() -> None:
    assert advise_rebalance(rebalance(cause(Reason.MEMBER_JOINED), cause(Reason.MEMBER_LEFT, "closed"))) == []


def test_same_advice_is_given_once() -> None:
    assert len(advise_rebalance(rebalance(*[cause(Reason.HEARTBEAT_MISSED)] * 3))) == 1


def test_rebalance_that_waited_names_whom_it_waited_for() -> None:
    slow = rebalance(cause(Reason.MEMBER_JOINED), join_ended_at_ms=START_MS + 30_000, completed_at_ms=START_MS + 30_001)
    (advice,) = advise_rebalance(slow)
    assert advice.likely.startswith("all members waited 30 s for billing-2 (10.0.0.8)")
    assert "max.poll.records" in advice.settings


def row(*reasons: Reason, apart_ms: int = 20_000, same: bool = True) -> GroupHistory:
    history = GroupHistory("billing")
    for number, reason in enumerate(reasons):
        member = WORKER if same else MemberRef(f"w-{number}", None, f"w-{number}", "")
        entry = rebalance(cause(reason, member=member), started_ms=START_MS + number * apart_ms)
        history = history.with_entry(entry)
    return history


JOINED, LEFT = Reason.MEMBER_JOINED, Reason.MEMBER_LEFT


@pytest.mark.parametrize(
    ("history", "likely", "setting"),
    [
        (row(LEFT, JOINED, LEFT, JOINED), "leave and come back (worker-1)", "group.instance.id"),
        (row(*[JOINED] * 4, same=False), "started one after another", "group.initial.rebalance.delay.ms"),
        (row(*[Reason.METADATA_CHANGED] * 4), "does not settle", "group.instance.id"),
    ],
)
def test_many_rebalances_in_a_row_are_advised_on(history: GroupHistory, likely: str, setting: str) -> None:
    (advice,) = advise_group(history)
    assert advice.likely.startswith("4 rebalances within 1 min 1 s: ")
    assert likely in advice.likely
    assert setting in advice.settings


def test_member_that_joined_and_left_did_not_come_back() -> None:
    (advice,) = advise_group(row(JOINED, LEFT, Reason.METADATA_CHANGED, LEFT))
    assert "come back" not in advice.likely


@pytest.mark.parametrize("history", [row(), row(JOINED, LEFT, JOINED), row(*[JOINED] * 9, apart_ms=120_000)])
def test_few_rebalances_or_rare_ones_need_no_advice(history: GroupHistory) -> None:
    assert advise_group(history) == []
