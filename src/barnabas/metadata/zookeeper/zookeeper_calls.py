"""What a session asks of ZooKeeper: reads and writes, before they are kazoo's. Pure."""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from barnabas.base.errors import BarnabasError
from barnabas.metadata.errors import InvalidPath, NodeExists
from barnabas.metadata.limits import check_size
from barnabas.metadata.paths import ROOT, check_path, sequential_path
from barnabas.metadata.store import Create, Delete, Operation


class ReadKind(enum.Enum):
    DATA = "a `Node`"
    EXISTENCE = "a `Stat`, or None"
    CHILDREN = "sorted names"


@dataclass(frozen=True, slots=True)
class ReadCall:
    kind: ReadKind
    path: str
    is_watched: bool = False


@dataclass(frozen=True, slots=True)
class WriteCall:
    operations: Sequence[Operation]


Call: TypeAlias = ReadCall | WriteCall
Reply: TypeAlias = Callable[[Any | BarnabasError], None]
"""Called with the result, or with the error."""


def checked_write(operations: Sequence[Operation]) -> WriteCall:
    """Raises for what no server should be sent: ZooKeeper would close the connection, or do something else."""
    for operation in operations:
        is_sequential = isinstance(operation, Create) and operation.sequential
        check_path(sequential_path(operation.path, 0) if is_sequential else operation.path)
        if operation.path == ROOT and isinstance(operation, Delete):
            raise InvalidPath(ROOT, "the root cannot be deleted")
        if operation.path == ROOT and isinstance(operation, Create) and not is_sequential:
            raise NodeExists(ROOT)
    check_size(operations)
    return WriteCall(operations)
