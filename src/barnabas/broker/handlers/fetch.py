"""Fetch, versions 4 to 18: ranges of the logs' files, sent without passing through this process.

- A request that finds less than `min_bytes` waits, up to `max_wait`, until one of its partitions gets records; then it
  reads again (`fetch_attempt` has what is read, how it waits, and what is answered).
- Sessions (KIP-227, from version 7) are in `fetch_sessions`. Topics go by id from version 13 on.
- A fetch of very many partitions goes on in `wide_fetch`, in slices.
- A fetch of another broker, which follows this one, is in `replica_fetch`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from barnabas.broker.dispatch import Work
from barnabas.broker.fetch_sessions import FINAL_EPOCH, FetchPlan, Partitions
from barnabas.broker.handlers.fetch_attempt import ISOLATION_LEVELS, Attempt
from barnabas.broker.handlers.replica_fetch import ReplicaFetches
from barnabas.broker.handlers.wide_fetch import WideFetches
from barnabas.broker.request import Request
from barnabas.broker.services import Services
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch import TOPIC_ID_FROM, Fetch, FetchResult, Results, decode_fetch
from barnabas.wire.leaders import LeaderAndEpoch, NodeEndpoint

WIDE_PARTITIONS: Final = 500
"""More partitions than this are not read in one turn of the event loop."""
WIDE_BYTES: Final = 16 << 10
"""Of a request that names about as many."""


def decode_fetch_at_once(version: int, body: memoryview) -> Fetch | memoryview:
    """The request object; the body itself if reading it takes long, which the handler then does in slices."""
    return body if len(body) > WIDE_BYTES else decode_fetch(version, body)


class FetchHandler:
    def __init__(self, services: Services) -> None:
        self.loop = services.loop
        self.services = services
        self.replicas = services.replicas
        self.allows_all = services.authorizer.allows_all
        self.bytes_max = services.settings.config.fetch_max_bytes
        """Of an answer, whatever the client asks for."""
        self.now = services.clock.monotonic
        self.steady_ms = services.clock.steady_ms
        self.worked = services.clock.worked
        self._sessions = services.fetch_sessions
        self.codecs = services.codecs
        self._wide = WideFetches(self, services.loop, services.slices)
        self.for_replicas = ReplicaFetches(self)

    def __call__(self, request: Request, asked: Fetch | memoryview) -> Work | None:
        if isinstance(asked, memoryview):
            return partial(self._wide.serve, request, asked)
        if asked.replica_id >= 0:
            return self.for_replicas(request, asked)
        plan: FetchPlan | None = None
        try:
            if asked.isolation_level not in ISOLATION_LEVELS:
                self.check(asked)
            if asked.session_id or asked.session_epoch != FINAL_EPOCH or len(asked.wanted) != 1:
                plan = self._sessions.plan_for(
                    asked, uses_topic_ids=request.version >= TOPIC_ID_FROM, now_ms=self.steady_ms()
                )
        except KafkaError as error:
            self.refuse(request, asked, error.code)
            return None
        attempt = Attempt(self, request, asked, plan)
        if plan is not None and len(plan.partitions) > WIDE_PARTITIONS:
            return partial(self._wide.answer, attempt, plan)
        if plan is not None:
            self.worked(len(plan.partitions))
        if attempt.read() or asked.wait_ms <= 0 or (plan is not None and not plan.partitions):
            attempt.respond()
        else:
            attempt.wait()
        return None

    def check(self, fetch: Fetch) -> None:
        """Refuses what nobody may ask for."""
        if fetch.isolation_level not in ISOLATION_LEVELS:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {fetch.isolation_level}")

    def plan_wide(self, request: Request, fetch: Fetch, partitions: Partitions) -> FetchPlan:
        """The same with the partitions gathered."""
        return self._sessions.plan(
            fetch.session_id,
            fetch.session_epoch,
            partitions,
            fetch.forgotten,
            uses_topic_ids=request.version >= TOPIC_ID_FROM,
            now_ms=self.steady_ms(),
        )

    def refuse(self, request: Request, fetch: Fetch, code: ErrorCode) -> None:
        """One error for the whole request. For some Kafka names the partitions, where topics go by name."""
        request.add_error(code)
        results: Results = ()
        is_named = code is ErrorCode.UNKNOWN_SERVER_ERROR and request.version < TOPIC_ID_FROM
        if is_named and len(fetch.wanted) <= WIDE_PARTITIONS:
            results = [(one.key, FetchResult(None, error_code=code)) for one in fetch.wanted]
        frame = self.codecs.fetched(
            request.version, request.correlation_id, request.throttle_ms, 0, results, error_code=code
        )
        request.answer(frame)  # type: ignore[arg-type] # it is bytes: there are no records

    def endpoints_of(self, request: Request, leaders: Sequence[LeaderAndEpoch]) -> Sequence[NodeEndpoint]:
        return self.replicas.endpoints_of(leaders, request.caller.listener)
