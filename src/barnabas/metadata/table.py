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
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final, Protocol

from barnabas.base.errors import BarnabasError, DirectoryLocked, DiskFailed, DiskFull
from barnabas.base.filesystem import FileSystem, make_durable_directory
from barnabas.metadata.errors import CorruptMetadata
from barnabas.metadata.store import NO_OWNER
from barnabas.metadata.tree import Tree, TreeNode

FILE_NAME: Final = "barnabas-metadata.db"
LOCK_NAME: Final = "barnabas-metadata.lock"
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


class NodeTable(Protocol):
    def load(self) -> Tree:
        """Everything that was committed."""
        ...

    def commit(self, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
        """Makes all of it durable, or nothing. None removes a node. Blocks until the disk has it."""
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

    def close(self) -> None:
        """Nothing to give back."""


class SqliteTable:
    """The file in a directory, locked against every other process from opening to closing."""

    def __init__(self, directory: str, files: FileSystem) -> None:
        self.path = os.path.join(directory, FILE_NAME)
        make_durable_directory(files, directory)
        self._lock = files.lock(os.path.join(directory, LOCK_NAME))
        try:
            if not files.exists(self.path):
                self._make(files, directory)
            self._connection = self._connect()
        except BaseException:
            self._lock.release()
            raise

    def load(self) -> Tree:
        with self._translating("read"):
            zxid = self._connection.execute("SELECT zxid FROM state").fetchone()[0]
            rows = self._connection.execute(
                "SELECT path, data, version, czxid, mzxid, pzxid, created_ms, modified_ms, children_created FROM node"
            ).fetchall()
        return Tree(zxid, {row[0]: TreeNode(*row[1:]) for row in rows})

    def commit(self, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
        kept = []
        removed = []
        for path, node in nodes.items():
            if node is None or node.owner != NO_OWNER:
                removed.append((path,))
            else:
                kept.append((path, *node[:-1]))
        with self._translating("write"):
            execute = self._connection.execute
            execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany("DELETE FROM node WHERE path = ?", removed)
                self._connection.executemany("INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", kept)
                execute("UPDATE state SET zxid = ?", (zxid,))
                execute("COMMIT")
            except sqlite3.Error:
                if self._connection.in_transaction:
                    execute("ROLLBACK")
                raise

    def close(self) -> None:
        try:
            with self._translating("close"):
                self._connection.close()
        finally:
            self._lock.release()

    def _make(self, files: FileSystem, directory: str) -> None:
        """An empty file under another name, without a sync until it is complete: half the time of a first start."""
        unfinished = self.path + ".new"
        for leftover in (unfinished, unfinished + "-wal", unfinished + "-shm"):
            files.remove(leftover)
        with self._translating("create"), closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
        file = files.open(unfinished, write=True)
        try:
            file.sync()
        finally:
            file.close()
        files.rename(unfinished, self.path)
        files.sync_directory(directory)

    def _connect(self) -> sqlite3.Connection:
        with self._translating("open"):
            # Transactions are explicit (`isolation_level`), and a worker thread commits what this one opened.
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            try:
                # Nobody else may have the file, so its index need not be shared: no `-shm` file.
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version != FORMAT_VERSION:
                    raise CorruptMetadata(
                        f"{self.path} has format version {version}, but this Barnabas reads {FORMAT_VERSION} only"
                    )
            except BaseException:
                connection.close()
                raise
        return connection

    @contextmanager
    def _translating(self, operation: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.ProgrammingError, sqlite3.IntegrityError):  # ours, not the disk's
            raise
        except sqlite3.DatabaseError as error:
            raise self._meaning(operation, error) from error

    def _meaning(self, operation: str, error: sqlite3.DatabaseError) -> BarnabasError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE
        if code in _BAD_FILE:
            return CorruptMetadata(f"{self.path} is damaged ({error}); restore it from a backup")
        if code == sqlite3.SQLITE_BUSY:
            return DirectoryLocked(f"{self.path} is in use by another process; stop that process first")
        if code == sqlite3.SQLITE_FULL:
            return DiskFull(operation, self.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return DiskFailed(operation, self.path, OSError(errno.EIO, str(error)))
