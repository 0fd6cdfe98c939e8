"""The network of one broker in a test's cluster: sockets, whose connections the test can hold or cut.

Each connection is a `Line` between the broker's protocol and the transport. It hands everything on, until

- the broker is paused (`Hold`): then nothing is read and nothing is written, and new connections are made without being
  answered, as by a process that was stopped by SIGSTOP;
- the line's other end is cut off: then it is aborted, and new ones are refused.
"""

import asyncio
import ssl
from collections.abc import Collection, Iterable
from contextvars import Context
from typing import Any, Final, cast

from barnabas.net.stream import Acceptor, ListenAddress, Listening, Network
from barnabas.testing.holding import Hold

_READ_BYTES: Final = 64 << 10


class LineNetwork:
    """Owner: the brokers' event loop."""

    def __init__(self, network: Network, hold: Hold) -> None:
        self._network = network
        self._hold = hold
        self._lines: dict[Line, None] = {}
        self._cut_ports: frozenset[int] = frozenset()

    async def listen(self, address: ListenAddress) -> "LineListening":
        return LineListening(self, await self._network.listen(address))

    async def connect(
        self, host: str, port: int, protocol: asyncio.BufferedProtocol, tls: ssl.SSLContext | None = None
    ) -> None:
        await self._hold.passed()
        if port in self._cut_ports:
            raise ConnectionRefusedError(f"a test has cut the connections to port {port}")
        await self._network.connect(host, port, self.line(protocol, port), tls)

    def line(self, protocol: asyncio.BufferedProtocol, port: int | None = None) -> "Line":
        """`port` is that of the other end, of a connection that was opened here."""
        return Line(protocol, port, self._hold, self._lines)

    def pause(self) -> None:
        """Holds every line until the hold ends; it has just begun."""
        for line in tuple(self._lines):
            line.pause()

    def cut(self, ports: Collection[int]) -> None:
        """These cannot be reached from now on, and all others can."""
        self._cut_ports = frozenset(ports)
        for line in tuple(self._lines):
            if line.port in self._cut_ports:
                line.abort()


class LineListening:
    def __init__(self, network: LineNetwork, listening: Listening) -> None:
        self._network = network
        self._listening = listening
        self.host = listening.host
        self.port = listening.port

    def accept(self, acceptor: Acceptor) -> None:
        self._listening.accept(_LineAcceptor(self._network, acceptor))

    async def close(self) -> None:
        await self._listening.close()


class _LineAcceptor:
    def __init__(self, network: LineNetwork, acceptor: Acceptor) -> None:
        self._network = network
        self._acceptor = acceptor

    def admit(self, peer: tuple[str, int]) -> "Line | None":
        protocol = self._acceptor.admit(peer)
        return None if protocol is None else self._network.line(protocol)

    def abandon(self, protocol: asyncio.BufferedProtocol) -> None:
        assert isinstance(protocol, Line), "only lines are admitted"
        self._acceptor.abandon(protocol.protocol)


class Line(asyncio.BufferedProtocol, asyncio.Transport):
    """The protocol of its transport, and the transport of its protocol."""

    def __init__(
        self, protocol: asyncio.BufferedProtocol, port: int | None, hold: Hold, lines: "dict[Line, None]"
    ) -> None:
        super().__init__()
        self.protocol = protocol
        self.port = port
        self._hold = hold
        self._lines = lines
        self._transport: asyncio.Transport | None = None
        self._is_reading_wanted = True
        self._scratch = bytearray()
        """Where bytes are received that came after the pause had begun."""
        self._received = b""
        self._written: list[Any] = []

    @property
    def context(self) -> Context | None:
        """Whose bugs these are (`barnabas.base.supervision`)."""
        return getattr(self.protocol, "context", None)

    @property
    def _wire(self) -> asyncio.Transport:
        assert self._transport is not None, "the connection is made"
        return self._transport

    # -- holding -------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        if not self._wire.is_closing():
            self._wire.pause_reading()
        self._hold.tell(self._resume)

    def _resume(self) -> None:
        received, self._received = self._received, b""
        written, self._written = self._written, []
        if self._wire.is_closing():
            return
        if written:
            self._wire.writelines(written)
        while received:
            buffer = memoryview(self.protocol.get_buffer(len(received)))
            count = min(len(buffer), len(received))
            buffer[:count] = received[:count]
            received = received[count:]
            self.protocol.buffer_updated(count)
        if self._is_reading_wanted and not self._wire.is_closing():
            self._wire.resume_reading()

    # -- what the transport calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._lines[self] = None
        if self._hold.is_held:
            self._hold.tell(self._resume)
        self.protocol.connection_made(self)

    def get_buffer(self, sizehint: int) -> Any:
        if not self._hold.is_held:
            return self.protocol.get_buffer(sizehint)
        if not self._scratch:
            self._scratch = bytearray(_READ_BYTES)
        return memoryview(self._scratch)

    def buffer_updated(self, nbytes: int) -> None:
        if not self._hold.is_held:
            self.protocol.buffer_updated(nbytes)
            return
        self._received += self._scratch[:nbytes]
        self._wire.pause_reading()  # of a line that was made during the pause: this is all that it receives

    def eof_received(self) -> bool | None:
        return self.protocol.eof_received()

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lines.pop(self, None)
        self.protocol.connection_lost(exc)

    # -- what the protocol calls ---------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._hold.is_held:
            self._written.append(data)
        else:
            self._wire.write(data)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._hold.is_held:
            self._written += list_of_data
        else:
            self._wire.writelines(list_of_data)

    def pause_reading(self) -> None:
        self._is_reading_wanted = False
        if not self._hold.is_held:
            self._wire.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading_wanted = True
        if not self._hold.is_held:
            self._wire.resume_reading()

    def is_reading(self) -> bool:
        return self._wire.is_reading()

    def write_eof(self) -> None:
        self._wire.write_eof()

    def can_write_eof(self) -> bool:
        return self._wire.can_write_eof()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Without the socket: file ranges are written through the line, too, as with TLS."""
        return default if name == "socket" else self._wire.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._wire.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._wire.get_write_buffer_size() + sum(map(len, self._written))

    def is_closing(self) -> bool:
        return self._wire.is_closing()

    def close(self) -> None:
        self._wire.close()

    def abort(self) -> None:
        self._wire.abort()
