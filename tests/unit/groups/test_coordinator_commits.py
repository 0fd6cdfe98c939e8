"""The coordinator's appends: when a change is answered and seen, and what happens when an append fails."""

import asyncio

import pytest

from barnabas.groups.effects import RebalanceCompleted
from barnabas.groups.shard import ShardStatus
from barnabas.records.batch import Codec, read_header
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.group_coordinator import COMMIT_TIMEOUT_MS, MemoryPartition, Rig, run, turns


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


def test_group_without_a_topic_has_no_coordinator_here() -> None:
    async def scenario() -> None:
        with pytest.raises(KafkaError) as caught:
            Rig().coordinator.shard_for("g")
        assert caught.value.code is ErrorCode.NOT_COORDINATOR

    run(scenario())
