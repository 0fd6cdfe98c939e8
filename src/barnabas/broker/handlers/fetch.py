"""Fetch, versions 4 to 18: ranges of the logs' files, sent without passing through this process.

A request that finds less than `min_bytes` waits, up to `max_wait`, until one of its partitions gets records; then it is
read anew (`fetch_attempt` has what is read, and what of it is told). Sessions (KIP-227) are in `fetch_sessions`;
replicas do not fetch yet, and are refused. Readers of one partition are mostly served by `sole_fetch`, in front of
this; a fetch of very many partitions goes on in `wide_fetch`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

from barnabas.base.clock import Clock
from barnabas.broker.dispatch import Work
from barnabas.broker.fetch_sessions import FetchPlan, FetchSessions, PartitionKey, Partitions
from barnabas.broker.handlers.fetch_attempt import ISOLATION_LEVELS, Attempt, GatheredReplies, wanted_of
from barnabas.broker.handlers.wide_fetch import NOTHING, WideFetches
from barnabas.broker.request import Request
from barnabas.broker.slices import Slices
from barnabas.net.replies import Piece
from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch_request import FLEXIBLE_FROM, TOPIC_ID_FROM, FetchRequest, decode_fetch_request
from barnabas.wire.fetch_response import (
    EncodedFetch,
    FetchPartitionReply,
    FetchResponse,
    FetchTopicReply,
    encode_fetch_response,
    encode_small_fetch_response,
)

WIDE_PARTITIONS: Final = 500
"""More partitions than this are not read in one turn of the event loop."""
WIDE_BYTES: Final = 16 << 10
"""Of a request that names about as many."""


class FetchHandler:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        replicas: Replicas,
        sessions: FetchSessions,
        slices: Slices,
        fetch_bytes_max: int,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self.now = clock.monotonic
        self._replicas = replicas
        self._sessions = sessions
        self._fetch_bytes_max = fetch_bytes_max
        self._wide = WideFetches(self, loop, slices)

    def __call__(self, request: Request) -> Work | None:
        if len(request.body) > WIDE_BYTES:
            return partial(self._wide.serve, request)
        fetch = decode_fetch_request(request.version, request.body)
        plan = self.plan(request, fetch, OrderedDict(wanted_of(fetch)))
        if plan is not None:
            if len(plan.partitions) > WIDE_PARTITIONS:
                return partial(self._wide.answer, self.attempt(request, fetch, plan))
            self._read(request, fetch, plan)
        return None

    def plan(self, request: Request, fetch: FetchRequest, wanted: Partitions) -> FetchPlan | None:
        """What to read; None when the request is refused, and has been told so."""
        if fetch.isolation_level not in ISOLATION_LEVELS:
            self._respond(request, _refused(request.version, fetch, ErrorCode.UNKNOWN_SERVER_ERROR))
            return None
        try:
            if fetch.replica_id >= 0:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no other broker has replicas of this one's")
            return self._sessions.plan(
                fetch.session_id,
                fetch.session_epoch,
                wanted,
                _forgotten(fetch),
                uses_topic_ids=request.version >= TOPIC_ID_FROM,
                now_ms=self._clock.steady_ms(),
            )
        except KafkaError as error:
            self._respond(request, FetchResponse(error_code=error.code))
            return None

    def _read(self, request: Request, fetch: FetchRequest, plan: FetchPlan) -> None:
        attempt = self.attempt(request, fetch, plan)
        if attempt.read() or fetch.wait_ms_max <= 0 or not plan.partitions:
            self.respond(attempt)
        else:
            attempt.release()
            request.body = NOTHING  # so that the buffer it arrived in does not wait, too
            _Waiting(self, attempt, self._loop).begin(fetch.wait_ms_max / 1000)

    def attempt(self, request: Request, fetch: FetchRequest, plan: FetchPlan) -> Attempt:
        return Attempt(self._replicas, request, fetch, plan, self._fetch_bytes_max)

    def answer(self, request: Request, fetch: FetchRequest, plan: FetchPlan) -> None:
        """Answers with what there is now."""
        attempt = self.attempt(request, fetch, plan)
        attempt.read()
        self.respond(attempt)

    def _respond(self, request: Request, response: FetchResponse) -> None:
        if response.error_code:
            request.add_error(response.error_code)
        response.throttle_time_ms = request.throttle_ms
        self.send(request, encode_fetch_response(request.version, response))

    def send(self, request: Request, encoded: EncodedFetch) -> None:
        # The records among the pieces are the slices that were put in.
        request.respond_in_pieces(cast(list[Piece], encoded.pieces), encoded.length)

    def respond(self, attempt: Attempt) -> None:
        """Answers with what was read last."""
        request, plan = attempt.request, attempt.plan
        told = list(attempt.told())
        attempt.forget()
        if len(told) == 1 and request.version >= FLEXIBLE_FROM:
            ((key, only),) = told
            body = encode_small_fetch_response(
                request.version, request.throttle_ms, plan.session_id, key.topic, key.topic_id, only
            )
            if body is not None:
                request.respond(body)
                return
        gathered = self.gathered()
        for key, reply in told:
            gathered.add(key, reply)
        self._respond(request, gathered.response(request, plan))

    def gathered(self) -> GatheredReplies:
        return GatheredReplies(self._replicas)

    @property
    def bytes_max(self) -> int:
        return self._fetch_bytes_max


def _refused(version: int, fetch: FetchRequest, code: ErrorCode) -> FetchResponse:
    """The same error for everything. Kafka names the partitions only where topics go by name."""
    topics = [
        FetchTopicReply(topic.name, topic.topic_id, [FetchPartitionReply(one.index, code) for one in topic.partitions])
        for topic in fetch.topics
    ]
    return FetchResponse(topics if version < TOPIC_ID_FROM else [], error_code=code)


def _forgotten(fetch: FetchRequest) -> Iterator[PartitionKey]:
    for topic in fetch.forgotten_topics:
        for index in topic.partitions:
            yield PartitionKey(topic.name, topic.topic_id, index)


class _Waiting:
    """A fetch that waits for records, until one of its partitions moves or its time is over."""

    __slots__ = ("_attempt", "_handler", "_loop", "_partitions", "_since", "_timer")

    def __init__(self, handler: FetchHandler, attempt: Attempt, loop: asyncio.AbstractEventLoop) -> None:
        self._handler = handler
        self._attempt = attempt
        self._loop = loop
        self._partitions: list[Partition] = [attempt.find(key) for key, _ in attempt.plan]
        self._timer: asyncio.TimerHandle | None = None
        self._since = handler.now()

    def begin(self, seconds: float) -> None:
        is_over = any(partition.is_closed for partition in self._partitions)  # the broker stops: nothing will come
        for partition in self._partitions:
            partition.watchers[self._moved] = None
        self._timer = self._loop.call_later(0 if is_over else seconds, self._time_is_over)

    def _moved(self, partition: Partition) -> None:
        woken = self._handler.now()
        if self._attempt.read() or partition.is_closed:
            self._end(woken)
            self._handler.respond(self._attempt)
        else:
            self._attempt.release()

    def _time_is_over(self) -> None:
        self._end(self._handler.now())
        self._attempt.read()
        self._handler.respond(self._attempt)

    def _end(self, woken: float) -> None:
        assert self._timer is not None
        self._attempt.request.waited(woken - self._since)
        self._timer.cancel()
        for partition in self._partitions:
            partition.watchers.pop(self._moved, None)
