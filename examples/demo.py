"""`python -m examples.demo` (`make run`): metric monitoring from end to end, on a broker and on Spark.

1. starts a broker (`barnabas up`; `--brokers 3` makes it a cluster on ZooKeeper) on free ports, in processes of their
   own, with data in a temporary directory;
2. starts Spark, and on it the pipeline of `examples/metrics`;
3. sends the metrics of two hundred hosts for half a minute, with incidents in them, while the pipeline runs; of several
   brokers it kills the leader of a partition halfway (`demo_failover`);
4. waits for the alerts of these incidents, and stops everything;
5. shows the alerts and what it measured, and compares them with the incidents: status 1 when one is missing, or has no
   cause, when a record is missing or there twice, or when a malformed record is no dead letter.

Ctrl-C stops it at any moment, with status 130. How latencies are measured says `demo_results`.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import uvloop

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.demo import BrokerProcess, DemoFailed
from barnabas.cli.output import complain, plural, say, say_table
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import end_offsets
from barnabas.client.reading.consumer import Consumer
from barnabas.client.reading.fetched import ConsumedRecord
from barnabas.pipelines.java import JavaUnusable, find_java
from barnabas.wire.errors import KafkaError
from examples.demo_failover import Failover
from examples.demo_pipeline import PipelineThread
from examples.demo_results import (
    Alert,
    dead_letter_origins,
    differences,
    latencies_of,
    read_alert,
    record_latencies,
)
from examples.demo_view import DemoView, Status, make_view
from examples.metrics.fleet import TOPIC, TOPIC_PARTITIONS, WATERMARK_MS, ExpectedAlert, Fleet, generate
from examples.metrics.generate import RATE, SEED, TOPICS, send
from examples.producing import create_missing

SECONDS: Final = 30
_LOOK_SECONDS: Final = 0.1
_BEGIN_SECONDS_MAX: Final = 300.0
_ALERT_SECONDS_MAX: Final = 240.0
_ALERTS: Final = TopicPartition("alerts", 0)
_WINDOWS: Final = TopicPartition("metric-windows", 0)
_DEAD: Final = TopicPartition("metrics-dead", 0)


@dataclass(slots=True)
class Story:
    """What has happened so far."""

    fleet: Fleet
    count: int
    records_in: int = 0
    malformed: int = 0
    sending_seconds: float = 0.0
    running_seconds: float = 0.0
    """Until the last record was processed."""
    alerts: dict[str, Alert] = field(default_factory=dict)
    """By id, which tells doubles."""

    @property
    def expected(self) -> set[ExpectedAlert]:
        return self.fleet.expected_alerts(self.fleet.taken_ms(self.count - 1))

    @property
    def has_all_alerts(self) -> bool:
        return self.expected <= {alert.as_expected for alert in self.alerts.values()}

    @property
    def last_alert(self) -> str:
        if not self.alerts:
            return ""
        last = list(self.alerts.values())[-1]
        return f"{last.host} {last.rule} ({last.severity})"


@dataclass(frozen=True, slots=True)
class Watch:
    """Shows how far things are while something is awaited."""

    view: DemoView
    clock: Clock
    pipeline: PipelineThread

    async def until(
        self, is_done: Callable[[], bool], doing: str, seconds_max: float, story: Story | None = None
    ) -> float:
        """The seconds it took. DemoFailed when it takes too long, or when the pipeline ends before."""
        began = self.clock.monotonic()
        warned = 0
        while not is_done():
            seconds = self.clock.monotonic() - began
            if self.pipeline.ended.done():
                raise DemoFailed(f"the pipeline ended: {self.pipeline.ended.exception()}")
            if seconds > seconds_max:
                raise DemoFailed(f"{doing} took longer than {seconds_max:g} s")
            for text in self.pipeline.seen.warnings[warned:]:
                self.view.warn(text)
            warned = len(self.pipeline.seen.warnings)
            self.view.show(self._status(doing, seconds, seconds_max, story))
            await asyncio.sleep(_LOOK_SECONDS)
        return self.clock.monotonic() - began

    def _status(self, doing: str, seconds: float, seconds_max: float, story: Story | None) -> Status:
        if story is None:
            return Status(doing, seconds)
        seen = self.pipeline.seen
        total = story.count / story.fleet.rate if seconds_max == float("inf") else None
        return Status(
            doing, seconds, total, story.records_in, len(story.alerts), story.last_alert, seen.lag, seen.fleet
        )


# --- the parts of the story -----------------------------------------------------------------------------------------


async def run_demo(
    directory: Path, view: DemoView, *, brokers: int = 1, seconds: int = SECONDS, rate: int = RATE
) -> None:
    clock = SystemClock()
    broker = BrokerProcess(directory, brokers)
    try:
        began = clock.monotonic()
        await asyncio.to_thread(broker.start)
        started = "1 broker    " if brokers == 1 else f"1 cluster    of {plural(brokers, 'broker')}"
        view.line(f"{started} on {broker.bootstrap}, ready after {clock.monotonic() - began:.1f} s")
        async with Cluster(broker.bootstrap) as cluster:
            await create_missing(cluster, TOPICS)
            pipeline = PipelineThread(broker.bootstrap, directory)
            failover = None
            if brokers > 1:
                failover = Failover(broker, cluster, clock, after_records=seconds * rate // 2)
            with view:
                story = await _run_pipeline(cluster, Watch(view, clock, pipeline), seconds, rate, failover)
            await _tell_results(cluster, story, pipeline)
            if failover is not None:
                say(f"All {plural(story.records_in, 'record')} are there, each once, though their leader was killed.")
        await asyncio.to_thread(broker.stop)
    finally:
        await asyncio.to_thread(broker.kill)


async def _run_pipeline(cluster: Cluster, watch: Watch, seconds: int, rate: int, failover: Failover | None) -> Story:
    watch.pipeline.start()
    try:
        await _start_spark(watch)
        story = await _run_half_a_minute(cluster, watch, seconds, rate, failover)
        watch.view.show(Status("stopping the pipeline", 0.0))
        began = watch.clock.monotonic()
    finally:
        await watch.pipeline.stop()
    step = 4 if failover is None else 5
    watch.view.line(f"{step} stopped    the pipeline and Spark, in {watch.clock.monotonic() - began:.1f} s")
    return story


async def _start_spark(watch: Watch) -> None:
    session = await watch.until(watch.pipeline.session_started.done, "starting Spark", _BEGIN_SECONDS_MAX)
    queries = await watch.until(
        lambda: watch.pipeline.seen.has_begun, "starting the pipeline's queries", _BEGIN_SECONDS_MAX
    )
    names = ", ".join(view.name for view in watch.pipeline.seen.views)
    watch.view.line(f"2 Spark      started in {session:.1f} s, and the pipeline's queries ({names}) in {queries:.1f} s")


async def _run_half_a_minute(
    cluster: Cluster, watch: Watch, seconds: int, rate: int, failover: Failover | None
) -> Story:
    story = Story(Fleet(SEED, rate, watch.clock.now_ms()), seconds * rate)
    watch.view.line(
        f"3 metrics    of {plural(story.fleet.hosts, 'host')}, {plural(rate, 'record')} a second for {seconds} s"
    )
    began = watch.clock.monotonic()
    collecting = asyncio.create_task(_collect_alerts(cluster, story))
    sending = asyncio.create_task(_send(cluster, story, watch.clock, failover))
    try:
        await watch.until(sending.done, "running", float("inf"), story)
        await sending
        if failover is not None:
            _tell_failover(watch.view, failover)
        await watch.until(
            lambda: collecting.done() or (story.has_all_alerts and watch.pipeline.seen.lag == 0),
            "waiting for the last alerts",
            _ALERT_SECONDS_MAX,
            story,
        )
        if collecting.done():
            await collecting
        story.running_seconds = watch.clock.monotonic() - began
    finally:
        for task in (sending, collecting):
            task.cancel()
        await asyncio.gather(sending, collecting, return_exceptions=True)
        if failover is not None:
            await failover.stop()
    return story


def _tell_failover(view: DemoView, failover: Failover) -> None:
    if failover.gap_seconds is None:
        raise DemoFailed(f"nobody took the place of broker {failover.killed_id}, which was killed")
    led = ", ".join(map(str, failover.partitions))
    view.line(
        f"4 killed     broker {failover.killed_id}, the leader of {led}, halfway (SIGKILL); another one acknowledged"
        f" records again after {failover.gap_seconds:.2f} s"
    )


async def _send(cluster: Cluster, story: Story, clock: Clock, failover: Failover | None) -> None:
    def note(count: int) -> None:
        story.records_in += count

    began = clock.monotonic()
    on_sent = None if failover is None else failover.sent
    await send(cluster, generate(story.fleet, story.count), note, clock, on_sent)
    story.sending_seconds = clock.monotonic() - began
    story.malformed = story.records_in - story.count


async def _collect_alerts(cluster: Cluster, story: Story) -> None:
    async with Consumer(cluster) as consumer:
        consumer.assign({_ALERTS: 0})
        async for record in consumer.records():
            alert = read_alert(record)
            story.alerts.setdefault(alert.id, alert)


# --- the results ----------------------------------------------------------------------------------------------------


async def _tell_results(cluster: Cluster, story: Story, pipeline: PipelineThread) -> None:
    """DemoFailed when something is not as it must be."""
    samples = [one for index in range(TOPIC_PARTITIONS) for one in await _read(cluster, TopicPartition(TOPIC, index))]
    rows, letters, alerts = [await _read(cluster, partition) for partition in (_WINDOWS, _DEAD, _ALERTS)]
    found = list(story.alerts.values())
    say("")
    _say_alerts(found)
    rows_out = len(alerts) + len(rows) + len(letters)
    say("")
    say(
        f"records in   {len(samples):,} in {story.sending_seconds:.1f} s:"
        f" {len(samples) / story.sending_seconds:,.0f} a second"
    )
    say(
        f"rows out     {rows_out:,}: {plural(len(alerts), 'alert')}, {plural(len(rows), 'row')} of windows,"
        f" {plural(len(letters), 'dead letter')}; {rows_out / story.running_seconds:,.0f} a second"
    )
    for one in pipeline.seen.views:
        say(f"query        {one.name}: {plural(one.input_rows, 'record')} in {plural(one.batch_id + 1, 'batch')}")
    _say_latencies(record_latencies(samples, rows), len(samples) - story.malformed, found)
    problems = differences(story.expected, found)
    if len(samples) != story.records_in:
        problems.append(f"{plural(story.records_in, 'record')} were sent, and {len(samples):,} are there")
    if (bad := len(dead_letter_origins(letters))) != story.malformed:
        problems.append(f"{plural(story.malformed, 'record')} were malformed, and {bad:,} are dead letters")
    if problems:
        raise DemoFailed("; ".join(problems))
    say("")
    say(f"All {plural(len(found), 'alert')} are those of the incidents in the metrics; none is missing.")


def _say_latencies(latencies_ms: list[int], samples: int, alerts: list[Alert]) -> None:
    if latencies_ms:
        say(f"latency      {latencies_of(latencies_ms)}")
        say(
            "             from a record's production to the first row of a window that counts it;"
            f" {samples - len(latencies_ms):,} of {samples:,} came too late for their window"
        )
    if alerts:
        say(f"alerts       {latencies_of(alert.after_window_ms for alert in alerts)}")
        say(f"             after their window's end, of which {WATERMARK_MS / 1000:g} s are the wait for late records")


async def _read(cluster: Cluster, partition: TopicPartition) -> list[ConsumedRecord]:
    """What is there now."""
    end = (await end_offsets(cluster, [partition]))[partition]
    records: list[ConsumedRecord] = []
    async with Consumer(cluster) as consumer:
        consumer.assign({partition: 0})
        while consumer.positions[partition] < end:
            for run in await consumer.poll():
                records += run.records(end_offset=end)
    return records


def _say_alerts(alerts: list[Alert]) -> None:
    rows = [
        (
            datetime.fromtimestamp(alert.window_start_ms / 1000, UTC).strftime("%H:%M:%S"),
            alert.host,
            alert.severity,
            alert.rule,
            f"{alert.value:.1f}",
            f"{alert.side} {alert.threshold:g}",
            f"{alert.after_window_ms / 1000:.1f} s",
        )
        for alert in sorted(alerts, key=lambda one: (one.window_start_ms, one.host))
    ]
    say_table(("WINDOW", "HOST", "SEVERITY", "RULE", "VALUE#", "THRESHOLD", "AFTER#"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.demo", description="Metric monitoring from end to end, on Spark.")
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="how many brokers; several need ZooKeeper")
    brokers = parser.parse_args().brokers
    logging.getLogger("barnabas").addHandler(logging.NullHandler())  # the story tells it all
    try:
        find_java()
    except JavaUnusable as reason:
        complain(f"{reason}. `make run-broker` shows the broker without Spark.")
        return 1
    try:
        with tempfile.TemporaryDirectory(prefix="barnabas-demo-", ignore_cleanup_errors=True) as directory:
            say(f"Barnabas watches a fleet of hosts; everything lies in {directory} and is removed at the end.")
            uvloop.run(run_demo(Path(directory), make_view(), brokers=brokers))
    except (DemoFailed, BarnabasError, KafkaError) as failure:
        complain(f"the demo failed: {failure}")
        return 1
    except KeyboardInterrupt:
        say("stopped")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
