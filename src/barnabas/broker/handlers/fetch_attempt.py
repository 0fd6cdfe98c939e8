"""What a fetch reads of its partitions, how it waits for more, and what of it goes into the answer.

An error in any partition answers at once. The first batch of the first partition that has one comes whole, however
small the limits are, so that a reader always gets on; after that the limits of partition and answer hold.

```
read ── enough, an error, or no time to wait ──> respond
  └──── wait ── a partition moved ──> read ── enough, or the partition is closed ──> respond
          │                            └──── wait on
          └──── time is over ──> read ──> respond
```
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_EPOCH
from barnabas.broker.authorizer import Operation
from barnabas.broker.fetch_sessions import FetchPlan, SessionPartition
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.request import Request
from barnabas.replication.partition import Partition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch import NO_DIVERGENCE, EpochEndOffset, Fetch, FetchResult, PartitionKey, Wanted
from barnabas.wire.leaders import LeaderAndEpoch

if TYPE_CHECKING:
    from barnabas.broker.handlers.fetch import FetchHandler

READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = (0, READ_COMMITTED)
_WRONG_LEADER: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Found(NamedTuple):
    """What one partition has for a fetch."""

    key: PartitionKey
    session: SessionPartition
    partition: Partition | None
    """None when there was nothing to read there: an error."""
    result: FetchResult


class Attempt:
    """Reads everything that a fetch asks for, once or again, until it is answered."""

    __slots__ = (
        "_bytes",
        "_bytes_max",
        "_found",
        "_handler",
        "_is_urgent",
        "_timer",
        "_watched",
        "fetch",
        "plan",
        "request",
    )

    def __init__(self, handler: "FetchHandler", request: Request, fetch: Fetch, plan: FetchPlan) -> None:
        self._handler = handler
        self._bytes_max = min(fetch.bytes_max, handler.bytes_max)
        self.request = request
        self.plan = plan
        self.fetch = fetch
        self._bytes = 0
        self._is_urgent = False
        self._found: list[_Found] = []
        self._timer: asyncio.TimerHandle | None = None
        self._watched: list[Partition] = []

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self) -> bool:
        """Whether what was found should be answered at once."""
        self.begin()
        self.read_some(self.plan.partitions.items())
        return self._is_urgent or self._bytes >= self.fetch.bytes_min

    def begin(self) -> None:
        """Before anything is read, or read again."""
        self._found = []
        self._bytes = 0
        self._is_urgent = False

    def read_some(self, partitions: Iterable[tuple[PartitionKey, SessionPartition]]) -> None:
        for key, session in partitions:
            partition = None
            try:
                partition = self._find(key)
                result = self._read(partition, session.wanted)
            except BarnabasError as error:
                self._is_urgent = True
                result = FetchResult(None, error_code=refusal_of(error).code)
            else:
                self._bytes += result.size_bytes
            self._found.append(_Found(key, session, partition, result))

    @property
    def is_enough(self) -> bool:
        """Whether what was read should be answered at once."""
        return self._is_urgent or self._bytes >= self.fetch.bytes_min

    def _find(self, key: PartitionKey) -> Partition:
        handler = self._handler
        if not handler.allows_all:
            name = handler.replicas.topic_name(key.topic)
            handler.services.check_topic(self.request, Operation.READ, name)
        return handler.replicas.find(key.topic, key.partition)

    def _read(self, partition: Partition, wanted: Wanted) -> FetchResult:
        if wanted.bytes_max < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a limit of {wanted.bytes_max} bytes")
        if wanted.leader_epoch != partition.leader_epoch:
            partition.check_leader_epoch(max(wanted.leader_epoch, NO_EPOCH))  # any negative number is no epoch here
        if wanted.last_fetched_epoch >= 0:
            diverging = _divergence(partition, wanted)
            if diverging is not NO_DIVERGENCE:
                self._is_urgent = True
                return FetchResult(
                    None,
                    partition.high_watermark,
                    partition.last_stable_offset,
                    partition.log_start_offset,
                    diverging_epoch=diverging,
                )
        return partition.read(
            wanted.offset,
            max(0, min(wanted.bytes_max, self._bytes_max - self._bytes)),
            is_committed_only=self.fetch.isolation_level == READ_COMMITTED,
            at_least_one=not self._bytes,
        )

    def release(self) -> None:
        """Gives back what was read, because it was too little to answer."""
        for found in self._found:
            found.result.release()
        self._found = []

    # -- waiting -------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Answers when one of the partitions has moved far enough, or the time is over."""
        seconds = self.fetch.wait_ms / 1000
        watched = self._watched
        for found in self._found:
            partition = found.partition
            assert partition is not None, "an error would have been answered at once"
            partition.watchers[self._moved] = None
            watched.append(partition)
            if partition.is_closed:  # the broker stops: nothing will come
                seconds = 0
        self.release()
        self._timer = self._handler.loop.call_later(seconds, self._time_is_over)

    def _moved(self, partition: Partition) -> None:
        if self.read() or partition.is_closed:
            self._end_waiting()
            self.respond()
        else:
            self.release()

    def _time_is_over(self) -> None:
        self._end_waiting()
        self.read()
        self.respond()

    def _end_waiting(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        for partition in self._watched:
            partition.watchers.pop(self._moved, None)

    # -- answering -----------------------------------------------------------------------------------------------

    def respond(self) -> None:
        """Answers with what was read last."""
        results: list[tuple[PartitionKey, FetchResult]] = []
        leaders: list[LeaderAndEpoch] = []
        for found in self._found:
            self.tell(found, results, leaders)
        self._found = []
        self._handler.send(self.request, self.plan.session_id, results, leaders)

    @property
    def found(self) -> list[_Found]:
        return self._found

    def forget(self) -> None:
        """What was read is on its way: its sender releases it."""
        self._found = []

    def tell(
        self, found: _Found, results: list[tuple[PartitionKey, FetchResult]], leaders: list[LeaderAndEpoch]
    ) -> None:
        """Adds what the answer has of a partition; of a session only what is news."""
        key, session, partition, result = found
        records, high_watermark, _, log_start_offset, _, error_code, diverging_epoch, _, _ = result
        is_told = (
            records is not None
            or error_code
            or not self.plan.is_incremental
            or diverging_epoch is not NO_DIVERGENCE
            or session.is_news(high_watermark, log_start_offset)
        )
        session.tell(high_watermark, log_start_offset)
        if records is not None:
            assert partition is not None
            self.plan.sent(key)
            partition.traffic.sent_bytes += result.size_bytes
        if error_code:
            self.request.add_error(error_code)
            if error_code in _WRONG_LEADER:
                leader = self._handler.replicas.leader_of(key.topic, key.partition)
                leaders.append(leader)
                result = result._replace(leader=leader)
        if is_told:
            results.append((key, result))


def _divergence(partition: Partition, wanted: Wanted) -> EpochEndOffset:
    """Where the reader's history leaves the log's, when it says which epoch it read last."""
    end = partition.end_of_epoch(wanted.last_fetched_epoch)
    if end.epoch == NO_EPOCH and end.end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {wanted.last_fetched_epoch} is not in the log")
    if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.offset:
        return EpochEndOffset(end.epoch, end.end_offset)
    return NO_DIVERGENCE
