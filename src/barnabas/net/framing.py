"""Cuts what a connection receives into frames: an int32 length, then as many bytes.

    between frames ──whole frames──▶ frame_received, straight from the shared block
          │  ▲
     part of a frame                the last part came: frame_received
          ▼  │
    in a body of exactly the frame's size, which `recv` fills in place and never passes

A frame is a view that stays valid, with its bytes unchanged, as long as a reference to it exists. The receiver owns it
and may write into it (the log assigns a batch's offsets in place). A small view that is kept for long keeps its whole
block in memory: copy what must outlive the request.

The length is checked before memory is allocated. While `_is_held` is set, no frame is passed on, and received bytes
wait in `_leftover` (less than one block: the transport is paused at the same time) for `_parse_leftover`. A connection
that has ended stays held for good.
"""

import asyncio

from barnabas.net.buffers import ReceiveBuffers
from barnabas.wire.framing import LENGTH_BYTES
from barnabas.wire.primitives import INT32


class FrameReceiver(asyncio.BufferedProtocol):
    """The receiving half of a protocol. A subclass says what becomes of the frames."""

    __slots__ = ("_body", "_buffers", "_frame_bytes_max", "_is_held", "_leftover", "_missing")

    def __init__(self, buffers: ReceiveBuffers, frame_bytes_max: int) -> None:
        self._buffers = buffers
        self._frame_bytes_max = frame_bytes_max
        self._body: memoryview | None = None
        self._missing: memoryview | None = None
        """The part of `_body` that has not come yet."""
        self._leftover = b""
        self._is_held = False

    def frame_received(self, frame: memoryview) -> None:
        raise NotImplementedError

    def frame_refused(self, length: int) -> None:
        """A length that no frame has. Nothing after it can be understood: the connection must end, and be held."""
        raise NotImplementedError

    def frame_announced(self, length: int) -> bool:
        """Whether there may be memory for this frame now; if not, the subclass has set `_is_held`."""
        return True

    def get_buffer(self, sizehint: int) -> memoryview:
        missing = self._missing
        return self._buffers.tail if missing is None else missing

    def buffer_updated(self, nbytes: int) -> None:
        missing = self._missing
        if missing is None:
            data = self._buffers.take(nbytes)
            if self._leftover:
                data = memoryview(bytearray().join((self._leftover, data)))
            self._parse(data)
        elif nbytes < len(missing):
            self._missing = missing[nbytes:]
        else:
            body = self._body
            assert body is not None, "what is missing is a part of the body"
            self._body = self._missing = None
            self.frame_received(body)

    def _parse(self, data: memoryview) -> None:
        position = 0
        end = len(data)
        while end - position >= LENGTH_BYTES and not self._is_held:
            (length,) = INT32.unpack_from(data, position)
            if not 0 <= length <= self._frame_bytes_max:
                self.frame_refused(length)
                return
            start = position + LENGTH_BYTES
            if start + length > end:
                if self.frame_announced(length):
                    self._begin_body(length, data[start:])
                    position = end
                break
            position = start + length
            self.frame_received(data[start:position])
        # A copy, because a view would keep the whole block from being used again.
        self._leftover = bytes(data[position:]) if position < end else b""

    def _parse_leftover(self) -> None:
        leftover, self._leftover = self._leftover, b""
        if leftover:
            self._parse(memoryview(bytearray(leftover)))

    def _begin_body(self, length: int, beginning: memoryview) -> None:
        body = self._buffers.body(length)
        body[: len(beginning)] = beginning
        self._body = body
        self._missing = body[len(beginning) :]

    def _drop_received(self) -> None:
        self._body = self._missing = None
        self._leftover = b""
