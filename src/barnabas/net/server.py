"""Listeners, and every connection that came in through them.

A listener has a name, the address it is bound to and the one advertised to clients. Limits hold for all listeners
together, as in Kafka: `max.connections`, `max.connections.per.ip` with exceptions for single addresses. A connection
over a limit is closed at once; that is logged at most every ten seconds, with a count.

Stopping: no connection is accepted, requests already taken are answered and the answers sent, then each connection is
closed; what is not done by the deadline is aborted. `stop` returns when no connection is left.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Final

from barnabas.base.errors import DiskFailed
from barnabas.net.budget import FrameBudget
from barnabas.net.buffers import ReceiveBuffers
from barnabas.net.connection import (
    Connect,
    Connection,
    ConnectionOptions,
    ConnectionShared,
    ReplyFlusher,
)
from barnabas.net.counters import NetworkCounters
from barnabas.net.idle import IdleWheel
from barnabas.net.stream import ListenAddress, Listening, Network
from barnabas.net.wakefulness import Wakefulness

_LOG = logging.getLogger(__name__)

_UNLIMITED: Final = 2**31 - 1
_REFUSALS_LOG_SECONDS: Final = 10.0
_EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """A listener as it is configured. Without an advertised address, clients get the bound one."""

    name: str
    host: str
    port: int
    advertised_host: str | None = None
    advertised_port: int | None = None
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener whose address was taken."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int


@dataclass(frozen=True, slots=True)
class ServerOptions:
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    queued_request_bytes_max: int | None = None
    idle_seconds: float | None = 600.0
    connections_max: int = _UNLIMITED
    connections_per_host_max: int = _UNLIMITED
    connections_per_host_overrides: Mapping[str, int] = field(default_factory=dict)
    unlimited_listener: str | None = None
    """Connections to this listener neither are limited nor count: other brokers come by it."""
    backlog: int = 50
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None
    awake_seconds: float = 0.0
    """How long to poll for the next request before going to sleep."""


class Server:
    """Make it inside the running loop.

    `options` may be replaced while it runs: limits on connections hold at once, `connection` for new ones; the idle
    time, the budget and `awake_seconds` are those of the start. `unlimited_listener` stays the same.
    """

    def __init__(
        self,
        network: Network,
        options: ServerOptions,
        executor: Executor,
        on_file_failure: Callable[[DiskFailed], None] = lambda failure: None,
    ) -> None:
        """`executor` reads files that are not in memory; `on_file_failure` is told when one cannot be read."""
        loop = asyncio.get_running_loop()
        self.options = options
        self.counters = NetworkCounters()
        self._loop = loop
        self._network = network
        queued_max = options.queued_request_bytes_max
        self._shared = ConnectionShared(
            loop=loop,
            context=copy_context(),
            buffers=ReceiveBuffers(),
            counters=self.counters,
            idle=IdleWheel(loop, options.idle_seconds),
            flusher=ReplyFlusher(loop),
            budget=None if queued_max is None else FrameBudget(queued_max),
            wakefulness=Wakefulness(loop, time.perf_counter, options.awake_seconds) if options.awake_seconds else None,
            executor=executor,
            on_file_failure=on_file_failure,
        )
        self._listening: dict[str, Listening] = {}
        self._connections: dict[Connection, None] = {}
        self._connections_per_host: dict[str, int] = {}
        """Those that count for the limits."""
        self._limited_count = 0
        self._all_lost = asyncio.Event()
        self._all_lost.set()
        self._refusals = _RefusalLog(loop)
        self._is_stopping = False
        self._shared.idle.start()

    async def listen(self, spec: ListenerSpec) -> Listener:
        """Takes the address. Clients that come are served from `accept` on."""
        options = self.options
        address = ListenAddress(
            host=spec.host,
            port=spec.port,
            backlog=options.backlog,
            tls=spec.tls,
            send_buffer_bytes=options.send_buffer_bytes,
            receive_buffer_bytes=options.receive_buffer_bytes,
        )
        listening = await self._network.listen(address)
        self._listening[spec.name] = listening
        own_host = socket.gethostname() if spec.host in _EVERY_INTERFACE else spec.host
        return Listener(
            name=spec.name,
            host=spec.host,
            port=listening.port,
            advertised_host=spec.advertised_host or own_host,
            advertised_port=spec.advertised_port or listening.port,
        )

    def accept(self, connect: Connect) -> None:
        """Begins to accept, on every listener. `connect` makes what stands above each connection."""
        for name, listening in self._listening.items():
            listening.accept(_ListenerAcceptor(self, name, connect))

    @property
    def replies(self) -> ReplyFlusher:
        """Sends every reply that is ready, without waiting for the loop's next turn."""
        return self._shared.flusher

    def admit(self, listener_name: str, peer: tuple[str, int], connect: Connect) -> Connection | None:
        is_limited = listener_name != self.options.unlimited_listener
        problem = self._problem_with(peer[0], is_limited=is_limited)
        if problem is not None:
            self.counters.connections_refused += 1
            self._refusals.add(peer[0], problem)
            return None
        connection = Connection(self._shared, self.options.connection, listener_name, peer, connect, self.forget)
        self._connections[connection] = None
        if is_limited:
            self._connections_per_host[peer[0]] = self._connections_per_host.get(peer[0], 0) + 1
            self._limited_count += 1
        self._all_lost.clear()
        self.counters.connections_accepted += 1
        self.counters.connections_open += 1
        return connection

    def _problem_with(self, host: str, *, is_limited: bool) -> str | None:
        options = self.options
        if self._is_stopping:
            return "the server is stopping"
        if not is_limited:
            return None
        if self._limited_count >= options.connections_max:
            return f"max.connections={options.connections_max} are open"
        per_host_max = options.connections_per_host_overrides.get(host, options.connections_per_host_max)
        if self._connections_per_host.get(host, 0) >= per_host_max:
            return f"max.connections.per.ip={per_host_max} are open from that address"
        return None

    def forget(self, connection: Connection) -> None:
        del self._connections[connection]
        if connection.listener_name != self.options.unlimited_listener:
            self._limited_count -= 1
            left = self._connections_per_host[connection.peer_host] - 1
            if left:
                self._connections_per_host[connection.peer_host] = left
            else:
                del self._connections_per_host[connection.peer_host]
        self.counters.connections_open -= 1
        if not self._connections:
            self._all_lost.set()

    def drop_connections(self) -> None:
        """Ends every connection at once, and goes on accepting."""
        for connection in list(self._connections):
            connection.abort()

    def turn_away(self) -> None:
        """Ends every connection at once, and every one that is still to come."""
        self._is_stopping = True
        self.drop_connections()

    async def stop(self, grace_seconds: float) -> None:
        self._is_stopping = True
        for listening in self._listening.values():
            await listening.close()
        for connection in list(self._connections):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._all_lost.wait()
        if self._connections:
            _LOG.warning("closing connections that did not finish in %g s: %d", grace_seconds, len(self._connections))
            for connection in list(self._connections):
                connection.abort()
            await self._all_lost.wait()
        self._shared.idle.stop()


class _ListenerAcceptor:
    """The server, as one listener sees it."""

    __slots__ = ("_connect", "_name", "_server")

    def __init__(self, server: Server, name: str, connect: Connect) -> None:
        self._server = server
        self._name = name
        self._connect = connect

    def admit(self, peer: tuple[str, int]) -> Connection | None:
        return self._server.admit(self._name, peer, self._connect)

    def abandon(self, protocol: asyncio.BufferedProtocol) -> None:
        assert isinstance(protocol, Connection), "only connections are admitted"
        protocol.connection_lost(None)


class _RefusalLog:
    """Says the first refusal at once, and of a flood only how many there were."""

    __slots__ = ("_count", "_loop", "_quiet_until")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._quiet_until = 0.0

    def add(self, host: str, problem: str) -> None:
        self._count += 1
        now = self._loop.time()
        if now >= self._quiet_until:
            _LOG.warning("refused connections: %d, the last one from %s: %s", self._count, host, problem)
            self._count = 0
            self._quiet_until = now + _REFUSALS_LOG_SECONDS
