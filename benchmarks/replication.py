"""Replicated clusters side by side: three brokers with ZooKeeper, and three of Apache Kafka 4.3.1, in turns.

    python -m benchmarks.replication                     a quarter of an hour
    python -m benchmarks.replication --quick             a look; the JVMs are not warm then
    python -m benchmarks.replication --no-kafka
    python -m benchmarks.replication --awake-us 0 100    Barnabas alone, with these values of network.awake.us

Topics have 12 partitions, 3 replicas, and need 2 in sync; all loads use acks=all. What each figure means is in
`benchmarks/README.md`. The targets are asked of the load that no client bounds (`frames` of `replication_load.py`).
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from rich.console import Console
from tests.support.kafka import KafkaFailed, KafkaUnavailable, kafka_jars, wait_until

from benchmarks.broker import touch_memory
from benchmarks.broker_load import LoadFailed
from benchmarks.cluster_nodes import memory_bytes
from benchmarks.cluster_view import partitions_of
from benchmarks.replicated_nodes import (
    IDS,
    BarnabasReplicas,
    KafkaReplicas,
    ReplicatedCluster,
    create_topic,
    delete_topic,
    is_whole,
)
from benchmarks.replication_runs import FRAMES, JAVA, LIBRDKAFKA, LOADS, PACED, PARTITIONS, Run, run_java, run_load
from benchmarks.report import Report

_CATCH_UP_SECONDS_MAX: Final = 300.0
_FILL_SECONDS_MAX: Final = 120.0
_LOOK_SECONDS: Final = 0.02

_HELD_MIN: Final = 0.95
_RATE_RATIO_MIN: Final = 2.0
_CPU_RATIO_MAX: Final = 0.5
_RATE_MIN: Final = 1e6
_P99_MS_MAX: Final = 10.0
_P99_RATIO_MAX: Final = 0.7
_MEMORY_RATIO_MAX: Final = 0.3
_CATCH_UP_RATIO_MIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int = 5
    seconds: float = 5.0
    """Of each load in a round."""
    warm_up_seconds: float = 30.0
    megabytes: float = 1500.0
    """What a load writes at most, before it is replicated."""
    java_records: int = 1_000_000
    """Of each of the producers; none for 0."""
    missed_megabytes: float = 600.0
    """By the follower that is away."""
    with_kafka: bool = True
    awake_us: tuple[int, ...] = ()
    pace: float | None = None
    """Records a second of the paced load; half of the last subject's peak when it is not given."""


QUICK: Final = Options(
    rounds=1, seconds=2.0, warm_up_seconds=3.0, megabytes=200.0, java_records=50_000, missed_megabytes=60.0
)


