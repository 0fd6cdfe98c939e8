"""ConsumerGroupHeartbeat, versions 0 and 1: the newer protocol of consumer groups (KIP-848) does not exist here.

- The answer is the same in both versions: UNSUPPORTED_VERSION, as from a Kafka in which the protocol is turned off.
- The API is served for this answer alone: a client with `group.protocol=consumer` ends at once and says why, where one
  that finds no such API (librdkafka) waits without a word.
"""

from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode
from barnabas.wire.request_views import ConsumerGroupHeartbeatRequest


class ConsumerGroupHeartbeatHandler:
    def __init__(self, services: Services) -> None: ...

    async def __call__(self, request: Request, asked: ConsumerGroupHeartbeatRequest) -> Values:
        return {
            "error_code": ErrorCode.UNSUPPORTED_VERSION,
            "error_message": "the consumer group protocol of KIP-848 is not supported: set group.protocol=classic",
        }
