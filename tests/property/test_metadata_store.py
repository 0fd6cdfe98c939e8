"""The embedded store against a model that keeps a dictionary and works every answer out anew, across reopenings."""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.base.clock import ManualClock
from barnabas.base.filesystem import LocalFileSystem
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.errors import (
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    StoreError,
)
from barnabas.metadata.store import Check, Create, Delete, EventType, Operation, Result, SetData, Stat, WatchEvent
from barnabas.metadata.table import MemoryTable

_Answer = TypeVar("_Answer")

PATHS = ("/a", "/b", "/a/a", "/a/b", "/a/b/a")
SESSIONS = 2


@dataclass
class ModelNode:
    data: bytes
    version: int
    created: int
    owner: int | None
    children_created: int = 0


@dataclass
class Model:
    """Nodes by path; `position` counts the writes that changed something."""

    nodes: dict[str, ModelNode] = field(default_factory=lambda: {"/": ModelNode(b"", 0, 0, None)})
    position: int = 0

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = [other[len(prefix) :] for other in self.nodes if other.startswith(prefix) and other != "/"]
        return sorted(name for name in below if "/" not in name)

    def copy(self) -> "Model":
        return Model({path: ModelNode(**vars(node)) for path, node in self.nodes.items()}, self.position)

    def multi(self, operations: list[Operation], session: int) -> tuple["Model", list[object], list[WatchEvent]]:
        after = self.copy()
        after.position += 1
        events: list[WatchEvent] = []
        results = [after._run(operation, session, events) for operation in operations]
        if not events:
            after.position -= 1
        return after, results, events

    def end(self, session: int) -> list[WatchEvent]:
        events: list[WatchEvent] = []
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            self._run(Delete(path), session, events)
        return events

    def _require(self, path: str, version: int = -1) -> ModelNode:
        if path not in self.nodes:
            raise NoNode(path)
        node = self.nodes[path]
        if version not in (-1, node.version):
            raise BadVersion(path, version, node.version)
        return node

    def _run(self, operation: Operation, session: int, events: list[WatchEvent]) -> object:
        parent_path = operation.path.rsplit("/", 1)[0] or "/"
        match operation:
            case Create(path, data, ephemeral, sequential):
                parent = self._require(parent_path)
                if parent.owner is not None:
                    raise NoChildrenForEphemerals(parent_path)
                if sequential:
                    path = f"{path}{parent.children_created:010}"
                if path in self.nodes:
                    raise NodeExists(path)
                self.nodes[path] = ModelNode(data, 0, self.position, session if ephemeral else None)
                parent.children_created += 1
                events += [WatchEvent(EventType.CREATED, path), WatchEvent(EventType.CHILDREN, parent_path)]
                return path
            case SetData(path, data, version):
                node = self._require(path, version)
                node.data, node.version = data, node.version + 1
                events.append(WatchEvent(EventType.CHANGED, path))
                return node.version
            case Delete(path, version):
                self._require(path, version)
                if self.children(path):
                    raise NotEmpty(path)
                del self.nodes[path]
                events += [WatchEvent(EventType.DELETED, path), WatchEvent(EventType.CHILDREN, parent_path)]
                return None
            case Check(path, version):
                self._require(path, version)
                return None


