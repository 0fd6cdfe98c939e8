"""A network in memory: hosts, listeners, connections, and links that are slow, cut or broken.

Each host gets its own `HostNetwork`, which brokers and clients use as their `barnabas.net.stream.Network`. A link leads
from one host to another; the way back is a link of its own, so a cut can be one-way. A cut loses no bytes of a
connection that outlives it, because TCP sends them again: they arrive when the cut is healed. A connection that one end
gave up meanwhile is half-open: the other end learns of it when it sends something, by a reset.

A host without power answers nothing. One whose process is held accepts connections, as kernels do, and nobody there
reads them.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from barnabas.net.errors import ListenFailed
from barnabas.net.stream import Acceptor, ListenAddress
from barnabas.sim.world.answers import RequestWatch
from barnabas.sim.world.loop import VirtualLoop
from barnabas.sim.world.process import PROCESS, Process
from barnabas.sim.world.transport import SimulatedTransport

_FIRST_FREE_PORT: Final = 20_000
_FIRST_CLIENT_PORT: Final = 40_000
_RETRY_SECONDS: Final = 1.0
"""How often an unanswered attempt to connect is repeated."""
_OUTSIDE: Final = Context()
"""For what hosts and wires do by themselves: it belongs to no process."""
_PIECES_CHANCE: Final = 0.1

Arrival = Callable[[Any], None]


@dataclass(slots=True)
class Link:
    """From one host to another."""

    delay_seconds_min: float = 0.0001
    delay_seconds_max: float = 0.001
    bytes_per_second: float | None = None
    is_cut: bool = False
    held: deque[tuple[SimulatedTransport, Arrival, Any]] = field(default_factory=deque)
    """What will be sent again when the cut is healed."""


class SimulatedNetwork:
    def __init__(
        self, loop: VirtualLoop, random: Random, note: Callable[..., None], report: Callable[[str], None]
    ) -> None:
        """`note` gets every event, for the trace; `report` what must never happen."""
        self.loop = loop
        self.note = note
        self._report = report
        self._random = random
        self._links: dict[tuple[str, str], Link] = {}
        self._listening: dict[tuple[str, int], SimulatedListening] = {}
        self._transports: dict[SimulatedTransport, None] = {}
        self._powerless: dict[str, None] = {}
        self._refusing: dict[str, None] = {}
        self._next_client_port = _FIRST_CLIENT_PORT

    def at(self, host: str) -> "HostNetwork":
        return HostNetwork(self, host)

    # Faults

    def link(self, source: str, target: str) -> Link:
        return self._links.setdefault((source, target), Link())

    def cut(self, source: str, target: str) -> None:
        """One way: nothing that `source` sends reaches `target`."""
        self.link(source, target).is_cut = True

    def heal(self) -> None:
        """Every link is whole and fast again, and every host accepts."""
        self._refusing.clear()
        for source, target in list(self._links):
            self.heal_link(source, target)

    def heal_link(self, source: str, target: str) -> None:
        """What was sent while it was cut arrives now."""
        held = self.link(source, target).held
        self._links[source, target] = Link()
        for transport, arrival, what in held:
            self._arrived(transport, arrival, what)

    def refuse_connections(self, host: str) -> None:
        self._refusing[host] = None

    def accept_connections(self, host: str) -> None:
        self._refusing.pop(host, None)

    def break_connection(self, host: str, after_bytes: int) -> bool:
        """Resets some connection of a host in the middle of what arrives there. False: it has none."""
        candidates = [one for one in self._transports if one.host == host and not one.is_over]
        if not candidates:
            return False
        self._random.choice(candidates).break_after_bytes = after_bytes
        return True

    def lose_answer(self, source: str, target: str) -> None:
        """Every connection between these two that is open now breaks when the next byte of `source` gets there."""
        for transport in self._transports:
            if transport.host == target and transport.peer.host == source and not transport.is_over:
                transport.break_after_bytes = 1

    def process_ended(self, process: Process) -> None:
        """Its listeners and connections are closed by its host."""
        self._close_listeners(process)
        for transport in [one for one in self._transports if one.process is process]:
            transport.process_ended()
            del self._transports[transport]

    def power_lost(self, host: str, process: Process | None) -> None:
        self._powerless[host] = None
        if process is not None:
            self._close_listeners(process)
            for transport in [one for one in self._transports if one.process is process]:
                transport.vanish()
                del self._transports[transport]

    def power_back(self, host: str) -> None:
        """Resets the connections that peers still have to this host, where data is under way."""
        self._powerless.pop(host, None)
        for transport in [one for one in self._transports if one.peer.host == host and one.peer.is_over]:
            if transport.get_write_buffer_size():
                transport.reset()

    def _close_listeners(self, process: Process) -> None:
        for address in [key for key, one in self._listening.items() if one.process is process]:
            del self._listening[address]

    # Traffic

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The data as it will arrive: whole, or now and then in two."""
        if len(data) > 1 and self._random.random() < _PIECES_CHANCE:
            middle = self._random.randrange(1, len(data))
            yield data[:middle]
            yield data[middle:]
        else:
            yield data

    def send(self, source: SimulatedTransport, arrival: Arrival, what: Any) -> None:
        """Calls `arrival(what)` when it gets there, if it does."""
        link = self.link(source.host, source.peer.host)
        seconds = self._random.uniform(link.delay_seconds_min, link.delay_seconds_max)
        if link.bytes_per_second is not None and isinstance(what, bytes):
            seconds += len(what) / link.bytes_per_second
        at = source.arrival_seconds(self.loop.time() + seconds)
        self.loop.call_at(at, self._arrived, source, arrival, what, context=_OUTSIDE)

    def _arrived(self, source: SimulatedTransport, arrival: Arrival, what: Any) -> None:
        target = source.peer.host
        link = self.link(source.host, target)
        if link.is_cut:
            link.held.append((source, arrival, what))
        elif target not in self._powerless:
            self.note("arrive", source.host, target, what if isinstance(what, bytes) else repr(what))
            arrival(what)

    def is_reachable(self, source: str, target: str) -> bool:
        """Whether a packet gets there and an answer back."""
        ways = (self.link(source, target), self.link(target, source))
        return target not in self._powerless and not any(way.is_cut for way in ways)

    async def connect(self, source: str, target: str, port: int, protocol: asyncio.BufferedProtocol) -> None:
        await asyncio.sleep(self._random.uniform(0.0002, 0.002))
        while not self.is_reachable(source, target):  # noqa: ASYNC110 - as TCP, which tries again and again
            await asyncio.sleep(_RETRY_SECONDS)
        listening = self._listening.get((target, port))
        if listening is None or target in self._refusing:
            raise ConnectionRefusedError(111, "Connection refused")
        self._next_client_port += 1
        near = SimulatedTransport(self, source, copy_context())
        far = SimulatedTransport(self, target, listening.context)
        near.peer, far.peer = far, near
        far.watch = RequestWatch(target, source, self.loop.time, self._report)
        self._transports[near] = self._transports[far] = None
        self.note("connect", source, target, port)
        listening.add(far, (source, self._next_client_port))
        near.connect(protocol)

    def listen(self, host: str, address: ListenAddress) -> "SimulatedListening":
        port = address.port or next(
            port for port in range(_FIRST_FREE_PORT, 1 << 16) if (host, port) not in self._listening
        )
        if (host, port) in self._listening:
            raise ListenFailed(address.host, port, OSError(98, "Address already in use"))
        listening = SimulatedListening(self, host, port, copy_context())
        self._listening[host, port] = listening
        return listening

    def close(self, listening: "SimulatedListening") -> None:
        if self._listening.get((listening.host, listening.port)) is listening:
            del self._listening[listening.host, listening.port]

    def forget(self, transport: SimulatedTransport) -> None:
        self._transports.pop(transport, None)

    def look_for_unanswered(self) -> None:
        """Reports requests that have waited for too long, of every connection that is open."""
        for transport in self._transports:
            if transport.watch is not None and not transport.is_over:
                transport.watch.look()

    def open_connections(self, process: Process) -> int:
        return sum(1 for one in self._transports if one.process is process and not one.is_over)


