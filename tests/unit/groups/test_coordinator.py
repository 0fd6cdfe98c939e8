"""The coordinator: what it appends, answers, loads and reports, over partitions of memory."""

import asyncio
import logging
from typing import Any
from uuid import UUID

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.base.logs import fields_of
from barnabas.base.uuid import ZERO_UUID
from barnabas.groups.effects import Effects, RebalanceCompleted
from barnabas.groups.offsets import TOGETHER_MAX
from barnabas.groups.records import encode_offset_key
from barnabas.groups.requests import OffsetToCommit
from barnabas.groups.shard import ShardStatus
from barnabas.groups.transitions import GroupState
from barnabas.records.batch import Codec, read_header
from barnabas.records.builder import BatchBuilder
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.group_coordinator import COMMIT_TIMEOUT_MS, MemoryPartition, Rig, run, turns, waiting


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
        assert shard.state.groups.counts()[GroupState.STABLE] == 100

        shard._timer_fired(key)
        await turns()
        assert shard.state.groups.counts()[GroupState.STABLE] == 99

    run(scenario())


def raw_batch(*records: tuple[bytes, bytes | None], base_offset: int = 0) -> bytearray:
    builder = BatchBuilder(base_offset=base_offset)
    for key, value in records:
        builder.append(1000, key, value)
    return builder.build()


