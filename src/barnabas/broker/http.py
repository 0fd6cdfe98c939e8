"""The optional HTTP port, for machines that watch a broker.

| path | answer |
|---|---|
| `/metrics` | every metric in Prometheus's text format (0.0.4), and those of the process |
| `/healthz` | 200 when the broker is ready, else 503; the body says why, as JSON |
| `/readyz` | 200 when the broker can be stopped without harm to any partition, else 503; the body says why, as JSON |

What a broker's health is made of is in `barnabas.broker.health`, what stopping it would do in `readiness`.

A connection carries one request and is closed:

    waiting ──request──▶ answering ──answer written──▶ ending ──peer closes──▶ closed
       └──────────── deadline, peer gone, port closed ──────────────────────────▲

`h11` reads and writes HTTP. The metrics' text is made on the event loop, where the numbers live, a few lines at a time
with other work in between; what the operating system knows of the process is asked in a worker thread. Requests that
come meanwhile get the same text; so it is with `/readyz`. The port is bounded in connections, bytes of a request and
time for an exchange, so that misuse spoils the port and not the broker. It has neither TLS nor a login: it shows names
of topics and groups, and belongs on an address that only the operators reach.

To be imported only when there is a port: the libraries take longer to import than a small broker to start.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final, Generic, TypeVar, cast

import h11
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from barnabas.base.metrics import Metrics
from barnabas.broker.health import Health
from barnabas.broker.metrics_text import CONTENT_TYPE, text_pieces
from barnabas.broker.readiness import Harm, Readiness
from barnabas.net.stream import ListenAddress, Listening, Network

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_CONNECTIONS_MAX: Final = 32
_REQUEST_BYTES_MAX: Final = 8 << 10
_RECEIVE_BYTES: Final = 4 << 10
_EXCHANGE_SECONDS_MAX: Final = 10.0
_PROCESS_SECONDS_MAX: Final = 2.0
"""When all workers wait for a disk that does not answer, the metrics come without those of the process."""
_LOGGED_SECONDS: Final = 60.0
"""Mistakes are logged once in this time."""
_SAMPLES_TOGETHER: Final = 100
"""Samples that are written before other work gets its turn: a quarter of a millisecond, mostly."""


@asynccontextmanager
async def http_port(
    network: Network,
    address: ListenAddress,
    metrics: Metrics,
    read_health: Callable[[], Health],
    read_readiness: Callable[[], Coroutine[None, None, Readiness]],
    prepare: Callable[[], Awaitable[None]],
    executor: Executor,
) -> AsyncIterator[Listening]:
    """Serves while it is open, so it is opened first and closed last: `/healthz` then tells of starting and stopping.

    `prepare` is awaited before the metrics are read, for what takes more than a look. ListenFailed when the address
    cannot be had. Leaving it ends every exchange and returns when none is left.
    """
    port = _Port(asyncio.get_running_loop(), metrics, read_health, read_readiness, prepare, executor)
    listening = await network.listen(address)
    listening.accept(port)
    try:
        yield listening
    finally:
        await listening.close()
        await port.close()


def process_text() -> bytes:
    """What the operating system knows about the process. Reads files under /proc: for a worker thread."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return generate_latest(registry)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


def _health_answer(health: Health) -> _Answer:
    fields = {
        "state": health.state.value,
        "problems": health.problems,
        "offline_directories": health.offline_directories,
        "full_directories": health.full_directories,
    }
    status = HTTPStatus.OK if health.is_healthy else HTTPStatus.SERVICE_UNAVAILABLE
    return _Answer(status, json.dumps(fields).encode() + b"\n", "application/json")


def _readiness_answer(readiness: Readiness) -> _Answer:
    counts = readiness.counts
    fields = {
        "is_safe_to_stop": readiness.is_safe_to_stop,
        "problems": readiness.problems,
        "would_be_offline": None if counts is None else counts[Harm.OFFLINE],
        "would_be_below_minimum": None if counts is None else counts[Harm.BELOW_MINIMUM],
        "partitions": [{"partition": str(name), "reason": reason} for name, reason in readiness.named],
    }
    status = HTTPStatus.OK if readiness.is_safe_to_stop else HTTPStatus.SERVICE_UNAVAILABLE
    return _Answer(status, json.dumps(fields).encode() + b"\n", "application/json")


