"""`barnabas group`: shows consumer groups, how far they are behind and why they rebalanced; moves and deletes them.

`reset` and `watch` are in modules of their own. What is shown is put together by `group_view`.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.base.clock import SystemClock
from barnabas.cli import completion
from barnabas.cli.group.group_arguments import Committed, Group, group_error_line, isolation_of, told_of
from barnabas.cli.group.group_reset import reset
from barnabas.cli.group.group_watch import watch
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandFailed, with_cluster

if TYPE_CHECKING:
    from barnabas.cli.group.group_view import GroupView
    from barnabas.client.cluster import Cluster
    from barnabas.client.group.group_admin import ListedGroup
    from barnabas.client.offsets import Isolation
    from barnabas.groups.history import GroupHistory
    from barnabas.wire.errors import KafkaError

app = typer.Typer(help="Show, move and delete consumer groups.", rich_markup_mode=None)


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in this state: Stable, Empty, …; may be repeated."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only groups of this type: classic, consumer, …; may be repeated."),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show the names of the groups, with their states.

    Example: barnabas group list --state Stable
    """
    from barnabas.cli.output import remark, say_json, say_table
    from barnabas.client.group import group_admin as groups

    async def work(cluster: "Cluster") -> "list[ListedGroup]":
        return await groups.list_groups(cluster, states=state or (), kinds=kind or ())

    listed = with_cluster(bootstrap, work)
    if as_json:
        for one in listed:
            say_json(
                {
                    "group": one.group,
                    "state": one.state,
                    "type": one.kind,
                    "protocol_type": one.protocol_type,
                    "coordinator": one.coordinator_id,
                }
            )
    elif listed:
        rows = [(one.group, one.state, one.kind, one.protocol_type, str(one.coordinator_id)) for one in listed]
        say_table(("group", "state", "type", "protocol", "coordinator#"), rows)
    elif state or kind:
        remark("no group matches; 'barnabas group list' shows all groups")
    else:
        remark("there are no groups; 'barnabas consume TOPIC --group NAME' creates one")


@app.command()
def describe(
    group: Group,
    members: Annotated[bool, typer.Option("--members", help="Show the members and their partitions.")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="Show offsets and lag (the default).")] = False,
    history: Annotated[
        bool, typer.Option("--history", help="Show the last rebalances, their causes and what may help.")
    ] = False,
    committed: Committed = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a group: its lag, its members, or its last rebalances.

    Behind is the age of the oldest record that the group has not read.

    Examples:

      barnabas group describe billing

      barnabas group describe billing --members --history
    """
    from barnabas.cli.group.group_history import history_fields, say_history
    from barnabas.cli.group.group_view import MEMBER_COLUMNS, heading, member_rows, short_names, view_fields
    from barnabas.cli.output import fits, remark, say, say_json, say_table

    with_offsets = offsets or not (members or history)

    async def work(cluster: "Cluster") -> "tuple[GroupView, GroupHistory | None]":
        return await _describe(cluster, group, isolation_of(committed), with_history=history)

    view, told = with_cluster(bootstrap, work)
    if as_json:
        fields = view_fields(view, with_members=members, with_offsets=with_offsets)
        if history:
            fields["history"] = None if told is None else history_fields(told)
        say_json(fields)
        return
    say(heading(view.description))
    if with_offsets:
        _say_offsets(view)
    if members and view.description.members:
        rows = member_rows(view.description.members)
        if not fits(MEMBER_COLUMNS, rows):
            rows = member_rows(view.description.members, short_names(view.description.members))
        say_table(MEMBER_COLUMNS, rows)
    elif members:
        remark("the group has no members" if view.description.are_members_known else "its members cannot be shown")
    if history:
        say_history(told)


async def _describe(
    cluster: "Cluster", group: str, isolation: "Isolation", *, with_history: bool
) -> "tuple[GroupView, GroupHistory | None]":
    from barnabas.cli.group.group_history import read_history
    from barnabas.cli.group.group_lag import LagMeter
    from barnabas.cli.group.group_view import look

    view = await look(cluster, group, LagMeter(cluster, isolation), SystemClock().now_ms())
    if view is None:
        raise CommandFailed(f"group '{group}' does not exist; see 'barnabas group list'")
    return view, await read_history(cluster, group) if with_history else None


def _say_offsets(view: "GroupView") -> None:
    from barnabas.cli.group.group_view import OFFSET_COLUMNS, member_name, notes, offset_rows, short_names, summary
    from barnabas.cli.output import fits, remark, say, say_table

    if view.lags:
        rows = offset_rows(view)
        if not fits(OFFSET_COLUMNS, rows):
            rows = offset_rows(view, short_names(view.description.members))
        say_table(OFFSET_COLUMNS, rows)
    say(summary(view))
    is_stable = view.description.state == "Stable"
    why = "the group has more members than there are partitions" if is_stable else "the group is rebalancing"
    for member in view.spare:
        remark(f"{member_name(member)} has no partition: {why}")
    for note in notes(view):
        remark(note)


app.command()(watch)
app.command()(reset)


@app.command()
def delete(
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP...", help="One or more groups.", show_default=False, autocompletion=completion.groups
        ),
    ],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail if a group does not exist.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups with their committed offsets. On a terminal, asks for confirmation first."""
    from barnabas.cli.output import complain, confirm, say
    from barnabas.client.group.group_admin import delete_groups
    from barnabas.wire.errors import ErrorCode

    if not yes:
        confirm(f"Delete {', '.join(groups)} with all committed offsets?", "nothing deleted")

    async def work(cluster: "Cluster") -> "dict[str, KafkaError | None]":
        return await delete_groups(cluster, list(dict.fromkeys(groups)))

    has_failed = False
    for group, problem in with_cluster(bootstrap, work).items():
        if problem is None:
            say(f"deleted group '{group}'")
        elif not (if_exists and problem.code is ErrorCode.GROUP_ID_NOT_FOUND):
            complain(group_error_line(group, problem))
            has_failed = True
    if has_failed:
        raise typer.Exit(1)


@app.command()
def commit(
    group: Group,
    positions: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC:PARTITION=OFFSET...", help="The offsets to commit.", show_default=False),
    ],
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Commit offsets for a group without members.

    A group that does not exist is created. The offset is that of the next record to read.

    Example: barnabas group commit billing orders:0=42 orders:1=17
    """
    from barnabas.base.ids import TopicPartition
    from barnabas.cli.group.group_targets import parse_position
    from barnabas.cli.output import plural, say, say_json
    from barnabas.client.group.group_offsets import commit_offsets

    wanted = dict(parse_position(position) for position in positions)

    async def work(cluster: "Cluster") -> None:
        for topic, index in wanted:
            await cluster.topic(topic)
            cluster.view.partition(TopicPartition(topic, index))
        with told_of(group):
            await commit_offsets(cluster, group, wanted)

    with_cluster(bootstrap, work)
    if as_json:
        for (topic, index), offset in wanted.items():
            say_json({"group": group, "topic": topic, "partition": index, "offset": offset})
    else:
        say(f"committed {plural(len(wanted), 'offset')} for group '{group}'")
