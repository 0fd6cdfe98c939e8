"""From a frame to its handler, and from the handler's answer back to the connection.

ApiVersions, Produce, Fetch and the calls of groups are called directly: they answer in the same tick, or keep the
request and answer later. The shapes that clients send most of all do not even become a `Request`: their handler takes
the frame by a shortcut (`barnabas.wire.sole_produce`, `sole_fetch`, `sole_commit`). Everything else is decoded here and
given to a coroutine that returns the answer's values, by kio's field names, which are encoded here; it runs in a task
of its own, in slices where it takes long, and requests that are answered meanwhile wait in their connection for their
turn.

Kafka's answer to what it does not serve is a closed connection; so is ours to a request that cannot be decoded. A
request that changes nothing and whose client has gone is dropped; one that changes something is carried out, such as
the LeaveGroup of a consumer that does not wait for the answer.

A stranger's request must not end the broker, not even by a mistake of ours. So an exception that nothing should raise
closes the connection of its request, is counted (`barnabas_request_bugs_total`) and logged with its trace. A failed
assertion is another matter: our own state may be wrong, and the broker stops.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from barnabas.base.errors import BarnabasError
from barnabas.base.supervision import report_bug
from barnabas.broker.request import Request
from barnabas.broker.request_measures import RequestMeasures
from barnabas.broker.slices import Slices
from barnabas.net.connection import Connection
from barnabas.net.replies import ReplySlot
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.framing import RequestHeader, parse_request_header
from barnabas.wire.messages import decode_request_in_steps, write_response_in_steps

logger = logging.getLogger(__name__)

Values: TypeAlias = Mapping[str, object]
Work: TypeAlias = Callable[[], Awaitable[None]]
"""What is left to do for a request, and answers it."""
DirectHandler: TypeAlias = Callable[[Request], Work | None]
"""Answers by itself, or returns work that takes longer than this turn of the event loop."""
Handler: TypeAlias = Callable[[Request, Any], Awaitable[Values]]
"""Gets the request and what it asks for, decoded by kio's class for its version."""
Shortcut: TypeAlias = Callable[[memoryview, ReplySlot, "ClientConnection"], bool]
"""Says whether it took the frame, which may be anything that begins with the second byte of the API's key."""
Fault: TypeAlias = Callable[[Request], bool]
"""What a test wants done to a request instead of handling it; says whether it took the request."""

READING: Final = frozenset(
    {
        *(ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS),
        *(ApiKey.LIST_GROUPS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CONFIGS),
        *(ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_PRODUCERS, ApiKey.LIST_CONFIG_RESOURCES),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)
"""Requests that change nothing."""
_LOGGED_SECONDS: Final = 60.0
"""Mistakes of one API are logged once in this time, so that nobody fills a disk with their traces."""


class RequestFailed(BarnabasError):  # noqa: N818 - a fact about a request, named as one
    """A mistake of the broker's own, which the log tells more of. The request's connection is closed."""


class Dispatcher:
    """One for each broker; `connect` makes what stands above a connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shortcuts: Mapping[int, Shortcut],
        direct: Mapping[int, DirectHandler],
        handlers: Mapping[int, Handler],
        slices: Slices,
        measures: RequestMeasures,
    ) -> None:
        assert set(direct) | set(handlers) == set(APIS), "every API that is advertised has a handler"
        self.loop = loop
        self.shortcuts = shortcuts
        self.direct = direct
        self.handlers = handlers
        self.measures = measures
        self._slices = slices
        self._quiet_until: dict[int, float] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.fault: Fault | None = None

    def connect(self, connection: Connection) -> "ClientConnection":
        return ClientConnection(self, connection)

    def observe(self, request: Request) -> None:
        measures, api_key = self.measures, request.api_key
        measures.seconds[api_key].observe(measures.now() - request.began)
        if request.errors is not None:
            for code, times in request.errors.items():
                measures.add_error(api_key, code, times)

    def mistake(self, api_key: int, bug: BaseException) -> RequestFailed:
        """What to close a request's connection with after an exception that it should not have raised."""
        api = APIS[api_key].name if api_key in APIS else "unknown"
        self.measures.bugs.of(api).value += 1
        now = self.loop.time()
        if isinstance(bug, AssertionError):
            report_bug(self.loop, f"a failed assertion in a {api} request", bug)
        elif now >= self._quiet_until.get(api_key, now):
            self._quiet_until[api_key] = now + _LOGGED_SECONDS
            logger.error("a %s request failed by a mistake of the broker's own", api, exc_info=bug)
        return RequestFailed(f"{api}: a mistake of the broker's own")

    def handle(self, request: Request) -> None:
        direct = self.direct.get(request.api_key)
        if direct is None:
            self._start(request, partial(self._answer, request))
        elif (work := direct(request)) is not None:
            self._start(request, work)

    def _start(self, request: Request, work: Work) -> None:
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

    async def _answer(self, request: Request) -> None:
        await self._slices.begin()
        if request.api_key in READING:
            request.check_wanted()
        values = await self.values_for(request)
        steps = write_response_in_steps(request.api_key, request.version, values)
        body = await self._slices.finish(steps, request.check_wanted)
        request.errors = body.errors or None
        request.respond(body)

    async def values_for(self, request: Request) -> Values:
        """What the handler of a request answers."""
        api_key = request.api_key
        steps = decode_request_in_steps(api_key, request.version, request.body)
        asked = await self._slices.finish(steps, request.check_wanted if api_key in READING else _go_on)
        return await self.handlers[api_key](request, asked)

    async def stop(self) -> None:
        """Ends what is still being worked on."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _go_on() -> None:
    """Nothing ends the request."""


class ClientConnection:
    """What a connection hands its requests to."""

    __slots__ = ("_connection", "_dispatcher")

    def __init__(self, dispatcher: Dispatcher, connection: Connection) -> None:
        self._dispatcher = dispatcher
        self._connection = connection

    def on_request(self, slot: ReplySlot, frame: memoryview) -> None:
        dispatcher = self._dispatcher
        fault = dispatcher.fault
        try:
            if fault is None and len(frame) > 1:
                shortcut = dispatcher.shortcuts.get(frame[1])
                if shortcut is not None and shortcut(frame, slot, self):
                    return
            request = self.request_in(frame, slot)
            if fault is None or not fault(request):
                dispatcher.handle(request)
        except BarnabasError:
            raise
        except Exception as bug:  # noqa: BLE001 - whatever it is, no request may end the broker: see the module's text
            raise dispatcher.mistake(frame[1], bug) from None

    def request_in(self, frame: memoryview, slot: ReplySlot) -> Request:
        """What stands in a frame of this connection's."""
        header = parse_request_header(frame)
        return self.request(header, frame[header.body_position :], slot, self._dispatcher.measures.now())

    def request(self, header: RequestHeader, body: memoryview, slot: ReplySlot, began: float) -> Request:
        """A request of this connection's that came at this time."""
        connection = self._connection
        return Request(header, body, slot, connection.listener_name, connection.peer_host, self._dispatcher, began)

    def on_closed(self) -> None:
        """Requests that are still worked on answer into a closed slot, which drops the answer."""
