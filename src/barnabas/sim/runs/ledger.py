"""The state of a long run: a line of JSON for each history, appended when it is over.

A seed is done when a line has it with the same sources and number of brokers: after a change of the code under test all
seeds are run again, those first that failed before. `is_any_source` counts what earlier sources did, too.

A run that is killed loses the histories that were under way. A last line that is torn is skipped.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final, TextIO

import barnabas
from barnabas.base.errors import BarnabasError
from barnabas.sim.runs.verdicts import Verdict

_PACKAGES: Final = (
    *("base", "wire", "records", "storage", "metadata", "net"),
    *("replication", "groups", "broker", "client", "sim"),
)
"""What takes part in a history."""
_SOURCES: Final = (".py", ".so")


class StateUnusable(BarnabasError):  # noqa: N818 - named as the fact that it is
    """The state file cannot be read or written."""


class Ledger:
    def __init__(self, path: Path, sources: str, brokers: int, *, is_any_source: bool = False) -> None:
        self.done: dict[int, Verdict] = {}
        self.failed_before: set[int] = set()
        """Seeds that failed with other sources, and were not run with these."""
        self._path = path
        self._same = {"sources": sources, "brokers": brokers}
        self._file: TextIO | None = None
        for line in self._lines():
            if line.get("brokers") != brokers:
                continue
            verdict = Verdict.from_json(line)
            if is_any_source or line.get("sources") == sources:
                self.done[verdict.seed] = verdict
            elif verdict.problems:
                self.failed_before.add(verdict.seed)
        self.failed_before -= self.done.keys()

    def __enter__(self) -> "Ledger":
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            earlier = self._path.read_bytes() if self._path.exists() else b""
            self._file = self._path.open("a", encoding="utf-8")
            if earlier and not earlier.endswith(b"\n"):
                self._file.write("\n")
        except OSError as error:
            raise StateUnusable(f"cannot write {self._path}: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, verdict: Verdict) -> None:
        assert self._file is not None, "only within `with`"
        self.done[verdict.seed] = verdict
        self._file.write(json.dumps(self._same | verdict.to_json()) + "\n")
        self._file.flush()

    def _lines(self) -> Iterator[dict[str, object]]:
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateUnusable(f"cannot read {self._path}: {error.strerror}") from error
        for line in text.splitlines():
            try:
                content = json.loads(line)
            except ValueError:
                continue
            if isinstance(content, dict) and "seed" in content:
                yield content


def sources_digest() -> str:
    """Of all code that takes part in a history, compiled parts included."""
    root = Path(barnabas.__file__).parent
    digest = sha256()
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in _SOURCES and not path.is_relative_to(root / "sim" / "runs"):
                digest.update(f"{path.relative_to(root)} {sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]
