"""Produce, versions 3 to 13: batches into the logs, one write for all of a tick.

The usual request, one batch for one partition, takes a shorter way (`take_sole`) to the same end. Batches that take
long to check, and what requests have beyond some megabytes, have their turn later (`Admission`).

acks=0 has no answer, so a failure closes the connection, as in Kafka; acks=1 and acks=all are answered when the record
is in the log, flushed if the topic asks for it, and, for all, on every in-sync replica. Each partition of a request
succeeds or fails alone.

Nobody may write to an internal topic: its coordinator does that, without a request. (Kafka lets any client do it that
calls itself `__admin_client`.) A transactional id is refused: with an error at which clients stop at once.
"""

from struct import Struct
from typing import Final

from barnabas.base.errors import BarnabasError, CorruptBatch, DiskFailed, InvalidRecords
from barnabas.base.filesystem import Buffer
from barnabas.base.ids import Offset
from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.dispatch import ClientConnection
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.request_measures import RequestMeasures
from barnabas.net.replies import ReplySlot
from barnabas.records.batch import CODEC_MASK, HEADER_BYTES, MAGIC, PREFIX_BYTES, TRANSACTIONAL, Codec
from barnabas.replication.admission import Admission
from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas
from barnabas.storage.staging import Appended
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch
from barnabas.wire.produce_request import ProducePartition, ProduceTopic, decode_produce_request
from barnabas.wire.produce_response import (
    ProducePartitionReply,
    ProduceResponse,
    ProduceTopicReply,
    RecordError,
    encode_produce_response,
)
from barnabas.wire.sole_produce import SoleProduce, read_sole_produce, write_sole_reply

NO_ACKS: Final = 0
ALL_ACKS: Final = -1
_TIMEOUT_SECONDS: Final = 30.0
"""Of requests whose own is not read."""
_ACKS: Final = (ALL_ACKS, NO_ACKS, 1)
_ZSTD_FROM: Final = 7
_NO_OFFSET: Final = -1
_BATCH_START: Final = Struct(">qiib")
"""Base offset, length, leader epoch, magic: what every format of Kafka's begins with, old ones too."""
_OFFSET_AND_ATTRIBUTES: Final = Struct(">q13xh")
"""What is needed here of a whole header (`barnabas.records.batch`); the log reads all of it."""
_LENGTH_MIN: Final = 14
"""Of a batch in the oldest format."""


class ProduceHandler:
    def __init__(self, replicas: Replicas, admission: Admission, measures: RequestMeasures) -> None:
        """`measures` are for those requests that never become a `Request`."""
        self.replicas = replicas
        self.now = measures.now
        self.seconds = measures.seconds[ApiKey.PRODUCE]
        self._admission = admission

    def take_sole(self, frame: memoryview, slot: ReplySlot, client: ClientConnection) -> bool:
        """The usual request on the shortest way. False leaves it to the long one, which also says what is wrong."""
        sole = read_sole_produce(frame)
        if sole is None:
            return False
        _, _, _, acks, topic, index, start, end = sole
        try:
            partition = self.replicas.find(topic, index)
        except KafkaError:
            return False
        if partition.is_internal:
            return False
        append = _SoleAppend(self, sole, frame, slot, client, partition)
        batch = frame[start:end]
        try:
            if acks == ALL_ACKS:
                partition.check_in_sync()
            appended = partition.append_usual(batch)
        except BarnabasError as error:
            append.refuse(error)
            return True
        if appended is None:
            self._admission.admit(partition, batch, append)
        else:
            append.staged(appended)
        return True

    def __call__(self, request: Request) -> None:
        produce = decode_produce_request(request.version, request.body)
        deadline = self.now() + produce.timeout_ms / 1000
        pending = _PendingProduce(request, produce.acks, self.replicas, deadline)
        for topic in produce.topics:
            reply: list[ProducePartitionReply] = []
            pending.topics.append(ProduceTopicReply(topic.name, topic.topic_id, reply))
            for partition in topic.partitions:
                try:
                    if produce.transactional_id is not None:
                        raise KafkaError(
                            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported yet"
                        )
                    if produce.acks not in _ACKS:
                        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={produce.acks}")
                    self._append(request, topic, partition, pending, reply)
                except BarnabasError as error:
                    pending.refused(reply, partition.index, error, self._leader(topic, partition, error))
        pending.settle()

    def _append(
        self,
        request: Request,
        topic: ProduceTopic,
        wanted: ProducePartition,
        pending: "_PendingProduce",
        reply: list[ProducePartitionReply],
    ) -> None:
        partition = self.replicas.find(_topic_of(topic), wanted.index)
        if partition.is_internal:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.name.topic} is internal: only the broker writes to it"
            )
        records = _only_batch(wanted.records)
        base_offset, attributes = _OFFSET_AND_ATTRIBUTES.unpack_from(records)
        if request.version < _ZSTD_FROM and attributes & CODEC_MASK == Codec.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs version {_ZSTD_FROM}")
        if attributes & TRANSACTIONAL:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
            )
        pending.wait()
        append = _PartitionAppend(pending, reply, partition)
        appended = None
        try:
            if base_offset != 0:
                raise InvalidRecords(f"the base offset of a client's batch is 0, not {base_offset}")
            if pending.acks == ALL_ACKS:
                partition.check_in_sync()
            if self._admission.takes_usual(len(records)):
                appended = partition.append_usual(records)
        except BarnabasError as error:
            append.refuse(error)
            return
        if appended is None:
            self._admission.admit(partition, records, append)
        else:
            append.staged(appended)

    def _leader(self, topic: ProduceTopic, wanted: ProducePartition, error: BarnabasError) -> LeaderAndEpoch:
        if isinstance(error, KafkaError) and error.code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.FENCED_LEADER_EPOCH,
        ):
            return self.replicas.leader_of(_topic_of(topic), wanted.index)
        return NO_LEADER


