"""A disk in memory that loses what was not synced, tears writes and fails at any call, all from one `Random`.

`SimulatedDisk` keeps the contract of `barnabas.base.filesystem`; `barnabas.sim.inode` says what a power cut
may leave.

    disk = SimulatedDisk(Random(seed))
    log = Log(disk, ...)
    disk = disk.crash()  # power loss: a new disk; the old one, its files and its locks are dead
    disk = disk.kill()   # only the process died: everything written is there, and still not durable

Every call on a dead disk but `close` and `release` raises `DiskFailed` (ESTALE), so that a task left over from
before the crash cannot write after it.

Faults come from `fail` (the N-th matching call raises an errno), from `before_call` (any function), and from
`capacity_bytes` (ENOSPC; raise it and the disk heals). A write that fails has written a random part of its
bytes; a sync that fails may have made the dirty pages unwritable for good, as Linux does.

Not done: renames between directories (EXDEV: nothing here needs them, and their atomicity would tie two
journals together); threads (one at a time, else a seed would not repeat); keeping the space of a removed file
that is open.
"""

import errno
import os
from dataclasses import replace
from random import Random
from typing import Final

from barnabas.base.clock import Clock, ManualClock
from barnabas.base.errors import DirectoryLocked
from barnabas.sim.device import Device, SimulatedFile, refuse
from barnabas.sim.faults import Operation
from barnabas.sim.inode import DirectoryNode, FileNode, Node, PowerCut

_UNLIMITED_FREE_BYTES: Final = 1 << 40


class SimulatedLock:
    __slots__ = ("_held", "_name")

    def __init__(self, held: set[tuple[str, ...]], name: tuple[str, ...]) -> None:
        self._held = held
        self._name = name
        held.add(name)

    def release(self) -> None:
        self._held.discard(self._name)


