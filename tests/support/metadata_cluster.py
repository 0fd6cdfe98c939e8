"""A store with one registered broker or more, its controller, and a watcher: what most metadata tests start from."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from barnabas.base.clock import ManualClock
from barnabas.controller.controllership import Controllership, claim_controller
from barnabas.controller.topics import TopicWriter
from barnabas.controller.watcher import MetadataWatcher
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.identity import ensure_layout, register_broker
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.znodes import BrokerRegistration, Endpoint


def registration(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(broker_id, (Endpoint("PLAINTEXT", "PLAINTEXT", f"host-{broker_id}", 9092),))


@dataclass
class MetadataCluster:
    store: EmbeddedMetadata
    session: EmbeddedSession
    controllership: Controllership
    writer: TopicWriter
    watcher: MetadataWatcher

    async def settle(self) -> None:
        """Until the watcher has nothing left to read: with this store that takes a few turns of the loop."""
        for _ in range(40):
            await asyncio.sleep(0)

    async def create(self, name: str, partition_count: int = 1, replication_factor: int = 1, **configs: str) -> None:
        plan = self.writer.plan(self.watcher.image, name, partition_count, replication_factor, configs)
        await self.writer.create(plan)
        await self.watcher.wait_for(lambda image: name in image.topics)


@asynccontextmanager
async def metadata_cluster(
    broker_ids: tuple[int, ...] = (1,), table: MemoryTable | None = None
) -> AsyncIterator[MetadataCluster]:
    async with EmbeddedMetadata.in_memory(ManualClock(), table) as store:
        session = store.session()
        await ensure_layout(session)
        for broker_id in broker_ids:
            await register_broker(session, registration(broker_id))
        controllership = await claim_controller(session, broker_ids[0], 0)
        assert controllership is not None
        watcher = MetadataWatcher(session)
        await watcher.load()
        following = asyncio.create_task(watcher.run())
        writer = TopicWriter(controllership, random.Random(1))
        try:
            yield MetadataCluster(store, session, controllership, writer, watcher)
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        watcher.image.check_invariants()
        store.check_invariants()


def run_in_cluster(scenario: Callable[[MetadataCluster], Awaitable[None]], broker_ids: tuple[int, ...] = (1,)) -> None:
    async def main() -> None:
        async with metadata_cluster(broker_ids) as cluster:
            await scenario(cluster)

    asyncio.run(main())
