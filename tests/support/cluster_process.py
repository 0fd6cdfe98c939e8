"""`barnabas up --brokers` as a process, with the brokers and the ZooKeeper that it starts.

```python
with cluster_process(tmp_path, "--listen", "127.0.0.1:0") as process:
    process.wait_ready()
    BlockingClient(process.bootstrap)
```
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kafka import wait_until

COMMAND = (sys.executable, "-m", "barnabas.cli.main")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
STOP_SECONDS_MAX = 120
_READY = re.compile(r"\(\d+ brokers\) is ready on (\S+); data in ")
_ROW = re.compile(r"^ *(\d+)  (\S+) +(\d+)  ready$", re.MULTILINE)


class ClusterProcess:
    """What it says is in `DIRECTORY/out` and `DIRECTORY/err`."""

    def __init__(self, directory: Path, *options: str, brokers: int = 3) -> None:
        self._out, self._err = directory / "out", directory / "err"
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self._process = subprocess.Popen(
                [*COMMAND, "up", "--brokers", str(brokers), "--data-dir", str(directory / "data"), *options],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=ENVIRONMENT,
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    @property
    def log(self) -> str:
        return self._err.read_text()

    def wait_ready(self) -> None:
        wait_until(lambda: _ROW.search(self.said) or self._process.poll() is not None, "the cluster")
        assert self._process.poll() is None, self.log[-3000:]

    @property
    def bootstrap(self) -> str:
        found = _READY.search(self.said)
        assert found, self.said
        return found[1]

    @property
    def pids(self) -> dict[int, int]:
        """Of the brokers, as they were started first."""
        return {int(number): int(pid) for number, _, pid in _ROW.findall(self.said)}

    def wait_for_line(self, text: str) -> None:
        wait_until(lambda: text in self.log, text)

    def wait_ended(self) -> int:
        return self._process.wait(STOP_SECONDS_MAX)

    def stop(self) -> int:
        self._process.send_signal(signal.SIGINT)
        return self.wait_ended()

    def end(self) -> None:
        """However the test went, nothing stays behind: a second signal kills the brokers."""
        for _ in range(2):
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        finally:
            self._process.kill()


@contextmanager
def cluster_process(directory: Path, *options: str, brokers: int = 3) -> Iterator[ClusterProcess]:
    """Its data is in `DIRECTORY/data`."""
    process = ClusterProcess(directory, *options, brokers=brokers)
    try:
        yield process
    finally:
        process.end()
