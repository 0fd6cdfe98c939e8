"""What a fetch reads of its partitions, and what of it goes into the answer.

An error in any partition answers at once. The first batch of the first partition that has one comes whole, however
small the limits are, so that a reader always gets on; after that the limits of partition and answer hold.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_EPOCH
from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.fetch_sessions import FetchPlan, PartitionKey, SessionPartition, Wanted
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.replication.partition import Partition, PartitionRead
from barnabas.replication.replicas import Replicas
from barnabas.storage.traffic import TopicTraffic
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch_request import FetchRequest
from barnabas.wire.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionReply,
    FetchResponse,
    FetchTopicReply,
)
from barnabas.wire.leaders import LeaderAndEpoch

READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = (0, READ_COMMITTED)


def wanted_of(fetch: FetchRequest) -> Iterator[tuple[PartitionKey, SessionPartition]]:
    for topic in fetch.topics:
        for one in topic.partitions:
            wanted = Wanted(one.fetch_offset, one.bytes_max, one.current_leader_epoch, one.last_fetched_epoch)
            yield PartitionKey(topic.name, topic.topic_id, one.index), SessionPartition(wanted)


class _Found(NamedTuple):
    """What one partition has for a fetch."""

    key: PartitionKey
    session: SessionPartition
    reply: FetchPartitionReply
    read: PartitionRead | None = None
    """None when there was nothing to read: an error, or another history."""
    traffic: TopicTraffic | None = None
    """Where the records are counted if they are sent; None when there are none."""


class Attempt:
    """Reads everything that a fetch asks for, once or again."""

    __slots__ = ("_bytes", "_found", "_is_urgent", "_replicas", "bytes_max", "fetch", "plan", "request")

    def __init__(
        self, replicas: Replicas, request: Request, fetch: FetchRequest, plan: FetchPlan, bytes_max: int
    ) -> None:
        """`bytes_max` holds whatever the client asks for."""
        self._replicas = replicas
        self.bytes_max = min(fetch.bytes_max, bytes_max)
        self.request = request
        self.plan = plan
        self.fetch = fetch
        self._bytes = 0
        self._is_urgent = False
        self._found: list[_Found] = []

    def read(self) -> bool:
        """Whether what was found is to be answered at once."""
        self.begin()
        self.read_some(self.plan)
        return self.is_enough

    def begin(self) -> None:
        """Before anything is read, or read again."""
        self._found = []
        self._bytes = 0
        self._is_urgent = False

    def read_some(self, partitions: Iterable[tuple[PartitionKey, SessionPartition]]) -> None:
        for key, session in partitions:
            try:
                found = self._read_partition(key, session, self.bytes_max - self._bytes)
            except BarnabasError as error:
                self._is_urgent = True
                found = _Found(key, session, FetchPartitionReply(key.partition, refusal_of(error).code))
            if found.read is not None:
                self._bytes += found.read.size_bytes
            self._found.append(found)

    @property
    def is_enough(self) -> bool:
        """Whether what was read is to be answered at once."""
        return self._is_urgent or self._bytes >= self.fetch.bytes_min

    def _read_partition(self, key: PartitionKey, session: SessionPartition, left: int) -> _Found:
        wanted = session.wanted
        partition = self.find(key)
        if wanted.max_bytes < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a limit of {wanted.max_bytes} bytes")
        partition.check_leader_epoch(max(wanted.leader_epoch, NO_EPOCH))  # any negative number is no epoch here
        if wanted.last_fetched_epoch >= 0:
            diverging = _divergence(partition, wanted)
            if diverging is not None:
                self._is_urgent = True
                offsets = (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset)
                reply = FetchPartitionReply(key.partition, ErrorCode.NONE, *offsets, diverging_epoch=diverging)
                return _Found(key, session, reply)
        found = partition.read(
            wanted.fetch_offset,
            max(0, min(wanted.max_bytes, left)),
            is_committed_only=self.fetch.isolation_level == READ_COMMITTED,
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

    def told(self) -> Iterator[tuple[PartitionKey, FetchPartitionReply]]:
        """What the answer has of what was read last; of a session only what is news."""
        for key, session, reply, read, traffic in self._found:
            is_told = (
                not self.plan.is_incremental
                or traffic is not None
                or reply.error_code != ErrorCode.NONE
                or reply.diverging_epoch.epoch != NO_EPOCH
                or session.is_news(reply.high_watermark, reply.log_start_offset)
            )
            session.tell(reply.high_watermark, reply.log_start_offset)
            if read is not None and traffic is not None:
                self.plan.sent(key)
                traffic.sent_bytes += read.size_bytes
            if is_told:
                if reply.error_code:
                    self.request.add_error(reply.error_code)
                yield key, reply

    def forget(self) -> None:
        """What was read is on its way: whoever sends it releases it."""
        self._found = []

    def release(self) -> None:
        """Gives back what was read, because it was too little to answer."""
        for found in self._found:
            if found.read is not None:
                found.read.release()
        self._found = []

    def find(self, key: PartitionKey) -> Partition:
        return self._replicas.find(_topic_of(key), key.partition)


def _divergence(partition: Partition, wanted: Wanted) -> EpochEndOffset | None:
    """Where the reader's history leaves the log's, when it says which epoch it read last."""
    end = partition.end_of_epoch(wanted.last_fetched_epoch)
    if end.epoch == NO_EPOCH and end.end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {wanted.last_fetched_epoch} is not in the log")
    if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
        return EpochEndOffset(end.epoch, end.end_offset)
    return None


def _topic_of(key: PartitionKey) -> str | bytes:
    return key.topic if key.topic_id == ZERO_UUID else key.topic_id.bytes


class GatheredReplies:
    """The partitions of an answer by their topics, with the leaders of those that are led elsewhere."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._topics: list[FetchTopicReply] = []
        self._partitions: list[FetchPartitionReply] = []
        self._leaders: list[LeaderAndEpoch] = []
        self._last: tuple[str, object] | None = None

    def add(self, key: PartitionKey, reply: FetchPartitionReply) -> None:
        if self._last != (key.topic, key.topic_id):
            self._last = (key.topic, key.topic_id)
            self._partitions = []
            self._topics.append(FetchTopicReply(key.topic, key.topic_id, self._partitions))
        if reply.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            reply.current_leader = self._replicas.leader_of(_topic_of(key), key.partition)
            self._leaders.append(reply.current_leader)
        self._partitions.append(reply)

    def response(self, request: Request, plan: FetchPlan) -> FetchResponse:
        endpoints = self._replicas.endpoints_of(self._leaders, request.listener) if self._leaders else ()
        return FetchResponse(
            self._topics,
            session_id=plan.session_id,
            node_endpoints=endpoints,
            throttle_time_ms=request.throttle_ms,
        )
