"""SyncGroup, versions 0 to 5: the leader brings everybody's assignment, and everybody gets their own.

- From version 3 a member may have a name of its own (`group.instance.id`). From 5 it says which protocol it follows,
  and is told; without it, the answer is INCONSISTENT_GROUP_PROTOCOL.
- Answered when the assignment is in the log. A request with very many assignments is read in slices.
- Not here: the rules, which are in `barnabas.groups`.
"""

from functools import partial
from typing import Final

from barnabas.broker.dispatch import Work
from barnabas.broker.handlers.group_calls import ask_group_in_turn
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.requests import SyncRequest, SyncResult
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sync_group import (
    PROTOCOL_FROM,
    SyncGroupRequest,
    decode_sync_group_request,
    decode_sync_group_request_in_steps,
    encode_sync_group_response,
)

_READ_AT_ONCE_BYTES_MAX: Final = 32 << 10
"""The assignments of a thousand members, if they are short: about a millisecond."""


class SyncGroupHandler:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns = services.groups.turns

    def __call__(self, request: Request, body: memoryview) -> Work | None:
        if len(body) > _READ_AT_ONCE_BYTES_MAX:
            return partial(self._sync_in_slices, request, body)
        self._turns.call(lambda: request.attempt(lambda: self._sync_at_once(request, body)))
        return None

    def _sync_at_once(self, request: Request, body: memoryview) -> None:
        self._sync(request, decode_sync_group_request(request.version, body))

    async def _sync_in_slices(self, request: Request, body: memoryview) -> None:
        steps = decode_sync_group_request_in_steps(request.version, body)
        asked = await self._services.slices.finish(steps, _go_on)  # the others wait for it, though its client has gone
        self._turns.call(lambda: request.attempt(lambda: self._sync(request, asked)))

    def _sync(self, request: Request, asked: SyncGroupRequest) -> None:
        sync = SyncRequest(*asked)

        def respond(result: object) -> None:
            if isinstance(result, ErrorCode):
                result = SyncResult(result)
            assert isinstance(result, SyncResult), "what a group answers to a sync"
            if result.error is not ErrorCode.NONE:
                request.add_error(result.error)
            request.respond(
                encode_sync_group_response(
                    request.version,
                    result.error,
                    result.protocol_type,
                    result.protocol,
                    result.assignment,
                    request.throttle_ms,
                )
            )

        if request.version >= PROTOCOL_FROM and (sync.protocol_type is None or sync.protocol is None):
            respond(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        else:
            ask_group_in_turn(
                self._services,
                request,
                sync.group_id,
                lambda state, token, now: state.sync(sync, token, now),
                respond,
            )


def _go_on() -> None:
    """Nothing ends the request."""
