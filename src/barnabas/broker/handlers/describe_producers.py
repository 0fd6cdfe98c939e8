"""DescribeProducers, version 0: who writes to a partition, as far as its leader remembers.

- A partition that the request names more than once is described once.
- Not here: there are no transactions yet, but a log that Kafka wrote may have an open one, which is shown.
"""

from collections.abc import Iterable, Iterator

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import topic_name_problem
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.storage.producers.producer_state import ProducerState
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import DescribeProducersRequest

_NO_OFFSET = -1


class DescribeProducersHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: DescribeProducersRequest) -> Values:
        wanted: dict[str, dict[int, None]] = {}
        async for topic in self._services.slices.each(asked.topics):
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        topics = ({"name": name, "partitions": self._partitions(request, name, ones)} for name, ones in wanted.items())
        return {"topics": topics}

    def _partitions(self, request: Request, topic: str, indexes: Iterable[int]) -> Iterator[Values]:
        return (self._describe(request, topic, index) for index in indexes)

    def _describe(self, request: Request, topic: str, index: int) -> Values:
        try:
            self._services.check_topic(request, Operation.READ, topic)
            if (problem := topic_name_problem(topic)) is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
            partition = self._services.replicas.find(topic, index)
        except BarnabasError as error:
            code, message = refusal_of(error)
            return {"partition_index": index, "error_code": code, "error_message": message, "active_producers": []}
        return {
            "partition_index": index,
            "error_code": ErrorCode.NONE,
            "active_producers": map(_producer, partition.producers()),
        }


def _producer(state: ProducerState) -> Values:
    first_offset = state.transaction_first_offset
    return {
        "producer_id": state.producer_id,
        "producer_epoch": state.epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp": state.last_timestamp,
        "coordinator_epoch": state.coordinator_epoch,
        "current_txn_start_offset": _NO_OFFSET if first_offset is None else first_offset,
    }
