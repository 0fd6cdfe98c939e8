"""ListGroups, versions 0 to 5: the groups that this broker coordinates, by state (4) and type (5) if asked so.

While groups are loading the list would have holes: COORDINATOR_LOAD_IN_PROGRESS.
"""

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.requests import GroupListing
from barnabas.groups.shard import ShardStatus
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import decode_request


class ListGroupsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request) -> Values:
        asked = decode_request(ApiKey.LIST_GROUPS, request.version, request.body)
        states, types = getattr(asked, "states_filter", ()), getattr(asked, "types_filter", ())
        coordinator = self._services.groups.coordinator
        answer = {"throttle_time_ms": request.throttle_ms, "error_code": ErrorCode.NONE, "groups": []}
        if coordinator.is_loading:
            return {**answer, "error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        sees_all = self._services.allows_cluster(request, Operation.DESCRIBE)
        listed: list[GroupListing] = []
        for shard in coordinator:
            if shard.status is ShardStatus.ACTIVE:
                listed += shard.state.list_groups(states, types)
        answer["groups"] = [
            {
                "group_id": one.group_id,
                "protocol_type": one.protocol_type,
                "group_state": one.state.value,
                "group_type": one.group_type,
            }
            for one in listed
            if sees_all or self._services.allows_group(request, Operation.DESCRIBE, one.group_id)
        ]
        return answer
