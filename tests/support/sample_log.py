"""A small log directory that is the same on every machine, for tests of the tools and for the examples in the docs.

`data/orders-0` has two segments: plain batches with headers, nulls and bytes that are not text; a transaction that was
aborted and one that was committed; two leader epochs. It was stopped cleanly.
"""

import os
import random
from pathlib import Path
from uuid import UUID

from barnabas.base.clock import ManualClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.base.ids import TopicPartition
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import EndTransactionMarker, build_marker
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CleanShutdown,
    write_clean_shutdown,
    write_offsets,
    write_partition_metadata,
)
from barnabas.storage.directories.meta_properties import META_PROPERTIES, MetaProperties, write_meta_properties
from barnabas.storage.log.log import Log
from barnabas.storage.log.recovery import open_log
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.segment.handles import Handles
from barnabas.storage.settings import LogConfig

ORDERS = TopicPartition("orders", 0)
START_MS = 1_700_000_000_000
PRODUCER_ID = 7
FIRST = "00000000000000000000"
SECOND = "00000000000000000010"
"""The names of the segments, without their endings."""


def open_sample(directory: Path, *, config: LogConfig | None = None, was_clean: bool = False) -> Log:
    log, _ = open_log(
        LocalFileSystem(),
        Handles(),
        ManualClock(START_MS),
        random.Random(0),
        str(directory),
        ORDERS,
        config or LogConfig(index_interval_bytes=150),
        was_clean=was_clean,
    )
    return log


def append_plain(log: Log, count: int, *, leader_epoch: int = 0, value_bytes: int = 0) -> None:
    """One batch of records whose keys are their offsets."""
    builder = BatchBuilder()
    for offset in range(log.staged_end_offset, log.staged_end_offset + count):
        builder.append(START_MS + offset, b"order-%d" % offset, b"coffee".ljust(value_bytes, b"."))
    log.append(memoryview(builder.build()), leader_epoch)
    log.write()


def append_transaction(log: Log, sequence: int, *, is_commit: bool, leader_epoch: int = 0) -> None:
    """A batch of two records, and the marker that ends their transaction."""
    builder = BatchBuilder(producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    for index in range(2):
        builder.append(START_MS + 1000 + sequence + index, b"tea-%d" % index, b"green")
    log.append(memoryview(builder.build()), leader_epoch)
    marker = build_marker(
        EndTransactionMarker(is_commit=is_commit, coordinator_epoch=3),
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        timestamp=START_MS + 2000 + sequence,
    )
    log.append(memoryview(marker), leader_epoch, Origin.COORDINATOR)
    log.write()


def append_odd_records(log: Log) -> None:
    """What has to be shown with care: nulls, empty ones, headers, bytes that are not text."""
    builder = BatchBuilder()
    builder.append(START_MS + 50, None, b"no key")
    builder.append(START_MS + 51, b"order-3", None, [("reason", b"cancelled"), ("trace", None)])
    builder.append(START_MS + 52, b"\xff\x00", b"zwei\nMilchkaffee")
    log.append(memoryview(builder.build()), leader_epoch=0)
    log.write()


def make_sample(root: Path) -> Path:
    """Makes `root/data` and returns it."""
    files = LocalFileSystem()
    data = root / "data"
    log = open_sample(data / str(ORDERS))
    append_plain(log, 4)
    append_odd_records(log)
    append_transaction(log, 0, is_commit=False)
    log.flush()
    log.roll()
    append_plain(log, 3, leader_epoch=1)
    append_transaction(log, 2, is_commit=True, leader_epoch=1)
    append_plain(log, 2, leader_epoch=1)
    log.advance_high_watermark(log.end_offset)
    log.close()
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        write_offsets(files, os.path.join(data, name), {ORDERS: log.end_offset})
    write_offsets(files, os.path.join(data, LOG_START_OFFSETS), {})
    write_partition_metadata(files, os.path.join(data, str(ORDERS), PARTITION_METADATA), UUID(int=1883))
    meta = MetaProperties(cluster_id="castle", node_id=1, directory_id=UUID(int=1926))
    write_meta_properties(files, os.path.join(data, META_PROPERTIES), meta)
    write_clean_shutdown(files, os.path.join(data, CLEAN_SHUTDOWN), CleanShutdown())
    return data
