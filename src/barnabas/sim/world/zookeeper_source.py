"""Sessions with the simulated ZooKeeper, for a broker that runs on a node."""

from barnabas.metadata.store import MetadataStore
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey
from barnabas.sim.world.zookeeper import SimulatedZooKeeper
from barnabas.sim.world.zookeeper_session import SimulatedSession


class SimulatedSource:
    """A `MetadataSource`."""

    is_shared = True
    problem: str | None = None
    is_lost = False

    def __init__(self, zookeeper: SimulatedZooKeeper, node_name: str) -> None:
        self._zookeeper = zookeeper
        self._node_name = node_name
        self._session: SimulatedSession | None = None

    @property
    def keeps_secrets(self) -> bool:
        return self._zookeeper.keeps_secrets

    async def session(self) -> MetadataStore:
        self._session = await self._zookeeper.session(self._node_name)
        return self._session

    def session_key(self) -> SessionKey | None:
        return None if self._session is None else self._session.session_key

    async def end_session(self, key: SessionKey) -> None:
        await self._zookeeper.end_session(key, self._node_name)

    async def close(self) -> None:
        """Sessions are closed by themselves."""
