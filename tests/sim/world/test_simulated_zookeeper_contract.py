"""The simulated ZooKeeper keeps the contract of every metadata store, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from barnabas.metadata.store import MetadataStore, Node, SessionState, Stat, Watch
from barnabas.sim.world.world import World
from barnabas.sim.world.zookeeper import SimulatedZooKeeper
from barnabas.sim.world.zookeeper_session import SimulatedSession
from tests.support.store_contract import StoreContract
from tests.support.store_contract_sessions import InterruptionContract
from tests.support.store_scenario import Ensemble, reached

_LONGER_THAN_THE_TIMEOUT_SECONDS = 7.0


class _SyncedSession:
    """Reads after a `sync`: most of the contract is about what one server does."""

    def __init__(self, session: SimulatedSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        await self._session.sync()
        return await self._session.get(path, watch)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        await self._session.sync()
        return await self._session.get_many(paths, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._session.sync()
        return await self._session.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._session.sync()
        return await self._session.children(path, watch)


class _Sessions:
    """Each on a host of its own, which is named after its number."""

    def __init__(self, world: World, zookeeper: SimulatedZooKeeper, *, is_synced: bool) -> None:
        self._network = world.network
        self._zookeeper = zookeeper
        self._is_synced = is_synced
        self._count = 0

    async def session(self) -> MetadataStore:
        self._count += 1
        session = await self._zookeeper.session(str(self._count))
        assert session.session_id == self._count
        return _SyncedSession(session) if self._is_synced else session  # type: ignore[return-value]

    async def suspend(self, store: MetadataStore) -> None:
        await self.lose_answers(store)
        self._network.cut(str(store.session_id), "zookeeper")
        await reached(store, SessionState.SUSPENDED)

    async def resume(self, store: MetadataStore) -> None:
        self._network.heal()
        await reached(store, SessionState.CONNECTED)

    async def expire(self, store: MetadataStore) -> None:
        await self.suspend(store)
        await asyncio.sleep(_LONGER_THAN_THE_TIMEOUT_SECONDS)
        self._network.heal()
        await reached(store, SessionState.LOST)

    async def lose_answers(self, store: MetadataStore) -> None:
        self._network.cut("zookeeper", str(store.session_id))


class TestOneServer(StoreContract, InterruptionContract):
    def run(self, story: Coroutine[Any, Any, None]) -> None:
        self._world = World(1)
        self._world.run(story)

    @asynccontextmanager
    async def ensemble(self, directory: Path) -> AsyncIterator[Ensemble]:
        zookeeper = SimulatedZooKeeper(self._world, servers=1)
        yield _Sessions(self._world, zookeeper, is_synced=False)
        zookeeper.check_invariants()


class TestLaggingServers(TestOneServer):
    @asynccontextmanager
    async def ensemble(self, directory: Path) -> AsyncIterator[Ensemble]:
        zookeeper = SimulatedZooKeeper(self._world, lag_seconds_max=0.02)
        yield _Sessions(self._world, zookeeper, is_synced=True)
        zookeeper.check_invariants()
