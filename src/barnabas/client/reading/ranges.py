"""Reads one partition from one offset to another: a bounded fetch, for callers that plan their reads in advance.

The next request is under way while the caller works on the last answer, and none is sent beyond the end. A request asks
for as many bytes as the rest of the range is likely to have, judged by what came so far, so that a small range does not
bring megabytes that nobody wants. A range ends by its offset: markers and compaction leave fewer records than offsets.

`Cluster.retry` handles leaders that move, lost connections and retriable errors. All readers of a cluster share one
lane, one after the other: its connections stay open, so that the next range costs no handshake.
"""

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from barnabas.base.ids import Offset, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import Isolation
from barnabas.client.reading.fetched import FetchedRun, make_run
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch import TOPIC_ID_FROM
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.fetch_response import FetchPartitionReply

_LANE: Final = "ranges"
_RECORD_BYTES_GUESS: Final = 128.0
_SAFETY_FACTOR: Final = 1.1


class OffsetOutOfRange(KafkaError):  # noqa: N818 - named as the fact that it is
    """The log does not have this offset: it begins behind it, or ends before it."""

    def __init__(self, partition: TopicPartition, offset: Offset) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no offset {offset}")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class RangeOptions:
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    wait_ms_max: int = 500
    bytes_min: int = 64 << 10
    bytes_max: int = 8 << 20
    """What one answer has at most, if no single batch is larger."""
    timeout_seconds: float = 120.0
    """How long the next records may take, with all that is tried again."""


class RangeReader:
    """`async with RangeReader(...) as reader:`; then `next_run` until it returns None."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        start: Offset,
        end: Offset,
        options: RangeOptions | None = None,
    ) -> None:
        self.partition = partition
        self.position = start
        self.end = end
        self._cluster = cluster
        self._options = options or RangeOptions()
        self._offset_bytes = _RECORD_BYTES_GUESS
        self._ahead: asyncio.Task[FetchedRun | None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        task, self._ahead = self._ahead, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # The answer is still to come on that connection, and the next reader must not wait for it.
            await self._cluster.close_lane(_LANE)

    def seek(self, offset: Offset) -> None:
        """Goes on there, after an `OffsetOutOfRange`."""
        assert self._ahead is None, "a request is under way"
        self.position = offset

    async def next_run(self) -> FetchedRun | None:
        """The next batches of the range, of which the last may reach beyond it; None at the end.

        OffsetOutOfRange when the log does not have them; REQUEST_TIMED_OUT when they do not come in time.
        """
        deadline = self._cluster.clock.monotonic() + self._options.timeout_seconds
        while self.position < self.end:
            task, self._ahead = self._ahead, None
            run = await (task or self._start())
            if run is not None:
                offsets = run.next_offset - self.position
                if offsets > 0:
                    self._offset_bytes = max(1.0, len(run.batches) / offsets)
                self.position = run.next_offset
                if self.position < self.end:
                    self._ahead = self._start()
                return run
            if self._cluster.clock.monotonic() > deadline:
                message = (
                    f"{self.partition} returned no records from offset {self.position} on (wanted up to {self.end}) "
                    f"within {self._options.timeout_seconds:g} s"
                )
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)
        return None

    def _start(self) -> "asyncio.Task[FetchedRun | None]":
        return asyncio.create_task(self._fetch_until_answered())

    async def _fetch_until_answered(self) -> FetchedRun | None:
        return await self._cluster.retry(
            f"{self.partition} could not be read at offset {self.position}",
            self._fetch,
            [self.partition.topic],
            timeout_seconds=self._options.timeout_seconds,
        )

    async def _fetch(self) -> FetchedRun | None:
        topic = await self._cluster.topic(self.partition.topic, partition=self.partition.partition)
        leader = self._cluster.view.leader(self.partition)
        connection = await self._cluster.connection(leader.leader_id, _LANE)
        wanted_bytes = int((self.end - self.position) * self._offset_bytes * _SAFETY_FACTOR)
        bytes_max = min(max(wanted_bytes, self._options.bytes_min), self._options.bytes_max)
        member = FetchPartition(self.partition.partition, leader.leader_epoch, self.position, -1, -1, bytes_max)
        request = FetchRequest(
            self._options.wait_ms_max,
            1,
            bytes_max,
            int(self._options.isolation),
            topics=[FetchTopic(topic.name, topic.topic_id, [member])],
        )
        response = await connection.fetch(request)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code), "the broker refused the fetch")
        has_ids = connection.version(ApiKey.FETCH) >= TOPIC_ID_FROM
        for answered in response.topics:
            if (answered.topic_id == topic.topic_id) if has_ids else (answered.name == topic.name):
                for reply in answered.partitions:
                    if reply.index == self.partition.partition:
                        return self._take(reply)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker did not answer for {self.partition}")

    def _take(self, reply: FetchPartitionReply) -> FetchedRun | None:
        code = ErrorCode.of(reply.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRange(self.partition, self.position)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"{self.partition} could not be fetched at offset {self.position}")
        records = reply.records if isinstance(reply.records, memoryview) else memoryview(b"")
        return make_run(
            self.partition,
            self.position,
            records,
            reply.aborted_transactions or (),
            reply.high_watermark,
            reply.last_stable_offset,
        )
