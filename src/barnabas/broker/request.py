"""One request on its way through the broker: what was asked, by whom, and where the answer goes.

A handler gets nothing else from the network. Who may do what is decided in one place (`authorizer`), from the principal
here; every answer has room for a throttle time.
"""

from collections.abc import Callable, MutableMapping, Sequence
from typing import Final, Protocol

from barnabas.base.errors import BarnabasError
from barnabas.net.replies import Piece, Reply, release_ranges
from barnabas.wire.framing import RequestHeader, response_start

ANONYMOUS: Final = "User:ANONYMOUS"


class AnswerSlot(Protocol):
    """Where a request's answer goes: its place in the connection's line."""

    def complete(self, reply: Reply | None) -> None: ...

    def fail(self, error: BarnabasError) -> None: ...


class Request:
    """Answered exactly once: by `respond`, `respond_in_pieces`, `respond_nothing` or `refuse`."""

    __slots__ = (
        "_on_answered",
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
        on_answered: "Callable[[Request], None]",
        began: float = 0.0,
    ) -> None:
        """`began` is when it came, as `RequestMeasures.now` tells it; `on_answered` is called when the answer is handed
        over."""
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
        self._on_answered = on_answered

    def add_error(self, code: int, times: int = 1) -> None:
        """The answer will carry this code, for the whole request or for a part of it: so that errors are counted."""
        if self.errors is None:
            self.errors = {}
        self.errors[code] = self.errors.get(code, 0) + times

    def respond(self, body: bytes) -> None:
        self._slot.complete(response_start(self.api_key, self.version, self.correlation_id, len(body)) + body)
        self._on_answered(self)

    def respond_in_pieces(self, pieces: Sequence[Piece], body_bytes: int) -> None:
        """For answers with file ranges between the bytes, `body_bytes` in all; the first piece is bytes."""
        first, *others = pieces
        assert isinstance(first, bytes)
        start = response_start(self.api_key, self.version, self.correlation_id, body_bytes)
        self._slot.complete([start + first, *others])  # one piece less to send
        self._on_answered(self)

    def respond_nothing(self) -> None:
        """The protocol has no answer for this request (acks=0)."""
        self._slot.complete(None)
        self._on_answered(self)

    def lose_answer(self, reason: BarnabasError) -> None:
        """Whatever it is answered with, the connection is closed instead: for tests."""
        self._slot = _LosingSlot(self._slot, reason)

    def refuse(self, error: BarnabasError) -> None:
        """There is no answer but a closed connection."""
        self._slot.fail(error)
        self._on_answered(self)


class _LosingSlot:
    """Where an answer goes that nobody gets."""

    def __init__(self, slot: AnswerSlot, reason: BarnabasError) -> None:
        self._slot = slot
        self._reason = reason

    def complete(self, reply: Reply | None) -> None:
        release_ranges(reply)
        self._slot.fail(self._reason)

    def fail(self, error: BarnabasError) -> None:
        self._slot.fail(error)
