"""BrokerHeartbeat, version 1: a broker that is about to stop asks the controller to have others lead its partitions.

- Answered when they do and the controller's image says so: then the broker may stop.
- STALE_BROKER_EPOCH for a broker that has another registration than the one it names.
- Not here: heartbeats. A broker is alive as long as its session with ZooKeeper is.
"""

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import BrokerHeartbeatRequest


class BrokerHeartbeatHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: BrokerHeartbeatRequest) -> Values:
        try:
            self._services.check_cluster(request, Operation.CLUSTER_ACTION)
            if not asked.want_shut_down:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "brokers say here only that they want to stop")
            await self._services.controller.let_stop(asked.broker_id, asked.broker_epoch)
        except KafkaError as error:
            return {"error_code": error.code, "is_caught_up": False, "is_fenced": False, "should_shut_down": False}
        return {"error_code": ErrorCode.NONE, "is_caught_up": True, "is_fenced": False, "should_shut_down": True}