@dataclass
class Subject:
    """A running cluster, and what was measured of it."""

    cluster: ReplicatedCluster
    runs: dict[str, list[Run]] = field(default_factory=dict)
    topics: int = 0

    @property
    def name(self) -> str:
        return self.cluster.name

    def new_topic(self) -> str:
        self.topics += 1
        name = f"load-{self.topics}"
        create_topic(self.cluster, name, PARTITIONS)
        return name

    def median(self, load: str, of: Callable[[Run], float]) -> float:
        return statistics.median(map(of, self.runs[load]))


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A follower fetches what it has missed."""

    megabytes_per_second: float
    seconds_from_start: float
    """The start of its process until it is in sync everywhere."""


def run(report: Report, options: Options | None = None) -> None:
    options = options or Options()
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        subjects = _subjects(report, stack, directory, options)
        _warm_up(report, subjects, options)
        loads = [FRAMES, LIBRDKAFKA]
        if options.java_records and _has_java():
            loads.append(JAVA)
        _in_rounds(report, subjects, options.rounds, loads, options)
        pace = options.pace or subjects[-1].median(FRAMES, lambda one: one.records_per_second) / 2
        _in_rounds(report, subjects, options.rounds, [PACED], replace(options, pace=pace))
        _report_loads(report, subjects, loads, pace)
        if not options.awake_us:
            _report_catch_ups(report, subjects, options)


def _subjects(report: Report, stack: ExitStack, directory: Path, options: Options) -> list[Subject]:
    """Kafka last. All of them run until the end."""
    found: list[Subject] = []

    def add(make: Callable[[], ReplicatedCluster], name: str) -> None:
        report.say(f"starting three brokers of {name}")
        cluster = make()
        stack.callback(cluster.close)
        found.append(Subject(cluster))

    for awake_us in options.awake_us:
        name, settings = f"awake {awake_us} µs", {"network.awake.us": str(awake_us)}
        add(partial(BarnabasReplicas, directory / f"awake-{awake_us}", settings, name), name)
    if options.awake_us:
        return found
    add(lambda: BarnabasReplicas(directory / "barnabas"), "Barnabas")
    if options.with_kafka:
        try:
            add(lambda: KafkaReplicas(directory / "kafka"), "Kafka")
        except (KafkaUnavailable, KafkaFailed) as problem:
            report.say(f"without Apache Kafka there are no ratios: {problem}")
    return found


def _has_java() -> bool:
    try:
        kafka_jars()
    except KafkaUnavailable:
        return False
    return True


def _warm_up(report: Report, subjects: Sequence[Subject], options: Options) -> None:
    for subject in subjects:
        report.say(f"warming up {subject.name}")
        deadline = time.monotonic() + options.warm_up_seconds
        while time.monotonic() < deadline:
            _measure(subject, FRAMES, replace(options, seconds=options.warm_up_seconds / 3))
            _measure(subject, PACED, replace(options, seconds=options.warm_up_seconds / 3, pace=options.pace or 20_000))


def _in_rounds(
    report: Report, subjects: Sequence[Subject], rounds: int, loads: Sequence[str], options: Options
) -> None:
    for number in range(rounds):
        for load in loads:
            report.say(f"round {number + 1} of {rounds}: {load}")
            for subject in subjects if number % 2 == 0 else reversed(subjects):
                touch_memory(round(len(IDS) * options.megabytes) if load != PACED else 0)
                subject.runs.setdefault(load, []).append(_measure(subject, load, options))


# -- loads ---------------------------------------------------------------------------------------------------------


def _measure(subject: Subject, load: str, options: Options) -> Run:
    """On a topic of its own, which is deleted afterwards."""
    topic = subject.new_topic()
    if load == JAVA:
        found = run_java(subject.cluster, topic, options.java_records)
    else:
        found = run_load(subject.cluster, topic, load, options.seconds, options.megabytes, options.pace)
    delete_topic(subject.cluster, topic)
    return found


# -- a follower that was away --------------------------------------------------------------------------------------


def _catch_up(subject: Subject, options: Options) -> CatchUp:
    """From the first byte that it writes until it is in sync in all partitions."""
    cluster = subject.cluster
    topic = subject.new_topic()
    away = IDS[-1]
    cluster.stop(away)
    leader_port = next(iter(cluster.ports.values()))
    wait_until(lambda: _is_led_without(leader_port, topic, away), f"others to lead {topic}")
    run_load(cluster, topic, FRAMES, _FILL_SECONDS_MAX, options.missed_megabytes)
    before = _log_bytes(cluster, away, topic)
    grown_at = None
    began = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:  # `start` returns when it answers, and by then it fetches already
        started = pool.submit(cluster.start, away)
        while not is_whole(partitions_of(leader_port, topic), PARTITIONS):
            if grown_at is None and _log_bytes(cluster, away, topic) > before:
                grown_at = time.perf_counter()
            if started.done():
                started.result()
            if time.perf_counter() - began > _CATCH_UP_SECONDS_MAX:
                raise LoadFailed(f"{cluster.name}: the follower did not catch up")
            time.sleep(_LOOK_SECONDS)
        ended = time.perf_counter()
        started.result()
    fetched = _log_bytes(cluster, away, topic) - before
    delete_topic(cluster, topic)
    return CatchUp(fetched / (ended - (grown_at or began)) / 1e6, ended - began)


def _is_led_without(port: int, topic: str, away: int) -> bool:
    view = partitions_of(port, topic)
    return len(view) == PARTITIONS and all(one.leader not in (away, -1) for one in view.values())


def _log_bytes(cluster: ReplicatedCluster, broker_id: int, topic: str) -> int:
    return sum(path.stat().st_size for path in cluster.log_directory(broker_id).glob(f"{topic}-*/*.log"))


def _report_catch_ups(report: Report, subjects: Sequence[Subject], options: Options) -> None:
    found: dict[str, list[CatchUp]] = {subject.name: [] for subject in subjects}
    for number in range((options.rounds + 1) // 2):
        for subject in subjects if number % 2 == 0 else reversed(subjects):
            report.say(f"{subject.name}: a follower catches up, {number + 1}")
            found[subject.name].append(_catch_up(subject, options))
    speeds = [statistics.median(one.megabytes_per_second for one in runs) for runs in found.values()]
    _row(report, subjects, "a follower catches up", "MB/s", speeds, low=_CATCH_UP_RATIO_MIN)
    times = [statistics.median(one.seconds_from_start for one in runs) for runs in found.values()]
    _row(report, subjects, "from its start to in sync", "s", times)


# -- the report ----------------------------------------------------------------------------------------------------


def _row(
    report: Report,
    subjects: Sequence[Subject],
    name: str,
    unit: str,
    values: Sequence[float],
    low: float | None = None,
    high: float | None = None,
) -> None:
    """A figure of each, and the ratio to Kafka's, with the least or the most that it must be."""
    for subject, value in zip(subjects, values, strict=True):
        report.fact(f"{name}: {subject.name}", value, unit)
    if not isinstance(subjects[-1].cluster, KafkaReplicas):
        return
    ratio = values[0] / values[-1]
    if low is not None:
        report.at_least(f"{name}, ratio", ratio, "times", low)
    elif high is not None:
        report.at_most(f"{name}, ratio", ratio, "times", high)
    else:
        report.fact(f"{name}, ratio", ratio, "times")


