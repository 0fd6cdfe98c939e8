"""Produce, versions 3 to 13: batches into the logs, one write for all of a tick.

- acks=0 has no answer, so a failure closes the connection, as in Kafka; acks=1 is answered when the leader has the
  batch in its log (flushed if the topic asks for it), acks=all when every in-sync replica has it.
- Each partition of a request succeeds or fails alone. Batches that take long to check, and what requests have beyond
  some megabytes, have their turn later (`Admission`). A request for very many partitions is taken in slices; those
  that follow it on its connection wait for it.
- zstd needs version 7. Topics go by id from version 13 on. Errors name records from version 8, the leader from 10.
- Nobody may write to an internal topic: its coordinator does that, without a request. (Kafka lets any client do it that
  calls itself `__admin_client`.)
- A transactional id is refused, with an error at which clients stop at once.
"""

from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Final

from barnabas.base.buffers import Buffer
from barnabas.base.errors import BarnabasError, CorruptBatch, DiskFailed, InvalidRecords
from barnabas.base.ids import Offset
from barnabas.base.named_tuples import new_tuple
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Work
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.records.batch import CODEC_MASK, HEADER_BYTES, MAGIC, PREFIX_BYTES, TRANSACTIONAL, Codec
from barnabas.replication.partition import Partition
from barnabas.storage.log.staging import Appended
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint
from barnabas.wire.produce import (
    READ_TOGETHER,
    ZSTD_FROM,
    Produce,
    ProduceBatch,
    ProduceResult,
    RecordError,
    decode_produce_in_steps,
)
from barnabas.wire.steps import finish_soon

NO_ACKS: Final = 0
ALL_ACKS: Final = -1
_ACKS: Final = (ALL_ACKS, NO_ACKS, 1)
WIDE_BATCHES: Final = 200
"""More batches than this are not taken in one turn of the event loop."""
_NO_OFFSET: Final = -1
_BATCH_START: Final = Struct(">qiib")
"""Base offset, length, leader epoch, magic: what every format of Kafka's begins with, old ones too."""
_RULED: Final = Struct(">qi4xb4xh")
"""Base offset, length, magic and attributes: what this module has rules for. The log reads all of a header."""
_LENGTH_MIN: Final = 14
"""Of a batch in the oldest format."""
_WRONG_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_AWAITED: Final = ProduceResult()


def decode_produce_at_once(version: int, body: memoryview) -> Produce | memoryview:
    """The request object; the body itself if reading it takes long, which the handler then does in slices."""
    produce = finish_soon(decode_produce_in_steps(version, body), WIDE_BATCHES // READ_TOGETHER)
    return body if produce is None else produce


def _go_on() -> None:
    """Whether its client has gone or not: what it has sent is written."""


class ProduceHandler:
    def __init__(self, services: Services) -> None:
        self.replicas = services.replicas
        self.codecs = services.codecs
        self._services = services
        self._allows_all = services.authorizer.allows_all
        self._admission = services.admission

    def __call__(self, request: Request, asked: Produce | memoryview) -> Work | None:
        if isinstance(asked, memoryview):
            return partial(self._serve_wide, request, asked)
        pending = _PendingProduce(self, request, asked)
        count = pending.waiting
        if count > WIDE_BATCHES:
            return partial(self._append_wide, pending)
        if not count:
            pending.finish()
        for place in range(count):
            self._append(pending, place)
        return None

    async def _serve_wide(self, request: Request, body: memoryview) -> None:
        """From the bytes on, in slices."""
        steps = decode_produce_in_steps(request.version, body)
        produce = await self._services.slices.finish(steps, _go_on)
        await self._append_wide(_PendingProduce(self, request, produce))

    async def _append_wide(self, pending: "_PendingProduce") -> None:
        """In the order of the request; ends when nothing is left of it but to wait for the logs."""
        async for place in self._services.slices.each(range(pending.waiting)):
            self._append(pending, place)

    def _append(self, pending: "_PendingProduce", place: int) -> None:
        """Stages one batch, or has it staged when its turn comes; or refuses it."""
        request = pending.request
        acks, batches = pending.acks, pending.batches
        topic, index, records = batches[place]
        told: Partition | None = None
        try:
            if pending.transactional_id is not None:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not supported yet")
            if acks not in _ACKS:
                raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}")
            if not self._allows_all:
                self._services.check_topic(request, Operation.WRITE, self.replicas.topic_name(topic))
            partition = self.replicas.find(topic, index)
            if partition.is_internal:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"{partition.name.topic} is internal: only the broker writes to it",
                )
            if records is None or len(records) < HEADER_BYTES:
                records = _only_batch(records)
            appended = None
            if len(batches) == 1 or self._admission.takes_usual(len(records)):
                told = partition  # from here on an error tells where the log starts
                appended = partition.append_usual(records, acks)
            if appended is None:
                told = None
                records, base_offset = _ruled_batch(records, request.version)
                told = partition
                if base_offset:
                    raise InvalidRecords(f"the base offset of a client's batch must be 0, not {base_offset}")
                if acks == ALL_ACKS:
                    partition.check_in_sync()
        except BarnabasError as error:
            pending.refuse(place, error, _NO_OFFSET if told is None else told.log_start_offset)
            return
        if appended is None:
            self._admission.admit(partition, records, _LaterAppend(pending, place, partition))
        else:
            pending.staged(place, partition, appended)


