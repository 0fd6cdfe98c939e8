"""Compaction: how fast a log of keyed records is read, filtered and written again, on one core."""

import array
import dataclasses
import shutil
import tempfile
from random import Random

from barnabas.base.clock import SystemClock
from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import LocalFileSystem
from barnabas.records.columns import encode_batches
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.settings import LogConfig, LogManagerConfig
from barnabas.storage.work import perform
from benchmarks.logs import make_columns, open_at
from benchmarks.report import Report, seconds

RECORDS = 1_600_000
DISTINCT = RECORDS // 10
KEY_BYTES = 8


def _fail(directory: str, error: DiskFailed) -> None:
    raise error


def run(report: Report) -> None:
    report.say("compacting 200 MB of records with a tenth as many keys")
    clock = SystemClock()
    random = Random(5)
    columns = dataclasses.replace(
        make_columns(RECORDS, clock.now_ms()),
        key_offsets=array.array("i", range(0, (RECORDS + 1) * KEY_BYTES, KEY_BYTES)),
        key_data=b"".join(random.randrange(DISTINCT).to_bytes(KEY_BYTES, "big") for _ in range(RECORDS)),
        key_validity=None,
    )
    directory = tempfile.mkdtemp(prefix="barnabas-bench-")
    try:
        config = LogConfig(
            segment_bytes=64 << 20, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01
        )
        log, _ = open_at(f"{directory}/bench-0", config)
        for batch in encode_batches(columns, max_batch_bytes=128 * 1024):
            log.append(batch, leader_epoch=0)
            log.write()
        log.roll()
        log.flush()
        log.advance_high_watermark(log.end_offset)
        before = log.size_bytes
        cleaner = LogCleaner(
            LocalFileSystem(), clock, random, LogManagerConfig(log_dirs=(directory,)), on_failure=_fail
        )

        def compact() -> None:
            while work := cleaner.next_job([log]):
                perform(work)

        spent = seconds(compact)
        after = log.size_bytes
    finally:
        shutil.rmtree(directory)
    report.fact("compaction, 128 KB batches of 100 B records", before / spent / 1e6, "MB/s")
    report.fact("what compaction left of it", after / before * 100, "%")