def _report_loads(report: Report, subjects: Sequence[Subject], loads: Sequence[str], pace: float) -> None:
    row = partial(_row, report, subjects)

    def medians(load: str, of: Callable[[Run], float]) -> list[float]:
        return [subject.median(load, of) for subject in subjects]

    for load in loads:
        is_asked = load == FRAMES
        rates = medians(load, lambda one: one.records_per_second)
        row(f"{LOADS[load]}, records", "1/s", rates, low=_RATE_RATIO_MIN if is_asked else None)
        costs = medians(load, lambda one: one.cpu_seconds_per_million)
        row(f"{LOADS[load]}, CPU", "s/M", costs, high=_CPU_RATIO_MAX if is_asked else None)
        if is_asked:
            report.at_least("records a second", rates[0], "1/s", _RATE_MIN)
        if load != JAVA:
            for subject, cores in zip(subjects, medians(load, lambda one: one.client_cores), strict=True):
                report.fact(f"{LOADS[load]}, of the processors: {subject.name}", cores, "cores")
    report.fact("paced at", pace, "1/s")
    held = medians(PACED, lambda one: one.records_per_second)
    for subject, rate in zip(subjects, held, strict=True):
        if rate < _HELD_MIN * pace:
            report.say(f"{subject.name} does not hold the pace: its times are those of a queue that grows")
    row("paced, records", "1/s", held)
    row("paced, CPU", "s/M", medians(PACED, lambda one: one.cpu_seconds_per_million))
    for subject, cores in zip(subjects, medians(PACED, lambda one: one.client_cores), strict=True):
        report.fact(f"paced, of the processors: {subject.name}", cores, "cores")
    row("end to end p50", "ms", medians(PACED, lambda one: one.p50_ms))
    row("end to end p99", "ms", medians(PACED, lambda one: one.p99_ms), high=_P99_RATIO_MAX)
    for subject in subjects:
        if isinstance(subject.cluster, BarnabasReplicas):
            p99_ms = subject.median(PACED, lambda one: one.p99_ms)
            report.at_most(f"end to end p99 of {subject.name}", p99_ms, "ms", _P99_MS_MAX)
    for kind, ratio_max in (("Rss", _MEMORY_RATIO_MAX), ("Pss", None)):
        megabytes = [memory_bytes(subject.cluster.process_ids, kind) / 1e6 for subject in subjects]
        row(f"memory ({kind.upper()})", "MB", megabytes, high=ratio_max)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replication", description="Replicated clusters.")
    parser.add_argument("--quick", action="store_true", help="one short round, hardly any warm-up")
    parser.add_argument("--rounds", type=int, help="alternating rounds; medians are reported")
    parser.add_argument("--seconds", type=float, help="of each load in each round")
    parser.add_argument("--warm-up", type=float, help="seconds for each cluster before the first round")
    parser.add_argument(
        "--pace", type=float, help="records a second of the paced load; half of Kafka's peak by default"
    )
    parser.add_argument("--no-kafka", action="store_true", help="measure Barnabas alone")
    parser.add_argument("--no-java", action="store_true", help="without kafka-producer-perf-test")
    parser.add_argument("--awake-us", type=int, nargs="+", default=[], help="Barnabas with these values, in turns")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    base = QUICK if chosen.quick else Options()
    options = replace(
        base,
        rounds=chosen.rounds or base.rounds,
        seconds=chosen.seconds or base.seconds,
        warm_up_seconds=base.warm_up_seconds if chosen.warm_up is None else chosen.warm_up,
        java_records=0 if chosen.no_java or chosen.awake_us else base.java_records,
        with_kafka=not chosen.no_kafka,
        awake_us=tuple(chosen.awake_us),
        pace=chosen.pace,
    )
    report = Report(Console(stderr=chosen.json))
    try:
        run(report, options)
    except (LoadFailed, KafkaFailed, KafkaException) as problem:
        report.print(as_json=chosen.json)  # what was measured before is no worse for it
        print(problem, file=sys.stderr)
        return 1
    report.print(as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
