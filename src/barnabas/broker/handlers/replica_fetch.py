"""Fetch of a follower: what it names proves what it has, and everything that is written is sent, committed or not.

- A fetch names the follower's registration (`replica state`, from version 15); older versions are refused.
- Sessions are in `replica_sessions`: a whole fetch opens one, and the answers tell only what is news.
- Where the follower's log leaves this one is answered by epochs, before anything is read.
- A fetch that finds nothing waits for any of its partitions to grow. The watermarks of partitions that were written to
  are told at the latest when the waiting ends.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import BarnabasError
from barnabas.broker.authorizer import Operation
from barnabas.broker.dispatch import Work
from barnabas.broker.handlers.errors import refusal_of
from barnabas.broker.handlers.fetch_attempt import diverged
from barnabas.broker.replica_sessions import NEVER_TOLD, ReplicaPartition, ReplicaSession
from barnabas.broker.request import Request
from barnabas.replication.leader import Fetched
from barnabas.replication.partition import Partition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch import NO_DIVERGENCE, REPLICA_STATE_FROM, Fetch, FetchResult, PartitionKey

if TYPE_CHECKING:
    from barnabas.broker.handlers.fetch import FetchHandler

_INITIAL_EPOCH: Final = 0
_LOOKED_AT_MAX: Final = 500
"""Partitions of a session that one answer looks at: what is left is the next one's."""
_WATERMARKS_MS: Final = 100
"""How often watermarks are told of partitions that have no records for the follower, while others have."""


class ReplicaFetches:
    """Owner: the broker's event loop."""

    def __init__(self, handler: "FetchHandler") -> None:
        self._handler = handler
        self._sessions = handler.services.replica_sessions

    def __call__(self, request: Request, fetch: Fetch) -> Work | None:
        if len(fetch.wanted) + len(fetch.forgotten) > _LOOKED_AT_MAX:
            return partial(self._serve_long, request, fetch)
        try:
            session = self._session_of(request, fetch)
        except KafkaError as error:
            self._handler.refuse(request, fetch, error.code)
            return None
        for key in fetch.forgotten:
            session.forget(key)
        for wanted in fetch.wanted:
            session.name(wanted)
        self._handler.worked(len(fetch.wanted) + len(fetch.forgotten))
        ReplicaAttempt(self._handler, request, fetch, session).begin()
        return None

    async def _serve_long(self, request: Request, fetch: Fetch) -> None:
        """The same for very many partitions: a follower that begins with all of them."""
        slices = self._handler.services.slices
        try:
            session = self._session_of(request, fetch)
            async for key in slices.each(fetch.forgotten):
                session.forget(key)
            async for wanted in slices.each(fetch.wanted):
                session.name(wanted)
        except KafkaError as error:
            self._handler.refuse(request, fetch, error.code)
        else:
            ReplicaAttempt(self._handler, request, fetch, session).begin()

    def _session_of(self, request: Request, fetch: Fetch) -> ReplicaSession:
        if not self._handler.services.allows_cluster(request, Operation.CLUSTER_ACTION):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only brokers fetch as replicas")
        if request.version < REPLICA_STATE_FROM:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"version {request.version} has no broker epoch")
        if fetch.session_epoch == _INITIAL_EPOCH:
            return self._sessions.open(fetch.replica_id, fetch.replica_epoch)
        return self._sessions.find(fetch.replica_id, fetch.session_id, fetch.session_epoch)


