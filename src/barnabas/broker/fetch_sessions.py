"""Fetch sessions (KIP-227): a consumer names its partitions once, and later only what changes.

Pure: no I/O, no clock. A session remembers what its client wants of each partition and what it was told last, so that
an incremental answer leaves out the partitions with nothing new.

```
request            session id  epoch   meaning
full, no session            0     -1   answer everything, remember nothing
full, new session           0      0   answer everything, and open a session if there is room
incremental                 n   1, 2…  change the session by what the request says, answer what is new
close                       n     -1   forget the session, answer everything
```

The epoch counts a session's requests, so that a lost or repeated one is noticed. Sessions are bounded: when all slots
are taken, one that was not used for `eviction_ms`, or that is old and smaller than the new one, makes room; otherwise
the client gets no session and sends full requests. So are the partitions of all sessions together: a session that would
bring more is not opened, and one that grows by more is closed. Partitions that were answered with data go to the end
of the session, so that a small `max_bytes` starves nobody.
"""

from collections import OrderedDict
from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple, TypeAlias

from barnabas.base.ids import Offset, SteadyMs
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.fetch import Fetch, PartitionKey, Wanted

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_EPOCH_MAX: Final = 2**31 - 1
_PARTITIONS_MAX: Final = 500_000
"""In all sessions: each takes some hundred bytes."""
_NEVER_TOLD: Final = -2


class SessionPartition:
    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.high_watermark: Offset = _NEVER_TOLD
        self.log_start_offset: Offset = _NEVER_TOLD

    def is_news(self, high_watermark: Offset, log_start_offset: Offset) -> bool:
        return high_watermark != self.high_watermark or log_start_offset != self.log_start_offset

    def tell(self, high_watermark: Offset, log_start_offset: Offset) -> None:
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset


Partitions: TypeAlias = "OrderedDict[PartitionKey, SessionPartition]"


class FetchSession:
    __slots__ = ("created_ms", "epoch", "id", "partitions", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, partitions: Partitions, uses_topic_ids: bool, now_ms: SteadyMs) -> None:
        self.id = session_id
        self.epoch = 1
        self.partitions = partitions
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms


class FetchPlan(NamedTuple):
    """Which partitions to read for a request, and how to answer."""

    partitions: Partitions
    session_id: int
    is_incremental: bool

    def sent(self, key: PartitionKey) -> None:
        """The partition was answered with data: others come first next time. While a request waited, a later one of
        its session may have dropped the partition."""
        if self.is_incremental and key in self.partitions:
            self.partitions.move_to_end(key)


def plan_without_session(wanted: Partitions) -> FetchPlan:
    """Everything that a request names is answered, and nothing remembered."""
    return FetchPlan(wanted, NO_SESSION, is_incremental=False)


class FetchSessions:
    """All sessions of a broker, least recently used first."""

    def __init__(self, slots_max: int, eviction_ms: int, random: Random) -> None:
        self._slots_max = slots_max
        self._eviction_ms = eviction_ms
        self._random = random
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def plan_for(self, fetch: Fetch, *, uses_topic_ids: bool, now_ms: SteadyMs) -> FetchPlan:
        """What to answer to a request for a few partitions; raises `KafkaError` when it does not fit its session."""
        session_id, epoch, wanted, forgotten = fetch.session_id, fetch.session_epoch, fetch.wanted, fetch.forgotten
        if len(wanted) == 1 and epoch > INITIAL_EPOCH and not forgotten:
            plan = self._advance_sole(session_id, epoch, wanted[0], uses_topic_ids, now_ms)
            if plan is not None:
                return plan
        partitions = OrderedDict([(one.key, SessionPartition(one)) for one in wanted])
        return self.plan(session_id, epoch, partitions, forgotten, uses_topic_ids=uses_topic_ids, now_ms=now_ms)

    def plan(
        self,
        session_id: int,
        epoch: int,
        wanted: Partitions,
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        now_ms: SteadyMs,
    ) -> FetchPlan:
        """What to answer; raises `KafkaError` when the request does not fit its session. Keeps what is `wanted`."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            plan = plan_without_session(wanted)
            if epoch == FINAL_EPOCH or not plan.partitions:
                return plan
            return plan._replace(session_id=self._open(plan.partitions, uses_topic_ids, now_ms))
        session = self._find(session_id, epoch, uses_topic_ids)
        before = len(session.partitions)
        _change(session, wanted, forgotten)
        if len(session.partitions) > before and self.partition_count > _PARTITIONS_MAX:
            del self._sessions[session_id]
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session_id} has become too large")
        self._advance(session, now_ms)
        if not session.partitions:
            del self._sessions[session_id]
            return FetchPlan(OrderedDict(), NO_SESSION, is_incremental=False)
        return FetchPlan(session.partitions, session_id, is_incremental=True)

    def _advance_sole(
        self, session_id: int, epoch: int, wanted: Wanted, uses_topic_ids: bool, now_ms: SteadyMs
    ) -> FetchPlan | None:
        """The usual request: an incremental one that names its session's only partition. None, and no change, if it is
        not so."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch or session.uses_topic_ids != uses_topic_ids:
            return None
        partition = session.partitions.get(wanted.key)
        if partition is None or len(session.partitions) > 1:
            return None
        partition.wanted = wanted
        self._advance(session, now_ms)
        return FetchPlan(session.partitions, session_id, is_incremental=True)

    def _advance(self, session: FetchSession, now_ms: SteadyMs) -> None:
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)

    def _find(self, session_id: int, epoch: int, uses_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session_id}")
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"epoch {epoch}, but session {session_id} expects {session.epoch}",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, f"session {session_id} names topics another way")
        return session

    def _open(self, partitions: Partitions, uses_topic_ids: bool, now_ms: SteadyMs) -> int:
        """The new session's id, or `NO_SESSION` when there is no room."""
        if len(self._sessions) >= self._slots_max and not self._make_room(len(partitions), now_ms):
            return NO_SESSION
        if self.partition_count + len(partitions) > _PARTITIONS_MAX:
            return NO_SESSION
        session_id = self._random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        self._sessions[session_id] = FetchSession(session_id, partitions, uses_topic_ids, now_ms)
        return session_id

    def _make_room(self, partition_count: int, now_ms: SteadyMs) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        is_idle = now_ms - oldest.used_ms > self._eviction_ms
        is_outgrown = now_ms - oldest.created_ms > self._eviction_ms and len(oldest.partitions) < partition_count
        if is_idle or is_outgrown:
            del self._sessions[oldest.id]
            return True
        return False

    def check_invariants(self) -> None:
        assert len(self._sessions) <= max(self._slots_max, 0)
        for session_id, session in self._sessions.items():
            assert session.id == session_id
            assert session.epoch >= 1
            assert session.partitions


def _change(session: FetchSession, wanted: Partitions, forgotten: Iterable[PartitionKey]) -> None:
    for key, one in wanted.items():
        known = session.partitions.get(key)
        if known is None:
            session.partitions[key] = one
        else:
            known.wanted = one.wanted
    for key in forgotten:
        session.partitions.pop(key, None)
