"""How long a broker keeps one connection waiting while another one asks for something big.

```python
assert_nobody_waits(broker.bootstrap, lambda: side.ask(...))  # what might hold the broker's event loop
```

A process of its own asks for the cheapest answer there is, over and over, so that neither the test nor its interpreter
can make it wait; it tells the longest round trip. A busy machine makes it wait by chance, so that the work is done
again when the wait was long: only what is long each time is the broker's fault. `longest_callback` measures the same
from the inside, precisely: the processor time that the longest single callback of an asyncio loop took in this thread,
whatever else the machine does.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from barnabas.wire.apis import ApiKey
from barnabas.wire.framing import request_start
from tests.support.loop_turns import TRIES

WAIT_SECONDS_MAX = 0.5
"""The rule is 10 ms; two cores that run a whole test-suite add hundreds, and what it guards against takes seconds."""

CALLBACK_SECONDS_MAX = 0.06
"""Of processor time, so that other work of the machine does not count. The rule is 10 ms; slow machines take more."""

_LENGTH = struct.Struct(">i")
_PAUSE_SECONDS = 0.001
_ROOT = Path(__file__).parents[2]


def assert_nobody_waits(bootstrap: str, work: Callable[[], object]) -> None:
    """While the work is done, another client asks: in one of a few tries at least it never waits for long."""
    waits = []
    for _ in range(TRIES):
        waits.append(_longest_wait(bootstrap, work))
        if waits[-1] < WAIT_SECONDS_MAX:
            return
    raise AssertionError(f"another client waited for {waits} seconds")


def _longest_wait(bootstrap: str, work: Callable[[], object]) -> float:
    command = [sys.executable, "-m", "tests.support.loop_waits", bootstrap]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"asking\n"
        try:
            work()
        finally:
            told, _ = process.communicate()
    return float(told)


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
