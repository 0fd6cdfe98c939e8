"""The cluster's state as everybody above sees it: a tree of small nodes, shaped like ZooKeeper's.

`barnabas.metadata.embedded` implements it in process for a broker on its own, `barnabas.metadata.zookeeper` for many
brokers. What every implementation promises (tests/support/store_contract.py has the tests):

- **Sessions.** An object that implements `MetadataStore` is one session, and its end is final: a broker that goes on
  opens another one.

  ```
                 connection lost
      CONNECTED ────────────────▶ SUSPENDED ──── closed, expired or given up ───▶ LOST
          ▲ │                        │                                             ▲
          │ └────────────────────────┼──────── closed, expired or given up ────────┘
          └─ the same session again ─┘
  ```
  While it is SUSPENDED every call is refused at once with `SessionSuspended`; the owner acts as if the session were
  lost, because it may be, and hopes that it is not. Its ephemerals are there until it is LOST. Its watches are gone
  from SUSPENDED on, and none is called: when it is CONNECTED again, read again whatever must be watched. After LOST
  every call is refused at once with `SessionLost`.
- **Versions.** Each `set` raises a node's version by one. A write may name the version it expects and is refused with
  `BadVersion` when the node has another.
- **Order.** Writes of a session happen in the order they were issued. A read sees every write that was acknowledged, to
  anyone of that session, before the read was issued; after a `sync` it sees every write that was acknowledged to anyone
  before the `sync` was issued. `czxid` and `mzxid` are positions in the one order of all writes and never decrease, not
  even across restarts.
- **Durability.** A write that returned survives a crash.
- **Outcomes.** A call that raised a `StoreError`, `SessionSuspended` or `SessionLost` changed nothing. A write that was
  under way when the connection was lost raises `OutcomeUnknown`, and may or may not have happened; the same goes for
  one that raised `DiskFailed`. It is decided by the time the session is CONNECTED again, or LOST because a server said
  so: a `sync` and a read then show what it came to, in any session.
- **Multi.** All of its operations happen, at one position, or none; the error of the first refused one is raised.
- **Sizes.** A write of more than 1 MiB (`barnabas.metadata.limits`) is refused with `WriteTooLarge`.
- **Ephemerals** live as long as the session that made them. They have no children.
- **Watches** are one-shot: a read registers one together with what it returns, so that no change is missed; the
  first change after that calls it once and removes it. To see later changes, read again. A watch is called on the event
  loop, no later than a read of its session can see the change, and must neither block nor raise. It may be called
  before the read that registered it has returned. The same function registered twice for the same thing is called once.

A read of data is watched for data (changed, deleted), `exists` also for the node's creation, `children` for children
that come and go and for the node's deletion.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from barnabas.metadata.errors import NodeExists
from barnabas.metadata.paths import with_parents

ANY_VERSION: Final = -1
NO_OWNER: Final = 0


class Stat(NamedTuple):
    """What a store knows of a node besides its data. The names are ZooKeeper's where it has good ones."""

    version: int
    czxid: int
    """Position of the write that created the node."""
    mzxid: int
    """Position of the write that changed its data last."""
    pzxid: int
    """Position of the write that added or removed a child last."""
    created_ms: int
    modified_ms: int
    children_version: int
    children_count: int
    ephemeral_owner: int
    """The session whose end removes the node, or `NO_OWNER`."""


class Node(NamedTuple):
    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True)
class Create:
    """A sequential node's name is the path followed by a number of ten digits that its parent never gives twice."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing: the node must exist, in this version."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | SetData | Delete | Check
Result: TypeAlias = str | Stat | None
"""Of a `Create` the path, of a `SetData` the new stat, else nothing."""


class EventType(enum.Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    type: EventType
    path: str


Watch: TypeAlias = Callable[[WatchEvent], None]


class SessionState(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The servers cannot be reached, and the watches are gone. Ephemerals live on if the session does."""
    LOST = "lost"
    """The end: ephemerals and watches are gone, and the store is of no more use."""


SessionListener: TypeAlias = Callable[[SessionState], None]


class MetadataStore(Protocol):
    @property
    def session_id(self) -> int: ...

    @property
    def state(self) -> SessionState: ...

    def add_session_listener(self, listener: SessionListener) -> None:
        """Called on the event loop at each change of `state`."""
        ...

    def remove_session_listener(self, listener: SessionListener) -> None: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """The path of the new node. The parent must exist."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Without the node `NoNode` is raised, and no watch stays behind."""
        ...

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Like as many `get`, sent together; None for nodes that do not exist. Not a snapshot of them all."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The watch stays also where there is no node yet."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names, not paths, sorted."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]: ...

    async def sync(self) -> None:
        """Reads that are issued after it see every write that was acknowledged, to anyone, before it was issued."""
        ...

    async def close(self) -> None:
        """Ends the session: its ephemerals are removed, its watches forgotten."""
        ...


async def ensure_paths(store: MetadataStore, paths: Iterable[str]) -> None:
    """Makes the nodes that are missing, with their parents, without data."""
    wanted = with_parents(paths)
    while missing := [path for path in wanted if await store.exists(path) is None]:
        try:
            await store.multi([Create(path) for path in missing])
        except NodeExists:  # somebody else makes them, too
            continue
