"""Clients of a partition whose high watermark lags the end of its log, because a follower is in sync."""

import asyncio
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from barnabas.broker.group_lag import GroupLags
from barnabas.metadata.image import TopicChanged
from barnabas.metadata.table import MemoryTable
from barnabas.testing.records import stored_records
from tests.support.broker_parts import ServedBroker, served_broker
from tests.support.fetch_scene import TOPIC, scene_of
from tests.support.network import run, until
from tests.unit.broker.test_handlers_offsets import delete_records, list_offset
from tests.unit.replication.test_restart_epochs import produce

FETCH_VERSIONS = (4, 11, 12, 13, 17)
OFFSETS = "__consumer_offsets"


async def let_follow(broker: ServedBroker, topic: str, isr: tuple[int, ...] = (1, 2)) -> None:
    """What the image says when another broker is in sync, or is not any more."""
    replicas = broker.broker.replicas
    known = replicas.image.topics[topic]
    changed = [
        one._replace(
            isr=isr,
            isr_epochs=one.isr_epochs[:1] * len(isr),
            replicas=(1, 2),
            partition_epoch=one.partition_epoch + 1,
        )
        for one in known.partitions
    ]
    await replicas.apply(replicas.image.apply([TopicChanged(known.with_partitions(changed))]))


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_fetch_between_high_watermark_and_end_is_empty_and_one_beyond_is_refused(
    tmp_path: Path, version: int, isolation_level: int
) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            await let_follow(scene.broker, TOPIC)
            await scene.append(1, 1, 1)
            assert (scene.partition.high_watermark, scene.partition.end_offset) == (1, 4)
            for offset in (1, 2, 3, 4):
                scene.reader.ask(offset, wait_ms=0, isolation_level=isolation_level)
                found = await scene.reader.partition()
                assert (found.error_code, found.high_watermark, bytes(found.records or b"")) == (0, 1, b"")
            for offset in (-1, 5):
                scene.reader.ask(offset, isolation_level=isolation_level)
                assert (await scene.reader.partition()).error_code == ErrorCode.offset_out_of_range.value

    run(scenario())


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_that_waits_above_the_high_watermark_is_answered_when_it_has_passed(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with scene_of(tmp_path, version) as scene:
            await let_follow(scene.broker, TOPIC)
            await scene.append(1, 1)
            scene.reader.ask(2)
            await scene.until_waiting()
            scene.partition.commit(2)
            scene.partition.commit(3)
            found = await scene.reader.partition()
            assert (found.error_code, found.high_watermark) == (0, 3)
            assert found.records

    run(scenario())


def test_produce_waits_for_the_followers_as_acks_asks_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            await let_follow(broker, "orders")
            partition = broker.partition("orders")
            assert await produce(broker, acks=1) is ErrorCode.none
            waiting = asyncio.ensure_future(produce(broker, acks=-1, timeout_ms=60_000))
            await until(lambda: partition.end_offset == 2)
            assert not waiting.done()
            partition.commit(2)
            assert await waiting is ErrorCode.none
            assert await produce(broker, acks=-1, timeout_ms=10) is ErrorCode.request_timed_out
            assert (partition.high_watermark, partition.end_offset) == (2, 3)

    run(scenario())


def test_listed_offsets_end_at_the_high_watermark(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served_broker(tmp_path) as broker:
            await broker.create("orders")
            broker.append("orders", [1000, 1010])
            await let_follow(broker, "orders")
            partition = broker.partition("orders")
            partition.append(broker.log("orders").read(0, 1 << 20).slice.read())  # type: ignore[union-attr]
            broker.broker.tick.write()
            assert (partition.high_watermark, partition.end_offset) == (2, 4)
            for isolation_level in (0, 1):
                latest = await list_offset(broker, -1, isolation_level=isolation_level)
                assert (latest.error_code, latest.offset) == (ErrorCode.none, 2)
            assert (await list_offset(broker, 1010)).offset == 1
            assert (await list_offset(broker, 1011)).offset == -1
            assert await delete_records(broker, "orders", 0, 3) == (ErrorCode.offset_out_of_range, -1)
            nobody = (ErrorCode.request_timed_out, -1)  # of the followers says that it has deleted them, too
            assert await delete_records(broker, "orders", 0, -1) == nobody
            assert list(stored_records(partition)) == []

    run(scenario())


def test_groups_are_loaded_when_everything_in_their_log_is_committed(tmp_path: Path) -> None:
    table = MemoryTable()
    one = {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": "1"}

    async def scenario() -> None:
        async with served_broker(tmp_path, table=table, **one) as broker:
            await broker.create("orders")
            await broker.find_coordinator()
            await broker.broker.groups.coordinator.wait_loaded()
            assert await broker.commit(7) is ErrorCode.none
            await let_follow(broker, OFFSETS)
            partition, coordinator = broker.partition(OFFSETS), broker.broker.groups.coordinator
            committing = asyncio.ensure_future(broker.commit(8))
            await until(lambda: partition.end_offset == 2)
            assert not committing.done()

            # Another epoch: whoever loads the log finds the second commit, and does not know whether it counts.
            replicas = broker.broker.replicas
            topic = replicas.image.topics[OFFSETS]
            later = topic.partitions[0]._replace(leader_epoch=5)
            await replicas.apply(replicas.image.apply([TopicChanged(topic.with_partitions([later]))]))
            assert await committing is ErrorCode.not_coordinator
            broker.broker.groups.follow(replicas.image)
            for _ in range(50):
                await asyncio.sleep(0)
            assert coordinator.is_loading
            assert await broker.commit(9) is ErrorCode.coordinator_load_in_progress

            broker.partition(OFFSETS).commit(2)
            await coordinator.wait_loaded()
            assert not coordinator.is_loading
            [(_, _, offset)] = coordinator.state_for("g").committed_offsets("g")
            assert offset == 8

    run(scenario())


def test_lag_of_a_group_is_counted_to_the_high_watermark(tmp_path: Path) -> None:
    one = {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": "1"}

    async def scenario() -> None:
        async with served_broker(tmp_path, **one) as broker:
            await broker.create("orders")
            await broker.find_coordinator()
            await broker.broker.groups.coordinator.wait_loaded()
            broker.append("orders", [1, 2, 3])
            assert await broker.commit(1) is ErrorCode.none
            await let_follow(broker, "orders")
            partition = broker.partition("orders")
            partition.append(broker.log("orders").read(0, 1 << 20).slice.read())  # type: ignore[union-attr]
            broker.broker.tick.write()
            assert partition.end_offset == 6
            lags = GroupLags(broker.broker.groups.coordinator, broker.broker.replicas, broker.broker.services.workers)
            await lags.refresh()
            assert [lag.records for lag in lags.lags] == [2]
            await lags.close()

    run(scenario())
