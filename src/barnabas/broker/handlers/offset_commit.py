"""OffsetCommit, versions 2 to 10: how far a group has come, answered when it is in the log.

Each partition is refused by itself when its topic is unknown here; an error of the group (an old generation, a member
that it does not know) is every partition's error. Called directly by the dispatcher: all commits of a tick go into the
log as one batch, and their answers leave together.

The usual request, offsets of one topic, takes a shorter way (`take_sole`) to the same end.
"""

from collections.abc import Sequence
from typing import TypeAlias, cast
from uuid import UUID

from barnabas.broker.authorizer import Operation, Resource
from barnabas.broker.dispatch import ClientConnection
from barnabas.broker.request import Request
from barnabas.broker.request_measures import RequestMeasures
from barnabas.broker.services import Services
from barnabas.groups.requests import OffsetToCommit
from barnabas.metadata.image import Topic
from barnabas.net.replies import ReplySlot
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.offset_commit import (
    NO_RETENTION,
    TOPIC_ID_FROM,
    CommittedTopic,
    OffsetCommitRequest,
    TopicResult,
    decode_offset_commit_request,
    encode_offset_commit_response,
)
from barnabas.wire.primitives import uuid_of
from barnabas.wire.sole_commit import SoleCommit, read_sole_commit, write_commit_reply

_GROUP_NOT_FOUND_FROM = 9
_PlainOffset: TypeAlias = tuple[str, UUID, int, int, int, str | None]
"""A plain tuple of the form `OffsetToCommit`, which takes a third of the time to make."""


class OffsetCommitHandler:
    def __init__(self, services: Services, measures: RequestMeasures) -> None:
        """`measures` are for those requests that never become a `Request`."""
        self.measures = measures
        self.now = measures.now
        self.seconds = measures.seconds[ApiKey.OFFSET_COMMIT]
        self._replicas = services.replicas
        self._allows = services.authorizer.allows
        self._coordinator = services.groups.coordinator
        self._commits = self._coordinator.measures.commits

    def take_sole(self, frame: memoryview, slot: ReplySlot, client: ClientConnection) -> bool:
        """The usual request on the shortest way. False leaves it to the long one, which also says what is wrong."""
        sole = read_sole_commit(frame)
        if sole is None:
            return False
        _, _, group_id, generation, member_id, instance_id, wanted, partitions = sole
        image = self._replicas.image
        topic = image.topics.get(wanted) if isinstance(wanted, str) else image.topics_by_id.get(uuid_of(wanted))
        if topic is None:
            return False
        name, topic_id, partition_count = topic.name, topic.id, len(topic.partitions)
        offsets: list[_PlainOffset] = []
        for index, offset, leader_epoch in partitions:
            if not 0 <= index < partition_count:
                return False
            offsets.append((name, topic_id, index, offset, leader_epoch, None))
        try:
            self._commit(group_id, generation, member_id, instance_id, offsets, _SoleCommit(self, sole, slot))
        except KafkaError:
            return False
        return True

    def __call__(self, request: Request) -> None:
        commit = decode_offset_commit_request(request.version, request.body)
        try:
            if not self._allows(request, Operation.READ, Resource.GROUP, commit.group_id):
                raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            pending = _PendingCommit(request)
            self._pick(request, commit, pending)
            if pending.offsets or not commit.topics:
                group_id, generation, member_id, instance_id, retention_ms, _ = commit
                self._commit(group_id, generation, member_id, instance_id, pending.offsets, pending, retention_ms)
            else:
                pending([])  # nothing is left to ask the group for
        except KafkaError as error:
            _refuse_all(request, commit, error.code)

    def _commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        offsets: list[_PlainOffset],
        pending: "_PendingCommit | _SoleCommit",
        retention_ms: int = NO_RETENTION,
    ) -> None:
        """KafkaError when the group is not here; what it says itself is told to `pending`."""
        coordinator = self._coordinator
        shard = coordinator.shard_for(group_id)
        self._commits.value += 1
        try:
            effects = shard.state.commit_offsets(
                group_id,
                generation,
                member_id,
                instance_id,
                cast(list[OffsetToCommit], offsets),
                pending,
                coordinator.now(),
                None if retention_ms == NO_RETENTION else retention_ms,
            )
        except KafkaError as error:
            pending(error.code)
        else:
            shard.carry_out(effects)

    def _pick(self, request: Request, commit: OffsetCommitRequest, pending: "_PendingCommit") -> None:
        """Refuses the partitions that are not known here, and lines up the others."""
        image = self._replicas.image
        for wanted in commit.topics:
            if request.version >= TOPIC_ID_FROM:
                topic = image.topics_by_id.get(wanted.topic_id)
                missing = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                topic = image.topics.get(wanted.name)
                missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            name = wanted.name if topic is None else topic.name
            if topic is not None and not self._allows(request, Operation.READ, Resource.TOPIC, name):
                topic, missing = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if topic is None:
                pending.refuse(wanted, [one[0] for one in wanted.partitions], missing)
            else:
                pending.add(wanted, topic)