def _topic_of(topic: ProduceTopic) -> str | bytes:
    return topic.name if topic.topic_id == ZERO_UUID else topic.topic_id.bytes


def _only_batch(records: Buffer | None) -> Buffer:
    """The one batch that there must be. A piece of another one behind it is dropped, as Kafka does."""
    if records is None or len(records) < _BATCH_START.size:
        raise InvalidRecords("a produce request has exactly one record batch for each partition")
    _, length, _, magic = _BATCH_START.unpack_from(records)
    if length < _LENGTH_MIN or not 0 <= magic <= MAGIC:
        raise CorruptBatch(f"a batch of {length} bytes with magic {magic}")
    end = PREFIX_BYTES + length
    if magic != MAGIC:
        raise InvalidRecords(f"record batches have magic {MAGIC}, not {magic}")
    if end > len(records):
        raise InvalidRecords(f"the batch has {end} bytes, of which {len(records)} came")
    if end < HEADER_BYTES:
        raise CorruptBatch(f"a batch of {end} bytes is smaller than its header")
    if end == len(records):
        return records
    rest = memoryview(records)[end:]
    if len(rest) >= _BATCH_START.size and PREFIX_BYTES + _BATCH_START.unpack_from(rest)[1] <= len(rest):
        raise InvalidRecords("a produce request has exactly one record batch for each partition")
    return memoryview(records)[:end]


def _told_start(partition: Partition, error: BarnabasError) -> Offset:
    """Where the log starts, which Kafka tells with an error that comes out of a log in order."""
    is_of_the_batch = isinstance(error, CorruptBatch) and not isinstance(error, InvalidRecords)
    is_too_large = isinstance(error, KafkaError) and error.code == ErrorCode.MESSAGE_TOO_LARGE
    if is_of_the_batch or is_too_large or isinstance(error, DiskFailed):
        return _NO_OFFSET
    return partition.log_start_offset


