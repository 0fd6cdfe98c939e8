"""What the network layer alone costs: small requests on 1 and on 64 connections, big requests in, sendfile out.

    python -m benchmarks.net_echo

The clients run in a process of their own and keep some requests in flight on each connection; the handler answers at
once. CPU is the server's, user and system, by its own account. Beside it stands the floor: a bare epoll loop that
receives and sends the same bytes and understands nothing.
"""

import asyncio
import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import uvloop

from barnabas.base.filesystem import LocalFile
from barnabas.net.connection import Connection
from barnabas.net.replies import ReplySlot
from barnabas.net.server import ListenerSpec, Server, ServerOptions
from barnabas.net.sockets import SocketNetwork

SECONDS = 2.0
SMALL_REQUEST = bytes(200)
SMALL_REPLY = bytes(60)
BIG_REQUEST = bytes(128 << 10)
RANGE_BYTES = 1 << 20
_LENGTH = struct.Struct(">i")


class _Range:
    def __init__(self, file: LocalFile) -> None:
        self.file = file
        self.position = 0
        self.length = RANGE_BYTES
        self.is_revoked = False

    def is_resident(self) -> bool:
        return self.file.is_resident(self.position, self.length)

    def load(self, ahead_bytes: int = 0) -> None:
        self.file.prefetch(self.position, self.length + ahead_bytes)

    def release(self) -> None:
        pass


class _Echo:
    def __init__(self, file: LocalFile) -> None:
        self._file = file

    def on_request(self, slot: ReplySlot, frame: memoryview) -> None:
        if frame[0] == 1:
            slot.complete([_LENGTH.pack(len(SMALL_REPLY) + RANGE_BYTES) + SMALL_REPLY, _Range(self._file)])
        else:
            slot.complete(_LENGTH.pack(len(SMALL_REPLY)) + SMALL_REPLY)

    def on_closed(self) -> None:
        pass


def _drive(port: int, connections: int, depth: int, request: bytes) -> int:
    """Answered requests in SECONDS, `depth` in flight on each connection."""
    frame = _LENGTH.pack(len(request)) + request
    poll = select.epoll()
    sockets = {}
    for _ in range(connections):
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets[client.fileno()] = client
        poll.register(client.fileno(), select.EPOLLIN)
        client.sendall(frame * depth)
    reply_bytes = _LENGTH.size + len(SMALL_REPLY) + (RANGE_BYTES if request[0] == 1 else 0)
    received = dict.fromkeys(sockets, 0)
    room = bytearray(1 << 20)
    answered = 0
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for descriptor, _ in poll.poll(1):
            client = sockets[descriptor]
            replies, received[descriptor] = divmod(received[descriptor] + client.recv_into(room), reply_bytes)
            if replies:
                answered += replies
                client.sendall(frame * replies)
    return answered


def _serve_floor(listening: socket.socket, stop: "subprocess.Popen[bytes]", request_bytes: int) -> None:
    """The least that any server in Python does for `_drive`."""
    poll = select.epoll()
    poll.register(listening.fileno(), select.EPOLLIN)
    sockets: dict[int, socket.socket] = {}
    room = bytearray(64 << 10)
    reply = _LENGTH.pack(len(SMALL_REPLY)) + SMALL_REPLY
    while stop.poll() is None:
        for descriptor, _ in poll.poll(0.05):
            if descriptor == listening.fileno():
                accepted, _ = listening.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets[accepted.fileno()] = accepted
                poll.register(accepted.fileno(), select.EPOLLIN)
                continue
            received = 0
            with contextlib.suppress(ConnectionError):
                received = sockets[descriptor].recv_into(room)
                sockets[descriptor].send(reply * (received // (_LENGTH.size + request_bytes)))
            if not received:
                sockets.pop(descriptor).close()


def _client(port: int, connections: int, depth: int, request: bytes) -> "subprocess.Popen[bytes]":
    numbers = (port, connections, depth, request[0], len(request))
    return subprocess.Popen([sys.executable, "-m", "benchmarks.net_echo", *map(str, numbers)], stdout=subprocess.PIPE)


def _cpu_seconds() -> float:
    return time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID)


def _report(name: str, answered: int, cpu_seconds: float, transferred_bytes: int = 0) -> None:
    line = f"{name:34} {answered / SECONDS:9.0f} requests/s {cpu_seconds * 1e6 / answered:7.2f} CPU µs/request"
    if transferred_bytes:
        gigabytes = transferred_bytes / 1e9
        line += f" {gigabytes / SECONDS:6.2f} GB/s {cpu_seconds / gigabytes:6.2f} CPU-s/GB"
    print(line, flush=True)


def _measure_floor(connections: int, depth: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        before = _cpu_seconds()
        with _client(listening.getsockname()[1], connections, depth, SMALL_REQUEST) as client:
            _serve_floor(listening, client, len(SMALL_REQUEST))
            assert client.stdout is not None
            answered = int(client.stdout.read())
    _report(f"floor, {connections} x {depth} in flight", answered, _cpu_seconds() - before)


async def _measure(server: Server, port: int, name: str, connections: int, depth: int, request: bytes) -> None:
    bytes_before = server.counters.bytes_in + server.counters.bytes_out
    before = _cpu_seconds()
    with _client(port, connections, depth, request) as client:
        assert client.stdout is not None
        answered = int(await asyncio.to_thread(client.stdout.read))
    cpu_seconds = _cpu_seconds() - before
    is_small = request == SMALL_REQUEST
    transferred = 0 if is_small else server.counters.bytes_in + server.counters.bytes_out - bytes_before
    _report(f"{name}, {connections} x {depth} in flight", answered, cpu_seconds, transferred)


async def _main() -> None:
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(bytes(RANGE_BYTES))
        temporary.flush()
        file = LocalFile(temporary.name, os.dup(temporary.fileno()))

        def handler(connection: Connection) -> _Echo:
            return _Echo(file)

        server = Server(SocketNetwork(), ServerOptions(), ThreadPoolExecutor(4))
        port = (await server.listen(ListenerSpec("BENCH", "127.0.0.1", 0))).port
        server.accept(handler)
        for connections, depth in ((1, 1), (64, 1), (64, 5)):
            await _measure(server, port, "small", connections, depth, SMALL_REQUEST)
        await _measure(server, port, "128 KB in", 1, 5, BIG_REQUEST)
        await _measure(server, port, "128 KB in", 8, 5, BIG_REQUEST)
        await _measure(server, port, "sendfile 1 MB", 1, 1, b"\x01" + SMALL_REQUEST)
        await _measure(server, port, "sendfile 1 MB", 8, 1, b"\x01" + SMALL_REQUEST)
        await server.stop(1)
        file.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        port, connections, depth, first, length = map(int, sys.argv[1:])
        print(_drive(port, connections, depth, bytes([first]) + bytes(length - 1)))
    else:
        for connections, depth in ((1, 1), (64, 1), (64, 5)):
            _measure_floor(connections, depth)
        uvloop.run(_main())
