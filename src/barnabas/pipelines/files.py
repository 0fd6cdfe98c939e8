"""Parquet files in a directory that is whole at every moment, each batch exactly once.

```
table/                              whole files only, also below day=2024-05-01/ and the like
  part-<batch>-….parquet
.table.barnabas/                    beside it, on the same file system
  staging/<query>-<batch>-<run>/    what a running batch has written so far; never read, locked by its writer
  batches/<query>-<batch>.json      the manifest of a committed batch: its files, rows and bytes
  shadow-…/                         a directory that compaction is making, and locks, or has just replaced
  snapshots/…/                      links for a reader that wants whole batches, or takes long
  lock                              exclusive to move files in or out, shared to make a snapshot
```

A batch is written in three steps. Tasks write files into staging, and tell the driver their names. The driver writes
the manifest under a temporary name, syncs it and renames it: from here on the batch is committed. Then each file is
renamed to its place. A crash before the rename of the manifest leaves only staging, which is dropped; a crash after it
leaves files in staging that the next start moves on (`recover`). A batch whose manifest exists is not written again.

So a reader that lists the directory (DuckDB, pyarrow, Spark) sees whole files, and never a row twice. The files of one
batch appear one after the other, within milliseconds.

Compaction joins small files of one directory. It builds a second directory, of links to the files that stay and of the
joined file. Then, under the lock, it links what has come since, or gives up if one of its files has gone, and exchanges
the two directories by one system call (renameat2 with RENAME_EXCHANGE): a listing sees the small files or the joined
one, never both and never neither. Opened files can be read to their end. A reader that has listed names and
not opened them yet then misses a file, and gets an error from the operating system. That cannot be avoided: a name that
can be opened is listed too, and rows under an old and a new name would be read twice. All directories of one compaction
are exchanged together, within a moment, so that the next try works. A file system that cannot exchange gets no
compaction.

A reader that must not fail takes `snapshot`: a directory of links to the files of whole batches, which stays as it is.
It belongs to the reader's process by a lock; those of dead processes are removed.

The query's id, which its checkpoint keeps, is part of the names: another checkpoint is another history and starts over.
Threads and processes may write one directory at the same time, each its own queries: files move in and out only under
the lock, and `recover` skips what a living writer has locked.
"""

import ctypes
import errno
import fcntl
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from barnabas.base.errors import BarnabasError

logger = logging.getLogger(__name__)

_STAGING: Final = "staging"
_BATCHES: Final = "batches"
_SNAPSHOTS: Final = "snapshots"
_LOCK: Final = "lock"
_SHADOW: Final = "shadow-"
_MANIFESTS_KEPT: Final = 100
_MANIFEST: Final = re.compile(r"(?P<query>[0-9a-f-]+)-(?P<batch>\d{12})\.json")
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


class TableDirectoryBroken(BarnabasError):  # noqa: N818 - named as the fact that it is
    """The directory is not as it was left; the message says what is missing."""


class CannotJoin(BarnabasError):  # noqa: N818 - named as the fact that it is
    """Files whose columns have types that do not go together."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One file of a batch: its path below staging and, the same, below the directory."""

    path: str
    rows: int
    size_bytes: int


