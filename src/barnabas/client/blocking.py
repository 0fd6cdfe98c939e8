"""The client for code that has no event loop: the same calls, which wait.

```python
with BlockingClient("localhost:9092") as client:
    client.create_topic("orders")
    client.produce("orders", [b"two coffees", b"a tea"])
    for record in client.read("orders"):
        print(record.value)
```

An event loop runs in its own thread while the client is open. The objects behind it are the asynchronous ones; use
them for calls that are missing here: `client.wait_for(client.admin.delete_records(...))`. Several threads may share a
client; each call waits for its own result.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import uvloop

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.admin import BROKER_DEFAULT, Admin, CreatedTopic
from barnabas.client.cluster import Cluster, ClusterOptions
from barnabas.client.group.group_offsets import OffsetAndMetadata, commit_offsets, committed_offsets
from barnabas.client.metadata import TopicMetadata
from barnabas.client.offsets import Isolation, end_offsets, start_offsets
from barnabas.client.producing.producer import Delivered, Delivery, Producer, ProducerOptions
from barnabas.client.reading.consumer import Consumer, ConsumerOptions
from barnabas.client.reading.fetched import ConsumedRecord

_STOP_SECONDS_MAX: Final = 10.0

_Result = TypeVar("_Result")


class BlockingClient:
    """`with BlockingClient(...) as client:`; ClusterUnreachable at once when no broker answers."""

    def __init__(self, bootstrap: str, options: ClusterOptions | None = None) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="barnabas-client", daemon=True)
        self.cluster: Cluster
        self.admin: Admin

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.cluster = self.wait_for(self._open())
        except BaseException:
            self._stop()
            raise
        self.admin = Admin(self.cluster)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait_for(self.cluster.close())
        finally:
            self._stop()

    async def _open(self) -> Cluster:
        return await Cluster(self._bootstrap, self._options).__aenter__()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS_MAX)
        self._loop.close()

    def wait_for(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Runs a coroutine of the client's objects and returns its result. Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    # --- topics ---------------------------------------------------------------------------------------------

    def topics(self) -> list[TopicMetadata]:
        return self.wait_for(self.admin.topics())

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> CreatedTopic:
        return self.wait_for(
            self.admin.create_topic(name, partitions=partitions, replication_factor=replication_factor, configs=configs)
        )

    def delete_topic(self, name: str) -> None:
        self.wait_for(self.admin.delete_topic(name))

    # --- groups ---------------------------------------------------------------------------------------------

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of these partitions, or of all that the group has; those without a commit are left out."""
        return self.wait_for(committed_offsets(self.cluster, group, partitions))

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Offset | OffsetAndMetadata]) -> None:
        """For a group without members; NON_EMPTY_GROUP while it has some."""
        self.wait_for(commit_offsets(self.cluster, group, offsets))

    # --- records --------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        key: Callable[[bytes | None], bytes | None] | None = None,
        partition: int | None = None,
        options: ProducerOptions | None = None,
    ) -> list[Delivered]:
        """Sends values, with keys made of them where a function is given, and waits until the broker has them all."""
        return self.wait_for(self._produce(topic, list(values), key, partition, options))

    async def _produce(
        self,
        topic: str,
        values: list[bytes | None],
        key: Callable[[bytes | None], bytes | None] | None,
        partition: int | None,
        options: ProducerOptions | None,
    ) -> list[Delivered]:
        deliveries: list[Delivery] = []
        async with Producer(self.cluster, options) as producer:
            for value in values:
                chosen_key = None if key is None else key(value)
                deliveries.append(await producer.send(topic, value, key=chosen_key, partition=partition))
            await producer.flush()
            return [await delivery for delivery in deliveries]

    def read(
        self,
        topic: str,
        *,
        positions: Mapping[int, Offset] | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> Iterator[ConsumedRecord]:
        """The records that are in the topic now, or in some partitions from some offsets on; in order by partition."""
        start, end = self.wait_for(self._bounds(topic, positions, isolation))
        consumer = self.wait_for(self._consumer(start, isolation))
        try:
            while remaining := {one for one, offset in consumer.positions.items() if offset < end[one]}:
                for finished in set(consumer.positions) - remaining:
                    consumer.drop(finished)
                for run in self.wait_for(consumer.poll()):
                    yield from run.records(end_offset=end[run.partition])
        finally:
            self.wait_for(consumer.close())

    async def _bounds(
        self, topic: str, positions: Mapping[int, Offset] | None, isolation: Isolation
    ) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
        metadata = await self.cluster.topic(topic)
        if positions is None:
            partitions = [TopicPartition(topic, partition.index) for partition in metadata.partitions]
            start = await start_offsets(self.cluster, partitions)
        else:
            start = {TopicPartition(topic, index): offset for index, offset in positions.items()}
        return start, await end_offsets(self.cluster, list(start), isolation)

    async def _consumer(self, start: Mapping[TopicPartition, Offset], isolation: Isolation) -> Consumer:
        consumer = Consumer(self.cluster, ConsumerOptions(isolation=isolation))
        consumer.assign(start)
        return consumer
