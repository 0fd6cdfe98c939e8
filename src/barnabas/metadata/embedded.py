"""The metadata store in process: the cluster's state of a broker that needs no ZooKeeper.

```
EmbeddedSession ─┐ writes wait here        a worker thread
EmbeddedSession ─┼─> queue ─> group ─> NodeTable.commit ─> Tree ─> watches, answers
                 └─────────────── reads ──────────────────> Tree
```

All writes that wait when a commit ends form the next group: tried out in order on a `Draft`, made durable by one
commit, and only then seen by reads. The commit blocks, so it runs in a worker thread; everything else happens on the
event loop, and nothing else touches the tree. A refused write is answered after its group's commit, because it may have
been refused for what an earlier one of the same group did.

A crash leaves what was committed. Ephemerals are in memory alone: they vanish with the process, as they would with the
session. A commit that fails for lack of space refuses its group and changes nothing; any other failure of the disk ends
every session, because nobody knows what the file holds until it is opened again.

Several sessions may share one store: a test or a simulation has one for each broker, over a `MemoryTable` whose commits
need no thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError, DiskFull
from barnabas.base.filesystem import FileSystem
from barnabas.metadata.errors import NoNode, SessionLost, StoreError
from barnabas.metadata.paths import check_path
from barnabas.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    Operation,
    Result,
    SessionListener,
    SessionState,
    SetData,
    Stat,
    Watch,
)
from barnabas.metadata.table import MemoryTable, NodeTable, SqliteTable
from barnabas.metadata.tree import Draft, Tree, WriteContext
from barnabas.metadata.watches import Watches

_log: Final = logging.getLogger(__name__)

_GROUP_OPERATIONS_MAX: Final = 512
"""Trying them out takes a few milliseconds of the event loop. A single write may have more."""
_SESSION_NUMBER_BITS: Final = 20


@dataclass(frozen=True, slots=True)
class _Write:
    """`operations` is None for the end of a session."""

    session: "EmbeddedSession"
    operations: Sequence[Operation] | None
    answer: asyncio.Future[list[Result]]


@dataclass(frozen=True, slots=True)
class _Outcome:
    write: _Write
    answer: list[Result] | StoreError


class EmbeddedMetadata:
    """The store itself. `open` it, take a `session`, `close` it; or use it with `async with`."""

    def __init__(self, table: NodeTable, tree: Tree, clock: Clock, executor: Executor | None) -> None:
        self._table = table
        self._tree = tree
        self._clock = clock
        self._executor = executor
        self._queue: deque[_Write] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._sessions: list[EmbeddedSession] = []
        self._session_number = 0
        self._is_open = True

    @classmethod
    async def open(cls, directory: str, files: FileSystem, clock: Clock) -> Self:
        """The store in this directory, made when it is not there. `DirectoryLocked` when another process has it."""
        executor = ThreadPoolExecutor(1, thread_name_prefix="barnabas-metadata")
        try:
            loop = asyncio.get_running_loop()
            table = await loop.run_in_executor(executor, SqliteTable, directory, files)
            try:
                return cls(table, await loop.run_in_executor(executor, table.load), clock, executor)
            except BaseException:
                table.close()
                raise
        except BaseException:
            executor.shutdown()
            raise

    @classmethod
    def in_memory(cls, clock: Clock, table: MemoryTable | None = None) -> Self:
        """Without a file and without a thread."""
        table = MemoryTable() if table is None else table
        return cls(table, table.load(), clock, None)

    def session(self) -> "EmbeddedSession":
        assert self._is_open
        self._session_number += 1
        # Like ZooKeeper's: unique across restarts without being stored.
        session_id = (self._clock.now_ms() << _SESSION_NUMBER_BITS) + self._session_number
        session = EmbeddedSession(self, session_id, self._tree)
        self._sessions.append(session)
        return session

    async def close(self) -> None:
        """Ends every session, in order, after the writes that wait."""
        if self._is_open:
            self._is_open = False
            for session in list(self._sessions):
                await session.close()
            if self._writer is not None:
                await self._writer
            try:
                await self._block(self._table.close)
            finally:
                if self._executor is not None:
                    self._executor.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def check_invariants(self) -> None:
        self._tree.check_invariants()

    def submit(
        self, session: "EmbeddedSession", operations: Sequence[Operation] | None
    ) -> asyncio.Future[list[Result]]:
        """For sessions: puts a write, or the session's end, behind those that wait."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Result]] = loop.create_future()
        self._queue.append(_Write(session, operations, answer))
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write_queue(), name="metadata writer")
        return answer

    async def _write_queue(self) -> None:
        try:
            while self._queue:
                if self._queue[0].operations is None:
                    self._end_session(self._queue.popleft())
                else:
                    await self._write_group(self._take_group())
        finally:
            self._writer = None

    def _take_group(self) -> list[_Write]:
        group: list[_Write] = []
        count = 0
        while self._queue and (operations := self._queue[0].operations) is not None:
            count += len(operations)
            if group and count > _GROUP_OPERATIONS_MAX:
                break
            group.append(self._queue.popleft())
        return group

    async def _write_group(self, group: list[_Write]) -> None:
        draft = Draft(self._tree)
        outcomes = [self._try(draft, write) for write in group]
        if draft.nodes:
            try:
                await self._block(self._table.commit, draft.zxid, draft.nodes)
            except DiskFull as error:
                _refuse(group, error)
                return
            except BarnabasError as error:
                _refuse(group, error)
                self._fail(str(error))
                return
            except BaseException:  # our bug, or the loop stops: nobody may wait for an answer for ever
                _refuse(group, SessionLost("the metadata store stopped in the middle of a write"))
                self._fail("it stopped in the middle of a write")
                raise
        for outcome in outcomes:
            if outcome.write.answer.done():  # whoever asked was cancelled meanwhile
                continue
            if isinstance(outcome.answer, StoreError):
                outcome.write.answer.set_exception(outcome.answer)
            else:
                outcome.write.answer.set_result(outcome.answer)
        self._publish(draft)

    def _try(self, draft: Draft, write: _Write) -> _Outcome:
        """Tries one write on top of those before it in the group."""
        assert write.operations is not None
        attempt = Draft(draft)
        zxid = max(self._tree.zxid, draft.zxid) + 1
        try:
            answer = attempt.run(write.operations, WriteContext(zxid, self._clock.now_ms(), write.session.session_id))
        except StoreError as error:
            return _Outcome(write, error)
        attempt.merge()
        return _Outcome(write, answer)

    def _publish(self, draft: Draft) -> None:
        """Reads see it from here on. The answers of the group go out only after the watches were called."""
        draft.merge()
        for event in draft.events:
            for session in self._sessions:
                session.watches.fire(event)

    def _end_session(self, write: _Write) -> None:
        """Needs no commit: ephemerals are not on disk, and what they leave in their parents may be forgotten."""
        session = write.session
        if session in self._sessions:
            self._sessions.remove(session)
            draft = Draft(self._tree)
            context = WriteContext(self._tree.zxid + 1, self._clock.now_ms(), session.session_id)
            draft.run([Delete(path) for path in self._tree.owned_by(session.session_id)], context)
            self._publish(draft)
        if not write.answer.done():
            write.answer.set_result([])

    def _fail(self, reason: str) -> None:
        _log.error("the metadata store is lost until it is opened again: %s", reason)
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.lose()
        waiting = [write for write in self._queue if write.operations is not None]
        self._queue = deque(write for write in self._queue if write.operations is None)
        _refuse(waiting, SessionLost(f"the metadata store failed: {reason}"))

    async def _block(self, function: Callable[..., None], *arguments: object) -> None:
        """Calls what may wait for the disk."""
        if self._executor is None:
            function(*arguments)
        else:
            await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