def _refusal(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> _Answer:
    return _Answer(status, text.encode() + b"\n", headers=headers)


class _Shared(Generic[_Result]):
    """Work that is done once at a time: requests that come meanwhile share its result."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[None, None, _Result]]) -> None:
        self._loop = loop
        self._work = work
        self._running: asyncio.Task[_Result] | None = None

    def result(self) -> "asyncio.Task[_Result]":
        if self._running is None:
            self._running = self._loop.create_task(self._work())
            self._running.add_done_callback(self._done)
        return self._running

    def _done(self, _: "asyncio.Task[_Result]") -> None:
        self._running = None

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])


class _Port:
    """What all exchanges share, and the set of those that are open. Owned by the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        read_health: Callable[[], Health],
        read_readiness: Callable[[], Coroutine[None, None, Readiness]],
        prepare: Callable[[], Awaitable[None]],
        executor: Executor,
    ) -> None:
        self.loop = loop
        self.read_health = read_health
        self.readiness = _Shared(loop, read_readiness)
        self.metrics_text = _Shared(loop, self._render)
        self._metrics = metrics
        self._prepare = prepare
        self._executor = executor
        self._exchanges: dict[asyncio.BufferedProtocol, None] = {}
        self._all_ended: asyncio.Future[None] | None = None
        self._quiet_until = loop.time()
        self.context = copy_context()
        """Whose bugs these are (`barnabas.base.supervision`)."""

    def admit(self, peer: tuple[str, int]) -> asyncio.BufferedProtocol | None:
        if len(self._exchanges) >= _CONNECTIONS_MAX:
            return None
        exchange = _Exchange(self)
        self._exchanges[exchange] = None
        return exchange

    def abandon(self, protocol: asyncio.BufferedProtocol) -> None:
        # A connection that is given up while it is made may be reported twice: by its listener and by its transport.
        self._exchanges.pop(protocol, None)
        if self._all_ended is not None and not self._exchanges and not self._all_ended.done():
            self._all_ended.set_result(None)

    async def _render(self) -> bytes:
        await self._prepare()
        of_process = self.loop.run_in_executor(self._executor, process_text)
        written: list[bytes] = []
        together: list[str] = []
        for piece in text_pieces(self._metrics):
            together.append(piece)
            if len(together) == _SAMPLES_TOGETHER:
                written.append("".join(together).encode())
                together.clear()
                await asyncio.sleep(0)
        written.append("".join(together).encode())
        done, _ = await asyncio.wait([of_process], timeout=_PROCESS_SECONDS_MAX)
        return b"".join([*written, *(one.result() for one in done)])

    def mistake(self, bug: BaseException, complaint: str) -> None:
        """As with clients' requests: our own mistake spoils an answer, and a failed assertion ends the broker."""
        if isinstance(bug, AssertionError):
            raise bug
        now = self.loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + _LOGGED_SECONDS
            logger.error("%s", complaint, exc_info=bug)

    async def close(self) -> None:
        await self.metrics_text.close()
        await self.readiness.close()
        if not self._exchanges:
            return
        self._all_ended = self.loop.create_future()
        for exchange in list(self._exchanges):
            cast(_Exchange, exchange).abort()
        await self._all_ended


class _State(Enum):
    WAITING = "waiting"
    ANSWERING = "answering"
    ENDING = "ending"


class _Exchange(asyncio.BufferedProtocol):
    """One request and its answer."""

    def __init__(self, port: _Port) -> None:
        self._port = port
        self.context = port.context
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_REQUEST_BYTES_MAX)
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._state = _State.WAITING
        self._peer_has_ended = False
        self._has_body = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = self._port.loop.call_later(_EXCHANGE_SECONDS_MAX, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self._port.abandon(self)

    def abort(self) -> None:
        self._transport.abort()

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        if self._state is _State.WAITING:  # what comes after the request (a body, another one) is not looked at
            self._receive(bytes(self._buffer[:count]))

    def eof_received(self) -> bool:
        self._peer_has_ended = True
        if self._state is _State.WAITING:
            self._receive(b"")
        return self._state is _State.ANSWERING  # true keeps the way back open for who only stopped sending

    def _receive(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            status = HTTPStatus(error.error_status_hint)
            self._send(_refusal(status, status.phrase))
            return
        if isinstance(event, h11.Request):
            self._state = _State.ANSWERING
            self._answer(event)

    def _answer(self, request: h11.Request) -> None:
        self._has_body = request.method != b"HEAD"
        if request.method not in (b"GET", b"HEAD"):
            self._send(
                _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered", ("Allow", "GET, HEAD"))
            )
            return
        match request.target.partition(b"?")[0]:
            case b"/metrics":
                self._send_when_made(
                    self._port.metrics_text.result(),
                    lambda text: _Answer(HTTPStatus.OK, text, CONTENT_TYPE),
                    "cannot render the metrics",
                )
            case b"/healthz":
                self._send(_health_answer(self._port.read_health()))
            case b"/readyz":
                self._send_when_made(
                    self._port.readiness.result(), _readiness_answer, "cannot tell whether the broker can be stopped"
                )
            case _:
                self._send(_refusal(HTTPStatus.NOT_FOUND, "only /metrics, /healthz and /readyz exist here"))

    def _send_when_made(
        self, work: "asyncio.Task[_Result]", answer_of: Callable[[_Result], _Answer], complaint: str
    ) -> None:
        def done(made: "asyncio.Future[_Result]") -> None:
            if made.cancelled():  # the port is being closed
                self.abort()
                return
            error = made.exception()
            if error is None:
                self._send(answer_of(made.result()))
            else:
                self._send(_refusal(HTTPStatus.INTERNAL_SERVER_ERROR, complaint))
                self._port.mistake(error, complaint)

        work.add_done_callback(done)

    def _send(self, answer: _Answer) -> None:
        if self._transport.is_closing():
            return
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Connection", "close"),
            *answer.headers,
        ]
        events: list[h11.Event] = [
            h11.Response(status_code=answer.status, reason=answer.status.phrase, headers=headers)
        ]
        if self._has_body:
            events.append(h11.Data(data=answer.body))
        events.append(h11.EndOfMessage())
        self._transport.write(b"".join(self._http.send(event) or b"" for event in events))
        self._state = _State.ENDING
        if self._peer_has_ended:
            self._transport.close()
        else:
            # Closing with bytes unread would reset the connection, and the answer might be lost on its way.
            self._transport.write_eof()
