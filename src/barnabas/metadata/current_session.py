"""The session that a broker has at the moment, for parts that live longer than one session does.

A session that is lost is replaced by another one (`barnabas.broker.membership`). Between the two everything is refused
with `SessionLost`, as it is while a session is suspended. What must not go on in another session, as the writes of a
controller, holds its own session instead.
"""

from collections.abc import Sequence

from barnabas.metadata.errors import SessionLost
from barnabas.metadata.store import (
    ANY_VERSION,
    MetadataStore,
    Node,
    Operation,
    Result,
    SessionListener,
    SessionState,
    Stat,
    Watch,
)


class CurrentSession:
    """A `MetadataStore` that hands everything on."""

    def __init__(self) -> None:
        self._session: MetadataStore | None = None
        self._listeners: list[SessionListener] = []

    def take(self, session: MetadataStore) -> None:
        """From now on this is the one."""
        if self._session is not None:
            self._session.remove_session_listener(self._tell)
        self._session = session
        session.add_session_listener(self._tell)
        self._tell(session.state)

    def _tell(self, state: SessionState) -> None:
        for listener in list(self._listeners):
            listener(state)

    def _now(self) -> MetadataStore:
        if self._session is None:
            raise SessionLost("there is no session with the metadata store yet")
        return self._session

    @property
    def session_id(self) -> int:
        return self._now().session_id

    @property
    def state(self) -> SessionState:
        return SessionState.LOST if self._session is None else self._session.state

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        self._listeners.remove(listener)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return await self._now().create(path, data, ephemeral=ephemeral, sequential=sequential)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        return await self._now().get(path, watch)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        return await self._now().get_many(paths, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._now().exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._now().children(path, watch)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._now().set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._now().delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._now().multi(operations)

    async def sync(self) -> None:
        await self._now().sync()

    async def close(self) -> None:
        """Ends the session that there is."""
        if self._session is not None:
            await self._session.close()
