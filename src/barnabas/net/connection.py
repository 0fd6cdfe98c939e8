"""One client's connection: frames in, replies out in the order of the requests.

```
NEW ──connection_made──▶ OPEN ──finish──▶ FINISHING ──all is answered and sent──▶ CLOSED ──connection_lost──▶ LOST
 │                        │                   │                                     ▲                          ▲
 ├── abort, finish ───────┴───────────────────┴── abort: bad frame, failed request ─┘                          │
 └── the handshake is cut off; from OPEN and FINISHING: the peer is gone ──────────────────────────────────────┘
```
`TRANSITIONS` is this as data, and every change of `Life` is checked against it. CLOSED is over for everybody above, and
the transport has been told; LOST is what the transport reports in the end, exactly once for every connection. A
handshake that is cut off when it had just succeeded is reported twice, and may even be made after it was lost.

Beside its life there are three facts: frames are held (`_is_held`, for good once it is CLOSED), the transport takes no
more (`_is_write_paused`), and somebody will call `flush` without being asked (`_is_flush_due`).

The replies that are ready leave together: once per batch of frames that was received, and once per loop tick for
those that became ready later (`ReplyFlusher`); code that answers many requests at a tick's end may flush at once.

Reading pauses while `unanswered_max` requests wait for an answer, while the peer does not take its replies
(`reply_bytes_queued_max`), and while the budget for requests is spent. So a client that only sends, or never reads,
fills its own socket and not our memory.

An error in one request ends its connection and no other: a `BarnabasError` is the peer's or the environment's and is
logged in a line; anything else is our bug and goes on to the event loop's exception handler.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextvars import Context
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from barnabas.base.buffers import BUFFER_TYPES
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.net.budget import FrameBudget
from barnabas.net.buffers import ReceiveBuffers
from barnabas.net.counters import NetworkCounters
from barnabas.net.framing import FrameReceiver
from barnabas.net.idle import IdleWheel
from barnabas.net.replies import ReplyPiece, ReplySlot, release_ranges
from barnabas.net.sending import INLINED_REPLY_BYTES_MAX, Sender, inlined, make_sender
from barnabas.net.wakefulness import Wakefulness

_LOG = logging.getLogger(__name__)


class Life(Enum):
    """Where a connection is between its admission and its end: see the module's diagram."""

    NEW = "new"
    OPEN = "open"
    FINISHING = "finishing"
    CLOSED = "closed"
    LOST = "lost"


TRANSITIONS: Final[Mapping[Life, frozenset[Life]]] = {
    Life.NEW: frozenset({Life.OPEN, Life.CLOSED, Life.LOST}),
    Life.OPEN: frozenset({Life.FINISHING, Life.CLOSED, Life.LOST}),
    Life.FINISHING: frozenset({Life.CLOSED, Life.LOST}),
    Life.CLOSED: frozenset({Life.LOST}),
    Life.LOST: frozenset(),
}

# For requests: no lookup in the class, and no hash of a member, which is a call.
_NEW: Final = Life.NEW
_LOST: Final = Life.LOST
_SERVING: Final = (Life.OPEN, Life.FINISHING)


_Slot = TypeVar("_Slot", bound=ReplySlot)


class ConnectionHandler(Protocol[_Slot]):
    """The layer above a connection; each connection has its own."""

    @property
    def new_slot(self) -> type[_Slot]:
        """The class that keeps a request's place in the order of replies."""
        ...

    def on_request(self, slot: _Slot, frame: memoryview, /) -> None:
        """Takes a request and completes its slot now or later. The view may be kept."""
        ...

    def on_closed(self) -> None:
        """The connection has ended; open slots may be completed or dropped."""
        ...


Connect: TypeAlias = Callable[["Connection"], ConnectionHandler[Any]]
"""Makes what stands above a connection."""


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    request_bytes_max: int = 100 << 20
    unanswered_max: int = 64
    """Far above the five that Kafka's clients keep in flight; with it one read can fill a whole tick's append."""
    reply_bytes_queued_max: int = 128 << 10


