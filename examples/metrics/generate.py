"""`python -m examples.metrics.generate`: sends the metrics of a fleet to a cluster, and makes the topics they need.

With `--seconds` samples are sent as they are taken, at a steady rate; with `--records` at once, with past times.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Annotated, Final

import typer
import uvloop

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.cli.output import complain, plural, progress, say
from barnabas.client.cluster import Cluster
from barnabas.client.producing.producer import Delivery, Producer
from barnabas.wire.errors import KafkaError
from examples.metrics.fleet import OUTPUT_TOPICS, RATE_MIN, TOPIC, TOPIC_PARTITIONS, Fleet, GeneratedRecord, generate
from examples.producing import Topic, create_missing

RATE: Final = 1_000
SEED: Final = 1
TOPICS: Final = (
    Topic(TOPIC, TOPIC_PARTITIONS),
    # The timestamp of a record is when the broker stored it.
    *(Topic(name, configs={"message.timestamp.type": "LogAppendTime"}) for name in OUTPUT_TOPICS),
)
_PAUSE_SECONDS: Final = 0.01
_PROGRESS_RECORDS: Final = 100


async def send(
    cluster: Cluster,
    records: Iterable[GeneratedRecord],
    on_progress: Callable[[int], None],
    clock: Clock | None = None,
    on_sent: Callable[[Delivery], None] | None = None,
) -> int:
    """Sends records; with a clock each when it is due. How many there were, once the broker has them all."""
    sent = reported = 0
    async with Producer(cluster) as producer:
        for record in records:
            if clock is not None and (wait_ms := record.due_ms - clock.now_ms()) > 0:
                await asyncio.sleep(max(wait_ms / 1000, _PAUSE_SECONDS))
            delivery = await producer.send(TOPIC, record.value, key=record.key)
            if on_sent is not None:
                on_sent(delivery)
            sent += 1
            if sent - reported >= _PROGRESS_RECORDS:
                on_progress(sent - reported)
                reported = sent
        await producer.flush()
    on_progress(sent - reported)
    return sent


async def _run(bootstrap: str, count: int, rate: int, seed: int, *, is_steady: bool) -> None:
    clock = SystemClock()
    start_ms = clock.now_ms() - (0 if is_steady else count * 1000 // rate)
    fleet = Fleet(seed, rate, start_ms)
    async with Cluster(bootstrap) as cluster:
        await create_missing(cluster, TOPICS)
        with progress("sending", count, unit="records") as advance:
            sent = await send(cluster, generate(fleet, count), advance, clock if is_steady else None)
    expected = fleet.expected_alerts(fleet.taken_ms(count - 1))
    say(f"sent {plural(sent, 'record')} of {plural(fleet.hosts, 'host')}; they are reason for these alerts:")
    for alert in sorted(expected, key=lambda one: (one.window_start_ms, one.host)):
        say(f"  {alert.host}  {alert.rule} ({alert.severity})")


def command(
    bootstrap: Annotated[str, typer.Option("--bootstrap", "-b", envvar="BARNABAS_BOOTSTRAP")] = "127.0.0.1:9092",
    records: Annotated[int | None, typer.Option(help="Send so many samples at once.", min=1)] = None,
    seconds: Annotated[int, typer.Option(help="Send samples for so long, at a steady rate.", min=1)] = 60,
    rate: Annotated[int, typer.Option(help="Samples a second; a host sends five.", min=RATE_MIN)] = RATE,
    seed: Annotated[int, typer.Option(help="Another fleet, with other incidents.", min=0)] = SEED,
) -> None:
    """Send the metrics of a fleet of hosts."""
    count = seconds * rate if records is None else records
    try:
        uvloop.run(_run(bootstrap, count, rate, seed, is_steady=records is None))
    except (BarnabasError, KafkaError) as error:
        complain(str(error))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


if __name__ == "__main__":
    typer.run(command)
