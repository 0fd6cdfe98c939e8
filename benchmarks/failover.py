"""How long nobody can write when a leader is gone, and how that grows with what it led.

    python -m benchmarks.failover                 20 kills, 6 stops; 4 kills and 4 stops of Apache Kafka
    python -m benchmarks.failover --quick
    python -m benchmarks.failover --bare          nobody says that the killed broker is dead
    python -m benchmarks.failover --no-kafka --kills 40

- *Gap*: an idempotent producer of librdkafka with acks=all, `retry.backoff.ms=20` and `retry.backoff.max.ms=50` writes
  a record to each of three partitions in turn, one every millisecond. A leader is killed (SIGKILL), every other time
  one that is the controller, too; the gap is the longest time between two acknowledgements of its partition from then
  on. The session of a killed broker is ended at once, as `barnabas up --brokers` does; not with `--bare`. The same with
  SIGTERM, when a broker hands over its leaderships before it ends. All that was acknowledged is read back at the end.
- *Led partitions*: from SIGKILL until both other brokers tell clients of a new leader for each of 1, 100, 1,000.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message
from rich.console import Console
from tests.support.acked_records import Writing, check_records
from tests.support.kafka import KafkaFailed, KafkaUnavailable

from benchmarks.broker_load import LoadFailed
from benchmarks.cluster_view import partitions_of
from benchmarks.replicated_nodes import (
    IDS,
    BarnabasReplicas,
    KafkaReplicas,
    ReplicatedCluster,
    await_whole,
    bootstrap_of,
    create_topic,
    delete_topic,
    elect_preferred,
)
from benchmarks.report import Report

TOPIC: Final = "written"
PARTITIONS: Final = len(IDS)
"""Each broker leads one, as long as none is ended."""
_CLIENT: Final = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 50}
_RECORD_SECONDS: Final = 0.001
_KILL_GAP_SECONDS_MAX: Final = 1.0
_STOP_GAP_SECONDS_MAX: Final = 0.3
_FAILOVER_SECONDS_MAX: Final = 120.0
_LOOK_PAUSE_SECONDS_MIN: Final = 0.002
_LOOK_SHARE: Final = 4
"""A look at all partitions costs brokers time: the pause after it is so many times as long."""


@dataclass(frozen=True, slots=True)
class Options:
    kills: int = 20
    stops: int = 6
    kafka_kills: int = 4
    kafka_stops: int = 4
    led: tuple[int, ...] = (1, 100, 1_000)
    led_rounds: int = 3
    with_kafka: bool = True
    is_bare: bool = False


QUICK: Final = Options(kills=3, stops=2, kafka_kills=1, kafka_stops=1, led=(1, 20, 100), led_rounds=1)


@dataclass(frozen=True, slots=True)
class Gap:
    seconds: float
    is_controller: bool
    """Whether the broker that ended was that, too."""


def run(report: Report, options: Options | None = None) -> None:
    options = options or Options()
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        _measure_barnabas(report, directory, options)
        if options.with_kafka:
            try:
                _measure_kafka(report, directory, options)
            except (KafkaUnavailable, KafkaFailed) as problem:
                report.say(f"Apache Kafka is not measured: {problem}")


def _measure_barnabas(report: Report, directory: Path, options: Options) -> None:
    report.say("starting three brokers of Barnabas")
    with ExitStack() as stack:
        cluster = BarnabasReplicas(directory / "barnabas")
        stack.callback(cluster.close)
        kills, stops = measure_gaps(report, cluster, options.kills, options.stops, is_bare=options.is_bare)
        _report_gaps(report, cluster.name, kills, stops, is_ours=True)
        if not options.is_bare:
            _measure_led(report, cluster, options)


def _measure_kafka(report: Report, directory: Path, options: Options) -> None:
    report.say("starting three nodes of Apache Kafka")
    with ExitStack() as stack:
        cluster = KafkaReplicas(directory / "kafka")
        stack.callback(cluster.close)
        kills, stops = measure_gaps(report, cluster, options.kafka_kills, options.kafka_stops)
        _report_gaps(report, cluster.name, kills, stops, is_ours=False)


# -- the gap -------------------------------------------------------------------------------------------------------


class _Timed(Writing):
    """Knows when each acknowledgement came."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, TOPIC, PARTITIONS, _CLIENT, _RECORD_SECONDS)
        self._times: dict[int, list[float]] = {index: [] for index in range(PARTITIONS)}

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        super()._delivered(error, message)
        partition = message.partition()
        if error is None and partition is not None:
            self._times[partition].append(time.perf_counter())

    def longest_gap(self, partition: int, since: float) -> float:
        return longest_gap(list(self._times[partition]), since)


def longest_gap(times: Sequence[float], since: float) -> float:
    """Between two acknowledgements, of which the second came later than that."""
    return max(later - one for one, later in pairwise(times) if later > since)


def measure_gaps(
    report: Report, cluster: ReplicatedCluster, kills: int, stops: int, *, is_bare: bool = False
) -> tuple[list[Gap], list[Gap]]:
    """Of kills, and of stops in order. All that was acknowledged must be there at the end, and nothing may fail."""

    def kill(victim: int) -> None:
        cluster.kill(victim)
        if not is_bare:
            cluster.retire(victim)

    create_topic(cluster, TOPIC, PARTITIONS)
    with _Timed(bootstrap_of(cluster)) as writing:
        writing.wait_for_more()
        after_kills = _gaps(report, cluster, writing, kills, "kill", kill)
        after_stops = _gaps(report, cluster, writing, stops, "stop", cluster.stop)
    report.say(f"{cluster.name}: reading back {sum(map(len, writing.acked.values())):,} records")
    check_records(bootstrap_of(cluster), TOPIC, writing.acked)
    delete_topic(cluster, TOPIC)
    return after_kills, after_stops


