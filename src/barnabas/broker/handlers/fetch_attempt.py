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
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.base.errors import BarnabasError
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

Found: TypeAlias = tuple[SessionPartition | None, PartitionKey, Partition | None, FetchResult, int]
"""What one partition has for a fetch: what its session's client knows (None without a session), the partition (None
after an error), what was read there, and the bytes of the records."""


class Attempt:
    """Reads everything that a fetch asks for, once or again, until it is answered."""

    __slots__ = (
        "_bytes",
        "_handler",
        "_is_reading_again",
        "_is_urgent",
        "_timer",
        "_waits_since",
        "_watched",
        "bytes_max",
        "fetch",
        "found",
        "plan",
        "request",
    )

    def __init__(self, handler: "FetchHandler", request: Request, fetch: Fetch, plan: FetchPlan | None) -> None:
        """Without a plan the fetch is for one partition, and without a session."""
        self._handler = handler
        self.bytes_max = min(fetch.bytes_max, handler.bytes_max)
        self.request = request
        self.plan = plan
        self.fetch = fetch
        self.found: list[Found] = []
        self._bytes = 0
        self._is_urgent = False
        self._is_reading_again = False
        self._timer: asyncio.TimerHandle | None = None
        self._watched: list[Partition] | None = None
        self._waits_since = 0.0

    # -- reading -------------------------------------------------------------------------------------------------

    def read(self) -> bool:
        """Whether what was found should be answered at once."""
        self.found = []
        self._bytes = 0
        self._is_urgent = False
        if self.plan is None:
            self._read(self.fetch.wanted[0], None)
        else:
            self.read_some(self.plan.partitions.values())
        return self._is_urgent or self._bytes >= self.fetch.bytes_min

    def begin(self) -> None:
        """Before anything is read in slices, or read again."""
        self.found = []
        self._bytes = 0
        self._is_urgent = False

    def read_some(self, sessions: Iterable[SessionPartition]) -> None:
        for session in sessions:
            self._read(session.wanted, session)

    @property
    def is_enough(self) -> bool:
        """Whether what was read should be answered at once."""
        return self._is_urgent or self._bytes >= self.fetch.bytes_min

    def _read(self, wanted: Wanted, session: SessionPartition | None) -> None:
        key, offset, bytes_max, leader_epoch, last_fetched_epoch, *_ = wanted
        handler, partition, size = self._handler, None, 0
        try:
            if not handler.allows_all:
                name = handler.replicas.topic_name(key.topic)
                handler.services.check_topic(self.request, Operation.READ, name)
            partition = handler.replicas.find(key.topic, key.partition)
            if bytes_max < 0:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a limit of {bytes_max} bytes")
            if leader_epoch >= 0 and leader_epoch != partition.leader_epoch:  # a negative number is no epoch here
                partition.check_leader_epoch(leader_epoch)
            result = diverged(partition, wanted) if last_fetched_epoch >= 0 else None
            if result is not None:
                self._is_urgent = True
            else:
                result = partition.read(
                    offset,
                    max(0, min(bytes_max, self.bytes_max - self._bytes)),
                    is_committed_only=self.fetch.isolation_level == READ_COMMITTED,
                    at_least_one=not self._bytes,
                )
                if result.records is not None:
                    size = result.size_bytes
                    self._bytes += size
        except BarnabasError as error:
            self._is_urgent = True
            result = FetchResult(None, error_code=refusal_of(error).code)
        self.found.append((session, key, partition, result, size))

    def release(self) -> None:
        """Gives back what was read, because it was too little to answer."""
        for _, _, _, result, size in self.found:
            if size:
                result.release()
        self.found = []

    # -- waiting -------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Answers when one of the partitions has moved far enough, or the time is over."""
        seconds = self.fetch.wait_ms / 1000
        self._watched = watched = []
        for _, _, partition, result, size in self.found:
            assert partition is not None, "an error would have been answered at once"
            partition.watchers[self._moved] = None
            watched.append(partition)
            if partition.is_closed:  # the broker stops: nothing will come
                seconds = 0
            if size:
                result.release()
        self.found = []
        self._waits_since = self._handler.now()
        self._timer = self._handler.loop.call_later(seconds, self._time_is_over)

    def _moved(self, partition: Partition) -> None:
        # A read that finds a failed disk closes partitions, which tell those that wait: an attempt whose own read it is
        # has its answer in that read, and one that another partition has just had answered waits no longer.
        if self._is_reading_again or self._watched is None:
            return
        woken = self._handler.now()
        self._is_reading_again = True
        is_enough = self.read()
        self._is_reading_again = False
        if is_enough or partition.is_closed:
            self._end_waiting(woken)
            self.respond()
        else:
            self.release()

    def _time_is_over(self) -> None:
        self._end_waiting(self._handler.now())
        self.read()
        self.respond()

    def _end_waiting(self, woken: float) -> None:
        assert self._timer is not None
        assert self._watched is not None
        self.request.waited(woken - self._waits_since)
        self._timer.cancel()
        for partition in self._watched:
            partition.watchers.pop(self._moved, None)
        self._watched = None

    # -- answering -----------------------------------------------------------------------------------------------

    def respond(self) -> None:
        """Answers with what was read last."""
        results: list[tuple[PartitionKey, FetchResult]] = []
        leaders: list[LeaderAndEpoch] = []
        for found in self.found:
            self.tell(found, results, leaders)
        self.found = []
        handler, request = self._handler, self.request
        frame = handler.codecs.fetched(
            request.version,
            request.correlation_id,
            request.throttle_ms,
            0 if self.plan is None else self.plan.session_id,
            results,
            handler.endpoints_of(request, leaders) if leaders else (),
        )
        request.answer(frame)  # type: ignore[arg-type] # the ranges among the pieces are the slices that the log gave

    def tell(
        self, found: Found, results: list[tuple[PartitionKey, FetchResult]], leaders: list[LeaderAndEpoch]
    ) -> None:
        """Adds what the answer has of a partition; of a session only what is news."""
        session, key, partition, result, size = found
        is_told = True
        if session is not None and self.plan is not None:
            is_told = bool(
                size
                or result.error_code
                or not self.plan.is_incremental
                or result.diverging_epoch is not NO_DIVERGENCE
                or session.is_news(result.high_watermark, result.log_start_offset)
            )
            session.tell(result.high_watermark, result.log_start_offset)
            if size:
                self.plan.sent(key)
        if size:
            assert partition is not None, "records come from a partition"
            partition.traffic.sent_bytes += size
        elif result.error_code:
            self.request.add_error(result.error_code)
            if result.error_code in _WRONG_LEADER:
                leader = self._handler.replicas.leader_of(key.topic, key.partition)
                leaders.append(leader)
                result = result._replace(leader=leader)
        if is_told:
            results.append((key, result))


def diverged(partition: Partition, wanted: Wanted) -> FetchResult | None:
    """Where the reader's history leaves the log's, when it says which epoch it read last; None where it does not."""
    end = partition.end_of_epoch(wanted.last_fetched_epoch)
    if end.epoch < 0 and end.end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {wanted.last_fetched_epoch} is not in the log")
    if end.epoch >= wanted.last_fetched_epoch and end.end_offset >= wanted.offset:
        return None
    return FetchResult(
        None,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        diverging_epoch=EpochEndOffset(end.epoch, end.end_offset),
    )
