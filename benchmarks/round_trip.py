"""One-record requests on one connection, timed by a client in C: Barnabas, Apache Kafka, and a bare echo.

    python -m benchmarks.round_trip                            7 alternating rounds of 10,000 requests
    python -m benchmarks.round_trip --base ../earlier          beside the broker of another checkout, too
    python -m benchmarks.round_trip --no-kafka --rounds 3

All of them run at the same time and are asked in turns; who begins changes from round to round. A client in Python
would spend a third of the time on itself; this one (`round_trip.c`, compiled into a temporary directory) sends a
frame, blocks in `recv`, and takes the time. The echo is an epoll loop in C that answers as many bytes with as many:
what the kernel and the machine take, whatever a broker does.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from rich.console import Console
from tests.support.kafka import PROJECT_DIRECTORY, KafkaFailed, KafkaUnavailable, free_port

from barnabas.wire.framing import LENGTH_BYTES
from benchmarks.broker import LoadProcessFailed, Subject
from benchmarks.broker_load import (
    LoadFailed,
    check_produced,
    connect,
    cpu_seconds_of,
    load_batch,
    produce_frame,
    read_reply,
)
from benchmarks.broker_nodes import Barnabas, Kafka, RunningNode
from benchmarks.compare import NotMeasurable, started
from benchmarks.paired import paired_ratio
from benchmarks.report import Report

SOURCE: Final = Path(__file__).with_suffix(".c")
TOPIC: Final = "one"
RECORD_BYTES: Final = 100
TARGET_RATIO: Final = 0.5
"""Of Kafka's time, at the median."""
ECHO: Final = "echo in C"
_BASE: Final = "base"
_TIMEOUT_SECONDS: Final = 300
_STOP_SECONDS: Final = 10
_WARM_UP_SHARE: Final = 5


@dataclass(frozen=True, slots=True)
class Round:
    """What one run of the client measured."""

    p50_us: float
    p99_us: float
    requests_per_second: float
    cpu_us: float
    """Of the server's process, for one request."""


@dataclass(slots=True)
class Asked:
    """A server that answers the frame."""

    name: str
    port: int
    pid: int
    rounds: list[Round] = field(default_factory=list)

    def values(self, of: Callable[[Round], float]) -> list[float]:
        return [of(one) for one in self.rounds]


