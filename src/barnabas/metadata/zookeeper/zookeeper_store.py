"""A session on a ZooKeeper ensemble: `MetadataStore` on the event loop. `barnabas.metadata.store` has the contract.

Calls go to the connection in the order in which they were issued (`CallQueue`). Answers, watch events and changes of
state come back through one queue, the event loop's own, in the order in which the connection saw them. A watch is
registered when the answer of its read arrives, so it is there before its event is.

An interrupted connection suspends the session, and kazoo connects again for as long as that takes: while the whole
ensemble is down no session expires. A session that is over leaves no thread, socket or timer.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self

from barnabas.base.logs import fields
from barnabas.metadata.errors import NodeExists, NoNode, SessionLost, SessionSuspended, StoreUnreachable
from barnabas.metadata.paths import check_path, with_parents
from barnabas.metadata.session import Session
from barnabas.metadata.store import (
    Create,
    Node,
    Operation,
    Result,
    SessionState,
    Stat,
    Watch,
    WatchEvent,
)
from barnabas.metadata.zookeeper.call_queue import CallQueue
from barnabas.metadata.zookeeper.loop_watchdog import LoopWatchdog
from barnabas.metadata.zookeeper.zookeeper_calls import ReadCall, ReadKind, WriteCall, checked_write
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey, ZooKeeperOptions

_log: Final = logging.getLogger(__name__)

_UNSIGNED: Final = (1 << 64) - 1
"""ZooKeeper's own log has session ids in hexadecimal digits without a sign."""
_READS_TOGETHER_MAX: Final = 64
"""Of one `get_many`: others have their turn between its reads."""
_STUCK_SHARE: Final = 2 / 3
"""Of the session timeout: how long the event loop may stand still before its session is ended."""
_CLOSE_SECONDS_MAX: Final = 3.0
"""How long a server may take to confirm the end of a session."""
_ABANDON_SECONDS_MAX: Final = 1.0
"""Only a name that is being resolved takes longer, and cannot be interrupted."""


