"""The road of a request: from its frame to its handler, and from the handler's answer back to the connection.

```
frame ── decode (compiled or reference) ──> request object ── gate ──> handler ──> result ── encode ──> frame
```

Every API has one `Route`: how its requests are read, and the one handler that serves them. Where a compiled codec knows
the frame (`barnabas.wire.codecs`) it makes the same request object as the reference; what is done with it does not
depend on who read it. The gate is the one place where a request may be stopped or slowed before anything is done for
it: by a fault that a test wants, or by a throttle. Rights are asked for by the handlers, which alone know the resources
(`authorizer`), from the caller that the request carries.

Produce, Fetch and the calls of groups answer in the same tick, or keep the request and answer later (`Direct`).
Everything else is decoded by kio's schemas into a view (`barnabas.wire.request_views`) and given to a coroutine that
returns the answer's values, by kio's field names (`Awaited`); it runs in a task of its own, in slices where it takes
long, and requests that are answered meanwhile wait in their connection for their turn.

Kafka's answer to what it does not serve is a closed connection; so is ours to a request that cannot be decoded. A
request that changes nothing and whose client has gone is dropped; one that changes something is carried out, such as
the LeaveGroup of a consumer that does not wait for the answer.

A stranger's request must not end the broker, not even by a mistake of ours. So an exception that nothing should raise
closes the connection of its request, is counted (`barnabas_request_bugs_total`) and logged with its trace. A failed
assertion is another matter: our own state may be wrong, and the broker stops.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MethodType
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

from barnabas.base.errors import BarnabasError
from barnabas.base.supervision import report_bug
from barnabas.broker.caller import Caller
from barnabas.broker.forwarding import caller_in
from barnabas.broker.request import InnerReply, Request
from barnabas.broker.request_measures import RequestMeasures
from barnabas.broker.slices import Slices
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.codecs import Codecs
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.framing import parse_request_header
from barnabas.wire.messages import decode_view, decode_view_in_steps, write_response_in_steps
from barnabas.wire.request_views import EnvelopeRequest

logger = logging.getLogger(__name__)

Values: TypeAlias = Mapping[str, object]
Work: TypeAlias = Callable[[], Awaitable[None]]
"""What is left to do for a request, and answers it."""
_Asked = TypeVar("_Asked")
"""The request object of an API."""
_Handler = TypeVar("_Handler")
_View = TypeVar("_View")
"""That of one which kio's schemas decode."""
Fault: TypeAlias = Callable[[Request, object], bool]
"""What a test wants done to a request instead of serving it; says whether it took the request."""
Forward: TypeAlias = Callable[[Request, memoryview], Awaitable[bytes | None]]
"""The answer of another broker, which is the controller, to a request for it; None when this broker has to answer."""
Throttle: TypeAlias = Callable[[Caller, ApiKey], int]
"""For how many milliseconds a caller should hold back, which its answer tells it."""

READING: Final = frozenset(
    {
        *(ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS),
        *(ApiKey.LIST_GROUPS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CONFIGS),
        *(ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_PRODUCERS, ApiKey.LIST_CONFIG_RESOURCES),
        *(ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.LIST_PARTITION_REASSIGNMENTS),
    }
)
"""Requests that change nothing."""
_LOGGED_SECONDS: Final = 60.0
"""Mistakes of one API are logged once in this time, so that nobody fills a disk with their traces."""


class Peer(Protocol):
    """A connection, as far as it tells who is at the other end."""

    listener_name: str
    peer_host: str


class RequestFailed(BarnabasError):  # noqa: N818 - a fact about a request, named as one
    """A mistake of the broker's own, which the log tells more of. The request's connection is closed."""


def decode_nothing(version: int, body: memoryview) -> memoryview:
    """For handlers that read the body themselves, when its turn comes."""
    return body


class Row:
    """What serves an API. Its type does not tell the request object, so that each row is checked by itself."""


