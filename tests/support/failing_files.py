"""The operating system's files, with one call that fails: any call, on any path, from any thread.

```python
files = FailingFiles()
files.watch(directory)          # calls below it are counted
files.fail_at(17)               # the call with this number, and with `is_lasting` every later one, raises EIO
```
"""

import errno
import os
import re
import threading
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.base.buffers import Buffer
from barnabas.base.filesystem import LocalFile, LocalFileSystem, LocalLock, disk_error

_NUMBER = re.compile(r"[0-9a-f]{20,}")
_INDEX = re.compile(r"-\d+(?=/|$)")


class Call(NamedTuple):
    """What was called on which kind of file, in which phase of the test."""

    phase: str
    operation: str
    name: str

    @property
    def kind(self) -> "Call":
        """The same for all partitions and offsets."""
        return Call(self.phase, self.operation, _NUMBER.sub("N", _INDEX.sub("", os.path.basename(self.name))))


class FailingFiles(LocalFileSystem):
    """Syncs are counted, and not done: no power is lost here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: str | None = None
        self._fails_at: int | None = None
        self._is_lasting = False
        self._errno = errno.EIO
        self.phase = ""
        self.calls: list[Call] = []
        self.failed: Call | None = None
        """The first call that failed."""

    def watch(self, directory: str) -> None:
        self._watched = directory

    def fail_at(self, number: int, *, is_lasting: bool = False) -> None:
        self._fails_at, self._is_lasting = number, is_lasting

    def strike(self, operation: str, path: str) -> None:
        if self._watched is None or not f"{path}/".startswith(f"{self._watched}/"):
            return
        with self._lock:
            call = Call(self.phase, operation, os.path.relpath(path, self._watched))
            self.calls.append(call)
            is_due = len(self.calls) - 1 == self._fails_at
            if self.failed is not None:
                is_due = self._is_lasting
            elif is_due:
                self.failed = call
        if is_due:
            raise disk_error(operation, path, OSError(self._errno, os.strerror(self._errno)))

    def open(self, path: str, *, write: bool = False, create: bool = False) -> "FailingFile":
        self.strike("open", path)
        file = super().open(path, write=write, create=create)
        return FailingFile(self, path, file)

    def exists(self, path: str) -> bool:
        self.strike("stat", path)
        return super().exists(path)

    def is_directory(self, path: str) -> bool:
        self.strike("stat", path)
        return super().is_directory(path)

    def list(self, directory: str) -> list[str]:
        self.strike("list", directory)
        return super().list(directory)

    def size(self, path: str) -> int:
        self.strike("stat", path)
        return super().size(path)

    def modified_ms(self, path: str) -> int:
        self.strike("stat", path)
        return super().modified_ms(path)

    def make_directory(self, path: str) -> None:
        self.strike("create", path)
        super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self.strike("rename", source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.strike("remove", path)
        super().remove(path)

    def remove_tree(self, directory: str) -> None:
        self.strike("remove", directory)
        super().remove_tree(directory)

    def sync_directory(self, directory: str) -> None:
        self.strike("sync", directory)

    def lock(self, path: str) -> LocalLock:
        self.strike("lock", path)
        return super().lock(path)

    def free_bytes(self, path: str) -> int:
        self.strike("stat", path)
        return super().free_bytes(path)


class FailingFile(LocalFile):
    __slots__ = ("_owner",)

    def __init__(self, owner: FailingFiles, path: str, opened: LocalFile) -> None:
        super().__init__(path, os.dup(opened.fileno()))
        opened.close()
        self._owner = owner

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        self._owner.strike("write", self.path)
        super().write_at(buffers, position)

    def read_at(self, length: int, position: int) -> bytes:
        self._owner.strike("read", self.path)
        return super().read_at(length, position)

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        self._owner.strike("read", self.path)
        return super().read_into(buffer, position)

    def size(self) -> int:
        self._owner.strike("stat", self.path)
        return super().size()

    def truncate(self, size: int) -> None:
        self._owner.strike("truncate", self.path)
        super().truncate(size)

    def allocate(self, size: int) -> None:
        self._owner.strike("allocate", self.path)
        super().allocate(size)

    def sync(self) -> None:
        self._owner.strike("sync", self.path)

    def map(self, length: int) -> memoryview:
        self._owner.strike("map", self.path)
        return super().map(length)

    def prefetch(self, position: int, length: int) -> None:
        self._owner.strike("read", self.path)
        super().prefetch(position, length)

    def is_resident(self, position: int, length: int) -> bool:
        self._owner.strike("read", self.path)
        return super().is_resident(position, length)

    def read_resident(self, length: int, position: int) -> bytes | bytearray | None:
        self._owner.strike("read", self.path)
        return super().read_resident(length, position)
