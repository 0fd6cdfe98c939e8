"""SyncGroup, versions 0 to 5: the leader brings everybody's assignment, and everybody gets their own.

- From version 3 a member may have a name of its own (`group.instance.id`). From 5 it says which protocol it follows,
  and is told; without it, the answer is INCONSISTENT_GROUP_PROTOCOL.
- Answered when the assignment is in the log.
- Not here: the rules, which are in `barnabas.groups`.
"""

from barnabas.broker.handlers.group_calls import ask_group_in_turn
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.requests import SyncRequest, SyncResult
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sync_group import PROTOCOL_FROM, decode_sync_group_request, encode_sync_group_response


class SyncGroupHandler:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns = services.groups.turns

    def __call__(self, request: Request, body: memoryview) -> None:
        self._turns.call(lambda: request.attempt(lambda: self._sync(request, body)))

    def _sync(self, request: Request, body: memoryview) -> None:
        sync = SyncRequest(*decode_sync_group_request(request.version, body))

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
