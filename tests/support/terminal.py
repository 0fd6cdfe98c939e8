"""A command of `barnabas` on a terminal of 80 columns: what a person sees, types and is asked.

```python
with Terminal(bootstrap, "topic", "delete", "orders") as terminal:
    terminal.wait_for("[y/N]: ")
    terminal.type("n\\n")
    assert terminal.status() == 1
```
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

_PATIENCE_SECONDS = 180.0
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`seen` is everything so far, without colours. The process is killed at the end if it still runs."""

    def __init__(self, bootstrap: str, *arguments: str, columns: int = 80) -> None:
        self._arguments = arguments
        self._environment = {
            **os.environ,
            "BARNABAS_BOOTSTRAP": bootstrap,
            "COLUMNS": str(columns),
            "TERM": "xterm",
        }
        self.seen = ""

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        command = [sys.executable, "-m", "barnabas.cli.main", *self._arguments]
        # A session of its own, whose terminal this is: so Ctrl-C reaches the process as a signal.
        self._process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command], env=self._environment, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(_PATIENCE_SECONDS)
        os.close(self._master)

    def wait_for(self, text: str, times: int = 1) -> None:
        """Until the text has been printed so often; AssertionError when it never is."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while self.seen.count(text) < times:
            assert self._read(until), f"{text!r} never came; this did:\n{self.seen}"

    def type(self, typed: str) -> None:
        """`\\x03` is Ctrl-C, `\\x04` Ctrl-D."""
        os.write(self._master, typed.encode())

    def status(self) -> int:
        """The exit status, once the process has ended and everything was read."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while self._read(until):
            pass
        return self._process.wait(_PATIENCE_SECONDS)

    def _read(self, until: float) -> bool:
        poll = select.poll()  # select() takes no descriptor from 1024 on
        poll.register(self._master, select.POLLIN)
        try:
            data = os.read(self._master, 1 << 16) if poll.poll(max(0.0, until - time.monotonic()) * 1000) else b""
        except OSError:  # nobody has the other end open any more
            data = b""
        self.seen += _STYLE.sub("", data.decode()).replace("\r\n", "\n")
        return bool(data)
