"""A broker beside Apache Kafka: both run at the same time, get the same load in turns, and are compared by ratios.

    python -m benchmarks broker                      as a part of all benchmarks
    python -m benchmarks.broker --quick              a look in a minute or two; the JVM is not warm then
    python -m benchmarks.broker --rounds 7 --seconds 3 --warm-up 60 --json

What each figure means is in `benchmarks/README.md`. Where Kafka cannot be run (no Java, no jars) only Barnabas is
measured, and there are no ratios.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from tests.support.kafka import PROJECT_DIRECTORY, KafkaFailed, KafkaUnavailable, free_port

from benchmarks.broker_load import Outcome, resident_bytes_of
from benchmarks.broker_nodes import Barnabas, Kafka, Node, RunningNode
from benchmarks.report import Report

PARTITIONS: Final = 4
ONE_RECORD_BYTES: Final = 100
IDLE_CONNECTIONS: Final = 1000
IN_FLIGHT: Final = 5
"""What Kafka's clients allow on a connection unless they are told otherwise."""
_LOADED_MEGABYTES: Final = 400
_BULK_MEGABYTES: Final = 1500
_LOAD_TIMEOUT_SECONDS: Final = 120
_LEADER_SECONDS_MAX: Final = 20.0


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int = 5
    seconds: float = 2.0
    """Of each load in a round."""
    warm_up_seconds: float = 30.0
    starts: int = 3
    with_kafka: bool = True


QUICK: Final = Options(rounds=2, seconds=1.0, warm_up_seconds=6.0, starts=1)


def _rate(outcome: Outcome) -> float:
    return outcome.requests / outcome.seconds


def _megabytes_per_second(outcome: Outcome) -> float:
    return outcome.transferred_bytes / outcome.seconds / 1e6


def _cpu_seconds_per_gigabyte(outcome: Outcome) -> float:
    return outcome.cpu_seconds / outcome.transferred_bytes * 1e9


def _cpu_microseconds(outcome: Outcome) -> float:
    return outcome.cpu_seconds / outcome.requests * 1e6


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a load, and the ratio to Kafka's that it must reach."""

    name: str
    unit: str
    of: Callable[[Outcome], float] = _rate
    ratio_min: float | None = None
    ratio_max: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """One kind of load, with the figures that are taken from it."""

    title: str
    topic: str
    arguments: tuple[str, ...]
    figures: tuple[Figure, ...]
    is_bulk: bool = False
    """It fills the disk: its topic is made anew for each round."""
    program: str = "benchmarks.broker_load"


def loads_of(seconds: float) -> tuple[Measured, ...]:
    for_seconds = ("--seconds", str(seconds))
    small = (*for_seconds, "--batch-bytes", str(ONE_RECORD_BYTES))
    on_all = ("--connections", str(PARTITIONS), "--partitions", str(PARTITIONS))
    on_64 = ("--connections", "64", "--partitions", str(PARTITIONS), "--depth", str(IN_FLIGHT))
    return (
        Measured(
            "128 KB batches in",
            "in",
            ("produce", *for_seconds, *on_all, "--depth", str(IN_FLIGHT), "--megabytes", str(_BULK_MEGABYTES)),
            (
                Figure("produce, 128 KB batches", "MB/s", _megabytes_per_second, ratio_min=3),
                Figure("produce, CPU", "s/GB", _cpu_seconds_per_gigabyte, ratio_max=0.2),
            ),
            is_bulk=True,
        ),
        Measured(
            "consuming",
            "out",
            ("consume", *for_seconds, *on_all),
            (
                Figure("consume", "MB/s", _megabytes_per_second, ratio_min=1),
                Figure("consume, CPU", "s/GB", _cpu_seconds_per_gigabyte, ratio_max=0.8),
            ),
        ),
        Measured(
            "one-record requests on 1 connection",
            "one",
            ("produce", *small),
            (
                Figure("one-record requests, 1 connection", "1/s", _rate, ratio_min=2),
                Figure("produce round trip p50", "µs", lambda outcome: outcome.p50_us, ratio_max=0.7),
                Figure("produce round trip p99", "µs", lambda outcome: outcome.p99_us, ratio_max=0.7),
            ),
        ),
        Measured(
            "one-record requests on 64 connections",
            "many",
            ("produce", *small, *on_64),
            (
                Figure("one-record requests, 64 connections", "1/s", _rate, ratio_min=1.2),
                Figure("one-record request, CPU", "µs", _cpu_microseconds),
            ),
        ),
        Measured(
            "end to end",
            "ends",
            ("end_to_end", *small),
            (
                Figure("end to end p50", "µs", lambda outcome: outcome.p50_us, ratio_max=0.7),
                Figure("end to end p99", "µs", lambda outcome: outcome.p99_us, ratio_max=0.7),
            ),
        ),
    )


