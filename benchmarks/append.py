"""Appending with checksum and record validation, beside `os.write` of the same bytes.

Only the appends are timed, not making and removing the files. `tick` is how many appends are staged before one write:
one makes as many system calls as `os.write` does, four is what a broker does under load.
"""

import os
import shutil
import statistics
import tempfile
import time

from barnabas.storage.settings import LogConfig
from benchmarks.logs import make_batch, open_at
from benchmarks.report import Report

BATCH_BYTES = 128 * 1024
BATCHES = 500
ROUNDS = 15


def _plain(directory: str, batches: list[bytearray]) -> float:
    path = os.path.join(directory, "plain")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    start = time.perf_counter()
    for turn in range(BATCHES):
        os.write(descriptor, batches[turn % len(batches)])
    spent = time.perf_counter() - start
    os.close(descriptor)
    os.unlink(path)
    return spent


def _through_the_log(directory: str, batches: list[bytearray], tick: int) -> float:
    path = os.path.join(directory, "log-0")
    log, _ = open_at(path, LogConfig())
    start = time.perf_counter()
    for turn in range(BATCHES):
        log.append(batches[turn % len(batches)], leader_epoch=0)
        if turn % tick == tick - 1:
            log.write()
    spent = time.perf_counter() - start
    log.finish_close()
    shutil.rmtree(path)
    return spent


def run(report: Report) -> None:
    report.say("appending 128 KB batches, beside plain os.write")
    batch = make_batch(BATCH_BYTES)
    batches = [bytearray(batch) for _ in range(16)]
    directory = tempfile.mkdtemp(prefix="barnabas-bench-")
    try:
        _plain(directory, batches)
        rounds = [
            (
                _plain(directory, batches),
                _through_the_log(directory, batches, tick=1),
                _through_the_log(directory, batches, tick=4),
            )
            for _ in range(ROUNDS)
        ]
    finally:
        shutil.rmtree(directory)
    plain, alone, together = (statistics.median(one) for one in zip(*rounds, strict=True))
    total_bytes = BATCHES * len(batch)
    report.fact("plain os.write, 128 KB", total_bytes / plain / 1e9, "GB/s")
    report.fact("append 128 KB batches of 100 B records", total_bytes / alone / 1e9, "GB/s")
    report.at_least("append, as a ratio of os.write", plain / alone, "times", 0.6)
    report.at_least("the same, four appends a write", plain / together, "times", 0.6)
