"""Appending with checksum and record validation, beside `os.write` of the same bytes."""

import itertools
import os
import shutil
import tempfile

from barnabas.storage.settings import LogConfig
from benchmarks.logs import make_batch, open_at
from benchmarks.report import Report, alternating_medians

BATCH_BYTES = 128 * 1024
BATCHES = 500
TICK = 1
"""Appends that are staged before one write: one, so that both sides make as many system calls."""


def run(report: Report) -> None:
    report.say("appending 128 KB batches, beside plain os.write")
    batch = make_batch(BATCH_BYTES)
    batches = [bytearray(batch) for _ in range(16)]
    total_bytes = BATCHES * len(batch)
    directory = tempfile.mkdtemp(prefix="barnabas-bench-")
    numbers = itertools.count()

    def plain() -> None:
        path = os.path.join(directory, f"plain-{next(numbers)}")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        for turn in range(BATCHES):
            os.write(descriptor, batches[turn % 16])
        os.close(descriptor)
        os.unlink(path)

    def through_the_log() -> None:
        path = os.path.join(directory, f"log-{next(numbers)}")
        log, _ = open_at(path, LogConfig())
        for turn in range(BATCHES):
            log.append(batches[turn % 16], leader_epoch=0)
            if turn % TICK == TICK - 1:
                log.write()
        log.write()
        shutil.rmtree(path)

    try:
        plain()
        plain_seconds, log_seconds = alternating_medians(15, plain, through_the_log)
    finally:
        shutil.rmtree(directory)
    report.fact("plain os.write, 128 KB", total_bytes / plain_seconds / 1e9, "GB/s")
    report.fact("append 128 KB batches of 100 B records", total_bytes / log_seconds / 1e9, "GB/s")
    report.at_least("append, as a ratio of os.write", plain_seconds / log_seconds, "times", 0.6)
