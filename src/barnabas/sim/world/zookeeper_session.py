"""A session on a simulated ZooKeeper: the `MetadataStore` of a simulated process.

It belongs to the process that opened it, and dies with it. What it promises is in `barnabas.metadata.store`; where that
leaves room it behaves like `barnabas.metadata.zookeeper`: a lost connection suspends the session, which then tries to
connect again for as long as that takes, and only the ensemble can say that it has expired.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, Self

from barnabas.base.tasks import Tasks
from barnabas.metadata.errors import NoNode, SessionLost, SessionSuspended, StoreUnreachable
from barnabas.metadata.limits import check_size
from barnabas.metadata.paths import check_path
from barnabas.metadata.session import Session
from barnabas.metadata.store import (
    Node,
    Operation,
    Result,
    SessionState,
    Stat,
    Watch,
)
from barnabas.metadata.zookeeper.zookeeper_options import CONNECTION_TIMEOUT_MS, SESSION_TIMEOUT_MS, SessionKey
from barnabas.sim.world.network import HostNetwork
from barnabas.sim.world.zookeeper_connection import ClientConnection
from barnabas.sim.world.zookeeper_messages import Aspect, End, Expired, Hello, Read, Sync, Write, add_watch

_READS_TOGETHER_MAX: Final = 64
_RETRY_SECONDS: Final = (0.05, 0.5)
_CLOSE_SECONDS_MAX: Final = 3.0
"""How long a server may take to confirm the end of a session."""


class SimulatedSession(Session):
    """`open` it, `close` it."""

    def __init__(self, network: HostNetwork, random: Random, timeout_ms: int) -> None:
        """For `open`."""
        super().__init__(SessionState.SUSPENDED)
        self._network = network
        self._random = random
        self._timeout_ms = timeout_ms
        self._key: SessionKey | None = None
        self._seen_zxid = 0
        """The latest position that it saw on earlier connections."""
        self._tasks = Tasks(asyncio.get_running_loop())
        self._connection: ClientConnection

    @classmethod
    async def open(cls, network: HostNetwork, random: Random, timeout_ms: int) -> Self:
        """A new session. `StoreUnreachable` when no server answers in time."""
        session = cls(network, random, timeout_ms)
        try:
            async with asyncio.timeout(CONNECTION_TIMEOUT_MS / 1000):
                await session._connect()
        except TimeoutError as error:
            raise StoreUnreachable("no server of the simulated ZooKeeper answers") from error
        return session

    @property
    def session_id(self) -> int:
        return self.session_key.session_id

    @property
    def session_key(self) -> SessionKey:
        """With it `SimulatedZooKeeper.end_session` ends this session from anywhere."""
        assert self._key is not None, "it is open"
        return self._key

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        [node] = await self._read(Aspect.DATA, (path,), watch)
        if node is None:
            raise NoNode(path)
        assert isinstance(node, Node)
        return node

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """In several reads, of which each may see a newer state than the one before it."""
        nodes: list[Node | None] = []
        while len(nodes) < len(paths):
            together = paths[len(nodes) : len(nodes) + self._random.randint(1, _READS_TOGETHER_MAX)]
            nodes += await self._read(Aspect.DATA, tuple(together), watch)
        return nodes

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        [stat] = await self._read(Aspect.EXISTENCE, (path,), watch)
        assert stat is None or isinstance(stat, Stat)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        [names] = await self._read(Aspect.CHILDREN, (path,), watch)
        if names is None:
            raise NoNode(path)
        assert isinstance(names, list)
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._require_connected()
        check_size(operations)
        results = await self._connection.ask(Write(tuple(operations)))
        assert isinstance(results, list)
        return results

    async def sync(self) -> None:
        self._require_connected()
        await self._connection.ask(Sync())

    async def close(self) -> None:
        was_connected = self._state is SessionState.CONNECTED
        self.change_state(SessionState.LOST)
        await self._tasks.stop()
        if was_connected:
            try:
                with suppress(TimeoutError, SessionLost):  # without an answer it expires
                    async with asyncio.timeout(_CLOSE_SECONDS_MAX):
                        await self._connection.ask(End())
            finally:
                self._connection.close()

    async def _read(self, aspect: Aspect, paths: tuple[str, ...], watch: Watch | None) -> list[Any]:
        self._require_connected()
        for path in paths:
            check_path(path)
        read = Read(aspect, paths, watch is not None)

        def keep_watch(found: list[object]) -> None:
            if watch is not None and self._state is SessionState.CONNECTED:
                add_watch(self.watches, read, found, watch)

        found = await self._connection.ask(read, keep_watch)
        assert isinstance(found, list)
        return found

    def _refusal(self) -> SessionLost:
        error = SessionSuspended if self._state is SessionState.SUSPENDED else SessionLost
        return error(f"the ZooKeeper session is {self._state.value}")

    # Its connections

    async def _connect(self) -> None:
        """Returns when a server has answered."""
        while True:
            connection = ClientConnection(self._random, self._timeout_ms, self.watches.fire, self._disconnected)
            try:
                welcome = await connection.open(self._network, Hello(self._key, self._timeout_ms, self._seen_zxid))
            except OSError:
                await asyncio.sleep(self._random.uniform(*_RETRY_SECONDS))
            else:
                break
        if isinstance(welcome, Expired):
            self.change_state(SessionState.LOST)
        else:
            self._key, self._connection = welcome.key, connection
            self.change_state(SessionState.CONNECTED)

    def _disconnected(self) -> None:
        self._seen_zxid = self._connection.seen_zxid
        if self._state is SessionState.CONNECTED:
            self.change_state(SessionState.SUSPENDED)
            self._tasks.start(self._connect())


async def end_session(network: HostNetwork, random: Random, key: SessionKey) -> bool:
    """Attaches to a session and closes it; False when it had ended. `StoreUnreachable` when no server answers."""
    was_there = False
    try:
        async with asyncio.timeout(CONNECTION_TIMEOUT_MS / 1000):
            while True:
                connection = ClientConnection(random, SESSION_TIMEOUT_MS, lambda event: None, lambda: None)
                try:
                    if isinstance(await connection.open(network, Hello(key, SESSION_TIMEOUT_MS, 0)), Expired):
                        return was_there
                    was_there = True
                    await connection.ask(End())
                    return True
                except (OSError, SessionLost):  # it may have been closed
                    await asyncio.sleep(random.uniform(*_RETRY_SECONDS))
                finally:
                    connection.close()
    except TimeoutError as error:
        raise StoreUnreachable("no server of the simulated ZooKeeper answers") from error
