"""Watches that every request that reached a broker is answered, or its connection closed, in bounded virtual time.

A `RequestWatch` sees what a broker's end of a connection receives and sends, as bytes, and knows of Kafka's protocol no
more than frames, API keys and correlation ids. Answers come in the order of the requests, so that an answer also tells
that everything before it will have none: a Produce with acks=0, or a mistake of the broker's.
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.wire.apis import ApiKey

ANSWER_SECONDS_MAX: Final = 60.0
"""Longer than a request may ask a broker to wait, and than a broker is paused."""
_JOIN_SECONDS_MAX: Final = 400.0
"""A member may wait for the others as long as a rebalance lasts."""
_JOINING: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
_LENGTH: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhih")
_FLEXIBLE_PRODUCE_FROM: Final = 9


class _Asked(NamedTuple):
    at: float
    api_key: int
    correlation_id: int
    has_answer: bool


class _Frames:
    """Frames out of a stream of bytes."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        self._data += data
        frames = []
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            if len(self._data) < _LENGTH.size + length:
                break
            frames.append(bytes(self._data[_LENGTH.size : _LENGTH.size + length]))
            del self._data[: _LENGTH.size + length]
        return frames


class RequestWatch:
    def __init__(self, host: str, peer: str, now: Callable[[], float], report: Callable[[str], None]) -> None:
        self._names = f"{host} to {peer}"
        self._now = now
        self._report = report
        self._asked: deque[_Asked] = deque()
        self._received = _Frames()
        self._sent = _Frames()

    def received(self, data: bytes) -> None:
        """The broker took these bytes."""
        for frame in self._received.add(data):
            api_key, version, correlation_id, _ = _REQUEST.unpack_from(frame)
            self._asked.append(_Asked(self._now(), api_key, correlation_id, _has_answer(frame, api_key, version)))

    def sent(self, data: bytes) -> None:
        """The broker wrote these bytes."""
        for frame in self._sent.add(data):
            (correlation_id,) = _LENGTH.unpack_from(frame)
            while self._asked:
                asked = self._asked.popleft()
                if asked.correlation_id == correlation_id:
                    self._judge(asked, "was answered")
                    break
                if asked.has_answer:
                    self._report(f"{self._names}: {_name(asked)} was passed over")
            else:
                self._report(f"{self._names}: an answer with the id {correlation_id}, for which nobody asked")

    def look(self) -> None:
        """Whether somebody has been waiting for too long."""
        for asked in self._asked:
            if asked.has_answer:
                self._judge(asked, "has waited for an answer")
                return

    def _judge(self, asked: _Asked, what: str) -> None:
        seconds = self._now() - asked.at
        if seconds > (_JOIN_SECONDS_MAX if asked.api_key in _JOINING else ANSWER_SECONDS_MAX):
            self._report(f"{self._names}: {_name(asked)} {what} after {seconds:.1f} s")


def _name(asked: _Asked) -> str:
    return f"request {asked.correlation_id} ({ApiKey(asked.api_key).name})"


def _has_answer(frame: bytes, api_key: int, version: int) -> bool:
    """All have, but for a Produce with acks=0."""
    if api_key != ApiKey.PRODUCE:
        return True
    _, _, _, client_id_length = _REQUEST.unpack_from(frame)
    position = _REQUEST.size + max(client_id_length, 0)
    # No tags, and no transactional id: a null of one byte, or of two.
    position += 2
    acks = int.from_bytes(frame[position : position + 2], "big", signed=True)
    assert frame[position - 2 : position] == (b"\0\0" if version >= _FLEXIBLE_PRODUCE_FROM else b"\xff\xff")
    return acks != 0
