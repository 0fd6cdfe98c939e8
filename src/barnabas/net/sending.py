"""Sends replies that contain file ranges, in order, at the pace at which the peer reads.

A connection has a sender from its first large reply with a range on; every later reply goes through it too. The ranges
of a small reply (`inlined`) are read at once, if they are in the page cache.

`SocketSender` writes to a duplicate of the transport's descriptor (uvloop has no sendfile, and refuses `add_writer` for
descriptors that are its own) once the transport has sent what it was given before. Buffers before a range are sent
with MSG_MORE, so that the head of a reply shares its packet with the first records. Of the few bytes behind them
sendfile knows nothing, so the socket is corked until they are in: a packet of their own would wake the reader once
more. The usual reply, a head, one range and a tail, goes through one call that does all of this (`framed_range`), as
far as the peer takes it at once. `StreamSender` serves transports that have no descriptor to write to (TLS, a simulated
network): it reads pieces of bounded size.

Invariants: every range is released exactly once, whatever happens; before each piece a revoked range ends the
connection; a disk that fails ends it too, and the owner is told which file it was; a range that is not in the page
cache is loaded in a worker thread first, also when it went cold while the peer took its time; one connection sends at
most `_TURN_BYTES_MAX` before the loop serves the others.
"""

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final, Protocol, TypeAlias

from barnabas.base.buffers import BUFFER_TYPES
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.filesystem import disk_error
from barnabas.net.counters import NetworkCounters
from barnabas.net.framed_range import send_framed_range
from barnabas.net.replies import ReplyPiece, SendableRange

_LOG = logging.getLogger(__name__)

INLINED_REPLY_BYTES_MAX: Final = 16 << 10
"""Up to this size it costs less to read a reply's ranges into memory and to send the whole at once."""
_TURN_BYTES_MAX: Final = 1 << 20
_STREAM_PIECE_BYTES: Final = 64 << 10
_READ_AHEAD_BYTES: Final = 4 << 20
_OF_THE_FILE: Final = frozenset({errno.EIO, errno.EUCLEAN, errno.ESTALE, errno.EBADMSG, errno.EREMOTEIO})
"""What sendfile says of the file it reads from, and never of a socket."""


class SenderOwner(Protocol):
    """The connection, as its sender sees it."""

    def sender_progressed(self) -> None:
        """Some of the queue is gone."""
        ...

    def sender_failed(self, reason: str) -> None:
        """The connection must end: the frame that was begun cannot be completed."""
        ...

    def file_failed(self, failure: DiskFailed) -> None:
        """The disk has failed under a range."""
        ...


class _RangeInProgress:
    __slots__ = ("is_warm", "position", "range", "remaining")

    def __init__(self, sendable: SendableRange) -> None:
        self.range = sendable
        self.position = sendable.position
        self.remaining = sendable.length
        self.is_warm = False


_Queued: TypeAlias = memoryview | _RangeInProgress


