"""SyncGroup, versions 0 to 5: the leader brings everybody's assignment, and everybody gets their own.

Answered when the assignment is in the log.
"""

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.group_calls import ask_group, check_group
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.requests import SyncRequest, SyncResult
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages import decode_request

_PROTOCOL_FROM = 5


class SyncGroupHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request) -> Values:
        turns = self._services.groups.turns
        await turns.take()
        asked = decode_request(ApiKey.SYNC_GROUP, request.version, request.body)
        sync = SyncRequest(
            group_id=asked.group_id,
            generation=asked.generation_id,
            member_id=asked.member_id,
            instance_id=getattr(asked, "group_instance_id", None),
            protocol_type=getattr(asked, "protocol_type", None),
            protocol=getattr(asked, "protocol_name", None),
            assignments=[(one.member_id, one.assignment) for one in asked.assignments],
        )
        try:
            if request.version >= _PROTOCOL_FROM and (sync.protocol_type is None or sync.protocol is None):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a protocol and its type must be named")
            check_group(self._services, request, Operation.READ, sync.group_id)
            result: SyncResult = await ask_group(
                self._services, sync.group_id, lambda state, token, now_ms: state.sync(sync, token, now_ms)
            )
        except KafkaError as error:
            result = SyncResult(error.code)
        await turns.take()  # a whole group is answered at once
        return {
            "throttle_time_ms": request.throttle_ms,
            "error_code": result.error,
            "protocol_type": result.protocol_type,
            "protocol_name": result.protocol,
            "assignment": result.assignment,
        }