class SimulatedDisk(Device):
    """A file system that can be crashed. It starts empty; "" and "/" are its root."""

    def __init__(
        self,
        random: Random,
        *,
        clock: Clock | None = None,
        page_bytes: int = 512,
        strict: bool = False,
        capacity_bytes: int | None = None,
    ) -> None:
        super().__init__(PowerCut(random, page_bytes, strict), clock or ManualClock(), capacity_bytes)
        self._root = DirectoryNode(self._clock.now_ms())
        self._locked: set[tuple[str, ...]] = set()

    # What happens to the disk

    def crash(self, *, loses_all: bool = False) -> "SimulatedDisk":
        """The disk after a power loss. This one is dead from now on. `loses_all`: nothing unsynced survives."""
        successor = self.power_loss_image(loses_all=loses_all)
        self.is_dead = True
        return successor

    def power_loss_image(self, *, loses_all: bool = False) -> "SimulatedDisk":
        """One disk that a power loss at this moment could leave, while this one goes on."""
        cut = replace(self.cut, is_strict=True, loses_all=True) if loses_all else self.cut
        return self._successor(self._root.after(cut))

    def kill(self) -> "SimulatedDisk":
        """The disk after the death of the process alone, nothing lost. This one is dead from now on."""
        self.is_dead = True
        for node in self._root.files():
            node.forget_maps()
        return self._successor(self._root)

    def _successor(self, root: DirectoryNode) -> "SimulatedDisk":
        """A healthy disk of the same kind: faults and locks were the old one's."""
        cut = self.cut
        successor = SimulatedDisk(
            cut.random,
            clock=self._clock,
            page_bytes=cut.page_bytes,
            strict=cut.is_strict,
            capacity_bytes=self.capacity_bytes,
        )
        successor._root = root
        successor.used_bytes = sum(node.reserved_bytes for node in root.files())
        return successor

    def flip(self, path: str, position: int) -> None:
        """One bit of a file changes, at rest: neither a call nor a time tells of it."""
        node = self._find(path)
        assert isinstance(node, FileNode), f"{path} is no file"
        node.flip(position)

    def files(self) -> list[tuple[str, int]]:
        """Every file with its size, by path."""
        found: list[tuple[str, int]] = []
        directories: list[tuple[str, DirectoryNode]] = [("", self._root)]
        while directories:
            prefix, directory = directories.pop()
            for name, node in directory.entries.items():
                if isinstance(node, DirectoryNode):
                    directories.append((f"{prefix}{name}/", node))
                else:
                    found.append((f"{prefix}{name}", len(node.content)))
        return sorted(found)

    def check_invariants(self) -> None:
        self._root.check_invariants()
        assert self.used_bytes == sum(node.reserved_bytes for node in self._root.files())
        assert all(node.is_linked for node in self._root.files())

    # The file system

    def open(self, path: str, *, write: bool = False, create: bool = False) -> SimulatedFile:
        self.begin("open", path)
        parent, name = self._place("open", path)
        node = parent.entries.get(name)
        if node is None:
            if not create:
                refuse("open", path, errno.ENOENT)
            node = FileNode(self._clock.now_ms(), bytearray())
            self._change(parent, come=name, node=node)
        elif isinstance(node, DirectoryNode):
            refuse("open", path, errno.EISDIR)
        return SimulatedFile(self, path, node, write)

    def exists(self, path: str) -> bool:
        self.begin("stat", path)
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        self.begin("stat", path)
        return isinstance(self._find(path), DirectoryNode)

    def list(self, directory: str) -> list[str]:
        self.begin("list", directory)
        return sorted(self._directory("list", directory).entries)

    def size(self, path: str) -> int:
        node = self._stat(path)
        return len(node.content) if isinstance(node, FileNode) else 0

    def modified_ms(self, path: str) -> int:
        return self._stat(path).modified_ms

    def make_directory(self, path: str) -> None:
        self.begin("create", path)
        here = self._root
        names = _names(path)
        for depth, name in enumerate(names, 1):
            below = here.entries.get(name)
            if below is None:
                below = DirectoryNode(self._clock.now_ms())
                self._change(here, come=name, node=below)
            elif isinstance(below, FileNode):
                refuse("create", path, errno.EEXIST if depth == len(names) else errno.ENOTDIR)
            here = below

    def rename(self, source: str, target: str) -> None:
        self.begin("rename", source)
        parent, source_name = self._place("rename", source)
        target_parent, target_name = self._place("rename", target)
        node = parent.entries.get(source_name)
        if node is None:
            refuse("rename", source, errno.ENOENT)
        if target_parent is not parent:
            refuse("rename", source, errno.EXDEV)
        replaced = parent.entries.get(target_name)
        if replaced is node:
            return
        if isinstance(replaced, FileNode):
            if isinstance(node, DirectoryNode):
                refuse("rename", source, errno.ENOTDIR)
            self._unlink(replaced)
        elif replaced is not None:
            if isinstance(node, FileNode):
                refuse("rename", source, errno.EISDIR)
            if replaced.entries:
                refuse("rename", source, errno.ENOTEMPTY)
        self._change(parent, gone=source_name, come=target_name, node=node)

    def remove(self, path: str) -> None:
        self.begin("remove", path)
        node = self._find(path)
        if isinstance(node, DirectoryNode):
            refuse("remove", path, errno.EISDIR)
        if node is not None:
            parent, name = self._place("remove", path)
            self._unlink(node)
            self._change(parent, gone=name)

    def remove_tree(self, directory: str) -> None:
        """One removal after the other: a crash or an error in the middle leaves some of it."""
        self.begin("remove", directory)
        node = self._find(directory)
        if node is None:
            return
        if isinstance(node, FileNode):
            refuse("remove", directory, errno.ENOTDIR)
        for name in sorted(node.entries):
            path = f"{directory}/{name}"
            if isinstance(node.entries[name], DirectoryNode):
                self.remove_tree(path)
            else:
                self.remove(path)
        parent, name = self._place("remove", directory)
        self._change(parent, gone=name)

    def sync_directory(self, directory: str) -> None:
        self.begin("sync_directory", directory)
        self._directory("sync_directory", directory).sync()

    def lock(self, path: str) -> SimulatedLock:
        self.begin("lock", path)
        parent, name = self._place("lock", path)
        if name not in parent.entries:
            self._change(parent, come=name, node=FileNode(self._clock.now_ms(), bytearray()))
        names = tuple(_names(path))
        if names in self._locked:
            raise DirectoryLocked(f"{os.path.dirname(path)} is in use (by the holder of {path})")
        return SimulatedLock(self._locked, names)

    def free_bytes(self, path: str) -> int:
        self._stat(path)
        if self.capacity_bytes is None:
            return _UNLIMITED_FREE_BYTES
        return max(0, self.capacity_bytes - self.used_bytes)

    def _change(
        self,
        parent: DirectoryNode,
        *,
        gone: str | None = None,
        come: str | None = None,
        node: Node | None = None,
    ) -> None:
        parent.change(gone=gone, come=come, node=node)
        parent.modified_ms = self._clock.now_ms()

    def _unlink(self, node: FileNode) -> None:
        self.used_bytes -= node.reserved_bytes
        node.is_linked = False

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for name in _names(path):
            if not isinstance(node, DirectoryNode) or (below := node.entries.get(name)) is None:
                return None
            node = below
        return node

    def _stat(self, path: str) -> Node:
        self.begin("stat", path)
        node = self._find(path)
        if node is None:
            refuse("stat", path, errno.ENOENT)
        return node

    def _directory(self, operation: Operation, path: str) -> DirectoryNode:
        node = self._find(path)
        if not isinstance(node, DirectoryNode):
            refuse(operation, path, errno.ENOENT if node is None else errno.ENOTDIR)
        return node

    def _place(self, operation: Operation, path: str) -> tuple[DirectoryNode, str]:
        """The directory that holds the path's last name, and that name."""
        directory, _, name = path.rstrip("/").rpartition("/")
        if not name:
            refuse(operation, path, errno.EBUSY)
        return self._directory(operation, directory), name


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]
