"""Files without syncs: a test's data need not survive a power loss, only the process, at most."""

from barnabas.base.filesystem import LocalFile, LocalFileSystem


class UnsyncedFile(LocalFile):
    __slots__ = ()

    def sync(self) -> None:
        """The operating system has it; that is enough."""


class UnsyncedFileSystem(LocalFileSystem):
    """The operating system's files without waiting for the disk."""

    file_class = UnsyncedFile

    def sync_directory(self, directory: str) -> None:
        """The operating system has it; that is enough."""
