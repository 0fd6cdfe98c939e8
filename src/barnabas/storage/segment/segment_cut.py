"""What the disk must still do after a segment was cut in memory."""

from contextlib import closing
from dataclasses import dataclass

from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import File, FileSystem


@dataclass(frozen=True, slots=True)
class SegmentCut:
    """Made by `Segment.cut_to`. Until it has run, the files hold more than the segment."""

    index_bytes: tuple[tuple[str, int], ...]
    """The paths of the indexes, and what is left of each."""
    log_path: str
    log_bytes: int

    def run(self, files: FileSystem) -> File:
        """Shortens the files: the indexes first, because an entry must not point past the log.

        Returns the log's file, open. The caller syncs it before other records are written there, else a crash could mix
        pages of the old bytes with pages of the new ones.
        """
        for path, left_bytes in self.index_bytes:
            with closing(files.open(path, write=True)) as index:
                _shorten(index, left_bytes)
        log = files.open(self.log_path, write=True)
        try:
            _shorten(log, self.log_bytes)
        except DiskFailed:
            log.close()
            raise
        return log


def _shorten(file: File, left_bytes: int) -> None:
    if file.size() > left_bytes:
        file.truncate(left_bytes)
