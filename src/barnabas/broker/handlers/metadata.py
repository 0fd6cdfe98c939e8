"""Metadata, versions 0 to 13: the brokers, and the topics that a client asks for by name, by id, or all.

- The answer has the controller, racks and what is internal from version 1, the cluster's id from 2, offline replicas
  from 5, leader epochs from 7, topic ids from 10, and an error of its own from 13.
- From version 4 a client may forbid that topics are made. From 8 it may ask what it may do to topics, and until 10 to
  the cluster.
- Brokers are told by the addresses of the listener that the request came in through. What is listed is served here, so
  that a client can use it at once.
- A broker that follows others waits for a moment when one of them has just died, so that its answer has the next
  leaders, and lists the dead one a little longer (`barnabas.replication.lost_leaders`).
- Not here: a topic that is made because it was asked for is not waited for; the client asks again.

| topics in the request | answer |
|---|---|
| null, in version 0 an empty list | all topics |
| an empty list | none |
| names | those; one that does not exist is UNKNOWN_TOPIC_OR_PARTITION, and made meanwhile if that is allowed \
(`__consumer_offsets` with its own settings) |
| ids, from version 12 | those; the others are UNKNOWN_TOPIC_ID |
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final
from uuid import UUID

from barnabas.base.ids import topic_name_problem
from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.audit import who
from barnabas.broker.authorizer import Operation
from barnabas.broker.auto_creation import AskedTopic
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.operations import NOT_TOLD, cluster_operations, topic_operations
from barnabas.broker.handlers.topic_views import BrokerAddress, PartitionViews, broker_addresses, controller_id
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.partitions import OFFSETS_TOPIC
from barnabas.metadata.image import INTERNAL_TOPICS, ClusterImage, Topic
from barnabas.wire.errors import ErrorCode
from barnabas.wire.request_views import MetadataRequest, MetadataRequestTopic

_ALL_BY_NULL_FROM: Final = 1
_BY_ID_FROM: Final = 12
_LOOK_SECONDS: Final = 0.002
"""A client often asks because its connection to a leader has broken. Those that this broker has to the same leader
break in the same moment, and are looked at first (`barnabas.replication.lost_leaders`)."""


class MetadataHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: MetadataRequest) -> Values:
        if self._services.replicas.lost_leaders is not None:
            await self._look_for_leaders(asked)
        answer = _Answer(self._services, request, asked)
        if asked.topics is None or (not asked.topics and request.version < _ALL_BY_NULL_FROM):
            return answer.values(answer.all())
        names: dict[str | None, None] = {}
        ids: dict[UUID, None] = {}
        async for one in self._services.slices.each(asked.topics):
            if one.topic_id is None:
                names[one.name] = None
            else:
                ids[one.topic_id] = None
        # Ids stand for names from version 12 on; before, the request has to name every topic and give no id.
        if ids and request.version >= _BY_ID_FROM:
            return answer.values(answer.of_ids(ids))
        if ids or None in names:
            return _refused(asked.topics)
        return answer.values(answer.of_names([name for name in names if name is not None]))

    async def _look_for_leaders(self, asked: MetadataRequest) -> None:
        """Waits for the next leaders of topics that are asked for, where one has just died."""
        await asyncio.sleep(_LOOK_SECONDS)
        replicas = self._services.replicas
        lost = replicas.lost_leaders
        seconds = 0.0 if lost is None else lost.moment_seconds
        if not asked.topics or lost is None or seconds <= 0:
            return
        names = [one.name for one in asked.topics if one.name is not None]
        ids = [one.topic_id for one in asked.topics if one.topic_id is not None]

        def are_led(image: ClusterImage) -> bool:
            topics = (*map(image.topics.get, names), *map(image.topic_by_id, ids))
            leaders = {one.leader for topic in topics if topic is not None for one in topic.partitions}
            return all(leader in image.brokers and leader not in lost for leader in leaders)

        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await replicas.wait_for(are_led)


def _refused(wanted: Iterable[MetadataRequestTopic]) -> Values:
    topics: Iterator[Values] = (
        {
            "error_code": ErrorCode.INVALID_REQUEST,
            "name": one.name or "",
            "topic_id": one.topic_id,
            "partitions": [],
        }
        for one in wanted
    )
    return {"brokers": [], "topics": topics, "error_code": ErrorCode.INVALID_REQUEST}


class _Answer:
    """One answer in the making."""

    def __init__(self, services: Services, request: Request, asked: MetadataRequest) -> None:
        self._services = services
        self._request = request
        self._image = services.image
        self._views = PartitionViews(services, request.caller.listener)
        self._may_create = asked.allow_auto_topic_creation
        self._tells_operations = asked.include_topic_authorized_operations
        self._tells_cluster_operations = asked.include_cluster_authorized_operations

    def all(self) -> Iterator[Values]:
        for topic in self._image.topics.values():
            if self._services.allows_topic(self._request, Operation.DESCRIBE, topic.name):
                yield self._view(topic)

    def of_ids(self, topic_ids: Iterable[UUID]) -> Iterator[Values]:
        for topic_id in topic_ids:
            topic = self._image.topics_by_id.get(topic_id)
            if topic is None:
                yield self._error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
            elif not self._services.allows_topic(self._request, Operation.DESCRIBE, topic.name):
                # Without the name: a client that has only the id must not learn it.
                yield self._error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
            else:
                yield self._view(topic)

    def of_names(self, names: Iterable[str]) -> Iterator[Values]:
        for name in names:
            topic = self._image.topics.get(name)
            if not self._services.allows_topic(self._request, Operation.DESCRIBE, name):
                yield self._error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
            elif topic is not None:
                yield self._view(topic)
            elif topic_name_problem(name) is not None:
                yield self._error(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
            else:
                yield self._error(self._missing(name), name)

    def _missing(self, name: str) -> ErrorCode:
        """Begins to make the topic, if that may be."""
        config = self._services.settings.config
        if not (config.auto_create_topics_enable and self._may_create):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        may_create_all = self._services.allows_cluster(self._request, Operation.CREATE)
        if not (may_create_all or self._services.allows_topic(self._request, Operation.CREATE, name)):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if name == OFFSETS_TOPIC:
            self._services.groups.want_topic()
        else:
            counts = (config.num_partitions, config.default_replication_factor)
            self._services.auto_creation.begin(self._image, AskedTopic(name, *counts, who(self._request)))
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _view(self, topic: Topic) -> Values:
        return {
            "error_code": ErrorCode.NONE,
            "name": topic.name,
            "topic_id": topic.id,
            "is_internal": topic.is_internal,
            "partitions": self._views.of(topic, topic.partitions),
            "topic_authorized_operations": self._operations(topic.name),
        }

    def _error(self, code: ErrorCode, name: str | None, topic_id: UUID = ZERO_UUID) -> Values:
        return {
            "error_code": code,
            "name": name,
            "topic_id": topic_id,
            "is_internal": name in INTERNAL_TOPICS,
            "partitions": [],
            "topic_authorized_operations": NOT_TOLD if name is None else self._operations(name),
        }

    def _operations(self, name: str) -> int:
        return topic_operations(self._services, self._request, name) if self._tells_operations else NOT_TOLD

    def _broker_addresses(self) -> Iterator[BrokerAddress]:
        listener = self._request.caller.listener
        yield from broker_addresses(self._services, listener)
        lost = self._services.replicas.lost_leaders
        for broker in () if lost is None else lost.still_listed():
            endpoint = broker.endpoint(listener)
            if endpoint is not None:
                yield BrokerAddress(broker.id, endpoint, broker.rack)

    def values(self, topics: Iterator[Values]) -> Values:
        operations = NOT_TOLD
        if self._tells_cluster_operations:
            operations = cluster_operations(self._services, self._request)
        return {
            "brokers": [
                {"node_id": one.id, "host": one.endpoint.host, "port": one.endpoint.port, "rack": one.rack}
                for one in self._broker_addresses()
            ],
            "cluster_id": self._services.cluster_id,
            "controller_id": controller_id(self._services),
            "topics": topics,
            "cluster_authorized_operations": operations,
        }