def _ruled_batch(records: Buffer, version: int) -> tuple[Buffer, Offset]:
    """The batch, if the protocol has no rule against it, and its base offset. The log looks at all the rest."""
    base_offset, length, magic, attributes = _RULED.unpack_from(records)
    if magic != MAGIC or length != len(records) - PREFIX_BYTES:
        records = _only_batch(records)
    if attributes & CODEC_MASK == Codec.ZSTD and version < ZSTD_FROM:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs version {ZSTD_FROM}")
    if attributes & TRANSACTIONAL:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without a transactional id"
        )
    return records, base_offset


def _only_batch(records: Buffer | None) -> Buffer:
    """The batch without the piece of another one behind it, which Kafka drops, too; or what is wrong with it."""
    if records is None or len(records) < _BATCH_START.size:
        raise InvalidRecords("a produce request must have exactly one record batch for each partition")
    _, length, _, magic = _BATCH_START.unpack_from(records)
    if length < _LENGTH_MIN or not 0 <= magic <= MAGIC:
        raise CorruptBatch(f"a batch of {length} bytes with magic {magic}")
    end = PREFIX_BYTES + length
    if magic != MAGIC:
        raise InvalidRecords(f"record batches have magic {MAGIC}, not {magic}")
    if end > len(records):
        raise InvalidRecords(f"the batch has {end} bytes, but only {len(records)} arrived")
    if end < HEADER_BYTES:
        raise CorruptBatch(f"a batch of {end} bytes is smaller than its header")
    rest = memoryview(records)[end:]
    if len(rest) >= _BATCH_START.size and PREFIX_BYTES + _BATCH_START.unpack_from(rest)[1] <= len(rest):
        raise InvalidRecords("a produce request must have exactly one record batch for each partition")
    return memoryview(records)[:end]


class _PendingProduce:
    """A request whose batches are settled one by one; the last one sends the answer."""

    __slots__ = (
        *("_deadline", "_failure", "_handler", "_leaders"),
        *("acks", "batches", "request", "results", "transactional_id", "waiting"),
    )

    def __init__(self, handler: ProduceHandler, request: Request, produce: Produce) -> None:
        self._handler = handler
        self.request = request
        self.transactional_id, self.acks, timeout_ms, self.batches = produce
        self._deadline = request.began + timeout_ms / 1000
        self.waiting = count = len(self.batches)
        """Batches whose result is not known."""
        self.results = [_AWAITED] * count
        self._failure: BarnabasError | None = None
        self._leaders: list[LeaderAndEpoch] | None = None
        """Those that the answer names, because the request came to the wrong broker."""

    def staged(self, place: int, partition: Partition, appended: Appended) -> None:
        """A batch is in line for its log, and is settled when it is there as the request asks for it."""
        base_offset, last_offset, append_time_ms, _ = appended
        self.results[place] = new_tuple(
            ProduceResult, (0, base_offset, append_time_ms, partition.log_start_offset, (), None, NO_LEADER)
        )
        callback = partial(self.settle, place=place) if place else self.settle
        partition.when_committed(last_offset, self.acks, self._deadline, callback)

    def settle(self, error: BarnabasError | None, place: int = 0) -> None:
        """A staged batch is committed, or is not, for a reason."""
        if error is not None:
            self.refuse(place, error, self.results[place].log_start_offset)
            return
        self.waiting -= 1
        if not self.waiting:
            self.finish()

    def refuse(self, place: int, error: BarnabasError, log_start_offset: Offset) -> None:
        self._failure = error
        code, message = refusal_of(error)
        self.request.add_error(code)
        record_errors = (
            [RecordError(one, message) for one in error.indexes] if isinstance(error, InvalidRecords) else ()
        )
        start = log_start_offset if _tells_start(error) else _NO_OFFSET
        leader = NO_LEADER
        if code in _WRONG_LEADER:
            leader = self._leader_of(self.batches[place])
        self.results[place] = ProduceResult(code, _NO_OFFSET, -1, start, record_errors, message, leader)
        self.waiting -= 1
        if not self.waiting:
            self.finish()

    def _leader_of(self, batch: ProduceBatch) -> LeaderAndEpoch:
        leader = self._handler.replicas.leader_of(batch.topic, batch.partition)
        if leader is not NO_LEADER:
            if self._leaders is None:
                self._leaders = []
            self._leaders.append(leader)
        return leader

    def finish(self) -> None:
        request = self.request
        if self.acks == NO_ACKS:
            if self._failure is None:
                request.respond_nothing()
            else:
                request.refuse(self._failure)
            return
        handler = self._handler
        endpoints: Sequence[NodeEndpoint] = ()
        if self._leaders is not None:
            endpoints = handler.replicas.endpoints_of(self._leaders, request.caller.listener)
        request.answer(
            handler.codecs.produced(
                request.version,
                request.correlation_id,
                request.throttle_ms,
                self.batches,
                self.results,
                endpoints,
            )
        )


def _tells_start(error: BarnabasError) -> bool:
    """Whether Kafka tells where the log starts: with an error that comes out of a log in order."""
    is_of_the_batch = isinstance(error, CorruptBatch) and not isinstance(error, InvalidRecords)
    is_too_large = isinstance(error, KafkaError) and error.code == ErrorCode.MESSAGE_TOO_LARGE
    return not (is_of_the_batch or is_too_large or isinstance(error, DiskFailed))


class _LaterAppend:
    """A batch that is in line to be checked before its log takes it."""

    __slots__ = ("_partition", "_pending", "_place")

    def __init__(self, pending: _PendingProduce, place: int, partition: Partition) -> None:
        self._pending = pending
        self._place = place
        self._partition = partition

    def staged(self, appended: Appended) -> None:
        self._pending.staged(self._place, self._partition, appended)

    def refuse(self, error: BarnabasError) -> None:
        self._pending.refuse(self._place, error, self._partition.log_start_offset)
