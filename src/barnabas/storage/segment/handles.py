"""A bounded set of open files, shared by all logs of a broker.

Thousands of partitions have more files than a process may have descriptors, and most of them are idle. So a segment
and its indexes open what they need on use and leave it here; the least recently used handle is closed when the set is
full. A reader that still sends from a file holds a reference of its own (`SharedFile.retain`), so that eviction,
deletion or replacement of a segment never pulls a file from under a send.

Owner: the thread that owns the logs. Worker threads open their own files.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from barnabas.base.filesystem import File

HANDLES_MAX: Final = 8192


class SharedFile:
    """An open file with a reference count; the last `release` closes it."""

    __slots__ = ("_references", "file")

    def __init__(self, file: File) -> None:
        self.file = file
        self._references = 1

    def retain(self) -> "SharedFile":
        assert self._references > 0, "retained after it was closed"
        self._references += 1
        return self

    def release(self) -> None:
        assert self._references > 0, "released more often than retained"
        self._references -= 1
        if not self._references:
            self.file.close()


class SharedMap:
    """An index file in memory; the memory goes when nobody refers to it."""

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view = view

    def release(self) -> None:
        """Nothing to do: the map is unmapped when its last view is collected."""


class Handles:
    """Least-recently-used set of handles, each kept under the object that it belongs to."""

    __slots__ = ("_capacity", "_open")

    def __init__(self, capacity: int = HANDLES_MAX) -> None:
        assert capacity > 0
        self._capacity = capacity
        self._open: OrderedDict[object, SharedFile | SharedMap] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def file(self, owner: object, opener: Callable[[], File]) -> SharedFile:
        """The owner's open file; opened now when it is not."""
        handle = self._open.get(owner)
        if handle is None:
            handle = self._keep(owner, SharedFile(opener()))
        else:
            self._open.move_to_end(owner)
        assert isinstance(handle, SharedFile)
        return handle

    def map(self, owner: object, mapper: Callable[[], memoryview]) -> memoryview:
        """The owner's mapped file; mapped now when it is not."""
        handle = self._open.get(owner)
        if handle is None:
            handle = self._keep(owner, SharedMap(mapper()))
        else:
            self._open.move_to_end(owner)
        assert isinstance(handle, SharedMap)
        return handle.view

    def _keep(self, owner: object, handle: SharedFile | SharedMap) -> SharedFile | SharedMap:
        if len(self._open) >= self._capacity:
            _, oldest = self._open.popitem(last=False)
            oldest.release()
        self._open[owner] = handle
        return handle

    def drop(self, owner: object) -> None:
        """Forgets the owner's handle, because the file is going or has changed its length."""
        handle = self._open.pop(owner, None)
        if handle is not None:
            handle.release()
