"""FindCoordinator, versions 0 to 6: there is none yet, and this says so in the way that clients take best.

| key | answer |
|---|---|
| a consumer group | COORDINATOR_NOT_AVAILABLE: a consumer that assigns its partitions itself is not disturbed |
| a transaction | TRANSACTIONAL_ID_AUTHORIZATION_FAILED: a producer stops at once |
| anything else | INVALID_REQUEST |

It is served before there are coordinators because librdkafka compresses with lz4 only where the broker has this API,
and otherwise sends the records plain, without a word.
"""

from typing import Final

from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import decode_request

_GROUP: Final = 0
_TRANSACTION: Final = 1
_MANY_FROM: Final = 4
_REFUSALS: Final = {
    _GROUP: (ErrorCode.COORDINATOR_NOT_AVAILABLE, "consumer groups are not supported yet"),
    _TRANSACTION: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported yet"),
}
_UNKNOWN_KEY: Final = (ErrorCode.INVALID_REQUEST, "the key is neither a group's nor a transaction's")
_NOWHERE: Final = {"node_id": -1, "host": "", "port": -1}


class FindCoordinatorHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request) -> Values:
        asked = decode_request(ApiKey.FIND_COORDINATOR, request.version, request.body)
        code, message = _REFUSALS.get(getattr(asked, "key_type", _GROUP), _UNKNOWN_KEY)
        refusal = {**_NOWHERE, "error_code": code, "error_message": message}
        if request.version < _MANY_FROM:
            return {"throttle_time_ms": request.throttle_ms, **refusal}
        coordinators = [{"key": key, **refusal} for key in asked.coordinator_keys]
        return {"throttle_time_ms": request.throttle_ms, "coordinators": coordinators}
