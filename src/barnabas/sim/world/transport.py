"""One end of a simulated connection: what asyncio calls a transport, without a socket.

```
write > [in flight: a delay, a bandwidth, cuts] > the peer's host > [until it reads] > the peer's protocol
```

Bytes of one connection never overtake each other. They arrive in pieces that the seed decides, so that a frame may be
cut anywhere. The writer's buffer shrinks when the peer's protocol has taken the bytes: a peer that does not read, or is
stopped, pauses the writer. What arrives at a host whose process has closed the connection is answered with a reset.

The protocol is called in the context of its process, so that nothing reaches a process that is dead or held.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from barnabas.sim.world.answers import RequestWatch
from barnabas.sim.world.process import PROCESS, Process

if TYPE_CHECKING:
    from barnabas.sim.world.network import SimulatedNetwork

_PACKET_SECONDS: Final = 1e-6
_WRITE_BUFFER_BYTES: Final = 64 << 10


class SimulatedTransport(asyncio.Transport):
    peer: "SimulatedTransport"

    def __init__(self, network: "SimulatedNetwork", host: str, context: Context) -> None:
        super().__init__()
        self.host = host
        self.process: Process | None = context.get(PROCESS)
        self.break_after_bytes: int | None = None
        """Set by a fault: the connection is reset when this many more bytes have arrived here."""
        self.watch: RequestWatch | None = None
        """At a broker's end: sees what comes and goes."""
        self.is_over = False
        """The host knows of this connection no more."""
        self._network = network
        self._loop = network.loop
        self._context = context
        self._protocol: asyncio.BufferedProtocol | None = None
        self._unread: deque[bytes] = deque()
        self._unacknowledged_bytes = 0
        self._last_arrival = 0.0
        self._high_bytes, self._low_bytes = _WRITE_BUFFER_BYTES, _WRITE_BUFFER_BYTES // 4
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._has_ended = False
        """The peer will send nothing more."""
        self._reason: Exception | None = None
        """Why it will not; None when it closed in order."""
        self._is_closing = False
        self._is_delivering = False

    # What a protocol asks for

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = _WRITE_BUFFER_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low
        self._review_writing()

    def get_write_buffer_size(self) -> int:
        return self._unacknowledged_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._is_process_dead():
            return
        content = bytes(data)
        if not content:
            return
        if self.watch is not None:
            self.watch.sent(content)
        self._unacknowledged_bytes += len(content)
        for piece in self._network.pieces(content):
            self._network.send(self, self.peer.arrive, piece)
        self._review_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        self._deliver_soon()

    def is_reading(self) -> bool:
        return not self._is_reading_paused and not self._is_closing

    def close(self) -> None:
        """What was written still arrives, then the peer sees the end."""
        self._end_here(None)

    def abort(self) -> None:
        self._end_here(ConnectionResetError(104, "Connection reset by peer"))

    # What the network does

    def connect(self, protocol: asyncio.BufferedProtocol) -> None:
        """In the process: from now on the protocol gets what arrives."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._deliver_soon()

    def vanish(self) -> None:
        """The host lost power: nobody is told."""
        self.is_over = self._is_closing = True

    def process_ended(self) -> None:
        """The process died; its host closes what it had open."""
        if not self.is_over:
            self.is_over = self._is_closing = True
            self._network.send(self, self.peer.arrive_end, ConnectionResetError(104, "Connection reset by peer"))

    def reset(self) -> None:
        """The connection breaks, as both ends will see."""
        reason = ConnectionResetError(104, "Connection reset by peer")
        self.arrive_end(reason)
        self.peer.arrive_end(reason)

    def arrival_seconds(self, at: float) -> float:
        """When something sent now arrives, `at` the earliest: always after what was sent earlier.

        Not at the same moment: asyncio's timers of one moment come in any order.
        """
        self._last_arrival = max(self._last_arrival + _PACKET_SECONDS, at)
        return self._last_arrival

    def _is_process_dead(self) -> bool:
        return self.process is not None and self.process.is_dead

    def _end_here(self, reason: Exception | None) -> None:
        if self._is_closing:
            return
        self.is_over = self._is_closing = True
        if not self._is_process_dead():
            self._network.send(self, self.peer.arrive_end, reason)
        self._loop.call_soon(self._lost, None, context=self._context)

    def arrive(self, data: bytes) -> None:
        if self.is_over:
            self._network.send(self, self.peer.arrive_end, ConnectionResetError(104, "Connection reset by peer"))
            return
        if self._has_ended:
            return
        if self.break_after_bytes is not None:
            if len(data) >= self.break_after_bytes:
                self._unread.append(data[: self.break_after_bytes])
                self._network.note("break", self.host, self.peer.host)
                self.reset()
                return
            self.break_after_bytes -= len(data)
        self._unread.append(data)
        self._deliver_soon()

    def arrive_end(self, reason: Exception | None) -> None:
        if not self._has_ended and not self.is_over:
            self._has_ended, self._reason = True, reason
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._is_delivering:
            self._is_delivering = True
            self._loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        """One piece each time, as a socket is read once in each turn of the loop."""
        self._is_delivering = False
        protocol = self._protocol
        if protocol is None or self._is_closing:
            return
        if self._unread and not self._is_reading_paused:
            data = self._unread.popleft()
            buffer = memoryview(protocol.get_buffer(-1))
            taken = min(len(buffer), len(data))
            buffer[:taken] = data[:taken]
            if taken < len(data):
                self._unread.appendleft(data[taken:])
            self.peer.acknowledge(taken)
            if self.watch is not None:
                self.watch.received(data[:taken])
            protocol.buffer_updated(taken)
        # A reset is noticed by a write, too, whether or not anything is read.
        if self._has_ended and (not self._unread or (self._reason is not None and self._is_reading_paused)):
            self._is_closing = self.is_over = True
            if self._reason is None:
                protocol.eof_received()
            self._lost(self._reason)
        elif self._unread and not self._is_reading_paused:
            self._deliver_soon()

    def _lost(self, reason: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        self._network.forget(self)
        if protocol is not None:
            protocol.connection_lost(reason)

    def acknowledge(self, count: int) -> None:
        """The peer has taken bytes."""
        self._unacknowledged_bytes -= count
        if self._is_writing_paused and self._unacknowledged_bytes <= self._low_bytes:
            self._loop.call_soon(self._review_writing, context=self._context)

    def _review_writing(self) -> None:
        protocol = self._protocol
        if protocol is None or self._is_closing:
            return
        if not self._is_writing_paused and self._unacknowledged_bytes > self._high_bytes:
            self._is_writing_paused = True
            protocol.pause_writing()
        elif self._is_writing_paused and self._unacknowledged_bytes <= self._low_bytes:
            self._is_writing_paused = False
            protocol.resume_writing()
