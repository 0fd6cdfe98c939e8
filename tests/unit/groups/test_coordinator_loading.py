"""The coordinator loads partitions: what it finds again, what it says meanwhile, and what damage it skips."""

import asyncio
import logging

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.base.logs import fields_of
from barnabas.groups.effects import Effects
from barnabas.groups.records import encode_offset_key
from barnabas.groups.shard import ShardStatus
from barnabas.groups.transitions import GroupState
from barnabas.records.builder import BatchBuilder
from barnabas.wire.errors import ErrorCode
from tests.support.group_coordinator import MemoryPartition, Rig, run, turns


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
    assert "(damaged batches: 0, records: 3), the first at offset 2" in line.getMessage()
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
    assert "(damaged batches: 1, records: 0), the first at offset 1" in line.getMessage()


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
