"""The network of the operating system: TCP, with TLS where a context is given.

Accepting is a loop of our own rather than asyncio's server, so that a connection over the limit is closed before any
transport is made for it, and so that running out of descriptors pauses accepting (the clients wait in the backlog)
instead of spinning on a socket that stays readable.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from typing import Final

from barnabas.net.errors import ListenFailed
from barnabas.net.stream import Acceptor, ListenAddress

_LOG = logging.getLogger(__name__)

_ACCEPTS_PER_TICK_MAX: Final = 64
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_PAUSE_SECONDS: Final = 1.0
_TLS_HANDSHAKE_SECONDS_MAX: Final = 10.0
_MAPPED_IPV4_PREFIX: Final = "::ffff:"


class SocketNetwork:
    """Needs nothing but the running loop."""

    async def listen(self, address: ListenAddress) -> "SocketListening":
        loop = asyncio.get_running_loop()
        try:
            listening_socket = await _bind(loop, address)
        except OSError as error:
            raise ListenFailed(address.host, address.port, error) from error
        return SocketListening(loop, listening_socket, address)

    async def connect(
        self, host: str, port: int, protocol: asyncio.BufferedProtocol, tls: ssl.SSLContext | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        server_hostname = host if tls is not None else None
        try:
            # uvloop turns on TCP_NODELAY itself, as asyncio does.
            await loop.create_connection(lambda: protocol, host, port, ssl=tls, server_hostname=server_hostname)
        except OSError as error:
            if error.errno is None and _is_refused_everywhere(str(error)):
                raise ConnectionRefusedError(errno.ECONNREFUSED, str(error)) from None
            raise


def _is_refused_everywhere(text: str) -> bool:
    """Of a host with several addresses asyncio raises one error, whose text alone says what was wrong with each."""
    return 0 < text.count("[Errno ") == text.count(f"[Errno {errno.ECONNREFUSED}]")


async def _bind(loop: asyncio.AbstractEventLoop, address: ListenAddress) -> socket.socket:
    host = address.host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
    found = await loop.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, socket_address = found[0]
    listening_socket = socket.socket(family, kind, protocol)
    try:
        listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening_socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not address.host else 1)
        # Accepted sockets inherit both sizes, which must be known before the handshake to scale the window.
        if address.send_buffer_bytes is not None:
            listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, address.send_buffer_bytes)
        if address.receive_buffer_bytes is not None:
            listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, address.receive_buffer_bytes)
        listening_socket.bind(socket_address)
        listening_socket.listen(address.backlog)
        listening_socket.setblocking(False)
    except OSError:
        listening_socket.close()
        raise
    return listening_socket


class SocketListening:
    """A listening socket and the handshakes that are under way."""

    _acceptor: Acceptor

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listening_socket: socket.socket, address: ListenAddress
    ) -> None:
        self._loop = loop
        self._socket = listening_socket
        self._tls = address.tls
        self._opening: dict[asyncio.Task[None], None] = {}
        self._retry: asyncio.TimerHandle | None = None
        self.host = address.host
        self.port: int = listening_socket.getsockname()[1]

    def accept(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._loop.add_reader(self._socket.fileno(), self._accept_waiting)

    def _accept_waiting(self) -> None:
        for _ in range(_ACCEPTS_PER_TICK_MAX):
            try:
                accepted, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                    return
                continue  # this one client was gone before it was accepted
            self._open(accepted, peer)

    def _pause(self, error: OSError) -> None:
        seconds = _EXHAUSTED_PAUSE_SECONDS
        _LOG.error("cannot accept connections on port %d: %s; trying again in %g s", self.port, error.strerror, seconds)
        self._loop.remove_reader(self._socket.fileno())
        self._retry = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._retry = None
        self._loop.add_reader(self._socket.fileno(), self._accept_waiting)

    def _open(self, accepted: socket.socket, peer: tuple[str, int]) -> None:
        protocol = self._acceptor.admit((peer[0].removeprefix(_MAPPED_IPV4_PREFIX), peer[1]))
        if protocol is None:
            accepted.close()
            return
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # the client may be gone: then the first read says so
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._make_transport(accepted, protocol))
        self._opening[task] = None
        # Not by the task itself: one that is cancelled before it has begun does nothing at all.
        task.add_done_callback(lambda task: self._opened(task, accepted, protocol))

    async def _make_transport(self, accepted: socket.socket, protocol: asyncio.BufferedProtocol) -> None:
        handshake_seconds = _TLS_HANDSHAKE_SECONDS_MAX if self._tls is not None else None
        await self._loop.connect_accepted_socket(
            lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=handshake_seconds
        )

    def _opened(self, task: asyncio.Task[None], accepted: socket.socket, protocol: asyncio.BufferedProtocol) -> None:
        del self._opening[task]
        is_cancelled = task.cancelled()
        problem = None if is_cancelled else task.exception()
        if problem is None and not is_cancelled:
            return
        accepted.close()
        self._acceptor.abandon(protocol)
        if isinstance(problem, OSError):
            _LOG.info("cannot set up a connection to port %d: %s", self.port, problem)
        elif problem is not None:
            raise problem

    async def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        elif self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        opening = list(self._opening)
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
