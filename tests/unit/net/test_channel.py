"""The client's end of a connection."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
import uvloop

from barnabas.net.channel import Channel
from barnabas.net.errors import ChannelClosed, ConnectFailed, ConnectRefused
from barnabas.net.sockets import SocketNetwork
from tests.support.network import FramingSlot, Served, framed, run, serving, until

_ID = struct.Struct(">i")


def _echo(slot: FramingSlot, frame: memoryview) -> None:
    slot.complete(bytes(frame))


async def _open(served: Served, in_flight_max: int = 5, reply_bytes_max: int = 1 << 20) -> Channel:
    return await Channel.connect(
        SocketNetwork(),
        "127.0.0.1",
        served.listener.port,
        timeout_seconds=60,
        in_flight_max=in_flight_max,
        reply_bytes_max=reply_bytes_max,
    )


def _encoder(body: bytes) -> Callable[[int], bytes]:
    return lambda correlation_id: framed(_ID.pack(correlation_id) + body)


def test_replies_reach_the_requests_they_belong_to() -> None:
    async def scenario() -> None:
        async with serving(answer=_echo) as served:
            channel = await _open(served)
            bodies = [f"request {number}".encode() for number in range(100)]
            replies = await asyncio.gather(*(channel.request(_encoder(body)) for body in bodies))
            assert [bytes(reply[4:]) for reply in replies] == bodies
            assert [_ID.unpack_from(reply)[0] for reply in replies] == list(range(100))
            await channel.close()

    run(scenario())


def test_only_so_many_requests_are_in_flight() -> None:
    async def scenario() -> None:
        async with serving() as served:
            channel = await _open(served, in_flight_max=3)
            requests = [asyncio.ensure_future(channel.request(_encoder(b"x"))) for _ in range(10)]
            handler = await served.handler()
            for _ in requests:
                slot, frame = await handler.requests.get()
                assert channel.in_flight <= 3
                assert handler.requests.qsize() < 3
                slot.complete(bytes(frame))
            await asyncio.gather(*requests)
            assert channel.in_flight == 0
            await channel.close()

    run(scenario())


def test_request_given_up_leaves_its_place_for_the_reply() -> None:
    async def scenario() -> None:
        async with serving() as served:
            channel = await _open(served)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await channel.request(_encoder(b"slow"))
            next_request = asyncio.ensure_future(channel.request(_encoder(b"next")))
            handler = await served.handler()
            for _ in range(2):
                slot, frame = await handler.requests.get()
                slot.complete(bytes(frame))
            assert bytes((await next_request)[4:]) == b"next"
            await channel.close()

    run(scenario())


def test_request_without_reply_is_sent_and_not_awaited() -> None:
    async def scenario() -> None:
        async with serving() as served:
            channel = await _open(served)
            await channel.send(_encoder(b"acks=0"))
            handler = await served.handler()
            slot, frame = await handler.requests.get()
            assert bytes(frame[4:]) == b"acks=0"
            slot.complete(None)
            assert channel.in_flight == 0
            await channel.close()

    run(scenario())


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (_ID.pack(4) + _ID.pack(77), "answered request 77, where 0 was due"),
        (_ID.pack(2) + b"xx", "response header"),
        (_ID.pack(-5), "announced a reply of -5 bytes"),
        (_ID.pack(2_000_000), "announced a reply of 2000000 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a web server answers there, in HTTP"),
        (b"", "the peer closed it"),
    ],
)
def test_garbage_closes_the_channel_and_fails_what_is_in_flight(garbage: bytes, reason: str) -> None:
    async def scenario() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(garbage)
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            channel = await Channel.connect(
                SocketNetwork(), "127.0.0.1", port, timeout_seconds=60, reply_bytes_max=1_000_000
            )
            with pytest.raises(ChannelClosed, match=reason):
                await channel.request(_encoder(b"x"))
            assert channel.is_closed
            with pytest.raises(ChannelClosed, match=reason):
                await channel.request(_encoder(b"y"))
            await channel.close()

    run(scenario())


def test_frame_that_nobody_asked_for_closes_the_channel() -> None:
    async def scenario() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(framed(_ID.pack(0)))
            await reader.read()
            writer.close()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            channel = await Channel.connect(SocketNetwork(), "127.0.0.1", port, timeout_seconds=60)
            await until(lambda: channel.is_closed)
            with pytest.raises(ChannelClosed, match="answers no request"):
                await channel.request(_encoder(b"x"))
            await channel.close()

    run(scenario())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_request_between_the_end_of_the_peer_and_the_loss_of_the_connection_fails(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        requests = []

        def eof_received(channel: Channel) -> None:
            requests.append(asyncio.ensure_future(channel.request(_encoder(b"too late"))))

        monkeypatch.setattr(Channel, "eof_received", eof_received)
        async with serving() as served:
            channel = await _open(served)
            (await served.handler()).connection.finish()
            await until(lambda: bool(requests))
            with pytest.raises(ChannelClosed, match="the peer closed it"):
                await requests[0]
            await channel.close()

    run(scenario(), loop_factory)


def test_closing_fails_requests_in_flight_and_those_that_wait_for_a_place() -> None:
    async def scenario() -> None:
        async with serving() as served:
            channel = await _open(served, in_flight_max=1)
            requests = [asyncio.ensure_future(channel.request(_encoder(b"x"))) for _ in range(3)]
            await until(lambda: channel.in_flight == 1)
            await channel.close()
            outcomes = await asyncio.gather(*requests, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ChannelClosed] * 3

    run(scenario())


def test_connecting_where_nobody_listens_fails_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectRefused, match=f"no connection to 127.0.0.1:{port}: "):
        run(Channel.connect(SocketNetwork(), "127.0.0.1", port, timeout_seconds=60))


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_host_of_several_addresses_refuses_when_all_of_them_do(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectRefused):
        run(Channel.connect(SocketNetwork(), "localhost", port, timeout_seconds=60), loop_factory)


@pytest.mark.parametrize(("second", "expected"), [(111, ConnectRefused), (113, ConnectFailed)])
def test_errors_of_several_addresses_are_told_apart(
    second: int, expected: type[ConnectFailed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As asyncio puts them together."""
    text = f"Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno {second}] Connect call failed"

    async def scenario() -> None:
        async def fail(*_: object, **__: object) -> None:
            raise OSError(text)

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fail)
        with pytest.raises(ConnectFailed) as caught:
            await Channel.connect(SocketNetwork(), "several", 1, timeout_seconds=60)
        assert type(caught.value) is expected

    run(scenario(), asyncio.new_event_loop)


def test_connecting_to_one_who_does_not_answer_ends_at_the_timeout() -> None:
    class Silent(SocketNetwork):
        async def connect(self, *arguments: object) -> None:  # type: ignore[override]
            await asyncio.Event().wait()

    with pytest.raises(ConnectFailed, match=r"within 0\.01 s"):
        run(Channel.connect(Silent(), "127.0.0.1", 1, timeout_seconds=0.01))
