"""A file system over another one that is only read: every change stays in memory and can be listed.

`barnabas log repair --dry-run` runs the real recovery on it, so that the plan it shows is what recovery does, not a
second description of it. Written bytes are kept in pages of 4 KiB over the file below (a log that is cut costs nothing,
a new index costs its size), and the file below is read only where no page lies over it.

Nothing is ever durable here and nothing is locked: the caller makes sure that the files below do not change.
"""

import errno
import os
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from barnabas.base.buffers import Buffer
from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import FileSystem, disk_error
from barnabas.base.ids import Position

_PAGE_BYTES: Final = 4096
_COMPARE_BYTES: Final = 1 << 20


class ChangeKind(Enum):
    CREATED = "create"
    REMOVED = "remove"
    CUT = "cut"
    REWRITTEN = "rewrite"


class Change(NamedTuple):
    """What became of one file. A file that was renamed is removed in one place and created in another."""

    kind: ChangeKind
    path: str
    old_bytes: int
    new_bytes: int


class _Node:
    """The content of one file: pages over as much of the file below as is still visible."""

    __slots__ = ("_files", "_pages", "_source", "_visible", "size")

    def __init__(self, files: FileSystem, source: str | None) -> None:
        self._files = files
        self._source = source
        self.size = files.size(source) if source is not None else 0
        self._visible = self.size
        self._pages: dict[int, bytearray] = {}

    @property
    def is_changed(self) -> bool:
        return bool(self._pages) or self._source is None or self.size != self._files.size(self._source)

    def is_only_cut(self, path: str) -> bool:
        return self._source == path and not self._pages and self.size == self._visible

    def read(self, length: int, position: Position) -> bytes:
        end = min(position + length, self.size)
        if position >= end:
            return b""
        content = bytearray(end - position)
        below = self._read_below(min(end, self._visible) - position, position)
        content[: len(below)] = below
        for number in self._pages_between(position, end):
            start = number * _PAGE_BYTES
            low, high = max(position, start), min(end, start + _PAGE_BYTES)
            content[low - position : high - position] = self._pages[number][low - start : high - start]
        return bytes(content)

    def _pages_between(self, position: Position, end: Position) -> list[int]:
        """Of a long range over few pages, the pages are looked through, not the range."""
        first, last = position // _PAGE_BYTES, (end - 1) // _PAGE_BYTES
        if last - first < len(self._pages):
            return [number for number in range(first, last + 1) if number in self._pages]
        return [number for number in self._pages if first <= number <= last]

    def _read_below(self, length: int, position: Position) -> bytes:
        if self._source is None or length <= 0:
            return b""
        file = self._files.open(self._source)
        try:
            return file.read_at(length, position)
        finally:
            file.close()

    def write(self, buffer: Buffer, position: Position) -> None:
        view = memoryview(buffer)
        end = position + len(view)
        while view:
            number, start = divmod(position, _PAGE_BYTES)
            taken = min(_PAGE_BYTES - start, len(view))
            self._page(number)[start : start + taken] = view[:taken]
            view = view[taken:]
            position += taken
        self.size = max(self.size, end)

    def _page(self, number: int) -> bytearray:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = bytearray(_PAGE_BYTES)
            start = number * _PAGE_BYTES
            below = self._read_below(min(_PAGE_BYTES, self._visible - start), start)
            page[: len(below)] = below
        return page

    def truncate(self, size: int) -> None:
        if size < self.size:
            self._visible = min(self._visible, size)
            for number in [number for number in self._pages if number * _PAGE_BYTES >= size]:
                del self._pages[number]
            if (page := self._pages.get(size // _PAGE_BYTES)) is not None:
                page[size % _PAGE_BYTES :] = bytes(_PAGE_BYTES - size % _PAGE_BYTES)
        self.size = size


class OverlayFile:
    __slots__ = ("_node", "path")

    def __init__(self, path: str, node: _Node) -> None:
        self.path = path
        self._node = node

    def write_at(self, buffers: Sequence[Buffer], position: Position) -> None:
        for buffer in buffers:
            self._node.write(buffer, position)
            position += len(buffer)

    def read_at(self, length: int, position: Position) -> bytes:
        return self._node.read(length, position)

    def read_into(self, buffer: bytearray | memoryview, position: Position) -> int:
        content = self._node.read(len(buffer), position)
        memoryview(buffer)[: len(content)] = content
        return len(content)

    def size(self) -> int:
        return self._node.size

    def truncate(self, size: int) -> None:
        self._node.truncate(size)

    def allocate(self, size: int) -> None:
        self._node.size = max(self._node.size, size)

    def sync(self) -> None:
        """Nothing here outlives the process."""

    def map(self, length: int) -> memoryview:
        return memoryview(self._node.read(length, 0))

    def prefetch(self, position: Position, length: int) -> None:
        """Reads are not waited for by anybody else."""

    def is_resident(self, position: Position, length: int) -> bool:
        return True

    def read_resident(self, length: int, position: Position) -> bytes:
        return self._node.read(length, position)

    def fileno(self) -> int:
        raise disk_error("send", self.path, OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP)))

    def close(self) -> None:
        """No descriptor is kept."""