class ReplicaAttempt:
    """Reads what is due in a session, once or again, until there is something to answer."""

    __slots__ = (
        *("_bytes", "_fetch", "_handler", "_is_woken", "_request", "_results", "_session", "_timer", "_waits_since"),
    )

    def __init__(self, handler: "FetchHandler", request: Request, fetch: Fetch, session: ReplicaSession) -> None:
        self._handler = handler
        self._request = request
        self._fetch = fetch
        self._session = session
        self._results: list[tuple[PartitionKey, FetchResult]] = []
        self._bytes = 0
        self._is_woken = False
        self._timer: asyncio.TimerHandle | None = None
        """While it waits."""
        self._waits_since = 0.0

    def begin(self) -> None:
        self._read()
        if self._results or self._session.due or self._fetch.wait_ms <= 0:
            self._respond()
            return
        self._waits_since = self._handler.now()
        self._session.waiting = self
        self._timer = self._handler.loop.call_later(self._fetch.wait_ms / 1000, self.give_way)

    def wake(self) -> None:
        """Looks when all partitions that have grown in this turn have done so."""
        if not self._is_woken:
            self._is_woken = True
            self._handler.loop.call_soon(self._request.attempt, self._go_on)

    def _go_on(self) -> None:
        self._is_woken = False
        if self._timer is None:  # it was answered meanwhile
            return
        self._read()
        if self._results or self._session.due:
            self.give_way()

    def give_way(self) -> None:
        """Answers with what there is."""
        assert self._timer is not None, "it waits"
        self._timer.cancel()
        self._timer = None
        self._session.waiting = None
        self._request.waited(self._handler.now() - self._waits_since)
        self._respond()

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        session, looked_at = self._session, 0
        while session.due and looked_at < _LOOKED_AT_MAX and self._bytes < self._fetch.bytes_max:
            key = next(iter(session.due))
            del session.due[key]
            known = session.partitions.get(key)
            if known is not None:
                self._look_at(key, known)
            looked_at += 1
        self._handler.worked(looked_at)

    def _look_at(self, key: PartitionKey, known: ReplicaPartition) -> None:
        session = self._session
        try:
            partition = self._handler.replicas.find(key.topic, key.partition)
            result = self._read_from(partition, known)
        except BarnabasError as error:
            session.forget(key)
            code = refusal_of(error).code
            self._request.add_error(code)
            self._results.append((key, self._with_log_start(key, FetchResult(None, error_code=code))))
            return
        if result is None:
            session.watch(known, partition)
            now = (partition.high_watermark, partition.log_start_offset)
            if known.told != now or now[0] < partition.end_offset:
                session.untold[key] = None
            else:
                session.untold.pop(key, None)
            return
        if result.records is not None or result.diverging_epoch is not NO_DIVERGENCE:
            session.rest(known)
        else:
            session.watch(known, partition)
        self._bytes += result.size_bytes
        known.told = (result.high_watermark, result.log_start_offset)
        session.untold[key] = None
        self._results.append((key, result))

    def _read_from(self, partition: Partition, known: ReplicaPartition) -> FetchResult | None:
        """What the follower needs next; None when it has everything."""
        wanted, session = known.wanted, self._session
        partition.check_leader_epoch(wanted.leader_epoch)
        partition.check_follower(session.broker_id)
        if wanted.last_fetched_epoch >= 0 and (result := diverged(partition, wanted)) is not None:
            return result
        bytes_max = max(0, min(wanted.bytes_max, self._fetch.bytes_max - self._bytes))
        result = partition.read_for_follower(wanted.offset, bytes_max, at_least_one=not self._bytes)
        try:
            partition.fetched_by(
                Fetched(
                    session.broker_id,
                    session.broker_epoch,
                    wanted.offset,
                    wanted.log_start_offset,
                    self._handler.steady_ms(),
                )
            )
        except BaseException:
            result.release()
            raise
        has_news = known.told[1] not in (NEVER_TOLD, result.log_start_offset)  # records were deleted
        if result.records is not None or has_news:
            return result
        if wanted.offset < partition.end_offset:
            session.due[wanted.key] = None
            self._bytes = self._fetch.bytes_max  # there is no room in this answer
        return None

    def _with_log_start(self, key: PartitionKey, result: FetchResult) -> FetchResult:
        """A follower whose log is out of range begins again where the leader's does."""
        if result.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return result
        try:
            partition = self._handler.replicas.find(key.topic, key.partition)
        except BarnabasError:
            return result
        return result._replace(log_start_offset=partition.log_start_offset, high_watermark=partition.high_watermark)

    # -- answering -----------------------------------------------------------------------------------------------

    def _respond(self) -> None:
        request, handler, session = self._request, self._handler, self._session
        results, self._results = self._results, []
        now_ms = handler.steady_ms()
        if not results or now_ms - session.watermarks_ms >= _WATERMARKS_MS:
            session.watermarks_ms = now_ms
            results += self._watermarks()
        frame = handler.codecs.fetched(
            request.version, request.correlation_id, request.throttle_ms, session.id, results, ()
        )
        request.answer(frame)  # type: ignore[arg-type] # the ranges among the pieces are the slices that the log gave

    def _watermarks(self) -> list[tuple[PartitionKey, FetchResult]]:
        """News of partitions that have nothing else to tell."""
        session = self._session
        results = []
        for key in list(session.untold)[:_LOOKED_AT_MAX]:
            del session.untold[key]
            known = session.partitions.get(key)
            partition = None if known is None else known.partition
            if known is None or partition is None or partition.is_closed:
                continue
            now = (partition.high_watermark, partition.log_start_offset)
            if now != known.told:
                known.told = now
                results.append((key, FetchResult(None, now[0], partition.last_stable_offset, now[1])))
            if now[0] < partition.end_offset:  # it will move
                session.untold[key] = None
        return results