def _gaps(
    report: Report, cluster: ReplicatedCluster, writing: _Timed, count: int, how: str, end: Callable[[int], None]
) -> list[Gap]:
    found = []
    for number in range(count):
        controller = cluster.controller()
        others = [one for one in IDS if one != controller]
        victim = controller if number % 2 == 0 else others[number // 2 % len(others)]
        report.say(f"{cluster.name}: {how} {number + 1} of {count}, broker {victim}")
        led = victim - 1
        writing.wait_for_more()
        began = time.perf_counter()
        end(victim)
        writing.wait_for_more()
        found.append(Gap(writing.longest_gap(led, began), victim == controller))
        cluster.start(victim)
        await_whole(cluster, TOPIC, PARTITIONS)
        elect_preferred(cluster, TOPIC, PARTITIONS)
    return found


def _report_gaps(report: Report, name: str, kills: Sequence[Gap], stops: Sequence[Gap], *, is_ours: bool) -> None:
    of_all = [one.seconds for one in kills]
    of_controllers = [one.seconds for one in kills if one.is_controller]
    of_others = [one.seconds for one in kills if not one.is_controller]
    for what, seconds in (
        ("leader killed", of_all),
        ("leader and controller killed", of_controllers),
        ("leader that is not the controller killed", of_others),
    ):
        if seconds:
            report.fact(f"{what}, median gap: {name}", statistics.median(seconds), "s")
            _report_longest(report, f"{what}, longest gap: {name}", seconds, _KILL_GAP_SECONDS_MAX if is_ours else None)
    if stops:
        seconds = [one.seconds for one in stops]
        report.fact(f"leader stopped in order, median gap: {name}", statistics.median(seconds), "s")
        what = f"leader stopped in order, longest gap: {name}"
        _report_longest(report, what, seconds, _STOP_GAP_SECONDS_MAX if is_ours else None)


def _report_longest(report: Report, what: str, seconds: Sequence[float], to_reach: float | None) -> None:
    if to_reach is None:
        report.fact(what, max(seconds), "s")
    else:
        report.at_most(what, max(seconds), "s", to_reach)


# -- many partitions -----------------------------------------------------------------------------------------------


def _measure_led(report: Report, cluster: ReplicatedCluster, options: Options) -> None:
    for what in ("a broker", "the controller"):
        medians = {}
        for count in options.led:
            seconds = []
            for number in range(options.led_rounds):
                report.say(f"{what} is killed, led partitions: {count:,}; {number + 1} of {options.led_rounds}")
                controller = cluster.controller()
                victim = controller if what == "the controller" else next(one for one in IDS if one != controller)
                seconds.append(_failover_seconds(cluster, f"led-by-{victim}-{count}-{number}", victim, count))
            medians[count] = statistics.median(seconds)
            report.fact(f"{what} killed, until all it led are led again: {count:,}", medians[count], "s")
        least, *_, middle, most = sorted(medians)
        first = (medians[middle] - medians[least]) / (middle - least)
        last = (medians[most] - medians[middle]) / (most - middle)
        report.fact(f"{what} killed, each partition from {least} to {middle:,}", first * 1e3, "ms")
        report.fact(f"{what} killed, each partition from {middle:,} to {most:,}", last * 1e3, "ms")
        whole = (medians[most] - medians[least]) / (most - least)
        report.fact(f"{what} killed, linear when 1", last / whole, "times")


def _failover_seconds(cluster: ReplicatedCluster, topic: str, victim: int, partitions: int) -> float:
    create_topic(cluster, topic, partitions, first=[victim])
    began = time.perf_counter()
    cluster.kill(victim)
    cluster.retire(victim)
    for port in cluster.ports.values():
        _await_leaders(port, topic, victim, partitions, began + _FAILOVER_SECONDS_MAX)
    took = time.perf_counter() - began
    cluster.start(victim)
    await_whole(cluster, topic, partitions)
    delete_topic(cluster, topic)
    return took


def _await_leaders(port: int, topic: str, dead: int, partitions: int, deadline: float) -> None:
    while True:
        before = time.perf_counter()
        view = partitions_of(port, topic)
        after = time.perf_counter()
        if len(view) == partitions and all(one.leader not in (dead, -1) for one in view.values()):
            return
        if after > deadline:
            raise LoadFailed(f"{topic} is not led again")
        time.sleep(max(_LOOK_PAUSE_SECONDS_MIN, _LOOK_SHARE * (after - before)))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description="Leaders that are gone.")
    parser.add_argument("--quick", action="store_true", help="few kills, up to 100 led partitions")
    parser.add_argument("--kills", type=int, help="of leaders of Barnabas")
    parser.add_argument("--kafka-kills", type=int, help="of leaders of Apache Kafka; each takes 10 to 14 s and more")
    parser.add_argument("--bare", action="store_true", help="nobody ends the session of a killed broker")
    parser.add_argument("--no-kafka", action="store_true", help="measure Barnabas alone")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    base = QUICK if chosen.quick else Options()
    options = replace(
        base,
        kills=base.kills if chosen.kills is None else chosen.kills,
        kafka_kills=base.kafka_kills if chosen.kafka_kills is None else chosen.kafka_kills,
        with_kafka=not chosen.no_kafka,
        is_bare=chosen.bare,
    )
    report = Report(Console(stderr=chosen.json))
    try:
        run(report, options)
    except (LoadFailed, KafkaFailed, KafkaException) as problem:
        print(problem, file=sys.stderr)
        return 1
    report.print(as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
