"""ListOffsets, versions 1 to 11: the ends of partitions, and the offset for a time. `offset_lookup` has the rules.

From version 4 a client says which leader epoch it knows. A partition that the request has twice is INVALID_REQUEST.
Other brokers, and the debugging consumer (replica -2), see up to the end of the log instead of the high watermark.
"""

from typing import Any, Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_EPOCH
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.offset_lookup import LookupWorkers, check_timestamp, find_offset
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError

_READ_COMMITTED: Final = 1
_CONSUMER: Final = -1


class ListOffsetsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._workers = LookupWorkers(services.workers)

    async def __call__(self, request: Request, asked: Any) -> Values:
        slices = self._services.slices
        wanted: dict[str, dict[int, list[Any]]] = {}
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
        return {"throttle_time_ms": request.throttle_ms, "topics": topics}

    async def _look_up(self, request: Request, asked: Any, topic: str, one: Any, *, is_twice: bool) -> Values:
        try:
            if is_twice:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request has this partition twice")
            self._services.check_topic(request, Operation.DESCRIBE, topic)
            check_timestamp(one.timestamp, request.version)
            partition = self._services.replicas.find(topic, one.partition_index)
            partition.check_leader_epoch(getattr(one, "current_leader_epoch", NO_EPOCH))
            if asked.replica_id != _CONSUMER:
                upper = partition.end_offset
            elif getattr(asked, "isolation_level", 0) == _READ_COMMITTED:
                upper = partition.last_stable_offset
            else:
                upper = partition.high_watermark
            found = await find_offset(partition, one.timestamp, upper, self._workers)
        except BarnabasError as error:
            return {"partition_index": one.partition_index, "error_code": refusal_of(error).code}
        return {
            "partition_index": one.partition_index,
            "error_code": ErrorCode.NONE,
            "timestamp": found.timestamp,
            "offset": found.offset,
            "leader_epoch": found.leader_epoch,
        }