class ReplyFlusher:
    """The connections that have replies ready since the last tick."""

    __slots__ = ("_loop", "_ready", "is_expected")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: list[Connection] = []
        self.is_expected = False
        """Set by a caller that answers many requests now and calls `flush` at the end: the loop need not call it."""

    def add(self, connection: "Connection") -> None:
        if not (self._ready or self.is_expected):
            self._loop.call_soon(self.flush)
        self._ready.append(connection)

    def flush(self) -> None:
        """Sends what is ready."""
        self.is_expected = False
        ready, self._ready = self._ready, []
        for connection in ready:
            connection.flush()


@dataclass(frozen=True, slots=True)
class ConnectionShared:
    """What the connections of one server have in common."""

    loop: asyncio.AbstractEventLoop
    context: Context
    """Whose bugs these are (`barnabas.base.supervision`)."""
    buffers: ReceiveBuffers
    counters: NetworkCounters
    idle: IdleWheel
    flusher: ReplyFlusher
    budget: FrameBudget | None
    wakefulness: Wakefulness | None
    executor: Executor
    on_file_failure: Callable[[DiskFailed], None]


class _NoTransport(asyncio.Transport):
    """Of a connection that is not made yet: there is nothing to end."""

    def abort(self) -> None: ...


_NO_TRANSPORT: Final = _NoTransport()