class Direct(Row, Generic[_Asked]):
    """A row for an API whose handler answers by itself, or returns work that takes longer than this turn of the event
    loop. `decode` is the reference decoder, from a version and its body. `is_ordered`: requests that come after such
    work on the same connection wait for it, because they may change the same things."""

    def __init__(
        self,
        handler: Callable[[Request, _Asked], Work | None],
        decode: Callable[[int, memoryview], _Asked],
        *,
        is_ordered: bool = False,
    ) -> None:
        self.handler = handler
        self.decode = decode
        self.is_ordered = is_ordered


class Awaited(Row, Generic[_View]):
    """A row for an API whose handler is a coroutine: what it asks for is decoded as the view, in slices.
    `is_for_controller`: another broker hands such requests on."""

    def __init__(
        self,
        view: type[_View],
        handler: Callable[[Request, _View], Awaitable[Values]],
        *,
        is_for_controller: bool = False,
    ) -> None:
        self.view = view
        self.handler = handler
        self.is_for_controller = is_for_controller


class Enveloped(Row):
    """The row for requests that other brokers hand on. `check` refuses a broker that may not do that, or all of them
    while this one is not the controller."""

    def __init__(self, check: Callable[[Request], None]) -> None:
        self.check = check


class Route:
    """One API on the road."""

    __slots__ = (
        *("api_key", "compiled", "declined", "decode", "decode_frame", "handler"),
        *("is_ordered", "now", "reference", "seconds", "wait_seconds"),
    )

    def __init__(self, api_key: ApiKey, row: Direct[Any], codecs: Codecs, measures: RequestMeasures) -> None:
        self.api_key = api_key
        self.decode = row.decode
        self.decode_frame = codecs.frame_decoders.get(api_key)
        """The compiled reader of whole frames, where there is one."""
        self.handler = _as_method(row.handler)
        self.is_ordered = row.is_ordered
        self.now = measures.now
        self.seconds = measures.seconds[api_key]
        self.wait_seconds = measures.fetch_wait_seconds
        self.compiled, self.reference = measures.codecs_of(api_key)
        self.declined = measures.declined_of(api_key)


def _as_method(handler: _Handler) -> _Handler:
    """The same, as what the interpreter enters fastest: the method that is called when the object is."""
    method = getattr(handler, "__call__")  # noqa: B004, B009
    return cast(_Handler, method) if isinstance(method, MethodType) else handler


