"""Heartbeat, versions 0 to 4: a member is alive, and is told whether its generation is still the one.

- From version 3 a member may have a name of its own (`group.instance.id`).
- Answered in the same tick: thousands of members beat every few seconds.
- A coordinator that loads its groups answers NONE, as Kafka does: a member must not be disturbed by a restart.
"""

from barnabas.broker.authorizer import Operation, Resource
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.heartbeat import HeartbeatRequest, encode_heartbeat_response


class HeartbeatHandler:
    def __init__(self, services: Services) -> None:
        self._allows = services.authorizer.allows
        self._coordinator = services.groups.coordinator

    def __call__(self, request: Request, asked: HeartbeatRequest) -> None:
        group_id, generation, member_id, instance_id = asked
        coordinator = self._coordinator
        if not self._allows(request.caller, Operation.READ, Resource.GROUP, group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        elif not group_id:
            code = ErrorCode.INVALID_GROUP_ID
        else:
            try:
                state = coordinator.shard_for(group_id).state
                code = state.heartbeat(group_id, generation, member_id, instance_id, coordinator.steady_ms())
            except KafkaError as error:
                code = error.code
            if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                code = ErrorCode.NONE
        if code is not ErrorCode.NONE:
            request.add_error(code)
        request.respond(encode_heartbeat_response(request.version, code, request.throttle_ms))