class Connection(FrameReceiver):
    """Made when a client is accepted, over when `connection_lost` has been called."""

    __slots__ = (
        "_handler",
        "_is_flush_due",
        "_is_write_paused",
        "_life",
        "_new_slot",
        "_on_lost",
        "_options",
        "_sender",
        "_shared",
        "_slots",
        "_taken_bytes",
        "_transport",
        "active_turn",
        "idle_bucket",
        "listener_name",
        "peer_host",
        "peer_port",
    )

    def __init__(
        self,
        shared: ConnectionShared,
        options: ConnectionOptions,
        listener_name: str,
        peer: tuple[str, int],
        connect: Connect,
        on_lost: "Callable[[Connection], None]",
    ) -> None:
        """`connect` makes what stands above it, at once; `on_lost` is called when it is lost."""
        super().__init__(shared.buffers, options.request_bytes_max)
        self._shared = shared
        self._options = options
        self._on_lost = on_lost
        self._slots: deque[ReplySlot] = deque()
        self._sender: Sender | None = None
        self._taken_bytes = 0
        """What the frame that is being received has taken of the budget."""
        self._life = Life.NEW
        self._transport: asyncio.Transport = _NO_TRANSPORT
        self._is_flush_due = False
        self._is_write_paused = False
        self.active_turn = 0
        self.idle_bucket = 0
        self.listener_name = listener_name
        self.peer_host, self.peer_port = peer
        self._handler = handler = connect(self)
        self._new_slot: type[ReplySlot] = handler.new_slot

    def __repr__(self) -> str:
        return f"<connection {self.listener_name} {self.peer_host}:{self.peer_port}>"

    @property
    def life(self) -> Life:
        return self._life

    @property
    def context(self) -> Context:
        return self._shared.context

    @property
    def is_closed(self) -> bool:
        """Whether answers are dropped."""
        return self._life not in _SERVING and self._life is not _NEW

    @property
    def is_reading_paused(self) -> bool:
        return self._is_held

    @property
    def is_awaiting_answer(self) -> bool:
        return bool(self._slots)

    def _become(self, life: Life) -> None:
        assert life in TRANSITIONS[self._life], f"{self!r}: from {self._life.value} to {life.value}"
        self._life = life

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have every method of asyncio's, but are not derived from them.
        self._transport = cast(asyncio.Transport, transport)
        if self._life is not _NEW:  # it ended before it had begun
            self._transport.abort()
            return
        self._become(Life.OPEN)
        self._transport.set_write_buffer_limits(high=self._options.reply_bytes_queued_max)
        self._shared.idle.add(self)

    def buffer_updated(self, nbytes: int) -> None:
        shared = self._shared
        shared.counters.bytes_in += nbytes
        wakefulness = shared.wakefulness
        if wakefulness is not None:
            wakefulness.is_stirred = True
            if not wakefulness.is_awake:
                wakefulness.wake()
        self.active_turn = shared.idle.turn
        self._is_flush_due = True
        try:
            if self._missing is None and not self._leftover:  # the usual case, one call shorter
                self._parse(shared.buffers.take(nbytes))
            else:
                super().buffer_updated(nbytes)
        finally:
            self._is_flush_due = False
        if self._slots and self._slots[0].is_completed:
            self.flush()

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._review_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self.active_turn = self._shared.idle.turn
        if self._sender is not None:
            self._sender.pump()
        self._review_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._life is _LOST:  # a handshake that was cut off is reported twice when it had just succeeded
            return
        self._become(_LOST)
        self._is_held = True
        self._drop_received()
        self._shared.idle.discard(self)
        if self._sender is not None:
            self._sender.close()
        for slot in self._slots:
            if slot.is_completed:
                release_ranges(slot.reply)
        budget = self._shared.budget
        if budget is not None:
            budget.forget(self._review_reading)
            budget.give_back(self._taken_bytes + sum(slot.frame_bytes for slot in self._slots))
        self._slots.clear()
        self._on_lost(self)
        self._handler.on_closed()

    # Requests

    def frame_announced(self, length: int) -> bool:
        budget = self._shared.budget
        if budget is None:
            return True
        if budget.is_spent:
            self._review_reading()
            return False
        budget.take(length)
        self._taken_bytes = length
        return True

    def frame_received(self, frame: memoryview) -> None:
        shared = self._shared
        shared.counters.requests_in += 1
        budget = shared.budget
        if budget is not None:
            if not self._taken_bytes:
                budget.take(len(frame))
            self._taken_bytes = 0
        slots = self._slots
        slot = self._new_slot(self, len(frame))
        slots.append(slot)
        try:
            self._handler.on_request(slot, frame)
        except BarnabasError as error:
            self.request_failed(error)
            return
        except BaseException:
            self.abort()
            raise
        if len(slots) >= self._options.unanswered_max:
            self.flush()
            self._review_reading()
        elif budget is not None and budget.is_spent:
            self._review_reading()

    def frame_refused(self, length: int) -> None:
        limit = self._options.request_bytes_max
        _LOG.warning("%r closed: a request of %d bytes, where 0 to %d are allowed", self, length, limit)
        self.abort()

    def request_failed(self, error: BarnabasError) -> None:
        if not self.is_closed:
            _LOG.warning("%r closed: %s", self, error)
            self.abort()

    # Replies

    def slot_completed(self, slot: ReplySlot) -> None:
        if self._life not in _SERVING:
            release_ranges(slot.reply)
            slot.reply = None
        elif not self._is_flush_due and self._slots[0] is slot:
            self._is_flush_due = True
            self._shared.flusher.add(self)

    def flush(self) -> None:
        """Sends the replies that are ready and whose turn it is."""
        self._is_flush_due = False
        if self._life not in _SERVING:
            return
        slots = self._slots
        pieces: list[ReplyPiece] = []
        has_ranges = False
        answered_bytes = 0
        while slots and slots[0].is_completed:
            slot = slots.popleft()
            answered_bytes += slot.frame_bytes
            reply = slot.reply
            if isinstance(reply, BUFFER_TYPES):
                pieces.append(reply)
            elif reply is not None:
                has_ranges |= self._add_parts(reply, pieces)
        if has_ranges or (pieces and self._sender is not None):
            self._send(pieces)
        elif pieces:
            buffers: list[bytes] = pieces  # type: ignore[assignment] # without ranges they are buffers
            if len(buffers) == 1:
                self._shared.counters.bytes_out += len(buffers[0])
                self._transport.write(buffers[0])
            elif not self._transport.is_closing():  # from Python 3.12 on asyncio's transport raises then
                self._shared.counters.bytes_out += sum(map(len, buffers))
                self._transport.writelines(buffers)
        if self._shared.budget is not None:
            self._shared.budget.give_back(answered_bytes)
        if self._is_held:
            self._review_reading()

    def _add_parts(self, parts: Sequence[ReplyPiece], pieces: list[ReplyPiece]) -> bool:
        """Adds a reply of several parts; whether there are ranges in it. In plain loops: a generator costs a call for
        each part."""
        size_bytes, has_ranges = 0, False
        for part in parts:
            size_bytes += len(part) if isinstance(part, BUFFER_TYPES) else part.length
        for part in parts:
            piece = part
            if not isinstance(piece, BUFFER_TYPES):
                if size_bytes <= INLINED_REPLY_BYTES_MAX:
                    piece = inlined(piece, self)
                has_ranges |= not isinstance(piece, BUFFER_TYPES)
            pieces.append(piece)
        return has_ranges

    def _send(self, pieces: list[ReplyPiece]) -> None:
        if self._sender is None:
            shared = self._shared
            self._sender = make_sender(self._transport, shared.loop, shared.executor, shared.counters, self)
        self._sender.push(pieces)
        self._review_reading()

    def sender_progressed(self) -> None:
        shared = self._shared
        self.active_turn = shared.idle.turn
        if shared.wakefulness is not None:
            shared.wakefulness.stir()
        if self._is_held:
            self._review_reading()

    def sender_failed(self, reason: str) -> None:
        _LOG.info("%r closed: %s", self, reason)
        self.abort()

    def file_failed(self, failure: DiskFailed) -> None:
        self._shared.on_file_failure(failure)

    # Pausing, resuming, ending

    def _review_reading(self) -> None:
        """Pauses or resumes reading, as the queues say; ends a connection that was only finishing."""
        if self._life not in _SERVING:
            return
        sender, is_finishing = self._sender, self._life is Life.FINISHING
        if is_finishing and not self._slots and (sender is None or sender.is_idle):
            self._close()
            self._transport.close()
            return
        unanswered_max = self._options.unanswered_max
        must_hold = (
            is_finishing
            or self._is_write_paused
            # Once held, half of them must be answered: pausing and resuming are system calls.
            or len(self._slots) >= (unanswered_max if not self._is_held else max(1, unanswered_max // 2))
            or (sender is not None and sender.queued_bytes >= self._options.reply_bytes_queued_max)
        )
        budget = self._shared.budget
        if not must_hold and budget is not None and budget.is_spent:
            must_hold = True
            budget.wait(self._review_reading)
        if must_hold and not self._is_held:
            self._is_held = True
            self._transport.pause_reading()
        elif self._is_held and not must_hold:
            self._is_held = False
            self._shared.loop.call_soon(self._continue_reading)

    def _continue_reading(self) -> None:
        if self._is_held:
            return
        self._is_flush_due = True
        try:
            self._parse_leftover()
        finally:
            self._is_flush_due = False
        if self._slots:
            self.flush()
        if not self._is_held:
            self._transport.resume_reading()

    def finish(self) -> None:
        """Takes no more requests, and closes when those that were taken are answered."""
        if self._life is _NEW:
            self.abort()
        elif self._life is Life.OPEN:
            self._become(Life.FINISHING)
            self._leftover = b""
            self._review_reading()

    def close_idle(self) -> None:
        _LOG.debug("%r closed: idle", self)
        self._shared.counters.connections_closed_idle += 1
        self.abort()

    def abort(self) -> None:
        """Ends the connection at once; what is not sent yet is dropped, also of one that is CLOSED already."""
        if self._life is not _LOST:
            if self._life is not Life.CLOSED:
                self._close()
            self._transport.abort()

    def _close(self) -> None:
        self._become(Life.CLOSED)
        self._is_held = True
