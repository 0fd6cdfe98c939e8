"""Fetches from one leader what the partitions of this broker that follow it lack. `follower` has the rules.

One connection and one session for all of them: a request names the partitions whose end has moved, and the leader
answers with those that have grown. A partition that comes, or was cut, while a request waits at the leader is named by
another request behind it, which ends the waiting; so at most two are under way.

An answer belongs to what its partition was last named with, in this request or in one before it. It counts only if the
partition would be named in the same way now (`follower.decide`): after another leader epoch, or a cut, it is dropped.

Where the topic asks for it (`flush.messages`), records are synced before the partition is named again: what a follower
names is what it will still have after a power loss.

Owner: the broker's event loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from barnabas.base.clock import Clock
from barnabas.base.errors import DiskFailed, InvalidRecords
from barnabas.base.ids import LeaderEpoch, Offset, TopicPartition
from barnabas.net.channel import Channel
from barnabas.net.errors import ChannelClosed, ConnectFailed, ConnectRefused, NetworkFailed
from barnabas.net.stream import Network
from barnabas.replication.follower import Answer, Append, Asked, StartOver, Stop, Truncate, Wait, decide, next_fetch
from barnabas.replication.lost_leaders import LostLeaders
from barnabas.storage.log.epochs import EpochEnd
from barnabas.storage.log.log import Log
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError, MalformedResponse
from barnabas.wire.fetch import NO_DIVERGENCE
from barnabas.wire.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, encode_fetch_request
from barnabas.wire.fetch_response import FetchPartitionReply, FetchResponse, decode_fetch_response
from barnabas.wire.framing import parse_response_header, request_start

logger = logging.getLogger(__name__)

_VERSION: Final = 17
_IN_FLIGHT_MAX: Final = 2
_CONNECT_SECONDS: Final = 5.0
_NAMED_MAX: Final = 500
"""Partitions that one request names: the rest is the next one's."""
_TURN_BYTES: Final = 256 << 10
"""Records that are written before others get their turn."""
_AGAIN_SECONDS_MIN: Final = 0.02
"""The leader may hear a moment later than this broker that it leads."""
_WAIT_SECONDS_MIN: Final = 0.001
"""A timer may fire a little early, by another clock: then there is nothing to do yet."""
_FAILURES_TOLD: Final = 10
_SESSION_IS_LOST: Final = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)

PartitionId: TypeAlias = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """As the broker's settings have them."""

    wait_ms: int
    bytes_max: int
    """Of an answer."""
    partition_bytes_max: int
    backoff_seconds: float
    """After an error, at most."""
    answer_seconds: float
    """After what it was asked to wait, a leader that does not answer is given up."""


class Address(NamedTuple):
    host: str
    port: int


@dataclass(slots=True)
class Followed:
    """A partition that another broker leads, in one leader epoch."""

    name: TopicPartition
    topic_id: UUID
    log: Log
    leader_epoch: LeaderEpoch
    again_seconds: float = _AGAIN_SECONDS_MIN
    """How long to wait after the next error."""

    @property
    def id(self) -> PartitionId:
        return self.topic_id, self.name.partition

    def next_fetch(self) -> Asked:
        return next_fetch(self.leader_epoch, self.log.epochs, self.log.end_offset)


