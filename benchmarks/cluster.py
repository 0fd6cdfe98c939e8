"""A cluster: how soon it is ready beside Apache Kafka's, and what its image costs when there are many partitions.

    python -m benchmarks.cluster [--quick] [--no-kafka] [--json]

- *Ready*: three brokers with their ZooKeeper (`cluster_nodes.py`), started in turns with three of Apache Kafka, each on
  an empty directory, until a topic is created; and the memory of all their processes then.
- *One changed partition* of 30,000: for the controller without its write (`cluster_stream.py`), and for a whole broker
  that follows it (`cluster_follower.py`).
- *The image stream* to stubs of up to 300 brokers: bytes and processor time of a change, and of a takeover.
"""

import argparse
import asyncio
import gc
import shutil
import statistics
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import uvloop
from rich.console import Console
from tests.support.kafka import KafkaFailed, KafkaUnavailable

from barnabas.cli.broker.serving import spare_the_collector
from benchmarks.broker_load import LoadFailed
from benchmarks.cluster_follower import cost_of_following
from benchmarks.cluster_nodes import BarnabasCluster, Cluster, KafkaCluster, RunningCluster, memory_bytes
from benchmarks.cluster_stream import (
    VERSION,
    StreamScene,
    cost_of_change,
    cost_of_takeover,
    cost_of_whole_image,
    stream_scene,
)
from benchmarks.report import Report

_Result = TypeVar("_Result")

_START_RATIO_MAX: Final = 0.5
_MEMORY_RATIO_MAX: Final = 0.3
_CHANGE_MS_MAX: Final = 1.0
_WHOLE_IMAGE_GAIN_MIN: Final = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    starts: int = 3
    brokers: tuple[int, ...] = (10, 30, 100, 300)
    """Stubs; the cluster has as many brokers as the largest."""
    partitions: tuple[int, ...] = (1_000, 3_000, 10_000, 30_000)
    changes: int = 100
    with_kafka: bool = True


QUICK: Final = Options(starts=1, brokers=(10, 100), partitions=(1_000, 3_000), changes=20)


def run(report: Report, options: Options | None = None) -> None:
    options = options or Options()
    _measure_starts(report, options)
    _measure_follower(report, options)
    _measure_stream(report, options)


# -- ready ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Start:
    seconds: float
    shared_bytes: float
    resident_bytes: float


def _measure_starts(report: Report, options: Options) -> None:
    kinds: list[type[BarnabasCluster] | type[KafkaCluster]] = [BarnabasCluster]
    if options.with_kafka:
        kinds.append(KafkaCluster)
    starts: dict[str, list[_Start]] = {}
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        for number in range(options.starts):
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                report.say(f"starting three brokers of {kind.name}, {number + 1} of {options.starts}")
                try:
                    one = _start(kind(directory / f"{kind.name}-{number}"), directory / f"{kind.name}-{number}.log")
                except (KafkaUnavailable, KafkaFailed) as problem:
                    report.say(f"without Apache Kafka there are no ratios: {problem}")
                    kinds = [BarnabasCluster]
                else:
                    starts.setdefault(kind.name, []).append(one)
    for name, unit, scale, field, ratio_max in (
        ("three brokers ready", "s", 1.0, "seconds", _START_RATIO_MAX),
        ("three brokers, memory (PSS)", "MB", 1e6, "shared_bytes", _MEMORY_RATIO_MAX),
        ("three brokers, memory (RSS)", "MB", 1e6, "resident_bytes", None),
    ):
        medians = {whose: statistics.median(getattr(one, field) for one in found) for whose, found in starts.items()}
        for whose, median in medians.items():
            report.fact(f"{name}: {whose}", median / scale, unit)
        if KafkaCluster.name in medians and ratio_max is not None:
            ratio = medians[BarnabasCluster.name] / medians[KafkaCluster.name]
            report.at_most(f"{name}, ratio", ratio, "times", ratio_max)


