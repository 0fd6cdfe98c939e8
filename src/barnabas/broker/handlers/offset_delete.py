"""OffsetDelete, version 0: committed offsets are removed, unless members are subscribed to their topic.

- Each partition is refused by itself when its topic is unknown here; an error of the group is the whole answer's.
- Not here: more than five thousand partitions at once, which is INVALID_REQUEST.
"""

from typing import Final

from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.group_calls import ask_group, check_group
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import OffsetDeleteRequest

_TOGETHER_MAX: Final = 5_000
"""Partitions of one request, whose offsets are removed at once."""


class OffsetDeleteHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: OffsetDeleteRequest) -> Values:
        answer: dict[str, object] = {
            "error_code": ErrorCode.NONE,
            "topics": [],
        }
        named = ((topic.name, one.partition_index) for topic in asked.topics for one in topic.partitions)
        refused, allowed = {}, []
        async for name, index in self._services.slices.each(named):
            if code := self._problem(request, name, index):
                refused[name, index] = code
            else:
                allowed.append((name, index))
        if len(allowed) > _TOGETHER_MAX:
            return {**answer, "error_code": ErrorCode.INVALID_REQUEST}
        try:
            check_group(self._services, request, Operation.DELETE, asked.group_id)
            codes = await ask_group(
                self._services,
                asked.group_id,
                lambda state, token, _: state.delete_offsets(asked.group_id, allowed, token),
            )
            assert isinstance(codes, list), "what a group answers: a code for each"
        except KafkaError as error:
            return {**answer, "error_code": error.code}
        by_topic: dict[str, list[Values]] = {}
        for (name, index), code in [*refused.items(), *zip(allowed, codes, strict=True)]:
            by_topic.setdefault(name, []).append({"partition_index": index, "error_code": code})
        answer["topics"] = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]
        return answer

    def _problem(self, request: Request, topic: str, index: int) -> ErrorCode:
        if not self._services.allows_topic(request, Operation.READ, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._services.image.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE
