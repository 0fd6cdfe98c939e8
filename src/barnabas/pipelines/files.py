"""Parquet files in a directory that is whole at every moment, each batch exactly once.

```
table/                              whole files only, also below day=2024-05-01/ and the like
  part-<batch>-….parquet
.table.barnabas/                    beside it, on the same file system
  staging/<query>-<batch>-<run>/    what a running batch has written so far; nobody reads it
  batches/<query>-<batch>.json      the manifest of a committed batch: its files, rows and bytes
  shadow-…/                         a directory that compaction is making, or has just replaced
  snapshots/…/                      links for a reader that wants whole batches, or takes long
  lock                              held by whoever moves files in or out, shared by whoever makes a snapshot
```

A batch is written in three steps. Tasks write files into staging, and tell the driver their names. The driver writes
the manifest under a temporary name, syncs it and renames it: from here on the batch is committed. Then each file is
renamed to its place. A crash before the rename of the manifest leaves only staging, which is dropped; a crash after it
leaves files in staging that the next start moves on (`recover`). A batch whose manifest exists is not written again.

So whoever lists the directory (DuckDB, pyarrow, Spark) sees whole files, and never a row twice. The files of one batch
appear one after the other, within milliseconds.

Compaction joins small files of one directory. It builds a second directory, of links to the files that stay and of the
joined file, and exchanges the two by one system call (renameat2 with RENAME_EXCHANGE): a listing sees the small ones or
the joined one, never both and never neither. Opened files can be read to their end. A reader that has listed names and
not opened them yet misses a file then, and is told so by the operating system. That cannot be helped: a name that can
be opened is listed too, and rows under an old and a new name would be read twice. All directories of one compaction
are exchanged together, in a moment, so that the next try works. Where the file system cannot exchange, there is no
compaction.

A reader that must not fail takes `snapshot`: a directory of links to the files of whole batches, which stays as it is.
It belongs to the reader's process by a lock; those of dead processes are removed.

The query's id, which its checkpoint keeps, is part of the names: another checkpoint is another history and writes anew.
One process writes a directory at a time; `run` holds the pipeline's lock.
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
from typing import Final

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

    def recover(self) -> None:
        """Finishes what was committed and drops what was not."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._batches.mkdir(parents=True, exist_ok=True)
        with self._locked(fcntl.LOCK_EX):
            for manifest in sorted(self._batches.glob("*.json")):
                self._publish(json.loads(manifest.read_text(encoding="utf-8")))
            self._drop_dead_snapshots()
        for name in os.listdir(self._private):
            if name == _STAGING or name.startswith(_SHADOW):
                shutil.rmtree(self._private / name, ignore_errors=True)
        for leftover in self._batches.glob(".*"):
            leftover.unlink()

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
        """A new place for the files of a batch; other tries of it are forgotten."""
        staging = self._private / _STAGING
        name = f"{query_id}-{batch_id:012d}"
        if staging.exists():
            for old in staging.glob(f"{name}-*"):
                shutil.rmtree(old, ignore_errors=True)
        place = staging / f"{name}-{uuid.uuid4().hex[:8]}"
        place.mkdir(parents=True)
        return place

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
        with open(temporary, "w", encoding="utf-8") as output:
            json.dump(manifest, output)
            output.flush()
            os.fsync(output.fileno())
        os.rename(temporary, final)
        _sync_directory(self._batches)
        with self._locked(fcntl.LOCK_EX):
            self._publish(manifest)
        for old in self._batches_of(query_id)[:-_MANIFESTS_KEPT]:
            (self._batches / f"{query_id}-{old:012d}.json").unlink()

    def _publish(self, manifest: dict[str, object]) -> None:
        """Moves the files of a committed batch to their places, those that are not there yet."""
        staged = self._private / str(manifest["staged"])
        if not staged.is_dir():
            return  # all of it was moved; the place itself goes last
        directories = set()
        files = manifest["files"]
        assert isinstance(files, list), "written by `commit`"
        for file in files:
            source, target = staged / file["path"], self.path / file["path"]
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(source, target)
                directories.add(target.parent)
            elif not target.exists():
                raise TableDirectoryBroken(f"{target} is listed in batch {manifest['batch']} and is not there")
        for directory in sorted(directories):
            _sync_directory(directory)
        shutil.rmtree(staged)

    # --- compaction -------------------------------------------------------------------------------------------

    def compact(self, files_min: int, bytes_below: int) -> int:
        """Joins small files where a directory has so many of them; returns how many files became fewer."""
        shadows: list[_Shadow] = []
        for directory, names in list(self._leaves()):
            small = [name for name in names if (directory / name).stat().st_size < bytes_below]
            if len(small) >= max(files_min, 2) and (shadow := self._joined(directory, small)) is not None:
                shadows.append(shadow)
        with self._locked(fcntl.LOCK_EX):
            fewer = sum(shadow.files_fewer for shadow in shadows if exchange(shadow.directory, shadow.place))
            self._drop_dead_snapshots()
        for shadow in shadows:
            shutil.rmtree(shadow.place)
        return fewer

    def _leaves(self) -> Iterator[tuple[Path, list[str]]]:
        """Every directory with data files, and their names in the order in which they were written."""
        for root, directories, names in os.walk(self.path):
            directories[:] = sorted(name for name in directories if not name.startswith(("_", ".")))
            data = sorted(name for name in names if is_data_file(name))
            if data:
                yield Path(root), data

    def _joined(self, directory: Path, small: list[str]) -> "_Shadow | None":
        """What shall stand in the place of a directory."""
        others = [name for name in os.listdir(directory) if name not in small]
        if any((directory / name).is_dir() for name in others):
            return None  # directories cannot be linked; only those without any below them are exchanged
        place = self._private / f"{_SHADOW}{uuid.uuid4().hex[:8]}"
        place.mkdir()
        join_files([directory / name for name in small], place / f"joined-{uuid.uuid4().hex}.parquet")
        for name in others:
            os.link(directory / name, place / name)
        _sync_directory(place)
        return _Shadow(directory, place, len(small) - 1)

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
        unfinished = self._unfinished_files()
        for directory, names in self._leaves():
            target = place / directory.relative_to(self.path)
            target.mkdir(parents=True, exist_ok=True)
            for name in names:
                if directory / name not in unfinished:
                    os.link(directory / name, target / name)

    def _unfinished_files(self) -> set[Path]:
        """The files of a batch that a crash left half moved, until `recover` moves the rest."""
        staging = self._private / _STAGING
        files: set[Path] = set()
        for name in os.listdir(staging) if staging.exists() else ():
            manifest = self._batches / f"{name.rpartition('-')[0]}.json"
            if manifest.exists():
                listed = json.loads(manifest.read_text(encoding="utf-8"))["files"]
                files |= {self.path / file["path"] for file in listed}
        return files

    def _drop_dead_snapshots(self) -> None:
        """Those whose reader's process has ended; its lock went with it."""
        snapshots = self._private / _SNAPSHOTS
        for name in os.listdir(snapshots) if snapshots.exists() else ():
            try:
                with _flocked(snapshots / name, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(snapshots / name, ignore_errors=True)
            except (BlockingIOError, FileNotFoundError):
                continue  # somebody reads it, or has just left it

    @contextmanager
    def _locked(self, operation: int) -> Iterator[None]:
        self._private.mkdir(parents=True, exist_ok=True)
        lock = self._private / _LOCK
        lock.touch()
        with _flocked(lock, operation):
            yield


@dataclass(frozen=True, slots=True)
class _Shadow:
    """A directory that is to be exchanged for another with fewer files."""

    directory: Path
    place: Path
    files_fewer: int


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
    """One file with the rows of all, in their order; columns that only some have are null in the others."""
    schema = pa.unify_schemas([pq.read_schema(source) for source in sources], promote_options="default")
    with open(target, "wb") as output:
        with pq.ParquetWriter(output, schema, compression="zstd") as writer:
            for source in sources:
                # Without hive partitioning: what stands in the directory's name is no column of the file.
                table = pq.read_table(source, partitioning=None)
                columns = [
                    table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type)
                    for field in schema
                ]
                writer.write_table(pa.table(columns, schema=schema))
        output.flush()
        os.fsync(output.fileno())


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
        logger.warning("small files of %s stay: its file system cannot exchange directories", one)
        return False
    raise OSError(number, os.strerror(number), str(one))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
