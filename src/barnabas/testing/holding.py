"""A broker of a test that does nothing for a while, as after SIGSTOP: what it says and what it is told waits.

The brokers of a cluster share one thread, so none of them can be stopped by itself. Instead everything by which a
broker reaches others is held: its connections (`barnabas.testing.lines`) and its session with the metadata store. What
it does alone goes on: timers fire when they are due, and not at the end of the pause.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from barnabas.broker.metadata_source import EmbeddedSource
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.session import Session
from barnabas.metadata.store import MetadataStore, Node, Operation, Result, SessionState, Stat, Watch, WatchEvent


class Hold:
    """Owner: the brokers' event loop."""

    def __init__(self) -> None:
        self.is_held = False
        self._kept: list[Callable[[], None]] = []
        self._released = asyncio.Event()
        self._released.set()

    def begin(self) -> None:
        self.is_held = True
        self._released.clear()

    def end(self) -> None:
        """What was told meanwhile arrives, in order; then those who wait go on."""
        self.is_held = False
        kept, self._kept = self._kept, []
        for call in kept:
            call()
        self._released.set()

    def tell(self, call: Callable[[], None]) -> None:
        """Calls it now, or when the hold ends."""
        if self.is_held:
            self._kept.append(call)
        else:
            call()

    async def passed(self) -> None:
        """Returns when nothing is held."""
        await self._released.wait()


class HeldSource(EmbeddedSource):
    """The sessions of one broker with the store that the cluster shares."""

    def __init__(self, metadata: EmbeddedMetadata, hold: Hold) -> None:
        super().__init__(metadata, is_shared=True)
        self._hold = hold
        self._newest: MetadataStore | None = None

    async def session(self) -> MetadataStore:
        await self._hold.passed()
        self._newest = await super().session()
        return HeldSession(self._newest, self._hold)

    async def expire(self) -> None:
        """The store ends the newest session, and its ephemerals with it."""
        assert self._newest is not None, "the broker has a session"
        await self._newest.close()


@dataclass(frozen=True)
class _HeldWatch:
    """Equal to another one of the same watch: a store calls equal watches of a node once."""

    hold: Hold
    watch: Watch

    def __call__(self, event: WatchEvent) -> None:
        self.hold.tell(partial(self.watch, event))


class HeldSession(Session):
    """A session whose calls wait, and whose news come late, while its broker is held."""

    def __init__(self, session: MetadataStore, hold: Hold) -> None:
        super().__init__(session.state)
        self._session = session
        self._hold = hold
        session.add_session_listener(lambda state: hold.tell(partial(self.change_state, state)))

    @property
    def session_id(self) -> int:
        return self._session.session_id

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        await self._hold.passed()
        return await self._session.get(path, self._held(watch))

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        await self._hold.passed()
        return await self._session.get_many(paths, self._held(watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._hold.passed()
        return await self._session.exists(path, self._held(watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._hold.passed()
        return await self._session.children(path, self._held(watch))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        await self._hold.passed()
        return await self._session.multi(operations)

    async def sync(self) -> None:
        await self._hold.passed()
        await self._session.sync()

    async def close(self) -> None:
        await self._hold.passed()
        await self._session.close()

    def _held(self, watch: Watch | None) -> Watch | None:
        return None if watch is None else _HeldWatch(self._hold, watch)

    def _refusal(self) -> SessionLost:
        return SessionLost(f"this session of the metadata store is {SessionState.LOST.value}")
