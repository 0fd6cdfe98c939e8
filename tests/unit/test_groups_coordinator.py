"""The coordinator over partitions of memory, which fail, refuse and lag when a test wants them to."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.filesystem import Buffer
from barnabas.base.metrics import Metrics
from barnabas.base.uuid import ZERO_UUID
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.effects import Effects, RebalanceCompleted, StoryEvent
from barnabas.groups.measures import measure_groups
from barnabas.groups.partitions import WhenFailed
from barnabas.groups.requests import JoinRequest, OffsetToCommit, SyncRequest
from barnabas.groups.settings import GroupSettings
from barnabas.groups.shard import GroupShard, ShardStatus
from barnabas.groups.transitions import GroupState
from barnabas.records.batch import Codec, read_header
from barnabas.wire.errors import ErrorCode, KafkaError

COMMIT_TIMEOUT_MS = 5000


class MemoryPartition:
    """A `LedPartition` whose appends count when `commit` is called."""

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
        self._watchers: list[Callable[[], None]] = []
        self._when_failed: list[WhenFailed] = []

    def expect_append(self) -> None:
        pass

    def append(self, batch: bytearray, when_failed: WhenFailed) -> int:
        if self.refusal is not None:
            raise self.refusal
        batch[:8] = self.end_offset.to_bytes(8, "big")
        self.batches.append(batch)
        self._when_failed.append(when_failed)
        self.end_offset += read_header(memoryview(batch)).count
        if self.commits_itself:
            asyncio.get_running_loop().call_soon(self.commit)
        return self.end_offset - 1

    def commit(self) -> None:
        self.high_watermark = self.end_offset
        self._when_failed.clear()
        self._tell()

    def fail(self) -> None:
        """What was appended since the last commit is lost."""
        self.end_offset = self.high_watermark
        self.batches = [one for one in self.batches if read_header(memoryview(one)).base_offset < self.end_offset]
        waiting, self._when_failed = self._when_failed, []
        for when_failed in waiting:
            when_failed(DiskFailed("write", "/nowhere", OSError(5, "the disk is gone")))

    def lose(self) -> None:
        self.is_led = False
        self._tell()

    def _tell(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()

    def watch(self, on_change: Callable[[], None]) -> None:
        self._watchers.append(on_change)

    def unwatch(self, on_change: Callable[[], None]) -> None:
        self._watchers.remove(on_change)

    async def read(self, offset: int, max_bytes: int) -> Buffer:
        if self.reading is not None:
            await self.reading.wait()
        return b"".join(one for one in self.batches if read_header(memoryview(one)).next_offset > offset)


class Rig:
    def __init__(self, **settings: int) -> None:
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
            codec=Codec.NONE,
            load_buffer_bytes=1 << 20,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            on_events=self._hear,
            on_removed=self.removed.append,
            on_bug=lambda bug: pytest.fail(f"{bug!r}"),
        )

    def _hear(self, events: Sequence[StoryEvent]) -> None:
        self.events.extend(events)
        if any(isinstance(event, RebalanceCompleted) for event in events):
            self.heard.set()

    async def lead(self, *partitions: MemoryPartition) -> None:
        self.coordinator.follow({one.index: one for one in partitions}, len(partitions))
        await self.coordinator.wait_loaded()

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

    def sync(self, joined: Any, group_id: str = "g") -> "asyncio.Future[Any]":
        future, token = waiting()
        assignments = [(joined.member_id, b"all of it")]
        request = SyncRequest(group_id, joined.generation, joined.member_id, None, "consumer", "range", assignments)
        self.shard.carry_out(self.shard.state.sync(request, token, self.coordinator.now()))
        return future


def waiting() -> tuple["asyncio.Future[Any]", Callable[[Any], None]]:
    future = asyncio.get_running_loop().create_future()
    return future, future.set_result


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_commit_is_answered_and_seen_only_below_the_high_watermark() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        partition.commits_itself = False

        answer = rig.commit(7)
        await turns()
        assert not answer.done()
        assert rig.committed() is None

        partition.commit()
        assert await answer == [ErrorCode.NONE]
        assert rig.committed() == 7

    run(scenario())


def test_commits_of_a_tick_are_one_batch() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)

        answers = [rig.commit(number, f"g{number}") for number in range(20)]
        assert await asyncio.gather(*answers) == [[ErrorCode.NONE]] * 20

        assert [read_header(memoryview(batch)).count for batch in partition.batches] == [20]

    run(scenario())


def test_batch_larger_than_the_limit_is_parted_between_calls() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        partition.batch_bytes_max = 400

        answers = [rig.commit(number, f"g{number}") for number in range(10)]
        await asyncio.gather(*answers)

        sizes = [len(batch) for batch in partition.batches]
        assert len(sizes) > 1
        assert max(sizes) <= 400
        assert partition.end_offset == 10

    run(scenario())


def test_restart_finds_what_was_committed() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        await asyncio.gather(*[rig.commit(number) for number in range(3)])

        again = Rig()
        await again.lead(MemoryPartition(batches=partition.batches))
        assert again.committed() == 2
        assert again.measures.load_seconds.count == 1

    run(scenario())


def test_member_goes_on_after_a_restart_without_a_rebalance() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        joined = await rig.join()
        await rig.sync(joined)

        again = Rig()
        await again.lead(MemoryPartition(batches=partition.batches))
        state = again.coordinator.state_for("g")
        beat = state.heartbeat("g", joined.generation, joined.member_id, None, again.coordinator.steady_ms())
        assert beat is ErrorCode.NONE
        assert not again.events

    run(scenario())


def test_member_of_a_group_without_initial_delay_is_answered_while_no_time_passes() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        joins = [rig.join(), rig.join()]
        await turns()
        assert [join.result().generation for join in joins] == [1, 1]

    run(scenario())


def test_failed_append_is_not_coordinator_and_the_log_is_loaded_anew() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        await rig.commit(1, "simple")
        joined = await rig.join()
        partition.commits_itself = False
        lost, syncing = rig.commit(2, "simple"), rig.sync(joined)
        await turns()

        partition.fail()
        assert await lost is ErrorCode.NOT_COORDINATOR
        assert await syncing is ErrorCode.NOT_COORDINATOR
        assert rig.shard.status is ShardStatus.LOADING
        with pytest.raises(KafkaError) as caught:
            rig.coordinator.shard_for("g")
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

        await rig.coordinator.wait_loaded()
        assert rig.committed("simple") == 1

    run(scenario())


def test_refused_append_is_told_and_nothing_is_loaded_anew() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        partition.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert await rig.commit(1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert rig.shard.status is ShardStatus.ACTIVE

        partition.refusal = None
        assert await rig.commit(2) == [ErrorCode.NONE]
        assert rig.committed() == 2

    run(scenario())


def test_lost_partition_tells_everybody_who_waits() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        joined = await rig.join()
        await rig.sync(joined)
        second = rig.join()
        await turns()

        partition.lose()
        assert await second is ErrorCode.NOT_COORDINATOR
        with pytest.raises(KafkaError) as caught:
            rig.coordinator.shard_for("g")
        assert caught.value.code is ErrorCode.NOT_COORDINATOR

    run(scenario())


def test_loading_is_said_and_ended_by_a_newer_epoch() -> None:
    async def scenario() -> None:
        source, rig = Rig(), Rig()
        log = MemoryPartition()
        await source.lead(log)
        await source.commit(5)
        slow = MemoryPartition(batches=log.batches)
        slow.reading = asyncio.Event()
        rig.coordinator.follow({0: slow}, 1)
        await turns()
        old = rig.shard
        assert rig.coordinator.is_loading

        await rig.lead(MemoryPartition(batches=log.batches))
        slow.reading.set()
        await turns()
        assert old.status is ShardStatus.CLOSED
        assert rig.committed() == 5

    run(scenario())


def test_partitions_are_loaded_one_after_the_other() -> None:
    async def scenario() -> None:
        source, rig, log = Rig(), Rig(), MemoryPartition()
        await source.lead(log)
        await source.commit(5)
        first, second = MemoryPartition(0, log.batches), MemoryPartition(1, log.batches)
        first.reading, second.reading = asyncio.Event(), asyncio.Event()
        second.reading.set()
        rig.coordinator.follow({0: first, 1: second}, 2)
        await turns()
        assert [shard.status for shard in rig.coordinator] == [ShardStatus.LOADING, ShardStatus.LOADING]

        first.reading.set()
        await rig.coordinator.wait_loaded()
        assert [shard.status for shard in rig.coordinator] == [ShardStatus.ACTIVE, ShardStatus.ACTIVE]

    run(scenario())


def test_partition_that_is_lost_while_it_waits_to_load_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        source, rig, log = Rig(), Rig(), MemoryPartition()
        await source.lead(log)
        await source.commit(5)
        partitions = [MemoryPartition(index, log.batches) for index in range(3)]
        partitions[0].reading = asyncio.Event()
        rig.coordinator.follow(dict(enumerate(partitions)), 3)
        await turns()
        partitions[1].lose()
        partitions[0].lose()
        await rig.coordinator.wait_loaded()
        assert [shard.status for shard in rig.coordinator] == [
            ShardStatus.CLOSED,
            ShardStatus.CLOSED,
            ShardStatus.ACTIVE,
        ]

    run(scenario())


def test_session_that_ends_while_others_are_still_revived_is_looked_at_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        source, rig, log = Rig(), Rig(), MemoryPartition()
        await source.lead(log)
        groups = [f"g{number}" for number in range(100)]
        joined = await asyncio.gather(*[source.join(group_id=group) for group in groups])
        await asyncio.gather(*[source.sync(one, group) for one, group in zip(joined, groups, strict=True)])
        rig.coordinator.follow({0: MemoryPartition(batches=log.batches)}, 1)
        shard = rig.shard
        revived = asyncio.Event()
        carry_out = shard.carry_out

        def carry_out_and_tell(effects: Effects) -> None:
            carry_out(effects)
            revived.set()

        monkeypatch.setattr(shard, "carry_out", carry_out_and_tell)
        await revived.wait()
        assert shard.status is ShardStatus.LOADING
        key = next(iter(shard._timers))
        rig.clock.advance(20_000)
        shard._timer_fired(key)
        await rig.coordinator.wait_loaded()
        assert shard._timers[key].is_set
        assert shard.state.counts()[GroupState.STABLE] == 100

        shard._timer_fired(key)
        await turns()
        assert shard.state.counts()[GroupState.STABLE] == 99

    run(scenario())


def test_damaged_log_fails_its_partition_alone() -> None:
    async def scenario() -> None:
        source = Rig()
        log = MemoryPartition()
        await source.lead(log)
        await source.commit(5)
        log.batches[0][-3] ^= 0xFF

        rig = Rig()
        await rig.lead(MemoryPartition(0, log.batches), MemoryPartition(1))
        assert [shard.status for shard in rig.coordinator] == [ShardStatus.FAILED, ShardStatus.ACTIVE]

    run(scenario())


def test_silent_member_is_removed_when_its_session_is_over() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        joined = await rig.join()
        await rig.sync(joined)

        rig.heard.clear()
        rig.clock.advance(11_000)
        await rig.heard.wait()
        last = rig.events[-1]
        assert isinstance(last, RebalanceCompleted)
        assert last.members_after == 0
        assert rig.measures.rebalances.value == 2

    run(scenario())


def test_replicas_that_do_not_confirm_in_time_are_not_waited_for() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        partition.commits_itself = False
        answer = rig.commit(3)
        await turns()

        rig.clock.advance(COMMIT_TIMEOUT_MS + 100)
        assert await answer is ErrorCode.COORDINATOR_NOT_AVAILABLE

        partition.commit()
        assert rig.committed() == 3

    run(scenario())


def test_sweep_removes_expired_offsets_and_then_the_group() -> None:
    async def scenario() -> None:
        rig, partition = Rig(offsets_retention_ms=1000), MemoryPartition()
        await rig.lead(partition)
        await rig.commit(1)
        await rig.coordinator.sweep()
        assert rig.committed() == 1

        rig.clock.advance(2000)
        await rig.coordinator.sweep()
        await turns()
        await rig.coordinator.sweep()
        await turns()
        assert rig.coordinator.state_for("g").describe("g") is None
        assert rig.measures.offsets_expired.value >= 1
        assert rig.removed == ["g"]

    run(scenario())


def test_offsets_of_a_deleted_topic_are_removed() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        await asyncio.gather(rig.commit(1), rig.commit(2, topic="payments"))

        rig.coordinator.topics_deleted(["orders"])
        await turns()
        assert (rig.committed(), rig.committed(topic="payments")) == (None, 2)

    run(scenario())


def test_offsets_of_a_deleted_topic_are_removed_in_batches_that_the_log_takes() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        groups = [f"g{number}" for number in range(20)]
        await asyncio.gather(*[rig.commit(1, group_id=group) for group in groups])
        written = len(partition.batches)
        partition.batch_bytes_max = 300

        rig.coordinator.topics_deleted(["orders"])
        await turns()
        assert [rig.committed(group) for group in groups] == [None] * 20
        assert max(map(len, partition.batches[written:])) <= 300

    run(scenario())


def test_group_without_a_topic_has_no_coordinator_here() -> None:
    async def scenario() -> None:
        with pytest.raises(KafkaError) as caught:
            Rig().coordinator.shard_for("g")
        assert caught.value.code is ErrorCode.NOT_COORDINATOR

    run(scenario())
