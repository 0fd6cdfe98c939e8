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
session.

```
            no space                          any other failure of the disk
   sound ─────────────▶ full   │   sound, full ─────────────────────────────▶ lost
     ▲                   │     │     ▲                                          │
     └── a commit fits ──┘     │     └── opened again, and says what memory says ─┘
```
While it is full, writes are refused and change nothing, except those that make an ephemeral: a session needs no disk,
so a broker starts and registers on a full one. What else such a write changes (the controller's epoch) is committed
with the next write that fits; a crash before that forgets it. While it is lost nobody knows what the file holds:
sessions are suspended until it could be opened again and brought in line with the tree, which has all that was
acknowledged. A write that failed has then not happened.

Several sessions may share one store: a test or a simulation has one for each broker, over a `MemoryTable` whose commits
need no thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError, DiskFull
from barnabas.base.filesystem import FileSystem
from barnabas.base.logs import RepeatedWarning
from barnabas.base.tasks import Tasks
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.errors import OutcomeUnknown, SessionLost, SessionSuspended, StoreError
from barnabas.metadata.paths import ROOT
from barnabas.metadata.store import Create, Delete, Operation, Result, SessionState
from barnabas.metadata.table import MemoryTable, NodeTable, SqliteTable
from barnabas.metadata.tree import Draft, Tree, TreeNode, WriteContext

_log: Final = logging.getLogger(__name__)

_GROUP_OPERATIONS_MAX: Final = 512
"""Trying them out takes a few milliseconds of the event loop. A single write may have more."""
_SESSION_NUMBER_BITS: Final = 20
_RETRY_SECONDS_MIN: Final = 0.1
_RETRY_SECONDS_MAX: Final = 10.0
_WARNING_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Write:
    """`operations` is None for the end of a session."""

    session: EmbeddedSession
    operations: Sequence[Operation] | None
    answer: asyncio.Future[list[Result]]

    @property
    def is_of_the_session(self) -> bool:
        """Whether it makes something that lives as long as the session."""
        return any(isinstance(one, Create) and one.ephemeral for one in self.operations or ())


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
        self._tasks = Tasks(asyncio.get_running_loop())
        self._writer: asyncio.Task[None] | None = None
        self._sessions: list[EmbeddedSession] = []
        self._session_number = 0
        self._is_open = True
        self._committing = asyncio.Lock()
        self._full = RepeatedWarning(_log, clock.monotonic, _WARNING_SECONDS)
        self._failure: BarnabasError | None = None
        """Why the last commit failed."""
        self._retrying: asyncio.Task[None] | None = None
        self._unsaved: dict[str, TreeNode | None] = {}
        """What was done in memory, while there was no space for it."""
        self.is_lost = False
        """Whether the file must be opened again."""

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

    @property
    def problem(self) -> str | None:
        """Why nothing can be written now."""
        return None if self._failure is None else str(self._failure)

    def session(self) -> EmbeddedSession:
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
            if self._retrying is not None:
                self._retrying.cancel()
                await asyncio.gather(self._retrying, return_exceptions=True)
            for session in list(self._sessions):
                await session.close()
            if self._writer is not None:
                await self._writer
            try:
                await self._block(self._table.close)
            except BarnabasError as error:  # what is committed is, and nothing else would have been done
                _log.error("the metadata store did not close cleanly: %s", error)
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

    def submit(self, session: EmbeddedSession, operations: Sequence[Operation] | None) -> asyncio.Future[list[Result]]:
        """For sessions: puts a write, or with None the session's end, behind those that wait."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[Result]] = loop.create_future()
        self._queue.append(_Write(session, operations, answer))
        if self._writer is None or self._writer.done():
            self._writer = self._tasks.start(self._write_queue())
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
                await self._commit(draft.zxid, draft.nodes)
            except DiskFull as error:
                self._become_full(error)
                _refuse([write for write in group if not write.is_of_the_session], error)
                draft = Draft(self._tree)
                outcomes = [self._try(draft, write) for write in group if write.is_of_the_session]
                self._unsaved.update(draft.nodes)
            except BarnabasError as error:
                self._tree.zxid = draft.zxid  # the file may have these positions: they are not given again
                _refuse(group, error)
                self._become_lost(error)
                return
            except BaseException:  # our bug, or the loop stops: nobody may wait for an answer for ever
                self._end_all(group, "the metadata store stopped in the middle of a write")
                raise
        for outcome in outcomes:
            if outcome.write.answer.done():  # the caller was cancelled meanwhile
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

    # -- failing, and coming back --------------------------------------------------------------------------------

    async def _commit(self, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
        """Makes these durable, and what there was no space for before."""
        async with self._committing:
            if self.is_lost:  # while this waited for its turn
                raise SessionSuspended(f"the metadata store has failed: {self._failure}")
            await self._block(self._table.commit, zxid, {**self._unsaved, **nodes})
            self._unsaved.clear()
        self._become_sound()

    def _become_full(self, error: DiskFull) -> None:
        if self._failure is None:
            self._full.warn("the metadata store cannot be changed until there is disk space: %s", error)
        self._fail(error)

    def _become_lost(self, error: BarnabasError) -> None:
        if not self.is_lost:
            _log.error("the metadata store is unavailable until it can be reopened: %s", error)
            self.is_lost = True
            self._fail(error)
            for session in list(self._sessions):
                session.change_state(SessionState.SUSPENDED)
            self._refuse_queue(SessionSuspended(f"the metadata store has failed: {error}"))

    def _become_sound(self) -> None:
        if self._failure is None:
            return
        self._failure = None
        _log.info("the metadata store is writable again")
        if self.is_lost:
            self.is_lost = False
            for session in list(self._sessions):
                session.change_state(SessionState.CONNECTED)

    def _fail(self, error: BarnabasError) -> None:
        self._failure = error
        if self._retrying is None or self._retrying.done():
            self._retrying = self._tasks.start(self._retry())

    async def _retry(self) -> None:
        """Tries, less and less often, until the store is sound: nobody else may write for a long time."""
        seconds = _RETRY_SECONDS_MIN
        while self._failure is not None:
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, _RETRY_SECONDS_MAX)
            try:
                if self.is_lost:
                    await self._restore()
                else:
                    await self._commit(self._tree.zxid, {})
            except DiskFull as error:
                self._failure = error
            except BarnabasError as error:
                self._failure = error
                self._become_lost(error)

    async def _restore(self) -> None:
        async with self._committing:
            await self._block(self._table.restore, self._tree.zxid, dict(self._tree.nodes))
            self._unsaved.clear()
        self._become_sound()

    def _end_all(self, group: Sequence[_Write], reason: str) -> None:
        """The store stops: its callers are told, also that the outcome of the group is unknown."""
        for write in group:
            _refuse([write], OutcomeUnknown(write.operations[0].path if write.operations else ROOT, reason))
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            session.lose()
        self._refuse_queue(SessionLost(reason))

    def _refuse_queue(self, reason: SessionLost) -> None:
        waiting = [write for write in self._queue if write.operations is not None]
        self._queue = deque(write for write in self._queue if write.operations is None)
        _refuse(waiting, reason)

    async def _block(self, function: Callable[..., None], *arguments: object) -> None:
        """Calls what may wait for the disk."""
        if self._executor is None:
            function(*arguments)
        else:
            await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)


def _refuse(writes: Sequence[_Write], error: BarnabasError) -> None:
    for write in writes:
        if not write.answer.done():
            write.answer.set_exception(error)
