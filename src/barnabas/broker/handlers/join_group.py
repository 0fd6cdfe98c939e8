"""JoinGroup, versions 0 to 9: answered when the generation has its members, which may take a rebalance timeout.

- From version 1 a member has a rebalance timeout besides its session timeout; before, one is both.
- From version 4 on, who comes without a member id is given one and joins again with it (KIP-394), unless it has a name
  of its own (`group.instance.id`, version 5).
- The answer has the group's protocol type from version 7. From 8 a member may say why it joins, for the group's story.
  From 9 a leader that comes back under its own name may be told to assign nothing (KIP-814).
- Not here: the rules, which are in `barnabas.groups`.
"""

from typing import Final

from barnabas.broker.handlers.group_calls import ask_group_in_turn
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.requests import JoinRequest, JoinResult
from barnabas.wire.errors import ErrorCode
from barnabas.wire.join_group import (
    SKIP_ASSIGNMENT_FROM,
    JoinGroupRequest,
    decode_join_group_request,
    encode_join_group_response,
)

_KNOWN_ID_FROM: Final = 4


class JoinGroupHandler:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._turns = services.groups.turns

    def __call__(self, request: Request, body: memoryview) -> None:
        self._turns.call(lambda: request.attempt(lambda: self._join(request, body)))

    def _join(self, request: Request, body: memoryview) -> None:
        join = _join_request(request, decode_join_group_request(request.version, body))

        def respond(result: object) -> None:
            if isinstance(result, ErrorCode):
                result = JoinResult(result, member_id=join.member_id)
            assert isinstance(result, JoinResult), "what a group answers to a join"
            if result.error is not ErrorCode.NONE:
                request.add_error(result.error)
            request.respond(_encoded(request, result))

        ask_group_in_turn(
            self._services,
            request,
            join.group_id,
            lambda state, token, now: state.join(join, token, now),
            respond,
        )


def _encoded(request: Request, result: JoinResult) -> bytes:
    return encode_join_group_response(
        request.version,
        result.error,
        result.generation,
        result.protocol_type,
        result.protocol,
        result.leader,
        result.member_id,
        result.members,
        skip_assignment=result.skip_assignment,
        throttle_ms=request.throttle_ms,
    )


def _join_request(request: Request, asked: JoinGroupRequest) -> JoinRequest:
    return JoinRequest(
        group_id=asked.group_id,
        member_id=asked.member_id,
        instance_id=asked.instance_id,
        client_id=request.caller.client_id,
        client_host="/" + request.caller.host,
        session_timeout_ms=asked.session_timeout_ms,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        protocol_type=asked.protocol_type,
        protocols=asked.protocols,
        requires_known_member_id=request.version >= _KNOWN_ID_FROM,
        supports_skipping_assignment=request.version >= SKIP_ASSIGNMENT_FROM,
        reason=asked.reason or "",
    )
