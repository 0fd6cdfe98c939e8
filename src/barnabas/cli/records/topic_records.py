"""`barnabas topic delete-records`: moves the start of a topic's partitions up, so that older records are gone.

```
--before, --all ──▶ plan: the new start of each partition, shown ──▶ asked on a terminal ──▶ DeleteRecords
```

The plan's offsets are what is deleted: records that come meanwhile stay, also with `--all`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.base.clock import SystemClock
from barnabas.cli import completion
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, CommandFailed, with_cluster

if TYPE_CHECKING:
    from barnabas.base.ids import Offset, TopicPartition
    from barnabas.cli.records.start_point import StartPoint
    from barnabas.client.cluster import Cluster


Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False, autocompletion=completion.topics)
]


@dataclass(frozen=True, slots=True)
class Cut:
    """What happens to one partition."""

    partition: "TopicPartition"
    old_start: "Offset"
    start: "Offset"
    end: "Offset"

    @property
    def deleted(self) -> int:
        """Offsets, which are as many as records where nothing was compacted."""
        return self.start - self.old_start


def delete_records(
    name: Topic,
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="WHERE",
            help="Delete the records before an offset (-10: all but the last ten), a time, '2 days ago'.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all current records.")] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", help="Only this partition; may be repeated.", min=0),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete the oldest records of a topic; the topic stays.

    On a terminal, asks for confirmation first. A topic that is only compacted keeps its records.

    Examples:

      barnabas topic delete-records orders --before '2 days ago'

      barnabas topic delete-records orders --before 1000 --partition 0

      barnabas topic delete-records orders --all --dry-run
    """
    from barnabas.cli.output import confirm, plural, remark, say

    point = _place(before, everything)

    async def plan(cluster: "Cluster") -> list[Cut]:
        return await _plan(cluster, name, partition, point)

    cuts = [cut for cut in with_cluster(bootstrap, plan) if cut.deleted]
    if not cuts:
        remark(f"topic '{name}' has no records to delete")
        return
    if not as_json:
        _say_plan(cuts)
    records = plural(sum(cut.deleted for cut in cuts), "record")
    if dry_run:
        if as_json:
            _say_json(cuts)
        else:
            say(f"would delete {records} of topic '{name}'")
        return
    if not yes:
        confirm(f"Delete {records} of {name}?", "nothing deleted")

    async def delete(cluster: "Cluster") -> None:
        await _delete(cluster, name, cuts)

    with_cluster(bootstrap, delete)
    if as_json:
        _say_json(cuts)
    else:
        say(f"deleted {records} of topic '{name}'")


def _place(before: str | None, everything: bool) -> "StartPoint":
    from barnabas.cli.records.start_point import InvalidStart, StartKind, StartPoint, parse_start

    if (before is not None) == everything:
        raise CommandFailed("which records? Give --before WHERE or --all")
    if before is None:
        return StartPoint(StartKind.END)
    try:
        return parse_start(before, SystemClock().now_ms())
    except InvalidStart:
        raise CommandFailed(
            f"--before {before!r} is not a place in a topic; use an offset, '2 days ago' or 2026-11-15T10:30"
        ) from None


async def _plan(cluster: "Cluster", topic: str, chosen: Sequence[int] | None, point: "StartPoint") -> list[Cut]:
    from barnabas.cli.places import offsets_at, partitions_of
    from barnabas.client.offsets import end_offsets, start_offsets

    partitions = await partitions_of(cluster, topic, chosen)
    old_starts = await start_offsets(cluster, partitions)
    ends = await end_offsets(cluster, partitions)
    starts = await offsets_at(cluster, ends, point)
    return [Cut(one, old_starts[one], starts[one], ends[one]) for one in partitions]


async def _delete(cluster: "Cluster", topic: str, cuts: Sequence[Cut]) -> None:
    from barnabas.client.admin import Admin
    from barnabas.wire.errors import ErrorCode, KafkaError

    try:
        await Admin(cluster).delete_records({cut.partition: cut.start for cut in cuts})
    except KafkaError as error:
        if error.code is not ErrorCode.POLICY_VIOLATION:
            raise
        raise CommandFailed(
            f"topic '{topic}' is only compacted (cleanup.policy=compact), so its records cannot be deleted by offset"
        ) from error


def _say_plan(cuts: Sequence[Cut]) -> None:
    from barnabas.cli.output import say_table

    rows = [(str(cut.partition.partition), *map(str, (cut.old_start, cut.start, cut.end, cut.deleted))) for cut in cuts]
    say_table(("partition#", "start#", "new start#", "end#", "deleted#"), rows)


def _say_json(cuts: Sequence[Cut]) -> None:
    from barnabas.cli.output import say_json

    for cut in cuts:
        topic, index = cut.partition
        places = {"old_start": cut.old_start, "start": cut.start, "end": cut.end, "deleted": cut.deleted}
        say_json({"topic": topic, "partition": index, **places})
