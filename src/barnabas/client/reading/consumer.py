"""Reads partitions from given offsets on. To share partitions with others use `GroupConsumer`, which builds on this.

```python
async with Consumer(cluster) as consumer:
    consumer.assign({TopicPartition("orders", 0): 0})
    async for record in consumer.records():
        print(record.offset, record.value)
```

`poll` returns runs of batches, for callers that want columns or bytes; `records` iterates over records as objects and
never ends. One request is under way to each leader of an assigned partition; the next one is sent before the answer is
handed out, so that the broker works while the caller does. That bounds memory to two answers of `bytes_max` a leader.

It follows leaders that move, and retries lost connections and retriable errors; `poll` raises only after
`retry_timeout_seconds` without any answer. A consumer belongs to one task.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.errors import UnknownTopic
from barnabas.client.offsets import Isolation, list_offsets
from barnabas.client.reading.fetched import ConsumedRecord, FetchedRun, make_run
from barnabas.net.errors import NetworkFailed
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedMessage
from barnabas.wire.fetch import TOPIC_ID_FROM
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.fetch_response import FetchPartitionReply, FetchResponse

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    wait_ms_max: int = 500
    """How long a broker may wait for `bytes_min`."""
    bytes_min: int = 1
    bytes_max: int = 32 << 20
    partition_bytes_max: int = 1 << 20
    out_of_range: int | None = None
    """Where to go on when the offset is not in the log any more: `offsets.EARLIEST`, `LATEST`, or None for an error."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """A fetch of one leader: what was asked for and what came."""

    asked: Mapping[TopicPartition, Offset]
    replies: Mapping[TopicPartition, FetchPartitionReply]
    response: FetchResponse


class Consumer:
    """Stands on a `Cluster`, which its owner closes after it."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions | None = None) -> None:
        self._cluster = cluster
        self._options = options or ConsumerOptions()
        self._positions: dict[TopicPartition, Offset] = {}
        self._paused: set[TopicPartition] = set()
        self._waiting: asyncio.Timeout | None = None
        self._fetching: dict[int, asyncio.Task[_Answer]] = {}
        self._arrived: list[FetchedRun] = []
        """Not handed out yet. Their partitions' positions are behind them, so whatever happens they must be kept."""
        self._failing_since: float | None = None
        self._tries = 0
        self._recovering: asyncio.Task[None] | None = None
        """The pause after a failure, and the look at the cluster that follows. It goes on between calls of `poll`."""
        self.problem: Exception | None = None
        """Why nothing can be fetched now; None while all is well."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        tasks: list[asyncio.Task[Any]] = list(self._fetching.values())
        self._fetching.clear()
        if self._recovering is not None:
            tasks.append(self._recovering)
            self._recovering = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cluster.close_lane(self)

    def assign(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Reads these partitions, from these offsets, and no others."""
        self._positions = dict(positions)
        self._paused.clear()
        self._arrived.clear()

    def add(self, partition: TopicPartition, offset: Offset) -> None:
        """Reads this partition too."""
        self._positions[partition] = offset
        self._forget(partition)

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        assert partition in self._positions, f"{partition} is not assigned"
        self._positions[partition] = offset
        self._forget(partition)

    def drop(self, partition: TopicPartition) -> None:
        """Reads the partition no more."""
        self._positions.pop(partition, None)
        self._paused.discard(partition)
        self._forget(partition)

    def pause(self, partition: TopicPartition) -> None:
        """Brings nothing more of the partition until `resume`; its position stays."""
        assert partition in self._positions, f"{partition} is not assigned"
        self._paused.add(partition)
        for run in self._arrived:
            if run.partition == partition:
                self._positions[partition] = min(self._positions[partition], run.first_offset)
        self._forget(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(self._paused)

    @property
    def is_reading(self) -> bool:
        """Whether there is anything that `poll` could wait for."""
        return len(self._positions) > len(self._paused)

    def wake(self) -> None:
        """Lets a `poll` that waits return with what is there."""
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(0)

    def _forget(self, partition: TopicPartition) -> None:
        self._arrived = [run for run in self._arrived if run.partition != partition]

    @property
    def positions(self) -> Mapping[TopicPartition, Offset]:
        """The next offset of each assigned partition."""
        return self._positions

    async def records(self) -> AsyncIterator[ConsumedRecord]:
        """Every record of the assigned partitions, as they come; in order within a partition."""
        while self.is_reading:
            for run in await self.poll():
                for record in run.records():
                    yield record

    async def poll(self, timeout_seconds: float | None = None) -> list[FetchedRun]:
        """Waits for records and returns all that came together; nothing when the time is over."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds) as self._waiting:
                    while self.is_reading and not self._arrived:
                        await self._advance()
        finally:
            self._waiting = None
        runs, self._arrived = self._arrived, []
        return runs

    async def _advance(self) -> None:
        if self._recovering is not None:
            await asyncio.wait([self._recovering])
            self._recovering = None
        try:
            await self._start_fetches()
            await asyncio.wait(self._fetching.values(), return_when=asyncio.FIRST_COMPLETED)
            await self._take_answers()
            if self._arrived:
                await self._start_fetches()
        except UnknownTopic:
            raise
        except (NetworkFailed, KafkaError, MalformedMessage) as error:
            if isinstance(error, KafkaError) and not error.code.is_retriable:
                raise
            self._back_off(error)
            return
        self._failing_since = None
        self.problem = None
        self._tries = 0

    def _back_off(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        self.problem = error
        if self._failing_since is None:
            self._failing_since = now
        timeout_seconds = self._cluster.options.retry_timeout_seconds
        if now - self._failing_since > timeout_seconds:
            message = f"nothing could be fetched for {timeout_seconds:g} s; the last problem was: {error}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from error
        _LOG.debug("fetch failed", extra={"problem": str(error)})
        self._recovering = asyncio.create_task(self._recover(self._cluster.backoff_seconds(self._tries)))
        self._tries += 1

    async def _recover(self, pause_seconds: float) -> None:
        await asyncio.sleep(pause_seconds)
        with contextlib.suppress(NetworkFailed, KafkaError):  # the next fetch meets the same problem, and counts it
            await self._cluster.refresh({partition.topic for partition in self._positions})

    # --- requests -------------------------------------------------------------------------------------------

    async def _start_fetches(self) -> None:
        """Sees to it that a request is under way to each leader."""
        led = await self._cluster.by_leader(one for one in self._positions if one not in self._paused)
        for leader_id, partitions in led.items():
            if leader_id not in self._fetching:
                asked = {partition: self._positions[partition] for partition in partitions}
                self._fetching[leader_id] = asyncio.create_task(self._fetch(leader_id, asked))

    async def _fetch(self, leader_id: int, asked: Mapping[TopicPartition, Offset]) -> _Answer:
        connection = await self._cluster.connection(leader_id, lane=self)
        view = self._cluster.view
        members: dict[str, list[FetchPartition]] = {}
        for partition, offset in asked.items():
            leader_epoch = view.partition(partition).leader_epoch
            member = FetchPartition(
                partition.partition, leader_epoch, offset, -1, -1, self._options.partition_bytes_max
            )
            members.setdefault(partition.topic, []).append(member)
        topic_ids = {name: view.topic(name).topic_id for name in members}
        request = FetchRequest(
            self._options.wait_ms_max,
            self._options.bytes_min,
            self._options.bytes_max,
            int(self._options.isolation),
            topics=[FetchTopic(name, topic_ids[name], partitions) for name, partitions in members.items()],
        )
        has_ids = connection.version(ApiKey.FETCH) >= TOPIC_ID_FROM
        response = await connection.fetch(request)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code), "the broker refused the fetch")
        names = {topic_id: name for name, topic_id in topic_ids.items()}
        replies = {
            TopicPartition(names.get(topic.topic_id, "") if has_ids else topic.name, reply.index): reply
            for topic in response.topics
            for reply in topic.partitions
        }
        return _Answer(asked, replies, response)

    # --- answers --------------------------------------------------------------------------------------------

    async def _take_answers(self) -> None:
        problem: Exception | None = None
        for leader_id, task in list(self._fetching.items()):
            if not task.done():
                continue
            del self._fetching[leader_id]
            try:
                answer = task.result()
            except (NetworkFailed, KafkaError, MalformedMessage) as error:
                problem = error
                continue
            for partition, reply in answer.replies.items():
                # An answer to what is not wanted any more: it was dropped, paused, or sought elsewhere.
                wanted = self._positions.get(partition, -1)
                if wanted != answer.asked.get(partition) or partition in self._paused:
                    continue
                try:
                    await self._take_reply(partition, reply, answer)
                except KafkaError as error:
                    problem = error
        if problem is not None and not self._arrived:
            raise problem

    async def _take_reply(self, partition: TopicPartition, reply: FetchPartitionReply, answer: _Answer) -> None:
        offset = answer.asked[partition]
        code = ErrorCode.of(reply.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._leave_out_of_range(partition, offset)
            return
        if code is not ErrorCode.NONE:
            if self._cluster.learn_leader(partition, reply.current_leader, answer.response.node_endpoints):
                return
            raise KafkaError(code, f"{partition} could not be fetched at offset {offset}")
        records = reply.records if isinstance(reply.records, memoryview) else memoryview(b"")
        run = make_run(
            partition,
            offset,
            records,
            reply.aborted_transactions or (),
            reply.high_watermark,
            reply.last_stable_offset,
        )
        if run is not None:
            # The last in the order of asking, so that others get their turn when answers are full.
            del self._positions[partition]
            self._positions[partition] = run.next_offset
            self._arrived.append(run)

    async def _leave_out_of_range(self, partition: TopicPartition, offset: Offset) -> None:
        if self._options.out_of_range is None:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no offset {offset}")
        listed = (await list_offsets(self._cluster, {partition: self._options.out_of_range}))[partition]
        self._positions[partition] = 0 if listed is None else listed.offset
        _LOG.warning(
            "offset is out of range",
            extra={"partition": str(partition), "offset": offset, "new_offset": self._positions[partition]},
        )
