"""Clients that do harm: they do not read, do not finish what they send, send garbage, or only sit there in numbers."""

import mmap
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.net.connection import ConnectionOptions
from barnabas.net.server import ServerOptions
from tests.support.network import (
    LENGTH,
    CountedRange,
    FramingSlot,
    framed,
    is_closed_by_peer,
    read_frame,
    run,
    serving,
    until,
)

IDLE_CONNECTIONS = 1000
IDLE_CONNECTION_BYTES_MAX = 15_000


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statistics:
        return int(statistics.read().split()[1]) * mmap.PAGESIZE


def test_clients_that_do_not_read_cost_bounded_memory() -> None:
    reply = os.urandom(50_000)

    def answer(slot: FramingSlot, frame: memoryview) -> None:
        slot.complete(bytes(memoryview(reply)))  # bytes of its own, as an encoder would make them

    async def scenario() -> None:
        options = ServerOptions(connection=ConnectionOptions(unanswered_max=8, reply_bytes_queued_max=100_000))
        async with serving(options, answer=answer) as served:
            before = _resident_bytes()
            clients = [await served.connect() for _ in range(20)]
            for _, writer in clients:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(framed(b"a") * 10_000)  # 500 MB of replies for each
            await until(lambda: all(handler.connection.is_reading_paused for handler in served.handlers))
            # What the sockets took, and at most eight replies beyond the limit for each.
            assert _resident_bytes() - before < 20 * (8 * len(reply) + 100_000) + (32 << 20)
            assert served.server.counters.requests_in < 20 * 10_000
            reader, writer = await served.connect()
            writer.write(framed(b"b"))
            assert await read_frame(reader) == reply
            writer.close()
            for _, writer in clients:
                writer.transport.abort()

    run(scenario())


def test_client_that_does_not_read_is_closed_when_it_is_idle_long_enough(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(64 << 20))
    ranges: list[CountedRange] = []

    def fetch(slot: FramingSlot, frame: memoryview) -> None:
        ranges.append(CountedRange(str(path), 0, 64 << 20))
        slot.complete([ranges[-1]])

    async def scenario() -> None:
        async with serving(ServerOptions(idle_seconds=0.2), answer=fetch) as served:
            with socket.create_connection(("127.0.0.1", served.listener.port)) as client:
                client.sendall(framed(b"a"))
                await until(lambda: served.server.counters.connections_closed_idle == 1)
                await until(lambda: ranges[0].releases == 1)

    run(scenario())


@pytest.mark.parametrize(
    "sent", [b"", b"\0", b"\0\0\0\x64", b"\0\0\0\x64half of a frame", b"\x05\xf5\xe1\0a lot is to come"]
)
def test_half_open_connection_costs_no_other_and_goes_when_it_is_idle(sent: bytes) -> None:
    async def scenario() -> None:
        async with serving(ServerOptions(idle_seconds=0.3), answer=lambda slot, frame: slot.complete(b"ok")) as served:
            before = _resident_bytes()
            stuck = [await served.connect() for _ in range(50)]
            for _, writer in stuck:
                writer.write(sent)
            reader, writer = await served.connect()
            writer.write(framed(b"a"))
            assert await read_frame(reader) == b"ok"
            assert _resident_bytes() - before < 16 << 20
            for stuck_reader, stuck_writer in stuck:
                assert await is_closed_by_peer(stuck_reader)
                stuck_writer.close()
            writer.close()
            await until(lambda: served.server.counters.connections_open == 0)

    run(scenario())


def test_random_bytes_close_their_connection_at_most() -> None:
    chance = random.Random(20_240_101)

    async def scenario() -> None:
        options = ServerOptions(connection=ConnectionOptions(request_bytes_max=100_000))
        async with serving(options, answer=lambda slot, frame: slot.complete(bytes(frame[:10]))) as served:
            good_reader, good_writer = await served.connect()
            before = _resident_bytes()
            for _ in range(300):
                _, writer = await served.connect()
                for _ in range(chance.randrange(1, 4)):
                    body = chance.randbytes(chance.randrange(200))
                    length = chance.choice((len(body), chance.randrange(-100, 200_000)))
                    writer.write(chance.choice((b"", LENGTH.pack(length))) + body)
                chance.choice((writer.close, writer.transport.abort))()
                good_writer.write(framed(b"good"))
                assert await read_frame(good_reader) == b"good"
            await until(lambda: served.server.counters.connections_open == 1)
            assert _resident_bytes() - before < 16 << 20
            good_writer.close()

    run(scenario())


_MEASURE_IDLE = """
import asyncio, gc, resource, socket, uvloop
from tests.faults.test_net_clients import IDLE_CONNECTIONS, _resident_bytes
from tests.support.network import framed, serving, until

async def main():
    async with serving(answer=lambda slot, frame: slot.complete(b"ok")) as served:
        clients = []
        def connect():
            client = socket.create_connection(("127.0.0.1", served.listener.port))
            clients.append(client)
        for _ in range(50):
            connect()
        await until(lambda: served.server.counters.connections_open == 50)
        gc.collect()
        before = _resident_bytes()
        for number in range(IDLE_CONNECTIONS):
            connect()
            clients[-1].sendall(framed(bytes(200)))
            if number % 40 == 0:
                await until(lambda: served.server.counters.requests_in == number + 1)
        await until(lambda: served.server.counters.requests_in == IDLE_CONNECTIONS)
        gc.collect()
        print((_resident_bytes() - before) // IDLE_CONNECTIONS)
        for client in clients:
            client.close()

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
uvloop.run(main())
"""


def test_thousand_idle_connections_that_were_used_once_stay_small() -> None:
    """In a process of its own: the client's sockets count too, and still it fits."""
    measured = subprocess.run([sys.executable, "-c", _MEASURE_IDLE], capture_output=True, text=True, timeout=180)
    assert measured.returncode == 0, measured.stderr
    assert int(measured.stdout) <= IDLE_CONNECTION_BYTES_MAX
