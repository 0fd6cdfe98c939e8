"""The client's end: requests out, replies matched to them by correlation id.

The peer answers in the order of the requests, so the oldest request in flight must be the one whose id comes back;
anything else is garbage and ends the channel. A reply starts with its int32 correlation id and is handed on whole.
At most `in_flight_max` requests wait for a reply; more callers wait for their turn, in order.

When the channel ends, every request in flight fails with `ChannelClosed`. A caller that gives up (a timeout, a
cancellation) leaves its place in line behind, because the reply will still come.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from barnabas.base.addresses import address_text
from barnabas.base.buffers import BUFFER_TYPES, Buffer
from barnabas.net.buffers import ReceiveBuffers
from barnabas.net.errors import ChannelClosed, ConnectFailed, ConnectRefused
from barnabas.net.framing import FrameReceiver
from barnabas.net.stream import Network
from barnabas.wire.errors import MalformedResponse
from barnabas.wire.framing import correlation_id_of

_CORRELATION_ID_MAX: Final = 2**31 - 1
_HTTP_LENGTH: Final = int.from_bytes(b"HTTP", "big")
"""The first bytes of a web server's answer, read as a frame's length."""
_PEER_CLOSED: Final = "the peer closed it"


class Channel(FrameReceiver):
    """Created by `connect`; the caller of `connect` closes it."""

    def __init__(self, name: str, buffers: ReceiveBuffers, reply_bytes_max: int, in_flight_max: int) -> None:
        super().__init__(buffers, reply_bytes_max)
        self.name = name
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._places = asyncio.Semaphore(in_flight_max)
        self._next_correlation_id = 0
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._lost = asyncio.Event()
        self.on_lost: Callable[[], None] | None = None
        self._is_closed = False
        self._reason = "it was closed here"

    @classmethod
    async def connect(
        cls,
        network: Network,
        host: str,
        port: int,
        *,
        timeout_seconds: float,
        tls: ssl.SSLContext | None = None,
        buffers: ReceiveBuffers | None = None,
        reply_bytes_max: int = 2**31 - 1,
        in_flight_max: int = 5,
        on_lost: Callable[[], None] | None = None,
    ) -> "Channel":
        """ConnectFailed when there is no connection in time. Channels of one loop may share their buffers.

        `on_lost` is called when the other side has ended the connection, before anybody else is told.
        """
        name = address_text(host, port)
        channel = cls(name, buffers or ReceiveBuffers(), reply_bytes_max, in_flight_max)
        channel.on_lost = on_lost
        try:
            async with asyncio.timeout(timeout_seconds):
                await network.connect(host, port, channel, tls)
        except TimeoutError as error:
            raise ConnectFailed(f"no connection to {name} within {timeout_seconds:g} s") from error
        except ConnectionRefusedError as error:
            raise ConnectRefused(f"no connection to {name}: {error.strerror or error}") from error
        except OSError as error:
            raise ConnectFailed(f"no connection to {name}: {error.strerror or error}") from error
        return channel

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    async def request(self, encode: Callable[[int], Buffer | Sequence[Buffer]]) -> memoryview:
        """Sends what `encode` makes for a correlation id (a frame with its length); returns the reply's frame."""
        await self._places.acquire()
        try:
            await self._can_write.wait()
            correlation_id = self._write(encode)
        except BaseException:
            self._places.release()
            raise
        reply: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._in_flight.append((correlation_id, reply))
        return await reply

    async def send(self, encode: Callable[[int], Buffer | Sequence[Buffer]]) -> None:
        """Sends a request that has no reply (acks=0)."""
        await self._can_write.wait()
        self._write(encode)

    def _write(self, encode: Callable[[int], Buffer | Sequence[Buffer]]) -> int:
        if self._is_closed or self._transport is None:
            raise ChannelClosed(f"the connection to {self.name} is closed: {self._reason}")
        if (
            self._transport.is_closing()
        ):  # the peer has ended, `connection_lost` follows; asyncio's must not be written to
            raise ChannelClosed(f"the connection to {self.name} is closed: {_PEER_CLOSED}")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = 0 if correlation_id == _CORRELATION_ID_MAX else correlation_id + 1
        frame = encode(correlation_id)
        buffers = [frame] if isinstance(frame, BUFFER_TYPES) else list(frame)
        self._transport.writelines(buffers)
        return correlation_id

    async def close(self) -> None:
        """Requests in flight fail; returns when the connection is gone."""
        self._end("it was closed here")
        if self._transport is not None:
            await self._lost.wait()

    def _end(self, reason: str) -> None:
        if not self._is_closed:
            self._is_closed = self._is_held = True
            self._reason = reason
            if self._transport is not None:
                self._transport.abort()

    def frame_received(self, frame: memoryview) -> None:
        if not self._in_flight:
            self._end("it sent a frame that answers no request")
            return
        try:
            correlation_id = correlation_id_of(frame)
        except MalformedResponse as error:
            self._end(str(error))
            return
        expected_id, reply = self._in_flight[0]
        if correlation_id != expected_id:
            self._end(f"it answered request {correlation_id}, where {expected_id} was due")
            return
        self._in_flight.popleft()
        self._places.release()
        if not reply.done():
            reply.set_result(frame)

    def frame_refused(self, length: int) -> None:
        if length == _HTTP_LENGTH:
            self._end("a web server answers there, in HTTP")
        else:
            self._end(f"it announced a reply of {length} bytes, where 0 to {self._frame_bytes_max} are allowed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._reason = str(exc) if exc is not None else _PEER_CLOSED
            if self.on_lost is not None:
                self.on_lost()
        self._drop_received()
        self._can_write.set()
        while self._in_flight:
            _, reply = self._in_flight.popleft()
            self._places.release()
            if not reply.done():
                reply.set_exception(ChannelClosed(f"the connection to {self.name} is closed: {self._reason}"))
        self._lost.set()
