"""`barnabas up` as a process of its own: for what only a process can show, such as its death and its memory.

```python
with BrokerProcess(tmp_path) as process:
    process.kill()       # SIGKILL
    process.start()      # on the same data and the same port
```

It is ended by its process id only. Its output is in `DIRECTORY/broker.log`.
"""

import mmap
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Self

START_TIMEOUT_SECONDS = 180
STOP_TIMEOUT_SECONDS = 180

_UNCOMPILED = """
import sys
for name in ("records._kernel", "wire._produce", "wire._fetch", "wire._commit", "net._framed_range"):
    sys.modules["barnabas." + name] = None
from barnabas.cli.main import main
main()
"""
_READY = re.compile(r"is ready on (\S+?:\d+)[;\s]")
_METRICS_PORT = re.compile(r"metrics on port (\d+)")


class BrokerProcess:
    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        data: Path | None = None,
        *,
        is_compiled: bool = True,
    ) -> None:
        """Without `is_compiled` it runs as where no C compiler was at hand."""
        self._program = ["-m", "barnabas.cli.main"] if is_compiled else ["-c", _UNCOMPILED]
        self.data_directory = data or directory / "data"
        self.log_file = directory / "broker.log"
        self.bootstrap = "127.0.0.1:0"
        self.metrics_port = 0
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(signal.SIGTERM if error is None else signal.SIGKILL)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    @property
    def resident_bytes(self) -> int:
        statistics = Path(f"/proc/{self.pid}/statm").read_text()
        return int(statistics.split()[1]) * mmap.PAGESIZE

    def start(self) -> None:
        """Returns when clients are served."""
        assert self._process is None, "the broker runs already"
        command = [sys.executable, *self._program, "up", "--listen", self.bootstrap]
        command += ["--data-dir", str(self.data_directory), "--metrics-port", str(self.metrics_port)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        written_before = self.log_file.stat().st_size if self.log_file.exists() else 0
        with open(self.log_file, "ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            said = self.log_file.read_bytes()[written_before:].decode("utf-8", "replace")
            ready = _READY.search(said)
            if ready is not None:
                self.bootstrap = ready[1]
                if metrics := _METRICS_PORT.search(said):
                    self.metrics_port = int(metrics[1])
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the broker did not start: {said[-2000:]}")
            time.sleep(0.01)

    def http(self, path: str) -> tuple[int, str]:
        """Status and body of what the metrics' port answers."""
        connection = HTTPConnection("127.0.0.1", self.metrics_port, timeout=STOP_TIMEOUT_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def stop(self) -> None:
        """A clean stop, which must succeed."""
        assert self._end(signal.SIGTERM) == 0, self.log_file.read_text()[-2000:]

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, signal_number: signal.Signals) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal_number)
        try:
            return process.wait(STOP_TIMEOUT_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
