"""DeleteRecords, versions 0 to 2: the start of partitions moves up, and what lies before it is gone.

- All versions are alike.
- Answered when that is durable: no kill brings the records back. -1 stands for the high watermark; an offset before the
  start changes nothing. Segments that lie wholly before the start are removed by the next round of retention.
- A topic that is only compacted is POLICY_VIOLATION, an internal one INVALID_TOPIC_EXCEPTION, an offset beyond the high
  watermark OFFSET_OUT_OF_RANGE.
- Not here: the request's timeout, because nothing waits for other brokers.
"""

from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Offset, TopicPartition
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import DeleteRecordsPartition, DeleteRecordsRequest

_HIGH_WATERMARK: Final = -1
_NO_OFFSET: Final = -1


class DeleteRecordsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: DeleteRecordsRequest) -> Values:
        slices = self._services.slices
        wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
        async for topic in slices.each(asked.topics):
            wanted.setdefault(topic.name, {}).update({one.partition_index: one for one in topic.partitions})
        topics: list[Values] = []
        moved: dict[TopicPartition, dict[str, object]] = {}
        for name, ones in wanted.items():
            partitions = []
            async for one in slices.each(ones.values()):
                answer = self._delete(request, name, one)
                partitions.append(answer)
                if answer["error_code"] is ErrorCode.NONE:
                    moved[TopicPartition(name, one.partition_index)] = answer
            if partitions:
                topics.append({"name": name, "partitions": partitions})
        if moved:
            for partition, failure in (await self._services.log_starts.store(moved)).items():
                moved[partition] |= {"low_watermark": _NO_OFFSET, "error_code": refusal_of(failure).code}
        return {"topics": topics}

    def _delete(self, request: Request, topic: str, one: DeleteRecordsPartition) -> dict[str, object]:
        try:
            self._services.check_topic(request, Operation.DELETE, topic)
            start = self._move_start(topic, one.partition_index, one.offset)
        except BarnabasError as error:
            code = refusal_of(error).code
            return {"partition_index": one.partition_index, "low_watermark": _NO_OFFSET, "error_code": code}
        return {"partition_index": one.partition_index, "low_watermark": start, "error_code": ErrorCode.NONE}

    def _move_start(self, topic: str, index: int, offset: Offset) -> Offset:
        partition = self._services.replicas.find(topic, index)
        if partition.is_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        if partition.is_compacted_only:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted only: its records cannot be deleted")
        if offset < _HIGH_WATERMARK:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is negative")
        return partition.delete_records_before(offset)