paths = st.sampled_from(PATHS)
versions = st.sampled_from([-1, -1, 0, 1, 2])
datas = st.binary(max_size=3)
operations = st.one_of(
    st.builds(Create, paths, datas, st.booleans(), st.just(False)),
    st.builds(Create, paths, datas, st.just(False), st.just(False)),
    st.builds(Create, paths, datas, st.booleans(), st.just(True)),
    st.builds(SetData, paths, datas, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)


class StoreMachine(RuleBasedStateMachine):
    """Over a `MemoryTable`; `SqliteStoreMachine` does the same with a file."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.table = MemoryTable()
        self.model = Model()
        self.sessions: list[EmbeddedSession] = []
        self.events: list[list[WatchEvent]] = []
        self.armed_data: list[set[str]] = []
        self.armed_children: list[set[str]] = []
        self.watches: list[Any] = []

    def run(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        return self.runner.run(coroutine)

    async def open_store(self) -> EmbeddedMetadata:
        return EmbeddedMetadata.in_memory(ManualClock(), self.table)

    @initialize()
    def open(self) -> None:
        self.store = self.run(self.open_store())
        self.sessions = [self.store.session() for _ in range(SESSIONS)]
        self.events = [[] for _ in range(SESSIONS)]
        self.watches = [events.append for events in self.events]
        self.armed_data = [set() for _ in range(SESSIONS)]
        self.armed_children = [set() for _ in range(SESSIONS)]

    @rule()
    def reopen(self) -> None:
        self.run(self.store.close())
        for session in range(SESSIONS):
            self.model.end(session)
        self.open()

    @rule(session=st.integers(0, SESSIONS - 1))
    def end_session(self, session: int) -> None:
        self.armed_data[session].clear()
        self.armed_children[session].clear()
        self.run(self.sessions[session].close())
        self.expect_events(self.model.end(session))
        self.sessions[session] = self.store.session()

    @rule(session=st.integers(0, SESSIONS - 1), write=st.lists(operations, min_size=1, max_size=5))
    def write(self, session: int, write: list[Operation]) -> None:
        self.write_together([(session, write)])

    @rule(writes=st.lists(st.tuples(st.integers(0, SESSIONS - 1), st.lists(operations, max_size=3)), max_size=4))
    def write_together(self, writes: list[tuple[int, list[Operation]]]) -> None:
        """Issued at once, so that one commit has them all: the outcome is that of one after the other."""

        async def issue() -> list[Any]:
            attempts = [self.sessions[session].multi(write) for session, write in writes]
            return await asyncio.gather(*attempts, return_exceptions=True)

        expected: list[object] = []
        events: list[WatchEvent] = []
        for session, write in writes:
            try:
                self.model, results, fired = self.model.multi(write, session)
            except StoreError as error:
                expected.append((type(error), error.path))
            else:
                expected.append(results)
                events += fired
        actual = [
            (type(answer), answer.path) if isinstance(answer, StoreError) else list(map(_comparable, answer))
            for answer in self.run(issue())
        ]
        assert actual == expected
        self.expect_events(events)

    @rule(session=st.integers(0, SESSIONS - 1), path=paths)
    def watch_data(self, session: int, path: str) -> None:
        self.run(self.sessions[session].exists(path, self.watches[session]))
        self.armed_data[session].add(path)

    @rule(session=st.integers(0, SESSIONS - 1), path=st.sampled_from(("/", *PATHS)))
    def watch_children(self, session: int, path: str) -> None:
        try:
            names = self.run(self.sessions[session].children(path, self.watches[session]))
        except NoNode:
            assert path not in self.model.nodes
        else:
            assert names == self.model.children(path)
            self.armed_children[session].add(path)

    def expect_events(self, events: list[WatchEvent]) -> None:
        for session in range(SESSIONS):
            data, children = self.armed_data[session], self.armed_children[session]
            expected = []
            for event in events:
                is_child_event = event.type is EventType.CHILDREN
                is_due = event.path in children if is_child_event else event.path in data
                if event.type is EventType.DELETED:
                    is_due = is_due or event.path in children
                if is_due:
                    expected.append(event)
                if not is_child_event:
                    data.discard(event.path)
                if is_child_event or event.type is EventType.DELETED:
                    children.discard(event.path)
            assert self.events[session] == expected
            self.events[session].clear()

    @invariant()
    def store_has_what_the_model_has(self) -> None:
        if not self.sessions:
            return
        self.store.check_invariants()
        session = self.sessions[0]

        async def compare() -> None:
            stats = {}
            for path, node in self.model.nodes.items():
                data, stat = await session.get(path)
                assert (data, stat.version) == (node.data, node.version)
                assert (stat.ephemeral_owner != 0) == (node.owner is not None)
                assert await session.children(path) == self.model.children(path)
                stats[path] = stat
            by_position = sorted(stats, key=lambda path: (stats[path].czxid, path))
            assert by_position == sorted(stats, key=lambda path: (self.model.nodes[path].created, path))
            for path in PATHS:
                assert (await session.exists(path) is None) == (path not in self.model.nodes)

        self.run(compare())

    def teardown(self) -> None:
        if self.sessions:
            self.run(self.store.close())
        self.runner.close()


class SqliteStoreMachine(StoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="barnabas-test-")

    async def open_store(self) -> EmbeddedMetadata:
        return await EmbeddedMetadata.open(self.directory, LocalFileSystem(), ManualClock())

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


def _comparable(result: Result) -> object:
    return result.version if isinstance(result, Stat) else result


TestStoreAgainstModel = StoreMachine.TestCase
TestStoreAgainstModel.settings = settings(max_examples=80, stateful_step_count=40)

TestSqliteStoreAgainstModel = SqliteStoreMachine.TestCase
TestSqliteStoreAgainstModel.settings = settings(max_examples=8, stateful_step_count=20)