class OverlayLock:
    def release(self) -> None:
        """Nothing was locked."""


class OverlayFileSystem:
    """Directories below may be changed, but not renamed or removed as a whole."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._nodes: dict[str, _Node | None] = {}
        """Every file that was opened or made; None for one that was removed."""
        self._directories: set[str] = set()

    def changes(self) -> list[Change]:
        """What differs from the files below, by path."""
        found = []
        for path, node in sorted(self._nodes.items()):
            old_bytes = self._files.size(path) if self._files.exists(path) else None
            if node is None:
                if old_bytes is not None:
                    found.append(Change(ChangeKind.REMOVED, path, old_bytes, 0))
            elif old_bytes is None:
                found.append(Change(ChangeKind.CREATED, path, 0, node.size))
            elif node.is_changed and not self._is_same(path, node):
                kind = ChangeKind.CUT if node.is_only_cut(path) else ChangeKind.REWRITTEN
                found.append(Change(kind, path, old_bytes, node.size))
        return found

    def _is_same(self, path: str, node: _Node) -> bool:
        if node.size != self._files.size(path):
            return False
        file = self._files.open(path)
        try:
            return all(
                file.read_at(_COMPARE_BYTES, position) == node.read(_COMPARE_BYTES, position)
                for position in range(0, node.size, _COMPARE_BYTES)
            )
        finally:
            file.close()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OverlayFile:
        node = self._find(path)
        if node is None:
            if not create:
                raise _missing("open", path)
            node = self._nodes[path] = _Node(self._files, None)
        return OverlayFile(path, node)

    def _find(self, path: str) -> _Node | None:
        if path not in self._nodes:
            if not self._files.exists(path) or self._files.is_directory(path):
                return None
            self._nodes[path] = _Node(self._files, path)
        return self._nodes[path]

    def _require(self, operation: str, path: str) -> _Node:
        node = self._find(path)
        if node is None:
            raise _missing(operation, path)
        return node

    def exists(self, path: str) -> bool:
        if path in self._nodes:
            return self._nodes[path] is not None
        return path in self._directories or self._files.exists(path)

    def is_directory(self, path: str) -> bool:
        return path in self._directories or self._files.is_directory(path)

    def list(self, directory: str) -> list[str]:
        names = set(self._files.list(directory)) if self._files.exists(directory) else set()
        for path, node in self._nodes.items():
            if os.path.dirname(path) == directory:
                (names.discard if node is None else names.add)(os.path.basename(path))
        names.update(os.path.basename(path) for path in self._directories if os.path.dirname(path) == directory)
        return sorted(names)

    def size(self, path: str) -> int:
        return self._require("stat", path).size

    def modified_ms(self, path: str) -> int:
        return self._files.modified_ms(path)

    def make_directory(self, path: str) -> None:
        if not self._files.is_directory(path):
            self._directories.add(path)

    def rename(self, source: str, target: str) -> None:
        self._nodes[target] = self._require("rename", source)
        self._nodes[source] = None

    def remove(self, path: str) -> None:
        if self.exists(path):
            self._nodes[path] = None

    def remove_tree(self, directory: str) -> None:
        raise disk_error("remove", directory, OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP)))

    def sync_directory(self, directory: str) -> None:
        """Nothing here outlives the process."""

    def lock(self, path: str) -> OverlayLock:
        return OverlayLock()

    def free_bytes(self, path: str) -> int:
        return self._files.free_bytes(path)


def _missing(operation: str, path: str) -> DiskFailed:
    return disk_error(operation, path, OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
