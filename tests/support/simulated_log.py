"""One log on a simulated disk, with the short forms that tests of the log use."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import Codec
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.log.log import Log
from barnabas.storage.log.recovery import RecoveryReport, open_log
from barnabas.storage.log.staging import Appended
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.segment.handles import Handles
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.log_model import data_batch, marker_batch

PARTITION = TopicPartition("orders", 0)
DIRECTORY = "data/orders-0"
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=0, file_delete_delay_ms=50)


@dataclass
class SimulatedLog:
    """`log` is open on `disk`, and opened anew by `reopen` on what a crash leaves."""

    config: LogConfig = field(default_factory=LogConfig)
    is_strict: bool = False
    clock: ManualClock = field(default_factory=ManualClock)
    handles_max: int = 50

    def __post_init__(self) -> None:
        self.disk = SimulatedDisk(Random(1), clock=self.clock, strict=self.is_strict)
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory("")
        self.disk.sync_directory("data")
        self.reopen()

    def reopen(
        self,
        disk: SimulatedDisk | None = None,
        *,
        recovery_point: int = 0,
        is_point_sure: bool = False,
        log_start: int = 0,
        was_clean: bool = False,
    ) -> RecoveryReport:
        self.disk = disk or self.disk
        self.log, report = open_log(
            self.disk,
            Handles(self.handles_max),
            self.clock,
            Random(2),
            DIRECTORY,
            PARTITION,
            self.config,
            recovery_point=recovery_point,
            is_point_sure=is_point_sure,
            log_start_offset=log_start,
            was_clean=was_clean,
        )
        return report

    def configure(self, **changes: Any) -> None:
        self.config = self.log.config = replace(self.config, **changes)

    def append(
        self,
        count: int = 1,
        *,
        value_bytes: int = 20,
        timestamp: int | None = None,
        epoch: int = 0,
        codec: Codec = Codec.NONE,
        is_written: bool = True,
        **producer: Any,
    ) -> Appended:
        """A batch of records with one timestamp."""
        timestamps = [self.clock.now_ms() if timestamp is None else timestamp] * count
        appended = self.log.append(data_batch(timestamps, value_bytes, codec=codec, **producer), epoch)
        if is_written:
            self.log.write()
        return appended

    def produce(self, sequence: int, count: int = 1, *, producer_id: int = 7, **options: Any) -> Appended:
        return self.append(count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **options)

    def end_transaction(self, producer_id: int = 7, *, is_commit: bool = False, epoch: int = 0) -> Appended:
        marker = marker_batch(producer_id, 0, self.clock.now_ms(), is_commit=is_commit)
        appended = self.log.append(marker, epoch, Origin.COORDINATOR)
        self.log.write()
        return appended

    def names(self, ending: str = "") -> list[str]:
        return [name for name in self.disk.list(DIRECTORY) if name.endswith(ending)]

    @property
    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments]


def truncate(log: Log, offset: int) -> None:
    """What `LogManager.truncation` does, at once and without its checkpoints."""
    cut = log.plan_truncation(offset)
    if cut is not None:
        cut.run()
        log.finish_truncation(cut)


def restart(log: Log, offset: int) -> None:
    cut = log.plan_restart(offset)
    cut.run()
    log.finish_truncation(cut)


def path(name: str) -> str:
    return f"{DIRECTORY}/{name}"


def filled(orders: SimulatedLog, batches: int = 6) -> SimulatedLog:
    for _ in range(batches):
        orders.append(2, value_bytes=20)
        orders.clock.advance(10)
    return orders


def code_of(raised: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return raised.value.code
