"""A server on a real socket with a handler that the test plays, and file ranges that count what happens to them."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import uvloop

from barnabas.base.buffers import BUFFER_TYPES
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.filesystem import LocalFile
from barnabas.net.connection import Connection
from barnabas.net.replies import Reply, ReplySlot
from barnabas.net.server import Listener, ListenerSpec, Server, ServerOptions
from barnabas.net.sockets import SocketNetwork

LENGTH = struct.Struct(">i")
PATIENCE_SECONDS = 180.0

_Result = TypeVar("_Result")


def run(
    coroutine: Coroutine[Any, Any, _Result],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
    patience_seconds: float = PATIENCE_SECONDS,
) -> _Result:
    """Runs it on the loop that brokers use, or on another one; a test that hangs fails."""

    async def bounded() -> _Result:
        async with asyncio.timeout(patience_seconds):
            return await coroutine

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(bounded())


def framed(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


class FramingSlot:
    """A slot that puts the length before what it is completed with."""

    def __init__(self, slot: ReplySlot) -> None:
        self._slot = slot

    def complete(self, reply: Reply | None) -> None:
        if reply is None:
            self._slot.complete(None)
            return
        pieces = [reply] if isinstance(reply, BUFFER_TYPES) else list(reply)
        total = sum(len(piece) if isinstance(piece, BUFFER_TYPES) else piece.length for piece in pieces)
        if isinstance(reply, bytes):
            self._slot.complete(LENGTH.pack(total) + reply)
        else:
            self._slot.complete([LENGTH.pack(total), *pieces])

    def fail(self, error: BarnabasError) -> None:
        self._slot.fail(error)


class PlayedHandler:
    """Collects requests for the test to answer, or answers each at once when `answer` is given."""

    new_slot = ReplySlot

    def __init__(self, connection: Connection, answer: Callable[[FramingSlot, memoryview], None] | None) -> None:
        self.connection = connection
        self.requests: asyncio.Queue[tuple[FramingSlot, memoryview]] = asyncio.Queue()
        self.closed = asyncio.Event()
        self.answer = answer

    def on_request(self, slot: ReplySlot, frame: memoryview) -> None:
        if self.answer is not None:
            self.answer(FramingSlot(slot), frame)
        else:
            self.requests.put_nowait((FramingSlot(slot), frame))

    def on_closed(self) -> None:
        self.closed.set()


class Served:
    """The server under test, and the handlers of its connections in the order in which they came."""

    def __init__(self, answer: Callable[[FramingSlot, memoryview], None] | None) -> None:
        self._answer = answer
        self.handlers: list[PlayedHandler] = []
        self.file_failures: list[DiskFailed] = []
        self.server: Server
        self.listener: Listener
        self.other: Listener | None = None

    def make_handler(self, connection: Connection) -> PlayedHandler:
        handler = PlayedHandler(connection, self._answer)
        self.handlers.append(handler)
        return handler

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)

    async def handler(self, index: int = 0) -> PlayedHandler:
        await until(lambda: len(self.handlers) > index)
        return self.handlers[index]


@contextlib.asynccontextmanager
async def serving(
    options: ServerOptions | None = None,
    answer: Callable[[FramingSlot, memoryview], None] | None = None,
    spec: ListenerSpec | None = None,
    other: ListenerSpec | None = None,
) -> AsyncIterator[Served]:
    served = Served(answer)
    executor = ThreadPoolExecutor(4)
    served.server = Server(
        SocketNetwork(),
        options or ServerOptions(),
        executor,
        on_file_failure=served.file_failures.append,
    )
    served.listener = await served.server.listen(spec or ListenerSpec("TEST", "127.0.0.1", 0))
    served.other = None if other is None else await served.server.listen(other)
    served.server.accept(served.make_handler)
    try:
        yield served
    finally:
        await served.server.stop(grace_seconds=1)
        executor.shutdown()


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop work until the condition holds; `run` ends a test in which it never does."""
    while not condition():  # noqa: ASYNC110 - the code under test has no event for what is awaited
        await asyncio.sleep(0.001)


def slow_client(port: int) -> socket.socket:
    """Its socket takes little, and nobody reads from it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    return client


def read_to_end(client: socket.socket) -> bytes:
    received = bytearray()
    try:
        while data := client.recv(1 << 20):
            received += data
    except ConnectionError:
        pass
    return bytes(received)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(length)


async def is_closed_by_peer(reader: asyncio.StreamReader) -> bool:
    """Waits for the end; a reset is an end too."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


class CountedRange:
    """A file range whose owner is the test."""

    def __init__(self, path: str, position: int, length: int, is_cold: bool = False) -> None:
        self.file = LocalFile(path, os.open(path, os.O_RDONLY))
        self.position = position
        self.length = length
        self.is_revoked = False
        self.is_cold = is_cold
        self.loads = 0
        self.releases = 0
        self.load_may_end: Callable[[], object] = lambda: None

    def is_resident(self) -> bool:
        return not self.is_cold

    def read_resident(self) -> bytes | None:
        return None if self.is_cold else self.file.read_at(self.length, self.position)

    def load(self, ahead_bytes: int = 0) -> None:
        self.load_may_end()
        assert self.file.fileno() >= 0, "released while a thread reads it"
        self.loads += 1
        self.is_cold = False

    def release(self) -> None:
        self.releases += 1
        self.file.close()
