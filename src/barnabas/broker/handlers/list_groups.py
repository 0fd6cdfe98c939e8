"""ListGroups, versions 0 to 5: the groups that this broker coordinates, by state (4) and type (5) if asked so.

While groups are loading the list would have holes: COORDINATOR_LOAD_IN_PROGRESS.
"""

from collections.abc import Iterator
from typing import Any

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.shard import ShardStatus
from barnabas.wire.errors import ErrorCode


class ListGroupsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: Any) -> Values:
        slices = self._services.slices
        states = {state.lower() async for state in slices.each(getattr(asked, "states_filter", ()))}
        types = {group_type.lower() async for group_type in slices.each(getattr(asked, "types_filter", ()))}
        coordinator = self._services.groups.coordinator
        answer = {"throttle_time_ms": request.throttle_ms, "error_code": ErrorCode.NONE, "groups": []}
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
