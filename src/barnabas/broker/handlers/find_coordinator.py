"""FindCoordinator, versions 0 to 6: which broker looks after a group.

- From version 1 the key has a type; before, it is a group's. From version 4 the request has many keys.
- The first question of all makes `__consumer_offsets`, and is answered when it is there. While that cannot be, because
  too few brokers are there for its replicas, the answer is COORDINATOR_NOT_AVAILABLE, and clients ask again.
- Not here: transactions and share groups (the key type of version 6).

| key | answer |
|---|---|
| a group | the leader of the partition of `__consumer_offsets` that it belongs to |
| a transaction | TRANSACTIONAL_ID_AUTHORIZATION_FAILED: a producer stops at once |
| anything else | INVALID_REQUEST |
"""

from typing import Final

from barnabas.base.texts import shortened
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.partitions import OFFSETS_TOPIC
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import GROUP_KEY, FindCoordinatorRequest

_TRANSACTION: Final = 1
_MANY_FROM: Final = 4
_NOWHERE: Final = {"node_id": -1, "host": "", "port": -1}


class FindCoordinatorHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: FindCoordinatorRequest) -> Values:
        if request.version < _MANY_FROM:
            return await self._find(request, asked.key_type, asked.key)
        keys = self._services.slices.each(asked.coordinator_keys)
        coordinators = [{"key": key, **await self._find(request, asked.key_type, key)} async for key in keys]
        return {"coordinators": coordinators}

    async def _find(self, request: Request, key_type: int, key: str) -> Values:
        try:
            return await self._coordinator(request, key_type, key)
        except KafkaError as error:
            return {**_NOWHERE, "error_code": error.code, "error_message": error.message}

    async def _coordinator(self, request: Request, key_type: int, key: str) -> Values:
        if key_type == _TRANSACTION:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported yet")
        if key_type != GROUP_KEY:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the key type is neither group nor transaction")
        services = self._services
        if not services.allows_group(request, Operation.DESCRIBE, key):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, f"Describe is not allowed on '{shortened(key)}'")
        index = await services.groups.find_partition(key)
        if index is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet")
        partition = services.image.partition(OFFSETS_TOPIC, index)
        leader = -1 if partition is None else partition.leader
        if leader == services.broker_id and services.replicas.get(OFFSETS_TOPIC, index) is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC}-{index} is not served")
        endpoint = services.image.endpoint(leader, request.caller.listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC}-{index} has no leader")
        return {
            "node_id": leader,
            "host": endpoint.host,
            "port": endpoint.port,
            "error_code": ErrorCode.NONE,
            "error_message": ErrorCode.NONE.name if request.version < _MANY_FROM else "",
        }
