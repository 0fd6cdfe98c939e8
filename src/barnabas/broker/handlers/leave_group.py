"""LeaveGroup, versions 0 to 5: members leave a group, by id or by their own name.

- One member leaves until version 2, and its error is the answer's; from version 3 on several may, each with its own
  error, and from 5 on with a reason.
- Not here: more than two thousand members at once, which is INVALID_REQUEST.
"""

from typing import Final

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.group_calls import ask_group, check_group
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.requests import LeaveResult, LeavingMember
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import LeaveGroupRequest

_MANY_FROM: Final = 3
_TOGETHER_MAX: Final = 2_000
"""Members that leave in one request, which is done at once."""


class LeaveGroupHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: LeaveGroupRequest) -> Values:
        try:
            if request.version >= _MANY_FROM and len(asked.members) > _TOGETHER_MAX:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            leaving = _leaving(request.version, asked)
            check_group(self._services, request, Operation.READ, asked.group_id)
            result = await ask_group(
                self._services,
                asked.group_id,
                lambda state, token, now: state.leave(asked.group_id, leaving, token, now),
            )
            assert isinstance(result, LeaveResult), "what a group answers to a leave"
        except KafkaError as error:
            result = LeaveResult(error.code, ())
        code = result.error
        if request.version < _MANY_FROM and code is ErrorCode.NONE and result.members:
            code = result.members[0].error
        return {
            "error_code": code,
            "members": [
                {"member_id": one.member_id, "group_instance_id": one.instance_id, "error_code": one.error}
                for one in result.members
            ],
        }


def _leaving(version: int, asked: LeaveGroupRequest) -> list[LeavingMember]:
    if version < _MANY_FROM:
        return [LeavingMember(asked.member_id, None)]
    return [LeavingMember(one.member_id, one.group_instance_id, one.reason) for one in asked.members]
