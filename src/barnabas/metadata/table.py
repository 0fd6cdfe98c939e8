"""Where the embedded store keeps its nodes: one SQLite file, `barnabas-metadata.db`.

```
node   path (primary key), data, version, czxid, mzxid, pzxid, created_ms, modified_ms, children_created
state  one row: zxid, the position of the last write
```
`user_version` is the version of this format. Ephemeral nodes are not kept: no session outlives the process.

A commit is one SQLite transaction in WAL mode with `synchronous=FULL`: the log is synced before `commit` returns, so a
crash at any moment, also a loss of power, leaves all of a commit or nothing. SQLite does its own file operations, past
`barnabas.base.filesystem`; a simulation uses `MemoryTable`, which has the same contract without a disk.

Errors of SQLite become `DiskFull`, `DiskFailed` or `CorruptMetadata` here. Any thread may call, one at a time.
"""

import errno
import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Final, Protocol

from barnabas.base.errors import BarnabasError, DirectoryLocked, DiskFailed, DiskFull
from barnabas.base.filesystem import FileSystem, make_durable_directory
from barnabas.metadata.errors import CorruptMetadata, NewerMetadata
from barnabas.metadata.store import NO_OWNER
from barnabas.metadata.tree import Tree, TreeNode

_log: Final = logging.getLogger(__name__)

FILE_NAME: Final = "barnabas-metadata.db"
LOCK_NAME: Final = "barnabas-metadata.lock"
TAKEN_IN_NAME: Final = f"{FILE_NAME}.taken-in"
"""What the file is called when its nodes were copied into ZooKeeper: no broker on its own may use it any more."""
FORMAT_VERSION: Final = 1

