"""File ranges among the replies."""

import asyncio
import errno
import os
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from barnabas.base.errors import DiskFailed
from barnabas.net import sending
from barnabas.net.connection import ConnectionOptions
from barnabas.net.server import ListenerSpec, ServerOptions
from tests.support.network import (
    LENGTH,
    PATIENCE_SECONDS,
    CountedRange,
    FramingSlot,
    Served,
    framed,
    read_frame,
    read_to_end,
    run,
    serving,
    slow_client,
    until,
)

CONTENT = os.urandom(8 << 20)


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "segment"
    file.write_bytes(CONTENT)
    return str(file)


async def _slots(served: Served, count: int, index: int = 0) -> list[FramingSlot]:
    handler = await served.handler(index)
    return [(await handler.requests.get())[0] for _ in range(count)]


def test_ranges_and_buffers_of_a_reply_arrive_as_one_frame(path: str) -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"fetch") + framed(b"then"))
            fetch, then = await _slots(served, 2)
            ranges = [CountedRange(path, 10, 1000), CountedRange(path, 0, 0), CountedRange(path, 100_000, 3 << 20)]
            fetch.complete([b"head", ranges[0], b"middle", ranges[1], ranges[2], b"", b"tail"])
            then.complete(b"small")
            expected = b"head" + CONTENT[10:1010] + b"middle" + CONTENT[100_000 : 100_000 + (3 << 20)] + b"tail"
            assert await read_frame(reader) == expected
            assert await read_frame(reader) == b"small"
            assert [one.releases for one in ranges] == [1, 1, 1]
            assert served.server.counters.bytes_out == len(framed(expected)) + len(framed(b"small"))
            writer.close()

    run(scenario())


def test_range_behind_a_big_reply_waits_for_the_transport(path: str) -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a") * 4)
            slots = await _slots(served, 4)
            big = os.urandom(20 << 20)
            slots[0].complete(big)
            served.server.replies.flush()  # more than the socket takes: the transport keeps the rest
            sendable = CountedRange(path, 5, 50_000)
            slots[1].complete([sendable])
            slots[2].complete(b"end")
            slots[3].complete(CONTENT)
            assert await read_frame(reader) == big
            assert await read_frame(reader) == CONTENT[5:50_005]
            assert await read_frame(reader) == b"end"
            assert await read_frame(reader) == CONTENT
            assert sendable.releases == 1
            writer.close()

    run(scenario())


def test_small_ranges_in_memory_are_read_and_released_at_once(path: str) -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a"))
            (slot,) = await _slots(served, 1)
            ranges = [CountedRange(path, 20, 1000), CountedRange(path, 0, 0), CountedRange(path, 5, 7)]
            slot.complete([b"head", ranges[0], ranges[1], b"middle", ranges[2]])
            served.server.replies.flush()
            assert [one.releases for one in ranges] == [1, 1, 1]
            assert await read_frame(reader) == b"head" + CONTENT[20:1020] + b"middle" + CONTENT[5:12]
            writer.close()

    run(scenario())


@pytest.mark.parametrize("length", [100, 100_000])
def test_range_that_was_revoked_before_it_is_sent_ends_the_connection(path: str, length: int) -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a"))
            (slot,) = await _slots(served, 1)
            sendable = CountedRange(path, 0, length)
            sendable.is_revoked = True
            slot.complete([b"head", sendable])
            assert CONTENT[:10] not in await _received_to_end(reader)
            assert sendable.releases == 1
            writer.close()

    run(scenario())


