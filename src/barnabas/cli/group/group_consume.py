"""`barnabas consume --group`: prints what a group's members have not read yet, as one of them.

What was printed is committed: every few seconds, when partitions go to another member, and at the end, also after
Ctrl-C and SIGTERM. What was fetched and not printed, because `-n` was reached, stays for the next one. When the process
is killed, what it printed last is printed again: at least once, as Kafka's consumers do.

Without `--follow` it ends when it has printed what was there at the beginning of the partitions that it was given.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping

from barnabas.base.ids import Offset, TopicPartition
from barnabas.cli.group.group_arguments import told_of
from barnabas.cli.output import remark
from barnabas.cli.records.consume import Printer
from barnabas.cli.records.start_point import StartKind, StartPoint
from barnabas.cli.remote import CommandFailed
from barnabas.cli.waiting import SILENT_SECONDS
from barnabas.client.cluster import Cluster
from barnabas.client.group.group_consumer import GroupConsumer
from barnabas.client.group.member_options import GroupOptions, OffsetReset, RebalanceListener
from barnabas.client.offsets import Isolation, end_offsets
from barnabas.client.reading.consumer import ConsumerOptions
from barnabas.client.reading.fetched import FetchedRun

_POLL_SECONDS = 0.5


def offset_reset(start_point: StartPoint) -> OffsetReset:
    """`--from` with a group: it knows where to begin, but for what it never read."""
    match start_point.kind:
        case StartKind.BEGINNING:
            return OffsetReset.EARLIEST
        case StartKind.END:
            return OffsetReset.LATEST
    raise CommandFailed(
        "a group continues at its committed offsets: with --group, --from can only be beginning or end, for "
        "partitions without one; 'barnabas group reset' moves the offsets"
    )


async def consume_as_member(
    cluster: Cluster,
    group: str,
    topic: str,
    isolation: Isolation,
    reset: OffsetReset,
    printer: Printer,
    *,
    follow: bool,
) -> None:
    metadata = await cluster.topic(topic)
    partitions = [TopicPartition(topic, one.index) for one in metadata.partitions]
    ends = None if follow else await end_offsets(cluster, partitions, isolation)
    options = GroupOptions(group, auto_offset_reset=reset, consumer=ConsumerOptions(isolation=isolation))
    with told_of(group):
        async with GroupConsumer(cluster, options) as consumer:
            with _stopped_by_sigterm(consumer):
                await _Member(consumer, printer, ends).run(topic)


class _Member(RebalanceListener):
    def __init__(self, consumer: GroupConsumer, printer: Printer, ends: Mapping[TopicPartition, Offset] | None) -> None:
        self._consumer = consumer
        self._printer = printer
        self._ends = ends
        """Where to stop; None: never."""
        self._was_assigned = False

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._was_assigned = True

    async def run(self, topic: str) -> None:
        self._consumer.subscribe([topic], listener=self)
        silent_seconds = 0.0
        while not self._is_finished():
            runs = await self._consumer.poll(_POLL_SECONDS)
            silent_seconds = 0.0 if runs else silent_seconds + _POLL_SECONDS
            self._printer.say_waiting(self._consumer.problem if silent_seconds >= SILENT_SECONDS else None)
            for run in runs:
                self._print(run)
        sys.stdout.buffer.flush()
        self._consumer.stop()
        await self._consumer.poll()  # what the last one handed out counts as read with this one
        if self._consumer.assignment:
            await self._consumer.commit()
        elif self._was_assigned and self._ends is not None:
            remark("all partitions belong to other members of the group; --follow waits for one")

    def _is_finished(self) -> bool:
        if self._printer.is_finished or self._consumer.is_stopped:
            return True
        if self._ends is None or not self._was_assigned:
            return False
        return all(offset >= self._ends.get(one, 0) for one, offset in self._consumer.positions.items())

    def _print(self, run: FetchedRun) -> None:
        """Whatever of the run is not printed counts as not read."""
        end = None if self._ends is None else self._ends.get(run.partition, 0)
        printed_to = self._printer.print(run.records() if end is None else run.records(end_offset=end))
        if self._printer.is_finished:
            self._consumer.seek(run.partition, run.first_offset if printed_to is None else printed_to)
        elif end is not None and run.next_offset > end:
            self._consumer.seek(run.partition, max(run.first_offset, end))
            self._consumer.pause([run.partition])


@contextlib.contextmanager
def _stopped_by_sigterm(consumer: GroupConsumer) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, consumer.stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
