"""The connection of one session: kazoo's protocol and its thread, without the rest of kazoo.

What kazoo would do otherwise, and what is done here instead:

| kazoo | here |
|---|---|
| hands out answers and watch events by two threads, in any order | one queue, in the order of the connection |
| keeps calls while it is disconnected, however long | refuses them; one lock guards this and the state |
| opens a new session by itself when one has expired | stops: a client is one session |
| wakes its thread through a socket that blocks the caller when it is full | that socket does not block |

Threads: `submit`, `end` and `abandon` may be called from any; none of them blocks. The owner is told of everything on
its event loop, last of all of the end.
"""

import asyncio
import enum
import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from kazoo.client import CLOSED_STATES, KazooClient  # type: ignore[import-untyped]
from kazoo.protocol.serialization import CloseInstance  # type: ignore[import-untyped]
from kazoo.protocol.states import KeeperState, WatchedEvent  # type: ignore[import-untyped]
from kazoo.retry import KazooRetry  # type: ignore[import-untyped]

from barnabas.metadata.store import SessionState, WatchEvent
from barnabas.metadata.zookeeper.kazoo_messages import EVENT_TYPES, error_of, request_of, result_of
from barnabas.metadata.zookeeper.kazoo_sockets import KazooSockets
from barnabas.metadata.zookeeper.zookeeper_calls import Call, Reply
from barnabas.metadata.zookeeper.zookeeper_options import SessionKey, ZooKeeperOptions

_RETRY_SECONDS_MIN: Final = 0.05
_RETRY_SECONDS_MAX: Final = 0.35
"""kazoo adds up to 40 % to it."""

_KazooWatches: TypeAlias = defaultdict[str, set[Callable[[WatchedEvent], None]]]

_kazoo_log: Final = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # below that it logs every attempt to connect, and all data and passwords


class Ending(enum.Enum):
    """How a session ended."""

    CLOSED = "a server has confirmed that it is closed"
    EXPIRED = "a server says that there is no such session"
    BROKEN = "the connection ended, and the session may live until it expires"


class SessionOwner(Protocol):
    """Told of everything on the event loop."""

    def on_state(self, state: SessionState, key: SessionKey | None = None) -> None:
        """With the key when it is connected."""
        ...

    def on_event(self, event: WatchEvent) -> None: ...

    def on_end(self) -> None:
        """Thread and sockets are gone."""
        ...


class SessionClient(KazooClient):  # type: ignore[misc]
    """`start` it, `submit` requests, `end` it. Without a `key` it opens a new session."""

    def __init__(self, options: ZooKeeperOptions, owner: SessionOwner, key: SessionKey | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._gate = threading.Lock()
        self._options = options
        self._owner = owner
        self.ending: Ending | None = None
        self.ended = threading.Event()
        sockets = KazooSockets(options, self._finish)
        super().__init__(
            hosts=options.hosts,
            timeout=options.session_timeout_ms / 1000,
            client_id=None if key is None else (key.session_id, key.password),
            handler=sockets,
            auth_data=None if options.identity is None else [("digest", options.identity)],
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_RETRY_SECONDS_MIN,
                max_delay=_RETRY_SECONDS_MAX,
                sleep_func=sockets.sleep_func,
            ),
            logger=_kazoo_log,
        )

    @property
    def problem(self) -> str:
        """Why there is no connection."""
        problem: str = self.handler.problem
        return problem

    def start(self) -> None:
        """Starts to connect."""
        self.start_async()
        self._connection._write_sock.setblocking(False)

    def submit(self, call: Call, reply: Reply, options: ZooKeeperOptions) -> bool:
        """Sends a call behind those before it; nothing is sent, and False, when there is no connection."""
        with self._gate:
            if self._state != KeeperState.CONNECTED or self._stopped.is_set():
                return False
            self._send_later(request_of(call, options, self._watch_fired), _Answer(call, reply, options, self._post))
            return True

    def end(self) -> None:
        """Closes the session, after the requests that are under way; without a connection it is left to expire."""
        with self._gate:
            if self._stopped.is_set():
                return
            self._stopped.set()
            if self._state == KeeperState.CONNECTED:
                self._send_later(CloseInstance, None)
            else:
                self.handler.abandon()

    def abandon(self) -> None:
        """Ends the connection without a word to the server. For a session that `end` did not close in time."""
        self._stopped.set()
        self.handler.abandon()

    def _send_later(self, request: Any, answer: "_Answer | None") -> None:
        self._queue.append((request, answer))
        with suppress(BlockingIOError):  # it is full of bytes that wake the thread, more than there are requests
            self._connection._write_sock.send(b"\0")

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        """From any thread: calls the function on the event loop, behind what was posted before."""
        with suppress(RuntimeError):  # the loop is closed, and nobody is left to be told
            self._loop.call_soon_threadsafe(function, *arguments)

    # -- called by kazoo, in its thread --------------------------------------------------------------------------

    def _watch_fired(self, event: WatchedEvent) -> None:
        fired = WatchEvent(EVENT_TYPES[event.type], self._options.own_path(event.path))
        self._post(self._owner.on_event, fired)

    def _session_callback(self, state: str) -> None:
        with self._gate:
            before = self._state
            if state == before:
                return
            # The owner is told first, so that a caller that gets an error sees the session suspended.
            if state == KeeperState.CONNECTED:
                self.handler.problem = "the connection was lost"
                key = SessionKey(self._session_id, self._session_passwd)
                self._post(self._owner.on_state, SessionState.CONNECTED, key)
            elif state in CLOSED_STATES:
                self._note_ending(before, state)
                self._stopped.set()
            elif before == KeeperState.CONNECTED:
                self._post(self._owner.on_state, SessionState.SUSPENDED)
            super()._session_callback(state)

    def _note_ending(self, before: str, state: str) -> None:
        if self.ending is not None:
            return
        if state == KeeperState.EXPIRED_SESSION:
            self.ending = Ending.EXPIRED
        elif state == KeeperState.CLOSED and before == KeeperState.CONNECTED and self._stopped.is_set():
            self.ending = Ending.CLOSED
        else:
            self.ending = Ending.BROKEN
        self._post(self._owner.on_state, SessionState.LOST)

    def _reset_watchers(self) -> None:
        """Without telling them: the owner knows that they are gone."""
        self._child_watchers: _KazooWatches = defaultdict(set)
        self._data_watchers: _KazooWatches = defaultdict(set)

    def _finish(self) -> None:
        with self._gate:
            self._connection.close()
        self.handler.close()
        self.ended.set()
        self._post(self._owner.on_end)


class _Answer:
    """What kazoo does with the answer to a request, in its thread."""

    __slots__ = ("_call", "_options", "_post", "_reply")

    def __init__(self, call: Call, reply: Reply, options: ZooKeeperOptions, post: Callable[..., None]) -> None:
        self._call = call
        self._reply = reply
        self._options = options
        self._post = post

    def set(self, answer: Any) -> None:
        self._post(self._reply, result_of(self._call, answer, self._options))

    def set_exception(self, error: Exception) -> None:
        self._post(self._reply, error_of(self._call, error))
