"""AlterPartitionReassignments, versions 0 and 1: partitions get further replicas, by the controller.

- From version 1 the request may forbid changes of the replication factor: then nothing can be added.
- The replicas asked for are all that the partition should have, in the order of preference. Answered when the new
  assignment is known here; ListPartitionReassignments tells who has not joined yet.
- What a request names twice is answered once, by the last.
- Not here: taking replicas away, and cancelling an addition. Both are refused with INVALID_REPLICA_ASSIGNMENT.
"""

from collections.abc import Iterator, Mapping, Sequence

from barnabas.base.errors import BarnabasError
from barnabas.broker.audit import log_change, partitions_text
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.controller.placement import Replicas
from barnabas.metadata.image import ClusterImage
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import AlterPartitionReassignmentsRequest

_Asked = dict[int, Sequence[int] | None]


class AlterPartitionReassignmentsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: AlterPartitionReassignmentsRequest) -> Values:
        may_grow = asked.allow_replication_factor_change
        try:
            self._services.check_cluster(request, Operation.ALTER)
        except KafkaError as error:
            return {"error_code": error.code, "error_message": error.message, "responses": []}
        slices = self._services.slices
        wanted: dict[str, _Asked] = {}
        async for topic in slices.each(asked.topics):
            partitions = wanted.setdefault(topic.name, {})
            async for one in slices.each(topic.partitions):
                partitions[one.partition_index] = one.replicas
        responses = []
        async for name, partitions in slices.each(wanted.items()):
            refusals = await self._reassign(request, name, partitions, asked.timeout_ms, may_grow=may_grow)
            responses.append({"name": name, "partitions": _answers(partitions, refusals)})
        return {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "allow_replication_factor_change": may_grow,
            "responses": responses,
        }

    async def _reassign(
        self, request: Request, name: str, partitions: _Asked, timeout_ms: int, *, may_grow: bool
    ) -> Mapping[int, BarnabasError]:
        """Why partitions were refused."""
        try:
            done, refusals = await self._services.controller.additions.add(name, partitions, may_grow=may_grow)
        except BarnabasError as error:
            return dict.fromkeys(partitions, error)
        if done:
            text = partitions_text(len(done))
            log_change(request, "assigned replicas of topic '%s': %s", name, text, topic=name, partitions=len(done))
            await self._services.until_served(lambda image: _are_known(image, name, done), timeout_ms)
        return refusals


def _are_known(image: ClusterImage, name: str, assigned: Mapping[int, Replicas]) -> bool:
    """Also when the topic is gone, or has still other replicas."""
    found = ((image.partition(name, index), replicas) for index, replicas in assigned.items())
    return all(one is None or set(one.replicas) >= set(replicas) for one, replicas in found)


def _answers(partitions: _Asked, refusals: Mapping[int, BarnabasError]) -> Iterator[Values]:
    for index in partitions:
        refused = refusals.get(index)
        code, message = (ErrorCode.NONE, None) if refused is None else refusal_of(refused)
        yield {"partition_index": index, "error_code": code, "error_message": message}
