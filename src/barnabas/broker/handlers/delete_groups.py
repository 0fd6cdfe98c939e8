"""DeleteGroups, versions 0 to 2: groups without members are removed, with their offsets.

- All versions are alike. Each group is deleted or refused alone; one that the request names twice is answered once.
- A group and its offsets go together, in one batch of the log. One with very many offsets loses them in pieces first: a
  member that joins meanwhile stops that half way, and the group is NON_EMPTY_GROUP. (Kafka refuses such a group, when
  its tombstones are more than a batch may hold.)
- Not here: groups of other types (KIP-848, share groups), which do not exist.
"""

from barnabas.broker.audit import TEXT_LENGTH_MAX, log_change
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.group_calls import ask_group
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.offsets import TOGETHER_MAX
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import DeleteGroupsRequest


class DeleteGroupsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: DeleteGroupsRequest) -> Values:
        results = [
            {"group_id": group_id, "error_code": await self._delete(request, group_id)}
            async for group_id in self._services.slices.each(dict.fromkeys(asked.groups_names))
        ]
        return {"results": results}

    async def _delete(self, request: Request, group_id: str) -> ErrorCode:
        try:
            if not self._services.allows_group(request, Operation.DELETE, group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            state_for = self._services.groups.coordinator.state_for
            while state_for(group_id).offset_count(group_id) > TOGETHER_MAX:
                await ask_group(
                    self._services, group_id, lambda state, token, _: state.delete_some_offsets(group_id, token)
                )
            await ask_group(self._services, group_id, lambda state, token, _: state.delete_group(group_id, token))
            shown = group_id[:TEXT_LENGTH_MAX]
            log_change(request, "deleted group '%s'", shown, group=shown)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE
