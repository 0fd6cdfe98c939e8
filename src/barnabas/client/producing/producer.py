"""Sends records: batched by partition, each exactly once and in order where the broker can tell (idempotence).

```python
async with Producer(cluster) as producer:
    delivery = await producer.send("orders", b"two coffees", key=b"42")
    print((await delivery).offset)
```

`send_columns` sends many records given as columns, without creating a Python object for each record.

`send` returns as soon as the record is in a batch; awaiting what it returns waits for the broker. `flush` waits for
everything, `status` says what it waits for. At most `buffer_bytes_max` of records wait; then `send` waits for room.

`sender` sends batches, retries them and settles them.
"""

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from barnabas.base.buffers import Buffer
from barnabas.base.ids import NO_TIMESTAMP, Offset, TimestampMs, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.errors import UnknownTopic
from barnabas.client.metadata import TopicMetadata
from barnabas.client.producing.accumulator import Accumulator, PendingBatch
from barnabas.client.producing.delivery_status import DeliveryStatus
from barnabas.client.producing.partitioner import StickyChoice, partition_for_key
from barnabas.client.producing.sender import ACKS_ALL, ProducerOptions, Sender
from barnabas.client.reading.column_builder import record_bytes_max
from barnabas.client.reading.column_rows import columns_bytes, rows_by_partition
from barnabas.net.errors import NetworkFailed
from barnabas.records.kernel import partition_rows
from barnabas.records.results import Columns, NoSuchPartition, PartitionedRows
from barnabas.wire.errors import ErrorCode, KafkaError

__all__ = ["ACKS_ALL", "Delivered", "Delivery", "Producer", "ProducerOptions"]


class Delivered(NamedTuple):
    partition: TopicPartition
    offset: Offset
    """-1 when the broker did not tell: with acks=0, or when it had the batch already."""
    timestamp_ms: TimestampMs


