"""What a session and a simulated ZooKeeper say to each other, and the channel that carries it over the network.

```
session                              ensemble
Hello ──────────────────────────────▶
      ◀───────────────── Welcome, or Expired, or the end of the connection
Read, Write, Sync, End ─────────────▶        answered in order
      ◀─────────────────────────── Answer
      ◀──────────────────────────── Fired    before any answer that sees the change
Ping ───────────────────────────────▶
      ◀───────────────────────────── Pong    at once
```
A message is a frame: its length in four bytes, and a pickle. The pickles remember no objects (`fast`), so that equal
messages are equal bytes, whatever the process did before.
"""

import asyncio
import enum
import io
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

from barnabas.metadata.errors import StoreError
from barnabas.metadata.store import Operation, Watch, WatchEvent
from barnabas.metadata.watches import Watches
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey
from barnabas.sim.world.transport import SimulatedTransport

HOST: Final = "zookeeper"
"""The ensemble's host in the simulated network."""
PORT: Final = 2181

_LENGTH: Final = struct.Struct(">I")
_BUFFER_BYTES: Final = 1 << 16


class Hello(NamedTuple):
    key: SessionKey | None
    """None: a new session."""
    timeout_ms: int
    seen_zxid: int
    """Only a server that has applied this commit accepts the session."""


class Welcome(NamedTuple):
    key: SessionKey


class Expired(NamedTuple):
    """There is no such session."""


class Aspect(enum.Enum):
    """What of a node is read."""

    DATA = "data"
    EXISTENCE = "existence"
    CHILDREN = "children"


class Read(NamedTuple):
    """Answered with a list: a `Node`, a `Stat` or names for each path, None where there is no node."""

    aspect: Aspect
    paths: tuple[str, ...]
    is_watched: bool


class Write(NamedTuple):
    operations: tuple[Operation, ...]


class Sync(NamedTuple):
    pass


class End(NamedTuple):
    """Closes the session."""


class Ping(NamedTuple):
    pass


class Pong(NamedTuple):
    pass


class Answer(NamedTuple):
    zxid: int
    """The last commit that the server had applied."""
    value: Any


class Refused(NamedTuple):
    """The answer to a write that a `StoreError` refused."""

    kind: type[StoreError]
    path: str
    text: str

    @classmethod
    def by(cls, error: StoreError) -> Self:
        return cls(type(error), error.path, str(error))

    def error(self) -> StoreError:
        error = self.kind.__new__(self.kind, self.text)
        error.path = self.path
        return error


class Fired(NamedTuple):
    event: WatchEvent


Request: TypeAlias = Read | Write | Sync | End
"""What is answered by an `Answer`."""


def add_watch(watches: Watches, read: Read, found: Sequence[object], watch: Watch) -> None:
    """Both ends do it, with what was read: a read that finds no node leaves no watch, unless it asks for existence."""
    for path, one in zip(read.paths, found, strict=True):
        if read.aspect is Aspect.EXISTENCE or one is not None:
            add = watches.add_children if read.aspect is Aspect.CHILDREN else watches.add_data
            add(path, watch)


class Channel(asyncio.BufferedProtocol):
    """One end of a connection that carries messages."""

    def __init__(self, on_message: Callable[[Any], None], on_end: Callable[[], None]) -> None:
        self._on_message = on_message
        self._on_end = on_end
        self._transport: SimulatedTransport | None = None
        self._buffer = bytearray(_BUFFER_BYTES)
        self._received = bytearray()
        self._is_closed = False

    def send(self, message: object) -> None:
        assert self._transport is not None, "it is connected"
        pickled = io.BytesIO()
        pickler = pickle.Pickler(pickled)
        pickler.fast = True
        pickler.dump(message)
        self._transport.write(_LENGTH.pack(pickled.tell()) + pickled.getvalue())

    def close(self) -> None:
        """What was sent still arrives. Neither function is called again."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.close()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        transport.watch = None  # it watches Kafka's requests
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received += self._buffer[:nbytes]
        while not self._is_closed and len(self._received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received)
            end = _LENGTH.size + length
            if len(self._received) < end:
                return
            message = pickle.loads(self._received[_LENGTH.size : end])
            del self._received[:end]
            self._on_message(message)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._on_end()
