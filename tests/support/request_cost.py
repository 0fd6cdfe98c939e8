"""What requests cost a broker, counted exactly: Python frames entered, memory allocated, system calls.

The broker runs on uvloop in a thread of its own, as `barnabas up` does, and the client sends one request after the
other from the test's thread, so that all that happens on the loop's thread is the broker's. It does not stay awake
after a request (`network.awake.us` is 0): how often it looks for the next one depends on the machine.

```python
with ServedThread(tmp_path) as served, served.client() as client:
    frames = served.frames_entered(client, requests)      # for each of the requests
```
"""

import asyncio
import ctypes
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

import uvloop

from barnabas.wire.primitives import INT32
from tests.support.broker_parts import ServedBroker, served_broker

_TIMEOUT_SECONDS = 120
_ALLOCATIONS_SOURCE = Path(__file__).with_name("allocations.c")


class CannotCount(Exception):  # noqa: N818
    """Something is missing on this machine; the message says what."""


class Client:
    """A connection that sends a frame and takes its reply."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, frame: bytes) -> memoryview:
        self._socket.sendall(frame)
        return self.receive()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        (length,) = INT32.unpack(self._exactly(INT32.size))
        return self._exactly(length)

    def _exactly(self, length: int) -> memoryview:
        room = memoryview(bytearray(length))
        missing = room
        while missing:
            count = self._socket.recv_into(missing)
            assert count, "the broker closed the connection"
            missing = missing[count:]
        return room

    def close(self) -> None:
        self._socket.close()


Ask = Callable[[], object]
"""Sends one request, and returns when it is answered."""


class ServedThread:
    """A broker in a thread, and counters of what happens there."""

    broker: ServedBroker

    def __init__(self, directory: Path, **settings: str) -> None:
        self._directory = directory
        self._settings = {"network_awake_us": "0", **settings}
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._serve()), name="broker")

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with served_broker(self._directory, **self._settings) as self.broker:
            self._is_ready.set()
            await self._stop.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(_TIMEOUT_SECONDS), "the broker did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_TIMEOUT_SECONDS)

    @contextmanager
    def client(self) -> Iterator[Client]:
        client = Client(int(self.broker.broker.bootstrap.rpartition(":")[2]))
        try:
            yield client
        finally:
            client.close()

    def run(self, work: Callable[[], Any]) -> Any:
        """Calls something on the loop's thread, and returns what it returns."""

        async def call() -> Any:
            result = work()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(_TIMEOUT_SECONDS)

    def settle(self) -> None:
        """Waits until what the last request has left to do is done. Enters no Python frame on the loop's thread."""
        for _ in range(3):  # what was called soon may itself call something soon
            passed = threading.Lock()
            passed.acquire()
            self._loop.call_soon_threadsafe(passed.release)
            assert passed.acquire(timeout=_TIMEOUT_SECONDS)

    def frames_entered(self, ask: Ask, times: int) -> list[int]:
        """Python functions called, generators and coroutines resumed, for each of the requests."""
        entered = 0

        def profile(frame: FrameType, event: str, argument: object) -> None:
            nonlocal entered
            if event == "call":
                entered += 1

        def differences() -> Iterator[int]:
            for _ in range(times):
                self.settle()
                before = entered
                ask()
                self.settle()
                yield entered - before

        self._loop.call_soon_threadsafe(sys.setprofile, profile)
        counted = list(differences())
        self._loop.call_soon_threadsafe(sys.setprofile, None)
        self.settle()
        return counted

    def allocations(self, ask: Ask, times: int, library: Path) -> list[int]:
        """Calls of Python's allocators, for each of the requests. `library` is what `compile_allocations` made."""
        counter = ctypes.PyDLL(str(library))
        counter.allocations_counted.restype = ctypes.c_long
        own = usual(self._allocations_of(counter, times, lambda: None))
        return [total - own for total in self._allocations_of(counter, times, ask)]

    def _allocations_of(self, counter: ctypes.PyDLL, times: int, ask: Ask) -> list[int]:
        """With those of counting itself."""
        marks: list[int] = []

        def mark() -> None:
            marks.append(counter.allocations_counted())

        self.run(lambda: counter.allocations_count(1))
        for _ in range(times):
            self.settle()
            self._loop.call_soon_threadsafe(mark)
            self.settle()
            ask()
            self.settle()
            self._loop.call_soon_threadsafe(mark)
            self.settle()
        self.run(lambda: counter.allocations_count(0))
        return [after - before for before, after in zip(marks[::2], marks[1::2], strict=True)]

    def blocks_kept(self, ask: Ask, times: int) -> int:
        """By how many allocated blocks the process has grown after so many requests."""
        self.settle()
        before = sys.getallocatedblocks()
        for _ in range(times):
            ask()
        self.settle()
        return sys.getallocatedblocks() - before


def compile_allocations(directory: Path) -> Path:
    """The counter of allocations, as a library."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise CannotCount("counting allocations needs a C compiler")
    library = directory / "allocations.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_ALLOCATIONS_SOURCE)], check=True)
    return library


def system_calls(pid: int, work: Callable[[], object], directory: Path) -> dict[str, int]:
    """How often a process makes which system call while something is done."""
    strace = shutil.which("strace")
    if strace is None:
        raise CannotCount("counting system calls needs strace")
    summary = directory / "strace"
    tracing = subprocess.Popen(
        [strace, "-c", "-f", "-U", "name,calls", "-p", str(pid), "-o", str(summary)], stderr=subprocess.PIPE, text=True
    )
    assert tracing.stderr is not None
    said = tracing.stderr.readline()
    if "attached" not in said:
        tracing.wait(_TIMEOUT_SECONDS)
        raise CannotCount(f"strace cannot trace here: {said.strip()}")
    try:
        work()
    finally:
        tracing.send_signal(2)
        tracing.communicate(timeout=_TIMEOUT_SECONDS)
    counts: dict[str, int] = {}
    for line in summary.read_text().splitlines():
        name, _, calls = line.strip().partition(" ")
        if calls.strip().isdigit():
            counts[name] = int(calls)
    counts.pop("total", None)
    return counts


def usual(counts: Sequence[int]) -> int:
    """What most of them cost: a new receive block, an index entry or the housekeeping come now and then."""
    return sorted(counts)[len(counts) // 2]
