"""Groups, beside Apache Kafka: commits, rebalances, heartbeats, replay and a storm of joins.

    python -m benchmarks groups                      as a part of all benchmarks
    python -m benchmarks.groups --quick              a look; the JVM is not warm then
    python -m benchmarks.groups --rounds 7 --seconds 3 --no-kafka --json

Both brokers run at the same time with `group.initial.rebalance.delay.ms=0` and get the same load in turns, from
`groups_load.py`. What each figure means is in `benchmarks/README.md`.
"""

import json
import shutil
import socket
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

from barnabas.wire.apis import ApiKey
from benchmarks.broker import Figure, LoadProcessFailed, chosen_options, compare
from benchmarks.broker_load import (
    LoadFailed,
    Outcome,
    api_versions_frame,
    connect,
    cpu_seconds_of,
    end_to_end_times,
    read_reply,
)
from benchmarks.broker_nodes import Barnabas, Kafka, Node, RunningNode
from benchmarks.groups_load import TOPIC, ask, filled_group
from benchmarks.report import Report

SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}
PARTITIONS: Final = 100
REPLAYED: Final = 1_000_000
PROBED: Final = "probed"
PROBED_BYTES: Final = 100
FILLED: Final = "filled"

_LOAD_TIMEOUT_SECONDS: Final = 240
_LOADING: Final = (14, 15, 16)
_GROUPS_ASKED: Final = 500


class GroupBarnabas(Barnabas):
    def command(self) -> list[str]:
        settings = [f"{name}={value}" for name, value in SETTINGS.items()]
        return [*super().command(), *(word for one in settings for word in ("--set", one))]


class GroupKafka(Kafka):
    def prepare(self) -> None:
        super().prepare()
        with open(self._properties, "a") as properties:
            properties.writelines(f"{name}={value}\n" for name, value in SETTINGS.items())


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int = 5
    seconds: float = 2.0
    warm_up_seconds: float = 20.0
    replayed: int = REPLAYED
    heartbeat_seconds: float = 9.0
    with_kafka: bool = True


QUICK: Final = Options(rounds=1, seconds=1.0, warm_up_seconds=3.0, heartbeat_seconds=6.0)


@dataclass(frozen=True, slots=True)
class Measured:
    title: str
    arguments: tuple[str, ...]
    figures: tuple[Figure, ...]


def _rate(outcome: Outcome) -> float:
    return outcome.requests / outcome.seconds


def _loads(seconds: float, heartbeat_seconds: float) -> tuple[Measured, ...]:
    for_seconds = ("--seconds", str(seconds))
    return (
        Measured(
            "commits on 1 connection",
            ("commit", *for_seconds),
            (
                Figure("OffsetCommit, 1 connection", "1/s", _rate, ratio_min=1),
                Figure("OffsetCommit round trip p99", "µs", lambda outcome: outcome.p99_us),
            ),
        ),
        Measured(
            "commits on 64 connections",
            ("commit", *for_seconds, "--connections", "64", "--depth", "5"),
            (
                Figure("OffsetCommit, 64 connections", "1/s", _rate, ratio_min=1),
                Figure("OffsetCommit, CPU", "µs", lambda outcome: outcome.cpu_seconds / outcome.requests * 1e6),
            ),
        ),
        Measured(
            "a group of 100",
            ("stable", "--members", "100", "--interval-ms", "100"),
            (Figure("100 members until stable", "ms", lambda outcome: outcome.seconds * 1e3, ratio_max=1),),
        ),
        Measured(
            "heartbeats of 5,000 members",
            ("heartbeats", "--groups", "50", "--members", "100", "--seconds", str(heartbeat_seconds)),
            (
                Figure(
                    "heartbeats of 5,000 members, CPU",
                    "% of a core",
                    lambda outcome: outcome.cpu_seconds / outcome.seconds * 100,
                ),
            ),
        ),
    )