class ParquetDirectory:
    """One table. `recover` comes first."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._private = self.path.parent / f".{self.path.name}.barnabas"
        self._batches = self._private / _BATCHES
        self._staged: dict[str, int] = {}
        """For each query of this writer the lock on the batch that it is writing."""

    def recover(self) -> None:
        """Finishes what was committed and drops what was not, but for what a living writer is at."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._batches.mkdir(parents=True, exist_ok=True)
        with self._locked(fcntl.LOCK_EX):
            self._finish_batches()
            for leftover in self._batches.glob(".*"):
                leftover.unlink()
            self._drop_dead_snapshots()
            for place in (*self._private.glob(f"{_STAGING}/*"), *self._private.glob(f"{_SHADOW}*")):
                _remove_if_dead(place)

    def is_committed(self, query_id: str, batch_id: int) -> bool:
        """Whether this batch, or a later one, is in the table."""
        return any(number >= batch_id for number in self._batches_of(query_id))

    def _batches_of(self, query_id: str) -> list[int]:
        found = []
        for name in os.listdir(self._batches):
            match = _MANIFEST.fullmatch(name)
            if match is not None and match["query"] == query_id:
                found.append(int(match["batch"]))
        return sorted(found)

    def stage(self, query_id: str, batch_id: int) -> Path:
        """A new place for the files of a batch, locked until it is committed; other tries of it are forgotten."""
        staging = self._private / _STAGING
        name = f"{query_id}-{batch_id:012d}"
        self._forget_staged(query_id)
        for old in staging.glob(f"{name}-*"):
            shutil.rmtree(old, ignore_errors=True)
        place = staging / f"{name}-{uuid.uuid4().hex[:8]}"
        self._staged[query_id] = self._make_locked(place)
        return place

    def _make_locked(self, place: Path) -> int:
        """Makes a directory of this writer's; `recover` of another one comes before it or finds it locked."""
        with self._locked(fcntl.LOCK_SH):
            place.mkdir(parents=True)
            return _lock_now(place)

    def _forget_staged(self, query_id: str) -> None:
        descriptor = self._staged.pop(query_id, None)
        if descriptor is not None:
            os.close(descriptor)

    def commit(self, query_id: str, batch_id: int, staged: Path, files: Iterable[WrittenFile]) -> None:
        """Makes the batch part of the table; when this returns, readers see it."""
        manifest = {
            "query": query_id,
            "batch": batch_id,
            "staged": str(staged.relative_to(self._private)),
            "files": [asdict(file) for file in files],
        }
        final = self._batches / f"{query_id}-{batch_id:012d}.json"
        temporary = self._batches / f".{final.name}"
        with self._locked(fcntl.LOCK_EX):
            with open(temporary, "w", encoding="utf-8") as output:
                json.dump(manifest, output)
                output.flush()
                os.fsync(output.fileno())
            os.rename(temporary, final)
            _sync_directory(self._batches)
            self._publish(manifest)
        self._forget_staged(query_id)
        for old in self._batches_of(query_id)[:-_MANIFESTS_KEPT]:
            (self._batches / f"{query_id}-{old:012d}.json").unlink()

    def _finish_batches(self) -> None:
        """Moves the files of batches whose writer died after it committed them. Under the exclusive lock.

        Every living writer moves its files under that lock, so what is still in staging is a dead one's.
        """
        for manifest in self._unfinished_batches():
            self._publish(manifest)

    def _unfinished_batches(self) -> list[dict[str, Any]]:
        """The manifests of committed batches that still have a place in staging."""
        staging = self._private / _STAGING
        unfinished = []
        for name in sorted(os.listdir(staging)) if staging.exists() else ():
            manifest = self._batches / f"{name.rpartition('-')[0]}.json"
            if manifest.exists():
                content = json.loads(manifest.read_text(encoding="utf-8"))
                if content["staged"] == f"{_STAGING}/{name}":
                    unfinished.append(content)
        return unfinished

    def _publish(self, manifest: dict[str, Any]) -> None:
        """Moves the files of a committed batch to their places, those that are not there yet."""
        staged = self._private / manifest["staged"]
        directories = set()
        for file in manifest["files"]:
            source, target = staged / file["path"], self.path / file["path"]
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(source, target)
                directories.add(target.parent)
            elif not target.exists():
                raise TableDirectoryBroken(f"{target} is listed in batch {manifest['batch']}, but does not exist")
        for directory in sorted(directories):
            _sync_directory(directory)
        shutil.rmtree(staged)

    # --- compaction -------------------------------------------------------------------------------------------

    def compact(self, files_min: int, bytes_below: int) -> int:
        """Joins small files where a directory has `files_min` of them; returns how many files became fewer."""
        shadows: list[_Shadow] = []
        try:
            for directory, names in list(self._leaves()):
                small = [name for name in names if _size_of(directory / name) < bytes_below]
                if len(small) >= max(files_min, 2) and (shadow := self._joined(directory, small)) is not None:
                    shadows.append(shadow)
            with self._locked(fcntl.LOCK_EX):
                self._finish_batches()  # a file that is joined is missed when the rest of its batch is moved
                fewer = sum(shadow.files_fewer for shadow in shadows if shadow.replace_directory())
                self._drop_dead_snapshots()
            return fewer
        finally:
            for shadow in shadows:
                shadow.remove()

    def _leaves(self) -> Iterator[tuple[Path, list[str]]]:
        """Every directory with data files, and their names in the order in which they were written."""
        for root, directories, names in os.walk(self.path):
            directories[:] = sorted(name for name in directories if not name.startswith(("_", ".")))
            data = sorted(name for name in names if is_data_file(name))
            if data:
                yield Path(root), data

    def _joined(self, directory: Path, small: list[str]) -> "_Shadow | None":
        """The replacement for a directory; None when the directory changes meanwhile, or cannot be exchanged."""
        others = sorted({*os.listdir(directory)} - {*small})
        if any((directory / name).is_dir() for name in others):
            return None  # directories cannot be linked; only those without any below them are exchanged
        place = self._private / f"{_SHADOW}{uuid.uuid4().hex[:8]}"
        shadow = _Shadow(directory, place, small, others, self._make_locked(place))
        try:
            join_files([directory / name for name in small], place / f"joined-{uuid.uuid4().hex}.parquet")
            for name in others:
                os.link(directory / name, place / name)
        except FileNotFoundError:  # another writer has joined some of them
            shadow.remove()
            return None
        except CannotJoin as error:
            shadow.remove()
            logger.warning("small files of %s are not joined: %s", directory, error)
            return None
        return shadow

    # --- readers ----------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[Path]:
        """A directory with the files of all batches as they are now, by links that nothing touches until it is left."""
        place = self._private / _SNAPSHOTS / uuid.uuid4().hex
        with ExitStack() as stack:
            with self._locked(fcntl.LOCK_SH):
                place.mkdir(parents=True)
                stack.callback(shutil.rmtree, place, ignore_errors=True)
                stack.enter_context(_flocked(place, fcntl.LOCK_SH))
                self._link_all(place)
            yield place

    def _link_all(self, place: Path) -> None:
        unfinished = {self.path / file["path"] for manifest in self._unfinished_batches() for file in manifest["files"]}
        for directory, names in self._leaves():
            target = place / directory.relative_to(self.path)
            target.mkdir(parents=True, exist_ok=True)
            for name in names:
                if directory / name not in unfinished:
                    os.link(directory / name, target / name)

    def _drop_dead_snapshots(self) -> None:
        """Those whose reader's process has ended; its lock went with it."""
        snapshots = self._private / _SNAPSHOTS
        for name in os.listdir(snapshots) if snapshots.exists() else ():
            _remove_if_dead(snapshots / name)

    @contextmanager
    def _locked(self, operation: int) -> Iterator[None]:
        self._private.mkdir(parents=True, exist_ok=True)
        lock = self._private / _LOCK
        lock.touch()
        with _flocked(lock, operation):
            yield


