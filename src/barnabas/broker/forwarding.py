"""Requests for the controller that reach another broker: handed on in an Envelope, with who asked.

The controller answers as if it had been asked itself, and its answer is the client's. While nobody is the controller,
or it cannot be reached, the request waits for a moment; then it is answered with an error that clients ask again after.
"""

import asyncio
import ipaddress
import logging
from contextlib import suppress
from typing import Final

from barnabas.base.clock import Clock
from barnabas.broker.caller import Caller
from barnabas.broker.request import Request
from barnabas.controller.seat import ControllerSeat
from barnabas.net.errors import NetworkFailed
from barnabas.replication.replicas import Replicas
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.framing import LENGTH_BYTES, request_start
from barnabas.wire.primitives import INT32

logger = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 10.0
"""For a controller that can be asked."""
_ANSWER_SECONDS: Final = 60.0
_CATCH_UP_SECONDS: Final = 5.0


class Forwarder:
    """Owner: the broker's event loop."""

    def __init__(self, seat: ControllerSeat, replicas: Replicas, clock: Clock) -> None:
        self._seat = seat
        self._replicas = replicas
        self._clock = clock

    async def __call__(self, request: Request, body: memoryview) -> bytes | None:
        """The controller's answer, as a frame. None when this broker has to answer: as the controller, or in vain."""
        seat, ends = self._seat, self._clock.monotonic() + _WAIT_SECONDS
        while True:
            controller = seat.controller
            if controller is not None and controller.is_whole.is_set():
                return None
            if seat.link is not None and (answer := await self._ask(request, body)) is not None:
                await self._catch_up()
                return answer
            left_seconds = ends - self._clock.monotonic()
            if left_seconds <= 0:
                return None
            await self._wait(left_seconds)

    async def _wait(self, seconds: float) -> None:
        """For another controller, or for this one to be ready; a moment at least."""
        seat = self._seat
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(seat.wait_for_change())]
        if seat.controller is not None:
            waits.append(asyncio.ensure_future(seat.controller.is_whole.wait()))
        try:
            await asyncio.wait(waits, timeout=min(seconds, 0.5), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _catch_up(self) -> None:
        """What the controller has changed is in use here, too, before the client hears of it; or it takes too long."""
        with suppress(TimeoutError, NetworkFailed, KafkaError):
            async with asyncio.timeout(_CATCH_UP_SECONDS):
                await self._seat.catch_up()
                await self._replicas.wait_for(lambda image: image is self._replicas.coming)

    async def _ask(self, request: Request, body: memoryview) -> bytes | None:
        """None when it cannot answer now."""
        link, caller = self._seat.link, request.caller
        assert link is not None, "checked before"
        start = request_start(request.api_key, request.version, request.correlation_id, caller.client_id, len(body))
        envelope = {
            "request_data": start[LENGTH_BYTES:] + body,
            "request_principal": caller.principal.encode(),
            "client_host_address": _host_bytes(caller.host),
        }
        try:
            answer = await link.ask(ApiKey.ENVELOPE, 0, envelope, _ANSWER_SECONDS)
        except NetworkFailed as error:
            logger.info("the controller cannot be asked: %s", error)
            return None
        if ErrorCode.of(answer.error_code.value) is not ErrorCode.NONE or answer.response_data is None:
            return None
        data = bytes(answer.response_data)
        return INT32.pack(len(data)) + data


def caller_in(listener: str, principal: bytes | None, host: bytes, client_id: str) -> Caller:
    """Who asked the broker that an envelope comes from."""
    return Caller(listener, _host_text(host), (principal or b"").decode("utf-8", "replace"), client_id)


def _host_bytes(host: str) -> bytes:
    """As Kafka sends an address: its four or sixteen bytes."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return host.encode()


def _host_text(host: bytes) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.decode("utf-8", "replace")
