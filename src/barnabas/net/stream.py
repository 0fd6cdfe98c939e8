"""The seam between what speaks over connections and what carries them.

A protocol (`Connection`, `Channel`) is driven by asyncio's `BufferedProtocol` calls and drives an `asyncio.Transport`;
a `Network` makes the two ends meet. `barnabas.net.sockets` does it with the operating system's sockets; a simulation
brings a network of its own, with transports that have no socket and a loop whose time is virtual.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen: an empty host means every interface, port 0 any free port."""

    host: str
    port: int
    backlog: int = 50
    tls: ssl.SSLContext | None = None
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None
    """None leaves the size to the operating system, which adapts it to the connection."""


class Acceptor(Protocol):
    """Decides who may come in."""

    def admit(self, peer: tuple[str, int]) -> asyncio.BufferedProtocol | None:
        """The protocol for a new connection, or None to close it at once."""
        ...

    def abandon(self, protocol: asyncio.BufferedProtocol) -> None:
        """An admitted connection ended before it was made (a failed TLS handshake)."""
        ...


class Listening(Protocol):
    host: str
    port: int
    """The port that was bound, also where any was asked for."""

    def accept(self, acceptor: Acceptor) -> None:
        """Begins to accept. Clients that came before have been waiting in the backlog."""
        ...

    async def close(self) -> None:
        """Accepts nobody any more; connections that were made stay."""
        ...


class Network(Protocol):
    async def listen(self, address: ListenAddress) -> Listening:
        """Takes the address. ListenFailed when it cannot be had."""
        ...

    async def connect(
        self, host: str, port: int, protocol: asyncio.BufferedProtocol, tls: ssl.SSLContext | None = None
    ) -> None:
        """Returns when `protocol.connection_made` was called; OSError when nobody answers. Cancelled by a timeout."""
        ...
