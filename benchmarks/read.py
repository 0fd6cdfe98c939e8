"""A read by random offset: how its cost grows from one segment to a thousand."""

import shutil
import tempfile
from random import Random

from barnabas.storage.log.log import Log
from barnabas.storage.settings import LogConfig
from benchmarks.logs import make_batch, open_at
from benchmarks.report import Report, alternating_medians

SEGMENTS = 1000
BATCHES_PER_SEGMENT = 32
READS = 20_000


def _fill(directory: str, segments: int) -> Log:
    batch = make_batch(4096)
    log, _ = open_at(directory, LogConfig(segment_bytes=BATCHES_PER_SEGMENT * len(batch) + 1))
    for _ in range(segments * BATCHES_PER_SEGMENT):
        log.append(bytearray(batch), leader_epoch=0)
        log.write()
    log.flush()
    assert len(log.segments) == segments
    return log


def run(report: Report) -> None:
    report.say("reading by random offset from one segment and from a thousand")
    directories = [tempfile.mkdtemp(prefix="barnabas-bench-") for _ in range(2)]
    try:
        one, thousand = (_fill(directory, count) for directory, count in zip(directories, (1, SEGMENTS), strict=True))

        def read_from(log: Log) -> None:
            random = Random(3)
            offsets = [random.randrange(log.end_offset) for _ in range(READS)]
            for offset in offsets:
                found = log.read(offset, 4096).slice
                assert found is not None
                found.release()

        read_from(thousand)
        alone, among = alternating_medians(7, lambda: read_from(one), lambda: read_from(thousand))
    finally:
        for directory in directories:
            shutil.rmtree(directory)
    report.fact("read by random offset, 1 segment", alone / READS * 1e6, "µs")
    report.fact(f"read by random offset, {SEGMENTS} segments", among / READS * 1e6, "µs")
    report.at_most("read, 1000 segments beside one", among / alone, "times", 1.5)