class LoadProcessFailed(Exception):  # noqa: N818
    """The load generator ended badly; the message is what it said."""


class Subject:
    """A running broker with its topics, and everything that was measured of it."""

    def __init__(self, node: RunningNode, start_seconds: float) -> None:
        self.node = node
        self.start_seconds = start_seconds
        self._admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        self.outcomes: dict[str, list[Outcome]] = {}
        self.idle_bytes = self.resident_bytes
        idle = self.run("", ("idle", "--connections", str(IDLE_CONNECTIONS)))
        self.idle_connection_bytes = idle.transferred_bytes / IDLE_CONNECTIONS

    @property
    def resident_bytes(self) -> int:
        return resident_bytes_of(self.node.pid)

    def create_topic(self, name: str) -> None:
        topic = NewTopic(name, PARTITIONS, 1, config={"file.delete.delay.ms": "0"})
        for done in self._admin.create_topics([topic]).values():
            done.result()
        # A broker may answer before it leads: the first batch is sent until it is taken.
        deadline = time.monotonic() + _LEADER_SECONDS_MAX
        while True:
            try:
                self.run(name, ("produce", "--seconds", "0.05", "--connections", str(PARTITIONS), "--depth", "2"))
                return
            except LoadProcessFailed:
                if time.monotonic() > deadline:
                    raise

    def delete_topic(self, name: str) -> None:
        for done in self._admin.delete_topics([name]).values():
            done.result()

    def run(self, topic: str, arguments: Sequence[str], program: str = "benchmarks.broker_load") -> Outcome:
        """One load; without a topic it is one that knows its own."""
        kind, *options = arguments
        where = ["--port", str(self.node.port), "--pid", str(self.node.pid)]
        if topic:
            where += ["--topic", topic]
        done = subprocess.run(
            [sys.executable, "-m", program, kind, *where, *options],
            cwd=PROJECT_DIRECTORY,
            capture_output=True,
            text=True,
            timeout=_LOAD_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise LoadProcessFailed(f"{self.node.name}: {done.stderr.strip()[-500:]}")
        return Outcome(**json.loads(done.stdout))

    def measure(self, load: Measured, round_number: int) -> Outcome:
        topic = f"{load.topic}-{round_number}" if load.is_bulk else load.topic
        if load.is_bulk:
            self.create_topic(topic)
            touch_memory(_BULK_MEGABYTES)
        outcome = self.run(topic, load.arguments, load.program)
        if load.is_bulk:
            self.delete_topic(topic)
        return outcome

    def median(self, load: Measured, figure: Figure) -> float:
        return statistics.median(figure.of(outcome) for outcome in self.outcomes[load.title])


def touch_memory(megabytes: int) -> None:
    """Has the page cache take and give back so much, so that what is written next finds memory that is there.

    A virtual machine gets its memory from the host when it first writes to it, and loses it again when it lies idle: a
    plain loop of `pwrite` then takes nine times as long, and it would be the host that is measured.
    """
    block = bytes(1 << 20)
    with tempfile.TemporaryFile() as file:
        for _ in range(megabytes):
            file.write(block)


def run(report: Report, options: Options | None = None) -> None:
    options = options or Options()
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        nodes: list[type[Barnabas] | type[Kafka]] = [Barnabas, Kafka] if options.with_kafka else [Barnabas]
        subjects: list[Subject] = []
        for kind in nodes:
            try:
                subjects.append(_start(report, stack, kind, directory, options.starts))
            except (KafkaUnavailable, KafkaFailed) as problem:
                report.say(f"without Apache Kafka there are no ratios: {problem}")
        loads = loads_of(options.seconds)
        measure_rounds(report, subjects, loads_of, options)
        for load in loads:
            for figure in load.figures:
                compare(report, figure, [subject.median(load, figure) for subject in subjects])
        for name, read in _OF_PROCESS:
            compare(report, Figure(name, "MB", ratio_max=0.15), [read(subject) for subject in subjects])
        start = Figure("start to first answer", "s", ratio_max=0.15)
        compare(report, start, [subject.start_seconds for subject in subjects])
        report.at_most("an idle connection", subjects[0].idle_connection_bytes / 1e3, "KB", 15)
    report.say("barnabas.testing.Broker")
    report.at_most("testing.Broker() ready", _testing_broker_seconds(), "s", 0.2)


def _start(
    report: Report, stack: ExitStack, kind: type[Barnabas] | type[Kafka], directory: Path, starts: int
) -> Subject:
    """A broker that has been started several times, each on an empty directory; the last one stays."""
    times: list[float] = []
    for number in range(1, starts + 1):
        report.say(f"starting {kind.name}, {number} of {starts}")
        port = free_port()
        home = directory / f"{kind.name}-{number}"
        node: Node = kind(home, port)
        node.prepare()
        running = RunningNode(node, port, home / "output")
        times.append(running.start_seconds)
        if number < starts:
            running.stop()
        else:
            stack.callback(running.stop)
    return Subject(running, statistics.median(times))


def measure_rounds(
    report: Report, subjects: Sequence[Subject], loads_of: Callable[[float], Sequence[Measured]], options: Options
) -> None:
    """Warms up, and measures every load of every subject once in each round. `loads_of` gets the seconds of a load."""
    loads = loads_of(options.seconds)
    names = {load.topic for load in loads if load.topic and not load.is_bulk}
    for subject in subjects:
        for name in names:
            subject.create_topic(name)
        if "out" not in names:
            continue
        fill = ("produce", "--seconds", "30", "--megabytes", str(_LOADED_MEGABYTES))
        subject.run("out", (*fill, "--connections", str(PARTITIONS), "--depth", str(IN_FLIGHT)))
    warm_loads = loads_of(max(0.5, options.warm_up_seconds / len(loads) / 2))
    for turn in range(2):
        for subject in subjects:
            report.say(f"warming up {subject.node.name}, {turn + 1} of 2")
            for load in warm_loads:
                subject.measure(load, -1 - turn)
    for number in range(options.rounds):
        for load in loads:
            report.say(f"round {number + 1} of {options.rounds}: {load.title}")
            # Who begins changes, so that what one leaves behind (dirty pages) does not always hit the same other.
            for subject in subjects if number % 2 == 0 else reversed(subjects):
                subject.outcomes.setdefault(load.title, []).append(subject.measure(load, number))


_OF_PROCESS: Final[tuple[tuple[str, Callable[[Subject], float]], ...]] = (
    ("memory, idle", lambda subject: subject.idle_bytes / 1e6),
    ("memory, after load", lambda subject: subject.resident_bytes / 1e6),
)


def compare(report: Report, figure: Figure, values: Sequence[float]) -> None:
    """Ours and, when it was measured, Kafka's."""
    for name, value in zip((Barnabas.name, Kafka.name), values, strict=False):
        report.fact(f"{figure.name}: {name}", value, figure.unit)
    if len(values) == 1:
        return
    ratio = values[0] / values[1]
    if figure.ratio_min is not None:
        report.at_least(f"{figure.name}, ratio", ratio, "times", figure.ratio_min)
    elif figure.ratio_max is not None:
        report.at_most(f"{figure.name}, ratio", ratio, "times", figure.ratio_max)


_TESTING_PROGRAM: Final = """
import time
from barnabas.testing import Broker
began = time.perf_counter()
with Broker():
    print(time.perf_counter() - began)
"""


def _testing_broker_seconds() -> float:
    """From `Broker()` to served, after the import, in a fresh process."""
    times = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", _TESTING_PROGRAM],
            cwd=PROJECT_DIRECTORY,
            env={"PYTHONPATH": str(PROJECT_DIRECTORY / "src")},
            capture_output=True,
            text=True,
            check=True,
        )
        times.append(float(done.stdout))
    return statistics.median(times)


def chosen_options(arguments: list[str], program: str, description: str) -> argparse.Namespace:
    """What can be chosen wherever Barnabas is measured beside Kafka in rounds."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--quick", action="store_true", help="short rounds, hardly any warm-up")
    parser.add_argument("--rounds", type=int, help="alternating rounds; medians are reported")
    parser.add_argument("--seconds", type=float, help="of each load in each round")
    parser.add_argument("--warm-up", type=float, help="seconds for each broker before the first round")
    parser.add_argument("--no-kafka", action="store_true", help="measure Barnabas alone")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    chosen = chosen_options(arguments, "benchmarks.broker", "Barnabas beside Apache Kafka.")
    base = QUICK if chosen.quick else Options()
    options = Options(
        rounds=chosen.rounds or base.rounds,
        seconds=chosen.seconds or base.seconds,
        warm_up_seconds=base.warm_up_seconds if chosen.warm_up is None else chosen.warm_up,
        starts=base.starts,
        with_kafka=not chosen.no_kafka,
    )
    report = Report(Console(stderr=chosen.json))
    try:
        run(report, options)
    except (LoadProcessFailed, KafkaException) as problem:
        print(problem, file=sys.stderr)
        return 1
    report.print(as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
