"""`barnabas pipeline run` as a process of its own: killed, started again, and ended by a signal to its group."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.testing import Broker
from tests.pipelines.running import write_file

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "BARNABAS_LONG_TESTS" not in os.environ, reason="it takes two minutes: set BARNABAS_LONG_TESTS=1 to run it"
    ),
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs a Java runtime: no `java` on the PATH"),
]

NUMBERS = """\
name: numbers
checkpoint: checkpoint
sources:
  numbers:
    topic: numbers
    schema: n bigint
    records_max_per_batch: 100
sinks:
  kept: {from: numbers, parquet: table}
"""
WAIT_SECONDS = 240


def start(file: Path, *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "barnabas.cli.main",
        "pipeline",
        "run",
        str(file),
        "--master",
        "local[2]",
        *options,
    ]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def kept(directory: Path) -> list[int]:
    if not any((directory / "table").glob("*.parquet")):
        return []
    return sorted(ds.dataset(directory / "table").to_table()["n"].to_pylist())


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def append(broker: Broker, numbers: range) -> None:
    broker.append("numbers", [json.dumps({"n": number}).encode() for number in numbers])


def test_killed_pipeline_goes_on_exactly_and_stops_in_order_by_signal(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("numbers")
    append(broker, range(2_000))
    file = write_file(tmp_path, NUMBERS, broker)

    process = start(file)
    wait_until(lambda: len(kept(tmp_path)) >= 300, process)
    process.kill()
    process.communicate()
    seen = kept(tmp_path)
    assert len(seen) == len(set(seen))

    process = start(file)
    wait_until(lambda: len(kept(tmp_path)) >= 2_000, process)
    append(broker, range(2_000, 4_000))
    wait_until(lambda: len(kept(tmp_path)) >= 2_300, process)
    os.killpg(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, output
    assert "failed" not in output
    assert "kept: done" in output
    rows = kept(tmp_path)
    assert rows == list(range(len(rows)))
    with BlockingClient(broker.bootstrap) as client:
        committed = client.committed_offsets("numbers.kept")
    assert committed[TopicPartition("numbers", 0)].offset == len(rows)

    process = start(file, "--once")
    output, _ = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, output
    assert "lag 0" in output
    assert kept(tmp_path) == list(range(4_000))
