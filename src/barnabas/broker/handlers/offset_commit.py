"""OffsetCommit, versions 2 to 10: how far a group has come, answered when it is in the log.

- Each partition is refused by itself when its topic is unknown here; an error of the group (an old generation, a member
  that it does not know) is every partition's error. GROUP_ID_NOT_FOUND is ILLEGAL_GENERATION before version 9.
- All commits of a tick go into the log as one batch, and their answers leave together. One with very many offsets is
  read and committed in pieces, over several turns of the event loop: others must not wait for all of it, but for the
  requests that follow it on its connection.
- Versions 2 to 4 say how long to keep the offsets; topics go by id from version 10 on.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from barnabas.broker.authorizer import Operation, Resource
from barnabas.broker.dispatch import Work
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.metadata.image import Topic
from barnabas.wire.codecs import Codecs
from barnabas.wire.commit import (
    NO_RETENTION,
    READ_TOGETHER,
    CommitResult,
    CommittedPartition,
    OffsetCommit,
    decode_commit_in_steps,
)
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.primitives import TopicKey, uuid_of
from barnabas.wire.steps import finish_soon

_GROUP_NOT_FOUND_FROM: Final = 9
_TOGETHER_MAX: Final = 100
"""Offsets that are committed at once: as the turns of joins, a few such pieces take a few milliseconds."""
_READ_AT_ONCE_BYTES_MAX: Final = 64 << 10
"""Of a request whose offsets have long notes."""
# A member of an enumeration takes long to look up.
_UNKNOWN_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_UNKNOWN_ID: Final = ErrorCode.UNKNOWN_TOPIC_ID
_PlainOffset: TypeAlias = tuple[str, UUID, int, int, int, str | None]
"""Of the form of `barnabas.groups.requests.OffsetToCommit`, as a plain tuple, which is made in a third of the time."""


def decode_commit_at_once(version: int, body: memoryview) -> OffsetCommit | memoryview:
    """The request object; the body itself if reading it takes long, which the handler then does in slices."""
    if len(body) > _READ_AT_ONCE_BYTES_MAX:
        return body
    commit = finish_soon(decode_commit_in_steps(version, body), _TOGETHER_MAX // READ_TOGETHER)
    return body if commit is None else commit


def _go_on() -> None:
    """Whether its client has gone or not: what it has come to is committed."""


class OffsetCommitHandler:
    def __init__(self, services: Services) -> None:
        self.codecs = services.codecs
        self._services = services
        self._replicas = services.replicas
        self._allows = services.authorizer.allows
        self._allows_all = services.authorizer.allows_all
        self._coordinator = services.groups.coordinator
        self._commits = self._coordinator.measures.commits

    def __call__(self, request: Request, asked: OffsetCommit | memoryview) -> Work | None:
        if isinstance(asked, memoryview):
            return partial(self._serve_wide, request, asked)
        topics, count = asked.topics, 0
        for _, partitions in topics:
            count += len(partitions)
        if count > _TOGETHER_MAX:
            return partial(self._commit_wide, request, asked)
        pending = _PendingCommit(self.codecs, request)
        try:
            if not self._allows_all:
                self._check_group(request, asked)
            for key, partitions in topics:
                self._pick(request, key, partitions, pending)
            if pending.offsets or not topics:
                self._commit(asked, pending.offsets, pending.settle)
            else:
                pending.settle([])  # nothing is left to ask the group for
        except KafkaError as error:
            pending.refuse_all(asked, error.code)
        return None

    async def _serve_wide(self, request: Request, body: memoryview) -> None:
        """From the bytes on, in slices."""
        steps = decode_commit_in_steps(request.version, body)
        await self._commit_wide(request, await self._services.slices.finish(steps, _go_on))

    async def _commit_wide(self, request: Request, commit: OffsetCommit) -> None:
        """Very many offsets, a few at a time; ends when all of them are on their way to the log."""
        slices, pending = self._services.slices, _PendingCommit(self.codecs, request)
        try:
            self._check_group(request, commit)
        except KafkaError as error:
            pending.refuse_all(commit, error.code)
            return
        for wanted in commit.topics:
            partitions = wanted.partitions
            async for start in slices.each(range(0, len(partitions), _TOGETHER_MAX)):
                some = partitions[start : start + _TOGETHER_MAX]
                self._pick(request, wanted.topic, some, pending, goes_on=start > 0)
        offsets = pending.offsets
        if not offsets:
            pending.settle([])
            return
        pieces = _Pieces(len(offsets), pending.settle)
        async for start in slices.each(range(0, len(offsets), _TOGETHER_MAX)):
            self._commit_piece(request, commit, offsets[start : start + _TOGETHER_MAX], start, pieces)

    def _commit_piece(
        self, request: Request, commit: OffsetCommit, piece: list[_PlainOffset], start: int, pieces: "_Pieces"
    ) -> None:
        def told(codes: list[ErrorCode] | ErrorCode) -> None:
            pieces.done(start, _each(codes, request.version, len(piece)))

        try:
            self._commit(commit, piece, told)
        except KafkaError as error:  # the group has gone meanwhile
            told(error.code)

    def _check_group(self, request: Request, commit: OffsetCommit) -> None:
        if not self._allows(request.caller, Operation.READ, Resource.GROUP, commit.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def _pick(
        self,
        request: Request,
        key: TopicKey,
        partitions: list[CommittedPartition],
        pending: "_PendingCommit",
        *,
        goes_on: bool = False,
    ) -> None:
        """Refuses the partitions that are not known here, and lines up the others. `goes_on`: the request's entry for
        this topic has more partitions than were picked before."""
        image = self._replicas.image
        if isinstance(key, str):
            topic, missing = image.topics.get(key), _UNKNOWN_TOPIC
            name = key
        else:
            topic, missing = image.topics_by_id.get(uuid_of(key)), _UNKNOWN_ID
            name = "" if topic is None else topic.name
        if not self._allows_all and name and not self._allows(request.caller, Operation.READ, Resource.TOPIC, name):
            topic, missing = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is None:
            pending.refuse(key, [one[0] for one in partitions], missing)
        else:
            pending.add(key, partitions, topic, goes_on=goes_on)

    def _commit(
        self,
        commit: OffsetCommit,
        offsets: list[_PlainOffset],
        pending: Callable[[list[ErrorCode] | ErrorCode], None],
    ) -> None:
        """KafkaError when the group is not here; what it says itself is told to `pending`."""
        group_id, generation, member_id, instance_id, retention_ms, _ = commit
        coordinator = self._coordinator
        shard = coordinator.shard_for(group_id)
        self._commits.value += 1
        try:
            effects = shard.state.commit_offsets(
                group_id,
                generation,
                member_id,
                instance_id,
                offsets,  # type: ignore[arg-type] # plain tuples of the form that it takes
                pending,
                coordinator.now(),
                None if retention_ms == NO_RETENTION else retention_ms,
            )
        except KafkaError as error:
            pending(error.code)
        else:
            shard.carry_out(effects)


class _PendingCommit:
    """A request on its way; `settle` is the token that is called with its results."""

    __slots__ = ("_accepted", "_codecs", "_refused", "_request", "offsets")

    def __init__(self, codecs: Codecs, request: Request) -> None:
        self._codecs = codecs
        self._request = request
        self._refused: dict[TopicKey, list[tuple[int, ErrorCode]]] | None = None
        """By topic, if any are."""
        self._accepted: list[tuple[TopicKey, list[int]]] = []
        self.offsets: list[_PlainOffset] = []

    def refuse(self, topic: TopicKey, indexes: Sequence[int], error: ErrorCode) -> None:
        self._request.add_error(error, len(indexes))
        if self._refused is None:
            self._refused = {}
        self._refused.setdefault(topic, []).extend([(index, error) for index in indexes])

    def refuse_all(self, commit: OffsetCommit, error: ErrorCode) -> None:
        """One error for every partition that the request names."""
        results: list[CommitResult] = [
            (topic, [(one[0], error) for one in partitions]) for topic, partitions in commit.topics
        ]
        request = self._request
        request.add_error(error, sum(len(partitions) for _, partitions in results))
        request.answer(self._codecs.committed(request.version, request.correlation_id, request.throttle_ms, results))

    def add(self, key: TopicKey, partitions: list[CommittedPartition], topic: Topic, *, goes_on: bool) -> None:
        name, topic_id, partition_count = topic.name, topic.id, len(topic.partitions)
        offsets, indexes = self.offsets, []
        for index, offset, leader_epoch, metadata in partitions:
            if 0 <= index < partition_count:
                offsets.append((name, topic_id, index, offset, leader_epoch, metadata))
                indexes.append(index)
            else:
                self.refuse(key, (index,), _UNKNOWN_TOPIC)
        if goes_on and self._accepted and self._accepted[-1][0] == key:
            self._accepted[-1][1].extend(indexes)
        elif indexes:
            self._accepted.append((key, indexes))

    def settle(self, codes: list[ErrorCode] | ErrorCode) -> None:
        """The errors of the offsets, in their order, or one for all of them."""
        request, all_refused = self._request, self._refused
        if not isinstance(codes, list):
            codes = _each(codes, request.version, len(self.offsets))
        if any(codes):
            for code in filter(None, codes):
                request.add_error(code)
        results: list[CommitResult] = [] if all_refused is None else list(all_refused.items())
        left = iter(codes)
        for topic, indexes in self._accepted:
            partitions = list(zip(indexes, left, strict=False))  # which takes as many as there are indexes
            refused = None if all_refused is None else all_refused.get(topic)
            if refused is None:
                results.append((topic, partitions))
            else:
                refused.extend(partitions)
        request.answer(self._codecs.committed(request.version, request.correlation_id, request.throttle_ms, results))


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
