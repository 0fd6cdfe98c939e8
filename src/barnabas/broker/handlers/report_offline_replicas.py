"""ReportOfflineReplicas, version 0: the replicas of a broker whose log directories have failed. Our own.

- Answered when others lead what the broker led there, where somebody can, and the controller's image says so.
- STALE_BROKER_EPOCH for a broker that has another registration than the one it names.
- What could not be written, because it had changed meanwhile, is missing in the image: the broker reports it again.
"""

from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import ReportOfflineReplicasRequest


class ReportOfflineReplicasHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: ReportOfflineReplicasRequest) -> Values:
        services = self._services
        replicas = [
            (topic.topic_id or ZERO_UUID, index)
            async for topic in services.slices.each(asked.topics)
            for index in topic.partitions
        ]
        try:
            services.check_cluster(request, Operation.CLUSTER_ACTION)
            await services.controller.take_offline(asked.broker_id, asked.broker_epoch, replicas)
        except KafkaError as error:
            return {"error_code": error.code}
        return {"error_code": ErrorCode.NONE}