class Delivery:
    """The record's future place in the log: `await` it for that place, or for the error."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: PendingBatch, row: int) -> None:
        self._batch = batch
        self._row = row

    def __await__(self) -> Generator[object, None, Delivered]:
        outcome = yield from asyncio.shield(self._batch.outcome).__await__()
        if outcome.error is not None:
            raise outcome.error
        offset = outcome.base_offset + self._row if outcome.base_offset >= 0 else -1
        timestamp_ms = outcome.append_time_ms
        if timestamp_ms == NO_TIMESTAMP:
            timestamp_ms = self._batch.contents.timestamp(self._row)
        return Delivered(self._batch.partition, offset, timestamp_ms)


class Producer:
    """Stands on a `Cluster`, which its owner closes after it."""

    def __init__(self, cluster: Cluster, options: ProducerOptions | None = None) -> None:
        self._cluster = cluster
        self._options = options or ProducerOptions()
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._sticky = StickyChoice(cluster.source)
        self._keyless_turns: dict[str, int] = {}
        """Whose turn it is among the partitions of a topic to get rows of columns that have no key."""
        self._accumulator = Accumulator(self._options.batch_bytes_max, self._options.linger_seconds, loop.create_future)
        self._sender = Sender(cluster, self._options, self._accumulator)
        self._sending = loop.create_task(self._sender.run(), name="barnabas-producer")
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.flush()
        finally:
            await self.close()

    # --- what callers do ------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: TimestampMs | None = None,
    ) -> Delivery:
        """Puts a record into a batch, waiting for room where there is none."""
        if self._is_closed or self._sending.done():
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the producer is closed")
        metadata = self._cluster.view.topics.get(topic) or await self.find_topic(topic)
        if partition is not None and partition >= len(metadata.partitions):
            metadata = await self._cluster.topic(topic, partition=partition)
        record_bytes = record_bytes_max(key, value, headers)
        if self._accumulator.size_bytes + record_bytes > self._options.buffer_bytes_max:
            await self._wait_for_room(record_bytes)
        chosen = self._choose(metadata, key, partition)
        if timestamp_ms is None:
            timestamp_ms = self._cluster.clock.now_ms()
        now = self._loop.time()
        appended = self._accumulator.append(chosen, timestamp_ms, key, value, headers, record_bytes, now)
        if appended.is_new_batch or appended.is_full:
            self._sender.wake()
        if appended.is_full:
            if key is None and partition is None:
                self._sticky.move_on(topic, self._available(metadata))
            with contextlib.suppress(NetworkFailed, KafkaError):  # the sender meets the same problem, and counts it
                await self._cluster.topic(topic)  # refreshes now and then: partitions may have been added
            await asyncio.sleep(0)  # a caller that never waits would keep the sender from its work
        return Delivery(appended.batch, appended.row)

    async def send_columns(
        self,
        topic: str,
        columns: Columns,
        *,
        partitions: Buffer | None = None,
        row_numbers: Sequence[int] | None = None,
    ) -> None:
        """Puts whole columns into batches, waiting for room where there is none; `flush` tells whether they arrived.

        `partitions` has an int32 for each row, -1 where the key decides. Rows without a key go round the partitions,
        a batch each. Errors name rows by `row_numbers`, or count them from 0. An earlier failure is raised here.
        """
        if self._is_closed or self._sending.done():
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the producer is closed")
        self.raise_failure()
        if not columns.count:
            return
        if row_numbers is None:
            row_numbers = range(columns.count)
        if topic in self._cluster.view.topics:
            metadata = await self._cluster.topic(topic)  # refreshes now and then
        else:
            metadata = await self.find_topic(topic)
        size_bytes = columns_bytes(columns)
        if self._accumulator.size_bytes + size_bytes > self._options.buffer_bytes_max:
            await self._wait_for_room(size_bytes)
        partitioned = await self._partitioned(metadata, columns, partitions, row_numbers, size_bytes)
        now = self._loop.time()
        for index, rows in rows_by_partition(
            columns,
            partitioned,
            row_numbers,
            min(self._options.batch_bytes_max, self._options.record_bytes_max),
        ):
            partition = TopicPartition(topic, index)
            record_bytes = len(rows.section().records)
            if rows.count == 1 and record_bytes > self._options.record_bytes_max:
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"topic '{topic}', partition {index}, {rows.describe(0)}: the record has {record_bytes} bytes, more"
                    f" than the {self._options.record_bytes_max} that max.request.size allows",
                )
            self._accumulator.append_rows(partition, rows, now)
        self._sender.wake()

    async def _partitioned(
        self,
        metadata: TopicMetadata,
        columns: Columns,
        partitions: Buffer | None,
        row_numbers: Sequence[int],
        size_bytes: int,
    ) -> PartitionedRows:
        while True:
            try:
                return self._dealt(metadata, columns, partitions, size_bytes)
            except NoSuchPartition as error:
                metadata = await self._cluster.topic(metadata.name, partition=error.partition)
                count = len(metadata.partitions)
                if not 0 <= error.partition < count:
                    raise UnknownTopic(
                        f"row {row_numbers[error.row]}: topic '{metadata.name}' has partitions 0 to {count - 1},"
                        f" not {error.partition}"
                    ) from error

    def _dealt(
        self, metadata: TopicMetadata, columns: Columns, partitions: Buffer | None, size_bytes: int
    ) -> PartitionedRows:
        available = self._available(metadata)
        turn = self._keyless_turns.get(metadata.name)
        if turn is None:
            turn = self._cluster.source.randrange(len(available))
        start = turn % len(available)
        run_rows = max(1, self._options.batch_bytes_max * columns.count // max(size_bytes, 1))
        partitioned = partition_rows(
            columns, len(metadata.partitions), partitions, available[start:] + available[:start], run_rows
        )
        self._keyless_turns[metadata.name] = turn + -(-partitioned.dealt_rows // run_rows)
        return partitioned

    def raise_failure(self) -> None:
        """Raises the first failure since the last flush, if there was one."""
        failure, self._sender.failure = self._sender.failure, None
        if failure is not None:
            raise failure

    def status(self) -> DeliveryStatus:
        """How far it is, and what keeps it; also after `close`, of what it gave up."""
        return self._sender.status()

    async def flush(self) -> None:
        """Waits until every record so far is delivered or has failed; raises the first failure since the last flush."""
        with self._sender.hurry():
            outcomes = [batch.outcome for batch in self._accumulator.batches()]
            if outcomes:
                await asyncio.wait(outcomes)
        self.raise_failure()

    async def close(self) -> None:
        """Gives up what is not delivered: `flush` first to keep it."""
        self._is_closed = True
        self._sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sending
        await self._cluster.close_lane(self._sender)

    async def find_topic(self, topic: str) -> TopicMetadata:
        """What is known of a topic; waits for one that is not there, which the broker may be creating."""

        async def attempt() -> TopicMetadata:
            try:
                metadata = await self._cluster.topic(topic, may_create=True)
            except UnknownTopic as error:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, error.message) from error
            if not metadata.partitions:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic '{topic}' has no partitions yet")
            return metadata

        timeout_seconds = self._options.topic_timeout_seconds
        try:
            what = f"topic '{topic}' could not be found"
            return await self._cluster.retry(what, attempt, timeout_seconds=timeout_seconds)
        except KafkaError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT and isinstance(error.__cause__, KafkaError):
                raise UnknownTopic(error.__cause__.message) from error
            raise

    async def _wait_for_room(self, record_bytes: int) -> None:
        timeout_seconds = self._options.delivery_timeout_seconds
        try:
            async with asyncio.timeout(timeout_seconds):
                with self._sender.hurry():
                    # A record larger than the buffer waits until it is alone.
                    while 0 < self._accumulator.size_bytes > self._options.buffer_bytes_max - record_bytes:
                        self._sender.room.clear()
                        await self._sender.room.wait()
        except TimeoutError:
            message = (
                f"no buffer space for another record within {timeout_seconds:g} s: the broker accepts records "
                "too slowly"
            )
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None

    def _choose(self, metadata: TopicMetadata, key: bytes | None, partition: int | None) -> TopicPartition:
        if partition is not None:
            chosen = TopicPartition(metadata.name, partition)
            self._cluster.view.partition(chosen)
            return chosen
        if key is not None:
            return TopicPartition(metadata.name, partition_for_key(key, len(metadata.partitions)))
        current = self._sticky.current(metadata.name)
        if current is None:
            current = self._sticky.move_on(metadata.name, self._available(metadata))
        return TopicPartition(metadata.name, current)

    def _available(self, metadata: TopicMetadata) -> list[int]:
        """The partitions that have a leader, or all when none has."""
        led = [one.index for one in metadata.partitions if one.leader_id in self._cluster.view.brokers]
        return led or [one.index for one in metadata.partitions]