class Sender:
    """The queue and its rules; subclasses know how bytes leave."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        counters: NetworkCounters,
        owner: SenderOwner,
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._executor = executor
        self._counters = counters
        self._owner = owner
        self._queue: deque[_Queued] = deque()
        self._loading: asyncio.Future[None] | None = None
        self._is_closed = False
        self.queued_bytes = 0
        """What waits to be sent, ranges included."""

    @property
    def is_idle(self) -> bool:
        return not self._queue

    def push(self, pieces: Sequence[ReplyPiece]) -> None:
        for piece in pieces:
            if isinstance(piece, BUFFER_TYPES):
                self._queue.append(memoryview(piece))
                self.queued_bytes += len(piece)
            else:
                self._queue.append(_RangeInProgress(piece))
                self.queued_bytes += piece.length
        self.pump()

    def pump(self) -> None:
        """Sends until everything is sent, the peer takes no more, or a range must be loaded."""
        if self._is_closed or self._loading is not None or not self._queue or not self._can_send():
            return
        before = self.queued_bytes
        try:
            is_blocked = self._send_turn()
        except OSError as error:
            self._fail(f"cannot send: {error.strerror or error}")
            return
        except BarnabasError as error:
            self._report(error)
            self._fail(f"cannot send: {error}")
            return
        if is_blocked:
            self._await_turn()
        else:
            self._end_waiting()
        if self.queued_bytes != before and not self._is_closed:
            self._owner.sender_progressed()

    def _send_turn(self) -> bool:
        """Whether there is more to send, now or when the peer has taken some."""
        allowance = _TURN_BYTES_MAX
        while self._queue:
            head = self._queue[0]
            if isinstance(head, memoryview):
                if len(head):
                    try:
                        sent = self._send_buffer(head, len(self._queue) > 1)
                    except BlockingIOError:
                        return True
                    self._count(sent)
                    if sent < len(head):
                        self._queue[0] = head[sent:]
                        return True
                self._queue.popleft()
                continue
            if head.remaining:
                if allowance <= 0:
                    return True
                sent = self._send_from(head, min(head.remaining, allowance))
                if sent < 0:
                    return False
                if sent == 0:
                    head.is_warm = False  # by the time the peer reads on, the pages may be gone
                    return True
                allowance -= sent
            if not head.remaining:
                self._queue.popleft()
                head.range.release()
        return False

    def _send_from(self, head: _RangeInProgress, length: int) -> int:
        """How many bytes went out: 0 when the peer takes none, -1 when the range cannot be sent now or at all."""
        if head.range.is_revoked:
            self._fail("the records were truncated while they were being sent")
            return -1
        if not head.is_warm and not head.range.is_resident():
            self._load(head)
            return -1
        head.is_warm = True
        try:
            sent = self._send_range(head.range, head.position, length)
        except BlockingIOError:
            return 0
        if sent == 0:
            self._fail("a file is shorter than the range to send")
            return -1
        head.position += sent
        head.remaining -= sent
        self._count(sent)
        return sent

    def _count(self, sent: int) -> None:
        self.queued_bytes -= sent
        self._counters.bytes_out += sent

    def _load(self, head: _RangeInProgress) -> None:
        self._counters.ranges_loaded += 1
        loading = self._loop.run_in_executor(self._executor, head.range.load, _READ_AHEAD_BYTES)
        self._loading = loading
        loading.add_done_callback(self._loaded)

    def _loaded(self, loading: "asyncio.Future[None]") -> None:
        self._loading = None
        head = self._queue[0]
        assert isinstance(head, _RangeInProgress), "only a range is loaded, and it stays at the head meanwhile"
        error = None if loading.cancelled() else loading.exception()
        if self._is_closed:
            self._queue.popleft()
            head.range.release()
        elif isinstance(error, OSError | BarnabasError):
            self._report(error)
            self._fail(f"cannot read the data to send: {error}")
        elif error is not None:
            self._fail("cannot read the data to send")
            raise error
        else:
            head.is_warm = True
            self.pump()

    def _report(self, error: BaseException) -> None:
        if isinstance(error, DiskFailed):
            self._owner.file_failed(error)

    def _fail(self, reason: str) -> None:
        self.close()
        self._owner.sender_failed(reason)

    def close(self) -> None:
        """Gives everything back; a range that a thread is loading follows when the thread is done."""
        if self._is_closed:
            return
        self._is_closed = True
        in_use = self._queue.popleft() if self._loading is not None else None
        for queued in self._queue:
            if isinstance(queued, _RangeInProgress):
                queued.range.release()
        self._queue.clear()
        if in_use is not None:
            self._queue.append(in_use)

    def _can_send(self) -> bool:
        raise NotImplementedError

    def _await_turn(self) -> None:
        """Has `pump` called when more can be sent."""
        raise NotImplementedError

    def _end_waiting(self) -> None:
        """Nothing can be sent before the next push or the end of a load."""

    def _send_buffer(self, buffer: memoryview, has_more: bool) -> int:
        raise NotImplementedError

    def _send_range(self, sendable: SendableRange, position: int, length: int) -> int:
        raise NotImplementedError


class SocketSender(Sender):
    """sendfile past the transport. The duplicate descriptor is closed with the connection."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        counters: NetworkCounters,
        owner: SenderOwner,
    ) -> None:
        super().__init__(transport, loop, executor, counters, owner)
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket.setblocking(False)
        self._has_taken_over = False
        self._is_awaiting = False

    def push(self, pieces: Sequence[ReplyPiece]) -> None:
        if len(pieces) == 3 and not self._queue and self._can_send_at_once(*pieces):
            self._send_at_once(*pieces)  # type: ignore[arg-type] # as was just found
        else:
            super().push(pieces)

    def _can_send_at_once(self, head: ReplyPiece, sendable: ReplyPiece, tail: ReplyPiece) -> bool:
        if type(head) is not bytes or type(tail) is not bytes or isinstance(sendable, BUFFER_TYPES):
            return False
        if send_framed_range is None or self._is_closed or sendable.is_revoked or sendable.length > _TURN_BYTES_MAX:
            return False
        try:
            return self._can_send() and sendable.is_resident()
        except BarnabasError as error:
            self._report(error)
            return False

    def _send_at_once(self, head: bytes, sendable: SendableRange, tail: bytes) -> None:
        """The usual reply: one call sends what the peer takes of it, and only the rest is queued."""
        length = sendable.length
        try:
            sent = send_framed_range(
                self._socket.fileno(), head, sendable.file.fileno(), sendable.position, length, tail
            )
        except OSError as error:
            if error.errno in _OF_THE_FILE:
                self._report(disk_error("read", sendable.file.path, error))
            sendable.release()
            self._fail(f"cannot send: {error.strerror or error}")
            return
        self._counters.bytes_out += sent
        if sent == len(head) + length + len(tail):
            sendable.release()
        else:
            self._queue_rest(head, sendable, tail, sent)
            self._await_turn()
        self._owner.sender_progressed()

    def _queue_rest(self, head: bytes, sendable: SendableRange, tail: bytes, sent: int) -> None:
        rest = _RangeInProgress(sendable)
        of_range = min(max(0, sent - len(head)), sendable.length)
        rest.position += of_range
        rest.remaining -= of_range
        of_tail = max(0, sent - len(head) - sendable.length)
        self._queue.extend((memoryview(head)[sent:], rest, memoryview(tail)[of_tail:]))
        self.queued_bytes += len(head) + sendable.length + len(tail) - sent

    def _can_send(self) -> bool:
        if not self._has_taken_over:
            if self._transport.get_write_buffer_size():
                # With no room at all the transport says when it is empty: `resume_writing` calls `pump`.
                self._transport.set_write_buffer_limits(high=0)
                return False
            self._has_taken_over = True
        return True

    def _await_turn(self) -> None:
        if not self._is_awaiting:
            self._is_awaiting = True
            self._loop.add_writer(self._socket.fileno(), self.pump)

    def _end_waiting(self) -> None:
        if self._is_awaiting:
            self._is_awaiting = False
            self._loop.remove_writer(self._socket.fileno())

    def _send_turn(self) -> bool:
        if len(self._queue) < 3:  # nothing follows a range
            return super()._send_turn()
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        try:
            return super()._send_turn()
        finally:
            if not self._is_closed:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)

    def _send_buffer(self, buffer: memoryview, has_more: bool) -> int:
        return self._socket.send(buffer, socket.MSG_MORE if has_more else 0)

    def _send_range(self, sendable: SendableRange, position: int, length: int) -> int:
        try:
            return os.sendfile(self._socket.fileno(), sendable.file.fileno(), position, length)
        except OSError as error:
            if error.errno in _OF_THE_FILE:
                raise disk_error("read", sendable.file.path, error) from error
            raise

    def close(self) -> None:
        if self._is_closed:
            return
        super().close()
        self._end_waiting()
        self._socket.close()