class _SoleAppend:
    """A request for one partition on its way to the disk. The tick calls it when it is there, or is not to be."""

    __slots__ = ("_began", "_client", "_frame", "_handler", "_partition", "_slot", "_sole", "appended")

    appended: Appended

    def __init__(
        self,
        handler: ProduceHandler,
        sole: SoleProduce,
        frame: memoryview,
        slot: ReplySlot,
        client: ClientConnection,
        partition: Partition,
    ) -> None:
        self._handler = handler
        self._sole = sole
        self._frame = frame
        self._slot = slot
        self._client = client
        self._partition = partition
        self._began = handler.now()

    def staged(self, appended: Appended) -> None:
        self.appended = appended
        deadline = self._began + _TIMEOUT_SECONDS
        self._partition.when_committed(appended.last_offset, self._sole[3], deadline, self)

    def __call__(self, error: BarnabasError | None) -> None:
        if error is not None:
            self.refuse(error)
            return
        version, correlation_id, _, _, topic, index, _, _ = self._sole
        base_offset, _, append_time_ms, _ = self.appended
        log_start_offset = self._partition.log_start_offset
        self._slot.complete(
            write_sole_reply(version, correlation_id, topic, index, base_offset, append_time_ms, log_start_offset)
        )
        handler = self._handler
        handler.seconds.observe(handler.now() - self._began)

    def refuse(self, error: BarnabasError) -> None:
        """Answers as the long way does."""
        request = self._client.request_in(self._frame, self._slot)
        asked = decode_produce_request(request.version, request.body)
        pending = _PendingProduce(request, asked.acks, self._handler.replicas, self._began)
        reply: list[ProducePartitionReply] = []
        (topic,) = asked.topics
        pending.topics.append(ProduceTopicReply(topic.name, topic.topic_id, reply))
        pending.refused(reply, topic.partitions[0].index, error, NO_LEADER, _told_start(self._partition, error))
        pending.settle()


class _PartitionAppend:
    """One batch of a request that may have many, on its way to the disk."""

    __slots__ = ("_partition", "_pending", "_reply", "appended")

    appended: Appended

    def __init__(self, pending: "_PendingProduce", reply: list[ProducePartitionReply], partition: Partition) -> None:
        self._pending = pending
        self._reply = reply
        self._partition = partition

    def staged(self, appended: Appended) -> None:
        self.appended = appended
        self._partition.when_committed(appended.last_offset, self._pending.acks, self._pending.deadline, self)

    def __call__(self, error: BarnabasError | None) -> None:
        if error is not None:
            self.refuse(error)
            return
        self._pending.appended(self._reply, self._partition, self.appended)
        self._pending.settle()

    def refuse(self, error: BarnabasError) -> None:
        partition = self._partition
        self._pending.refused(self._reply, partition.name.partition, error, NO_LEADER, _told_start(partition, error))
        self._pending.settle()


class _PendingProduce:
    """A request whose partitions are answered one by one; the last one sends the answer."""

    __slots__ = ("_failure", "_leaders", "_replicas", "_request", "_waiting", "acks", "deadline", "topics")

    def __init__(self, request: Request, acks: int, replicas: Replicas, deadline: float) -> None:
        self._request = request
        self._replicas = replicas
        self._leaders: list[LeaderAndEpoch] = []
        """Those that the answer names, because the request came to the wrong broker."""
        self._waiting = 1
        """Partitions that are on their way to the disk, and one for the request that is still being read."""
        self._failure: BarnabasError | None = None
        self.acks = acks
        self.deadline = deadline
        self.topics: list[ProduceTopicReply] = []

    def wait(self) -> None:
        self._waiting += 1

    def appended(self, reply: list[ProducePartitionReply], partition: Partition, appended: Appended) -> None:
        reply.append(
            ProducePartitionReply(
                partition.name.partition,
                ErrorCode.NONE,
                appended.base_offset,
                appended.append_time_ms,
                partition.log_start_offset,
            )
        )

    def refused(
        self,
        reply: list[ProducePartitionReply],
        index: int,
        error: BarnabasError,
        leader: LeaderAndEpoch,
        log_start_offset: Offset = _NO_OFFSET,
    ) -> None:
        self._failure = error
        if leader is not NO_LEADER:
            self._leaders.append(leader)
        code, message = refusal_of(error)
        self._request.add_error(code)
        errors = [RecordError(place, message) for place in error.indexes] if isinstance(error, InvalidRecords) else ()
        reply.append(
            ProducePartitionReply(
                index,
                code,
                log_start_offset=log_start_offset,
                record_errors=errors,
                error_message=message,
                current_leader=leader,
            )
        )

    def settle(self) -> None:
        """One of those that were waited for is done."""
        self._waiting -= 1
        if self._waiting:
            return
        request = self._request
        if self.acks != NO_ACKS:
            response = ProduceResponse(self.topics, throttle_time_ms=request.throttle_ms)
            if self._leaders:
                response.node_endpoints = self._replicas.endpoints_of(self._leaders, request.listener)
            request.respond(encode_produce_response(request.version, response))
        elif self._failure is not None:
            request.refuse(self._failure)
        else:
            request.respond_nothing()
