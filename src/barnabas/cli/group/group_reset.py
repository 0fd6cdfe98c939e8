"""`barnabas group reset`: commits other offsets for a group, so that its members read again, or skip.

```
scope (--topic, --all-topics, --from-file) ──▶ plan: old → new of each partition, within the log ──▶ committed at once
```

A group with members is left alone, because they would not notice and commit over it. All offsets are committed by one
request; the coordinator refuses it when somebody joined meanwhile.
"""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.base.clock import SystemClock
from barnabas.cli import completion
from barnabas.cli.group.group_arguments import Group, told_of
from barnabas.cli.group.group_targets import (
    Target,
    TargetKind,
    TopicScope,
    parse_duration_ms,
    parse_offsets_file,
    parse_scope,
)
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandFailed, with_cluster

if TYPE_CHECKING:
    from barnabas.base.ids import Offset, TopicPartition
    from barnabas.client.cluster import Cluster
    from barnabas.client.group.group_admin import GroupDescription


@dataclass(frozen=True, slots=True)
class Move:
    """What a reset does to one partition."""

    partition: "TopicPartition"
    old: "Offset | None"
    new: "Offset"
    start: "Offset"
    end: "Offset"
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Wish:
    """What was asked for: a target for a scope, or an offset for each partition."""

    target: Target | None
    scopes: tuple[TopicScope, ...]
    offsets: "Mapping[TopicPartition, Offset]"


