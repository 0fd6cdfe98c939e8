"""The tree of a simulated ZooKeeper, as it is now and as it was a few writes ago. Pure.

There is one tree, the leader's. Each commit also keeps its inverse, a `Draft` that undoes it: a server that has not
applied the latest commits reads the tree with those undone. Commits that every server has applied are forgotten.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.metadata.paths import ROOT, name_of, parent_of
from barnabas.metadata.store import Node, Stat, WatchEvent
from barnabas.metadata.tree import ChildChanges, Draft, Tree, TreeNode


@dataclass(frozen=True, slots=True)
class Commit:
    """One write, at its position."""

    zxid: int
    events: tuple[WatchEvent, ...]
    undo: Draft


class CommittedTree:
    def __init__(self, zxid: int = 0, nodes: Iterable[tuple[str, TreeNode]] = ()) -> None:
        self.tree = Tree()
        self._recent: deque[Commit] = deque()
        draft = Draft(self.tree)
        for path, node in nodes:
            draft.nodes[path] = node
            if path != ROOT:
                draft.children.setdefault(parent_of(path), ChildChanges()).add(name_of(path))
        draft.zxid = zxid
        draft.merge()

    def commit(self, draft: Draft) -> Commit:
        """Merges a draft of the tree that changes something."""
        undo = Draft(self.tree)
        undo.nodes = {path: self.tree.node(path) for path in draft.nodes}
        for path, changes in draft.children.items():
            inverse = undo.children[path] = ChildChanges()
            inverse.added, inverse.removed = set(changes.removed), set(changes.added)
        commit = Commit(draft.zxid, tuple(draft.events), undo)
        draft.merge()
        self._recent.append(commit)
        return commit

    def forget(self, zxid: int) -> None:
        """No view older than this position will be asked for."""
        while self._recent and self._recent[0].zxid <= zxid:
            self._recent.popleft()

    def view(self, zxid: int) -> "View":
        """The tree as it was at this position."""
        undo = Draft(self.tree)
        for commit in reversed(self._recent):
            if commit.zxid <= zxid:
                break
            undo.absorb(commit.undo)
        return View(self.tree, undo)


class View:
    """What reads see."""

    def __init__(self, tree: Tree, undo: Draft) -> None:
        self._tree = tree
        self._undo = undo

    def node(self, path: str) -> Node | None:
        node = self._undo.node(path)
        return None if node is None else Node(node.data, node.stat(self._undo.child_count(path)))

    def stat(self, path: str) -> Stat | None:
        node = self.node(path)
        return None if node is None else node.stat

    def children(self, path: str) -> list[str] | None:
        if self._undo.node(path) is None:
            return None
        names = self._tree.child_names(path)
        changes = self._undo.children.get(path)
        return sorted(names if changes is None else (names - changes.removed) | changes.added)
