"""From a frame to its handler, and from the handler's answer back to the connection.

ApiVersions, Produce, Fetch and the calls of groups are called directly: they answer in the same tick, or keep the
request and answer later. The shapes that clients send most of all do not even become a `Request`: their handler takes
the frame by a shortcut (`barnabas.wire.sole_produce`, `sole_fetch`, `sole_commit`). Everything else is a coroutine that
returns the answer's values, by kio's field names; it runs in a task of its own, and requests that are answered
meanwhile wait in their connection for their turn.

Kafka's answer to what it does not serve is a closed connection; so is ours to a request that cannot be decoded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from barnabas.base.errors import BarnabasError
from barnabas.broker.request import Request
from barnabas.broker.request_measures import RequestMeasures
from barnabas.net.connection import Connection
from barnabas.net.replies import ReplySlot
from barnabas.wire.answer_errors import answer_errors
from barnabas.wire.apis import APIS
from barnabas.wire.framing import RequestHeader, parse_request_header
from barnabas.wire.messages import write_response

logger = logging.getLogger(__name__)

Values: TypeAlias = Mapping[str, object]
DirectHandler: TypeAlias = Callable[[Request], None]
Handler: TypeAlias = Callable[[Request], Awaitable[Values]]
Shortcut: TypeAlias = Callable[[memoryview, ReplySlot, "ClientConnection"], bool]
"""Says whether it took the frame, which may be anything that begins with the second byte of the API's key."""
Fault: TypeAlias = Callable[[Request], bool]
"""What a test wants done to a request instead of handling it; says whether it took the request."""


class Dispatcher:
    """One for each broker; `connect` makes what stands above a connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shortcuts: Mapping[int, Shortcut],
        direct: Mapping[int, DirectHandler],
        handlers: Mapping[int, Handler],
        measures: RequestMeasures,
        on_bug: Callable[[BaseException], None],
    ) -> None:
        """`on_bug` hears of an exception that no handler should raise: our own mistake, which ends the broker."""
        assert set(direct) | set(handlers) == set(APIS), "every API that is advertised has a handler"
        self.loop = loop
        self.shortcuts = shortcuts
        self.direct = direct
        self.handlers = handlers
        self.measures = measures
        self._on_bug = on_bug
        self._tasks: set[asyncio.Task[None]] = set()
        self.fault: Fault | None = None

    def connect(self, connection: Connection) -> "ClientConnection":
        return ClientConnection(self, connection)

    def observe(self, request: Request) -> None:
        measures, api_key = self.measures, request.api_key
        measures.seconds[api_key].observe(measures.now() - request.began)
        if request.errors is not None:
            for code, times in request.errors.items():
                measures.add_error(api_key, code, times)

    def handle(self, request: Request) -> None:
        direct = self.direct.get(request.api_key)
        if direct is not None:
            direct(request)
        else:
            self._start(self.handlers[request.api_key], request)

    def _start(self, handler: Handler, request: Request) -> None:
        task = self.loop.create_task(self._run(handler, request))
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._on_bug(bug)

    async def _run(self, handler: Handler, request: Request) -> None:
        try:
            values = await handler(request)
            body = write_response(request.api_key, request.version, values)
            await self._count_errors(request, values)
            request.respond(body)
        except BarnabasError as error:
            request.refuse(error)

    async def _count_errors(self, request: Request, values: Values) -> None:
        steps = answer_errors(request.api_key, request.version, values)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                request.errors = end.value or None
                return
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Ends what is still being worked on."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ClientConnection:
    """What a connection hands its requests to."""

    __slots__ = ("_connection", "_dispatcher")

    def __init__(self, dispatcher: Dispatcher, connection: Connection) -> None:
        self._dispatcher = dispatcher
        self._connection = connection

    def on_request(self, slot: ReplySlot, frame: memoryview) -> None:
        dispatcher = self._dispatcher
        fault = dispatcher.fault
        if fault is None and len(frame) > 1:
            shortcut = dispatcher.shortcuts.get(frame[1])
            if shortcut is not None and shortcut(frame, slot, self):
                return
        request = self.request_in(frame, slot)
        if fault is None or not fault(request):
            dispatcher.handle(request)

    def request_in(self, frame: memoryview, slot: ReplySlot) -> Request:
        """What stands in a frame of this connection's."""
        header = parse_request_header(frame)
        return self.request(header, frame[header.body_position :], slot, self._dispatcher.measures.now())

    def request(self, header: RequestHeader, body: memoryview, slot: ReplySlot, began: float) -> Request:
        """A request of this connection's that came at this time."""
        connection = self._connection
        return Request(
            header, body, slot, connection.listener_name, connection.peer_host, self._dispatcher.observe, began
        )

    def on_closed(self) -> None:
        """Requests that are still worked on answer into a closed slot, which drops the answer."""
