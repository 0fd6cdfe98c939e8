"""CreatePartitions, versions 0 to 3: topics grow to a number of partitions; they never shrink.

- All versions are alike.
- Answered when the new partitions are served here. The new ones go where the request says, or by the rule that placed
  the first ones. Validate-only does everything but write.
- Records that have a key may go to another partition than before: that is the caller's to know.
- Not here: the topic of committed offsets is refused, because its groups would not be found again (Kafka lets it grow,
  and loses them).
"""

from collections import Counter

from barnabas.base.errors import BarnabasError
from barnabas.broker.audit import log_change, partitions_text
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.deadlines import TIMED_OUT
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.partitions import OFFSETS_TOPIC
from barnabas.metadata.image import ClusterImage
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import CreatePartitionsRequest, CreatePartitionsTopic


class CreatePartitionsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: CreatePartitionsRequest) -> Values:
        if asked.timeout_ms <= 0:
            return {"results": ({"name": topic.name, **TIMED_OUT} for topic in asked.topics)}
        slices = self._services.slices
        counts: Counter[str] = Counter()
        topics = {}
        async for topic in slices.each(asked.topics):
            counts[topic.name] += 1
            topics[topic.name] = topic
        results = []
        async for topic in slices.each(topics.values()):
            try:
                if counts[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the request has this topic twice")
                self._services.check_topic(request, Operation.ALTER, topic.name)
                await self._grow(request, topic, asked.timeout_ms, validate_only=asked.validate_only)
            except BarnabasError as error:
                code, message = refusal_of(error)
                results.append({"name": topic.name, "error_code": code, "error_message": message})
            else:
                results.append({"name": topic.name, "error_code": ErrorCode.NONE, "error_message": None})
        return {"results": results}

    async def _grow(
        self, request: Request, topic: CreatePartitionsTopic, timeout_ms: int, *, validate_only: bool
    ) -> None:
        services = self._services
        if topic.name == OFFSETS_TOPIC and topic.name in services.image.topics:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{OFFSETS_TOPIC} cannot grow: its number of partitions decides where each group's offsets are",
            )
        assignments = None if topic.assignments is None else [one.broker_ids for one in topic.assignments]
        grown = await services.controller.topics.add_partitions(
            services.image, topic.name, topic.count, assignments, validate_only=validate_only
        )

        def is_served(image: ClusterImage) -> bool:
            now = image.topics_by_id.get(grown.topic_id)
            return now is None or len(now.partitions) >= len(grown.partitions)

        if not validate_only:
            count = len(grown.partitions)
            message = "changed topic '%s' to %s"
            log_change(request, message, topic.name, partitions_text(count), topic=topic.name, partitions=count)
            await services.until_served(is_served, timeout_ms)
