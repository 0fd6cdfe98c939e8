"""What must be synced for a log to be durable up to an offset, gathered by its owner and run by a worker thread.

The plan opens its own descriptors, so that it shares nothing with the owner while it runs. The data of every dirty
segment is synced; its indexes only once it is complete, because recovery checks and rebuilds those of the segment that
the recovery point lies in. The leader epochs are written before the recovery point may pass the records they name.
"""

from barnabas.base.filesystem import File, FileSystem
from barnabas.base.ids import Offset
from barnabas.storage.checkpoints import write_leader_epochs
from barnabas.storage.epochs import EpochEntry


class FlushPlan:
    """Made by `Log.plan_flush`, run once anywhere, given back to `Log.finish_flush`."""

    __slots__ = ("_files", "_opened", "directory", "end_offset", "epochs", "epochs_path", "truncations")

    def __init__(self, files: FileSystem, end_offset: Offset, truncations: int) -> None:
        self._files = files
        self._opened: list[File] = []
        self.end_offset = end_offset
        self.truncations = truncations
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
            if self.epochs is not None:
                write_leader_epochs(self._files, self.epochs_path, self.epochs)
            if self.directory is not None:
                self._files.sync_directory(self.directory)
        finally:
            for file in self._opened:
                file.close()
