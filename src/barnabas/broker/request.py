"""One request on its way through the broker: what was asked, by whom, and where the answer goes.

A handler gets nothing else from the network. Who may do what is decided in one place (`authorizer`), from the principal
here; every answer has room for a throttle time.
"""

from collections.abc import Callable, MutableMapping, Sequence
from typing import Final, Protocol

from barnabas.base.errors import BarnabasError
from barnabas.broker.request_measures import RequestMeasures
from barnabas.net.replies import Buffer, Piece, Reply, release_ranges
from barnabas.wire.framing import RequestHeader, response_start

ANONYMOUS: Final = "User:ANONYMOUS"
_JOINED_BYTES_MAX: Final = 64 << 10
"""A larger body is sent after its header, not copied behind it."""


class RequestAbandoned(BarnabasError):  # noqa: N818 - a fact about a request, named as one
    """The client has gone, and what it asked for need not be worked on."""


class AnswerSlot(Protocol):
    """Where a request's answer goes: its place in the connection's line."""

    @property
    def is_abandoned(self) -> bool: ...

    def complete(self, reply: Reply | None) -> None: ...

    def fail(self, error: BarnabasError) -> None: ...


class RequestOwner(Protocol):
    """The dispatcher, as its requests see it."""

    measures: RequestMeasures

    def observe(self, request: "Request") -> None:
        """The answer is handed over."""
        ...

    def mistake(self, api_key: int, bug: Exception) -> BarnabasError:
        """An exception that no request should raise; returns what its connection is closed with."""
        ...


class Request:
    """Answered exactly once: by `respond`, `respond_in_pieces`, `respond_nothing` or `refuse`."""

    __slots__ = (
        "_owner",
        "_slot",
        "api_key",
        "began",
        "body",
        "client_id",
        "correlation_id",
        "errors",
        "listener",
        "peer_host",
        "principal",
        "throttle_ms",
        "version",
    )

    def __init__(
        self,
        header: RequestHeader,
        body: memoryview,
        slot: AnswerSlot,
        listener: str,
        peer_host: str,
        owner: RequestOwner,
        began: float = 0.0,
    ) -> None:
        """`began` is when it came, as `RequestMeasures.now` tells it; later by what it has `waited`."""
        self.api_key, self.version, self.correlation_id, self.client_id, _ = header
        self.began = began
        self.body = body
        self.listener = listener
        self.peer_host = peer_host
        self.principal = ANONYMOUS
        self.throttle_ms = 0
        self.errors: MutableMapping[int, int] | None = None
        """How often the answer carries which error code; None when it carries none."""
        self._slot = slot
        self._owner = owner

    def add_error(self, code: int, times: int = 1) -> None:
        """The answer will carry this code, for the whole request or for a part of it: so that errors are counted."""
        if self.errors is None:
            self.errors = {}
        self.errors[code] = self.errors.get(code, 0) + times

    def waited(self, seconds: float) -> None:
        """A Fetch waited for records: that is measured by itself, and is no work of ours."""
        self.began += seconds
        self._owner.measures.fetch_wait_seconds.observe(seconds)

    def check_wanted(self) -> None:
        """Raises `RequestAbandoned` when nobody waits for the answer."""
        if self._slot.is_abandoned:
            raise RequestAbandoned("the client has gone")

    def attempt(self, work: Callable[[], None]) -> None:
        """Does a part of this request's work in a later turn; what goes wrong there ends this request alone."""
        try:
            work()
        except BarnabasError as error:
            self.refuse(error)
        except Exception as bug:  # noqa: BLE001 - as in `dispatch`, which sorts them
            self.refuse(self._owner.mistake(self.api_key, bug))

    def respond(self, body: Buffer) -> None:
        """The body must not change afterwards."""
        start = response_start(self.api_key, self.version, self.correlation_id, len(body))
        self._slot.complete(start + body if len(body) <= _JOINED_BYTES_MAX else [start, body])
        self._owner.observe(self)

    def respond_in_pieces(self, pieces: Sequence[Piece], body_bytes: int) -> None:
        """For answers with file ranges between the bytes, `body_bytes` in all; the first piece is bytes."""
        first, *others = pieces
        assert isinstance(first, bytes)
        start = response_start(self.api_key, self.version, self.correlation_id, body_bytes)
        self._slot.complete([start + first, *others])  # one piece less to send
        self._owner.observe(self)

    def respond_nothing(self) -> None:
        """The protocol has no answer for this request (acks=0)."""
        self._slot.complete(None)
        self._owner.observe(self)

    def lose_answer(self, reason: BarnabasError) -> None:
        """Whatever it is answered with, the connection is closed instead: for tests."""
        self._slot = _LosingSlot(self._slot, reason)

    def refuse(self, error: BarnabasError) -> None:
        """There is no answer but a closed connection."""
        self._slot.fail(error)
        self._owner.observe(self)


class _LosingSlot:
    """Where an answer goes that nobody gets."""

    def __init__(self, slot: AnswerSlot, reason: BarnabasError) -> None:
        self._slot = slot
        self._reason = reason

    @property
    def is_abandoned(self) -> bool:
        return self._slot.is_abandoned

    def complete(self, reply: Reply | None) -> None:
        release_ranges(reply)
        self._slot.fail(self._reason)

    def fail(self, error: BarnabasError) -> None:
        self._slot.fail(error)
