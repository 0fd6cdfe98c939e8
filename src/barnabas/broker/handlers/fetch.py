"""Fetch, versions 4 to 18: ranges of the logs' files, sent without passing through this process.

A request that finds less than `min_bytes` waits, up to `max_wait`, until one of its partitions gets records; then it is
read anew. An error in any partition answers at once. The first batch of the first partition that has one comes whole,
however small the limits are, so that a reader always gets on; after that the limits of partition and answer hold.
Sessions (KIP-227) are in `fetch_sessions`; replicas do not fetch yet, and are refused. Readers of one partition are
mostly served by `sole_fetch`, in front of this.
"""

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_EPOCH
from barnabas.broker.fetch_sessions import FetchPlan, FetchSessions, PartitionKey, SessionPartition, Wanted
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.net.replies import Piece
from barnabas.replication.partition import Partition, PartitionRead
from barnabas.replication.replicas import Replicas
from barnabas.storage.traffic import TopicTraffic
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch_request import FLEXIBLE_FROM, TOPIC_ID_FROM, FetchRequest, decode_fetch_request
from barnabas.wire.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionReply,
    FetchResponse,
    FetchTopicReply,
    encode_fetch_response,
    encode_small_fetch_response,
)

READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (0, READ_COMMITTED)
_NOTHING: Final = memoryview(b"")


