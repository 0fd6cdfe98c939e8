"""OffsetCommit, versions 2 to 10: how far a group has come, answered when it is in the log.

Each partition is refused by itself when its topic is unknown here; an error of the group (an old generation, a member
that it does not know) is every partition's error. Called directly by the dispatcher: all commits of a tick go into the
log as one batch, and their answers leave together.

The usual request, offsets of one topic, takes a shorter way (`take_sole`) to the same end. One with very many offsets
is committed in pieces, over several turns of the event loop: others must not wait for all of it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias, cast
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
_TOGETHER_MAX: Final = 100
"""Offsets that are committed at once: as the turns of joins, a few such pieces take a few milliseconds."""
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
        self._turns = services.groups.turns

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
            if len(pending.offsets) > _TOGETHER_MAX:
                self._commit_in_pieces(request, commit, pending)
            elif pending.offsets or not commit.topics:
                group_id, generation, member_id, instance_id, retention_ms, _ = commit
                self._commit(group_id, generation, member_id, instance_id, pending.offsets, pending, retention_ms)
            else:
                pending([])  # nothing is left to ask the group for
        except KafkaError as error:
            _refuse_all(request, commit, error.code)

    def _commit_in_pieces(self, request: Request, commit: OffsetCommitRequest, pending: "_PendingCommit") -> None:
        group_id, generation, member_id, instance_id, retention_ms, _ = commit
        offsets = pending.offsets
        pieces = _Pieces(len(offsets), pending)

        def commit_piece(start: int) -> None:
            def told(codes: list[ErrorCode] | ErrorCode) -> None:
                pieces.done(start, _each(codes, request.version, len(piece)))

            piece = offsets[start : start + _TOGETHER_MAX]
            try:
                self._commit(group_id, generation, member_id, instance_id, piece, told, retention_ms)
            except KafkaError as error:  # the group has gone meanwhile
                told(error.code)

        for start in range(0, len(offsets), _TOGETHER_MAX):
            self._turns.call(partial(request.attempt, partial(commit_piece, start)))

    def _commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        offsets: list[_PlainOffset],
        pending: Callable[[list[ErrorCode] | ErrorCode], None],
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
        codes = _each(codes, version, len(partitions))
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
        codes = _each(codes, request.version, len(self.offsets))
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


class _Pieces:
    """The results of a commit whose pieces are answered one by one."""

    def __init__(self, count: int, when_done: Callable[[list[ErrorCode]], None]) -> None:
        self._codes = [ErrorCode.NONE] * count
        self._left = count
        self._when_done = when_done

    def done(self, start: int, codes: list[ErrorCode]) -> None:
        self._codes[start : start + len(codes)] = codes
        self._left -= len(codes)
        if not self._left:
            self._when_done(self._codes)


def _each(codes: list[ErrorCode] | ErrorCode, version: int, count: int) -> list[ErrorCode]:
    """The errors of as many offsets; one error for all of them, as this version knows it, where there is but one."""
    if isinstance(codes, list):
        return codes
    code = codes
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
