"""OffsetFetch, versions 1 to 10: where groups go on reading.

- From version 2 a request without topics (null) asks for all offsets of a group, and an error of the group is told once
  instead of with each partition. The answer has leader epochs from 5.
- From version 8 on it is for many groups at once. All offsets of a group are told once, however often they are asked
  for.
- Topics are named by id from version 10 on; an id that is not known here is UNKNOWN_TOPIC_ID.
- What is not committed is answered with -1.
- Not here: transactions, so that every offset is a stable one (the question of version 7), and members' epochs
  (version 9, KIP-848), which are not looked at.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Values
from barnabas.broker.handlers.group_calls import find_topic
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.groups.records import CommittedOffset
from barnabas.groups.state import GroupShardState
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.request_views import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic

_GROUP_ERROR_FROM: Final = 2
_MANY_FROM: Final = 8
_TOPIC_ID_FROM: Final = 10
_NOT_COMMITTED: Final = CommittedOffset(-1)


class OffsetFetchHandler:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, request: Request, asked: OffsetFetchRequest) -> Values:
        if request.version >= _MANY_FROM:
            groups = (self._fetch(request, group_id, topics) for group_id, topics in _distinct(asked.groups))
            return {"groups": groups}
        return self._fetch(request, asked.group_id, asked.topics)

    def _fetch(self, request: Request, group_id: str, topics: Sequence[OffsetFetchTopic] | None) -> Values:
        found: Iterable[Values]
        try:
            if not self._services.allows_group(request, Operation.DESCRIBE, group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            state = self._services.groups.coordinator.state_for(group_id)
            if topics is None:
                found = self._all_of(request, state, group_id)
            else:
                found = (self._topic(request, state, group_id, topic) for topic in topics)
        except KafkaError as error:
            code, found = error.code, []
            if request.version < _GROUP_ERROR_FROM:
                found = (_refused(topic, code) for topic in topics or ())
            return {"group_id": group_id, "error_code": code, "topics": found}
        return {"group_id": group_id, "error_code": ErrorCode.NONE, "topics": found}

    def _all_of(self, request: Request, state: GroupShardState, group_id: str) -> Iterator[Values]:
        """Only of topics that the client may see and, by their ids, that there are."""
        for name, offsets in state.fetch_all_offsets(group_id):
            topic = self._services.image.topics.get(name)
            if request.version >= _TOPIC_ID_FROM and topic is None:
                continue
            if self._services.allows_topic(request, Operation.DESCRIBE, name):
                yield _view(name, None if topic is None else topic.id, offsets)

    def _topic(self, request: Request, state: GroupShardState, group_id: str, wanted: OffsetFetchTopic) -> Values:
        topic = find_topic(self._services.image, wanted.name, wanted.topic_id)
        if request.version >= _TOPIC_ID_FROM and topic is None:
            return _refused(wanted, ErrorCode.UNKNOWN_TOPIC_ID)
        name = wanted.name if topic is None else topic.name
        if not self._services.allows_topic(request, Operation.DESCRIBE, name):
            return _refused(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        known_id = ZERO_UUID if topic is None else topic.id
        indexes = wanted.partition_indexes
        offsets = state.fetch_offsets(group_id, name, indexes, known_id)
        return _view(name, wanted.topic_id, zip(indexes, offsets, strict=True))


def _distinct(groups: Iterable[OffsetFetchGroup]) -> Iterator[tuple[str, Sequence[OffsetFetchTopic] | None]]:
    """The groups of a request. All offsets of a group are told once, however often they are asked for."""
    told: set[str] = set()
    for one in groups:
        if one.topics is None:
            if one.group_id in told:
                continue
            told.add(one.group_id)
        yield one.group_id, one.topics


def _view(name: str, topic_id: UUID | None, offsets: Iterable[tuple[int, CommittedOffset | None]]) -> Values:
    return {
        "name": name,
        "topic_id": topic_id,
        "partitions": (_partition(index, found or _NOT_COMMITTED, ErrorCode.NONE) for index, found in offsets),
    }


def _refused(wanted: OffsetFetchTopic, code: ErrorCode) -> Values:
    return {
        "name": wanted.name,
        "topic_id": wanted.topic_id,
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
