"""The system clock is set back or ahead while a broker runs: nothing stops, and nothing is deleted before its time."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from kio.schema.errors import ErrorCode

from barnabas.base.clock import SETTLING_MS, ManualClock, Moment
from barnabas.groups.effects import RebalanceCompleted, RebalanceStarted
from barnabas.groups.transitions import GroupState
from barnabas.records.builder import BatchBuilder
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.log.log import Log
from barnabas.storage.producers.producer_state import Origin
from barnabas.storage.settings import LogConfig
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode as GroupError
from barnabas.wire.errors import KafkaError
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.compaction import RETENTION_MS, CompactedLog, simulated
from tests.support.group_shard import SESSION_MS, START_MS, PlayedShard
from tests.support.log_directories import ORDERS, ORDERS_1, TOPIC_ID, append, make_batch, open_manager, read_values
from tests.support.network import run

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
JUMPS = pytest.mark.parametrize("jump_ms", [-YEAR_MS, -HOUR_MS, HOUR_MS, YEAR_MS])
AHEAD = pytest.mark.parametrize("jump_ms", [2 * DAY_MS, YEAR_MS])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk(clock: ManualClock) -> SimulatedDisk:
    return SimulatedDisk(Random(3), clock=clock)


# -- logs ----------------------------------------------------------------------------------------------------------


@JUMPS
def test_housekeeping_goes_on_at_its_intervals(jump_ms: int, disk: SimulatedDisk, clock: ManualClock) -> None:
    manager, _ = open_manager(disk, clock, ["/a"])
    by_time = manager.create(ORDERS, TOPIC_ID, LogConfig(flush_ms=500, file_delete_delay_ms=1000))
    manager.create(ORDERS_1, TOPIC_ID, LogConfig(file_delete_delay_ms=1000))
    manager.run_due_work()
    by_time.append(make_batch([b"one"], clock.now_ms()), 0)
    by_time.write()
    manager.delete(ORDERS_1)

    clock.set_ahead(jump_ms)
    clock.advance(499)
    manager.run_due_work()
    assert by_time.recovery_point == 0
    clock.advance(1)
    manager.run_due_work()
    assert by_time.recovery_point == 1
    assert [name for name in disk.list("/a") if name.endswith("-delete")], "a second is not over yet"

    clock.advance(60_000)
    manager.run_due_work()
    assert [name for name in disk.list("/a") if name.endswith("-delete")] == []
    assert read_offsets(disk, "/a/recovery-point-offset-checkpoint") == {ORDERS: 1}


@JUMPS
def test_retention_by_size_goes_on_and_its_files_are_removed(
    jump_ms: int, disk: SimulatedDisk, clock: ManualClock
) -> None:
    manager, _ = open_manager(disk, clock, ["/a"])
    log = manager.create(ORDERS, TOPIC_ID, LogConfig(retention_bytes=0, retention_ms=-1, file_delete_delay_ms=1000))
    append(log, b"one")
    manager.run_due_work()

    clock.set_ahead(jump_ms)
    clock.advance(300_000)
    manager.run_due_work()
    assert log.log_start_offset == 1
    clock.advance(1_000)
    manager.run_due_work()
    assert [name for name in disk.list("/a/orders-0") if name.endswith(".deleted")] == []


def idempotent(clock: ManualClock, sequence: int, value: bytes) -> bytearray:
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=sequence)
    builder.append(clock.now_ms(), None, value)
    return bytearray(builder.build())


@AHEAD
def test_clock_that_is_ahead_for_a_while_expires_no_records_and_no_producers(
    jump_ms: int, disk: SimulatedDisk, clock: ManualClock
) -> None:
    manager, _ = open_manager(disk, clock, ["/a"])
    log = manager.create(ORDERS, TOPIC_ID, LogConfig(retention_ms=DAY_MS))
    log.append(idempotent(clock, 0, b"one"), 0)
    log.write()
    log.advance_high_watermark(1)
    manager.run_due_work()

    clock.set_ahead(jump_ms)
    for _ in range(3):
        clock.advance(SETTLING_MS // 4)
        manager.run_due_work()
    clock.set_ahead(-jump_ms)
    clock.advance(SETTLING_MS)
    manager.run_due_work()
    assert read_values(log) == [b"one"]
    assert len(log.producers) == 1

    clock.set_ahead(jump_ms)
    for _ in range(3):
        manager.run_due_work()
        clock.advance(SETTLING_MS)
    assert (read_values(log), len(log.producers)) == ([], 0), "it has stayed there"


def test_clock_that_is_ahead_for_a_while_drops_no_tombstone(clock: ManualClock) -> None:
    accounts = CompactedLog(simulated(), clock)
    accounts.append((b"a", b"1"))
    accounts.append((b"a", None))
    accounts.roll()
    accounts.append((b"b", b"2"))
    accounts.roll()
    accounts.compact()  # this gives the tombstone its horizon
    assert [(record.key, record.value) for record in accounts.records()] == [(b"a", None), (b"b", b"2")]

    clock.set_ahead(YEAR_MS)
    accounts.append((b"b", b"3"))
    accounts.roll()
    accounts.compact()
    assert (b"a", None) in [(record.key, record.value) for record in accounts.records()]

    clock.advance(SETTLING_MS + RETENTION_MS)
    clock.settled_ms()
    clock.advance(SETTLING_MS)
    accounts.append((b"b", b"4"))
    accounts.roll()
    accounts.compact()
    assert (b"a", None) not in [(record.key, record.value) for record in accounts.records()]


@pytest.mark.parametrize("jump_ms", [-YEAR_MS, -HOUR_MS])
def test_compaction_goes_on_after_the_clock_is_set_back(jump_ms: int, clock: ManualClock) -> None:
    accounts = CompactedLog(simulated(), clock)
    accounts.cleaner_config = replace(accounts.cleaner_config, log_cleaner_backoff_ms=15_000)
    accounts.open()
    accounts.append((b"a", b"1"))
    accounts.compact()  # nothing to do: it backs off
    clock.set_ahead(jump_ms)
    accounts.append((b"a", b"2"))
    accounts.roll()
    clock.advance(15_000)
    accounts.compact()
    assert [record.value for record in accounts.records()] == [b"2"]


@JUMPS
def test_jump_rolls_at_most_one_segment(jump_ms: int, disk: SimulatedDisk, clock: ManualClock) -> None:
    manager, _ = open_manager(disk, clock, ["/a"])
    for partition, kind in ((ORDERS, "CreateTime"), (ORDERS_1, "LogAppendTime")):
        log = manager.create(partition, TOPIC_ID, LogConfig(message_timestamp_type=kind))
        stamp(log, clock)
    clock.set_ahead(jump_ms)
    for log in manager:
        for _ in range(20):
            stamp(log, clock)
        assert len(log.segments) <= 2


def stamp(log: Log, clock: ManualClock) -> None:
    log.append(make_batch([b"one"], clock.now_ms()), 0)
    log.write()


def test_coordinator_is_not_bound_to_the_timestamps_that_a_topic_accepts(
    disk: SimulatedDisk, clock: ManualClock
) -> None:
    manager, _ = open_manager(disk, clock, ["/a"])
    bounds = {"message_timestamp_before_max_ms": 0, "message_timestamp_after_max_ms": 0}
    for partition, codec in ((ORDERS, "producer"), (ORDERS_1, "gzip")):
        log = manager.create(partition, TOPIC_ID, LogConfig(compression_type=codec, **bounds))
        for passed_ms in (-1, 1):
            batch = make_batch([b"one"], clock.now_ms() + passed_ms)
            with pytest.raises(KafkaError):
                log.append(batch, 0)
            log.append(batch, 0, Origin.COORDINATOR)
        assert log.staged_end_offset == 2


def test_fetch_session_is_evicted_when_it_is_idle_whatever_the_clock_says(tmp_path: Path, clock: ManualClock) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path, clock=clock, max_incremental_fetch_session_cache_slots="1") as broker:
            await broker.create("orders")
            assert await open_session(broker) > 0
            assert await open_session(broker) == 0, "the one slot is taken"
            clock.set_ahead(-YEAR_MS)
            clock.advance(120_001)
            assert await open_session(broker) > 0

    run(scenario())


async def open_session(broker: ServedBroker) -> int:
    topic_id = broker.broker.services.image.topics["orders"].id
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 100,
    }
    answer = await broker.ask(
        ApiKey.FETCH,
        13,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=100,
        isolation_level=0,
        session_id=0,
        session_epoch=0,
        topics=[{"topic_id": topic_id, "partitions": [partition]}],
        forgotten_topics_data=[],
        rack_id="",
    )
    return answer.session_id  # type: ignore[no-any-return]


# -- groups --------------------------------------------------------------------------------------------------------


@JUMPS
def test_commits_go_on_and_carry_the_time_of_the_clock(jump_ms: int, tmp_path: Path, clock: ManualClock) -> None:
    async def scenario() -> None:
        async with served_broker(
            tmp_path, clock=clock, offsets_topic_replication_factor="1", offsets_topic_num_partitions="1"
        ) as broker:
            await broker.create("orders")
            await broker.find_coordinator()
            assert await broker.commit(1) is ErrorCode.none
            clock.set_ahead(jump_ms)
            assert await broker.commit(2) is ErrorCode.none
            state = broker.broker.groups.coordinator.state_for("g")
            [found] = state.fetch_offsets("g", "orders", [0])
            assert found is not None
            assert (found.offset, found.commit_timestamp_ms) == (2, clock.now_ms())
            log = broker.log("__consumer_offsets")
            assert log.segments.active.largest.timestamp >= clock.now_ms()

            await broker.broker.groups.coordinator.sweep()
            assert list(state.fetch_offsets("g", "orders", [0])) == [found]

    run(scenario())


@JUMPS
def test_session_lasts_as_long_as_the_member_beats_and_no_longer(jump_ms: int) -> None:
    shard = PlayedShard()
    beating, silent = shard.stable_group("g", 2)
    shard.advance(SESSION_MS // 2)
    shard.set_ahead(jump_ms)
    assert shard.heartbeat("g", 1, beating) is GroupError.NONE
    shard.advance(SESSION_MS // 2 - 1)
    assert shard.state_of("g") is GroupState.STABLE
    shard.advance(1)
    assert shard.state_of("g") is GroupState.PREPARING_REBALANCE
    assert shard.heartbeat("g", 1, beating) is GroupError.REBALANCE_IN_PROGRESS
    assert shard.heartbeat("g", 1, silent) is GroupError.UNKNOWN_MEMBER_ID

    started = shard.events[-1]
    assert isinstance(started, RebalanceStarted)
    assert started.at_ms == started.cause.at_ms == shard.now.wall_ms
    assert started.cause.since_ms == shard.now.wall_ms - SESSION_MS


@JUMPS
def test_rebalance_is_told_with_the_time_that_it_took(jump_ms: int) -> None:
    shard = PlayedShard()
    shard.stable_group("g", 2)
    shard.events.clear()
    started_ms = shard.now.wall_ms
    shard.send_join("g", known_id=False)
    shard.set_ahead(jump_ms)
    shard.advance(2 * SESSION_MS)  # the others are gone by then, and later the new one
    completed = next(event for event in shard.events if isinstance(event, RebalanceCompleted))
    assert completed.started_at_ms == started_ms
    assert completed.join_ended_at_ms == started_ms + SESSION_MS
    assert completed.completed_at_ms == started_ms + 2 * SESSION_MS


@JUMPS
def test_offsets_expire_after_their_retention_and_not_because_of_a_jump(jump_ms: int) -> None:
    """By the settled clock, which a coordinator passes."""
    shard, clock = PlayedShard(), ManualClock(START_MS)
    shard.commit("g", {("orders", 0): 7})
    clock.set_ahead(jump_ms)
    for _ in range(3):
        for effects in shard.state.expire_offsets("g", Moment(clock.settled_ms(), clock.steady_ms())):
            shard.carry_out(effects)
        clock.advance(SETTLING_MS // 3)
    assert shard.offset("g", "orders", 0) == 7