def reset(
    group: Group,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,P]",
            help="A topic, or some partitions; may be repeated.",
            autocompletion=completion.topics,
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every partition for which the group has an offset.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end, after the last record.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", help="To this offset.", min=0)] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            help="To the first record at or after this time: 2026-11-15T10:30, '2 hours ago'.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Shift by N records; negative moves back.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="PT…", help="To this long before now: PT1H30M, P1D.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="CSV", help="To TOPIC,PARTITION,OFFSET of each line; - is stdin."),
    ] = None,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To the committed offset, moved into the log if it is outside.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Move a group's committed offsets.

    Stop its members first. --dry-run shows the plan and changes nothing.

    Examples:

      barnabas group reset billing --topic orders --to-earliest --dry-run

      barnabas group reset billing --all-topics --to-time '2 hours ago'

      barnabas group reset billing --topic orders:0,2 --shift-by -100
    """
    from barnabas.cli.output import plural, say

    target = _one_target(
        {
            "--to-earliest": Target(TargetKind.EARLIEST) if to_earliest else None,
            "--to-latest": Target(TargetKind.LATEST) if to_latest else None,
            "--to-offset": None if to_offset is None else Target(TargetKind.OFFSET, to_offset),
            "--to-time": None if to_time is None else _time_target(to_time),
            "--shift-by": None if shift_by is None else Target(TargetKind.SHIFT, shift_by),
            "--by-duration": None if by_duration is None else _duration_target(by_duration),
            "--to-current": Target(TargetKind.CURRENT) if to_current else None,
        },
        has_file=from_file is not None,
    )
    scopes = tuple(parse_scope(topic) for topic in topics or ())
    _check_scope(scopes, all_topics, has_file=from_file is not None)
    wish = _Wish(target, scopes, {} if from_file is None else _read_offsets(group, from_file))

    async def work(cluster: "Cluster") -> list[Move]:
        return await _reset(cluster, group, wish, dry_run=dry_run)

    moves = with_cluster(bootstrap, work)
    _say_plan(group, moves, as_json)
    if not as_json:
        count = plural(len(moves), "partition")
        say(f"would reset {count} of group '{group}'" if dry_run else f"reset {count} of group '{group}'")


# --- what was asked for -----------------------------------------------------------------------------------------


def _one_target(targets: Mapping[str, Target | None], *, has_file: bool) -> Target | None:
    given = {option: target for option, target in targets.items() if target is not None}
    options = [*given, *(["--from-file"] if has_file else [])]
    if not options:
        raise CommandFailed(f"where to? Give one of {', '.join(targets)}, --from-file")
    if len(options) > 1:
        raise CommandFailed(f"give one of {' and '.join(options)}, not both")
    return next(iter(given.values()), None)


def _check_scope(scopes: Sequence[TopicScope], all_topics: bool, *, has_file: bool) -> None:
    if has_file and (scopes or all_topics):
        raise CommandFailed("--from-file names the partitions itself; leave out --topic and --all-topics")
    if scopes and all_topics:
        raise CommandFailed("give --topic or --all-topics, not both")
    if not has_file and not scopes and not all_topics:
        raise CommandFailed("which partitions? Give --topic TOPIC or --all-topics")


def _time_target(text: str) -> Target:
    from barnabas.cli.records.start_point import InvalidStart, StartKind, parse_start

    try:
        point = parse_start(text, SystemClock().now_ms())
    except InvalidStart:
        point = None
    if point is None or point.kind is not StartKind.TIME:
        raise CommandFailed(
            f"--to-time {text!r} is not a time; write 2026-11-15T10:30, 2026-11-15T10:30Z or '2 hours ago'"
        )
    return Target(TargetKind.TIME, point.number)


def _duration_target(text: str) -> Target:
    return Target(TargetKind.TIME, max(0, SystemClock().now_ms() - parse_duration_ms(text)))


def _read_offsets(group: str, path: Path) -> "dict[TopicPartition, Offset]":
    if str(path) == "-":
        return parse_offsets_file(group, sys.stdin.read().splitlines(), "standard input")
    try:
        return parse_offsets_file(group, path.read_text().splitlines(), str(path))
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise CommandFailed(f"{path} is not a text file") from None


# --- the plan, and doing it -------------------------------------------------------------------------------------


async def _reset(cluster: "Cluster", group: str, wish: _Wish, *, dry_run: bool) -> list[Move]:
    from barnabas.cli.output import remark
    from barnabas.client.group.group_admin import describe_groups
    from barnabas.client.group.group_offsets import commit_offsets

    with told_of(group):
        description = (await describe_groups(cluster, [group]))[group]
    if description is not None and description.is_active:
        if not dry_run:
            raise CommandFailed(_active_line(description))
        remark(_active_line(description))
    moves = await _plan(cluster, group, wish)
    if not dry_run:
        with told_of(group):
            await commit_offsets(cluster, group, {move.partition: move.new for move in moves})
    return moves


def _active_line(description: "GroupDescription") -> str:
    from barnabas.cli.output import plural

    clients = sorted({member.client_id or member.member_id for member in description.members})
    who = f" ({', '.join(clients[:3])}{', …' if len(clients) > 3 else ''})" if clients else ""
    has = f"{plural(len(description.members), 'member')}{who}" if description.are_members_known else "members"
    return f"group '{description.group}' is {description.state} with {has}; stop them before you reset its offsets"


async def _plan(cluster: "Cluster", group: str, wish: _Wish) -> list[Move]:
    from barnabas.client.group.group_offsets import committed_offsets
    from barnabas.client.offsets import end_offsets, start_offsets

    committed = {partition: one.offset for partition, one in (await committed_offsets(cluster, group)).items()}
    partitions = await _partitions(cluster, group, wish, committed)
    starts, ends = await start_offsets(cluster, partitions), await end_offsets(cluster, partitions)
    wanted = wish.offsets if wish.target is None else await _wanted(cluster, wish.target, committed, starts, ends)
    return [
        plan_move(partition, committed.get(partition), wanted[partition], starts[partition], ends[partition])
        for partition in partitions
    ]


async def _partitions(
    cluster: "Cluster", group: str, wish: _Wish, committed: "Mapping[TopicPartition, Offset]"
) -> "list[TopicPartition]":
    """In their order. UnknownTopic for what is not there."""
    from barnabas.base.ids import TopicPartition

    chosen: dict[TopicPartition, None] = {}
    for scope in wish.scopes:
        known = [one.index for one in (await cluster.topic(scope.topic)).partitions]
        indexes = known if scope.partitions is None else scope.partitions
        chosen.update(dict.fromkeys(TopicPartition(scope.topic, index) for index in indexes))
    if wish.offsets:
        chosen.update(dict.fromkeys(wish.offsets))
    elif not wish.scopes:
        chosen.update(dict.fromkeys(await _existing(cluster, committed)))
    if not chosen:
        raise CommandFailed(f"group '{group}' has no committed offsets; name topics with --topic TOPIC")
    for partition in chosen:
        await cluster.topic(partition.topic)
        cluster.view.partition(partition)
    return sorted(chosen)


async def _existing(cluster: "Cluster", committed: "Mapping[TopicPartition, Offset]") -> "list[TopicPartition]":
    """An offset of a topic that was deleted stays until it expires; there is nothing to reset."""
    from barnabas.client.errors import UnknownTopic

    existing = []
    for partition in committed:
        with contextlib.suppress(UnknownTopic):
            await cluster.topic(partition.topic)
            cluster.view.partition(partition)
            existing.append(partition)
    return existing


async def _wanted(
    cluster: "Cluster",
    target: Target,
    committed: "Mapping[TopicPartition, Offset]",
    starts: "Mapping[TopicPartition, Offset]",
    ends: "Mapping[TopicPartition, Offset]",
) -> "Mapping[TopicPartition, Offset]":
    from barnabas.client.offsets import list_offsets

    match target.kind:
        case TargetKind.EARLIEST:
            return starts
        case TargetKind.LATEST:
            return ends
        case TargetKind.OFFSET:
            return dict.fromkeys(ends, target.number)
        case TargetKind.TIME:
            listed = await list_offsets(cluster, dict.fromkeys(ends, target.number))
            # No record is so late: the next one that comes is.
            return {partition: ends[partition] if one is None else one.offset for partition, one in listed.items()}
        case TargetKind.CURRENT:
            return {partition: committed.get(partition, ends[partition]) for partition in ends}
        case TargetKind.SHIFT:
            missing = [partition for partition in ends if partition not in committed]
            if missing:
                raise CommandFailed(f"nothing is committed for {missing[0]}, so there is nothing to shift; give --to-…")
            return {partition: committed[partition] + target.number for partition in ends}


def plan_move(
    partition: "TopicPartition", old: "Offset | None", wanted: "Offset", start: "Offset", end: "Offset"
) -> Move:
    """Within the log: outside of it a consumer would go where its own auto.offset.reset says. Pure."""
    new = min(max(wanted, start), end)
    note = "" if new == wanted else f"{wanted} is {'before the start' if wanted < start else 'beyond the end'}"
    return Move(partition, old, new, start, end, note)


def _say_plan(group: str, moves: Sequence[Move], as_json: bool) -> None:
    from barnabas.cli.output import remark, say_json, say_table

    if as_json:
        for move in moves:
            topic, index = move.partition
            places = {"old": move.old, "new": move.new, "start": move.start, "end": move.end}
            say_json({"group": group, "topic": topic, "partition": index, **places, "note": move.note or None})
        return
    rows = []
    for move in moves:
        old = "none" if move.old is None else str(move.old)
        rows.append((move.partition.topic, str(move.partition.partition), old, str(move.new), str(move.end - move.new)))
    say_table(("topic", "partition#", "old#", "new#", "lag then#"), rows)
    for move in moves:
        if move.note:
            remark(f"{move.partition}: {move.note} of the log, so {move.new} is used")
