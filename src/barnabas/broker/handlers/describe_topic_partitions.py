"""DescribeTopicPartitions, version 0: topics by name in their order, a page at a time.

- A page ends after as many partitions as the client asks for, or `max.request.partition.size.limit`, at least one; the
  cursor in the answer says where the next page begins. Without names all topics are described.
- A cursor before the first topic asked for, or at a negative partition, is INVALID_REQUEST.
- Eligible leader replicas (KIP-966) are told; the last known ones, which we do not keep, are never any.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final
from uuid import UUID

from barnabas.base.ids import topic_name_problem
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.operations import topic_operations
from barnabas.broker.handlers.topic_views import PartitionViews
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.broker.slices import Slices
from barnabas.metadata.image import INTERNAL_TOPICS
from barnabas.wire.errors import ErrorCode
from barnabas.wire.request_views import DescribeTopicPartitionsRequest

_SORTED_TOGETHER: Final = 1000


class DescribeTopicPartitionsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: DescribeTopicPartitionsRequest) -> Values:
        named = [one.name for one in asked.topics]
        cursor = asked.cursor
        if cursor is not None and (cursor.partition_index < 0 or (named and cursor.topic_name not in named)):
            return _refused(named)
        slices = self._services.slices
        names = await _sorted(slices, set(named) if named else self._visible(request))
        page = _Page(self._services, request, self._limit(asked.response_partition_limit))
        async for name in slices.each(names):
            first_partition = 0
            if cursor is not None:
                if name < cursor.topic_name:
                    continue
                if name == cursor.topic_name:
                    first_partition = cursor.partition_index
            if not page.add(name, first_partition):
                break
        return page.values()

    def _visible(self, request: Request) -> set[str]:
        topics = self._services.image.topics
        return {name for name in topics if self._services.allows_topic(request, Operation.DESCRIBE, name)}

    def _limit(self, asked: int) -> int:
        return max(1, min(asked, self._services.settings.config.max_request_partition_size_limit))


async def _sorted(slices: Slices, names: Collection[str]) -> Iterator[str]:
    """In order, without sorting all of them at once."""
    runs: list[list[str]] = []
    unsorted = iter(names)
    async for _ in slices.each(range(0, len(names), _SORTED_TOGETHER)):
        runs.append(sorted(islice(unsorted, _SORTED_TOGETHER)))
    return merge(*runs)


class _Page:
    def __init__(self, services: Services, request: Request, partitions_max: int) -> None:
        self._services = services
        self._request = request
        self._views = PartitionViews(services, request.caller.listener)
        self._left = partitions_max
        self._topics: list[Values] = []
        self._cursor: Values | None = None

    def add(self, name: str, first_partition: int) -> bool:
        """Adds what fits of a topic; whether the next one may follow."""
        if not self._services.allows_topic(self._request, Operation.DESCRIBE, name):
            self._add(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return True
        topic = self._services.image.topics.get(name)
        if topic is None:
            is_bad = topic_name_problem(name) is not None
            self._add(name, ErrorCode.INVALID_TOPIC_EXCEPTION if is_bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return True
        if not self._left:
            self._cursor = {"topic_name": name, "partition_index": first_partition}
            return False
        shown = topic.partitions[first_partition : first_partition + self._left]
        self._add(name, ErrorCode.NONE, topic.id, self._views.of(topic, shown))
        self._left -= len(shown)
        if first_partition + len(shown) < len(topic.partitions):
            self._cursor = {"topic_name": name, "partition_index": first_partition + len(shown)}
            return False
        return True

    def _add(self, name: str, code: ErrorCode, topic_id: UUID | None = None, partitions: Iterable[Values] = ()) -> None:
        self._topics.append(
            {
                "error_code": code,
                "name": name,
                "topic_id": topic_id,
                "is_internal": name in INTERNAL_TOPICS,
                "partitions": partitions,
                "topic_authorized_operations": topic_operations(self._services, self._request, name),
            }
        )

    def values(self) -> Values:
        return {"topics": self._topics, "next_cursor": self._cursor}


def _refused(names: Sequence[str]) -> Values:
    topics = ({"error_code": ErrorCode.INVALID_REQUEST, "name": name, "partitions": []} for name in names)
    return {"topics": topics, "next_cursor": None}
