"""Processes with all that they start: `barnabas pipeline run` with its JVM and Python workers, or a node of Spark's.

```python
with PipelineProcess(file) as process:
    process.wait_until(lambda: ..., "batch 3 is logged")
    process.kill()                     # SIGKILL: driver, JVM, every worker
```

The JVM runs in a session of its own, and Spark's workers in groups of theirs, so no signal to one group reaches them
all. What belongs to a tree is known by a variable that its processes inherit; each is ended by its own process id.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.kafka import PROJECT_DIRECTORY

WAIT_SECONDS: Final = 600
RUN_SECONDS_MAX: Final = 900
_MARK: Final = "BARNABAS_TEST_RUN"
_POLL_SECONDS: Final = 0.002
_NO_VARIABLES: Final[Mapping[str, str]] = {}


class Victim(Enum):
    """Which of a run's processes SIGKILL hits; the others must notice by themselves."""

    ALL = "all"
    DRIVER = "driver"
    JVM = "jvm"


class ProcessTree:
    """A command that runs, and what it started. Leaving the `with` block kills what is left of it."""

    def __init__(self, command: Sequence[str], log_file: Path, variables: Mapping[str, str] = _NO_VARIABLES) -> None:
        self.log_file = log_file
        self._mark = uuid.uuid4().hex
        environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path), _MARK: self._mark}
        with open(log_file, "wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=PROJECT_DIRECTORY,
                env=environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def said(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Looks again and again, closely: the moment matters."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not is_so():
            assert self.is_running, f"it ended before this: {what}\n{self.said[-4000:]}"
            assert time.monotonic() < deadline, f"not in {WAIT_SECONDS} s: {what}\n{self.said[-4000:]}"
            time.sleep(_POLL_SECONDS)

    def wait(self) -> int:
        """The exit status of a command that ends by itself, when nothing of it is left."""
        status = self._process.wait(RUN_SECONDS_MAX)
        self._await_end()
        return status

    def terminate(self) -> int:
        """SIGTERM to the process group, as a terminal or a service manager does it; the exit status."""
        os.killpg(self._process.pid, signal.SIGTERM)
        return self.wait()

    def kill(self, victim: Victim = Victim.ALL) -> None:
        """SIGKILL; returns when no process of the tree is left."""
        match victim:
            case Victim.DRIVER:
                self._process.kill()
            case Victim.JVM:
                for process_id in self.members():
                    if _name_of(process_id) == "java":
                        _kill(process_id)
            case Victim.ALL:
                # Whoever was forked while we looked is found the next time.
                while members := self.members():
                    for process_id in members:
                        _kill(process_id)
                    self._process.poll()
        self._process.wait(WAIT_SECONDS)
        self._await_end()

    def members(self) -> list[int]:
        """Living processes of the tree, the first one first."""
        marked = f"{_MARK}={self._mark}".encode()
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    if marked in Path(f"/proc/{entry}/environ").read_bytes():
                        found.append(int(entry))
                except (FileNotFoundError, ProcessLookupError, PermissionError):
                    continue  # it ended meanwhile, or is not ours
        return sorted(found, key=lambda process_id: (process_id != self._process.pid, process_id))

    def _await_end(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while members := self.members():
            assert time.monotonic() < deadline, f"{[_name_of(one) for one in members]} outlive their tree"
            time.sleep(0.02)


class PipelineProcess(ProcessTree):
    """One `barnabas pipeline run`. What it says is in `run-N.log` beside the pipeline's file."""

    def __init__(self, file: Path, *options: str, master: str = "local[2,4]") -> None:
        command = [sys.executable, "-m", "barnabas.cli.main", "pipeline", "run", str(file), "--master", master]
        log_file = next(name for number in count(1) if not (name := file.parent / f"run-{number}.log").exists())
        super().__init__([*command, *options], log_file)


def _kill(process_id: int) -> None:
    try:
        os.kill(process_id, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself


def _name_of(process_id: int) -> str:
    try:
        return Path(f"/proc/{process_id}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
