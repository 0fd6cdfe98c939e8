"""ElectLeaders, versions 0 to 2: other replicas lead partitions, by the controller.

- From version 1 the request says which election: preferred replicas lead again (the only kind before), or, where nobody
  leads, any replica does, though it may lack acknowledged records.
- Without partitions it is about all of them, and those that need no election are not told; their topics are.
- Answered when the new leaders are known here, in the order of the request; what it names twice is answered once.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.broker.audit import log_change, partitions_text
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.controller.alterations import AlteredPartition
from barnabas.controller.elections import Choice
from barnabas.controller.in_sync import led_by_anybody, led_by_preferred
from barnabas.metadata.image import ClusterImage
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import ElectLeadersRequest

_CHOICES: Final[dict[int, Choice]] = {0: led_by_preferred, 1: led_by_anybody}
"""By election type."""
_MESSAGES: Final = {
    ErrorCode.ELECTION_NOT_NEEDED: "the partition has the leader that it should have",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica is not in sync, or not registered",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica is registered that could lead",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the partition does not exist",
    ErrorCode.INVALID_UPDATE_VERSION: "the partition was changed at the same time: try again",
}


class ElectLeadersHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: ElectLeadersRequest) -> Values:
        services = self._services
        try:
            services.check_cluster(request, Operation.ALTER)
            answers = await self._elect(request, asked)
        except KafkaError as error:
            return {"error_code": error.code, "replica_election_results": []}
        left_out = ErrorCode.ELECTION_NOT_NEEDED if asked.topic_partitions is None else None
        return {"error_code": ErrorCode.NONE, "replica_election_results": _topics(answers, left_out)}

    async def _elect(
        self, request: Request, asked: ElectLeadersRequest
    ) -> list[tuple[TopicPartition, AlteredPartition]]:
        services = self._services
        choice = _CHOICES.get(asked.election_type)
        if choice is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no election type {asked.election_type}")
        answers = await services.controller.elect_leaders(await self._partitions(asked), choice)
        elected = [(name, one.partition) for name, one in answers if one.partition is not None]
        if elected:
            count = partitions_text(len(elected))
            log_change(request, "elected leaders of %s", count, partitions=len(elected))
            epochs = {name: one.leader_epoch for name, one in elected}
            await services.until_served(lambda image: _are_known(image, epochs), asked.timeout_ms)
        return answers

    async def _partitions(self, asked: ElectLeadersRequest) -> Iterable[TopicPartition]:
        image = self._services.image
        if asked.topic_partitions is None:
            return (
                TopicPartition(topic.name, one.index) for topic in image.topics.values() for one in topic.partitions
            )
        wanted: dict[TopicPartition, None] = {}
        async for topic in self._services.slices.each(asked.topic_partitions):
            wanted.update(dict.fromkeys(TopicPartition(topic.topic, index) for index in topic.partitions))
        return wanted


def _are_known(image: ClusterImage, epochs: dict[TopicPartition, int]) -> bool:
    found = ((image.partition(*name), epoch) for name, epoch in epochs.items())
    return all(one is None or one.leader_epoch >= epoch for one, epoch in found)


def _topics(answers: Iterable[tuple[TopicPartition, AlteredPartition]], left_out: ErrorCode | None) -> Iterator[Values]:
    for topic, partitions in groupby(answers, key=lambda answer: answer[0].topic):
        codes = [(name, one.error_code) for name, one in partitions if one.error_code is not left_out]
        yield {"topic": topic, "partition_result": [_partition(name, code) for name, code in codes]}


def _partition(name: TopicPartition, code: ErrorCode) -> Values:
    return {"partition_id": name.partition, "error_code": code, "error_message": _MESSAGES.get(code)}