class ZooKeeperStore(Session):
    """`open` it, `close` it."""

    def __init__(self, options: ZooKeeperOptions) -> None:
        """For `open`."""
        from barnabas.metadata.zookeeper.kazoo_session import SessionClient  # and with it kazoo

        super().__init__(SessionState.SUSPENDED)
        self._options = options
        self._key: SessionKey | None = None
        self._began = asyncio.Event()
        """Set when it is connected for the first time, or cannot be."""
        self._ended = asyncio.Event()
        self._watchdog = LoopWatchdog(options.session_timeout_ms / 1000 * _STUCK_SHARE, self._end_stuck)
        self._client = SessionClient(options, self)
        self._calls = CallQueue(self._client.submit)

    @classmethod
    async def open(cls, options: ZooKeeperOptions) -> Self:
        """A new session. `StoreUnreachable` when no server answers in time."""
        store = cls(options)
        try:
            store._start()
            async with asyncio.timeout(options.connection_timeout_ms / 1000):
                await store._began.wait()
                store._require_connected()
                await store._ensure_chroot()
        except (TimeoutError, SessionLost) as error:
            problem = store._client.problem
            await store.close()
            raise StoreUnreachable(f"cannot reach ZooKeeper at {options.hosts}: {problem}") from error
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def session_id(self) -> int:
        return self.session_key.session_id

    @property
    def session_key(self) -> SessionKey:
        """With it `end_session` ends this session from anywhere."""
        assert self._key is not None, "it is open"
        return self._key

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        node = await self._read(ReadKind.DATA, path, watch)
        assert isinstance(node, Node)
        return node

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        for path in paths:
            check_path(path)
        nodes: list[Node | None] = []
        for start in range(0, len(paths), _READS_TOGETHER_MAX):
            self._require_connected()
            together = paths[start : start + _READS_TOGETHER_MAX]
            reads = [self._ask_to_read(ReadKind.DATA, path, watch) for path in together]
            for node in await asyncio.gather(*reads, return_exceptions=True):
                if isinstance(node, BaseException) and not isinstance(node, NoNode):
                    raise node
                nodes.append(node if isinstance(node, Node) else None)
        return nodes

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._read(ReadKind.EXISTENCE, path, watch)
        assert stat is None or isinstance(stat, Stat)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names = await self._read(ReadKind.CHILDREN, path, watch)
        assert isinstance(names, list)
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._require_connected()
        results: list[Result] = await self._calls.ask(checked_write(operations), self._options)
        return results

    async def sync(self) -> None:
        """A transaction without operations.

        ZooKeeper's own `sync` is answered by the leader, also by a leader that has been replaced and has not noticed
        yet. A transaction takes a majority, and this server answers it after everything that came before.
        """
        self._require_connected()
        await self._calls.ask(WriteCall(()), self._options)

    async def close(self) -> None:
        self.change_state(SessionState.LOST)
        self._client.end()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS_MAX):
                await self._ended.wait()
        except TimeoutError:
            self._client.abandon()
            with suppress(TimeoutError):
                async with asyncio.timeout(_ABANDON_SECONDS_MAX):
                    await self._ended.wait()

    def _start(self) -> None:
        self._client.start()
        self._watchdog.start()

    async def _ensure_chroot(self) -> None:
        """As Kafka does."""
        at_root = replace(self._options, chroot="")
        for path in with_parents([self._options.chroot]) if self._options.chroot else ():
            if await self._calls.ask(ReadCall(ReadKind.EXISTENCE, path), at_root) is None:
                with suppress(NodeExists):
                    await self._calls.ask(WriteCall([Create(path)]), at_root)

    async def _read(self, kind: ReadKind, path: str, watch: Watch | None) -> Any:
        self._require_connected()
        check_path(path)
        return await self._ask_to_read(kind, path, watch)

    def _ask_to_read(self, kind: ReadKind, path: str, watch: Watch | None) -> asyncio.Future[Any]:
        on_success = None if watch is None else partial(self._add_watch, kind, path, watch)
        return self._calls.ask(ReadCall(kind, path, watch is not None), self._options, on_success)

    def _add_watch(self, kind: ReadKind, path: str, watch: Watch) -> None:
        if self._state is not SessionState.CONNECTED:
            return
        if kind is ReadKind.CHILDREN:
            self.watches.add_children(path, watch)
        else:
            self.watches.add_data(path, watch)

    # -- the session ---------------------------------------------------------------------------------------------

    def on_state(self, state: SessionState, key: SessionKey | None = None) -> None:
        """From the connection."""
        if key is not None:
            self._key = key
        self.change_state(state)

    def on_event(self, event: WatchEvent) -> None:
        """From the connection."""
        self.watches.fire(event)

    def on_end(self) -> None:
        """From the connection: it is gone."""
        self._ended.set()

    def _state_changed(self, state: SessionState) -> None:
        self._log_change(state)
        if state is not SessionState.CONNECTED:
            self._calls.refuse_waiting(self._refusal())
        if state is not SessionState.SUSPENDED:
            self._began.set()
        if state is SessionState.LOST:
            self._watchdog.stop()

    def _log_change(self, state: SessionState) -> None:
        if self._key is None:  # it has never been connected: `open` says so
            return
        session = fields(session=f"0x{self.session_id & _UNSIGNED:x}")
        if state is SessionState.SUSPENDED:
            _log.warning("the connection to ZooKeeper is lost; the session is suspended", extra=session)
        elif state is SessionState.CONNECTED and self._began.is_set():
            _log.info("connected to ZooKeeper again, with the same session", extra=session)
        elif state is SessionState.LOST and (ending := self._client.ending) is not None:
            _log.error("the ZooKeeper session is over: %s", ending.value, extra=session)

    def _refusal(self) -> SessionLost:
        if self._state is SessionState.SUSPENDED:
            return SessionSuspended(f"the ZooKeeper session is suspended: {self._client.problem}")
        return SessionLost("the ZooKeeper session is lost")

    def _end_stuck(self) -> None:
        """In the watchdog's thread."""
        _log.error("the event loop is stuck: its ZooKeeper session ends, so that the broker does not look alive")
        self._client.end()
        if not self._client.ended.wait(_CLOSE_SECONDS_MAX):
            self._client.abandon()
