"""OffsetFetch, versions 1 to 10: where groups go on reading; from version 8 on of many groups at once.

Without topics (null, from version 2 on) all offsets of a group. What is not committed is answered with -1. Topics are
named by id from version 10 on; an id that is not known here is UNKNOWN_TOPIC_ID.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.group_calls import find_topic
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.records import CommittedOffset
from barnabas.groups.state import GroupShardState
from barnabas.wire.errors import ErrorCode, KafkaError

_GROUP_ERROR_FROM: Final = 2
_MANY_FROM: Final = 8
_TOPIC_ID_FROM: Final = 10
_NOT_COMMITTED: Final = CommittedOffset(-1)


class OffsetFetchHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: Any) -> Values:
        is_stable = getattr(asked, "require_stable", False)
        if request.version >= _MANY_FROM:
            groups = (self._fetch(request, group_id, topics, is_stable) for group_id, topics in _distinct(asked.groups))
            return {"throttle_time_ms": request.throttle_ms, "groups": groups}
        found = self._fetch(request, asked.group_id, asked.topics, is_stable)
        return {"throttle_time_ms": request.throttle_ms, **found}

    def _fetch(self, request: Request, group_id: str, topics: Sequence[Any] | None, is_stable: bool) -> dict[str, Any]:
        found: Iterable[Values]
        try:
            if not self._services.allows_group(request, Operation.DESCRIBE, group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            state = self._services.groups.coordinator.state_for(group_id)
            if topics is None:
                found = self._all_of(request, state, group_id, is_stable)
            else:
                found = (self._topic(request, state, group_id, topic, is_stable) for topic in topics)
        except KafkaError as error:
            code, found = error.code, []
            if request.version < _GROUP_ERROR_FROM:
                found = (_refused(topic, code) for topic in topics or ())
            return {"group_id": group_id, "error_code": code, "topics": found}
        return {"group_id": group_id, "error_code": ErrorCode.NONE, "topics": found}

    def _all_of(self, request: Request, state: GroupShardState, group_id: str, is_stable: bool) -> Iterator[Values]:
        """Only of topics that the client may see and, by their ids, that there are."""
        for name, offsets in state.fetch_all_offsets(group_id, is_stable):
            topic = self._services.image.topics.get(name)
            if request.version >= _TOPIC_ID_FROM and topic is None:
                continue
            if self._services.allows_topic(request, Operation.DESCRIBE, name):
                yield _view(name, None if topic is None else topic.id, offsets)

    def _topic(self, request: Request, state: GroupShardState, group_id: str, wanted: Any, is_stable: bool) -> Values:
        topic_id = getattr(wanted, "topic_id", None)
        topic = find_topic(self._services.image, getattr(wanted, "name", None), topic_id)
        if request.version >= _TOPIC_ID_FROM and topic is None:
            return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_ID)
        name: str = wanted.name if topic is None else topic.name
        if not self._services.allows_topic(request, Operation.DESCRIBE, name):
            return _refused(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        known_id = ZERO_UUID if topic is None else topic.id
        indexes = wanted.partition_indexes
        return _view(name, topic_id, zip(indexes, state.fetch_offsets(group_id, name, indexes, known_id), strict=True))


def _distinct(groups: Iterable[Any]) -> Iterator[tuple[str, Sequence[Any] | None]]:
    """The groups of a request. All offsets of a group are told once, however often they are asked for."""
    told: set[str] = set()
    for one in groups:
        if one.topics is None:
            if one.group_id in told:
                continue
            told.add(one.group_id)
        yield one.group_id, one.topics


def _view(name: str, topic_id: Any, offsets: Iterable[tuple[int, CommittedOffset | None]]) -> Values:
    return {
        "name": name,
        "topic_id": topic_id,
        "partitions": (_partition(index, found or _NOT_COMMITTED, ErrorCode.NONE) for index, found in offsets),
    }


def _refused(wanted: Any, code: ErrorCode) -> Values:
    return {
        "name": getattr(wanted, "name", ""),
        "topic_id": getattr(wanted, "topic_id", None),
        "partitions": (_partition(index, _NOT_COMMITTED, code) for index in wanted.partition_indexes),
    }


def _partition(index: int, found: CommittedOffset, code: ErrorCode) -> Values:
    return {
        "partition_index": index,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
        "error_code": code,
    }
