"""`barnabas consume`: prints the records of a topic, from any place on.

Without `--follow` it ends with the last record that was there when it began. Output is bytes: nothing is decoded, so
what comes out is what was sent. With `--group` the partitions are shared with the group's other members, and what was
printed is committed: `group_consume`.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.base.clock import SystemClock
from barnabas.cli import completion
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, Bootstrap, CommandFailed, with_cluster

if TYPE_CHECKING:
    from barnabas.base.ids import Offset, TopicPartition
    from barnabas.cli.records.record_output import Render
    from barnabas.cli.records.start_point import StartPoint
    from barnabas.client.cluster import Cluster
    from barnabas.client.offsets import Isolation
    from barnabas.client.reading.consumer import Consumer
    from barnabas.client.reading.fetched import ConsumedRecord


def consume(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", help="The topic to read.", show_default=False, autocompletion=completion.topics
        ),
    ],
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="WHERE", help="beginning, end, an offset (-10: the last ten), a time, '2 hours ago'."
        ),
    ] = "beginning",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records at the end.")] = False,
    limit: Annotated[
        int | None, typer.Option("-n", metavar="COUNT", help="Stop after this many records.", min=1)
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", metavar="N", help="Only this partition; may be repeated.", show_default=False
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="TEXT",
            help="How to print a record: {topic} {partition} {offset} {timestamp} {time} {key} {value} {headers}.",
        ),
    ] = None,
    null: Annotated[
        str, typer.Option("--null", metavar="TEXT", help="What to print for null: a tombstone, or a missing key.")
    ] = "null",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per record.")] = False,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group, from its committed offsets, and commit.",
            autocompletion=completion.groups,
        ),
    ] = None,
    committed: Annotated[
        bool, typer.Option("--committed", help="Leave out records of open or aborted transactions.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic.

    Prints the value of each record on its own line, unless --format or --json says otherwise.

    Examples:

      barnabas consume orders -n 10

      barnabas consume orders --from '2 hours ago' --follow

      barnabas consume orders --format '{partition}:{offset} {key} {value}'

      barnabas consume orders --group billing --follow
    """
    from barnabas.cli.records.record_output import compile_format, render_json, value_renderer
    from barnabas.cli.records.start_point import parse_start
    from barnabas.client.offsets import Isolation

    if template is not None and as_json:
        raise CommandFailed("give --format or --json, not both")
    shown_null = null.encode("utf-8", "surrogateescape")
    as_text = value_renderer(shown_null) if template is None else compile_format(template, shown_null)
    render = render_json if as_json else as_text
    start_point = parse_start(start, SystemClock().now_ms())
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    if group is not None:
        _consume_as_member(bootstrap, group, topic, partition, start_point, isolation, limit, follow, render)
        return

    async def work(cluster: "Cluster") -> None:
        await _consume(cluster, topic, partition, start_point, isolation, limit, follow, render)

    with_cluster(bootstrap, work, is_stream=True)


def _consume_as_member(
    bootstrap: str,
    group: str,
    topic: str,
    chosen: list[int] | None,
    start_point: "StartPoint",
    isolation: "Isolation",
    limit: int | None,
    follow: bool,
    render: "Render",
) -> None:
    from barnabas.cli.group.group_consume import consume_as_member, offset_reset

    if chosen is not None:
        raise CommandFailed("a group assigns the partitions to its members; leave out --partition or --group")
    reset = offset_reset(start_point)
    printer = Printer(render, limit, is_live=follow or sys.stdout.isatty())

    async def work(cluster: "Cluster") -> None:
        await consume_as_member(cluster, group, topic, isolation, reset, printer, follow=follow)

    with_cluster(bootstrap, work, is_stream=True)


async def _consume(
    cluster: "Cluster",
    topic: str,
    chosen: list[int] | None,
    start_point: "StartPoint",
    isolation: "Isolation",
    limit: int | None,
    follow: bool,
    render: "Render",
) -> None:
    from barnabas.cli.places import offsets_at, partitions_of
    from barnabas.cli.waiting import SILENT_SECONDS
    from barnabas.client.offsets import EARLIEST, end_offsets
    from barnabas.client.reading.consumer import Consumer, ConsumerOptions

    partitions = await partitions_of(cluster, topic, chosen)
    ends = await end_offsets(cluster, partitions, isolation)
    starts = await offsets_at(cluster, ends, start_point)
    _say_beyond_end(topic, starts, ends, start_point, follow)
    async with Consumer(cluster, ConsumerOptions(isolation=isolation, out_of_range=EARLIEST)) as consumer:
        consumer.assign(starts)
        printer = Printer(render, limit, is_live=follow or sys.stdout.isatty())
        while not printer.is_finished:
            if not follow:
                _drop_finished(consumer, ends)
            if not consumer.positions:
                return
            runs = await consumer.poll(SILENT_SECONDS)
            printer.say_waiting(None if runs else consumer.problem)
            for run in runs:
                printer.print(run.records() if follow else run.records(end_offset=ends[run.partition]))


def _drop_finished(consumer: "Consumer", ends: "Mapping[TopicPartition, Offset]") -> None:
    for partition, position in list(consumer.positions.items()):
        if position >= ends[partition]:
            consumer.drop(partition)


class Printer:
    """Writes records as they come, up to the limit, and says why none come."""

    def __init__(self, render: "Render", limit: int | None, *, is_live: bool) -> None:
        from barnabas.cli.waiting import ReadingReport

        self._report = ReadingReport()
        self._render = render
        self._remaining = limit
        self._is_live = is_live

    @property
    def is_finished(self) -> bool:
        return self._remaining == 0

    def say_waiting(self, problem: Exception | None) -> None:
        """Why none came for a while; None when some did, or none are there."""
        from barnabas.cli.output import remark

        line = self._report.line(problem)
        if line is not None:
            remark(line)

    def print(self, records: "Iterable[ConsumedRecord]") -> "Offset | None":
        """The offset behind the last one that was printed; None when none was."""
        written = bytearray()
        next_offset = None
        for record in records:
            if self.is_finished:
                break
            written += self._render(record)
            next_offset = record.offset + 1
            if self._remaining is not None:
                self._remaining -= 1
        sys.stdout.buffer.write(written)
        if self._is_live:
            sys.stdout.buffer.flush()
        return next_offset


def _say_beyond_end(
    topic: str,
    starts: "Mapping[TopicPartition, Offset]",
    ends: "Mapping[TopicPartition, Offset]",
    start_point: "StartPoint",
    follow: bool,
) -> None:
    from barnabas.cli.output import remark
    from barnabas.cli.records.start_point import beyond_end

    line = beyond_end(topic, start_point, starts, ends)
    if line is not None:
        remark(f"{line}; new records are printed from the end on" if follow else line)
