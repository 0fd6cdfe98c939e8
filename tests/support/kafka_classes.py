"""An archive of Kafka's classes as the JVM wants them in memory (AppCDS), made once beside the jars.

A node that has it starts with three fifths of the processor time, a tool with two thirds. A JVM writes it at its exit,
under another name; without it, or with one that another Java has made, everything works and takes longer.
"""

import fcntl
import tempfile
from pathlib import Path

from tests.support.kafka import CLASS_ARCHIVE, QUIET_SHARING, KafkaNode, kafka_jars, run_tool


def make_class_archive() -> None:
    """Makes the archive, unless it is there. Raises `KafkaUnavailable` where Kafka cannot run."""
    kafka_jars()
    with open(CLASS_ARCHIVE.with_suffix(".lock"), "w") as lock, tempfile.TemporaryDirectory() as directory:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once make it only once
        if CLASS_ARCHIVE.exists():
            return
        part = CLASS_ARCHIVE.with_suffix(".part")
        part.unlink(missing_ok=True)
        writes = (f"-XX:ArchiveClassesAtExit={part}", *QUIET_SHARING)
        with KafkaNode(Path(directory), java_options=writes) as node:
            topic = ("--bootstrap-server", node.bootstrap_servers, "--create", "--topic", "loads-classes")
            run_tool("org.apache.kafka.tools.TopicCommand", *topic)
        if part.exists():
            part.rename(CLASS_ARCHIVE)  # last, so that a half-written archive is never used
