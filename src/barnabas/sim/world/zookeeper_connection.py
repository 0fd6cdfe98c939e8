"""A client's connection to a simulated ZooKeeper: requests, answers in their order, and pings.

A silent server is noticed by a ping without an answer, between one and two thirds of the session timeout after it fell
silent. The session learns of the end of a connection a little later: a real client has a thread of its own, so a
process that wakes up first runs whatever is due, and only then learns that the connection is gone.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from barnabas.metadata.errors import OutcomeUnknown, SessionSuspended
from barnabas.metadata.paths import ROOT
from barnabas.metadata.store import WatchEvent
from barnabas.sim.world.network import HostNetwork
from barnabas.sim.world.zookeeper_messages import (
    HOST,
    PORT,
    Answer,
    Channel,
    Expired,
    Fired,
    Hello,
    Ping,
    Pong,
    Refused,
    Request,
    Welcome,
    Write,
)

_CONNECT_SECONDS_MAX: Final = 0.5
_NOTICE_SECONDS: Final = (0.0002, 0.002)


class _Asked(NamedTuple):
    request: Request
    on_result: Callable[[Any], None]
    future: asyncio.Future[Any]


class ClientConnection:
    """`open` it, `ask`, `close` it. `on_end` is called once, unless it was closed first."""

    def __init__(
        self, random: Random, timeout_ms: int, on_event: Callable[[WatchEvent], None], on_end: Callable[[], None]
    ) -> None:
        self.seen_zxid = 0
        """How new the newest answer was."""
        self._random = random
        self._timeout_ms = timeout_ms
        self._on_event = on_event
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._channel = Channel(self._received, self._broken)
        self._welcome: asyncio.Future[Welcome | Expired] = self._loop.create_future()
        self._asked: deque[_Asked] = deque()
        self._is_ping_unanswered = False
        self._timer: asyncio.TimerHandle | None = None
        """For the next ping, or for telling the session of the end."""

    async def open(self, network: HostNetwork, hello: Hello) -> Welcome | Expired:
        """Raises OSError when there is no answer."""
        self.seen_zxid = hello.seen_zxid
        try:
            async with asyncio.timeout(_CONNECT_SECONDS_MAX):
                await network.connect(HOST, PORT, self._channel)
            self._channel.send(hello)
            async with asyncio.timeout(self._timeout_ms / 3000):
                welcome = await self._welcome
        except BaseException:
            self.close()
            raise
        if isinstance(welcome, Expired):
            self.close()
        return welcome

    def ask(self, request: Request, on_result: Callable[[Any], None] = lambda _: None) -> "asyncio.Future[Any]":
        """Sends a request. `on_result` is called when the answer arrives, before any later message is read."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._asked.append(_Asked(request, on_result, future))
        self._channel.send(request)
        return future

    def close(self) -> None:
        """Fails the requests that are unanswered."""
        if self._timer is not None:
            self._timer.cancel()
        self._channel.close()
        while self._asked:
            asked = self._asked.popleft()
            if not asked.future.done():
                asked.future.set_exception(_unanswered(asked.request))

    def _received(self, message: object) -> None:
        match message:
            case Answer():
                self._answered(self._asked.popleft(), message)
            case Fired():
                self._on_event(message.event)
            case Pong():
                self._is_ping_unanswered = False
            case Welcome() | Expired():
                if not self._welcome.done():  # or `open` has given up
                    self._welcome.set_result(message)
                    self._ping_later()

    def _answered(self, asked: _Asked, answer: Answer) -> None:
        self.seen_zxid = max(self.seen_zxid, answer.zxid)
        if asked.future.done():  # the caller was cancelled
            return
        if isinstance(answer.value, Refused):
            asked.future.set_exception(answer.value.error())
        else:
            asked.on_result(answer.value)
            asked.future.set_result(answer.value)

    # Its end

    def _ping_later(self) -> None:
        seconds = self._timeout_ms / 3000 * self._random.uniform(0.8, 1.0)
        self._timer = self._loop.call_later(seconds, self._ping)

    def _ping(self) -> None:
        if self._is_ping_unanswered:
            self._channel.close()
            self._broken()
        else:
            self._is_ping_unanswered = True
            self._channel.send(Ping())
            self._ping_later()

    def _broken(self) -> None:
        if not self._welcome.done():
            self._welcome.set_exception(ConnectionResetError(104, "Connection reset by peer"))
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._random.uniform(*_NOTICE_SECONDS), self._end)

    def _end(self) -> None:
        self._on_end()  # first, so that a caller that gets an error sees the session suspended
        self.close()


def _unanswered(request: Request) -> Exception:
    reason = "the connection to ZooKeeper was lost before the answer came"
    if isinstance(request, Write):
        return OutcomeUnknown(request.operations[0].path if request.operations else ROOT, reason)
    return SessionSuspended(reason)