class FetchHandler:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        replicas: Replicas,
        sessions: FetchSessions,
        fetch_bytes_max: int,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._replicas = replicas
        self._sessions = sessions
        self._fetch_bytes_max = fetch_bytes_max

    def __call__(self, request: Request) -> None:
        fetch = decode_fetch_request(request.version, request.body)
        if fetch.isolation_level not in _ISOLATION_LEVELS:
            self._respond(request, _refused(request.version, fetch, ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        try:
            if fetch.replica_id >= 0:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no other broker has replicas of this one's")
            plan = self._sessions.plan(
                fetch.session_id,
                fetch.session_epoch,
                _wanted(fetch),
                _forgotten(fetch),
                uses_topic_ids=request.version >= TOPIC_ID_FROM,
                now_ms=self._clock.steady_ms(),
            )
        except KafkaError as error:
            self._respond(request, FetchResponse(error_code=error.code))
            return
        attempt = _Attempt(self, request, fetch, plan)
        if attempt.read() or fetch.wait_ms_max <= 0 or not plan.partitions:
            attempt.respond()
        else:
            attempt.release()
            request.body = _NOTHING  # so that the buffer it arrived in does not wait, too
            _Waiting(attempt, self._loop).begin(fetch.wait_ms_max / 1000)

    def answer(self, request: Request, fetch: FetchRequest, plan: FetchPlan) -> None:
        """Answers with what there is now."""
        attempt = _Attempt(self, request, fetch, plan)
        attempt.read()
        attempt.respond()

    def _respond(self, request: Request, response: FetchResponse) -> None:
        if response.error_code:
            request.add_error(response.error_code)
        response.throttle_time_ms = request.throttle_ms
        encoded = encode_fetch_response(request.version, response)
        # The records among the pieces are the slices that were put in.
        request.respond_in_pieces(cast(list[Piece], encoded.pieces), encoded.length)

    def find(self, key: PartitionKey) -> Partition:
        return self._replicas.find(key.topic, key.topic_id, key.partition)

    def respond(
        self, request: Request, plan: FetchPlan, replies: "list[tuple[PartitionKey, FetchPartitionReply]]"
    ) -> None:
        if len(replies) == 1 and request.version >= FLEXIBLE_FROM:
            ((key, only),) = replies
            body = encode_small_fetch_response(
                request.version, request.throttle_ms, plan.session_id, key.topic, key.topic_id, only
            )
            if body is not None:
                request.respond(body)
                return
        topics: list[FetchTopicReply] = []
        partitions: list[FetchPartitionReply] = []
        leaders = []
        last: tuple[str, object] | None = None
        for key, reply in replies:
            if last != (key.topic, key.topic_id):
                last = (key.topic, key.topic_id)
                partitions = []
                topics.append(FetchTopicReply(key.topic, key.topic_id, partitions))
            if reply.error_code:
                request.add_error(reply.error_code)
            if reply.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
                reply.current_leader = self._replicas.leader_of(key.topic, key.topic_id, key.partition)
                leaders.append(reply.current_leader)
            partitions.append(reply)
        endpoints = self._replicas.endpoints_of(leaders, request.listener) if leaders else ()
        self._respond(request, FetchResponse(topics, session_id=plan.session_id, node_endpoints=endpoints))

    @property
    def bytes_max(self) -> int:
        return self._fetch_bytes_max


def _refused(version: int, fetch: FetchRequest, code: ErrorCode) -> FetchResponse:
    """The same error for everything. Kafka names the partitions only where topics go by name."""
    topics = [
        FetchTopicReply(topic.name, topic.topic_id, [FetchPartitionReply(one.index, code) for one in topic.partitions])
        for topic in fetch.topics
    ]
    return FetchResponse(topics if version < TOPIC_ID_FROM else [], error_code=code)


def _wanted(fetch: FetchRequest) -> Iterator[tuple[PartitionKey, Wanted]]:
    for topic in fetch.topics:
        for one in topic.partitions:
            yield (
                PartitionKey(topic.name, topic.topic_id, one.index),
                Wanted(one.fetch_offset, one.bytes_max, one.current_leader_epoch, one.last_fetched_epoch),
            )


def _forgotten(fetch: FetchRequest) -> Iterator[PartitionKey]:
    for topic in fetch.forgotten_topics:
        for index in topic.partitions:
            yield PartitionKey(topic.name, topic.topic_id, index)


class _Found(NamedTuple):
    """What one partition has for a fetch."""

    key: PartitionKey
    session: SessionPartition
    reply: FetchPartitionReply
    read: PartitionRead | None = None
    """None when there was nothing to read: an error, or another history."""
    traffic: TopicTraffic | None = None
    """Where the records are counted if they are sent; None when there are none."""


class _Attempt:
    """Reads everything that a fetch asks for, once or again."""

    __slots__ = ("_bytes", "_fetch", "_found", "_is_urgent", "handler", "plan", "request")

    def __init__(self, handler: FetchHandler, request: Request, fetch: FetchRequest, plan: FetchPlan) -> None:
        self.handler = handler
        self.request = request
        self.plan = plan
        self._fetch = fetch
        self._bytes = 0
        self._is_urgent = False
        self._found: list[_Found] = []

    def read(self) -> bool:
        """Whether what was found is to be answered at once."""
        self._found = []
        self._bytes = 0
        self._is_urgent = False
        left = min(self._fetch.bytes_max, self.handler.bytes_max)
        for key, session in self.plan:
            try:
                found = self._read_partition(key, session, left)
            except BarnabasError as error:
                self._is_urgent = True
                found = _Found(key, session, FetchPartitionReply(key.partition, refusal_of(error).code))
            if found.read is not None:
                self._bytes += found.read.size_bytes
                left -= found.read.size_bytes
            self._found.append(found)
        return self._is_urgent or self._bytes >= self._fetch.bytes_min

    def _read_partition(self, key: PartitionKey, session: SessionPartition, left: int) -> _Found:
        wanted = session.wanted
        partition = self.handler.find(key)
        if wanted.max_bytes < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a limit of {wanted.max_bytes} bytes")
        partition.check_leader_epoch(max(wanted.leader_epoch, NO_EPOCH))  # any negative number is no epoch here
        if wanted.last_fetched_epoch >= 0:
            diverging = _divergence(partition, wanted)
            if diverging is not None:
                self._is_urgent = True
                log = partition.log
                offsets = (log.high_watermark, log.last_stable_offset, log.log_start_offset)
                reply = FetchPartitionReply(key.partition, ErrorCode.NONE, *offsets, diverging_epoch=diverging)
                return _Found(key, session, reply)
        found = partition.read(
            wanted.fetch_offset,
            max(0, min(wanted.max_bytes, left)),
            is_committed_only=self._fetch.isolation_level == READ_COMMITTED,
            at_least_one=not self._bytes,
        )
        aborted = None
        if found.aborted is not None:
            aborted = [AbortedTransaction(one.producer_id, one.first_offset) for one in found.aborted]
        reply = FetchPartitionReply(
            key.partition,
            ErrorCode.NONE,
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            b"" if found.records is None else found.records,
            aborted,
        )
        return _Found(key, session, reply, found, None if found.records is None else partition.traffic)

    def respond(self) -> None:
        """Answers with what was read last; of a session only what is news."""
        told = []
        for found in self._found:
            key, session, reply, read, traffic = found
            is_told = (
                not self.plan.is_incremental
                or traffic is not None
                or reply.error_code != ErrorCode.NONE
                or reply.diverging_epoch.epoch != NO_EPOCH
                or session.is_news(reply.high_watermark, reply.log_start_offset)
            )
            session.tell(reply.high_watermark, reply.log_start_offset)
            if is_told:
                told.append((key, reply))
            if read is not None and traffic is not None:
                self.plan.sent(key)
                traffic.sent_bytes += read.size_bytes
        self._found = []
        self.handler.respond(self.request, self.plan, told)

    def release(self) -> None:
        """Gives back what was read, because it was too little to answer."""
        for found in self._found:
            if found.read is not None:
                found.read.release()
        self._found = []

    def partitions(self) -> list[Partition]:
        return [self.handler.find(key) for key, _ in self.plan]


def _divergence(partition: Partition, wanted: Wanted) -> EpochEndOffset | None:
    """Where the reader's history leaves the log's, when it says which epoch it read last."""
    end = partition.end_of_epoch(wanted.last_fetched_epoch)
    if end.epoch == NO_EPOCH and end.end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {wanted.last_fetched_epoch} is not in the log")
    if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
        return EpochEndOffset(end.epoch, end.end_offset)
    return None


class _Waiting:
    """A fetch that waits for records, until one of its partitions moves or its time is over."""

    __slots__ = ("_attempt", "_loop", "_partitions", "_timer")

    def __init__(self, attempt: _Attempt, loop: asyncio.AbstractEventLoop) -> None:
        self._attempt = attempt
        self._loop = loop
        self._partitions: list[Partition] = attempt.partitions()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> None:
        is_over = any(partition.is_closed for partition in self._partitions)  # the broker stops: nothing will come
        for partition in self._partitions:
            partition.watchers[self._moved] = None
        self._timer = self._loop.call_later(0 if is_over else seconds, self._time_is_over)

    def _moved(self, partition: Partition) -> None:
        if self._attempt.read() or partition.is_closed:
            self._end()
            self._attempt.respond()
        else:
            self._attempt.release()

    def _time_is_over(self) -> None:
        self._end()
        self._attempt.read()
        self._attempt.respond()

    def _end(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        for partition in self._partitions:
            partition.watchers.pop(self._moved, None)