async def _received_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def test_range_without_a_descriptor_for_sendfile_is_sent_all_the_same(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_descriptor_left(descriptor: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a"))
            (slot,) = await _slots(served, 1)
            sendable = CountedRange(path, 0, len(CONTENT))
            with monkeypatch.context() as patch:
                patch.setattr(os, "dup", no_descriptor_left)
                slot.complete([sendable])
                served.server.replies.flush()
            assert await read_frame(reader) == CONTENT
            assert sendable.releases == 1
            writer.close()

    run(scenario())
    assert "without sendfile" in caplog.text


def test_range_that_is_not_in_memory_is_loaded_before_it_is_sent(path: str) -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a"))
            (slot,) = await _slots(served, 1)
            sendable = CountedRange(path, 0, 100_000, is_cold=True)
            slot.complete([b"head", sendable])
            assert await read_frame(reader) == b"head" + CONTENT[:100_000]
            assert (sendable.loads, sendable.releases) == (1, 1)
            assert served.server.counters.ranges_loaded == 1
            writer.close()

    run(scenario())


def test_range_that_is_being_loaded_is_released_after_the_load_when_the_client_goes(path: str) -> None:
    async def scenario() -> None:
        may_end = threading.Event()
        async with serving() as served:
            _, writer = await served.connect()
            writer.write(framed(b"a"))
            (slot,) = await _slots(served, 1)
            loading = CountedRange(path, 0, 1000, is_cold=True)
            loading.load_may_end = lambda: may_end.wait(PATIENCE_SECONDS)
            waiting = CountedRange(path, 0, 1000)
            slot.complete([loading, waiting])
            served.server.replies.flush()
            writer.close()
            await served.handlers[0].closed.wait()
            assert (loading.releases, waiting.releases) == (0, 1)
            may_end.set()
            await until(lambda: loading.releases == 1)
            assert (loading.loads, waiting.releases) == (1, 1)

    run(scenario())


def test_range_revoked_while_it_is_sent_ends_the_connection(path: str) -> None:
    async def scenario() -> None:
        async with serving() as served:
            with slow_client(served.listener.port) as client:
                client.sendall(framed(b"a"))
                (slot,) = await _slots(served, 1)
                sendable = CountedRange(path, 0, len(CONTENT))
                behind = CountedRange(path, 0, 10)
                slot.complete([sendable, behind])
                await until(lambda: served.server.counters.bytes_out > 0)
                sendable.is_revoked = True
                received = await asyncio.to_thread(read_to_end, client)
                await served.handlers[0].closed.wait()
            assert len(received) < len(CONTENT)
            assert received[4:] == CONTENT[: len(received) - 4]
            assert (sendable.releases, behind.releases) == (1, 1)

    run(scenario())


def test_file_that_became_shorter_ends_the_connection(path: str) -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a"))
            (slot,) = await _slots(served, 1)
            sendable = CountedRange(path, len(CONTENT) - 10, 20)
            slot.complete([sendable])
            assert (await reader.read())[4:] == CONTENT[-10:]
            assert sendable.releases == 1
            writer.close()

    run(scenario())


@pytest.mark.parametrize("is_answered_before", [True, False])
def test_ranges_are_released_once_when_the_client_goes(path: str, is_answered_before: bool) -> None:
    async def scenario() -> None:
        async with serving() as served:
            with slow_client(served.listener.port) as client:
                client.sendall(framed(b"a") * 3)
                first, second, third = await _slots(served, 3)
                ranges = [CountedRange(path, 0, len(CONTENT)) for _ in range(3)]
                third.complete([ranges[2]])  # waits for the second
                if is_answered_before:
                    first.complete([b"x", ranges[0]])
                    await until(lambda: served.server.counters.bytes_out > 0)
            await until(served.handlers[0].closed.is_set)
            if not is_answered_before:
                first.complete([b"x", ranges[0]])
            second.complete([ranges[1]])
            assert [one.releases for one in ranges] == [1, 1, 1]

    run(scenario())


def test_client_that_does_not_read_has_few_ranges_queued(path: str) -> None:
    ranges: list[CountedRange] = []

    def fetch(slot: FramingSlot, frame: memoryview) -> None:
        ranges.append(CountedRange(path, 0, len(CONTENT)))
        slot.complete([ranges[-1]])

    async def scenario() -> None:
        options = ServerOptions(connection=ConnectionOptions(unanswered_max=4))
        async with serving(options, answer=fetch) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a") * 40)
            await until(lambda: served.server.counters.bytes_out > 0)
            for _ in range(40):
                assert len(await read_frame(reader)) == len(CONTENT)
                assert sum(not one.releases for one in ranges) <= 5
            assert [one.releases for one in ranges] == [1] * 40
            writer.close()

    run(scenario())


@pytest.fixture
def tls_contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
        f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    )
    try:
        subprocess.run(command.split(), check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed, and makes the certificate")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=str(certificate))


def test_tls_connection_gets_buffers_and_ranges(path: str, tls_contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def scenario() -> None:
        server_context, client_context = tls_contexts
        async with serving(spec=ListenerSpec("SSL", "127.0.0.1", 0, tls=server_context)) as served:
            # One who does not speak TLS is turned away, and leaves nothing behind.
            plain_reader, plain_writer = await served.connect()
            plain_writer.write(framed(b"plain"))
            await plain_reader.read()
            plain_writer.close()
            await until(lambda: served.server.counters.connections_open == 0)

            reader, writer = await asyncio.open_connection("127.0.0.1", served.listener.port, ssl=client_context)
            writer.write(framed(b"a") + framed(bytes(200_000)) + framed(b"c"))
            slots = await _slots(served, 3, index=1)
            ranges = [CountedRange(path, 7, 3 << 20, is_cold=True), CountedRange(path, 0, 10)]
            slots[0].complete(b"first")
            slots[1].complete([b"head", ranges[0], b"tail", ranges[1]])
            slots[2].complete(b"last")
            assert await read_frame(reader) == b"first"
            assert await read_frame(reader) == b"head" + CONTENT[7 : 7 + (3 << 20)] + b"tail" + CONTENT[:10]
            assert await read_frame(reader) == b"last"
            assert [one.releases for one in ranges] == [1, 1]
            writer.close()
            await writer.wait_closed()

    run(scenario())


def test_reply_length_counts_ranges(path: str) -> None:
    async def scenario() -> None:
        async with serving() as served:
            reader, writer = await served.connect()
            writer.write(framed(b"a"))
            (slot,) = await _slots(served, 1)
            slot.complete([b"1234", CountedRange(path, 0, 96)])
            assert await reader.readexactly(4) == LENGTH.pack(100)
            writer.close()

    run(scenario())


def test_bad_reader_of_a_half_sent_range_does_not_stop_the_others(path: str) -> None:
    async def scenario() -> None:
        async with serving() as served:
            with slow_client(served.listener.port) as slow:
                slow.sendall(framed(b"a"))
                (slow_slot,) = await _slots(served, 1)
                stuck = CountedRange(path, 0, len(CONTENT))
                slow_slot.complete([stuck])
                await until(lambda: served.server.counters.bytes_out > 0)
                reader, writer = await served.connect()
                writer.write(framed(b"b"))
                (slot,) = await _slots(served, 1, index=1)
                slot.complete([CountedRange(path, 0, len(CONTENT))])
                assert await read_frame(reader) == CONTENT
                assert stuck.releases == 0
                writer.close()
            await until(lambda: stuck.releases == 1)

    run(scenario())


def _failing(path: str, error: int) -> DiskFailed:
    return DiskFailed("read", path, OSError(error, os.strerror(error)))


class _BadRange(CountedRange):
    """Fails where it is told to."""

    fails_in = ""

    def _fail_in(self, place: str) -> None:
        if place == self.fails_in:
            raise _failing(self.file.path, errno.EIO)

    def is_resident(self) -> bool:
        self._fail_in("is_resident")
        return super().is_resident()

    def read_resident(self) -> bytes | None:
        self._fail_in("read_resident")
        return super().read_resident()

    def load(self, ahead_bytes: int = 0) -> None:
        self._fail_in("load")
        super().load(ahead_bytes)


@pytest.mark.parametrize(
    ("place", "length", "is_cold"),
    [("read_resident", 100, False), ("is_resident", 30_000, False), ("load", 30_000, True)],
)
def test_disk_that_fails_under_a_reply_is_reported_with_its_file(
    path: str, place: str, length: int, is_cold: bool
) -> None:
    sendable = _BadRange(path, 0, length, is_cold)
    sendable.fails_in = place

    async def scenario() -> None:
        async with serving(answer=lambda slot, frame: slot.complete([b"head", sendable])) as served:
            _, writer = await served.connect()
            writer.write(framed(b"fetch"))
            await until(lambda: len(served.file_failures) > 0)
            assert {failure.path for failure in served.file_failures} == {path}
            await until(lambda: sendable.releases == 1)
            writer.close()

    run(scenario())


@pytest.mark.parametrize("pieces", [2, 3], ids=["sendfile", "one call"])
@pytest.mark.parametrize(("error", "is_reported"), [(errno.EIO, True), (errno.ECONNRESET, False)])
def test_failure_of_the_file_is_told_from_one_of_the_socket(
    path: str, monkeypatch: pytest.MonkeyPatch, pieces: int, error: int, is_reported: bool
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "sendfile", fail)
    monkeypatch.setattr(sending, "send_framed_range", fail)
    sendable = CountedRange(path, 0, 30_000)

    async def scenario() -> None:
        reply = [b"head", sendable, b"tail"][:pieces]
        async with serving(answer=lambda slot, frame: slot.complete(reply)) as served:
            reader, writer = await served.connect()
            writer.write(framed(b"fetch"))
            assert len(await read_all(reader)) < 30_000
            assert [failure.path for failure in served.file_failures] == [path] * is_reported
            assert sendable.releases == 1
            writer.close()

    run(scenario())


async def read_all(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
