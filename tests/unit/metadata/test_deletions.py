"""Deleted topics are remembered until every broker with replicas has confirmed that its files are gone."""

import asyncio
import random
from contextlib import suppress
from unittest.mock import patch
from uuid import UUID

import pytest

from barnabas.base.uuid import new_uuid
from barnabas.controller import topics as topics_module
from barnabas.metadata import deletions as deletions_module
from barnabas.metadata.deletions import DeletedTopic, Deletions
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.store import Create
from barnabas.metadata.znodes import DELETED_TOPICS
from tests.support.metadata_cluster import MetadataCluster, run_in_cluster


async def confirm(deletions: Deletions, *topic_ids: UUID) -> None:
    """Until it is written down: with this store that takes a few turns of the loop."""
    deletions.confirm(topic_ids)
    running = asyncio.create_task(deletions.run())
    for _ in range(40):
        await asyncio.sleep(0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def test_topic_is_remembered_until_the_last_broker_has_confirmed() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("t", 3, 2)
        topic_id = cluster.watcher.image.topics["t"].id
        await cluster.writer.delete("t")
        first, second, third = (Deletions(cluster.session, broker_id) for broker_id in (1, 2, 3))
        assert [topic.brokers for topic in await first.load()] == [(1, 2, 3)]
        await confirm(second, topic_id)
        await confirm(second, topic_id)
        assert [topic.brokers for topic in await first.load()] == [(1, 3)]
        deletions = asyncio.gather(confirm(first, topic_id), confirm(third, topic_id))
        await deletions
        assert await first.load() == []
        await confirm(first, topic_id)

    run_in_cluster(scenario, (1, 2, 3))


def test_topic_that_is_deleted_in_parts_is_remembered_from_the_first_on() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        with patch.object(topics_module, "_PARTITIONS_TOGETHER_MAX", 3):
            await cluster.create("t", 10)
            topic_id = cluster.watcher.image.topics["t"].id
            seen: list[bool] = []

            async def look() -> None:
                await cluster.watcher.wait_for(lambda image: "t" not in image.topics)
                seen.append(bool(await Deletions(cluster.session, 1).recorded([topic_id])))

            await asyncio.gather(look(), cluster.writer.delete("t"))
            assert seen == [True]
            assert len(await Deletions(cluster.session, 1).load()) == 1

    run_in_cluster(scenario)


def test_oldest_of_too_many_are_forgotten() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        source = random.Random(1)
        topics = [DeletedTopic(f"t{number}", new_uuid(source), (1, 9)) for number in range(8)]
        for topic in topics:
            await cluster.session.create(topic.path, topic.encode())
        with patch.object(deletions_module, "KEPT_MAX", 5), patch.object(deletions_module, "_TOGETHER_MAX", 2):
            assert await Deletions(cluster.session, 1).load() == topics[3:]
        assert len(await cluster.session.children(DELETED_TOPICS)) == 5

    run_in_cluster(scenario)


def test_damaged_node_still_says_that_the_topic_was_deleted() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        topic_id = new_uuid(random.Random(1))
        await cluster.session.multi(
            [Create(DeletedTopic.path_of(topic_id), b"\xff"), Create(f"{DELETED_TOPICS}/no-id", b"{}")]
        )
        deletions = Deletions(cluster.session, 1)
        assert [topic.topic_id for topic in await deletions.load()] == [topic_id]
        await confirm(deletions, topic_id)
        assert await deletions.load() == []

    run_in_cluster(scenario)


def test_nobody_says_what_was_deleted_while_the_metadata_cannot_be_asked() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        await cluster.create("t")
        topic_id = cluster.watcher.image.topics["t"].id
        await cluster.writer.delete("t")
        session = cluster.store.session()
        deletions = Deletions(session, 1)
        assert await deletions.recorded([topic_id]) == {topic_id}
        await session.close()
        with pytest.raises(SessionLost):
            await deletions.recorded([topic_id])
        await confirm(deletions, topic_id)
        assert len(await Deletions(cluster.session, 1).load()) == 1

    run_in_cluster(scenario)
