"""A real Apache Kafka for tests and benchmarks: its jars, a node of it, and its command-line tools.

The jars come from Maven Central once, by `mvn`, into `.cache/kafka-VERSION/jars` of this tree. Whatever is
missing (Java, Maven, the network) is raised as `KafkaUnavailable`, which the fixtures turn into a skipped
test.

```python
with KafkaNode(tmp_path / "kafka") as node:        # formatted and started, ready for clients
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap_servers})
    node.kill()                                    # SIGKILL: what is in `node.data_directory` is a crash's
    node.start()                                   # ... from which Kafka recovers
run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", ..., "--list")
```

A node is a process in its own session, on free ports of 127.0.0.1, and is ended by its process id only. Its
output is in `DIRECTORY/server.log`, which outlives it.
"""

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

KAFKA_VERSION = "4.3.1"
JAVA_MAJOR_MIN = 17
PROJECT_DIRECTORY = Path(__file__).resolve().parents[2]
CACHE_DIRECTORY = PROJECT_DIRECTORY / ".cache"
KAFKA_DIRECTORY = CACHE_DIRECTORY / f"kafka-{KAFKA_VERSION}"
CLASS_ARCHIVE = KAFKA_DIRECTORY / "classes.jsa"
"""Made by `kafka_classes`; a JVM that cannot use it goes on without."""
JAVA_SOURCES = Path(__file__).resolve().parent / "java"

DOWNLOAD_TIMEOUT_SECONDS = 600
TOOL_TIMEOUT_SECONDS = 180
START_TIMEOUT_SECONDS = 240
STOP_TIMEOUT_SECONDS = 180
START_ATTEMPTS = 3
"""A free port may be taken by another process between our look and Kafka's bind."""

QUIET_SHARING = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")
"""Hides the JVM's messages about an archive of classes."""

_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)

_NODE_PROPERTIES: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


class KafkaUnavailable(Exception):  # noqa: N818
    """Apache Kafka cannot be run here; the message says what is missing."""


class KafkaFailed(Exception):  # noqa: N818
    """Apache Kafka, or one of its tools, ran and ended badly; the message carries the end of its output."""


def wait_until(
    condition: Callable[[], bool], what: str, timeout_seconds: float = 180, pause_seconds: float = 0.02
) -> None:
    """Polls another process's doing, such as a file that it writes, until it is there."""
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise KafkaFailed(f"{what}: not after {timeout_seconds} s")
        time.sleep(pause_seconds)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- jars and tools ---------------------------------------------------------------------------------------


@cache
def kafka_jars() -> Path:
    """The directory with Kafka's jars, fetched when they are not there yet."""
    _check_java()
    directory = KAFKA_DIRECTORY
    jars = directory / "jars"
    if jars.is_dir():
        return jars
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once fetch only once
        if not jars.is_dir():
            _fetch_jars(directory, jars)
    return jars


def _check_java() -> None:
    if shutil.which("java") is None:
        raise KafkaUnavailable("Apache Kafka needs a Java runtime: no `java` on the PATH")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < JAVA_MAJOR_MIN:
        raise KafkaUnavailable(f"Apache Kafka needs Java {JAVA_MAJOR_MIN} or newer, here is: {said.strip()}")


def _fetch_jars(directory: Path, jars: Path) -> None:
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("Apache Kafka's jars are fetched by Maven: no `mvn` on the PATH")
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in _ARTIFACTS
    )
    pom = directory / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>barnabas</groupId><artifactId>kafka-jars</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>\n"
    )
    incoming = directory / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    command = [
        "mvn",
        "-B",
        "-q",
        "-f",
        str(pom),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={incoming}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"Maven did not fetch Kafka's jars in {DOWNLOAD_TIMEOUT_SECONDS} s") from None
    if done.returncode != 0 or not any(incoming.glob("kafka-tools-*.jar")):
        raise KafkaUnavailable(f"Maven could not fetch Kafka's jars: {_tail(done.stdout + done.stderr, 300)}")
    incoming.rename(jars)  # last, so that a half-filled directory is never taken for a whole one


def java_command(*arguments: str, heap_megabytes: int = 512) -> list[str]:
    """A `java` command line on Kafka's class path; `arguments` begin with options, a main class or a source file."""
    return [
        "java",
        f"-Xmx{heap_megabytes}m",
        "-XX:+UseSerialGC",  # the machine's few cores belong to the test
        "-XX:TieredStopAtLevel=1",
        *_class_options(),
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-cp",
        f"{kafka_jars()}/*",
        *arguments,
    ]


