"""The usual reply with records: a head, a range, a tail, in one call where that was built, else piece by piece."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.net import sending
from barnabas.net.connection import ConnectionOptions
from barnabas.net.framed_range import send_framed_range
from barnabas.net.server import ServerOptions
from tests.support.network import (
    CountedRange,
    FramingSlot,
    framed,
    read_frame,
    read_to_end,
    run,
    serving,
    slow_client,
    until,
)

CONTENT = os.urandom(3 << 20)
TAIL = b"\0\0\0"


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "segment"
    file.write_bytes(CONTENT)
    return str(file)


# -- the call ------------------------------------------------------------------------------------------------------

is_built = pytest.mark.skipif(send_framed_range is None, reason="there was no C compiler to build it with")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection; the first one does not wait."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as peer:
        ours, _ = server.accept()
        with ours:
            ours.setblocking(False)
            yield ours, peer


def read_exactly(peer: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        received += peer.recv(length - len(received))
    return bytes(received)


@is_built
@pytest.mark.parametrize("length", [0, 1, 5_000, 200_000])
@pytest.mark.parametrize("head", [b"", b"head"])
@pytest.mark.parametrize("tail", [b"", TAIL])
def test_all_of_it_goes_out_in_order(
    path: str, pair: tuple[socket.socket, socket.socket], head: bytes, length: int, tail: bytes
) -> None:
    ours, peer = pair
    with open(path, "rb") as file:
        sent = send_framed_range(ours.fileno(), head, file.fileno(), 77, length, tail)
    expected = head + CONTENT[77 : 77 + length] + tail
    assert sent == len(expected)
    assert read_exactly(peer, sent) == expected


@is_built
def test_socket_that_is_full_takes_a_part_and_then_nothing(
    path: str, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, peer = pair
    reply = b"head" + CONTENT[:300_000] + TAIL
    taken = bytearray()
    with open(path, "rb") as file:
        while sent := send_framed_range(ours.fileno(), b"head", file.fileno(), 0, 300_000, TAIL):
            taken += reply[:sent]
    assert read_exactly(peer, len(taken)) == taken


@is_built
def test_range_beyond_the_end_of_its_file_sends_what_is_there(
    path: str, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, peer = pair
    with open(path, "rb") as file:
        sent = send_framed_range(ours.fileno(), b"head", file.fileno(), len(CONTENT) - 10, 20, TAIL)
    assert sent == 14
    assert read_exactly(peer, sent) == b"head" + CONTENT[-10:]


@is_built
def test_connection_that_was_closed_is_an_error(path: str, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    ours.shutdown(socket.SHUT_WR)
    with open(path, "rb") as file, pytest.raises(BrokenPipeError):
        send_framed_range(ours.fileno(), b"head", file.fileno(), 0, 10, TAIL)


# -- the sender ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["in one call", "piece by piece"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "piece by piece":
        monkeypatch.setattr(sending, "send_framed_range", None)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("length", [20_000, 300_000, 1 << 20, len(CONTENT)])
def test_replies_arrive_at_the_pace_of_the_reader(path: str, length: int) -> None:
    """Most of them are begun while the socket has room for a part, which may end anywhere in them."""
    ranges: list[CountedRange] = []

    def fetch(slot: FramingSlot, frame: memoryview) -> None:
        ranges.append(CountedRange(path, 0, length - len(ranges)))
        slot.complete([ranges[-1], TAIL])

    async def scenario() -> None:
        options = ServerOptions(connection=ConnectionOptions(unanswered_max=1))
        async with serving(options, answer=fetch) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"fetch") * 12)
            for number in range(12):
                assert await read_frame(reader) == CONTENT[: length - number] + TAIL
            await until(lambda: [one.releases for one in ranges] == [1] * 12)
            assert served.server.counters.bytes_out == sum(4 + one.length + len(TAIL) for one in ranges)
            writer.close()

    run(scenario())


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("is_revoked", [True, False], ids=["revoked", "client gone"])
def test_rest_of_a_reply_that_will_not_be_sent_is_given_back(path: str, is_revoked: bool) -> None:
    async def scenario() -> None:
        sendable = CountedRange(path, 0, 1 << 20)

        def fetch(slot: FramingSlot, frame: memoryview) -> None:
            slot.complete([CountedRange(path, 0, 1 << 20), TAIL] if frame == b"before" else [sendable, TAIL])

        async with serving(answer=fetch) as served:
            with slow_client(served.listener.port) as client:
                # So much that the socket does not come to the last one.
                client.sendall(framed(b"before") * 8 + framed(b"fetch"))
                await until(lambda: served.server.counters.bytes_out > 0)
                if is_revoked:
                    sendable.is_revoked = True
                    await asyncio.to_thread(read_to_end, client)
            await until(lambda: sendable.releases == 1)
            await served.handlers[0].closed.wait()

    run(scenario())


@pytest.mark.usefixtures("way")
def test_file_that_became_shorter_ends_the_connection(path: str) -> None:
    sendable = CountedRange(path, len(CONTENT) - 20_000, 30_000)

    async def scenario() -> None:
        async with serving(answer=lambda slot, frame: slot.complete([sendable, TAIL])) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"fetch"))
            assert (await reader.read())[4:] == CONTENT[-20_000:]
            await until(lambda: sendable.releases == 1)
            writer.close()

    run(scenario())


@pytest.mark.usefixtures("way")
def test_disk_that_fails_ends_the_connection(path: str) -> None:
    class BadRange(CountedRange):
        def is_resident(self) -> bool:
            raise DiskFailed("read", path, OSError(errno.EIO, os.strerror(errno.EIO)))

    sendable = BadRange(path, 0, 30_000)

    async def scenario() -> None:
        async with serving(answer=lambda slot, frame: slot.complete([sendable, TAIL])) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"fetch"))
            assert len(await reader.read()) <= 4
            assert sendable.releases == 1
            writer.close()

    run(scenario())
