"""One load on a replicated cluster: the processes that make it, and what the cluster's own processes took meanwhile."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tests.support.kafka import PROJECT_DIRECTORY, kafka_jars

from benchmarks.broker_load import BATCH_BYTES, LoadFailed, Outcome
from benchmarks.broker_nodes import JAVA_OPTIONS
from benchmarks.logs import VALUE_BYTES
from benchmarks.replicated_nodes import ReplicatedCluster, bootstrap_of, cpu_seconds
from benchmarks.replication_load import IN_FLIGHT, LINGER_SECONDS, READY

PARTITIONS: Final = 12
PRODUCERS: Final = 4
FRAMES, LIBRDKAFKA, JAVA, PACED = "frames", "librdkafka", "java", "paced"
LOADS: Final = {
    FRAMES: "frames made beforehand",
    LIBRDKAFKA: f"{PRODUCERS} producers of librdkafka",
    JAVA: f"{PRODUCERS} kafka-producer-perf-test",
}
_LOAD_SECONDS_MAX: Final = 240.0
_JAVA_RATE: Final = re.compile(r"^\d+ records sent, ([\d.]+) records/sec", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """Of one load."""

    records_per_second: float
    cpu_seconds_per_million: float
    client_cores: float
    """What the load itself took of the processors; 0 where that is not known."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0


def run_load(
    cluster: ReplicatedCluster, topic: str, load: str, seconds: float, megabytes: float, pace: float | None = None
) -> Run:
    """`pace` is for the paced one: records a second."""
    count = PRODUCERS if load == LIBRDKAFKA else 1
    command = [sys.executable, "-m", "benchmarks.replication_load", load, "--topic", topic]
    command += ["--partitions", str(PARTITIONS), "--seconds", str(seconds)]
    command += ["--megabytes", str(megabytes / count), "--rate", str(pace or 0)]
    command += ["--ports", *(f"{broker_id}={port}" for broker_id, port in cluster.ports.items())]
    with _processes([command] * count, stdin=subprocess.PIPE) as processes:
        for one in processes:
            assert one.stdout is not None
            if one.stdout.readline().strip() != READY:
                raise LoadFailed(f"{cluster.name}: {_last_words(one)}")
        before = cpu_seconds(cluster)
        for one in processes:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        outcomes = [Outcome(**json.loads(_ended(cluster, one))) for one in processes]
        spent = cpu_seconds(cluster) - before
    records, took = sum(one.requests for one in outcomes), max(one.seconds for one in outcomes)
    client_cores = sum(one.cpu_seconds for one in outcomes) / took
    p50, p99 = outcomes[0].p50_us / 1e3, outcomes[0].p99_us / 1e3
    return Run(records / took, spent / records * 1e6, client_cores, p50, p99)


def run_java(cluster: ReplicatedCluster, topic: str, records: int) -> Run:
    """`records` from each producer."""
    tool = ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(records)]
    tool += ["--record-size", str(VALUE_BYTES), "--throughput", "-1", "--command-property"]
    tool += [f"bootstrap.servers={bootstrap_of(cluster)}", "acks=all", f"linger.ms={LINGER_SECONDS * 1e3:.0f}"]
    tool += [f"batch.size={BATCH_BYTES}", f"max.in.flight.requests.per.connection={IN_FLIGHT}"]
    heap = [one for one in JAVA_OPTIONS if not one.startswith("-Xm")] + ["-Xmx512m"]
    command = ["java", *heap, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{kafka_jars()}/*", *tool]
    before = cpu_seconds(cluster)
    with _processes([command] * PRODUCERS) as processes:
        said = [_ended(cluster, one) for one in processes]
    spent = cpu_seconds(cluster) - before
    # The last such line of each is about the whole run.
    rates = [float(found[-1]) for found in map(_JAVA_RATE.findall, said) if found]
    if len(rates) != PRODUCERS:
        raise LoadFailed(f"{cluster.name}: {said[0][-500:]}")
    return Run(sum(rates), spent / (records * PRODUCERS) * 1e6, 0.0)


@contextmanager
def _processes(
    commands: Sequence[Sequence[str]], stdin: int = subprocess.DEVNULL
) -> Iterator[list[subprocess.Popen[str]]]:
    """Load generators. None of them is left behind."""
    pipe = subprocess.PIPE
    found: list[subprocess.Popen[str]] = []
    try:
        for command in commands:
            found.append(
                subprocess.Popen(command, cwd=PROJECT_DIRECTORY, stdin=stdin, stdout=pipe, stderr=pipe, text=True)
            )
        yield found
    finally:
        for one in found:
            one.kill()
        for one in found:
            one.wait()


def _ended(cluster: ReplicatedCluster, process: subprocess.Popen[str]) -> str:
    try:
        said, problem = process.communicate(timeout=_LOAD_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{cluster.name}: a load did not end in {_LOAD_SECONDS_MAX:g} s") from None
    if process.returncode != 0:
        raise LoadFailed(f"{cluster.name}: {problem.strip()[-500:]}")
    return said


def _last_words(process: subprocess.Popen[str]) -> str:
    process.wait(_LOAD_SECONDS_MAX)
    assert process.stderr is not None
    return process.stderr.read().strip()[-500:]
