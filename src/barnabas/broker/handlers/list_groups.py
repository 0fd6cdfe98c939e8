"""ListGroups, versions 0 to 5: the groups that this broker coordinates.

- From version 4 a client may choose groups by their state, which the answer has; from 5 by their type, likewise.
- While groups are loading the list would have holes: COORDINATOR_LOAD_IN_PROGRESS.
- Not here: groups of other types than the classic one.
"""

from collections.abc import Iterator

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.shard import ShardStatus
from barnabas.wire.errors import ErrorCode
from barnabas.wire.request_views import ListGroupsRequest


class ListGroupsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: ListGroupsRequest) -> Values:
        slices = self._services.slices
        states = {state.lower() async for state in slices.each(asked.states_filter)}
        types = {group_type.lower() async for group_type in slices.each(asked.types_filter)}
        coordinator = self._services.groups.coordinator
        answer = {"error_code": ErrorCode.NONE, "groups": []}
        if coordinator.is_loading:
            return {**answer, "error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        return {**answer, "groups": self._groups(request, states, types)}

    def _groups(self, request: Request, states: set[str], types: set[str]) -> Iterator[Values]:
        sees_all = self._services.allows_cluster(request, Operation.DESCRIBE)
        for shard in self._services.groups.coordinator:
            if shard.status is not ShardStatus.ACTIVE:
                continue
            for one in shard.state.list_groups(states, types):
                if sees_all or self._services.allows_group(request, Operation.DESCRIBE, one.group_id):
                    yield {
                        "group_id": one.group_id,
                        "protocol_type": one.protocol_type,
                        "group_state": one.state.value,
                        "group_type": one.group_type,
                    }
