"""How long a broker keeps one connection waiting while another one asks for something big.

```python
with LongestWait(broker.bootstrap) as wait:
    side.ask(...)                  # whatever might hold the broker's event loop
assert wait.seconds < WAIT_SECONDS_MAX
```

A process of its own asks for the cheapest answer there is, over and over, so that neither the test nor its interpreter
can make it wait; it tells the longest round trip. `longest_callback` measures the same from the inside, precisely: the
processor time that the longest single callback of an asyncio loop took in this thread, whatever else the machine does.
"""

import asyncio
import gc
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas.wire.apis import ApiKey
from barnabas.wire.framing import request_start

WAIT_SECONDS_MAX = 0.5
"""The rule is 10 ms; two cores that run a whole test-suite add hundreds, and what it guards against takes seconds."""

CALLBACK_SECONDS_MAX = 0.06
"""Of processor time, so that other work of the machine does not count. The rule is 10 ms; slow machines take more."""

_LENGTH = struct.Struct(">i")
_PAUSE_SECONDS = 0.001
_ROOT = Path(__file__).parents[2]


class LongestWait:
    """While the block runs, another client asks; afterwards `seconds` is the longest it had to wait."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.loop_waits", self._bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"asking\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        told, _ = self._process.communicate()
        self.seconds = float(told)


@dataclass
class LongestCallback:
    """The callback that took most of the loop's thread so far."""

    seconds: float = 0.0
    name: str = ""


@contextmanager
def longest_callback() -> Iterator[LongestCallback]:
    """Watches every callback of asyncio's own loop (not of uvloop's) in this process while the block runs.

    Python's collector of garbage rests meanwhile: it runs in the middle of anything, over all that the tests have made.
    """
    longest = LongestCallback()
    run = asyncio.Handle._run

    def measured(self: asyncio.Handle) -> None:
        began = time.thread_time()
        run(self)
        took = time.thread_time() - began
        if took > longest.seconds:
            longest.seconds, longest.name = took, repr(self)

    asyncio.Handle._run = measured  # type: ignore[method-assign]
    gc.disable()
    try:
        yield longest
    finally:
        gc.enable()
        asyncio.Handle._run = run  # type: ignore[method-assign]


def _longest_until_input_ends(bootstrap: str) -> float:
    host, _, port = bootstrap.rpartition(":")
    longest = 0.0
    with socket.create_connection((host, int(port))) as connection:
        request = request_start(ApiKey.API_VERSIONS, 0, 1, "longest-wait", 0)
        _ask(connection, request)
        print("asking", flush=True)
        while not select.select([sys.stdin], [], [], _PAUSE_SECONDS)[0]:
            began = time.perf_counter()
            _ask(connection, request)
            longest = max(longest, time.perf_counter() - began)
    return longest


def _ask(connection: socket.socket, request: bytes) -> None:
    connection.sendall(request)
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    _receive(connection, length)


def _receive(connection: socket.socket, count: int) -> bytes:
    received = connection.recv(count, socket.MSG_WAITALL)
    assert len(received) == count, "the broker has closed the connection"
    return received


if __name__ == "__main__":
    print(_longest_until_input_ends(sys.argv[1]))
