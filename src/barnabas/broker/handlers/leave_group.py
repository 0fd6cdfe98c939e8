"""LeaveGroup, versions 0 to 5: one member leaves, or from version 3 on several, by id or by their own name."""

from typing import Any, Final

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.group_calls import ask_group, check_group
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.requests import LeaveResult, LeavingMember
from barnabas.wire.errors import ErrorCode, KafkaError

_MANY_FROM: Final = 3
_TOGETHER_MAX: Final = 2_000
"""Members that leave in one request, which is done at once."""


class LeaveGroupHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: Any) -> Values:
        try:
            if request.version >= _MANY_FROM and len(asked.members) > _TOGETHER_MAX:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            leaving = _leaving(asked)
            check_group(self._services, request, Operation.READ, asked.group_id)
            result: LeaveResult = await ask_group(
                self._services,
                asked.group_id,
                lambda state, token, now: state.leave(asked.group_id, leaving, token, now),
            )
        except KafkaError as error:
            result = LeaveResult(error.code, ())
        code = result.error
        if request.version < _MANY_FROM and code is ErrorCode.NONE and result.members:
            code = result.members[0].error
        return {
            "throttle_time_ms": request.throttle_ms,
            "error_code": code,
            "members": [
                {"member_id": one.member_id, "group_instance_id": one.instance_id, "error_code": one.error}
                for one in result.members
            ],
        }


def _leaving(asked: Any) -> list[LeavingMember]:
    if hasattr(asked, "members"):
        return [
            LeavingMember(one.member_id, one.group_instance_id, getattr(one, "reason", None)) for one in asked.members
        ]
    return [LeavingMember(asked.member_id, None)]
