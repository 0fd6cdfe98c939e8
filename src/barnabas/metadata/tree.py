"""The tree of nodes in memory, and drafts: operations tried out on it before they are durable. Pure.

```
Tree   what is durable, and what reads see
 └ Draft   a group of writes that one commit makes durable
    └ Draft   one write (a multi): refused, it is thrown away; accepted, it is merged into the group
```

A draft holds only what it changes; the tree below does not notice until `merge`. Nodes are immutable. Of a node's
children a draft knows those that it adds and removes, so that a write costs the same however many there are.

Invariants: every node but the root has a parent in the tree; an ephemeral node has no children; a parent counts the
children that were ever created (`children_created`), which is where sequential numbers come from.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from barnabas.metadata.errors import (
    BadVersion,
    InvalidPath,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
)
from barnabas.metadata.paths import ROOT, check_path, name_of, parent_of, sequential_path
from barnabas.metadata.store import (
    ANY_VERSION,
    NO_OWNER,
    Check,
    Create,
    Delete,
    EventType,
    Operation,
    Result,
    SetData,
    Stat,
    WatchEvent,
)

_NO_CHILDREN: Final[AbstractSet[str]] = frozenset()


class TreeNode(NamedTuple):
    data: bytes
    version: int
    czxid: int
    mzxid: int
    pzxid: int
    created_ms: int
    modified_ms: int
    children_created: int
    owner: int = NO_OWNER

    def stat(self, children_count: int) -> Stat:
        return Stat(
            version=self.version,
            czxid=self.czxid,
            mzxid=self.mzxid,
            pzxid=self.pzxid,
            created_ms=self.created_ms,
            modified_ms=self.modified_ms,
            # Each child was one change when it came, and each that is no longer there another one.
            children_version=2 * self.children_created - children_count,
            children_count=children_count,
            ephemeral_owner=self.owner,
        )


ROOT_NODE: Final = TreeNode(b"", 0, 0, 0, 0, 0, 0, 0)


class _Base(Protocol):
    """What a draft stands on: the tree, or another draft."""

    def node(self, path: str) -> TreeNode | None: ...

    def child_count(self, path: str) -> int: ...

    def absorb(self, draft: "Draft") -> None: ...


class ChildChanges:
    """The names that a draft adds to a node's children, and those that it takes away."""

    __slots__ = ("added", "removed")

    def __init__(self) -> None:
        self.added: set[str] = set()
        self.removed: set[str] = set()

    def add(self, name: str) -> None:
        """It was not there, so if it is among the removed ones it is simply back."""
        if name in self.removed:
            self.removed.discard(name)
        else:
            self.added.add(name)

    def remove(self, name: str) -> None:
        if name in self.added:
            self.added.discard(name)
        else:
            self.removed.add(name)

    def absorb(self, later: "ChildChanges") -> None:
        for name in later.removed:
            self.remove(name)
        for name in later.added:
            self.add(name)


