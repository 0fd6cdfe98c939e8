"""A coordinator over partitions of memory, which fail, refuse and lag when a test wants them to."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

from barnabas.base.buffers import Buffer
from barnabas.base.clock import ManualClock
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.metrics import Metrics
from barnabas.base.uuid import ZERO_UUID
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.effects import RebalanceCompleted, StoryEvent
from barnabas.groups.measures import measure_groups
from barnabas.groups.partitions import LedPartition, WhenCommitted
from barnabas.groups.requests import JoinRequest, OffsetToCommit, SyncRequest
from barnabas.groups.settings import GroupSettings
from barnabas.groups.shard import GroupShard
from barnabas.records.batch import Codec, read_header
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.inline_executor import InlineExecutor

COMMIT_TIMEOUT_MS = 5000


class MemoryPartition:
    """A `LedPartition` whose appends count when `commit` is called."""

    workers = InlineExecutor()

    def __init__(self, index: int = 0, batches: list[bytearray] | None = None) -> None:
        self.index = index
        self.leader_epoch = 0
        self.is_led = True
        self.start_offset = 0
        self.batch_bytes_max = 1 << 20
        self.batches = [] if batches is None else batches
        self.end_offset = sum(read_header(memoryview(batch)).count for batch in self.batches)
        self.high_watermark = self.end_offset
        self.refusal: BarnabasError | None = None
        self.commits_itself = True
        self.reading: asyncio.Event | None = None
        self.read_error: BarnabasError | None = None
        self._watchers: list[Callable[[], None]] = []
        self._waiting: list[tuple[int, float, WhenCommitted]] = []

    def append(self, batch: bytearray) -> int:
        if self.refusal is not None:
            raise self.refusal
        batch[:8] = self.end_offset.to_bytes(8, "big")
        self.batches.append(batch)
        self.end_offset += read_header(memoryview(batch)).count
        if self.commits_itself:
            asyncio.get_running_loop().call_soon(self.commit)
        return self.end_offset - 1

    def when_committed(self, last_offset: int, deadline: float, callback: WhenCommitted) -> None:
        self._waiting.append((last_offset, deadline, callback))
        self._waiting.sort(key=lambda one: one[0])

    def commit(self) -> None:
        self.high_watermark = self.end_offset
        self._end([one for one in self._waiting if one[0] < self.high_watermark], None)

    def pass_time(self, now: float) -> None:
        self._end([one for one in self._waiting if one[1] <= now], KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    def _end(self, ended: list[tuple[int, float, WhenCommitted]], error: BarnabasError | None) -> None:
        self._waiting = [one for one in self._waiting if one not in ended]
        for _, _, callback in ended:
            callback(error)

    def fail(self) -> None:
        """What was appended since the last commit is lost."""
        self.end_offset = self.high_watermark
        self.batches = [one for one in self.batches if read_header(memoryview(one)).base_offset < self.end_offset]
        self._end(self._waiting, DiskFailed("write", "/nowhere", OSError(5, "the disk is gone")))

    def lose(self) -> None:
        self.is_led = False
        self._end(self._waiting, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for watcher in tuple(self._watchers):
            watcher()

    def watch(self, on_end: Callable[[], None]) -> None:
        self._watchers.append(on_end)

    def unwatch(self, on_end: Callable[[], None]) -> None:
        self._watchers.remove(on_end)

    async def read(self, offset: int, max_bytes: int) -> Buffer:
        if self.reading is not None:
            await self.reading.wait()
        if self.read_error is not None:
            raise self.read_error
        return b"".join(one for one in self.batches if read_header(memoryview(one)).next_offset > offset)


class Rig:
    def __init__(self, codec: Codec = Codec.NONE, **settings: int) -> None:
        self.clock = ManualClock()
        self.events: list[StoryEvent] = []
        self.heard = asyncio.Event()
        self.removed: list[str] = []
        self.measures = measure_groups(Metrics())
        self.coordinator = GroupCoordinator(
            asyncio.get_running_loop(),
            self.clock,
            Random(5),
            GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings}),
            self.measures,
            codec=codec,
            load_buffer_bytes=1 << 20,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            before_write=asyncio.get_running_loop().call_soon,
            on_events=self._hear,
            on_removed=self.removed.append,
        )

    def _hear(self, events: Sequence[StoryEvent]) -> None:
        self.events.extend(events)
        if any(isinstance(event, RebalanceCompleted) for event in events):
            self.heard.set()

    async def lead(self, *partitions: MemoryPartition) -> None:
        self.coordinator.follow({one.index: one for one in partitions}, len(partitions))
        await self.coordinator.wait_loaded()

    def pass_time(self, milliseconds: int) -> None:
        """Lets time pass, and every timer fire that is due."""
        self.clock.advance(milliseconds)
        self.coordinator._timers._advance()
        for shard in self.coordinator:
            partition: LedPartition = shard.partition
            assert isinstance(partition, MemoryPartition)
            partition.pass_time(self.clock.monotonic())

    @property
    def shard(self) -> GroupShard:
        return next(iter(self.coordinator))

    def commit(self, offset: int, group_id: str = "g", topic: str = "orders") -> "asyncio.Future[Any]":
        future, token = waiting()
        state = self.shard.state
        wanted = [OffsetToCommit(topic, ZERO_UUID, 0, offset, -1, "")]
        effects = state.commit_offsets(group_id, -1, "", None, wanted, token, self.coordinator.now())
        self.shard.carry_out(effects)
        return future

    def committed(self, group_id: str = "g", topic: str = "orders") -> int | None:
        [found] = self.coordinator.state_for(group_id).fetch_offsets(group_id, topic, [0])
        return None if found is None else found.offset

    def join(self, member_id: str = "", group_id: str = "g") -> "asyncio.Future[Any]":
        future, token = waiting()
        request = JoinRequest(
            group_id, member_id, None, "test", "/host", 10_000, 60_000, "consumer", (("range", b""),), False, False
        )
        self.shard.carry_out(self.shard.state.join(request, token, self.coordinator.now()))
        return future

    def sync(self, joined: Any, group_id: str = "g", assignment: bytes = b"all of it") -> "asyncio.Future[Any]":
        future, token = waiting()
        assignments = [(joined.member_id, assignment)]
        request = SyncRequest(group_id, joined.generation, joined.member_id, None, "consumer", "range", assignments)
        self.shard.carry_out(self.shard.state.sync(request, token, self.coordinator.now()))
        return future


def waiting() -> tuple["asyncio.Future[Any]", Callable[[Any], None]]:
    future = asyncio.get_running_loop().create_future()
    return future, future.set_result


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 120))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
