"""DeleteTopics, versions 1 to 6: topics go by name or by id, each alone.

- `delete.topic.enable` set to false refuses everything: with TOPIC_DELETION_DISABLED from version 3, with
  INVALID_REQUEST before.
- From version 5 the answer has error messages. Topics go by id, too, from version 6.
- Answered when the topic is not served here any more; its files are removed later. A topic that the request names twice
  is refused and stays.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Final
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.texts import shortened
from barnabas.broker.audit import log_change
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.deadlines import TIMED_OUT
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.partitions import OFFSETS_TOPIC
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import DeleteTopicsRequest

_TOGETHER_MAX: Final = 32
"""Topics that are deleted at a time: they share one commit of the metadata, and one of the checkpoints."""
_BY_ID_FROM: Final = 6
_DELETION_DISABLED_FROM: Final = 3


class DeleteTopicsHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: DeleteTopicsRequest) -> Values:
        timeout_ms = asked.timeout_ms
        wanted: Iterable[tuple[str | None, UUID | None]]
        if request.version < _BY_ID_FROM:
            wanted = ((name, None) for name in asked.topic_names)
        else:
            wanted = ((one.name, one.topic_id) for one in asked.topics)
        if timeout_ms <= 0:
            return {"responses": ({"name": name, "topic_id": topic_id, **TIMED_OUT} for name, topic_id in wanted)}
        counts: Counter[tuple[str | None, UUID | None]] = Counter()
        async for one in self._services.slices.each(wanted):
            counts[one] += 1
        responses: list[Values] = []
        iterator = iter(counts.items())
        while together := list(islice(iterator, _TOGETHER_MAX)):
            deletions = [
                self._delete(request, name, topic_id, timeout_ms, is_twice=count > 1)
                for (name, topic_id), count in together
            ]
            responses += await asyncio.gather(*deletions)
        return {"responses": responses}

    async def _delete(
        self, request: Request, name: str | None, topic_id: UUID | None, timeout_ms: int, *, is_twice: bool
    ) -> Values:
        try:
            _check(name, topic_id, is_twice=is_twice)
            found_name, found_id = self._find(request, name, topic_id)
            await self._services.controller.topics.delete(found_name, found_id)
            _log_deletion(request, found_name)
            await self._services.until_served(lambda image: found_id not in image.topics_by_id, timeout_ms)
        except BarnabasError as error:
            code, message = refusal_of(error)
            return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}
        return {"name": found_name, "topic_id": found_id, "error_code": ErrorCode.NONE, "error_message": None}

    def _find(self, request: Request, name: str | None, topic_id: UUID | None) -> tuple[str, UUID]:
        services = self._services
        if not services.settings.config.delete_topic_enable:
            if request.version < _DELETION_DISABLED_FROM:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "delete.topic.enable is false")
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        if topic_id is not None:
            topic = services.image.topics_by_id.get(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        else:
            topic = services.image.topics.get(name or "")
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{shortened(name or '')}'")
        services.check_topic(request, Operation.DELETE, topic.name)
        return topic.name, topic.id


def _log_deletion(request: Request, name: str) -> None:
    if name == OFFSETS_TOPIC:
        lost = "deleted topic '%s', and with it every group and its committed offsets"
        log_change(request, lost, name, level=logging.WARNING, topic=name)
    else:
        log_change(request, "deleted topic '%s'", name, topic=name)


def _check(name: str | None, topic_id: UUID | None, *, is_twice: bool) -> None:
    if name is not None and topic_id is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is given by its name or by its id, not by both")
    if name is None and topic_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic needs a name or an id")
    if is_twice:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the request has this topic twice")
