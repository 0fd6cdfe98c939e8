"""The Pythons of this machine, and environments made with them."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

OLDEST = (3, 11)
_ASK = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
_ANSWER_SECONDS_MAX = 20


@cache
def pythons_at_hand() -> dict[tuple[int, int], Path]:
    """Every Python that Barnabas supports, one of each version, oldest first.

    They are looked for in `BARNABAS_PYTHONS`, on the path, and among pyenv's.
    """
    candidates = [Path(path) for path in os.environ.get("BARNABAS_PYTHONS", "").split(os.pathsep) if path]
    for directory in os.get_exec_path():
        candidates += sorted(Path(directory).glob("python3.[0-9][0-9]"))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += sorted(pyenv.glob("versions/*/bin/python3.[0-9][0-9]"))
    found: dict[tuple[int, int], Path] = {}
    for python in candidates:
        version = _version_of(python)
        if version is not None and version >= OLDEST:
            found.setdefault(version, python)
    return dict(sorted(found.items()))


def _version_of(python: Path) -> tuple[int, int] | None:
    """None where it does not start (pyenv's shims of versions that are not chosen), or cannot make environments."""
    try:
        answer = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=_ANSWER_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return None
    major, minor = map(int, answer.stdout.split())
    return major, minor


@dataclass(frozen=True)
class Environment:
    """A virtual environment; pip's cache of wheels is not used, or the second build would be the first one again."""

    directory: Path

    @classmethod
    def make(cls, python: Path, directory: Path) -> "Environment":
        subprocess.run([python, "-m", "venv", directory], check=True, capture_output=True)
        return cls(directory)

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def run(self, *command: str | Path, cwd: Path | None = None, **environment: str) -> str:
        """What it printed; AssertionError with all of it when it fails."""
        completed = subprocess.run(
            [self.python, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd or self.directory,
            env=environment_without_sources(environment),
        )
        assert completed.returncode == 0, completed.stdout
        return completed.stdout

    def pip(self, *arguments: str | Path, **environment: str) -> str:
        return self.run("-m", "pip", *arguments, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_COMPILE="1", **environment)


def environment_without_sources(more: dict[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what would show the source tree to an installation under test."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | (more or {})


def has_compiler() -> bool:
    return shutil.which(os.environ.get("CC", "cc").split()[0]) is not None
