"""What every call to a simulated disk passes through (death, faults, free space), and the open file.

`Device` is the part of `barnabas.sim.disk.SimulatedDisk` that open files need. It knows no names.
"""

import errno
import io
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import NoReturn

from barnabas.base.buffers import Buffer
from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFailed, DiskFull
from barnabas.base.filesystem import disk_error
from barnabas.sim.faults import FaultPlan, Operation
from barnabas.sim.inode import FileNode, PowerCut


class Device:
    """Counts calls, fails those that are to fail, and keeps account of the space."""

    def __init__(self, cut: PowerCut, clock: Clock, capacity_bytes: int | None) -> None:
        self.capacity_bytes = capacity_bytes
        self.before_call: Callable[[Operation, str], object] | None = None
        self.calls = 0
        self.open_files = 0
        self.is_dead = False
        self.used_bytes = 0
        self.cut = cut
        self._clock = clock
        self._faults = FaultPlan()

    def fail(
        self,
        error: int,
        *,
        after_calls: int = 0,
        operations: Collection[Operation] = (),
        path_pattern: str = "*",
        times: int | None = 1,
    ) -> None:
        """Lets `after_calls` matching calls pass, then fails `times` of them (None: until `heal`).

        Without `operations`, every operation matches.
        """
        self._faults.add(
            error,
            after_calls=after_calls,
            operations=operations,
            path_pattern=path_pattern,
            times=times,
        )

    def heal(self) -> None:
        """Takes back every `fail`."""
        self._faults.clear()

    def begin(self, operation: Operation, path: str) -> None:
        """Every call passes here first; injected faults are raised here."""
        self.calls += 1
        if self.before_call is not None and not self.is_dead:
            try:
                self.before_call(operation, path)
            except OSError as error:
                raise disk_error(_verb(operation), path, error) from error
        if self.is_dead:  # since long, or by `before_call`
            refuse(operation, path, errno.ESTALE)
        if self._faults and (code := self._faults.errno_of(operation, path)) is not None:
            refuse(operation, path, code)

    def store(self, node: FileNode, path: str, data: Buffer, position: int) -> None:
        """Writes what there is room for; if that is not all, it is an error."""
        room = max(0, self._reserve(node, position + len(data)) - position)
        node.modified_ms = self._clock.now_ms()
        if room < len(data):
            node.write(memoryview(data)[:room], position, self.cut)
            refuse("write", path, errno.ENOSPC)
        node.write(data, position, self.cut)

    def resize(self, node: FileNode, size: int) -> None:
        """A file may grow so without needing space: it gets a hole."""
        node.resize(size, self.cut)
        node.modified_ms = self._clock.now_ms()
        if size < node.reserved_bytes:
            self._give_back(node, node.reserved_bytes - size)

    def allocate(self, node: FileNode, path: str, size: int) -> None:
        reserved_before = node.reserved_bytes
        if self._reserve(node, size) < size:
            self._give_back(node, node.reserved_bytes - reserved_before)
            refuse("allocate", path, errno.ENOSPC)
        if size > len(node.content):
            self.resize(node, size)

    def _reserve(self, node: FileNode, end: int) -> int:
        """Takes space for the file up to `end`, as far as there is some, and returns how far."""
        growth = end - node.reserved_bytes
        if growth > 0:
            if self.capacity_bytes is not None:
                growth = max(0, min(growth, self.capacity_bytes - self.used_bytes))
            node.reserved_bytes += growth
            if node.is_linked:
                self.used_bytes += growth
        return min(end, node.reserved_bytes)

    def _give_back(self, node: FileNode, length: int) -> None:
        node.reserved_bytes -= length
        if node.is_linked:
            self.used_bytes -= length


class SimulatedFile:
    """An open file of a simulated disk."""

    __slots__ = ("_device", "_is_writable", "_node", "path")

    def __init__(self, device: "Device", path: str, node: FileNode, is_writable: bool) -> None:
        self.path = path
        device.open_files += 1
        self._device = device
        self._node: FileNode | None = node
        self._is_writable = is_writable

    def _opened(self, operation: Operation) -> FileNode:
        if self._node is None:
            refuse(operation, self.path, errno.EBADF)
        return self._node

    def _writable(self, operation: Operation) -> FileNode:
        if not self._is_writable:
            refuse(operation, self.path, errno.EBADF)
        return self._opened(operation)

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        node = self._writable("write")
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        device = self._device
        try:
            device.begin("write", self.path)
        except DiskFailed:
            if not device.is_dead:
                done = device.cut.random.randint(0, len(data))
                with suppress(DiskFull):  # the injected error is the one to tell
                    device.store(node, self.path, memoryview(data)[:done], position)
            raise
        device.store(node, self.path, data, position)

    def read_at(self, length: int, position: int) -> bytes:
        node = self._opened("read")
        self._device.begin("read", self.path)
        return bytes(memoryview(node.content)[position : position + length])

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        node = self._opened("read")
        self._device.begin("read", self.path)
        with memoryview(buffer) as target:
            count = max(0, min(len(target), len(node.content) - position))
            target[:count] = memoryview(node.content)[position : position + count]
        return count

    def size(self) -> int:
        node = self._opened("stat")
        self._device.begin("stat", self.path)
        return len(node.content)

    def truncate(self, size: int) -> None:
        node = self._writable("truncate")
        self._device.begin("truncate", self.path)
        self._device.resize(node, size)

    def allocate(self, size: int) -> None:
        node = self._writable("allocate")
        self._device.begin("allocate", self.path)
        self._device.allocate(node, self.path, size)

    def sync(self) -> None:
        node = self._opened("sync")
        try:
            self._device.begin("sync", self.path)
        except DiskFailed:
            if not self._device.is_dead:
                node.sync_failed(self._device.cut)
            raise
        node.sync()

    def map(self, length: int) -> memoryview:
        node = self._opened("map")
        self._device.begin("map", self.path)
        if length > len(node.content):
            refuse("map", self.path, errno.EIO)
        return node.map(length) if length else memoryview(b"")

    def prefetch(self, position: int, length: int) -> None:
        self._opened("prefetch")
        self._device.begin("prefetch", self.path)

    def is_resident(self, position: int, length: int) -> bool:
        self._opened("read")
        self._device.begin("read", self.path)
        return True

    def read_resident(self, length: int, position: int) -> bytes:
        return self.read_at(length, position)

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a simulated file has no descriptor; read it with read_at")

    def close(self) -> None:
        if self._node is not None:
            self._device.open_files -= 1
            self._node = None


def _verb(operation: Operation) -> str:
    return "sync" if operation == "sync_directory" else operation


def refuse(operation: Operation, path: str, code: int) -> NoReturn:
    raise disk_error(_verb(operation), path, OSError(code, os.strerror(code)))
