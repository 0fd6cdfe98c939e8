"""How the generators of the examples send what they make: the topics they need, a steady rate, progress, Ctrl-C.

A generator is an endless iterator of records that a seed decides; `run_command` is its command line. So the same
records come every time, and `--first` goes on where an earlier call ended. The times in the records are the
generator's own.
"""

import asyncio
import heapq
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Annotated, Final

import typer

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.cli.output import complain, plural, progress, say
from barnabas.cli.remote import DEFAULT_BOOTSTRAP, Bootstrap, with_cluster
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.producing.producer import Producer

_SEED: Final = 7
_RECORDS: Final = 10_000
_RATE: Final = 200
_PROGRESS_RECORDS: Final = 50
_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int = 1
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    topic: str
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in seconds since the beginning, and how much later its record is sent."""

    seconds: float
    delay_seconds: float
    record: Record


@dataclass(frozen=True, slots=True)
class Delays:
    """How much later than they happen events are told: most at once, some out of order, a few late."""

    out_of_order_share: float
    out_of_order_seconds_max: float
    late_share: float
    late_seconds: tuple[float, float]

    def draw_seconds(self, random: Random) -> float:
        chance = random.random()
        if chance < self.late_share:
            return random.uniform(*self.late_seconds)
        is_out_of_order = chance < self.late_share + self.out_of_order_share
        return random.uniform(0, self.out_of_order_seconds_max) if is_out_of_order else 0.0


def in_order_of_sending(events: Iterator[Event]) -> Iterator[Record]:
    """The records of events that come in the order in which they happened."""
    waiting: list[tuple[float, int, Record]] = []
    for number, event in enumerate(events):
        heapq.heappush(waiting, (event.seconds + event.delay_seconds, number, event.record))
        while waiting and waiting[0][0] <= event.seconds:
            yield heapq.heappop(waiting)[2]


async def create_missing(cluster: Cluster, topics: Sequence[Topic]) -> None:
    admin = Admin(cluster)
    known = {topic.name for topic in await admin.topics()}
    for topic in topics:
        if topic.name not in known:
            await admin.create_topic(topic.name, partitions=topic.partitions, configs=topic.configs)


async def send(cluster: Cluster, records: Iterator[Record], rate: float | None, advance: Callable[[int], None]) -> None:
    """Returns when the cluster has them all. With a `rate` the records go out evenly, so many a second."""
    clock = SystemClock()
    started_at = clock.monotonic()
    waiting = 0
    async with Producer(cluster) as producer:
        for number, record in enumerate(records):
            if rate is not None:
                ahead_seconds = started_at + number / rate - clock.monotonic()
                if ahead_seconds > 0:
                    await asyncio.sleep(ahead_seconds)
            await producer.send(record.topic, record.value, key=record.key)
            waiting += 1
            if waiting == _PROGRESS_RECORDS:
                advance(waiting)
                waiting = 0


def produce(
    bootstrap: str, topics: Sequence[Topic], records: Iterator[Record], count: int, rate: float | None = None
) -> None:
    """Makes the topics that are missing and sends the first `count` records. CommandFailed says what went wrong."""

    async def work(cluster: Cluster) -> None:
        await create_missing(cluster, topics)
        with progress("generating", count, unit="records") as advance:
            await send(cluster, islice(records, count), rate, advance)

    with_cluster(bootstrap, work)


def run_command(what: str, topics: Sequence[Topic], generate: Callable[[int], Iterator[Record]]) -> None:
    """The command line of a generator; `what` is its help, `generate` makes records without end from a seed."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command(help=what)
    def main(
        bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
        records: Annotated[int, typer.Option(help="How many records.", min=1)] = _RECORDS,
        seconds: Annotated[float | None, typer.Option(help="For how long, instead of how many.", min=0.1)] = None,
        rate: Annotated[
            float | None,
            typer.Option(help=f"Records a second. [default: all at once; {_RATE} with --seconds]", min=0.1),
        ] = None,
        first: Annotated[int, typer.Option(help="Leave out so many records, to go on after an earlier call.")] = 0,
        seed: Annotated[int, typer.Option(help="Another seed makes other records.")] = _SEED,
    ) -> None:
        if seconds is not None:
            rate = rate or _RATE
            records = max(1, round(seconds * rate))
        try:
            produce(bootstrap, topics, islice(generate(seed), first, None), records, rate)
        except BarnabasError as error:
            complain(str(error))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)
        names = ", ".join(topic.name for topic in topics)
        say(f"{plural(records, 'record')} generated; the topics are {names}")

    app()
