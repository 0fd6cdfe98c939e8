"""Where a broker's sessions with the metadata store come from: a file of its own, a store in memory that brokers of one
process share, or ZooKeeper.

A session may be lost, and the next one comes from the same source (`barnabas.broker.membership`). Sessions of an
embedded store are never lost: they are suspended while the store cannot be written.
"""

from typing import Protocol

from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.store import MetadataStore, SessionState
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey, ZooKeeperOptions


class MetadataSource(Protocol):
    @property
    def is_shared(self) -> bool:
        """Whether other brokers may use the same store."""
        ...

    @property
    def problem(self) -> str | None:
        """What is wrong with it now."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether it cannot be used at all."""
        ...

    @property
    def keeps_secrets(self) -> bool:
        """Whether a session can leave its key where other brokers alone read it."""
        ...

    async def session(self) -> MetadataStore:
        """Another one. `StoreUnreachable` when there is none to be had now."""
        ...

    def session_key(self) -> SessionKey | None:
        """What ends the newest session from outside, where there is such a thing."""
        ...

    async def end_session(self, key: SessionKey) -> None:
        """Ends the session of a dead process. `StoreUnreachable` when that cannot be asked for now."""
        ...

    async def close(self) -> None: ...


class EmbeddedSource:
    """A store in this process."""

    keeps_secrets = False

    def __init__(self, metadata: EmbeddedMetadata, *, is_shared: bool = False) -> None:
        """A shared one is closed by its owner, not with a broker."""
        self._metadata = metadata
        self.is_shared = is_shared

    @property
    def problem(self) -> str | None:
        return self._metadata.problem

    @property
    def is_lost(self) -> bool:
        return self._metadata.is_lost

    async def session(self) -> MetadataStore:
        return self._metadata.session()

    def session_key(self) -> SessionKey | None:
        return None

    async def end_session(self, key: SessionKey) -> None:
        """Sessions end with their process."""

    async def close(self) -> None:
        if not self.is_shared:
            await self._metadata.close()


class ZooKeeperSource:
    is_shared = True

    def __init__(self, options: ZooKeeperOptions) -> None:
        self._options = options
        self._session: MetadataStore | None = None
        self._key: SessionKey | None = None

    @property
    def problem(self) -> str | None:
        if self._session is None or self._session.state is SessionState.CONNECTED:
            return None
        return f"ZooKeeper at {self._options.hosts} cannot be reached"

    @property
    def is_lost(self) -> bool:
        """A broker goes on without it: what is led stays led until the session is over."""
        return False

    @property
    def keeps_secrets(self) -> bool:
        return self._options.keeps_secrets

    async def session(self) -> MetadataStore:
        from barnabas.metadata.zookeeper.zookeeper_store import ZooKeeperStore  # which imports kazoo

        store = await ZooKeeperStore.open(self._options)
        self._session, self._key = store, store.session_key
        return store

    def session_key(self) -> SessionKey | None:
        return self._key

    async def end_session(self, key: SessionKey) -> None:
        from barnabas.metadata.zookeeper.session_end import end_session

        await end_session(self._options, key)

    async def close(self) -> None:
        """Sessions are closed by themselves."""