class StreamSender(Sender):
    """Reads pieces and writes them to the transport whenever it has room."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        counters: NetworkCounters,
        owner: SenderOwner,
    ) -> None:
        super().__init__(transport, loop, executor, counters, owner)
        self._transport.set_write_buffer_limits(high=_STREAM_PIECE_BYTES)

    def _has_room(self) -> bool:
        return self._transport.get_write_buffer_size() <= _STREAM_PIECE_BYTES

    def _can_send(self) -> bool:
        return self._has_room()

    def _await_turn(self) -> None:
        # A full transport calls `resume_writing` when it has room again; else it was only the loop's turn.
        if self._has_room():
            self._loop.call_soon(self.pump)

    def _send_buffer(self, buffer: memoryview, has_more: bool) -> int:
        if not self._has_room():
            raise BlockingIOError
        self._transport.write(buffer)
        return len(buffer)

    def _send_range(self, sendable: SendableRange, position: int, length: int) -> int:
        if not self._has_room():
            raise BlockingIOError
        data = sendable.file.read_at(min(length, _STREAM_PIECE_BYTES), position)
        self._transport.write(data)
        return len(data)


def make_sender(
    transport: asyncio.Transport,
    loop: asyncio.AbstractEventLoop,
    executor: Executor,
    counters: NetworkCounters,
    owner: SenderOwner,
) -> Sender:
    has_socket = transport.get_extra_info("socket") is not None and transport.get_extra_info("sslcontext") is None
    if has_socket:
        try:
            return SocketSender(transport, loop, executor, counters, owner)
        except OSError as error:  # no descriptor left for the duplicate: slower, but it works
            _LOG.warning("replies are sent without sendfile: %s", error.strerror or error)
    return StreamSender(transport, loop, executor, counters, owner)


def inlined(sendable: SendableRange, owner: SenderOwner) -> ReplyPiece:
    """The range's bytes in memory, if they can be had without waiting; else the range, for a sender to deal with."""
    if sendable.is_revoked:
        return sendable
    try:
        data = sendable.read_resident()
    except DiskFailed as failure:
        owner.file_failed(failure)
        return sendable
    if data is None or len(data) < sendable.length:
        return sendable
    sendable.release()
    return data
