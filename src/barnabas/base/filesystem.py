"""The seam between Barnabas and the disk: everything the log does to files goes through `FileSystem` and `File`.

`LocalFileSystem` is the operating system's. `barnabas.sim.disk` has the other implementation, which can lose what was
not synced, tear writes and fail at any call. What a crash may undo is the contract both keep:

- bytes are durable after `File.sync`;
- a created, renamed or removed name is durable after `sync_directory` of its directory.

Every `OSError` becomes `DiskFailed` (or `DiskFull`) here, so that the layers above need to know only those two.
Positions are explicit in every read and write: a file has no cursor, so readers and writers never disturb each other.
"""

import errno
import fcntl
import mmap
import os
import shutil
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from barnabas.base.buffers import Buffer
from barnabas.base.errors import DirectoryLocked, DiskFailed, DiskFull

_VECTOR_LENGTH_MAX: Final = 1024
_WHOLE_FILE_EXCLUSIVELY: Final = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # struct flock
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_PERMITTED: Final = frozenset({errno.EACCES, errno.EPERM})


class File(Protocol):
    """An open file. Writes go to an explicit position and are complete or raise."""

    path: str

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        """Writes the buffers one after the other, in one system call where the kernel allows it."""
        ...

    def read_at(self, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fills the buffer and returns how many bytes were there."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Reserves space up to `size`, and makes the file that long."""
        ...

    def sync(self) -> None:
        """Makes the file's bytes and length durable. May block: not on the event loop."""
        ...

    def map(self, length: int) -> memoryview:
        """The first `length` bytes as read-only memory. The file may be closed; the map stays."""
        ...

    def prefetch(self, position: int, length: int) -> None:
        """Asks the kernel to read this range ahead."""
        ...

    def is_resident(self, position: int, length: int) -> bool:
        """Whether a read of this range would not wait for the disk, judged by its first and last page."""
        ...

    def read_resident(self, length: int, position: int) -> bytes | bytearray | None:
        """What `read_at` returns, if all of it can be had without waiting for the disk."""
        ...

    def fileno(self) -> int:
        """The descriptor, for `sendfile`."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class FileSystem(Protocol):
    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Opens for reading, with `write` also for writing, with `create` making it when it is not there."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def make_directory(self, path: str) -> None:
        """Makes the directory and its parents; it may exist already."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a target file."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file; not finding it is fine."""
        ...

    def remove_tree(self, directory: str) -> None: ...

    def sync_directory(self, directory: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Takes an exclusive lock on a file, held until released or until the process ends."""
        ...

    def free_bytes(self, path: str) -> int: ...


def disk_error(operation: str, path: str, cause: OSError) -> DiskFailed:
    """The one place where an `OSError` gets its meaning."""
    kind = DiskFull if cause.errno in _FULL else DiskFailed
    return kind(operation, path, cause)


def read_file(files: FileSystem, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.read_at(file.size(), 0)
    finally:
        file.close()


def replace_file(files: FileSystem, path: str, content: bytes, *, is_synced: bool = True) -> None:
    """Writes a small file so that a crash leaves the old content or the new one, never a mixture.

    Without a sync that holds for a killed process; a loss of power may leave anything.
    """
    temporary = path + ".tmp"
    file = files.open(temporary, write=True, create=True)
    try:
        file.truncate(0)
        file.write_at([content], 0)
        if is_synced:
            file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    if is_synced:
        files.sync_directory(os.path.dirname(path))


def replace_private_file(files: FileSystem, path: str, content: bytes) -> None:
    """`replace_file`, for a secret: only the owner of the process can ever open it."""
    if isinstance(files, LocalFileSystem):  # files in memory have no permissions
        files.make_private(path + ".tmp")
    replace_file(files, path, content)


def make_durable_directory(files: FileSystem, path: str) -> None:
    """Makes a directory that survives a loss of power, with every directory on the way to it.

    An empty one may be what a process that was killed had just made, so its whole way is synced, too: nothing is put
    into a directory before that. Directories that others made may refuse to be opened, which is their owners' choice.
    """
    lineage = [path.rstrip(os.sep)]
    while (parent := os.path.dirname(lineage[-1])) not in ("", lineage[-1]):
        lineage.append(parent)
    made = [place for place in lineage if not files.exists(place)]
    files.make_directory(path)
    if not made and files.list(path):
        return
    for place in reversed(lineage):
        try:
            files.sync_directory(os.path.dirname(place))
        except DiskFailed as error:
            if place in made or error.errno not in _NOT_PERMITTED:
                raise


class LocalFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_tells_residency", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._tells_residency = True
        """False once it is known that this file system cannot tell; such ones mostly live in memory."""

    def write_at(self, buffers: Sequence[Buffer], position: int) -> None:
        try:
            if len(buffers) == 1:
                total = len(buffers[0])
                written = os.pwrite(self._descriptor, buffers[0], position)
            else:
                total = sum(map(len, buffers))
                written = os.pwritev(self._descriptor, buffers[:_VECTOR_LENGTH_MAX], position)
            if written != total:
                self._write_rest(buffers, position, written)
        except OSError as error:
            raise disk_error("write", self.path, error) from error

    def _write_rest(self, buffers: Sequence[Buffer], position: int, written: int) -> None:
        """Goes on after a short write, or past the kernel's limit of buffers in one call."""
        remaining = [memoryview(buffer) for buffer in buffers if len(buffer)]
        skip = written
        while True:
            position += skip
            while remaining and skip >= len(remaining[0]):
                skip -= len(remaining.pop(0))
            if not remaining:
                return
            remaining[0] = remaining[0][skip:]
            skip = os.pwritev(self._descriptor, remaining[:_VECTOR_LENGTH_MAX], position)

    def read_at(self, length: int, position: int) -> bytes:
        try:
            data = os.pread(self._descriptor, length, position)
            if len(data) == length or not data:
                return data
            parts = [data]
            missing = length - len(data)
            while missing and (data := os.pread(self._descriptor, missing, position + length - missing)):
                parts.append(data)
                missing -= len(data)
            return b"".join(parts)
        except OSError as error:
            raise disk_error("read", self.path, error) from error

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        view = memoryview(buffer)
        done = 0
        try:
            while done < len(view) and (got := os.preadv(self._descriptor, [view[done:]], position + done)):
                done += got
        except OSError as error:
            raise disk_error("read", self.path, error) from error
        return done

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise disk_error("stat", self.path, error) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise disk_error("truncate", self.path, error) from error

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            raise disk_error("allocate", self.path, error) from error

    def sync(self) -> None:
        self._require_open("sync")  # fdatasync would call -1 a ValueError
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise disk_error("sync", self.path, error) from error

    def map(self, length: int) -> memoryview:
        if length == 0:
            return memoryview(b"")
        self._require_open("map")  # mmap would take -1 for a wish for anonymous memory
        try:
            return memoryview(mmap.mmap(self._descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ))
        except OSError as error:
            raise disk_error("map", self.path, error) from error
        except ValueError as error:  # the file is shorter than asked for
            raise disk_error("map", self.path, OSError(errno.EIO, str(error))) from error

    def prefetch(self, position: int, length: int) -> None:
        try:
            os.posix_fadvise(self._descriptor, position, length, os.POSIX_FADV_WILLNEED)
        except OSError as error:
            raise disk_error("read ahead", self.path, error) from error

    def is_resident(self, position: int, length: int) -> bool:
        if not self._tells_residency:
            return True
        probe = bytearray(1)
        try:
            for place in (position, position + length - 1):
                os.preadv(self._descriptor, [probe], place, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                self._tells_residency = False
                return True
            raise disk_error("read", self.path, error) from error
        return True

    def read_resident(self, length: int, position: int) -> bytes | bytearray | None:
        if not self._tells_residency:
            return self.read_at(length, position)
        buffer = bytearray(length)
        try:
            got = os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                self._tells_residency = False
                return self.read_at(length, position)
            raise disk_error("read", self.path, error) from error
        return buffer if got == length else None

    def _require_open(self, operation: str) -> None:
        if self._descriptor < 0:
            raise disk_error(operation, self.path, OSError(errno.EBADF, os.strerror(errno.EBADF)))

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:
                raise disk_error("close", self.path, error) from error


class LocalLock:
    """An exclusive lock that the kernel drops when the process ends, however it ends.

    It belongs to the open file: it keeps out a second broker, also one in the same process, and Apache Kafka, whose
    POSIX lock it excludes. A POSIX lock of our own would be lost as soon as this process closes the file once more,
    which a refused second attempt does.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE_EXCLUSIVELY)
        except OSError as error:
            os.close(self._descriptor)
            if not isinstance(error, BlockingIOError | PermissionError):
                raise
            raise DirectoryLocked(
                f"{os.path.dirname(path)} is in use by another process (it holds {path}); stop that process first, "
                "or choose another directory"
            ) from None

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class LocalFileSystem:
    """The operating system's files. Stateless: one instance may serve any number of brokers."""

    file_class = LocalFile

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LocalFile:
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        try:
            return self.file_class(path, os.open(path, flags, 0o644))
        except OSError as error:
            raise disk_error("open", path, error) from error

    def make_private(self, path: str) -> None:
        """An empty file that nobody else may open, in place of any other."""
        self.remove(path)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise disk_error("open", path, error) from error

    def exists(self, path: str) -> bool:
        return self._status(path) is not None

    def is_directory(self, path: str) -> bool:
        status = self._status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _status(self, path: str) -> os.stat_result | None:
        """None when nothing is there. `os.path.exists` would say so of a disk that cannot be read, too."""
        try:
            return os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise disk_error("stat", path, error) from error

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except OSError as error:
            raise disk_error("list", directory, error) from error

    def size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise disk_error("stat", path, error) from error

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise disk_error("stat", path, error) from error

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise disk_error("create", path, error) from error

    def rename(self, source: str, target: str) -> None:
        try:
            os.replace(source, target)
        except OSError as error:
            raise disk_error("rename", source, error) from error

    def remove(self, path: str) -> None:
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)
        except OSError as error:
            raise disk_error("remove", path, error) from error

    def remove_tree(self, directory: str) -> None:
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(directory)
        except OSError as error:
            raise disk_error("remove", directory, error) from error

    def sync_directory(self, directory: str) -> None:
        try:
            descriptor = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise disk_error("sync", directory, error) from error

    def lock(self, path: str) -> LocalLock:
        try:
            return LocalLock(path)
        except OSError as error:
            raise disk_error("lock", path, error) from error

    def free_bytes(self, path: str) -> int:
        try:
            return shutil.disk_usage(path).free
        except OSError as error:
            raise disk_error("stat", path, error) from error
