"""Partitions that leave a log directory, many of them at once.

```
owner                                     worker                                    owner
out of service, closed          ──>       checkpoints lowered, once         ──>     doomed: their files go after a delay
checkpoints prepared                      each directory renamed
                                          the log directory synced, once
```

When the job has finished, the disk no longer has the names, so partitions of the same names can be created.
Crash: a directory has its old name or its new one; in either case the checkpoints no longer have the partition.
Failure: what could not be renamed is served again, if its log directory is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.filesystem import FileSystem
from barnabas.base.ids import TopicPartition
from barnabas.storage.directories.directory import LogDirectory
from barnabas.storage.log.log import Log
from barnabas.storage.work import Job


@dataclass(slots=True)
class Leaving:
    """A partition that is out of service, and on its way out of its directory."""

    partition: TopicPartition
    log: Log | None
    problem: BarnabasError | None
    """Why there is no log."""
    path: str
    """Of its directory, until the files are removed."""
    is_renamed: bool = False

    def put_back(self, directory: LogDirectory, error: DiskFailed) -> None:
        """After a failed deletion. A log that was being cut is half changed, and is reopened."""
        if self.log is not None:
            directory.logs[self.partition] = self.log
            if self.log.is_truncating:
                directory.suspend(self.log, error)
        elif self.problem is not None:
            directory.unopened[self.partition] = self.problem


def deletion_of(
    files: FileSystem,
    directory: LogDirectory,
    leaving: Sequence[Leaving],
    *,
    lower: Callable[[], None],
    on_gone: Callable[[Leaving], None],
    on_failure: Callable[[DiskFailed], None],
) -> Job[None]:
    """`lower` makes the checkpoints forget the partitions; `on_gone` is called for each whose name is free."""

    def run() -> None:
        lower()
        for one in leaving:
            files.rename(directory.path_of(one.partition), one.path)
            one.is_renamed = True
        files.sync_directory(directory.path)

    def finish(_: None) -> None:
        for one in leaving:
            on_gone(one)

    def failed(error: DiskFailed) -> None:
        on_failure(error)
        for one in leaving:
            if one.is_renamed:
                on_gone(one)
            elif directory.is_online:
                one.put_back(directory, error)

    names = [str(one.partition) for one in leaving]
    title = f"delete {names[0]}" if len(names) == 1 else f"delete {names[0]} and {len(names) - 1} more"
    return Job(title, run=run, finish=finish, failed=failed)