class Tree:
    __slots__ = ("_children", "_nodes", "_owned", "zxid")

    def __init__(self, zxid: int = 0, nodes: Mapping[str, TreeNode] | None = None) -> None:
        self.zxid = zxid
        self._nodes: dict[str, TreeNode] = {ROOT: ROOT_NODE, **(nodes or {})}
        self._children: dict[str, set[str]] = {}
        self._owned: dict[int, dict[str, None]] = {}
        for path in self._nodes:
            if path != ROOT:
                self._children.setdefault(parent_of(path), set()).add(name_of(path))

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def nodes(self) -> Mapping[str, TreeNode]:
        """Every node by its path, the root among them."""
        return self._nodes

    def node(self, path: str) -> TreeNode | None:
        return self._nodes.get(path)

    def child_names(self, path: str) -> AbstractSet[str]:
        return self._children.get(path, _NO_CHILDREN)

    def child_count(self, path: str) -> int:
        return len(self.child_names(path))

    def stat(self, path: str) -> Stat | None:
        node = self._nodes.get(path)
        return None if node is None else node.stat(self.child_count(path))

    def owned_by(self, session_id: int) -> list[str]:
        """The ephemeral nodes of a session, oldest first."""
        return list(self._owned.get(session_id, ()))

    def absorb(self, draft: "Draft") -> None:
        for path, node in draft.nodes.items():
            before = self._nodes.pop(path, None) if node is None else self._nodes.get(path)
            if before is not None and before.owner != NO_OWNER:
                self._disown(before.owner, path)
            if node is not None:
                self._nodes[path] = node
                if node.owner != NO_OWNER:
                    self._owned.setdefault(node.owner, {})[path] = None
        for path, changes in draft.children.items():
            names = self._children.setdefault(path, set())
            names -= changes.removed
            names |= changes.added
            if not names:
                del self._children[path]
        self.zxid = max(self.zxid, draft.zxid)

    def _disown(self, owner: int, path: str) -> None:
        owned = self._owned[owner]
        del owned[path]
        if not owned:
            del self._owned[owner]

    def check_invariants(self) -> None:
        for path, node in self._nodes.items():
            assert len(self.child_names(path)) <= node.children_created, path
            assert max(node.czxid, node.mzxid, node.pzxid) <= self.zxid, path
            if path != ROOT:
                parent = self._nodes.get(parent_of(path))
                assert parent is not None, path
                assert parent.owner == NO_OWNER, path
                assert name_of(path) in self.child_names(parent_of(path)), path
            assert (path in self._owned.get(node.owner, ())) == (node.owner != NO_OWNER), path
        assert sum(map(len, self._children.values())) == len(self._nodes) - 1
        assert all(self._children.values())
        assert all(self._owned.values())


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Where and when a write happens, and whose ephemerals it makes."""

    zxid: int
    now_ms: int
    session_id: int


class Draft:
    """Operations on top of a tree or of another draft. Raises a `StoreError` at the first one that is not possible."""

    __slots__ = ("_base", "children", "events", "nodes", "zxid")

    def __init__(self, base: _Base) -> None:
        self._base = base
        self.nodes: dict[str, TreeNode | None] = {}
        """What changed; None where a node was removed."""
        self.children: dict[str, ChildChanges] = {}
        self.events: list[WatchEvent] = []
        self.zxid = 0

    def node(self, path: str) -> TreeNode | None:
        return self.nodes[path] if path in self.nodes else self._base.node(path)

    def child_count(self, path: str) -> int:
        count = self._base.child_count(path)
        changes = self.children.get(path)
        return count if changes is None else count + len(changes.added) - len(changes.removed)

    def run(self, operations: Iterable[Operation], context: WriteContext) -> list[Result]:
        results = [self._run_one(operation, context) for operation in operations]
        if self.nodes:
            self.zxid = context.zxid
        return results

    def merge(self) -> None:
        """Hands everything to what the draft stands on."""
        self._base.absorb(self)

    def absorb(self, draft: "Draft") -> None:
        self.nodes.update(draft.nodes)
        for path, changes in draft.children.items():
            self._child_changes(path).absorb(changes)
        self.events.extend(draft.events)
        self.zxid = max(self.zxid, draft.zxid)

    def _run_one(self, operation: Operation, context: WriteContext) -> Result:
        match operation:
            case Create():
                return self._create(operation, context)
            case SetData():
                return self._set(operation, context)
            case Delete():
                self._delete(operation, context)
                return None
            case Check():
                check_path(operation.path)
                self._require(operation.path, operation.version)
                return None

    def _create(self, create: Create, context: WriteContext) -> str:
        # A sequential path may end with a slash: the number is the whole name then.
        check_path(sequential_path(create.path, 0) if create.sequential else create.path)
        if create.path == ROOT and not create.sequential:
            raise NodeExists(ROOT)
        parent_path = parent_of(create.path)
        parent = self._require(parent_path)
        if parent.owner != NO_OWNER:
            raise NoChildrenForEphemerals(parent_path)
        path = sequential_path(create.path, parent.children_created) if create.sequential else create.path
        if self.node(path) is not None:
            raise NodeExists(path)
        self.nodes[path] = TreeNode(
            data=create.data,
            version=0,
            czxid=context.zxid,
            mzxid=context.zxid,
            pzxid=context.zxid,
            created_ms=context.now_ms,
            modified_ms=context.now_ms,
            children_created=0,
            owner=context.session_id if create.ephemeral else NO_OWNER,
        )
        self.nodes[parent_path] = parent._replace(pzxid=context.zxid, children_created=parent.children_created + 1)
        self._child_changes(parent_path).add(name_of(path))
        self.events.append(WatchEvent(EventType.CREATED, path))
        self.events.append(WatchEvent(EventType.CHILDREN, parent_path))
        return path

    def _set(self, set_data: SetData, context: WriteContext) -> Stat:
        path = set_data.path
        check_path(path)
        node = self._require(path, set_data.version)
        changed = node._replace(
            data=set_data.data, version=node.version + 1, mzxid=context.zxid, modified_ms=context.now_ms
        )
        self.nodes[path] = changed
        self.events.append(WatchEvent(EventType.CHANGED, path))
        return changed.stat(self.child_count(path))

    def _delete(self, delete: Delete, context: WriteContext) -> None:
        path = delete.path
        check_path(path)
        if path == ROOT:
            raise InvalidPath(ROOT, "the root cannot be deleted")
        self._require(path, delete.version)
        if self.child_count(path):
            raise NotEmpty(path)
        parent_path = parent_of(path)
        self.nodes[path] = None
        self.nodes[parent_path] = self._require(parent_path)._replace(pzxid=context.zxid)
        self._child_changes(parent_path).remove(name_of(path))
        self.events.append(WatchEvent(EventType.DELETED, path))
        self.events.append(WatchEvent(EventType.CHILDREN, parent_path))

    def _require(self, path: str, version: int = ANY_VERSION) -> TreeNode:
        node = self.node(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, version, node.version)
        return node

    def _child_changes(self, path: str) -> ChildChanges:
        changes = self.children.get(path)
        if changes is None:
            changes = self.children[path] = ChildChanges()
        return changes
