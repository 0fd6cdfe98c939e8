"""Which calls to a simulated disk fail, and with which errno. A plan is data: asking is what uses it up."""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

Operation: TypeAlias = Literal[
    "allocate",
    "create",
    "list",
    "lock",
    "map",
    "open",
    "prefetch",
    "read",
    "remove",
    "rename",
    "stat",
    "sync",
    "sync_directory",
    "truncate",
    "write",
]


@dataclass(slots=True)
class _Fault:
    """Lets some matching calls pass, then fails some of them (None: all)."""

    errno: int
    operations: frozenset[str]
    path_pattern: str
    passes_left: int
    failures_left: int | None

    def strikes(self, operation: Operation, path: str) -> bool:
        if self.operations and operation not in self.operations:
            return False
        if not fnmatchcase(path, self.path_pattern):
            return False
        if self.passes_left:
            self.passes_left -= 1
            return False
        if self.failures_left is not None:
            self.failures_left -= 1
        return True

    @property
    def is_spent(self) -> bool:
        return self.failures_left == 0


class FaultPlan:
    def __init__(self) -> None:
        self._faults: list[_Fault] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    def add(
        self,
        errno: int,
        *,
        after_calls: int,
        operations: Collection[Operation],
        path_pattern: str,
        times: int | None,
    ) -> None:
        assert times is None or times > 0
        self._faults.append(_Fault(errno, frozenset(operations), path_pattern, after_calls, times))

    def clear(self) -> None:
        self._faults.clear()

    def errno_of(self, operation: Operation, path: str) -> int | None:
        """The errno this call is to fail with, if it is. The fault added first strikes first."""
        for fault in self._faults:
            if fault.strikes(operation, path):
                if fault.is_spent:
                    self._faults.remove(fault)
                return fault.errno
        return None
