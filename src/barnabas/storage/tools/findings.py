"""What a check of files found, each with its exact place. Pure."""

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.base.ids import Offset, Position

_PER_FILE_MAX: Final = 20
"""A file that is nothing but damage must not fill the memory with sentences about it."""


class Severity(Enum):
    ERROR = "error"
    """An invariant is broken: records, or the way to them, are lost until it is repaired."""
    NOTE = "note"
    """Worth knowing, and nothing is wrong: what a crash leaves, opening the log puts in order."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`position` is where in the file, `offset` which record or batch is concerned, where there is one."""

    severity: Severity
    path: str
    problem: str
    position: Position | None = None
    offset: Offset | None = None

    @property
    def place(self) -> str:
        parts = [self.path]
        if self.position is not None:
            parts.append(f"position {self.position}")
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        return ", ".join(parts)

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


class Findings:
    """Gathers findings; of each file and severity the first twenty are kept, and all are counted."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._counts: Counter[tuple[str, Severity]] = Counter()

    def error(self, path: str, problem: str, *, position: Position | None = None, offset: Offset | None = None) -> None:
        self._add(Finding(Severity.ERROR, path, problem, position, offset))

    def note(self, path: str, problem: str, *, position: Position | None = None, offset: Offset | None = None) -> None:
        self._add(Finding(Severity.NOTE, path, problem, position, offset))

    def _add(self, finding: Finding) -> None:
        key = finding.path, finding.severity
        self._counts[key] += 1
        if self._counts[key] <= _PER_FILE_MAX:
            self._kept.append(finding)

    @property
    def error_count(self) -> int:
        return sum(count for (_, severity), count in self._counts.items() if severity is Severity.ERROR)

    def all(self) -> list[Finding]:
        """Everything kept, and for each file that had more, how many."""
        more = [
            Finding(severity, path, f"and {count - _PER_FILE_MAX} more")
            for (path, severity), count in self._counts.items()
            if count > _PER_FILE_MAX
        ]
        return [*self._kept, *more]
