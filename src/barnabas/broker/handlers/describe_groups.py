"""DescribeGroups, versions 0 to 6: state, members and what they read, for tools.

- From version 3 a client may ask what it may do to the groups; from 4 members have their instance ids.
- A group that does not exist is shown as `Dead`; from version 6 on with GROUP_ID_NOT_FOUND and a message. One that the
  request names more than once is shown once.
- Not here: groups of other types (KIP-848, share groups), which do not exist.
"""

from typing import Final

from barnabas.base.texts import shortened
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.operations import NOT_TOLD, group_operations
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.transitions import GroupState
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import DescribeGroupsRequest

_NOT_FOUND_FROM: Final = 6


class DescribeGroupsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: DescribeGroupsRequest) -> Values:
        tells_operations = asked.include_authorized_operations
        groups = (self._describe(request, group_id, tells_operations) for group_id in dict.fromkeys(asked.groups))
        return {"groups": groups}

    def _describe(self, request: Request, group_id: str, tells_operations: bool) -> Values:
        try:
            if not self._services.allows_group(request, Operation.DESCRIBE, group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            found = self._services.groups.coordinator.state_for(group_id).describe(group_id)
        except KafkaError as error:
            return {**_nothing(group_id, ""), "error_code": error.code}
        if found is None and request.version >= _NOT_FOUND_FROM:
            return {
                **_nothing(group_id, GroupState.DEAD.value),
                "error_code": ErrorCode.GROUP_ID_NOT_FOUND,
                "error_message": f"Group {shortened(group_id)} not found.",
            }
        operations = group_operations(self._services, request, group_id) if tells_operations else NOT_TOLD
        if found is None:
            return {**_nothing(group_id, GroupState.DEAD.value), "authorized_operations": operations}
        return {
            "error_code": ErrorCode.NONE,
            "group_id": group_id,
            "group_state": found.state.value,
            "protocol_type": found.protocol_type,
            "protocol_data": found.protocol,
            "members": (
                {
                    "member_id": one.member_id,
                    "group_instance_id": one.instance_id,
                    "client_id": one.client_id,
                    "client_host": one.client_host,
                    "member_metadata": one.metadata,
                    "member_assignment": one.assignment,
                }
                for one in found.members
            ),
            "authorized_operations": operations,
        }


def _nothing(group_id: str, state: str) -> Values:
    return {
        "error_code": ErrorCode.NONE,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NOT_TOLD,
    }
