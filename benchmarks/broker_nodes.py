"""The brokers that are measured, each a process of its own: Barnabas as `barnabas up` runs it, and Apache Kafka.

Barnabas may come from another checkout: the load, which is this one's, then meets an earlier broker. Kafka gets the
Java options of its own start script and a heap of 1 GB. Both keep their data in a temporary directory and are ready
when a client's Metadata request is answered with a broker in it.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Protocol

from tests.support.kafka import PROJECT_DIRECTORY, free_port, kafka_jars, run_tool

from benchmarks.broker_load import HOST, LoadFailed
from benchmarks.cluster_view import metadata

START_TIMEOUT_SECONDS: Final = 90.0
STOP_TIMEOUT_SECONDS: Final = 60.0
_PROBE_SECONDS: Final = 0.002
CLUSTER_ID: Final = "YmFybmFiYXMtYmVuY2htYQ"

JAVA_OPTIONS: Final = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)


class Node(Protocol):
    """A way to run one of the two."""

    name: str

    def prepare(self) -> None:
        """What is done once, before the first start, and is not part of it."""
        ...

    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str]:
        """What the process gets beside this one's environment."""
        ...


class Barnabas:
    name = "Barnabas"

    def __init__(self, directory: Path, port: int, checkout: Path = PROJECT_DIRECTORY) -> None:
        self._directory = directory
        self._port = port
        self._checkout = checkout

    def prepare(self) -> None:
        self._directory.mkdir(parents=True)

    def command(self) -> list[str]:
        program = "import sys; from barnabas.cli.main import main; sys.exit(main())"
        where = ["--listen", f"{HOST}:{self._port}", "--data-dir", str(self._directory / "data")]
        return [sys.executable, "-c", program, "up", *where]

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self._checkout / "src")}


class Kafka:
    name = "Kafka"

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._port = port
        self._properties = directory / "server.properties"

    def prepare(self) -> None:
        self._directory.mkdir(parents=True)
        controller = f"{HOST}:{free_port()}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{self._port},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self._port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self._directory / "data"),
            "offsets.topic.replication.factor": "1",
            "log.segment.delete.delay.ms": "0",  # a round's records go with it, as ours do
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))

    def command(self) -> list[str]:
        return ["java", *JAVA_OPTIONS, "-cp", f"{kafka_jars()}/*", "kafka.Kafka", str(self._properties)]

    def environment(self) -> dict[str, str]:
        return {}


class RunningNode:
    """A started broker. `start_seconds` is the time from its command to its first answer."""

    def __init__(self, node: Node, port: int, output: Path) -> None:
        self.name = node.name
        self.port = port
        with open(output, "ab") as log:
            began = time.perf_counter()
            self._process = subprocess.Popen(
                node.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **node.environment()},
                start_new_session=True,
            )
        deadline = began + START_TIMEOUT_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.perf_counter() > deadline:
                self.stop()
                raise LoadFailed(f"{node.name} did not start: {output.read_text(errors='replace')[-1000:]}")
            time.sleep(_PROBE_SECONDS)
        self.start_seconds = time.perf_counter() - began

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def _answers(self) -> bool:
        answer = metadata(self.port)
        return answer is not None and bool(answer.brokers)

    def stop(self) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
