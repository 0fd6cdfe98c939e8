"""One session of the embedded store: a `MetadataStore` that reads the tree in memory and hands its writes over.

While the store is lost, its sessions are suspended: they refuse everything with `SessionSuspended`, and go on with
their ephemerals, but without their watches, when it is back.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from barnabas.metadata.errors import NoNode, SessionLost, SessionSuspended
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
from barnabas.metadata.tree import Tree


class SessionOwner(Protocol):
    """The store, as its sessions see it."""

    def submit(
        self, session: "EmbeddedSession", operations: Sequence[Operation] | None
    ) -> asyncio.Future[list[Result]]:
        """Puts a write, or with None the session's end, behind those that wait."""
        ...

    @property
    def problem(self) -> str | None:
        """Why it cannot write now."""
        ...


class EmbeddedSession(Session):
    def __init__(self, store: SessionOwner, session_id: int, tree: Tree) -> None:
        super().__init__(SessionState.CONNECTED)
        self._store = store
        self._session_id = session_id
        self._tree = tree

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        node = self._read(path, watch)
        if node is None:
            raise NoNode(path)
        return node

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        return [self._read(path, watch) for path in paths]

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._require_connected()
        check_path(path)
        if watch is not None:
            self.watches.add_data(path, watch)
        return self._tree.stat(path)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._require_connected()
        check_path(path)
        if self._tree.node(path) is None:
            raise NoNode(path)
        if watch is not None:
            self.watches.add_children(path, watch)
        return sorted(self._tree.child_names(path))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._require_connected()
        check_size(operations)
        return await self._store.submit(self, operations)

    async def sync(self) -> None:
        """All sessions read the same tree."""
        self._require_connected()

    async def close(self) -> None:
        if self._state is not SessionState.LOST:
            ended = self._store.submit(self, None)
            self.lose()
            await ended

    def lose(self) -> None:
        """No operation is accepted any more and no watch is called; those that wait are still done."""
        self.change_state(SessionState.LOST)

    def _read(self, path: str, watch: Watch | None) -> Node | None:
        self._require_connected()
        check_path(path)
        node = self._tree.node(path)
        if node is None:
            return None
        if watch is not None:
            self.watches.add_data(path, watch)
        return Node(node.data, node.stat(self._tree.child_count(path)))

    def _refusal(self) -> SessionLost:
        why = "" if self._store.problem is None else f": {self._store.problem}"
        error = SessionSuspended if self._state is SessionState.SUSPENDED else SessionLost
        return error(f"this session of the metadata store is {self._state.value}{why}")
