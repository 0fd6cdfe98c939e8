"""A metadata table in memory that refuses commits when a test wants it to."""

from collections.abc import Mapping

from barnabas.base.errors import DiskFailed
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.tree import TreeNode


class RefusingTable(MemoryTable):
    """Refuses commits with the error that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.error: DiskFailed | None = None
        self.commits = 0

    def commit(self, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
        if self.error is not None:
            raise self.error
        self.commits += 1
        super().commit(zxid, nodes)
