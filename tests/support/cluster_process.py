"""`barnabas up --brokers` as a process: real brokers with a real ZooKeeper, on free ports of 127.0.0.1.

```python
with cluster_process(tmp_path) as process:
    process.wait_ready()
    client = BlockingClient(process.bootstrap)
    os.kill(process.pids[2], signal.SIGKILL)
```

It is ended by its process id, and ends what it started. What it says is in `DIRECTORY/out` and `DIRECTORY/err`.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.kafka import wait_until

COMMAND = (sys.executable, "-m", "barnabas.cli.main")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
STOP_SECONDS_MAX = 120
_READY = re.compile(r"\(\d+ brokers?\) is ready on (\S+); data in ")
_ROW = re.compile(r"^ *(\d+)  (\S+) +(\d+)  ready$", re.MULTILINE)


class ClusterProcess:
    def __init__(self, directory: Path, *options: str, brokers: int = 3) -> None:
        self.brokers = brokers
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
        wait_until(lambda: len(self.pids) == self.brokers or self._process.poll() is not None, "the cluster")
        assert self._process.poll() is None, self.log[-3000:]

    @property
    def bootstrap(self) -> str:
        found = _READY.search(self.said)
        assert found, self.said
        return found[1]

    @property
    def addresses(self) -> dict[int, str]:
        """By broker id."""
        return {int(number): address for number, address, _ in _ROW.findall(self.said)}

    @property
    def pids(self) -> dict[int, int]:
        """Of the brokers, as they were started first."""
        return {int(number): int(pid) for number, _, pid in _ROW.findall(self.said)}

    def wait_for_line(self, text: str) -> None:
        wait_until(lambda: text in self.log, text)

    def wait_ended(self) -> int:
        return self._process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """The command alone."""
        self._process.kill()
        self.wait_ended()

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
    process = ClusterProcess(directory, *options, brokers=brokers)
    try:
        yield process
    finally:
        process.end()


def described(bootstrap: str) -> dict[str, Any]:
    """What `barnabas cluster describe` says."""
    command = [*COMMAND, "cluster", "describe", "--json", "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    view: dict[str, Any] = json.loads(done.stdout)
    return view


def is_whole(bootstrap: str, brokers: int = 3) -> bool:
    """Whether all brokers answer, and lead all partitions."""
    view = described(bootstrap)
    leads = [broker["leads"] for broker in view["brokers"] if broker["answers"]]
    return len(leads) == brokers and sum(leads) == view["partitions"] and view["offline"] == []
