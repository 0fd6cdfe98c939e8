"""JoinGroup, versions 0 to 9: answered when the generation has its members, which may take a rebalance timeout.

From version 4 on, who comes without a member id is given one and joins again with it (KIP-394), unless it has a name of
its own (`group.instance.id`, version 5). The rules are in `barnabas.groups`.
"""

from typing import Any, Final

from barnabas.base.errors import BarnabasError
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.group_calls import ask_group_in_turn, milliseconds
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.requests import JoinRequest, JoinResult
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import decode_request, write_response

_KNOWN_ID_FROM: Final = 4
_NULLABLE_PROTOCOL_FROM: Final = 7
_SKIPPED_ASSIGNMENT_FROM: Final = 9


class JoinGroupHandler:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns = services.groups.turns

    def __call__(self, request: Request) -> None:
        self._turns.call(lambda: self._join(request))

    def _join(self, request: Request) -> None:
        try:
            join = _join_request(request, decode_request(ApiKey.JOIN_GROUP, request.version, request.body))
        except BarnabasError as error:
            request.refuse(error)
            return

        def respond(result: JoinResult | ErrorCode) -> None:
            if isinstance(result, ErrorCode):
                result = JoinResult(result, member_id=join.member_id)
            request.respond(write_response(ApiKey.JOIN_GROUP, request.version, _view(request, result)))

        ask_group_in_turn(
            self._services,
            request,
            join.group_id,
            lambda state, token, now_ms: state.join(join, token, now_ms),
            respond,
        )


def _view(request: Request, result: JoinResult) -> Values:
    protocol = result.protocol
    if protocol is None and request.version < _NULLABLE_PROTOCOL_FROM:
        protocol = ""
    return {
        "throttle_time_ms": request.throttle_ms,
        "error_code": result.error,
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": protocol,
        "leader": result.leader,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": [
            {"member_id": one.member_id, "group_instance_id": one.instance_id, "metadata": one.metadata}
            for one in result.members
        ],
    }


def _join_request(request: Request, asked: Any) -> JoinRequest:
    session_timeout_ms = milliseconds(asked.session_timeout)
    return JoinRequest(
        group_id=asked.group_id,
        member_id=asked.member_id,
        instance_id=getattr(asked, "group_instance_id", None),
        client_id=request.client_id or "",
        client_host="/" + request.peer_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            milliseconds(asked.rebalance_timeout) if hasattr(asked, "rebalance_timeout") else session_timeout_ms
        ),
        protocol_type=asked.protocol_type,
        protocols=tuple([(one.name, one.metadata) for one in asked.protocols]),
        requires_known_member_id=request.version >= _KNOWN_ID_FROM,
        supports_skipping_assignment=request.version >= _SKIPPED_ASSIGNMENT_FROM,
        reason=getattr(asked, "reason", None) or "",
    )