@dataclass(frozen=True, slots=True)
class _Shadow:
    """A directory with fewer files that will replace another; locked, so that it is not mistaken for a dead one."""

    directory: Path
    place: Path
    small: list[str]
    others: list[str]
    lock: int

    @property
    def files_fewer(self) -> int:
        return len(self.small) - 1

    def replace_directory(self) -> bool:
        """Takes what came since the shadow was made, and the place of the directory. Under the table's lock."""
        now = {*os.listdir(self.directory)} if self.directory.is_dir() else set()
        if not now >= {*self.small, *self.others}:
            return False  # another writer has joined files here
        for name in sorted(now - {*self.small, *self.others}):
            if (self.directory / name).is_dir():
                return False
            os.link(self.directory / name, self.place / name)
        _sync_directory(self.place)
        return exchange(self.directory, self.place)

    def remove(self) -> None:
        """What stands at its place now: itself, or the directory that it replaced."""
        shutil.rmtree(self.place, ignore_errors=True)
        os.close(self.lock)


def _lock_now(place: Path) -> int:
    """Marks a directory as in use by this process, for as long as the descriptor is open."""
    descriptor = os.open(place, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _remove_if_dead(place: Path) -> bool:
    """Removes a directory that no process has locked; its creator has ended."""
    try:
        with _flocked(place, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(place, ignore_errors=True)
    except (BlockingIOError, FileNotFoundError):
        return False
    return True


def _size_of(path: Path) -> float:
    """A file that has gone meanwhile is too large for any use."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return float("inf")


@contextmanager
def _flocked(path: Path, operation: int) -> Iterator[None]:
    """A file or directory under an advisory lock, which ends with the process at the latest."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)


def is_data_file(name: str) -> bool:
    return name.endswith(".parquet") and not name.startswith(("_", "."))


def join_files(sources: list[Path], target: Path) -> None:
    """One file with the rows of all, in their order. Columns that only some have are null in the others; a number is
    as wide as in the widest. CannotJoin when a column has types that do not go together."""
    schemas = [pq.read_schema(source) for source in sources]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowTypeError as error:
        raise CannotJoin(str(error)) from error
    for field in schema:
        kinds = {one.field(field.name).type for one in schemas if field.name in one.names}
        if not all(is_widened(kind, field.type) for kind in kinds):
            raise CannotJoin(f"column '{field.name}' is {' and '.join(sorted(map(str, kinds)))}")
    with open(target, "wb") as output:
        with pq.ParquetWriter(output, schema, compression="zstd") as writer:
            for source in sources:
                # Without hive partitioning: what stands in the directory's name is no column of the file.
                table = pq.read_table(source, partitioning=None)
                columns = [
                    table[field.name].cast(field.type)
                    if field.name in table.column_names
                    else pa.nulls(len(table), field.type)
                    for field in schema
                ]
                writer.write_table(pa.table(columns, schema=schema))
        output.flush()
        os.fsync(output.fileno())


def is_widened(kind: pa.DataType, wider: pa.DataType) -> bool:
    """Whether every value of a type is one of the other, too, and looks the same to readers."""
    if kind == wider or pa.types.is_null(kind):
        return True
    if pa.types.is_integer(kind) and pa.types.is_integer(wider):
        return bool(kind.bit_width <= wider.bit_width)
    if pa.types.is_floating(kind) and pa.types.is_floating(wider):
        return bool(kind.bit_width <= wider.bit_width)
    if pa.types.is_decimal(kind) and pa.types.is_decimal(wider):
        whole, wider_whole = kind.precision - kind.scale, wider.precision - wider.scale
        return bool(kind.scale == wider.scale and whole <= wider_whole)
    return False


def parquet_problem(directory: Path, schema: pa.Schema) -> str | None:
    """Why rows of this schema do not go together with the files that are there; None when they do."""
    newest = max(directory.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if newest is None:
        return None
    for field in pq.read_schema(newest):
        if field.name in schema.names:
            kind = schema.field(field.name).type
            if not (is_widened(kind, field.type) or is_widened(field.type, kind)):
                return f"column '{field.name}' is {kind}, but {field.type} in the existing files"
    return None


def exchange(one: Path, other: Path) -> bool:
    """Swaps two directories in one step; False where the file system, or the C library, cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    try:
        rename = library.renameat2
    except AttributeError:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        _sync_directory(one.parent)
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV):
        logger.warning("small files of %s are not joined: its file system cannot exchange directories", one)
        return False
    raise OSError(number, os.strerror(number), str(one))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
