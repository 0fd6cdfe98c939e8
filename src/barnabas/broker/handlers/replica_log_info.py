"""ReplicaLogInfo, version 0: where the logs of partitions end here, told to the controller. Our own.

- The answer names this broker's registration: in another one the logs may be shorter.
- A partition without a log, or with one that cannot be used, is answered with an error: nobody knows where it ends.
"""

from collections.abc import Iterator, Sequence
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_EPOCH, TopicPartition
from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import ReplicaLogInfoRequest


class ReplicaLogInfoHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: ReplicaLogInfoRequest) -> Values:
        services = self._services
        if not services.allows_cluster(request, Operation.CLUSTER_ACTION):
            return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "broker_epoch": -1, "topics": []}
        topics = [
            {"topic_id": topic.topic_id, "partitions": list(self._ends(topic.topic_id or ZERO_UUID, topic.partitions))}
            async for topic in services.slices.each(asked.topics)
        ]
        return {"error_code": ErrorCode.NONE, "broker_epoch": services.seat.broker_epoch, "topics": topics}

    def _ends(self, topic_id: UUID, partitions: Sequence[int]) -> Iterator[Values]:
        topic = self._services.image.topic_by_id(topic_id)
        for index in partitions:
            try:
                log = None if topic is None else self._services.logs.get(TopicPartition(topic.name, index), topic_id)
                if log is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no log of it here")
            except BarnabasError as error:
                yield {"partition_index": index, "error_code": refusal_of(error).code}
            else:
                last_epoch = log.epochs.epoch_for_offset(log.end_offset - 1)
                yield {
                    "partition_index": index,
                    "error_code": ErrorCode.NONE,
                    "last_epoch": NO_EPOCH if last_epoch is None else last_epoch,
                    "end_offset": log.end_offset,
                }
