"""One request on its way through the broker: what was asked, by whom, and where the answer goes.

A handler gets this and the request object that was decoded, and nothing else from the network. It is the request's own
place in its connection's line of replies, so that a request is one object on its way. Who may do what is decided in one
place (`authorizer`), from the caller here; every answer has room for a throttle time.
"""

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Final, Protocol

from barnabas.base.buffers import BUFFER_TYPES, Buffer
from barnabas.base.errors import BarnabasError
from barnabas.base.metrics import Histogram
from barnabas.broker.caller import Caller
from barnabas.net.replies import Reply, ReplySlot, SlotOwner, release_ranges
from barnabas.wire.apis import ApiKey
from barnabas.wire.framing import LENGTH_BYTES, response_start

_JOINED_BYTES_MAX: Final = 64 << 10
"""A larger body is sent after its header, not copied behind it."""


class RequestAbandoned(BarnabasError):  # noqa: N818 - a fact about a request, named as one
    """The client has gone, and what it asked for need not be worked on."""


class RequestClient(Protocol):
    """Who is at the other end of the connection, as a request sees it."""

    def mistake(self, api_key: int, bug: Exception) -> BarnabasError:
        """An exception that no request should raise; returns what its connection is closed with."""
        ...

    def add_error(self, api_key: int, code: int, times: int) -> None:
        """An answer carries this error code."""
        ...

    def identify(self, software: str) -> None:
        """The client has told what it is."""
        ...

    def call_when_closed(self, call: Callable[[], None]) -> None:
        """When the connection has ended; instead of what was to be called before."""
        ...


class RequestRoute(Protocol):
    """The row of a request's API, as the request sees it."""

    api_key: ApiKey
    seconds: Histogram
    wait_seconds: Histogram
    now: Callable[[], float]


class Request(ReplySlot):
    """Answered exactly once: by `answer`, `respond`, `respond_nothing` or `refuse`."""

    __slots__ = (
        *("_client", "_route", "began", "caller", "correlation_id", "errors"),
        *("is_forwarded", "throttle_ms", "version"),
    )

    def begin(
        self,
        route: RequestRoute,
        client: RequestClient,
        caller: Caller,
        version: int,
        correlation_id: int,
        began: float,
    ) -> None:
        """What was asked has been read. `began` is when it came, as the route's `now` tells it; later by what it has
        `waited`."""
        self._route = route
        self._client = client
        self.caller = caller
        self.version = version
        self.correlation_id = correlation_id
        self.began = began
        self.throttle_ms = 0
        self.is_forwarded = False
        """Whether another broker has handed it on."""
        self.errors: MutableMapping[int, int] | None = None
        """How often the answer carries which error code; None when it carries none."""

    @property
    def api_key(self) -> ApiKey:
        return self._route.api_key

    def add_error(self, code: int, times: int = 1) -> None:
        """The answer will carry this code, for the whole request or for a part of it: so that errors are counted."""
        if self.errors is None:
            self.errors = {}
        self.errors[code] = self.errors.get(code, 0) + times

    def waited(self, seconds: float) -> None:
        """A Fetch waited for records: that is measured by itself, and is no work of ours."""
        self.began += seconds
        self._route.wait_seconds.observe(seconds)

    def check_wanted(self) -> None:
        """Raises `RequestAbandoned` when nobody waits for the answer."""
        if self.is_abandoned:
            raise RequestAbandoned("the client has disconnected")

    def identify(self, software: str) -> None:
        """The client has told what it is: its later requests say so."""
        self._client.identify(software)

    def call_when_closed(self, call: Callable[[], None]) -> None:
        """When the connection that this request came by has ended, for whatever reason: at once, if it has. Of
        several calls the last one counts."""
        self._client.call_when_closed(call)

    def attempt(self, work: Callable[[], None]) -> None:
        """Does a part of this request's work in a later turn; what goes wrong there ends this request alone."""
        try:
            work()
        except BarnabasError as error:
            self.refuse(error)
        except Exception as bug:  # noqa: BLE001 - as in `dispatch`, which sorts them
            self.refuse(self._client.mistake(self.api_key, bug))

    def answer(self, frame: Reply) -> None:
        """Answers with a whole frame, length prefix and header included. It must not change afterwards."""
        assert not self.is_completed, "a request is answered once"
        self.is_completed = True  # as `complete` and `_observe`, two calls shorter
        self.reply = frame
        self._owner.slot_completed(self)
        route = self._route
        route.seconds.observe(route.now() - self.began)
        if self.errors is not None:
            self._count_errors(self.errors)

    def respond(self, body: Buffer) -> None:
        """Answers with a body; the header is put before it."""
        start = response_start(self.api_key, self.version, self.correlation_id, len(body))
        self.answer(start + body if len(body) <= _JOINED_BYTES_MAX else [start, body])

    def respond_nothing(self) -> None:
        """The protocol has no answer for this request (acks=0)."""
        self.complete(None)
        self._observe()

    def lose_answer(self, reason: BarnabasError) -> None:
        """Whatever it is answered with, the connection is closed instead: for tests."""
        self._owner = _AnswerLoser(self._owner, reason)

    def refuse(self, error: BarnabasError) -> None:
        """There is no answer but a closed connection."""
        self.fail(error)
        self._observe()

    def _observe(self) -> None:
        route = self._route
        route.seconds.observe(route.now() - self.began)
        if self.errors is not None:
            self._count_errors(self.errors)

    def _count_errors(self, errors: MutableMapping[int, int]) -> None:
        for code, times in errors.items():
            self._client.add_error(self.api_key, code, times)


class _AnswerLoser:
    """Stands between a request and its connection, and fails it instead of taking its answer."""

    def __init__(self, owner: SlotOwner, reason: BarnabasError) -> None:
        self._owner = owner
        self._reason = reason

    @property
    def is_closed(self) -> bool:
        return self._owner.is_closed

    def slot_completed(self, slot: ReplySlot) -> None:
        release_ranges(slot.reply)
        slot.reply = None
        self._owner.request_failed(self._reason)

    def request_failed(self, error: BarnabasError) -> None:
        self._owner.request_failed(error)


class InnerReply:
    """In place of the connection of a request that came in another one: takes its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, outer: ReplySlot) -> None:
        self.frame: asyncio.Future[bytes] = loop.create_future()
        """What follows the length prefix."""
        self._outer = outer

    @property
    def is_closed(self) -> bool:
        return self._outer.is_abandoned

    def slot_completed(self, slot: ReplySlot) -> None:
        reply, slot.reply = slot.reply, None
        assert reply is not None, "requests for the controller are answered"
        pieces = [reply] if isinstance(reply, BUFFER_TYPES) else reply
        whole = b"".join(one for one in pieces if isinstance(one, BUFFER_TYPES))
        self.frame.set_result(whole[LENGTH_BYTES:])

    def request_failed(self, error: BarnabasError) -> None:
        self.frame.set_exception(error)