class RoundTripClient:
    """The compiled program, the frame that it sends, and how long the answer is."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise NotMeasurable("the client needs a C compiler: neither `gcc` nor `cc` is on the PATH")
        self.program = directory / "round_trip"
        subprocess.run([compiler, "-O2", "-o", str(self.program), str(SOURCE)], check=True)
        self._frame_file = directory / "frame"
        self.frame = produce_frame(TOPIC, 0, load_batch(RECORD_BYTES))
        self._frame_file.write_bytes(self.frame)

    def reply_bytes(self, port: int) -> int:
        """How long a broker's good answer is; a refusal has a message, and another length."""
        with connect(port) as connection:
            connection.sendall(self.frame)
            reply = read_reply(connection)
        check_produced(reply)
        return LENGTH_BYTES + len(reply)

    def measure(self, asked: Asked, requests: int, reply_bytes: int) -> Round:
        before = cpu_seconds_of(asked.pid)
        where = [str(asked.port), str(self._frame_file), str(requests), str(reply_bytes)]
        done = subprocess.run(
            [str(self.program), "client", *where],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode:
            raise LoadFailed(f"{asked.name}: {done.stderr.strip()}")
        cpu_seconds = cpu_seconds_of(asked.pid) - before
        times = [int(line) for line in done.stdout.split()]
        cuts = statistics.quantiles(times, n=100)
        return Round(cuts[49] / 1e3, cuts[98] / 1e3, requests * 1e9 / sum(times), cpu_seconds * 1e6 / requests)

    def start_echo(self, stack: ExitStack, reply_bytes: int) -> Asked:
        process = subprocess.Popen(
            [str(self.program), "echo", str(len(self.frame)), str(reply_bytes)], stdout=subprocess.PIPE, text=True
        )
        stack.callback(process.wait, _STOP_SECONDS)
        stack.callback(process.terminate)
        assert process.stdout is not None
        return Asked(ECHO, int(process.stdout.readline()), process.pid)


def _start_kafka(stack: ExitStack, directory: Path) -> RunningNode:
    port = free_port()
    node = Kafka(directory / Kafka.name, port)
    node.prepare()
    running = RunningNode(node, port, directory / Kafka.name / "output")
    stack.callback(running.stop)
    return running


def _start_all(report: Report, stack: ExitStack, directory: Path, base: Path | None, with_kafka: bool) -> list[Asked]:
    running = [started(stack, Barnabas.name, PROJECT_DIRECTORY, directory)]
    if base is not None:
        running.append(started(stack, _BASE, base, directory))
    if with_kafka:
        try:
            running.append(_start_kafka(stack, directory))
        except (KafkaUnavailable, KafkaFailed) as problem:
            report.say(f"without Apache Kafka: {problem}")
    for node in running:
        Subject(node, node.start_seconds).create_topic(TOPIC)
    return [Asked(node.name, node.port, node.pid) for node in running]


def run(
    report: Report, rounds: int, requests: int, warm_up_seconds: float, base: Path | None, with_kafka: bool
) -> None:
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        client = RoundTripClient(directory)
        brokers = _start_all(report, stack, directory, base, with_kafka)
        lengths = {one.name: client.reply_bytes(one.port) for one in brokers}
        everybody = [*brokers, client.start_echo(stack, lengths[Barnabas.name])]
        lengths[ECHO] = lengths[Barnabas.name]
        for asked in everybody:
            is_compiled_anew = asked.name == Kafka.name  # the others are as fast at once
            seconds = warm_up_seconds if is_compiled_anew else warm_up_seconds / _WARM_UP_SHARE
            report.say(f"warming up {asked.name} for {seconds:g} s")
            while seconds > 0:
                seconds -= requests / client.measure(asked, requests, lengths[asked.name]).requests_per_second
        for number in range(rounds):
            report.say(f"round {number + 1} of {rounds}")
            for asked in everybody if number % 2 == 0 else reversed(everybody):
                asked.rounds.append(client.measure(asked, requests, lengths[asked.name]))
    _tell(report, everybody)


_FIGURES: Final[tuple[tuple[str, str, Callable[[Round], float]], ...]] = (
    ("round trip p50", "µs", lambda one: one.p50_us),
    ("round trip p99", "µs", lambda one: one.p99_us),
    ("requests", "1/s", lambda one: one.requests_per_second),
    ("CPU for a request", "µs", lambda one: one.cpu_us),
)


def _tell(report: Report, everybody: Sequence[Asked]) -> None:
    ours, *others = everybody
    for name, unit, of in _FIGURES:
        for asked in everybody:
            report.fact(f"{name}: {asked.name}", statistics.median(asked.values(of)), unit)
        for asked in others:
            if not all(asked.values(of)):  # the processor time of an echo is too short for the clock
                continue
            ratio = paired_ratio(ours.values(of), asked.values(of))
            title = f"{name}: ratio to {asked.name}, {ratio.low:.3f} to {ratio.high:.3f}"
            if asked.name == Kafka.name and name == "round trip p50":
                report.at_most(title, ratio.mean, "times", TARGET_RATIO)
            else:
                report.fact(title, ratio.mean, "times")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.round_trip", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=7, help="alternating rounds, at least 2")
    parser.add_argument("--requests", type=int, default=10_000, help="in each round")
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds for Kafka; the others need less")
    parser.add_argument("--base", type=Path, help="a checkout of an earlier commit, with its compiled modules in place")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    report = Report(Console(stderr=chosen.json))
    base = chosen.base.resolve() if chosen.base else None
    try:
        run(report, max(2, chosen.rounds), chosen.requests, chosen.warm_up, base, not chosen.no_kafka)
    except NotMeasurable as reason:
        print(f"not measured: {reason}", file=sys.stderr)
        return 0
    except (LoadFailed, LoadProcessFailed, KafkaException) as problem:
        print(problem, file=sys.stderr)
        return 1
    report.print(as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