def test_record_that_cannot_be_read_is_skipped_and_reported_with_its_offset(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        log = MemoryPartition()
        source = Rig()
        await source.lead(log)
        await source.commit(5)
        await source.commit(8, "other")
        log.batches.append(raw_batch((b"\x00\x01", b"short key"), (b"", None), base_offset=2))
        log.batches.append(raw_batch((encode_offset_key("g", "orders", 0), b"\x00\x04\x00"), base_offset=4))

        rig = Rig()
        await rig.lead(MemoryPartition(0, log.batches))
        assert rig.shard.status is ShardStatus.ACTIVE
        assert (rig.committed(), rig.committed("other")) == (5, 8), "what the bad record replaced counts"
        await rig.commit(6)
        assert rig.committed() == 6

    run(scenario())
    [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "0 damaged batches and 3 records, the first at offset 2" in line.getMessage()
    assert fields_of(line) == {"topic": "__consumer_offsets", "partition": 0, "offset": 2}


def test_damaged_batch_is_skipped_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        source = Rig()
        log = MemoryPartition()
        await source.lead(log)
        for group in ("g1", "g2", "g3"):
            await source.commit(5, group)
        log.batches[1][-3] ^= 0xFF

        rig = Rig()
        await rig.lead(MemoryPartition(0, log.batches))
        assert rig.shard.status is ShardStatus.ACTIVE
        assert [rig.committed(group) for group in ("g1", "g2", "g3")] == [5, None, 5]

    run(scenario())
    [line] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "1 damaged batches and 0 records, the first at offset 1" in line.getMessage()


def test_records_of_newer_kinds_of_groups_are_skipped_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        newer = [(kind.to_bytes(2, "big") + b"\x00\x01g\x00\x01m", b"\x00\x00anything") for kind in range(3, 30)]
        rig = Rig()
        await rig.lead(MemoryPartition(0, [raw_batch(*newer, (b"\x00\x03\x00", None))]))
        assert rig.shard.status is ShardStatus.ACTIVE
        assert rig.shard.state.groups.skipped_records == len(newer) + 1

    run(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_disk_that_fails_while_loading_is_tried_again() -> None:
    async def scenario() -> None:
        log = MemoryPartition()
        source = Rig()
        await source.lead(log)
        await source.commit(5)

        rig, failing = Rig(), MemoryPartition(0, log.batches)
        failing.read_error = DiskFailed("read", "/nowhere", OSError(24, "too many open files"))
        await rig.lead(failing, MemoryPartition(1))
        assert [shard.status for shard in rig.coordinator] == [ShardStatus.FAILED, ShardStatus.ACTIVE]

        failing.read_error = None
        rig.pass_time(10_100)
        await rig.coordinator.wait_loaded()
        assert rig.shard.status is ShardStatus.ACTIVE
        assert rig.shard.state.groups.group_ids() == ["g"]

    run(scenario())


def test_change_that_fits_only_because_it_is_compressed_is_refused() -> None:
    async def scenario() -> None:
        rig, partition = Rig(Codec.ZSTD), MemoryPartition()
        await rig.lead(partition)
        partition.batch_bytes_max = 10_000
        joined = await rig.join()
        assert (await rig.sync(joined, assignment=bytes(20_000))).error is ErrorCode.UNKNOWN_SERVER_ERROR
        rejoined = await rig.join(joined.member_id)
        assert (await rig.sync(rejoined, assignment=bytes(5_000))).error is ErrorCode.NONE

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

        rig.pass_time(COMMIT_TIMEOUT_MS + 100)
        assert await answer is ErrorCode.COORDINATOR_NOT_AVAILABLE

        partition.commit()
        assert rig.committed() == 3

    run(scenario())


def test_commit_that_was_not_waited_for_and_a_later_one_count_in_their_order() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        partition.commits_itself = False
        late = rig.commit(3)
        await turns()
        rig.pass_time(COMMIT_TIMEOUT_MS + 100)
        assert await late is ErrorCode.COORDINATOR_NOT_AVAILABLE
        later = rig.commit(4)
        await turns()

        partition.commit()
        assert await later == [ErrorCode.NONE]
        assert rig.committed() == 4

    run(scenario())


def test_groups_are_told_when_everything_that_was_loaded_is_committed() -> None:
    async def scenario() -> None:
        source, rig, log = Rig(), Rig(), MemoryPartition()
        await source.lead(log)
        await source.commit(5)
        await source.commit(6)
        lagging = MemoryPartition(batches=log.batches)
        lagging.high_watermark = 1
        rig.coordinator.follow({0: lagging}, 1)
        await turns()
        assert rig.shard.status is ShardStatus.LOADING
        lagging.commit()
        await rig.coordinator.wait_loaded()
        assert rig.shard.status is ShardStatus.ACTIVE
        assert rig.committed() == 6

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

        await rig.coordinator.topics_deleted({"orders": ZERO_UUID})
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

        await rig.coordinator.topics_deleted({"orders": ZERO_UUID})
        await turns()
        assert [rig.committed(group) for group in groups] == [None] * 20
        assert max(map(len, partition.batches[written:])) <= 300

    run(scenario())


def commit_many(rig: Rig, count: int, topic_id: UUID = ZERO_UUID, start: int = 0) -> "asyncio.Future[Any]":
    """Of one group, the partitions from `start` on."""
    future, token = waiting()
    wanted = [OffsetToCommit("orders", topic_id, index, 1, -1, "") for index in range(start, start + count)]
    rig.shard.carry_out(rig.shard.state.commit_offsets("g", -1, "", None, wanted, token, rig.coordinator.now()))
    return future


def partitions_committed(rig: Rig) -> list[int]:
    return [partition for _, partition, _ in rig.shard.state.committed_offsets("g")]


def test_very_many_offsets_of_a_deleted_topic_are_removed_a_few_at_a_time() -> None:
    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        for start in range(0, 1800, 300):
            await commit_many(rig, 300, start=start)
        written = len(partition.batches)

        await rig.coordinator.topics_deleted({"orders": ZERO_UUID})
        await turns()
        assert partitions_committed(rig) == []
        counts = [read_header(memoryview(batch)).count for batch in partition.batches[written:]]
        assert sum(counts) == 1800
        assert max(counts) <= TOGETHER_MAX

    run(scenario())


def test_commits_for_a_new_topic_of_the_name_of_a_deleted_one_stay() -> None:
    """Also those that come while the old ones are being removed, and are not in the log yet."""
    old, new = UUID(int=1), UUID(int=2)

    async def scenario() -> None:
        rig, partition = Rig(), MemoryPartition()
        await rig.lead(partition)
        for start in range(0, 1800, 300):
            await commit_many(rig, 300, old, start)

        deletion = asyncio.create_task(rig.coordinator.topics_deleted({"orders": old}))
        await asyncio.sleep(0)
        commits = [commit_many(rig, 5, new, start) for start in (0, 700, 1790)]
        await asyncio.gather(deletion, *commits)
        await turns()
        assert sorted(partitions_committed(rig)) == [*range(5), *range(700, 705), *range(1790, 1795)]

    run(scenario())


def test_very_many_offsets_expire_a_few_at_a_time_and_a_commit_meanwhile_stays() -> None:
    async def scenario() -> None:
        rig, partition = Rig(offsets_retention_ms=1000), MemoryPartition()
        await rig.lead(partition)
        for start in range(0, 1800, 300):
            await commit_many(rig, 300, start=start)
        rig.clock.advance(2000)
        written = len(partition.batches)

        sweep = asyncio.create_task(rig.coordinator.sweep())
        await asyncio.sleep(0)
        commit = commit_many(rig, 1, start=1799)
        await asyncio.gather(sweep, commit)
        await turns()
        assert 1799 in partitions_committed(rig)
        assert max(read_header(memoryview(batch)).count for batch in partition.batches[written:]) <= TOGETHER_MAX + 1

        await rig.coordinator.sweep()
        await turns()
        assert partitions_committed(rig) == [1799]

        rig.clock.advance(2000)
        await rig.coordinator.sweep()
        await turns()
        assert rig.coordinator.state_for("g").describe("g") is None

    run(scenario())


def test_group_without_a_topic_has_no_coordinator_here() -> None:
    async def scenario() -> None:
        with pytest.raises(KafkaError) as caught:
            Rig().coordinator.shard_for("g")
        assert caught.value.code is ErrorCode.NOT_COORDINATOR

    run(scenario())