_SCHEMA: Final = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE node (
        path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL,
        czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
        created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL, children_created INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE state (zxid INTEGER NOT NULL);
    INSERT INTO state VALUES (0);
    PRAGMA user_version = {FORMAT_VERSION};
    COMMIT;
"""
_BAD_FILE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY_CODE: Final = 0xFF
_ENDINGS: Final = ("", "-wal", "-shm")
"""Of the names of SQLite's files that belong together. The main one comes first."""


class NodeTable(Protocol):
    def load(self) -> Tree:
        """Everything that was committed."""
        ...

    def commit(self, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
        """Makes all of it durable, or nothing. None removes a node. Blocks until the disk has it."""
        ...

    def restore(self, zxid: int, nodes: Mapping[str, TreeNode]) -> None:
        """Starts over after a failed commit, whatever it left behind, and makes exactly these nodes durable."""
        ...

    def close(self) -> None: ...


class MemoryTable:
    """Keeps what was committed as long as the object lives: open a store on it again and it is all there."""

    def __init__(self) -> None:
        self._zxid = 0
        self._nodes: dict[str, TreeNode] = {}

    def load(self) -> Tree:
        return Tree(self._zxid, self._nodes)

    def commit(self, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
        self._zxid = zxid
        for path, node in nodes.items():
            if node is None or node.owner != NO_OWNER:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node

    def restore(self, zxid: int, nodes: Mapping[str, TreeNode]) -> None:
        self.commit(zxid, {**dict.fromkeys(self._nodes), **nodes})

    def close(self) -> None:
        """Nothing to give back."""


class SqliteTable:
    """The file in a directory, locked against every other process from opening to closing."""

    def __init__(self, directory: str, files: FileSystem) -> None:
        self._files = files
        self.path = os.path.join(directory, FILE_NAME)
        make_durable_directory(files, directory)
        self._lock = files.lock(os.path.join(directory, LOCK_NAME))
        try:
            if not files.exists(self.path):
                _set_aside(files, self.path)
                _make_file(files, self.path, Tree())
            self._connection = self._connect()
        except BaseException:
            self._lock.release()
            raise

    def load(self) -> Tree:
        with _translating("read", self.path):
            zxid = self._connection.execute("SELECT zxid FROM state").fetchone()[0]
            rows = self._connection.execute(
                "SELECT path, data, version, czxid, mzxid, pzxid, created_ms, modified_ms, children_created FROM node"
            ).fetchall()
        return Tree(zxid, {row[0]: TreeNode(*row[1:]) for row in rows})

    def commit(self, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
        with _translating("write", self.path):
            _commit(self._connection, zxid, nodes)

    def restore(self, zxid: int, nodes: Mapping[str, TreeNode]) -> None:
        """Opens the file again. One that cannot be read any more is set aside, and another one takes its place."""
        durable = {path: node for path, node in nodes.items() if node.owner == NO_OWNER}
        with suppress(sqlite3.Error):
            self._connection.close()
        try:
            if not self._files.exists(self.path):
                raise CorruptMetadata(f"{self.path} does not exist any more")
            self._connection = self._connect()
            stored = self.load().nodes
        except CorruptMetadata as problem:
            backup = _set_aside(self._files, self.path)
            _log.error("recreating the metadata file: %s (the old one is %s)", problem, backup or "nowhere")
            _make_file(self._files, self.path, Tree(zxid, durable))
            self._connection = self._connect()
            return
        changed: dict[str, TreeNode | None] = dict.fromkeys(path for path in stored if path not in durable)
        changed |= {path: node for path, node in durable.items() if stored.get(path) != node}
        if changed:
            self.commit(zxid, changed)

    def close(self) -> None:
        try:
            with _translating("close", self.path):
                self._connection.close()
        finally:
            self._lock.release()

    def _connect(self) -> sqlite3.Connection:
        with _translating("open", self.path):
            # Transactions are explicit (`isolation_level`), and a worker thread commits what this one opened.
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            try:
                # Nobody else may have the file, so its index need not be shared: no `-shm` file.
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version > FORMAT_VERSION:
                    raise NewerMetadata(
                        f"{self.path} has format version {version}, but this Barnabas reads {FORMAT_VERSION} only"
                    )
                if version != FORMAT_VERSION:
                    raise CorruptMetadata(f"{self.path} is not a metadata file")
            except BaseException:
                connection.close()
                raise
        return connection


def replace_table(files: FileSystem, directory: str, tree: Tree) -> str | None:
    """Writes a new file with these nodes. Keeps the old one, if there was any, and returns its new path.

    A crash leaves the old file in its place, or no file there: then the old one is under its new name.
    """
    path = os.path.join(directory, FILE_NAME)
    lock = files.lock(os.path.join(directory, LOCK_NAME))
    try:
        backup = _set_aside(files, path)
        _make_file(files, path, tree)
    finally:
        lock.release()
    return backup


def _set_aside(files: FileSystem, path: str) -> str | None:
    """Renames the file with its log, which SQLite would apply to any other file of this name."""
    there = [ending for ending in _ENDINGS if files.exists(path + ending)]
    if not there:
        return None
    number = 1
    while any(files.exists(f"{path}.old{number}{ending}") for ending in _ENDINGS):
        number += 1
    backup = f"{path}.old{number}"
    for ending in there:
        files.rename(path + ending, backup + ending)
    files.sync_directory(os.path.dirname(path))
    return backup


def retire_table(files: FileSystem, directory: str) -> None:
    """Renames the file, durably: what it holds is in ZooKeeper now. It was closed, so it has no log beside it."""
    files.rename(os.path.join(directory, FILE_NAME), os.path.join(directory, TAKEN_IN_NAME))
    files.sync_directory(directory)


def _make_file(files: FileSystem, path: str, tree: Tree) -> None:
    """Under another name, without a sync until it is complete: half the time of a first start."""
    unfinished = path + ".new"
    for ending in _ENDINGS:
        files.remove(unfinished + ending)
    with _translating("create", path), closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(_SCHEMA)
        if tree.zxid:
            _commit(connection, tree.zxid, tree.nodes)
    file = files.open(unfinished, write=True)
    try:
        file.sync()
    finally:
        file.close()
    files.rename(unfinished, path)
    files.sync_directory(os.path.dirname(path))


def _commit(connection: sqlite3.Connection, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
    kept = []
    removed = []
    for path, node in nodes.items():
        if node is None or node.owner != NO_OWNER:
            removed.append((path,))
        else:
            kept.append((path, *node[:-1]))
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany("DELETE FROM node WHERE path = ?", removed)
        connection.executemany("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", kept)
        connection.execute("UPDATE state SET zxid = ?", (zxid,))
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _translating(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.IntegrityError):  # ours, not the disk's
        raise
    except sqlite3.DatabaseError as error:
        raise _meaning(operation, path, error) from error


def _meaning(operation: str, path: str, error: sqlite3.DatabaseError) -> BarnabasError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE
    if code in _BAD_FILE:
        return CorruptMetadata(f"{path} is damaged ({error})")
    if code == sqlite3.SQLITE_BUSY:
        return DirectoryLocked(f"{path} is in use by another process; stop that process first")
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(operation, path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    return DiskFailed(operation, path, OSError(errno.EIO, str(error)))