class Dispatcher:
    """One for each broker; `connect` makes what stands above a connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rows: Mapping[int, Row],
        codecs: Codecs,
        slices: Slices,
        measures: RequestMeasures,
        forward: Forward,
    ) -> None:
        """`rows` has one for every API."""
        assert set(rows) == set(ALL_APIS), "every API that is served has a handler"
        self.loop = loop
        self._forward = forward
        self.codecs = codecs
        self.measures = measures
        self._slices = slices
        self._quiet_until: dict[int, float] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.awaited = {key: row for key, row in rows.items() if isinstance(row, Awaited)}
        self.routes: Mapping[int, Route] = {key: self._route(ApiKey(key), row) for key, row in rows.items()}
        self.fault: Fault | None = None
        """Set while a test has one pending."""
        self.throttle: Throttle | None = None
        """None while nobody has a quota."""

    def _route(self, api_key: ApiKey, row: Row) -> Route:
        if isinstance(row, Awaited):
            row = Direct(partial(self._later, row), decode_nothing)
        if isinstance(row, Enveloped):
            row = Direct(partial(self._open_later, row), decode_nothing)
        assert isinstance(row, Direct), "there are two kinds of rows"
        return Route(api_key, row, self.codecs, self.measures)

    def connect(self, peer: Peer) -> "ClientConnection":
        return ClientConnection(self, Caller(peer.listener_name, peer.peer_host))

    def mistake(self, api_key: int, bug: BaseException) -> RequestFailed:
        """What to close a request's connection with after an exception that it should not have raised."""
        api = ALL_APIS[api_key].name if api_key in ALL_APIS else "unknown"
        self.measures.bugs.of(api).value += 1
        now = self.loop.time()
        if isinstance(bug, AssertionError):
            report_bug(self.loop, f"a failed assertion in a {api} request", bug)
        elif now >= self._quiet_until.get(api_key, now):
            self._quiet_until[api_key] = now + _LOGGED_SECONDS
            logger.error("a %s request failed because of a bug in the broker", api, exc_info=bug)
        return RequestFailed(f"{api}: a bug in the broker")

    def serve(self, request: Request, asked: object) -> None:
        """Gives a request that has passed the gate to its handler."""
        work = self.routes[request.api_key].handler(request, asked)
        if work is not None:
            self.start(request, work)

    def start(self, request: Request, work: Work) -> None:
        """Does what is left of a request in a task of its own."""
        task = self.loop.create_task(self._run(request, work))
        self._tasks[task] = None
        task.add_done_callback(partial(self._end, request))

    def _end(self, request: Request, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (bug := task.exception()) is not None:
            request.refuse(self.mistake(request.api_key, bug))

    async def _run(self, request: Request, work: Work) -> None:
        try:
            await work()
        except BarnabasError as error:
            request.refuse(error)

    # -- what kio decodes ----------------------------------------------------------------------------------------

    def _later(self, row: Awaited[Any], request: Request, body: memoryview) -> Work:
        return partial(self._answer, row, request, body)

    async def _answer(self, row: Awaited[Any], request: Request, body: memoryview) -> None:
        await self._slices.begin()
        if request.api_key in READING:
            request.check_wanted()
        if row.is_for_controller and not request.is_forwarded and (answer := await self._forward(request, body)):
            request.answer(answer)
            return
        values = {**await self._values_of(row, request, body), "throttle_time_ms": request.throttle_ms}
        steps = write_response_in_steps(request.api_key, request.version, values)
        encoded = await self._slices.finish(steps, request.check_wanted)
        request.errors = encoded.errors or None
        request.respond(encoded)

    async def values_for(self, request: Request, body: memoryview) -> Values:
        """What the coroutine that serves a request returns: for tests that change it before it is told."""
        return await self._values_of(self.awaited[request.api_key], request, body)

    async def _values_of(self, row: Awaited[_View], request: Request, body: memoryview) -> Values:
        steps = decode_view_in_steps(request.api_key, request.version, body, row.view)
        check = request.check_wanted if request.api_key in READING else _go_on
        return await row.handler(request, await self._slices.finish(steps, check))

    # -- what other brokers hand on ------------------------------------------------------------------------------

    def _open_later(self, row: Enveloped, request: Request, body: memoryview) -> Work:
        return partial(self._open, row, request, body)

    async def _open(self, row: Enveloped, request: Request, body: memoryview) -> None:
        """Serves the request inside, for the caller that it came from, and answers with its answer."""
        try:
            row.check(request)
            values: Values = {"response_data": await self._inner_answer(request, body), "error_code": ErrorCode.NONE}
        except KafkaError as error:
            values = {"response_data": None, "error_code": error.code}
        encoded = await self._slices.finish(write_response_in_steps(request.api_key, request.version, values), _go_on)
        request.errors = encoded.errors or None
        request.respond(encoded)

    async def _inner_answer(self, request: Request, body: memoryview) -> bytes:
        envelope = decode_view(request.api_key, request.version, body, EnvelopeRequest)
        frame = memoryview(envelope.request_data)
        api_key, version, correlation_id, client_id, position = parse_request_header(frame)
        row = self.awaited.get(api_key)
        if row is None or not row.is_for_controller:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the request inside is not for the controller")
        caller = caller_in(request.caller.listener, envelope.request_principal, envelope.client_host_address, client_id)
        reply = InnerReply(self.loop, request)
        inner = Request(reply, len(frame))
        route = self.routes[api_key]
        inner.begin(route, ClientConnection(self, caller), caller, version, correlation_id, route.now())
        inner.is_forwarded = True
        await self._answer(row, inner, frame[position:])
        return await reply.frame

    async def stop(self) -> None:
        """Ends what is still being worked on."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _go_on() -> None:
    """Nothing ends the request."""


class ClientConnection:
    """What a connection hands its requests to. It knows who is at the other end."""

    __slots__ = (
        *("_call_when_closed", "_default_route", "_dispatcher", "_is_closed", "_line", "_now", "_routes"),
        "caller",
    )

    new_slot = Request

    def __init__(self, dispatcher: Dispatcher, caller: Caller) -> None:
        self._dispatcher = dispatcher
        self._now = dispatcher.measures.now
        self._routes = dispatcher.routes
        self._default_route = self._routes[ApiKey.API_VERSIONS]
        """Of a frame that does not begin as any request does; its header tells what is wrong with it."""
        self.caller = caller
        self._line: deque[tuple[Request, memoryview]] | None = None
        """What came while a long request that must be done first is under way; None while there is none."""
        self._call_when_closed: Callable[[], None] | None = None
        self._is_closed = False

    def on_request(self, request: Request, frame: memoryview) -> None:
        if self._line is not None:
            self._line.append((request, frame))
            return
        dispatcher = self._dispatcher
        began = self._now()
        try:
            route = self._routes.get(frame[1], self._default_route) if len(frame) > 1 else self._default_route
            decode_frame = route.decode_frame
            decoded = 0 if decode_frame is None else decode_frame(frame)
            if isinstance(decoded, tuple):
                version, correlation_id, client_id, asked = decoded
                route.compiled.value += 1
            else:
                api_key, version, correlation_id, client_id, body_position = parse_request_header(frame)
                route = self._routes[api_key]
                asked = route.decode(version, frame[body_position:])
                route.reference.value += 1
                if decoded:
                    route.declined[decoded].value += 1
            caller = self.caller
            if client_id != caller.client_id:
                self.caller = caller = replace(caller, client_id=client_id)
            request.begin(route, self, caller, version, correlation_id, began)
            if dispatcher.throttle is not None:
                request.throttle_ms = dispatcher.throttle(caller, route.api_key)
            if dispatcher.fault is not None and dispatcher.fault(request, asked):
                return
            work = route.handler(request, asked)
            if work is not None:
                dispatcher.start(request, self._before_others(work) if route.is_ordered else work)
        except BarnabasError:
            raise
        except Exception as bug:  # noqa: BLE001 - whatever it is, no request may end the broker: see the module's text
            raise dispatcher.mistake(frame[1] if len(frame) > 1 else -1, bug) from None

    def _before_others(self, work: Work) -> Work:
        """The same work; requests that come meanwhile wait in line until it is done."""
        self._line = deque()

        async def run() -> None:
            try:
                await work()
            finally:
                self._go_on()

        return run

    def _go_on(self) -> None:
        line, self._line = self._line, None
        assert line is not None, "there was a long request"
        while line:
            request, frame = line.popleft()
            try:
                self.on_request(request, frame)
            except BarnabasError as error:  # as the connection does
                request.fail(error)
            if self._line is not None:  # this one is long, too
                self._line.extend(line)
                return

    # -- what requests ask of it ---------------------------------------------------------------------------------

    def mistake(self, api_key: int, bug: BaseException) -> RequestFailed:
        return self._dispatcher.mistake(api_key, bug)

    def add_error(self, api_key: int, code: int, times: int) -> None:
        self._dispatcher.measures.add_error(api_key, code, times)

    def identify(self, software: str) -> None:
        self.caller = replace(self.caller, software=software)

    def call_when_closed(self, call: Callable[[], None]) -> None:
        self._call_when_closed = call
        if self._is_closed:
            call()

    def on_closed(self) -> None:
        """Requests that are still worked on answer into a closed slot, which drops the answer."""
        self._is_closed = True
        if self._call_when_closed is not None:
            self._call_when_closed()
