"""Spark's own Kafka connector, for tests and benchmarks beside it: the jars that work together, from Maven Central.

They are fetched once, by `mvn`, into `.cache/spark-kafka-VERSION`. They are made for pyspark 4.2.0 and serve 4.3.0 too.
Whatever is missing is raised as `KafkaUnavailable`.
"""

import fcntl
import shutil
import subprocess
from pathlib import Path

from tests.support.kafka import CACHE_DIRECTORY, DOWNLOAD_TIMEOUT_SECONDS, KafkaUnavailable

CONNECTOR_VERSION = "4.2.0"
_ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def connector_jars() -> list[Path]:
    """For Spark's setting `spark.jars`, by commas."""
    directory = CACHE_DIRECTORY / f"spark-kafka-{CONNECTOR_VERSION}"
    jars = directory / "jars"
    if not jars.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once fetch only once
            if not jars.is_dir():
                _fetch(directory, jars)
    return sorted(jars.glob("*.jar"))


def _fetch(directory: Path, jars: Path) -> None:
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("the Kafka connector's jars are fetched by Maven: no `mvn` on the PATH")
    incoming = directory / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    for artifact in _ARTIFACTS:
        command = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={incoming}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_SECONDS, check=False, cwd=directory
            )
        except subprocess.TimeoutExpired:
            raise KafkaUnavailable(f"Maven did not fetch {artifact} in {DOWNLOAD_TIMEOUT_SECONDS} s") from None
        if done.returncode != 0:
            raise KafkaUnavailable(f"Maven could not fetch {artifact}: {(done.stdout + done.stderr).strip()[-300:]}")
    incoming.rename(jars)  # last, so that a half-filled directory is never taken for a whole one
