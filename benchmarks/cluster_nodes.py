"""Clusters of three that are measured: `barnabas up --brokers 3` with its ZooKeeper, and three Apache Kafka nodes.

Kafka's nodes are brokers and controllers in one, formatted beforehand, each with the Java options of `broker_nodes`.
Either cluster is ready when every broker tells a client of all three, and one of them has created a topic.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from tests.support.kafka import PROJECT_DIRECTORY, free_port, kafka_jars, run_tool

from barnabas.wire.apis import ApiKey
from benchmarks.broker_load import HOST, LoadFailed
from benchmarks.broker_nodes import CLUSTER_ID, JAVA_OPTIONS, START_TIMEOUT_SECONDS, STOP_TIMEOUT_SECONDS
from benchmarks.cluster_view import ask, metadata

BROKERS: Final = 3
TOPIC_PARTITIONS: Final = 12
_CREATE_TOPICS_VERSION: Final = 7
_PROBE_SECONDS: Final = 0.01
_READY: Final = re.compile(r"is ready on (?P<addresses>[^;]+);")
_TOPIC_ALREADY_EXISTS: Final = 36


class Cluster(Protocol):
    """A way to run one of the two."""

    name: str

    def prepare(self) -> None:
        """What is done once, before the start, and is not part of it."""
        ...

    def commands(self) -> list[list[str]]:
        """Of the processes that are started; they may start others."""
        ...

    def ports(self, output: str) -> Sequence[int]:
        """Of all brokers, as far as they are known; `output` is what the processes have written."""
        ...

    def environment(self) -> dict[str, str]: ...


class BarnabasCluster:
    name = "Barnabas"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def prepare(self) -> None:
        self._directory.mkdir(parents=True)

    def commands(self) -> list[list[str]]:
        program = "import sys; from barnabas.cli.main import main; sys.exit(main())"
        where = ["--listen", f"{HOST}:{free_port()}", "--data-dir", str(self._directory / "data")]
        return [[sys.executable, "-c", program, "up", "--brokers", str(BROKERS), *where]]

    def ports(self, output: str) -> Sequence[int]:
        """The first broker's port is given, and the others choose theirs: the line that all are ready names them."""
        said = _READY.search(output)
        return [] if said is None else [int(one.rpartition(":")[2]) for one in said["addresses"].split(",")]

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(PROJECT_DIRECTORY / "src")}


class KafkaCluster:
    name = "Kafka"

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._settings = settings or {}
        self._ports = [free_port() for _ in range(BROKERS)]

    def prepare(self) -> None:
        self._directory.mkdir(parents=True)
        controllers = [f"{HOST}:{free_port()}" for _ in range(BROKERS)]
        voters = ",".join(f"{number}@{address}" for number, address in enumerate(controllers, 1))
        for number, (port, controller) in enumerate(zip(self._ports, controllers, strict=True), 1):
            settings = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{controller}",
                "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "log.dirs": str(self.log_directory(number)),
                "offsets.topic.replication.factor": "1",
                **self._settings,
            }
            self._write(number, settings)
            properties = str(self._properties(number))
            run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", properties)

    def log_directory(self, number: int) -> Path:
        return self._directory / f"data-{number}"

    def _properties(self, number: int) -> Path:
        return self._directory / f"server-{number}.properties"

    def _write(self, number: int, settings: Mapping[str, str]) -> None:
        self._properties(number).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def commands(self) -> list[list[str]]:
        start = ["java", *JAVA_OPTIONS, "-cp", f"{kafka_jars()}/*", "kafka.Kafka"]
        return [[*start, str(self._properties(number))] for number in range(1, BROKERS + 1)]

    def ports(self, output: str) -> Sequence[int]:
        return self._ports

    def environment(self) -> dict[str, str]:
        return {}


class RunningCluster:
    """A started cluster. `start_seconds` is the time from its commands to the created topic."""

    def __init__(self, cluster: Cluster, output: Path) -> None:
        self._cluster = cluster
        self._commands = cluster.commands()
        self._output = output
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            began = time.perf_counter()
            for command in self._commands:
                self._processes.append(self._launch(command))
            self._await_ready(began + START_TIMEOUT_SECONDS)
            self.start_seconds = time.perf_counter() - began
        except BaseException:
            self.stop()
            raise

    def _launch(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with open(self._output, "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._cluster.environment()},
                start_new_session=True,
            )

    def end_one(self, index: int, how: signal.Signals) -> None:
        """Ends the process of one command, and waits for it; the others go on."""
        process = self._processes[index]
        process.send_signal(how)
        process.wait(STOP_TIMEOUT_SECONDS)

    def start_one(self, index: int) -> None:
        """Again; returns when the whole cluster is ready."""
        self._processes[index] = self._launch(self._commands[index])
        self._await_ready(time.perf_counter() + START_TIMEOUT_SECONDS)

    def _await_ready(self, deadline: float) -> None:
        while not self._is_ready():
            if time.perf_counter() > deadline or any(process.poll() is not None for process in self._processes):
                raise LoadFailed(f"{self._cluster.name} did not start: {self._said()[-1000:]}")
            time.sleep(_PROBE_SECONDS)

    def _is_ready(self) -> bool:
        ports = self._cluster.ports(self._said())
        return len(ports) == BROKERS and all(map(_knows_all, ports)) and _creates_a_topic(ports[-1])

    def _said(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def process_ids(self) -> list[int]:
        """Those that were started and run, and those that they have started."""
        return _with_children([process.pid for process in self._processes if process.poll() is None])

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                for pid in reversed(_with_children([process.pid])):
                    os.kill(pid, signal.SIGKILL)
                process.wait()


def memory_bytes(process_ids: Sequence[int], kind: str) -> int:
    """Of all processes together. `Pss` counts a page that several of them share once, `Rss` for each of them."""
    total = 0
    for pid in process_ids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{kind}:"):
                total += int(line.split()[1]) * 1024
    return total


def _with_children(process_ids: Sequence[int]) -> list[int]:
    """Parents before their children."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
    found = list(process_ids)
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _knows_all(port: int) -> bool:
    answer = metadata(port)
    return answer is not None and len(answer.brokers) == BROKERS


def _creates_a_topic(port: int) -> bool:
    """On all brokers."""
    topic = {
        "name": "ready",
        "num_partitions": TOPIC_PARTITIONS,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    asked = {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
    answer = ask(port, ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, asked)
    return answer is not None and answer.topics[0].error_code.value in (0, _TOPIC_ALREADY_EXISTS)
