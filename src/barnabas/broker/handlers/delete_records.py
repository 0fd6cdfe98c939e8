"""DeleteRecords, versions 0 to 2: the start of partitions moves up, and what lies before it is gone.

- All versions are alike.
- Answered when that is durable: no kill brings the records back. -1 stands for the high watermark; an offset before the
  start changes nothing. Segments that lie wholly before the start are removed by the next round of retention.
- A topic that is only compacted is POLICY_VIOLATION, an internal one INVALID_TOPIC_EXCEPTION, an offset beyond the high
  watermark OFFSET_OUT_OF_RANGE.
- It waits until every in-sync replica has deleted them, too; after the request's timeout it is REQUEST_TIMED_OUT.
"""

import asyncio
from collections.abc import Mapping
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
        starts: dict[TopicPartition, Offset] = {}
        for name, ones in wanted.items():
            partitions = []
            async for one in slices.each(ones.values()):
                partition = TopicPartition(name, one.partition_index)
                try:
                    start = starts[partition] = self._delete(request, name, one)
                except BarnabasError as error:
                    partitions.append(_answer(one.partition_index, error_code=refusal_of(error).code))
                else:
                    moved[partition] = _answer(one.partition_index, start)
                    partitions.append(moved[partition])
            if partitions:
                topics.append({"name": name, "partitions": partitions})
        if moved:
            failures = await self._services.log_starts.store(moved)
            left = {name: start for name, start in starts.items() if name not in failures}
            failures |= await self._wait_for_replicas(left, asked.timeout_ms / 1000)
            for partition, failure in failures.items():
                moved[partition] |= {"low_watermark": _NO_OFFSET, "error_code": refusal_of(failure).code}
        return {"topics": topics}

    async def _wait_for_replicas(
        self, starts: Mapping[TopicPartition, Offset], seconds: float
    ) -> dict[TopicPartition, BarnabasError]:
        failures: dict[TopicPartition, BarnabasError] = {}
        ends = self._services.loop.time() + seconds
        for name, offset in starts.items():
            try:
                async with asyncio.timeout_at(ends):
                    await self._services.replicas.find(*name).wait_for_start(offset)
            except TimeoutError:
                message = f"{name}: not every in-sync replica has deleted the records in time"
                failures[name] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
            except BarnabasError as error:
                failures[name] = error
        return failures

    def _delete(self, request: Request, topic: str, one: DeleteRecordsPartition) -> Offset:
        """Where the log starts now."""
        self._services.check_topic(request, Operation.DELETE, topic)
        return self._move_start(topic, one.partition_index, one.offset)

    def _move_start(self, topic: str, index: int, offset: Offset) -> Offset:
        partition = self._services.replicas.find(topic, index)
        if partition.is_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        if partition.is_compacted_only:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted only: its records cannot be deleted")
        if offset < _HIGH_WATERMARK:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is negative")
        return partition.delete_records_before(offset)


def _answer(index: int, start: Offset = _NO_OFFSET, error_code: ErrorCode = ErrorCode.NONE) -> dict[str, object]:
    return {"partition_index": index, "low_watermark": start, "error_code": error_code}
