"""The half of a producer that talks to the brokers: it encodes, sends and settles the batches that are ready.

One task runs it. It starts a request for all the ready partitions of a leader, several at a time; the accumulator
ensures that no partition is in two of them.

What becomes of a batch:

| the answer | the batch | the sequence numbers |
|---|---|---|
| taken, or known already | delivered | go on |
| a lost connection, no answer, a retriable error | sent again, the same bytes, until its time is over | stay |
| too large, and more than one row of columns | parted and sent again | are free again |
| refused for good | failed | are free again |
| its time is over: it may or may not be in the log | failed | restart, with a new producer id |
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from barnabas.base.ids import NO_SEQUENCE, NO_TIMESTAMP, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.errors import raise_for
from barnabas.client.producing.accumulator import (
    NO_IDENTITY,
    Accumulator,
    BatchOutcome,
    PendingBatch,
    ProducerIdentity,
)
from barnabas.client.producing.delivery_status import DeliveryStatus, Obstacle, Problem
from barnabas.client.reading.column_rows import ColumnRows
from barnabas.net.errors import NetworkFailed
from barnabas.records.batch import Codec, advance_sequence
from barnabas.records.columns import build_batch
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.wire.leaders import NodeEndpoint
from barnabas.wire.produce import TOPIC_ID_FROM
from barnabas.wire.produce_request import ProducePartition, ProduceRequest, ProduceTopic
from barnabas.wire.produce_response import ProducePartitionReply

_LOG = logging.getLogger(__name__)

ACKS_ALL: Final = -1
_OFF_LOOP_BYTES_MIN: Final = 32 << 10
"""Compressing more than this would hold up the event loop."""
_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1
"""Means nothing without a transactional id, but has to be there."""
_DELIVERED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_IDENTITY_LOST: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    acks: int = ACKS_ALL
    is_idempotent: bool = True
    """Needs acks=all; with fewer it is off."""
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    batch_bytes_max: int = 128 << 10
    linger_seconds: float = 0.005
    buffer_bytes_max: int = 32 << 20
    request_bytes_max: int = 8 << 20
    delivery_timeout_seconds: float = 120.0
    record_bytes_max: int = 1 << 20
    """A larger row of columns is refused before it is sent; single records are left to the broker."""
    topic_timeout_seconds: float = 5.0
    """How long `send` waits for a topic that is not there yet: the broker may be creating it."""


class Sender:
    """`run` is the task; everything else is called from the same loop. `room` is set whenever a batch has gone."""

    def __init__(self, cluster: Cluster, options: ProducerOptions, accumulator: Accumulator) -> None:
        self._cluster = cluster
        self._options = options
        self._accumulator = accumulator
        self._loop = asyncio.get_running_loop()
        self._is_idempotent = options.is_idempotent and options.acks == ACKS_ALL
        self._identity = NO_IDENTITY
        self._identifying = asyncio.Lock()
        self._sequences: dict[TopicPartition, tuple[ProducerIdentity, int]] = {}
        self._wake = asyncio.Event()
        self._hurries = 0
        self.room = asyncio.Event()
        self.failure: KafkaError | None = None
        """The first since somebody took it."""
        self._delivered_records = 0
        self._failed_records = 0

    def status(self) -> DeliveryStatus:
        return DeliveryStatus(
            self._delivered_records,
            self._failed_records,
            sum(batch.contents.count for batch in self._accumulator.batches()),
            tuple(
                Obstacle(batch.partition, self._leader(batch.partition), batch.problem)
                for batch in self._accumulator.oldest()
            ),
        )

    def _leader(self, partition: TopicPartition) -> NodeEndpoint | None:
        view = self._cluster.view
        try:
            return view.brokers[view.leader(partition).leader_id]
        except KafkaError:
            return None

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    @contextlib.contextmanager
    def hurry(self) -> Iterator[None]:
        """Meanwhile no batch waits for more records."""
        self._hurries += 1
        self._wake.set()
        try:
            yield
        finally:
            self._hurries -= 1

    async def run(self) -> None:
        """Until it is cancelled; what is not delivered by then has failed."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._wake.clear()
                    for batches in self._take_ready():
                        group.create_task(self._deliver(batches))
                    await self._wait_for_work()
        finally:
            for batch in self._accumulator.batches():
                if not batch.outcome.done():
                    error = KafkaError(
                        ErrorCode.UNKNOWN_SERVER_ERROR, "the producer was closed before it was delivered"
                    )
                    batch.outcome.set_result(BatchOutcome(-1, NO_TIMESTAMP, error))
            self.room.set()

    async def _wait_for_work(self) -> None:
        ready_at = self._accumulator.next_ready_at(is_urgent=self._hurries > 0)
        if ready_at is None:
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ready_at):
                await self._wake.wait()

    def _take_ready(self) -> list[list[PendingBatch]]:
        """The batches that may go, by leader and in requests of bounded size. One without a leader goes alone."""
        requests: list[list[PendingBatch]] = []
        open_requests: dict[int, tuple[list[PendingBatch], int]] = {}
        for batch in list(self._accumulator.ready(self._loop.time(), is_urgent=self._hurries > 0)):
            self._accumulator.take(batch)
            try:
                leader_id = self._cluster.view.leader(batch.partition).leader_id
            except KafkaError:
                requests.append([batch])
                continue
            request, size_bytes = open_requests.get(leader_id, ([], 0))
            if not request or size_bytes + batch.size_bytes > self._options.request_bytes_max:
                request, size_bytes = [], 0
                requests.append(request)
            request.append(batch)
            open_requests[leader_id] = (request, size_bytes + batch.size_bytes)
        return requests

    # --- a request ------------------------------------------------------------------------------------------

    async def _deliver(self, batches: Sequence[PendingBatch]) -> None:
        """Sends batches that have one leader, and settles each by the answer."""
        topics = dict.fromkeys(batch.partition.topic for batch in batches)
        try:
            if self._is_idempotent and self._identity == NO_IDENTITY:
                await self._identify()
            for batch in batches:
                await self._encode(batch)
            leader_id = self._cluster.view.leader(batches[0].partition).leader_id
            connection = await self._cluster.connection(leader_id, lane=self)
            has_ids = connection.version(ApiKey.PRODUCE) >= TOPIC_ID_FROM
            topic_ids = {topic: self._cluster.view.topic(topic).topic_id for topic in topics}
            response = await connection.produce(self._request(batches, topic_ids))
        except (NetworkFailed, KafkaError, MalformedMessage) as error:
            for batch in batches:
                self._settle_error(batch, error)
            await self._refresh(topics)
            return
        if response is None:
            for batch in batches:
                self._finish(batch, BatchOutcome(-1, NO_TIMESTAMP, None))
            return
        names = {topic_id: topic for topic, topic_id in topic_ids.items()}
        replies = {
            TopicPartition(names.get(topic.topic_id, "") if has_ids else topic.name, reply.index): reply
            for topic in response.topics
            for reply in topic.partitions
        }
        stale = set()
        for batch in batches:
            reply = replies.get(batch.partition) or ProducePartitionReply(
                batch.partition.partition,
                ErrorCode.UNKNOWN_SERVER_ERROR,
                error_message="the response did not include it",
            )
            if not self._settle(batch, reply) and not self._cluster.learn_leader(
                batch.partition, reply.current_leader, response.node_endpoints
            ):
                stale.add(batch.partition.topic)
        if stale:
            await self._refresh(stale)

    async def _identify(self) -> None:
        async with self._identifying:
            if self._identity != NO_IDENTITY:
                return
            connection = await self._cluster.any_connection()
            values = {"transactional_id": None, "transaction_timeout_ms": _TRANSACTION_TIMEOUT_MS}
            reply = await connection.call(ApiKey.INIT_PRODUCER_ID, values)
            raise_for(reply.error_code.value, "the producer could not get an id")
            self._identity = ProducerIdentity(reply.producer_id, reply.producer_epoch)
            _LOG.debug("producer has an id", extra={"producer_id": reply.producer_id})

    async def _encode(self, batch: PendingBatch) -> None:
        """Once for a batch: a retry must be the same bytes."""
        if batch.encoded is not None:
            return
        count = batch.contents.count
        if self._is_idempotent:
            identity, sequence = self._sequences.get(batch.partition, (NO_IDENTITY, 0))
            if identity != self._identity:
                identity, sequence = self._identity, 0
            batch.identity, batch.base_sequence = identity, sequence
            self._sequences[batch.partition] = (identity, advance_sequence(sequence, count))
        options = self._options
        encode = partial(
            build_batch,
            batch.contents.section(),
            codec=options.codec,
            compression_level=options.compression_level,
            producer_id=batch.identity.producer_id,
            producer_epoch=batch.identity.producer_epoch,
            base_sequence=batch.base_sequence,
        )
        if options.codec is Codec.NONE or batch.size_bytes < _OFF_LOOP_BYTES_MIN:
            batch.encoded = encode()
        else:
            batch.encoded = await asyncio.to_thread(encode)

    def _request(self, batches: Sequence[PendingBatch], topic_ids: dict[str, UUID]) -> ProduceRequest:
        members: dict[str, list[ProducePartition]] = {topic: [] for topic in topic_ids}
        for batch in batches:
            members[batch.partition.topic].append(ProducePartition(batch.partition.partition, batch.encoded))
        timeout_ms = int(self._cluster.options.connection.request_timeout_seconds * 1000)
        topics = [ProduceTopic(topic, topic_id, members[topic]) for topic, topic_id in topic_ids.items()]
        return ProduceRequest(None, self._options.acks, timeout_ms, topics)

    async def _refresh(self, topics: Collection[str]) -> None:
        with contextlib.suppress(NetworkFailed, KafkaError):  # the next try meets the same problem, and counts it
            await self._cluster.refresh(topics)

    # --- what became of it ----------------------------------------------------------------------------------

    def _settle(self, batch: PendingBatch, reply: ProducePartitionReply) -> bool:
        """Whether the batch is settled; else it will be sent again."""
        code = ErrorCode.of(reply.error_code)
        if code in _DELIVERED:
            self._finish(batch, BatchOutcome(reply.base_offset, reply.log_append_time_ms, None))
            return True
        if code is ErrorCode.MESSAGE_TOO_LARGE and self._part(batch):
            return True
        reasons = [reply.error_message, *(error.message for error in reply.record_errors[:1])]
        reason = "; ".join(dict.fromkeys(filter(None, reasons)))
        if code is ErrorCode.MESSAGE_TOO_LARGE and not reason:
            reason = f"a batch of up to {batch.size_bytes} bytes is larger than the topic accepts (max.message.bytes)"
        subject = _subject(batch, reply.record_errors[0].index if reply.record_errors else None)
        return self._settle_error(batch, KafkaError(code, f"{subject}: {reason}" if reason else subject))

    def _part(self, batch: PendingBatch) -> bool:
        """Sends the batch again as two, if it can be parted."""
        parts = batch.contents.halves() if isinstance(batch.contents, ColumnRows) else []
        if not parts:
            return False
        self._take_sequence_back(batch, is_identity_lost=False)
        self._accumulator.part(batch, parts)
        self._wake.set()
        return True

    def _settle_error(self, batch: PendingBatch, error: Problem) -> bool:
        now = self._loop.time()
        if isinstance(error, KafkaError) and not error.code.is_retriable:
            self._take_sequence_back(batch, is_identity_lost=error.code in _IDENTITY_LOST)
            self._finish(batch, BatchOutcome(-1, NO_TIMESTAMP, error))
            return True
        timeout_seconds = self._options.delivery_timeout_seconds
        if now < batch.opened_at + timeout_seconds:
            self._accumulator.put_back(batch, now + self._cluster.backoff_seconds(batch.tries), error)
            self._wake.set()
            return False
        self._take_sequence_back(batch, is_identity_lost=True)
        message = f"{_subject(batch)}: not delivered within {timeout_seconds:g} s; the last problem was: {error}"
        self._finish(batch, BatchOutcome(-1, NO_TIMESTAMP, KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)))
        return True

    def _take_sequence_back(self, batch: PendingBatch, *, is_identity_lost: bool) -> None:
        if batch.base_sequence == NO_SEQUENCE:
            return
        if is_identity_lost:
            if self._identity == batch.identity:
                self._identity = NO_IDENTITY
        else:
            self._sequences[batch.partition] = (batch.identity, batch.base_sequence)

    def _finish(self, batch: PendingBatch, outcome: BatchOutcome) -> None:
        self._accumulator.finish(batch)
        batch.encoded = None
        batch.contents.forget_contents()
        if outcome.error is None:
            self._delivered_records += batch.contents.count
        else:
            self._failed_records += batch.contents.count
            self.failure = self.failure or outcome.error
        batch.outcome.set_result(outcome)
        self.room.set()
        self._wake.set()


def _subject(batch: PendingBatch, record: int | None = None) -> str:
    """What an error is about: the partition, and of columns also the row."""
    if isinstance(batch.contents, ColumnRows):
        topic, partition = batch.partition
        return f"topic '{topic}', partition {partition}, {batch.contents.describe(record)}"
    return str(batch.partition)
