"""SyncGroup, versions 0 to 5: the leader brings everybody's assignment, and everybody gets their own.

Answered when the assignment is in the log.
"""

from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.group_calls import ask_group_in_turn
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.requests import SyncRequest, SyncResult
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import decode_request, write_response

_PROTOCOL_FROM = 5


class SyncGroupHandler:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns = services.groups.turns

    def __call__(self, request: Request) -> None:
        self._turns.call(lambda: self._sync(request))

    def _sync(self, request: Request) -> None:
        try:
            sync = _sync_request(decode_request(ApiKey.SYNC_GROUP, request.version, request.body))
        except BarnabasError as error:
            request.refuse(error)
            return

        def respond(result: SyncResult | ErrorCode) -> None:
            if isinstance(result, ErrorCode):
                result = SyncResult(result)
            request.respond(write_response(ApiKey.SYNC_GROUP, request.version, _view(request, result)))

        if request.version >= _PROTOCOL_FROM and (sync.protocol_type is None or sync.protocol is None):
            respond(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        else:
            ask_group_in_turn(
                self._services,
                request,
                sync.group_id,
                lambda state, token, now_ms: state.sync(sync, token, now_ms),
                respond,
            )


def _sync_request(asked: Any) -> SyncRequest:
    return SyncRequest(
        group_id=asked.group_id,
        generation=asked.generation_id,
        member_id=asked.member_id,
        instance_id=getattr(asked, "group_instance_id", None),
        protocol_type=getattr(asked, "protocol_type", None),
        protocol=getattr(asked, "protocol_name", None),
        assignments=[(one.member_id, one.assignment) for one in asked.assignments],
    )


def _view(request: Request, result: SyncResult) -> Values:
    return {
        "throttle_time_ms": request.throttle_ms,
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol,
        "assignment": result.assignment,
    }
