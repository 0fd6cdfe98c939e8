"""OffsetForLeaderEpoch, versions 2 to 4: where an epoch ended, so that a consumer notices when its history was cut.

- The answer is the largest epoch not above the one asked for, and the offset at which the next one began, or the log's
  end; -1 and -1 for an epoch that nobody knows.
- Not here: who asks makes no difference (the replica id of version 3).
"""

from collections.abc import Iterable, Iterator

from barnabas.base.errors import BarnabasError
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode
from barnabas.wire.request_views import OffsetForLeaderEpochRequest, OffsetForLeaderPartition


class OffsetForLeaderEpochHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: OffsetForLeaderEpochRequest) -> Values:
        topics = (
            {"topic": topic.topic, "partitions": self._ends(request, topic.topic, topic.partitions)}
            for topic in asked.topics
        )
        return {"topics": topics}

    def _ends(self, request: Request, topic: str, partitions: Iterable[OffsetForLeaderPartition]) -> Iterator[Values]:
        return (self._end(request, topic, one) for one in partitions)

    def _end(self, request: Request, topic: str, one: OffsetForLeaderPartition) -> Values:
        try:
            self._services.check_topic(request, Operation.DESCRIBE, topic)
            partition = self._services.replicas.find(topic, one.partition)
            partition.check_leader_epoch(one.current_leader_epoch)
        except BarnabasError as error:
            return {"partition": one.partition, "error_code": refusal_of(error).code}
        end = partition.end_of_epoch(one.leader_epoch)
        return {
            "partition": one.partition,
            "error_code": ErrorCode.NONE,
            "leader_epoch": end.epoch,
            "end_offset": end.end_offset,
        }
