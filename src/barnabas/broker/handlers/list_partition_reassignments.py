"""ListPartitionReassignments, version 0: the partitions to which replicas are being added.

- An addition is told until all of its replicas are in sync together; the partition has them as its replicas meanwhile.
- Partitions with nothing to report are left out, also those that do not exist. A request without topics means all.
"""

from collections.abc import Iterable, Iterator

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.metadata.image import Partition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import ListPartitionReassignmentsRequest


class ListPartitionReassignmentsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: ListPartitionReassignmentsRequest) -> Values:
        try:
            self._services.check_cluster(request, Operation.DESCRIBE)
        except KafkaError as error:
            return {"error_code": error.code, "error_message": error.message, "topics": []}
        image, slices = self._services.image, self._services.slices
        wanted: dict[str, dict[int, None]] = {}
        if asked.topics is None:
            wanted = {name: {} for name in image.topics}
        else:
            async for topic in slices.each(asked.topics):
                wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        topics = []
        async for name, indexes in slices.each(wanted.items()):
            known = image.topics.get(name)
            if known is None:
                continue
            chosen: Iterable[Partition | None] = (
                known.partitions if asked.topics is None else map(known.partition, indexes)
            )
            if partitions := list(_changing(chosen)):
                topics.append({"name": name, "partitions": partitions})
        return {"error_code": ErrorCode.NONE, "error_message": None, "topics": topics}


def _changing(partitions: Iterable[Partition | None]) -> Iterator[Values]:
    for one in partitions:
        if one is not None and (one.adding or one.removing):
            yield {
                "partition_index": one.index,
                "replicas": one.replicas,
                "adding_replicas": one.adding,
                "removing_replicas": one.removing,
            }