class EmbeddedSession:
    """One session of an embedded store: a `MetadataStore`."""

    def __init__(self, store: EmbeddedMetadata, session_id: int, tree: Tree) -> None:
        self._store = store
        self._session_id = session_id
        self._tree = tree
        self._state = SessionState.CONNECTED
        self._listeners: list[SessionListener] = []
        self.watches = Watches()

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def remove_session_listener(self, listener: SessionListener) -> None:
        self._listeners.remove(listener)

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        [created] = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

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

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        [stat] = await self.multi([SetData(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self._require_connected()
        return await self._store.submit(self, operations)

    async def close(self) -> None:
        if self._state is not SessionState.LOST:
            ended = self._store.submit(self, None)
            self.lose()
            await ended

    def lose(self) -> None:
        """No operation is accepted any more and no watch is called; those that wait are still done."""
        self.watches.clear()
        self.change_state(SessionState.LOST)

    def change_state(self, state: SessionState) -> None:
        """Tells the listeners. A simulation suspends sessions by it; here nothing else does."""
        self._state = state
        for listener in list(self._listeners):
            listener(state)

    def _read(self, path: str, watch: Watch | None) -> Node | None:
        self._require_connected()
        check_path(path)
        node = self._tree.node(path)
        if node is None:
            return None
        if watch is not None:
            self.watches.add_data(path, watch)
        return Node(node.data, node.stat(self._tree.child_count(path)))

    def _require_connected(self) -> None:
        if self._state is not SessionState.CONNECTED:
            raise SessionLost(f"this session of the metadata store is {self._state.value}")


def _refuse(writes: Sequence[_Write], error: BarnabasError) -> None:
    for write in writes:
        if not write.answer.done():
            write.answer.set_exception(error)