def _class_options() -> list[str]:
    if not CLASS_ARCHIVE.exists():
        return []
    return [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}", *QUIET_SHARING]


def run_tool(main_class: str, *arguments: str) -> str:
    """Runs one of Kafka's command-line tools and returns what it printed, standard error last."""
    status, output = run_command(java_command(main_class, *arguments))
    if status != 0:
        raise KafkaFailed(f"{main_class} ended with status {status}: {_tail(output)}")
    return output


def run_tools(invocations: Iterable[Sequence[str]]) -> list[str]:
    """Runs several tools, each a main class and its arguments, in one JVM; the output of each.

    A tool that ends by an exception or a bad status says so in the last line of its output. Needs a JDK.
    """
    requests = ["\t".join(invocation) for invocation in invocations]
    command = java_command(str(JAVA_SOURCES / "RunTools.java"))
    status, output = run_command(command, "".join(f"{request}\n" for request in requests))
    outputs = output.split("\x1e")[:-1]
    if status != 0 or len(outputs) != len(requests):
        raise KafkaFailed(f"{len(requests)} tools were to run, {len(outputs)} did: {_tail(output)}")
    return outputs


def run_command(command: Sequence[str], standard_input: str = "") -> tuple[int, str]:
    done = subprocess.run(
        command, input=standard_input.encode(), capture_output=True, timeout=TOOL_TIMEOUT_SECONDS, check=False
    )
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")


def _tail(text: str, characters: int = 2000) -> str:
    return text.strip()[-characters:]


# --- a node -----------------------------------------------------------------------------------------------


class KafkaNode:
    """One Kafka process that is both broker and controller (KRaft). A restart keeps data and ports.

    `properties` are its own settings, in addition to the usual ones; a change counts from the next start.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        heap_megabytes: int = 512,
        java_options: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.data_directory = directory / "data"
        self.log_file = directory / "server.log"
        self.properties = dict(properties or {})
        self._heap_megabytes = heap_megabytes
        self._java_options = java_options
        self._properties_file = directory / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()

    @property
    def bootstrap_servers(self) -> str:
        assert self._ports is not None, "the node was never started"
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Formats the data directory when it is new, starts Kafka, and returns when it answers clients."""
        assert not self.is_running, "the node runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, START_ATTEMPTS + 1):
            if self._ports is None:
                self._ports = (free_port(), free_port())
            self._write_properties()
            self._format()
            try:
                self._launch()
                return
            except KafkaFailed as failure:
                self.kill()
                if attempt == START_ATTEMPTS or "Address already in use" not in str(failure):
                    raise
                self._ports = None

    def stop(self) -> None:
        """A clean stop: SIGTERM, and wait. Kafka flushes its logs and leaves `.kafka_cleanshutdown`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """A crash: SIGKILL."""
        self._end(signal.SIGKILL)

    def _write_properties(self) -> None:
        assert self._ports is not None
        client_port, controller_port = self._ports
        properties = {
            **_NODE_PROPERTIES,
            "listeners": f"PLAINTEXT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_directory),
            **self.properties,
        }
        self._properties_file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def _format(self) -> None:
        if (self.data_directory / "meta.properties").exists():
            return
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if cluster_id.startswith("-"):  # it would read as an option of the tool
            cluster_id = "A" + cluster_id[1:]
        run_tool("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties_file))

    def _launch(self) -> None:
        started = (*self._java_options, "kafka.Kafka", str(self._properties_file))
        command = java_command(*started, heap_megabytes=self._heap_megabytes)
        log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with open(self.log_file, "ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        # librdkafka connects again and again by itself, so that its patience is our wait.
        admin = AdminClient(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                if not self.is_running or time.monotonic() > deadline:
                    with open(self.log_file, "rb") as written:
                        written.seek(log_start)
                        said = written.read().decode("utf-8", "replace")
                    raise KafkaFailed(f"Kafka did not start: {_tail(said)}") from None

    def _end(self, signal_number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            os.kill(process.pid, signal_number)
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            raise KafkaFailed(f"Kafka did not stop in {STOP_TIMEOUT_SECONDS} s, so it was killed") from None