class FollowerSide:
    """What a fetcher needs of its broker."""

    def __init__(
        self,
        broker_id: int,
        network: Network,
        clock: Clock,
        address_of: Callable[[int], Address | None],
        settings: FetcherSettings,
        lost_leaders: LostLeaders,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        """Of the registration that there is now."""
        self.network = network
        self.clock = clock
        self.address_of = address_of
        self.settings = settings
        self.lost_leaders = lost_leaders
        self.cut: Callable[[Followed, Offset], None] = lambda followed, offset: None
        """Cuts a log that has left the leader's; it is followed again afterwards."""
        self.restart: Callable[[Followed, Offset], None] = lambda followed, offset: None
        """Empties a log, to go on at the offset; it is followed again afterwards."""
        self.flush: Callable[[TopicPartition], None] = lambda name: None
        self.on_failure: Callable[[TopicPartition, DiskFailed], None] = lambda name, failure: None


class Fetcher:
    """`run` until it is cancelled."""

    def __init__(self, leader_id: int, side: FollowerSide) -> None:
        self._leader_id = leader_id
        self._side = side
        self._client_id = f"broker-{side.broker_id}-fetcher-{leader_id}"
        self._partitions: dict[PartitionId, Followed] = {}
        self._due: dict[PartitionId, None] = {}
        """Those to be named in the next request."""
        self._forgotten: dict[PartitionId, None] = {}
        """Those that the leader need not answer any more."""
        self._delayed: dict[PartitionId, float] = {}
        """When to name those again that the leader could not answer."""
        self._asked: dict[PartitionId, Asked] = {}
        """What each was last named with, as of the answer that was taken last."""
        self._changed = asyncio.Event()
        self._failures = 0

    def __len__(self) -> int:
        return len(self._partitions)

    # -- what is followed ----------------------------------------------------------------------------------------

    def add(self, followed: Followed) -> None:
        self._partitions[followed.id] = followed
        self._delayed.pop(followed.id, None)
        self._forgotten.pop(followed.id, None)
        self._name(followed.id)

    def remove(self, partition: PartitionId) -> None:
        if self._partitions.pop(partition, None) is not None:
            self._due.pop(partition, None)
            self._delayed.pop(partition, None)
            self._asked.pop(partition, None)
            self._forgotten[partition] = None
            self._changed.set()

    def flushed(self, partition: PartitionId) -> None:
        """What was written is synced: the leader may know of it."""
        if partition in self._partitions:
            self._name(partition)

    def _name(self, partition: PartitionId) -> None:
        self._due[partition] = None
        self._changed.set()

    # -- fetching ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            while not self._partitions:
                self._changed.clear()
                await self._changed.wait()
            try:
                await self._fetch()
            except (NetworkFailed, KafkaError, MalformedResponse) as error:
                self._failures += 1
                if self._failures == _FAILURES_TOLD:
                    logger.warning("broker %d, which leads, cannot be followed: %s", self._leader_id, error)
            await asyncio.sleep(min(_AGAIN_SECONDS_MIN * 2 ** min(self._failures, 10), self._backoff_seconds))

    @property
    def _backoff_seconds(self) -> float:
        return self._side.settings.backoff_seconds

    async def _fetch(self) -> None:
        """Over one connection, as long as there is something to follow."""
        side = self._side
        address = side.address_of(self._leader_id)
        if address is None:
            raise ChannelClosed(f"broker {self._leader_id} is not registered")
        try:
            channel = await Channel.connect(
                side.network,
                address.host,
                address.port,
                timeout_seconds=_CONNECT_SECONDS,
                in_flight_max=_IN_FLIGHT_MAX,
                on_lost=partial(side.lost_leaders.lost, self._leader_id),
            )
        except ConnectRefused:
            raise
        except ConnectFailed:
            side.lost_leaders.found(self._leader_id)  # nobody knows whether it lives
            raise
        side.lost_leaders.found(self._leader_id)
        try:
            await self._run_session(channel)
        finally:
            await channel.close()

    async def _run_session(self, channel: Channel) -> None:
        session_id = epoch = 0
        broker_epoch = self._side.broker_epoch
        self._asked.clear()
        self._forgotten.clear()
        self._due = {**self._due, **dict.fromkeys(one for one in self._partitions if one not in self._delayed)}
        under_way: deque[tuple[asyncio.Task[FetchResponse], dict[PartitionId, Asked]]] = deque()
        try:
            while self._partitions or under_way:
                if self._side.broker_epoch != broker_epoch:
                    return  # a session is of one registration: what it proves counts for that one
                self._name_delayed()
                has_news = bool(self._due or self._forgotten)
                if not under_way or (session_id and has_news and len(under_way) < _IN_FLIGHT_MAX):
                    request, named = self._next_request(session_id, epoch)
                    epoch += 1
                    under_way.append((asyncio.create_task(self._ask(channel, request)), named))
                self._changed.clear()
                answer, named = under_way[0]
                if not (self._due or self._forgotten) or len(under_way) == _IN_FLIGHT_MAX or not session_id:
                    await self._wait_for(answer, is_changed_enough=len(under_way) < _IN_FLIGHT_MAX and session_id > 0)
                if answer.done():
                    under_way.popleft()
                    response = answer.result()
                    self._check(response)
                    session_id = response.session_id
                    self._asked.update((one, asked) for one, asked in named.items() if one in self._partitions)
                    self._failures = 0
                    await self._take(response)
        finally:
            for task, _ in under_way:
                task.cancel()
            await asyncio.gather(*(task for task, _ in under_way), return_exceptions=True)

    async def _wait_for(self, answer: "asyncio.Task[FetchResponse]", *, is_changed_enough: bool) -> None:
        """Until there is the answer, or something else to do."""
        waits: list[asyncio.Future[Any]] = [answer]
        if is_changed_enough:
            waits.append(asyncio.ensure_future(self._changed.wait()))
        timeout = None
        if self._delayed:
            timeout = max(_WAIT_SECONDS_MIN, min(self._delayed.values()) - self._side.clock.monotonic())
        try:
            await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits[1:]:
                wait.cancel()

    def _name_delayed(self) -> None:
        if self._delayed:
            now = self._side.clock.monotonic()
            for partition in [one for one, at in self._delayed.items() if at <= now]:
                del self._delayed[partition]
                self._name(partition)

    def _check(self, response: FetchResponse) -> None:
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            if code in _SESSION_IS_LOST:
                self._failures = 0  # the next connection has another one
            raise KafkaError(code, f"broker {self._leader_id} refuses to be followed: {code.name}")

    async def _ask(self, channel: Channel, request: FetchRequest) -> FetchResponse:
        settings = self._side.settings
        body = encode_fetch_request(_VERSION, request)
        seconds = settings.wait_ms / 1000 + settings.answer_seconds
        try:
            async with asyncio.timeout(seconds):
                frame = await channel.request(
                    lambda correlation_id: [
                        request_start(ApiKey.FETCH, _VERSION, correlation_id, self._client_id, len(body)),
                        body,
                    ]
                )
        except TimeoutError:
            raise ChannelClosed(f"{channel.name} does not answer within {seconds:g} s") from None
        header = parse_response_header(ApiKey.FETCH, _VERSION, frame)
        return decode_fetch_response(_VERSION, frame[header.body_position :])

    def _next_request(self, session_id: int, epoch: int) -> tuple[FetchRequest, dict[PartitionId, Asked]]:
        settings, named = self._side.settings, {}
        topics: dict[UUID, list[FetchPartition]] = {}
        now_ms, unsynced = self._side.clock.steady_ms(), []
        for partition in list(self._due)[:_NAMED_MAX]:
            del self._due[partition]
            followed = self._partitions[partition]
            if followed.log.awaits_flush(now_ms):
                unsynced.append(followed)
                continue
            asked = named[partition] = followed.next_fetch()
            topics.setdefault(followed.topic_id, []).append(
                FetchPartition(
                    followed.name.partition,
                    asked.leader_epoch,
                    asked.offset,
                    asked.last_epoch,
                    followed.log.log_start_offset,
                    settings.partition_bytes_max,
                )
            )
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, index in list(self._forgotten)[:_NAMED_MAX]:
            del self._forgotten[topic_id, index]
            forgotten.setdefault(topic_id, []).append(index)
        self._side.clock.worked(len(named))
        for followed in unsynced:
            if followed.id in self._partitions:  # the disk may fail, and its directory with it
                self._side.flush(followed.name)  # `flushed` names it
        is_more_due = bool(self._due or self._forgotten)
        request = FetchRequest(
            0 if epoch == 0 or is_more_due else settings.wait_ms,  # a session is opened at once
            1,
            settings.bytes_max,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic("", topic_id, ones) for topic_id, ones in topics.items()],
            forgotten_topics=[ForgottenTopic("", topic_id, ones) for topic_id, ones in forgotten.items()],
            replica_id=self._side.broker_id,
            replica_epoch=self._side.broker_epoch,
        )
        return request, named

    # -- what the leader says ------------------------------------------------------------------------------------

    async def _take(self, response: FetchResponse) -> None:
        written = 0
        for topic in response.topics:
            for reply in topic.partitions:
                self._take_one((topic.topic_id, reply.index), reply)
                self._side.clock.worked(1)
                written += len(reply.records or b"")
                if written >= _TURN_BYTES:
                    written = 0
                    await asyncio.sleep(0)

    def _take_one(self, partition: PartitionId, reply: FetchPartitionReply) -> None:
        followed, asked = self._partitions.get(partition), self._asked.get(partition)
        if followed is None or asked is None:
            return
        log = followed.log
        effect = decide(asked, followed.next_fetch(), _answer_of(reply), log.epochs, log.log_start_offset)
        match effect:
            case None:
                self._name(partition)  # as it is now
            case Append():
                self._append(followed, effect, reply)
            case Truncate(offset):
                self._side.cut(followed, offset)
            case StartOver():
                self._side.restart(followed, max(0, reply.log_start_offset))
            case Wait():
                self._again(followed)
            case Stop(reason):
                logger.error("%s: the leader, broker %d, answers %s", followed.name, self._leader_id, reason.name)
                self._again(followed, self._backoff_seconds)

    def _append(self, followed: Followed, append: Append, reply: FetchPartitionReply) -> None:
        log, side = followed.log, self._side
        try:
            if reply.records:
                log.append_as_follower(reply.records)
                log.write()
                log.forget_written()
        except InvalidRecords as problem:
            log.discard_staged()
            logger.error("%s: what the leader, broker %d, sent is damaged: %s", followed.name, self._leader_id, problem)
            self._again(followed, self._backoff_seconds)
            return
        except DiskFailed as failure:
            log.discard_staged()
            self._again(followed, self._backoff_seconds)
            side.on_failure(followed.name, failure)
            return
        followed.again_seconds = _AGAIN_SECONDS_MIN
        high_watermark = min(append.high_watermark, log.end_offset)
        if high_watermark > log.high_watermark:
            log.advance_high_watermark(high_watermark)
        has_moved = append.log_start_offset > log.log_start_offset
        if has_moved:
            log.delete_records_before(min(append.log_start_offset, log.high_watermark))
        if not (reply.records or has_moved):
            return
        if log.awaits_flush(side.clock.steady_ms()):
            side.flush(followed.name)
        else:
            self._name(followed.id)

    def _again(self, followed: Followed, seconds: float | None = None) -> None:
        if seconds is None:
            seconds = followed.again_seconds
            followed.again_seconds = min(2 * seconds, self._backoff_seconds)
        self._delayed[followed.id] = self._side.clock.monotonic() + seconds


def _answer_of(reply: FetchPartitionReply) -> Answer:
    diverging = None
    if reply.diverging_epoch != NO_DIVERGENCE:
        diverging = EpochEnd(*reply.diverging_epoch)
    return Answer(
        ErrorCode.of(reply.error_code),
        diverging,
        bool(reply.records),
        reply.high_watermark,
        reply.log_start_offset,
    )
