"""Ids that are made once and never given twice."""

import asyncio
import random

import pytest

from barnabas.base.uuid import parse_uuid
from barnabas.metadata.identity import (
    BrokerIdTaken,
    ProducerIds,
    ensure_cluster_id,
    next_broker_id,
    register_broker,
    require_free_id,
)
from barnabas.metadata.table import MemoryTable
from tests.support.metadata_cluster import MetadataCluster, metadata_cluster, registration, run_in_cluster


def test_cluster_id_is_made_once_and_kept() -> None:
    async def main() -> None:
        table = MemoryTable()
        async with metadata_cluster(table=table) as cluster:
            racing = [ensure_cluster_id(cluster.session, random.Random(seed)) for seed in range(3)]
            [first] = set(await asyncio.gather(*racing))
            assert parse_uuid(first)
        async with metadata_cluster(table=table) as cluster:
            assert await ensure_cluster_id(cluster.session, random.Random(9)) == first

    asyncio.run(main())


def test_producer_ids_are_never_given_twice_even_after_a_restart() -> None:
    async def main() -> None:
        table = MemoryTable()
        given: list[int] = []
        for count in (1, 2500, 3):
            async with metadata_cluster(table=table) as cluster:
                sources = [ProducerIds(cluster.session, broker_id) for broker_id in (1, 2)]
                given += await asyncio.gather(*(source.take() for source in sources for _ in range(count)))
        assert len(set(given)) == len(given)
        assert min(given) == 0

    asyncio.run(main())


def test_broker_id_in_use_is_refused_and_epochs_grow() -> None:
    async def main() -> None:
        table = MemoryTable()
        epochs = []
        for _ in range(2):
            async with metadata_cluster(table=table) as cluster:
                epochs.append(cluster.watcher.image.brokers[1].epoch)
                with pytest.raises(BrokerIdTaken, match=r"node\.id"):
                    await register_broker(cluster.store.session(), registration(1))
                assert cluster.controllership.epoch == len(epochs)
        assert epochs == sorted(set(epochs))

    asyncio.run(main())


def test_broker_id_in_use_is_noticed_before_the_registration() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        owner = (await cluster.session.get(registration(1).path)).stat.ephemeral_owner
        for session_id in (None, owner + 1):
            with pytest.raises(BrokerIdTaken, match=r"broker id 1 is in use by another broker"):
                await require_free_id(cluster.session, 1, session_id)
        await require_free_id(cluster.session, 1, owner)
        await require_free_id(cluster.session, 2, None)

    run_in_cluster(scenario)


def test_generated_broker_ids_are_above_the_reserved_ones_and_new() -> None:
    async def scenario(cluster: MetadataCluster) -> None:
        assert [await next_broker_id(cluster.session) for _ in range(3)] == [1001, 1002, 1003]

    run_in_cluster(scenario)
