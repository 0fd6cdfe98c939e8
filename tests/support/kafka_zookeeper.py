"""Apache Kafka 3.9.1, the last one with ZooKeeper: its jars, what it leaves in ZooKeeper, and how it reads nodes.

The jars, ZooKeeper's among them, come from Maven Central once, by `mvn`, into `.cache/kafka-3.9.1`. Whatever is missing
is raised as `KafkaUnavailable`. ZooKeeper and both brokers live in one JVM, on 127.0.0.1 only, that ends by itself.

`python -m tests.support.kafka_zookeeper` writes the file of `tests.support.kafka_nodes` anew.
"""

import fcntl
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.kafka import (
    CACHE_DIRECTORY,
    DOWNLOAD_TIMEOUT_SECONDS,
    JAVA_SOURCES,
    KafkaFailed,
    KafkaUnavailable,
    _check_java,
    run_command,
)
from tests.support.kafka_nodes import KafkaTree

KAFKA_VERSION = "3.9.1"

_POM = f"""<project>
<modelVersion>4.0.0</modelVersion><groupId>barnabas</groupId><artifactId>zookeeper-kafka-jars</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies>
</project>
"""


def zookeeper_kafka_jars() -> Path:
    """The directory with the jars, fetched when they are not there yet."""
    _check_java()
    directory = CACHE_DIRECTORY / f"kafka-{KAFKA_VERSION}"
    jars = directory / "jars"
    if not jars.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once fetch only once
            if not jars.is_dir():
                _fetch(directory, jars)
    return jars


def _fetch(directory: Path, jars: Path) -> None:
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("Apache Kafka's jars are fetched by Maven: no `mvn` on the PATH")
    pom, incoming = directory / "pom.xml", directory / "incoming"
    pom.write_text(_POM)
    shutil.rmtree(incoming, ignore_errors=True)
    command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={incoming}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"Maven did not fetch Kafka's jars in {DOWNLOAD_TIMEOUT_SECONDS} s") from None
    if done.returncode != 0 or not any(incoming.glob("zookeeper-*.jar")):
        raise KafkaUnavailable(f"Maven could not fetch Kafka's jars: {(done.stdout + done.stderr).strip()[-300:]}")
    incoming.rename(jars)  # last, so that a half-filled directory is never taken for a whole one


def record_tree(directory: Path) -> KafkaTree:
    """Runs ZooKeeper and two brokers, asks them for everything that Kafka keeps there, and returns the tree."""
    return KafkaTree.parse(_run(str(JAVA_SOURCES / "ZooKeeperKafka.java"), str(directory)))


def understood_by_kafka(nodes: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """What Kafka's own decoders make of nodes, by path."""
    requests = "".join(f"{path}\t{nodes[path].hex()}\n" for path in nodes)
    lines = _run(str(JAVA_SOURCES / "ZooKeeperNodes.java"), standard_input=requests)
    answers = [json.loads(line) for line in lines if line.startswith("{")]
    if len(answers) != len(nodes):
        raise KafkaFailed(f"{len(nodes)} nodes were to be decoded, {len(answers)} were")
    return dict(zip(nodes, answers, strict=True))


def run_zookeeper_kafka_tool(main_class: str) -> str:
    """What a main class of 3.9.1 prints."""
    return "\n".join(_run(main_class))


def _run(program: str, *arguments: str, standard_input: str = "") -> list[str]:
    """`program` is a main class or a source file."""
    command = [
        "java",
        "-Xmx512m",
        "-XX:+UseSerialGC",  # the machine's few cores belong to the test
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        f"{zookeeper_kafka_jars()}/*",
        program,
        *arguments,
    ]
    status, output = run_command(command, standard_input)
    if status != 0:
        raise KafkaFailed(f"{program} ended with status {status}: {output.strip()[-2000:]}")
    return output.splitlines()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        record_tree(Path(scratch)).save()