class Subject:
    """A running broker, and what was measured of it."""

    def __init__(self, node: Node, port: int, output: Path) -> None:
        self._node, self._output = node, output
        self.running = RunningNode(node, port, output)
        self.start_seconds = self.running.start_seconds
        self.outcomes: dict[str, list[Outcome]] = {}
        self._names = 0
        admin = AdminClient({"bootstrap.servers": self.running.bootstrap, "log_level": 0})
        for done in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1), NewTopic(PROBED, 4, 1)]).values():
            done.result()

    @property
    def name(self) -> str:
        return self.running.name

    def start_load(self, module: str, *arguments: str) -> "subprocess.Popen[str]":
        kind, *options = arguments
        where = ["--port", str(self.running.port), "--pid", str(self.running.pid)]
        return subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{module}", kind, *where, *options],
            cwd=PROJECT_DIRECTORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def outcome_of(self, load: "subprocess.Popen[str]") -> Outcome:
        try:
            output, errors = load.communicate(timeout=_LOAD_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            load.kill()
            load.communicate()
            raise LoadProcessFailed(f"{self.name}: the load did not end in {_LOAD_TIMEOUT_SECONDS} s") from None
        if load.returncode != 0:
            raise LoadProcessFailed(f"{self.name}: {errors.strip()[-500:]}")
        return Outcome(**json.loads(output))

    def run(self, *arguments: str) -> Outcome:
        """In groups that nobody used before."""
        self._names += 1
        return self.outcome_of(self.start_load("groups_load", *arguments, "--prefix", f"g{self._names}"))

    def median(self, load: Measured, figure: Figure) -> float:
        return statistics.median(figure.of(outcome) for outcome in self.outcomes[load.title])

    def stop(self) -> None:
        self.running.stop()

    # -- replay ------------------------------------------------------------------------------------------------

    def replay(self, commits: int, groups: int) -> "Replayed":
        """Many commits, then a restart: how long until the groups answer, and how long anybody else must wait."""
        self._names += 1
        prefix = f"{FILLED}{self._names}"
        how_many = ("--commits", str(commits), "--partitions", str(PARTITIONS), "--groups", str(groups))
        self.outcome_of(self.start_load("groups_load", "fill", *how_many, "--prefix", prefix))
        self.running.stop()
        began = time.perf_counter()
        self.running = RunningNode(self._node, self.running.port, self._output)
        connection, other = connect(self.running.port), connect(self.running.port)
        longest = 0.0
        # So many that they are in every partition of the offsets topic.
        for number in range(min(groups, _GROUPS_ASKED)):
            while not _is_loaded(connection, filled_group(prefix, number)):
                longest = max(longest, _round_trip(other))
        seconds = time.perf_counter() - began
        return Replayed(seconds, cpu_seconds_of(self.running.pid), longest)


@dataclass(frozen=True, slots=True)
class Replayed:
    seconds: float
    """From the start of the process until all groups answer."""
    cpu_seconds: float
    """Of the process until then."""
    longest_seconds: float
    """That another connection waited for an answer to ApiVersions meanwhile."""


def _is_loaded(connection: socket.socket, group: str) -> bool:
    ask(connection, ApiKey.FIND_COORDINATOR, 3, {"key": group, "key_type": 0})
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    answer = ask(connection, ApiKey.OFFSET_FETCH, 7, {"group_id": group, "topics": topics})
    error = int(answer.error_code)
    if error in _LOADING:
        return False
    if error or answer.topics[0].partitions[0].committed_offset <= 0:
        raise LoadFailed(f"the commits are not there after the restart: {answer}")
    return True


def _round_trip(connection: socket.socket) -> float:
    frame = api_versions_frame()  # before the clock: the first one imports a module in this process
    began = time.perf_counter()
    connection.sendall(frame)
    read_reply(connection)
    return time.perf_counter() - began


# --- a storm of joins -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Storm:
    """Times of records from their sending to their arrival at a fetch that waits, without and with the joins."""

    quiet: list[float]
    busy: list[float]
    joined: Outcome


def _storm(subject: Subject, groups: int, members: int, seconds: float) -> Storm:
    """The probe runs exactly while the members join: they are connected before, and it ends with them."""
    port = subject.running.port
    how_many = ("--groups", str(groups), "--members", str(members), "--prefix", "storm", "--on-command")
    joining = subject.start_load("groups_load", "stable", *how_many)
    assert joining.stdin is not None
    assert joining.stdout is not None
    if joining.stdout.readline() != "ready\n":
        subject.outcome_of(joining)
        raise LoadProcessFailed(f"{subject.name}: the members did not connect")
    deadline = time.monotonic() + seconds
    quiet = end_to_end_times(port, PROBED, PROBED_BYTES, lambda: time.monotonic() > deadline)
    joining.stdin.write("\n")
    joining.stdin.flush()
    busy = end_to_end_times(port, PROBED, PROBED_BYTES, lambda: joining.poll() is not None)
    return Storm(quiet, busy, subject.outcome_of(joining))


def _milliseconds_at(percent: int, times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=100)[percent - 1] * 1e3


# --- running ----------------------------------------------------------------------------------------------


def run(report: Report, options: Options | None = None) -> None:
    options = options or Options()
    kinds: list[Callable[[Path, int], Node]] = [GroupBarnabas, GroupKafka] if options.with_kafka else [GroupBarnabas]
    loads = _loads(options.seconds, options.heartbeat_seconds)
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        subjects: list[Subject] = []
        for number, kind in enumerate(kinds):
            home, port = directory / str(number), free_port()
            try:
                node = kind(home, port)
                node.prepare()
                subject = Subject(node, port, home / "output")
            except (KafkaUnavailable, KafkaFailed) as problem:
                report.say(f"without Apache Kafka there are no ratios: {problem}")
                continue
            stack.callback(subject.stop)
            subjects.append(subject)
        _measure_rounds(report, subjects, loads, options)
        for load in loads:
            for figure in load.figures:
                compare(report, figure, [subject.median(load, figure) for subject in subjects])
        heartbeats = loads[-1]
        report.at_most(
            "heartbeats of 5,000 members, CPU, ours", subjects[0].median(heartbeats, heartbeats.figures[0]), "%", 25
        )
        _measure_storm(report, subjects, options)
        _measure_replay(report, subjects, options)


def _measure_rounds(report: Report, subjects: Sequence[Subject], loads: Sequence[Measured], options: Options) -> None:
    warm_seconds = max(0.5, options.warm_up_seconds / 2)
    for subject in subjects:
        report.say(f"warming up {subject.name}")
        for load in _loads(warm_seconds, 3.0)[:3]:
            subject.run(*load.arguments)
    for number in range(options.rounds):
        for load in loads:
            report.say(f"round {number + 1} of {options.rounds}: {load.title}")
            for subject in subjects if number % 2 == 0 else reversed(subjects):
                subject.outcomes.setdefault(load.title, []).append(subject.run(*load.arguments))


def _measure_storm(report: Report, subjects: Sequence[Subject], options: Options) -> None:
    storms = []
    for subject in subjects:
        report.say(f"10,000 members join 1,000 groups of {subject.name}")
        storms.append(_storm(subject, 1000, 10, max(3.0, options.seconds)))
    compare(report, Figure("10,000 members join, until stable", "s"), [one.joined.seconds for one in storms])
    compare(report, Figure("records while they join", "1"), [len(one.busy) for one in storms])
    for percent in (50, 99):
        for when, times in (("quiet", [one.quiet for one in storms]), ("joining", [one.busy for one in storms])):
            figure = Figure(f"end to end p{percent}, {when}", "ms")
            compare(report, figure, [_milliseconds_at(percent, one) for one in times])
    compare(report, Figure("end to end, longest, joining", "ms"), [max(one.busy) * 1e3 for one in storms])


def _measure_replay(report: Report, subjects: Sequence[Subject], options: Options) -> None:
    """First with few keys, as one busy group leaves them, and then with a key for every commit."""
    for kind, groups in (("100 keys", 1), ("all keys different", options.replayed // PARTITIONS)):
        title = f"replay of {options.replayed:,} commits, {kind}"
        replays = []
        for subject in subjects:
            report.say(f"{title}: {subject.name}")
            replays.append(subject.replay(options.replayed, groups))
        compare(report, Figure(f"{title}, from the start", "s"), [one.seconds for one in replays])
        compare(report, Figure(f"{title}, CPU", "s"), [one.cpu_seconds for one in replays])
        report.at_most(f"{title}, without the start", replays[0].seconds - subjects[0].start_seconds, "s", 3)
        longest = [one.longest_seconds * 1e3 for one in replays]
        compare(report, Figure(f"{title}, longest wait of others", "ms"), longest)
        report.at_most(f"{title}, longest wait of others, ours", longest[0], "ms", 10)


def main(arguments: list[str]) -> int:
    chosen = chosen_options(arguments, "benchmarks.groups", "Groups, beside Apache Kafka.")
    base = QUICK if chosen.quick else Options()
    options = Options(
        rounds=chosen.rounds or base.rounds,
        seconds=chosen.seconds or base.seconds,
        warm_up_seconds=base.warm_up_seconds if chosen.warm_up is None else chosen.warm_up,
        heartbeat_seconds=base.heartbeat_seconds,
        with_kafka=not chosen.no_kafka,
    )
    report = Report(Console(stderr=chosen.json))
    try:
        run(report, options)
    except (LoadFailed, LoadProcessFailed, KafkaException) as problem:
        print(problem, file=sys.stderr)
        return 1
    report.print(as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