class _SoleCommit:
    """A request for one topic on its way, and the token that is called with its results."""

    __slots__ = ("_began", "_handler", "_slot", "_sole")

    def __init__(self, handler: OffsetCommitHandler, sole: SoleCommit, slot: ReplySlot) -> None:
        self._handler = handler
        self._sole = sole
        self._slot = slot
        self._began = handler.now()

    def __call__(self, codes: list[ErrorCode] | ErrorCode) -> None:
        """The errors of the offsets, in their order, or one for all of them."""
        version, correlation_id, _, _, _, _, topic, partitions = self._sole
        handler = self._handler
        if isinstance(codes, ErrorCode):
            codes = _told(codes, version, len(partitions))
        if any(codes):
            for code in filter(None, codes):
                handler.measures.add_error(ApiKey.OFFSET_COMMIT, code)
        self._slot.complete(write_commit_reply(version, correlation_id, topic, partitions, codes))
        handler.seconds.observe(handler.now() - self._began)


class _PendingCommit:
    """A request on its way, and the token that is called with its results."""

    __slots__ = ("_accepted", "_refused", "_request", "offsets")

    def __init__(self, request: Request) -> None:
        self._request = request
        self._refused: dict[str | UUID, TopicResult] = {}
        self._accepted: list[tuple[CommittedTopic, list[int]]] = []
        self.offsets: list[_PlainOffset] = []

    def refuse(self, wanted: CommittedTopic, indexes: Sequence[int], error: ErrorCode) -> None:
        self._request.add_error(error, len(indexes))
        key = wanted.name or wanted.topic_id
        result = self._refused.get(key)
        if result is None:
            result = self._refused[key] = TopicResult(wanted.name, wanted.topic_id, [])
        result.partitions.extend([(index, error) for index in indexes])

    def add(self, wanted: CommittedTopic, topic: Topic) -> None:
        name, topic_id, partition_count = topic.name, topic.id, len(topic.partitions)
        offsets, indexes = self.offsets, []
        for index, offset, leader_epoch, metadata in wanted.partitions:
            if 0 <= index < partition_count:
                offsets.append((name, topic_id, index, offset, leader_epoch, metadata))
                indexes.append(index)
            else:
                self.refuse(wanted, (index,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if indexes:
            self._accepted.append((wanted, indexes))

    def __call__(self, codes: list[ErrorCode] | ErrorCode) -> None:
        """The errors of the offsets, in their order, or one for all of them."""
        request = self._request
        if isinstance(codes, ErrorCode):
            codes = _told(codes, request.version, len(self.offsets))
        if any(codes):
            for code in filter(None, codes):
                request.add_error(code)
        results = list(self._refused.values())
        start = 0
        for wanted, indexes in self._accepted:
            end = start + len(indexes)
            partitions = list(zip(indexes, codes[start:end], strict=True))
            start = end
            refused = self._refused.get(wanted.name or wanted.topic_id) if self._refused else None
            if refused is None:
                results.append(TopicResult(wanted.name, wanted.topic_id, partitions))
            else:
                refused.partitions.extend(partitions)
        request.respond(encode_offset_commit_response(request.version, results, request.throttle_ms))


def _told(code: ErrorCode, version: int, count: int) -> list[ErrorCode]:
    """The error of each of `count` offsets, as this version knows it."""
    if code is ErrorCode.GROUP_ID_NOT_FOUND and version < _GROUP_NOT_FOUND_FROM:
        code = ErrorCode.ILLEGAL_GENERATION
    return [code] * count


def _refuse_all(request: Request, commit: OffsetCommitRequest, error: ErrorCode) -> None:
    results = [
        TopicResult(topic.name, topic.topic_id, [(one[0], error) for one in topic.partitions])
        for topic in commit.topics
    ]
    request.add_error(error, sum(len(topic.partitions) for topic in commit.topics))
    request.respond(encode_offset_commit_response(request.version, results, request.throttle_ms))
