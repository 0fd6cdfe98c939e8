"""What must be synced for a log to be durable up to an offset, gathered by its owner and run by a worker thread.

The plan opens its own descriptors, so that it shares nothing with the owner while it runs. The data of every dirty
segment is synced; its indexes only once it is complete, because recovery checks and rebuilds those of the segment that
the recovery point lies in. The leader epochs are written before the recovery point may pass the records they name.

Two steps go by name, the leader epochs and the names in the directory. Their owner cancels them before it truncates,
moves or closes the log under a plan that still runs: a cancelled step is not taken, and never taken later.
"""

from threading import Lock

from barnabas.base.filesystem import File, FileSystem
from barnabas.base.ids import Offset
from barnabas.storage.checkpoints import write_leader_epochs
from barnabas.storage.epochs import EpochEntry


class FlushPlan:
    """Made by `Log.plan_flush`, run once anywhere, given back to `Log.finish_flush` or `Log.abandon_flush`."""

    __slots__ = (
        "_files",
        "_lock",
        "_opened",
        "directory",
        "end_offset",
        "epochs",
        "epochs_path",
        "is_cancelled",
        "messages",
        "snapshots",
        "truncations",
    )

    def __init__(self, files: FileSystem, end_offset: Offset, truncations: int) -> None:
        self._files = files
        self._opened: list[File] = []
        self._lock = Lock()
        self.is_cancelled = False
        self.end_offset = end_offset
        self.truncations = truncations
        self.messages = 0
        self.snapshots: tuple[Offset, ...] = ()
        self.epochs_path = ""
        self.epochs: tuple[EpochEntry, ...] | None = None
        self.directory: str | None = None

    def add_file(self, path: str) -> None:
        self._opened.append(self._files.open(path, write=True))

    def write_epochs(self, path: str, entries: tuple[EpochEntry, ...]) -> None:
        self.epochs_path = path
        self.epochs = entries

    def sync_names(self, directory: str) -> None:
        """Files were made since the last flush: their names must become durable too."""
        self.directory = directory

    def run(self) -> None:
        """Blocks until the disk has everything."""
        try:
            for file in self._opened:
                file.sync()
            with self._lock:
                if not self.is_cancelled:
                    self._store_names()
        finally:
            self.close()

    def _store_names(self) -> None:
        if self.epochs is not None:
            write_leader_epochs(self._files, self.epochs_path, self.epochs)
        if self.directory is not None:
            self._files.sync_directory(self.directory)

    def cancel(self) -> None:
        """For the owner, at any time. Waits for a step that has begun, which is as long as one small file takes."""
        with self._lock:
            self.is_cancelled = True

    def close(self) -> None:
        """Gives back the descriptors, run or not."""
        opened, self._opened = self._opened, []
        for file in opened:
            file.close()
