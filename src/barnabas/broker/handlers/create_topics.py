"""CreateTopics, versions 2 to 7: new topics, each made or refused alone, and answered when it can be used here.

- From version 5 the answer has the numbers of partitions and replicas and the topic's settings, from 7 the topic's id.
- -1 partitions or replicas mean the broker's defaults, in every version. A manual assignment stands instead of both,
  which must then be -1.
- A name that comes twice in a request is refused, as in Kafka, and a request for more than ten thousand partitions as a
  whole. Validate-only does everything but write.
- Not here: policies of the operator's own (`create.topic.policy.class.name`).
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import topic_name_problem
from barnabas.base.texts import shortened
from barnabas.broker.audit import log_change, partitions_text
from barnabas.broker.authorizer import Operation
from barnabas.broker.config_views import topic_entries
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.config_resources import check_count
from barnabas.broker.handlers.deadlines import TIMED_OUT
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.internal_topics import check_internal_config, internal_defaults
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.controller.placement import PARTITIONS_TOGETHER_MAX
from barnabas.controller.topics import TopicPlan, alike_name
from barnabas.storage.directories.directory import CLUSTER_METADATA
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import CreatableTopic, CreateTopicsRequest

_DEFAULT: Final = -1
_TOGETHER_MAX: Final = 32
"""Topics that are created at a time: they share one commit of the metadata."""


class CreateTopicsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: CreateTopicsRequest) -> Values:
        timeout_ms = asked.timeout_ms
        if timeout_ms <= 0:
            return {"topics": ({"name": topic.name, **TIMED_OUT, "configs": []} for topic in asked.topics)}
        once, twice = await self._distinct(asked.topics)
        is_too_much = await self._sum(once) > PARTITIONS_TOGETHER_MAX
        topics: list[Values] = []
        for together in _groups(once):
            creations = [
                self._create(request, topic, timeout_ms, is_too_much=is_too_much, validate_only=asked.validate_only)
                for topic in together
            ]
            topics += await asyncio.gather(*creations)
        duplicate = KafkaError(ErrorCode.INVALID_REQUEST, "the request has this topic twice")
        topics += [_refused(name, duplicate) for name in twice]
        return {"topics": topics}

    async def _distinct(self, topics: Iterable[CreatableTopic]) -> tuple[list[CreatableTopic], list[str]]:
        """The topics that are named once, and the names of the others."""
        once: dict[str, CreatableTopic] = {}
        twice: dict[str, None] = {}
        async for topic in self._services.slices.each(topics):
            if topic.name in once or topic.name in twice:
                once.pop(topic.name, None)
                twice[topic.name] = None
            else:
                once[topic.name] = topic
        return list(once.values()), list(twice)

    async def _sum(self, topics: Iterable[CreatableTopic]) -> int:
        """The partitions of all of them."""
        total = 0
        async for topic in self._services.slices.each(topics):
            total += self._partition_count(topic)
        return total

    async def _create(
        self, request: Request, topic: CreatableTopic, timeout_ms: int, *, is_too_much: bool, validate_only: bool
    ) -> Values:
        try:
            if is_too_much:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"a request can create at most {PARTITIONS_TOGETHER_MAX} partitions, and this one asks for more",
                )
            plan = self._plan(request, topic)
            if not validate_only:
                await self._write(request, plan, timeout_ms)
        except BarnabasError as error:
            return _refused(topic.name, error)
        return self._created(plan)

    def _partition_count(self, topic: CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        if topic.num_partitions == _DEFAULT:
            return self._services.settings.config.num_partitions
        return max(0, topic.num_partitions)

    def _plan(self, request: Request, topic: CreatableTopic) -> TopicPlan:
        services = self._services
        if not services.allows_cluster(request, Operation.CREATE):
            services.check_topic(request, Operation.CREATE, topic.name)
        if topic.name == CLUSTER_METADATA.topic:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic '{topic.name}' cannot be created by clients")
        image = services.image
        configs: dict[str, str] = {}
        if topic_name_problem(topic.name) is None and topic.name not in image.topics:
            configs = self._checked_configs(topic)
        if topic.assignments:
            return services.controller.topics.plan_assigned(image, topic.name, _assignments(topic), configs)
        config = services.settings.config
        partition_count = config.num_partitions if topic.num_partitions == _DEFAULT else topic.num_partitions
        factor = topic.replication_factor
        if factor == _DEFAULT:
            factor = config.default_replication_factor
        return services.controller.topics.plan(image, topic.name, partition_count, factor, configs)

    def _checked_configs(self, topic: CreatableTopic) -> dict[str, str]:
        check_count(topic.configs)
        configs = dict(internal_defaults(topic.name))
        for one in topic.configs:
            if one.value is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{shortened(one.name)} needs a value")
            configs[one.name] = one.value
        services = self._services
        defaults = services.settings.topic_defaults(services.image, services.broker_id)
        check_internal_config(topic.name, defaults.with_topic_settings(configs))
        return configs

    async def _write(self, request: Request, plan: TopicPlan, timeout_ms: int) -> None:
        await self._services.controller.topics.create(plan)
        name, count, topic_id = plan.assignment.topic, len(plan.assignment.partitions), plan.assignment.topic_id
        log_change(request, "created topic '%s' with %s", name, partitions_text(count), topic=name, partitions=count)
        await self._services.until_served(lambda image: topic_id in image.topics_by_id, timeout_ms)

    def _created(self, plan: TopicPlan) -> Values:
        partitions = plan.assignment.partitions
        return {
            "name": plan.assignment.topic,
            "topic_id": plan.assignment.topic_id,
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "num_partitions": len(partitions),
            "replication_factor": len(partitions[0].replicas),
            "configs": self._configs(plan.configs),
        }

    def _configs(self, own: Mapping[str, str]) -> Iterator[Values]:
        services = self._services
        for entry in topic_entries(services.settings, services.image, services.broker_id, own):
            yield {
                "name": entry.name,
                "value": entry.shown_value,
                "read_only": False,
                "config_source": entry.source,
                "is_sensitive": entry.setting.is_sensitive,
            }


def _groups(topics: Iterable[CreatableTopic]) -> Iterator[list[CreatableTopic]]:
    """Topics that are created at a time. Of two whose names count as the same the second waits, and is refused."""
    together: dict[str, CreatableTopic] = {}
    for topic in topics:
        alike = alike_name(topic.name)
        if alike in together or len(together) >= _TOGETHER_MAX:
            yield list(together.values())
            together = {}
        together[alike] = topic
    if together:
        yield list(together.values())


def _assignments(topic: CreatableTopic) -> dict[int, tuple[int, ...]]:
    if topic.replication_factor != _DEFAULT or topic.num_partitions != _DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "with an assignment, the partition count and the replication factor must be -1"
        )
    assignments: dict[int, tuple[int, ...]] = {}
    for one in topic.assignments:
        if one.partition_index in assignments:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {one.partition_index} is assigned twice")
        assignments[one.partition_index] = tuple(one.broker_ids)
    return assignments


def _refused(name: str, error: BarnabasError) -> Values:
    code, message = refusal_of(error)
    return {"name": name, "error_code": code, "error_message": message, "configs": []}