def _start(cluster: Cluster, output: Path) -> _Start:
    cluster.prepare()
    running = RunningCluster(cluster, output)
    try:
        process_ids = running.process_ids
        return _Start(running.start_seconds, memory_bytes(process_ids, "Pss"), memory_bytes(process_ids, "Rss"))
    finally:
        running.stop()


# -- the image -----------------------------------------------------------------------------------------------------


def _measure_follower(report: Report, options: Options) -> None:
    brokers, partitions = max(options.brokers), max(options.partitions)
    report.say(f"a broker that follows {partitions:,} partitions")
    cost = _run_as_a_broker(cost_of_following(brokers, partitions, options.changes))
    name = f"one changed partition of {partitions:,}"
    report.at_most(f"{name}, following broker, CPU", cost.cpu_seconds * 1e3, "ms", _CHANGE_MS_MAX)
    report.fact(f"{name}, following broker, wall", cost.wall_seconds * 1e3, "ms")


def _measure_stream(report: Report, options: Options) -> None:
    for partitions in options.partitions:
        report.say(f"{max(options.brokers)} brokers with {partitions:,} partitions")
        _run_as_a_broker(_measure_scene(report, options, partitions))


async def _measure_scene(report: Report, options: Options, partitions: int) -> None:
    is_largest = partitions == max(options.partitions)
    async with stream_scene(max(options.brokers), partitions) as scene:
        spare_the_collector()
        if is_largest:
            await _measure_largest(report, options, scene, partitions)
        for brokers in options.brokers if is_largest else options.brokers[-1:]:
            where = f"{brokers} brokers, {partitions:,} partitions"
            change = await cost_of_change(scene, brokers, options.changes)
            report.fact(f"{where}: a change, CPU", change.cpu_seconds * 1e3, "ms")
            report.fact(f"{where}: a change, told", change.told_bytes / 1e3, "KB")
            takeover = await cost_of_takeover(scene, brokers)
            report.fact(f"{where}: takeover, CPU", takeover.cpu_seconds, "s")
            report.fact(f"{where}: takeover, told", takeover.told_bytes / 1e6, "MB")
            report.fact(f"{where}: takeover, longest turn", takeover.held_seconds * 1e3, "ms")
            report.at_most(f"{where}: takeover, whole images", takeover.whole_images, "", 0)


async def _measure_largest(report: Report, options: Options, scene: StreamScene, partitions: int) -> None:
    cost = await cost_of_change(scene, 1, options.changes)
    name = f"one changed partition of {partitions:,}, controller, CPU"
    report.at_most(name, cost.cpu_seconds * 1e3, "ms", _CHANGE_MS_MAX)
    costs = [cost_of_whole_image(scene.image, version, 3) for version in range(VERSION + 1)]
    name = f"whole image of {partitions:,} partitions"
    for version, whole in enumerate(costs):
        report.fact(f"{name}, version {version}", whole.length / 1e6, "MB")
        report.fact(f"{name}, version {version}, encode", whole.encode_seconds * 1e3, "ms")
        report.fact(f"{name}, version {version}, decode", whole.decode_seconds * 1e3, "ms")
    gain = costs[0].decode_seconds / costs[VERSION].decode_seconds
    report.at_least(f"{name}, gain of columns, decode", gain, "times", _WHOLE_IMAGE_GAIN_MIN)
    report.fact(f"{name}, gain of columns, encode", costs[0].encode_seconds / costs[VERSION].encode_seconds, "times")


def _run_as_a_broker(work: Coroutine[Any, Any, _Result]) -> _Result:
    """On the event loop that brokers have; what the last work has left is collected before."""
    gc.unfreeze()
    gc.collect()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description="Barnabas as a cluster.")
    parser.add_argument("--quick", action="store_true", help="one start, and fewer brokers and partitions")
    parser.add_argument("--no-kafka", action="store_true", help="measure Barnabas alone")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    base = QUICK if chosen.quick else Options()
    options = Options(base.starts, base.brokers, base.partitions, base.changes, with_kafka=not chosen.no_kafka)
    report = Report(Console(stderr=chosen.json))
    try:
        run(report, options)
    except LoadFailed as problem:
        print(problem, file=sys.stderr)
        return 1
    report.print(as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
