"""One partition over a log on a simulated disk, led as a test likes, with a tick that the test lets write."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.base.clock import ManualClock
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.ids import TopicPartition
from barnabas.base.uuid import ZERO_UUID
from barnabas.replication.leader import Grant
from barnabas.replication.partition import Partition
from barnabas.replication.tick import AppendTick
from barnabas.replication.waiting import ALL_ACKS, FOREVER
from barnabas.storage.log.log import Log
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.log_model import data_batch
from tests.support.network import run
from tests.support.played_replies import PlayedReplies
from tests.support.simulated_log import PARTITION, SimulatedLog

BROKER = 1
ALONE = (BROKER,)


def grant(isr: tuple[int, ...], replicas: tuple[int, ...], partition_epoch: int = 0, leader_epoch: int = 0) -> Grant:
    """To the broker, whatever the epochs of registrations are."""
    return Grant(BROKER, leader_epoch, dict.fromkeys(isr, 0), replicas, partition_epoch, broker_epoch=0)


class LedPartition:
    """`flush` is done when the test says so."""

    def __init__(
        self,
        isr: tuple[int, ...] = ALONE,
        replicas: tuple[int, ...] | None = None,
        *,
        log: Log | None = None,
        epoch: int = 0,
        **config: Any,
    ) -> None:
        self.clock = ManualClock()
        self.simulated = SimulatedLog(LogConfig(**config), clock=self.clock)
        self.log = log or self.simulated.log
        self.told_replies = 0
        self.failures: list[DiskFailed] = []
        self.flushes_wanted = 0
        self.timers: list[float] = []
        """For which moments timers were set."""
        self.tick = AppendTick(asyncio.get_running_loop(), self.clock, PlayedReplies(self._replies_go))
        self.partition = Partition(
            PARTITION, ZERO_UUID, self.log, self.tick, flush=self._want_flush, on_failure=self._on_failure
        )
        self.partition.lead(grant(isr, isr if replicas is None else replicas, leader_epoch=epoch))
        self._call_at = self.tick.call_at
        self.tick.call_at = self._note_timer  # type: ignore[method-assign]

    def _note_timer(self, deadline: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.timers.append(deadline)
        return self._call_at(deadline, callback)

    def _replies_go(self) -> None:
        self.told_replies += 1

    def _want_flush(self, name: TopicPartition) -> None:
        self.flushes_wanted += 1

    def _on_failure(self, partition: Partition, failure: DiskFailed) -> None:
        self.failures.append(failure)

    def flush(self) -> None:
        """What the log manager does."""
        self.log.flush()
        self.partition.flushed(None)

    def batch(self, count: int = 1, *, value_bytes: int = 20, **producer: Any) -> bytearray:
        return data_batch([self.clock.now_ms()] * count, value_bytes, **producer)

    def append(self, count: int = 1, *, value_bytes: int = 20, **waiting: Any) -> "Told":
        """A new batch, and what its owner is told."""
        return self.send(self.batch(count, value_bytes=value_bytes), **waiting)

    def send(self, batch: bytearray, **waiting: Any) -> "Told":
        return self.wait(self.partition.append(bytearray(batch)).last_offset, **waiting)

    def wait(self, last_offset: int, *, acks: int = ALL_ACKS, deadline: float = FOREVER) -> "Told":
        told = Told()
        self.partition.when_committed(last_offset, acks, deadline, told)
        return told

    @property
    def offsets(self) -> tuple[int, int]:
        """High watermark and end."""
        return self.partition.high_watermark, self.partition.end_offset


class Told:
    """What somebody who waits is told, at most once."""

    def __init__(self) -> None:
        self._errors: list[BarnabasError | None] = []

    def __call__(self, error: BarnabasError | None) -> None:
        assert not self._errors, "told twice"
        self._errors.append(error)

    @property
    def outcome(self) -> str | ErrorCode | type[BarnabasError]:
        if not self._errors:
            return "waiting"
        [error] = self._errors
        if error is None:
            return "committed"
        return error.code if isinstance(error, KafkaError) else type(error)


ALL, LEADER, NOBODY = -1, 1, 0
TIMED_OUT, NOT_LEADER = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER
WITH_FOLLOWER = (BROKER, 2)


def scenario(main: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def test() -> None:
        run(main())

    test.__name__, test.__doc__ = main.__name__, main.__doc__
    return test
