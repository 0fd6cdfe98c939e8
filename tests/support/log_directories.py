"""Log managers for tests: small settings, no waiting, one thread."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any
from uuid import UUID

from barnabas.base.clock import Clock, ManualClock
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import split_batches
from barnabas.records.builder import BatchBuilder
from barnabas.records.reader import read_records
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.opening import OpeningReport
from barnabas.storage.log.log import Log
from barnabas.storage.settings import LogConfig, LogManagerConfig
from barnabas.storage.work import InlineWorkers, Workers

CLUSTER_ID = "aClusterIdentifier0000"
TOPIC_ID = UUID("0123456789abcdef0123456789abcdef")
ORDERS = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
PAYMENTS = TopicPartition("payments", 0)

EAGER = LogConfig(flush_messages=1, file_delete_delay_ms=1000)
"""Every write asks for a flush."""
LAZY = LogConfig(file_delete_delay_ms=1000)

A, B = "/a", "/b"
"""Paths of directories on a simulated disk."""


def make_manager(
    files: FileSystem,
    clock: Clock,
    paths: Iterable[str],
    *,
    cluster_id: str = CLUSTER_ID,
    node_id: int = 1,
    workers: Workers | None = None,
    seed: int = 0,
    manager_options: dict[str, Any] | None = None,
    **settings: Any,
) -> LogManager:
    config = LogManagerConfig(log_dirs=tuple(paths), log_initial_task_delay_ms=0, **settings)
    return LogManager(
        files,
        clock,
        Random(seed),
        config,
        cluster_id=cluster_id,
        node_id=node_id,
        workers=workers or InlineWorkers(),
        **(manager_options or {}),
    )


def open_manager(
    files: FileSystem, clock: Clock, paths: Iterable[str], *, config: LogConfig = EAGER, **options: Any
) -> tuple[LogManager, OpeningReport]:
    manager = make_manager(files, clock, paths, **options)
    return manager, manager.open(lambda topic: config)


def make_batch(values: Iterable[bytes], timestamp_ms: int = 1_700_000_000_000) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(timestamp_ms, None, value)
    return bytearray(builder.build())


def append(log: Log, *values: bytes, leader_epoch: int = 0) -> None:
    """A batch for each value, all written with one call."""
    for value in values:
        log.append(make_batch([value]), leader_epoch)
    log.write()
    log.advance_high_watermark(log.end_offset)


def read_values(log: Log) -> list[bytes | None]:
    """The values of all records, from the start of the log on."""
    values: list[bytes | None] = []
    offset = log.log_start_offset
    while part := log.read(offset, 1 << 20).slice:
        for _, batch in split_batches(part.read()):
            for record in read_records(batch):
                if record.offset >= offset:
                    values.append(record.value)
                    offset = record.offset + 1
        part.release()
    return values


def recovery_points(disk: SimulatedDisk, path: str = A) -> dict[TopicPartition, int]:
    return read_offsets(disk, f"{path}/recovery-point-offset-checkpoint")


def served(manager: LogManager, partition: TopicPartition) -> Log:
    log = manager.get(partition)
    assert log is not None
    return log


def checkpoint(manager: LogManager, clock: ManualClock) -> None:
    clock.advance(60_000)
    manager.run_due_work()


def power_loss_within(disk: SimulatedDisk, calls: int, act: Callable[[], object]) -> SimulatedDisk:
    """Returns what is left when the power fails after N calls to the disk, or at the end if there are fewer."""
    images: list[SimulatedDisk] = []
    countdown = iter(range(calls, -1, -1))

    def at_call(operation: str, path: str) -> None:
        if next(countdown, None) == 0:
            images.append(disk.power_loss_image())

    disk.before_call = at_call
    act()
    disk.before_call = None
    return images[0] if images else disk.crash()
