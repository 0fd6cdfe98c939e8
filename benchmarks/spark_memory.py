"""The memory of a streaming pipeline's driver over 2,000 batches: does it stay, or does it grow?

    python -m benchmarks.spark_memory
    python -m benchmarks.spark_memory --sink parquet
    python -m benchmarks.spark_memory --batches 400      a look

`barnabas pipeline run` is a process of its own that reads one topic and writes to another, or to Parquet files through
a callback from the JVM to Python; a trickle of records makes one small batch after the other. After a tenth, a half and
all of the batches each process is measured: the heap of the driver's JVM that is reachable (`jcmd`, which needs a JDK),
and the resident memory of the JVM, of the driver's Python and of the source's Python. By the first look all caches are
warm.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from tests.pipelines.faults.kill_points import WatchedSink
from tests.pipelines.faults.processes import PipelineProcess
from tests.support.broker_process import BrokerProcess

from barnabas.client.blocking import BlockingClient
from benchmarks.report import Report

BATCHES: Final = 2_000
LOOKS: Final = (0.1, 0.5, 1.0)
GROWTH_MAX: Final = 1.1
"""From the first look to the last; more is called growing."""
JVM_RESIDENT: Final = "driver's JVM, resident"
"""Not judged: a JVM takes its heap from the system bit by bit, up to its limit, whether it needs it or not."""
TRICKLE_SECONDS: Final = 0.05
RECORDS_AT_ONCE: Final = 10
PIPELINE: Final = """\
name: memory
bootstrap: {bootstrap}
checkpoint: checkpoint
spark: {{spark.driver.memory: 512m}}
sources:
  numbers: {{topic: numbers, schema: n bigint}}
sinks:
  copies: {{from: numbers, {sink}}}
"""
SINKS: Final = {"topic": "topic: copies", "parquet": "parquet: table"}

_START_SECONDS_MAX: Final = 300
_SECONDS_PER_BATCH_MAX: Final = 30
_HISTOGRAM_TOTAL: Final = re.compile(r"^Total\s+\d+\s+(\d+)", re.MULTILINE)
_SOURCE_PROCESS: Final = "python_streaming_source_runner"


@dataclass(frozen=True, slots=True)
class Look:
    """Megabytes, by what is measured."""

    batches: int
    megabytes: dict[str, float]


def run(report: Report, batches: int = BATCHES, sink_kind: str = "topic") -> None:
    if shutil.which("jcmd") is None:
        report.say("the driver's memory is not measured: it needs a JDK, with `jcmd`")
        return
    with tempfile.TemporaryDirectory() as name, BrokerProcess(Path(name)) as broker:
        directory = Path(name)
        file = directory / "pipeline.yaml"
        file.write_text(PIPELINE.format(bootstrap=broker.bootstrap, sink=SINKS[sink_kind]), encoding="utf-8")
        with BlockingClient(broker.bootstrap) as client:
            for topic in ("numbers", "copies"):
                client.create_topic(topic, partitions=1, configs={"retention.bytes": str(64 << 20)})
            with trickle(client), PipelineProcess(file, master="local[2]") as process:
                sink = WatchedSink("copies", directory / "checkpoint", "copies")
                looks = [look_after(report, process, sink, round(part * batches)) for part in LOOKS]
    for what, first in looks[0].megabytes.items():
        for look in looks:
            report.fact(f"{what}, after {look.batches:,} batches", look.megabytes[what], "MB")
        growth = looks[-1].megabytes[what] / first
        if what == JVM_RESIDENT:
            report.fact(f"{what}, growth", growth, "x")
        else:
            report.at_most(f"{what}, growth", growth, "x", GROWTH_MAX)


@contextmanager
def trickle(client: BlockingClient) -> Iterator[None]:
    """A few records at a time, for as long as the block lasts."""
    over = threading.Event()

    def send() -> None:
        while not over.wait(TRICKLE_SECONDS):
            client.produce("numbers", [b'{"n": 1}'] * RECORDS_AT_ONCE)

    sender = threading.Thread(target=send, name="trickle")
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def look_after(report: Report, process: PipelineProcess, sink: WatchedSink, batches: int) -> Look:
    """Waits until so many batches are done, and measures."""
    began, done = time.monotonic(), max(sink.done(), default=0)
    deadline = began + _START_SECONDS_MAX + (batches - done) * _SECONDS_PER_BATCH_MAX
    while max(sink.done(), default=0) < batches:
        assert process.is_running, process.said[-2000:]
        assert time.monotonic() < deadline, f"the batches do not go on\n{process.said[-2000:]}"
        time.sleep(0.5)
    batch_ms = (time.monotonic() - began) * 1000 / max(1, batches - done)
    look = Look(batches, memory_of(process))
    shown = ", ".join(f"{what} {megabytes:.1f} MB" for what, megabytes in look.megabytes.items())
    report.say(f"{batches:,} batches, {batch_ms:.0f} ms each: {shown}")
    return look


def memory_of(process: PipelineProcess) -> dict[str, float]:
    commands = {one: Path(f"/proc/{one}/cmdline").read_bytes().decode().split("\0") for one in process.members()}
    (jvm,) = [one for one, words in commands.items() if words[0].endswith("/java") and "SparkSubmit" in str(words)]
    sources = [one for one, words in commands.items() if any(_SOURCE_PROCESS in word for word in words)]
    driver = process.members()[0]
    return {
        "driver's heap, reachable": heap_megabytes(jvm),
        JVM_RESIDENT: resident_megabytes(jvm),
        "driver's Python, resident": resident_megabytes(driver),
        "source's Python, resident": sum(resident_megabytes(one) for one in sources),
    }


def heap_megabytes(jvm: int) -> float:
    """Of what is reachable: the histogram collects first, and the run allocates nothing in between."""
    said = subprocess.run(["jcmd", str(jvm), "GC.class_histogram"], check=True, capture_output=True, text=True).stdout
    total = _HISTOGRAM_TOTAL.search(said)
    assert total is not None, said[-500:]
    return int(total[1]) / (1 << 20)


def resident_megabytes(process_id: int) -> float:
    status = Path(f"/proc/{process_id}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None, status
    return int(found[1]) / 1024


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_memory")
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--sink", choices=SINKS, default="topic")
    chosen = parser.parse_args(arguments)
    report = Report(Console())
    run(report, chosen.batches, chosen.sink)
    report.print_table()
    is_flat = all(one.is_met for one in report.measurements)
    print("flat" if is_flat else "growing")
    return 0 if is_flat else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
