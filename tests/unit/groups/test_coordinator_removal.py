"""The coordinator removes offsets that expired or whose topic was deleted, a few at a time."""

import asyncio
from typing import Any
from uuid import UUID

from barnabas.base.uuid import ZERO_UUID
from barnabas.groups.offsets import TOGETHER_MAX
from barnabas.groups.requests import OffsetToCommit
from barnabas.records.batch import read_header
from tests.support.group_coordinator import MemoryPartition, Rig, run, turns, waiting


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