class SimulatedListening:
    def __init__(self, network: SimulatedNetwork, host: str, port: int, context: Context) -> None:
        self.host = host
        self.port = port
        self.context = context
        self.process: Process | None = context.get(PROCESS)
        self._network = network
        self._acceptor: Acceptor | None = None
        self._backlog: list[tuple[SimulatedTransport, tuple[str, int]]] = []

    def add(self, transport: SimulatedTransport, peer: tuple[str, int]) -> None:
        self._backlog.append((transport, peer))
        if self._acceptor is not None:
            self._network.loop.call_soon(self._admit, context=self.context)

    def accept(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self._network.loop.call_soon(self._admit, context=self.context)

    def _admit(self) -> None:
        assert self._acceptor is not None, "accepting began"
        waiting, self._backlog = self._backlog, []
        for transport, peer in waiting:
            protocol = self._acceptor.admit(peer)
            if protocol is None:
                transport.abort()
            else:
                transport.connect(protocol)

    async def close(self) -> None:
        self._network.close(self)
        for transport, _ in self._backlog:
            transport.abort()
        self._backlog.clear()


class HostNetwork:
    """The network as one host sees it. Names of hosts are their addresses."""

    def __init__(self, network: SimulatedNetwork, host: str) -> None:
        self._network = network
        self._host = host

    async def listen(self, address: ListenAddress) -> SimulatedListening:
        return self._network.listen(self._host, address)

    async def connect(
        self, host: str, port: int, protocol: asyncio.BufferedProtocol, tls: ssl.SSLContext | None = None
    ) -> None:
        assert tls is None, "a simulated network carries plain bytes"
        await self._network.connect(self._host, host, port, protocol)
