"""Four thousand partitions: how long they take to open after a clean stop, and what an idle one costs."""

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from random import Random
from uuid import UUID

from barnabas.base.clock import SystemClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.settings import LogConfig, LogManagerConfig
from benchmarks.logs import make_batch
from benchmarks.report import Report

PARTITIONS = 4000


def _manager(directory: str) -> LogManager:
    config = LogManagerConfig(log_dirs=(directory,), num_recovery_threads_per_data_dir=2)
    return LogManager(LocalFileSystem(), SystemClock(), Random(1), config, cluster_id="bench", node_id=1)


def _fill(directory: str) -> None:
    manager = _manager(directory)
    manager.open(lambda topic: LogConfig())
    batch = make_batch(4096)
    for index in range(PARTITIONS):
        log = manager.create(TopicPartition("bench", index), UUID(int=1), LogConfig())
        for _ in range(3):
            log.append(bytearray(batch), leader_epoch=0)
        log.write()
    manager.close()


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def _open_and_measure(directory: str) -> None:
    """In a process of its own, so that what it costs is what the partitions cost."""
    gc.collect()
    before = _resident_bytes()
    manager = _manager(directory)
    start = time.perf_counter()
    report = manager.open(lambda topic: LogConfig())
    seconds = time.perf_counter() - start
    gc.collect()
    assert (report.logs, report.checked_bytes) == (PARTITIONS, 0)
    kilobytes = (_resident_bytes() - before) / PARTITIONS / 1024
    manager.close()
    print(seconds, kilobytes)


def run(report: Report) -> None:
    report.say(f"opening {PARTITIONS} partitions after a clean stop")
    directory = tempfile.mkdtemp(prefix="barnabas-bench-")
    try:
        _fill(directory)
        measured = []
        for _ in range(3):
            command = [sys.executable, "-m", "benchmarks.partitions", directory]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            measured.append(tuple(map(float, output.split())))
    finally:
        shutil.rmtree(directory)
    seconds, kilobytes = sorted(measured)[1]
    report.at_most(f"open {PARTITIONS} partitions after a clean stop", seconds, "s", 3)
    report.at_most("an idle partition in memory", kilobytes, "KB", 25)


if __name__ == "__main__":
    _open_and_measure(sys.argv[1])
