"""`barnabas group`: what people may say, what they see, and what they hear when it cannot be done."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from barnabas.base.ids import TopicPartition
from barnabas.cli import main
from barnabas.cli.group.group_arguments import group_error_line
from barnabas.cli.group.group_history import NOT_KEPT, history_fields, say_history
from barnabas.cli.group.group_lag import PartitionLag, count_lag
from barnabas.cli.group.group_reset import plan_move
from barnabas.cli.group.group_targets import parse_duration_ms, parse_offsets_file, parse_position, parse_scope
from barnabas.cli.group.group_view import (
    GroupView,
    heading,
    member_rows,
    notes,
    offset_rows,
    short_names,
    summary,
    view_fields,
)
from barnabas.cli.group.group_watch import GroupLook
from barnabas.cli.remote import CommandFailed
from barnabas.client.group.consumer_protocol import MemberSubscription
from barnabas.client.group.group_admin import GroupDescription, GroupMember
from barnabas.client.group.group_offsets import OffsetAndMetadata
from barnabas.groups.effects import Cause, MemberRef, Outcome, Reason, RebalanceCompleted, StaticMemberReplaced
from barnabas.groups.history import GroupHistory
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import NodeEndpoint
from tests.support.command_line import assert_no_broker_answers, run
from tests.unit.cli.test_remote import nobody

__all__ = ["nobody"]

NOW_MS = 1_794_738_667_000
ORDERS = TopicPartition("orders", 0)
MINE = TopicPartition("orders", 1)
COMMANDS = [
    ["group", "list"],
    ["group", "describe", "billing"],
    ["group", "delete", "billing", "--yes"],
    ["group", "commit", "billing", "orders:0=1"],
    ["group", "reset", "billing", "--all-topics", "--to-earliest"],
    ["group", "watch", "billing"],
    ["consume", "orders", "--group", "billing"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_without_a_broker_says_how_to_start_one(
    capsys: pytest.CaptureFixture[str], nobody: str, command: list[str]
) -> None:
    assert_no_broker_answers(capsys, nobody, command)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["reset", "g", "--all-topics"], "where to? Give one of --to-earliest, --to-latest"),
        (
            ["reset", "g", "--all-topics", "--to-latest", "--shift-by", "1"],
            "give one of --to-latest and --shift-by, not",
        ),
        (["reset", "g", "--to-latest"], "which partitions? Give --topic TOPIC or --all-topics"),
        (["reset", "g", "--to-latest", "--all-topics", "-t", "a"], "give --topic or --all-topics, not both"),
        (["reset", "g", "--from-file", "x.csv", "-t", "a"], "--from-file names the partitions itself"),
        (["reset", "g", "--from-file", "/no/such.csv"], "cannot read /no/such.csv: No such file or directory"),
        (["reset", "g", "-t", "a:x", "--to-latest"], "--topic wants TOPIC or TOPIC:PARTITION,PARTITION, not 'a:x'"),
        (["reset", "g", "-t", "a", "--to-time", "42"], "--to-time '42' is not a time; write 2026-11-15T10:30"),
        (["reset", "g", "-t", "a", "--to-time", "soon"], "--to-time 'soon' is not a time"),
        (
            ["reset", "g", "-t", "a", "--by-duration", "1 day"],
            "--by-duration wants an ISO 8601 duration such as PT1H30M",
        ),
        (["reset", "g", "-t", "a", "--to-offset", "-1"], "Invalid value for '--to-offset'"),
        (["commit", "g", "orders"], "'orders' is not TOPIC:PARTITION=OFFSET, as in orders:0=42"),
        (["commit", "g", "orders:0=-1"], "'orders:0=-1' is not TOPIC:PARTITION=OFFSET"),
        (["describe"], "Missing argument 'GROUP'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistake_is_told_in_one_line_before_anything_is_done(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    status, out, err = run(capsys, "group", *arguments)
    assert (status, out) == (1, "")
    assert err.startswith(f"barnabas: {line}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--from", "42"],
            "a group continues at its committed offsets: with --group, --from can only be beginning or end",
        ),
        (["--partition", "0"], "a group assigns the partitions to its members; leave out --partition or --group"),
    ],
)
def test_consume_of_a_group_refuses_what_only_a_lone_reader_may_choose(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    status, _, err = run(capsys, "consume", "orders", "--group", "billing", *arguments)
    assert status == 1
    assert err.startswith(f"barnabas: {line}")


def test_file_that_is_no_text_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "offsets.csv").write_bytes(b"\xff\xfe\x00")
    status, _, err = run(capsys, "group", "reset", "g", "--from-file", str(tmp_path / "offsets.csv"))
    assert (status, err) == (1, f"barnabas: {tmp_path / 'offsets.csv'} is not a text file\n")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (ErrorCode.GROUP_ID_NOT_FOUND, "group 'g' does not exist; see 'barnabas group list'"),
        (
            ErrorCode.NON_EMPTY_GROUP,
            "group 'g' has members; stop them first: see 'barnabas group describe g --members'",
        ),
        (ErrorCode.INVALID_GROUP_ID, "'g' cannot be the name of a group"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "no (GROUP_AUTHORIZATION_FAILED)"),
    ],
)
def test_error_of_the_coordinator_is_told_with_what_helps(code: ErrorCode, line: str) -> None:
    assert group_error_line("g", KafkaError(code, "no")) == line


# --- what people may say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1DT2H", 93_600_000),
        ("PT0.5S", 500),
        ("pt10s", 10_000),
        ("P0D", 0),
    ],
)
def test_duration_is_read_as_iso_8601(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "PT1D", "P1DT", "P1Y", "-PT1H", "PT1H "[:-1] + "x"])
def test_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed, match="ISO 8601"):
        parse_duration_ms(text)


def test_scope_is_a_topic_or_some_of_its_partitions() -> None:
    assert parse_scope("orders").partitions is None
    assert parse_scope("orders:2,0,2").partitions == (2, 0)


def test_position_is_topic_partition_and_offset() -> None:
    assert parse_position("my.orders:3=42") == (TopicPartition("my.orders", 3), 42)


def test_file_of_offsets_is_read_in_both_forms_of_kafka() -> None:
    lines = ["# exported", "", "orders,0,42", " orders , 1 , 7 ", '"billing","letters",0,3', "other,letters,1,9"]
    assert parse_offsets_file("billing", lines, "file") == {
        TopicPartition("orders", 0): 42,
        TopicPartition("orders", 1): 7,
        TopicPartition("letters", 0): 3,
    }


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["orders,0,1", "orders,x,1"], "file, line 2: 'orders,x,1' is not TOPIC,PARTITION,OFFSET"),
        (["orders,0"], "file, line 1"),
        (["orders,0,-1"], "file, line 1"),
        ([], "file has no offset for group 'billing'"),
        (["other,orders,0,1"], "file has no offset for group 'billing'"),
    ],
)
def test_file_of_offsets_that_is_wrong_is_refused_with_the_line(lines: list[str], message: str) -> None:
    with pytest.raises(CommandFailed, match=message):
        parse_offsets_file("billing", lines, "file")


@pytest.mark.parametrize(
    ("wanted", "new", "note"),
    [(7, 7, ""), (3, 5, "3 is before the start"), (12, 10, "12 is beyond the end"), (-4, 5, "-4 is before the start")],
)
def test_plan_stays_within_the_log(wanted: int, new: int, note: str) -> None:
    move = plan_move(ORDERS, 6, wanted, 5, 10)
    assert (move.old, move.new, move.note) == (6, new, note)


# --- what people see --------------------------------------------------------------------------------------------


def member(name: str, *assignment: TopicPartition, instance_id: str | None = None) -> GroupMember:
    subscription = MemberSubscription(("orders",))
    return GroupMember(f"{name}-7f3a", instance_id, name, "/10.0.0.7", subscription, assignment)


def view(*members: GroupMember, lags: tuple[PartitionLag, ...] = (), state: str = "Stable") -> GroupView:
    node = NodeEndpoint(1, "127.0.0.1", 9092, None)
    description = GroupDescription("billing", "classic", state, "consumer", "range", node, members, True)
    committed = {lag.partition: OffsetAndMetadata(lag.committed) for lag in lags if lag.committed is not None}
    return GroupView(description, lags, committed, {one: owner for owner in members for one in owner.assignment})


BEHIND = PartitionLag(ORDERS, 4, 0, 10, 6, 42_000)
UNREAD = count_lag(MINE, None, 0, 5)


def test_group_is_shown_with_owners_lags_and_spare_members() -> None:
    seen = view(
        member("w-1", ORDERS), member("w-2", MINE, instance_id="static-2"), member("w-3"), lags=(BEHIND, UNREAD)
    )
    assert heading(seen.description) == "group 'billing' is Stable: 3 members, range, coordinator 1 at 127.0.0.1:9092"
    assert offset_rows(seen) == [
        ("orders", "0", "4", "10", "6", "42 s", "w-1-7f3a"),
        ("orders", "1", "none", "5", "unknown", "unknown", "static-2"),
    ]
    assert summary(seen) == "6 records behind, by 42 s"
    assert notes(seen) == ["orders-1: nothing is committed"]
    assert [spare.client_id for spare in seen.spare] == ["w-3"]
    assert member_rows(seen.description.members)[0] == ("w-1-7f3a", "w-1", "10.0.0.7", "", "1", "orders 0")
    assert member_rows(seen.description.members)[2][-1] == "nothing"


def test_names_are_short_where_they_still_differ() -> None:
    a, b = (GroupMember(f"worker-{start}-0756-4777-b45d", None, "worker", "", None, ()) for start in ("9357", "a0fd"))
    long = GroupMember("x" * 60 + "-9f2c81aa-e4d1", None, "x" * 60, "", None, ())
    static = GroupMember("worker-1234", "kitchen-1", "worker", "", None, ())
    foreign = GroupMember("made-by-hand", None, "worker", "", None, ())
    names = short_names([a, b, long, static, foreign])
    assert list(names.values()) == [
        "worker-9357-075",
        "worker-a0fd-075",
        "xxxxxxxxxxxxxxx…xxxxxx-9f2c81aa",
        "kitchen-1",
        "made-by-hand",
    ]
    seen = view(replace(a, assignment=(ORDERS,)), lags=(BEHIND,))
    assert offset_rows(seen, names)[0][-1] == "worker-9357-075"
    assert member_rows([a], names)[0][0] == "worker-9357-075"
    twin = replace(a, member_id="worker-9357-0759-1111")
    assert short_names([a, twin])[a.member_id] == a.member_id, "the same short name would hide one of them"


@pytest.mark.parametrize(
    ("lags", "line"),
    [
        ((), "nothing is committed"),
        ((count_lag(ORDERS, 5, 0, 5),), "caught up"),
        ((count_lag(ORDERS, 9, 0, 5),), "the lag is unknown"),
        ((count_lag(ORDERS, 4, 0, 5),), "1 record behind, by unknown"),
    ],
)
def test_summary_says_what_is_known(lags: tuple[PartitionLag, ...], line: str) -> None:
    assert summary(view(lags=lags)) == line


def test_group_of_another_protocol_is_shown_without_members() -> None:
    node = NodeEndpoint(1, "127.0.0.1", 9092, None)
    description = GroupDescription("g", "consumer", "Stable", "consumer", "", node, (), are_members_known=False)
    seen = GroupView(description, (), {}, {})
    assert heading(description) == "group 'g' is Stable: of the consumer protocol, coordinator 1 at 127.0.0.1:9092"
    assert notes(seen) == ["members of a group of the consumer protocol cannot be shown"]
    assert view_fields(seen, with_members=True, with_offsets=False)["members"] is None


def test_json_holds_what_was_asked_for() -> None:
    seen = view(member("w-1", ORDERS), lags=(BEHIND,))
    fields = view_fields(seen, with_members=True, with_offsets=True)
    assert (fields["group"], fields["state"], fields["lag"], fields["behind_ms"]) == ("billing", "Stable", 6, 42_000)
    assert fields["members"][0]["assigned"] == [{"topic": "orders", "partition": 0}]
    assert fields["offsets"][0]["member_id"] == "w-1-7f3a"
    assert "offsets" not in view_fields(seen, with_members=True, with_offsets=False)


def test_watched_group_is_drawn_as_a_table() -> None:
    seen = view(member("w-1", ORDERS), member("w-2"), lags=(BEHIND, UNREAD))
    page = io.StringIO()
    console = Console(file=page, width=120)
    console.print(GroupLook("billing", seen, NOW_MS).drawn())
    console.print(GroupLook("billing", None, NOW_MS).drawn())
    lines = [" ".join(line.split()) for line in page.getvalue().splitlines()]
    assert lines[1] == "topic partition committed end lag behind member"
    assert lines[2] == "orders 0 4 10 6 42 s w-1-7f3a"
    assert lines[4:7] == ["6 records behind, by 42 s", "w-2-7f3a has no partition", "orders-1: nothing is committed"]
    assert lines[7].endswith("group 'billing' does not exist")


# --- the story --------------------------------------------------------------------------------------------------

WORKER = MemberRef("w-1-7f3a", None, "w-1", "/10.0.0.7")
LATE = RebalanceCompleted(
    group_id="billing",
    started_at_ms=NOW_MS,
    join_ended_at_ms=NOW_MS,
    completed_at_ms=NOW_MS,
    outcome=Outcome.STABLE,
    generation_before=1,
    generation_after=2,
    causes=(Cause(Reason.MEMBER_LEFT, NOW_MS, WORKER, "consumer poll timeout has expired"),),
    causes_left_out=0,
    members_before=2,
    members_after=1,
    joined=(),
    left=(WORKER,),
    last_joined=None,
    last_synced=None,
    leader=None,
    protocol="range",
)


def test_history_is_told_with_likely_cause_and_change(capsys: pytest.CaptureFixture[str]) -> None:
    replaced = StaticMemberReplaced("billing", NOW_MS, 2, "static-2", WORKER, WORKER)
    say_history(GroupHistory("billing", (LATE, replaced)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("generation 1 to 2, 2 to 1 members, took 0 ms (joining 0 ms, syncing 0 ms)")
    assert lines[1] == '  w-1-7f3a (10.0.0.7) left: "consumer poll timeout has expired"'
    assert lines[2].startswith("    likely: processing what one poll returned took longer than max.poll.interval.ms")
    assert lines[3].startswith("    change: raise max.poll.interval.ms, or lower max.poll.records")
    assert lines[4].endswith("generation 2 continued without a rebalance")


def test_history_for_tools_holds_facts_sentences_and_advice() -> None:
    (told,) = history_fields(GroupHistory("billing", (LATE,)))["rebalances"]
    assert told["causes"][0]["reason"] == "member_left"
    assert told["sentences"][1] == 'w-1-7f3a (10.0.0.7) left: "consumer poll timeout has expired"'
    assert told["advice"][0]["settings"] == ["max.poll.interval.ms", "max.poll.records"]


@pytest.mark.parametrize(
    ("history", "line"), [(None, NOT_KEPT), (GroupHistory("billing"), "no rebalance is recorded for this group")]
)
def test_history_that_is_not_there_is_a_remark(
    capsys: pytest.CaptureFixture[str], history: GroupHistory | None, line: str
) -> None:
    say_history(history)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"{line}\n")


def test_help_of_every_group_command_has_an_example_or_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("list", "describe", "commit", "reset", "watch"):
        assert main.run(["group", name, "--help"]) == 0
        assert "Example" in capsys.readouterr().out
