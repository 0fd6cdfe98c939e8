"""ListOffsets, versions 1 to 11: the ends of partitions, and the offset for a time. `offset_lookup` has the rules.

- From version 2 a client says whether it reads committed records only; from 4 which leader epoch it knows, and the
  answer has the epoch of what was found. Versions 7, 8, 9 and 11 have one more special timestamp each.
- A partition that the request has twice is INVALID_REQUEST.
- Other brokers, and the debugging consumer (replica -2), see up to the end of the log instead of the high watermark.
- A new leader does not tell the end, nor that a time is past it, before everything that an earlier leader may have
  shown is committed again (KIP-207): OFFSET_NOT_AVAILABLE, and LEADER_NOT_AVAILABLE before version 5.
- Not here: the timeout of version 10, which is for tiered storage.
"""

from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.offset_lookup import LATEST, NO_OFFSET, LookupWorkers, check_timestamp, find_offset
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import ListOffsetsPartition, ListOffsetsRequest

_READ_COMMITTED: Final = 1
_CONSUMER: Final = -1
_NOT_AVAILABLE_FROM: Final = 5


class ListOffsetsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._workers = LookupWorkers(services.workers)

    async def __call__(self, request: Request, asked: ListOffsetsRequest) -> Values:
        slices = self._services.slices
        wanted: dict[str, dict[int, list[ListOffsetsPartition]]] = {}
        async for topic in slices.each(asked.topics):
            ones = wanted.setdefault(topic.name, {})
            for one in topic.partitions:
                ones.setdefault(one.partition_index, []).append(one)
        topics = []
        for name, ones in wanted.items():
            partitions = [
                await self._look_up(request, asked, name, same[-1], is_twice=len(same) > 1)
                async for same in slices.each(ones.values())
            ]
            if partitions:
                topics.append({"name": name, "partitions": partitions})
        return {"topics": topics}

    async def _look_up(
        self, request: Request, asked: ListOffsetsRequest, topic: str, one: ListOffsetsPartition, *, is_twice: bool
    ) -> Values:
        try:
            if is_twice:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request has this partition twice")
            self._services.check_topic(request, Operation.DESCRIBE, topic)
            check_timestamp(one.timestamp, request.version)
            partition = self._services.replicas.find(topic, one.partition_index)
            partition.check_leader_epoch(one.current_leader_epoch)
            if asked.replica_id != _CONSUMER:
                upper = partition.end_offset
            elif asked.isolation_level == _READ_COMMITTED:
                upper = partition.last_stable_offset
            else:
                upper = partition.high_watermark
            found = await find_offset(partition, one.timestamp, upper, self._workers)
            is_at_end = one.timestamp == LATEST or found.offset == NO_OFFSET
            if is_at_end and not partition.is_settled and asked.replica_id == _CONSUMER:
                is_old = request.version < _NOT_AVAILABLE_FROM
                raise KafkaError(
                    ErrorCode.LEADER_NOT_AVAILABLE if is_old else ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"the new leader of {topic}-{one.partition_index} does not know yet how far it is committed",
                )
        except BarnabasError as error:
            return {"partition_index": one.partition_index, "error_code": refusal_of(error).code}
        return {
            "partition_index": one.partition_index,
            "error_code": ErrorCode.NONE,
            "timestamp": found.timestamp,
            "offset": found.offset,
            "leader_epoch": found.leader_epoch,
        }
