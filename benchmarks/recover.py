"""Recovery after a crash: checking every batch of a log that is in the page cache."""

import shutil
import tempfile
import time

from barnabas.records.batch import Codec
from barnabas.storage.settings import LogConfig
from benchmarks.logs import make_batch, open_at
from benchmarks.report import Report

LOG_BYTES = 1 << 30


def run(report: Report) -> None:
    for batch_bytes, codec, target in (
        (128 * 1024, Codec.NONE, 1.0),
        (16 * 1024, Codec.NONE, 1.0),
        (1024, Codec.NONE, 0),
    ):
        report.say(f"recovering 1 GB of {batch_bytes // 1024} KB batches")
        directory = tempfile.mkdtemp(prefix="barnabas-bench-")
        try:
            batch = make_batch(batch_bytes, codec)
            config = LogConfig(segment_bytes=1 << 28)
            log, _ = open_at(directory, config)
            size_bytes = LOG_BYTES if target else LOG_BYTES // 8
            while log.size_bytes < size_bytes:
                for _ in range(max(1, (1 << 20) // batch_bytes)):
                    log.append(bytearray(batch), leader_epoch=0)
                log.write()
            times = []
            for _ in range(3):
                start = time.perf_counter(), time.process_time()
                _, found = open_at(directory, config, recovery_point=0, was_clean=False)
                times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
                assert found.checked_bytes == log.size_bytes
            seconds, cpu_seconds = min(times)
            rate = found.checked_bytes / max(seconds, cpu_seconds) / 1e9
        finally:
            shutil.rmtree(directory)
        name = f"recovery, {batch_bytes // 1024} KB batches"
        if target:
            report.at_least(name, rate, "GB/s per core", target)
        else:
            report.fact(name, rate, "GB/s per core")
