"""The Fetch of one partition on the shortest way: `barnabas.wire.sole_fetch`.

Takes the frames of readers that have one partition, with a session (KIP-227) or without, and answers them, at once or
when there are records. Whatever is out of the ordinary, from the beginning or while it waits (an error, another epoch,
aborted transactions, a partition that goes), is left to the general handler, which also says what is wrong.
"""

import asyncio
from collections import OrderedDict
from functools import lru_cache
from typing import Final

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_EPOCH
from barnabas.base.uuid import ZERO_UUID
from barnabas.broker.dispatch import ClientConnection
from barnabas.broker.fetch_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchPlan,
    FetchSessions,
    PartitionKey,
    SessionPartition,
    Wanted,
    plan_without_session,
)
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.handlers.fetch_attempt import READ_COMMITTED
from barnabas.broker.request_measures import RequestMeasures
from barnabas.net.replies import ReplySlot
from barnabas.replication.partition import Partition, PartitionRead
from barnabas.replication.replicas import Replicas
from barnabas.storage.slices import FileSlice
from barnabas.wire.apis import ApiKey
from barnabas.wire.fetch_request import TOPIC_ID_FROM, FetchRequest
from barnabas.wire.fetch_response import FetchResponse, encode_fetch_response
from barnabas.wire.framing import RequestHeader, response_start
from barnabas.wire.primitives import uuid_of
from barnabas.wire.sole_fetch import FETCH_REPLY_END, SoleFetch, read_sole_fetch, write_fetch_reply

_NOTHING: Final = memoryview(b"")


class SoleFetchHandler:
    """See the module's text."""

    def __init__(
        self,
        general: FetchHandler,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        replicas: Replicas,
        sessions: FetchSessions,
        measures: RequestMeasures,
    ) -> None:
        """`measures` are for those requests that never become a `Request`."""
        self.general = general
        self.loop = loop
        self.now = measures.now
        self.seconds = measures.seconds[ApiKey.FETCH]
        self.wait_seconds = measures.fetch_wait_seconds
        self._clock = clock
        self._replicas = replicas
        self._sessions = sessions

    def take(self, frame: memoryview, slot: ReplySlot, client: ClientConnection) -> bool:
        """Whether the frame is such a fetch, and is or will be answered."""
        sole = read_sole_fetch(frame)
        if sole is None:
            return False
        partition = self._replicas.get_sole(sole.topic, sole.index)
        if partition is None or (sole.leader_epoch > NO_EPOCH and sole.leader_epoch != partition.leader_epoch):
            return False
        fetch = _WaitingFetch(self, sole, slot, client, partition)
        try:
            found = fetch.read()
        except BarnabasError:
            return False
        if found.aborted or not self._advance(fetch, sole):
            found.release()
            return False
        if found.size_bytes >= sole.bytes_min or sole.wait_ms <= 0:
            fetch.respond(found)
        else:
            found.release()
            fetch.wait(sole.wait_ms / 1000)
        return True

    def _advance(self, fetch: "_WaitingFetch", sole: SoleFetch) -> bool:
        """Whether the request goes without a session, or is the next one of a session with this one partition."""
        if sole.session_epoch == FINAL_EPOCH:
            return sole.session_id == NO_SESSION
        uses_topic_ids = sole.version >= TOPIC_ID_FROM
        fetch.told = self._sessions.advance_sole(
            sole.session_id, sole.session_epoch, fetch.key, fetch.wanted, uses_topic_ids, self._clock.steady_ms()
        )
        return fetch.told is not None


class _WaitingFetch:
    """One fetch, from its frame to its answer."""

    __slots__ = ("_began", "_client", "_handler", "_partition", "_slot", "_sole", "_timer", "_waits_since", "told")

    def __init__(
        self,
        handler: SoleFetchHandler,
        sole: SoleFetch,
        slot: ReplySlot,
        client: ClientConnection,
        partition: Partition,
    ) -> None:
        self._handler = handler
        self._sole = sole
        self._slot = slot
        self._client = client
        self._partition = partition
        self._began = self._waits_since = handler.now()
        self._timer: asyncio.TimerHandle | None = None
        self.told: SessionPartition | None = None
        """What a session's client knows; None without a session. Kept here, because a session may change meanwhile."""

    @property
    def key(self) -> PartitionKey:
        return _key_of(self._sole.topic, self._sole.index)

    @property
    def wanted(self) -> Wanted:
        sole = self._sole
        return Wanted(sole.offset, sole.partition_bytes_max, sole.leader_epoch, NO_EPOCH)

    def read(self) -> PartitionRead:
        sole = self._sole
        return self._partition.read(
            sole.offset,
            max(0, min(sole.partition_bytes_max, sole.bytes_max, self._handler.general.bytes_max)),
            is_committed_only=sole.isolation_level == READ_COMMITTED,
            at_least_one=True,
        )

    # -- waiting -------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        if self._partition.is_closed:  # the broker stops: nothing will come
            seconds = 0
        self._partition.watchers[self._moved] = None
        self._waits_since = self._handler.now()
        self._timer = self._handler.loop.call_later(seconds, self._look, True)

    def _moved(self, partition: Partition) -> None:
        self._look(partition.is_closed)

    def _look(self, is_last: bool) -> None:
        """Answers if there is enough now, or if it is the last time."""
        woken = self._handler.now()
        try:
            found = self.read()
        except BarnabasError:
            self._leave(woken)
            return
        if found.aborted or self._partition.is_closed:
            found.release()
            self._leave(woken)
        elif is_last or found.size_bytes >= self._sole.bytes_min:
            self._end(woken)
            self.respond(found)
        else:
            found.release()

    def _end(self, woken: float) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._partition.watchers.pop(self._moved, None)
        waited = woken - self._waits_since
        self._began += waited
        self._handler.wait_seconds.observe(waited)

    def _leave(self, woken: float) -> None:
        """Hands it over to the general handler, to be answered now."""
        self._end(woken)
        sole = self._sole
        header = RequestHeader(ApiKey.FETCH, sole.version, sole.correlation_id, sole.client_id, 0)
        request = self._client.request(header, _NOTHING, self._slot, self._began)
        fetch = FetchRequest(sole.wait_ms, sole.bytes_min, sole.bytes_max, sole.isolation_level)
        if self.told is None:
            plan = plan_without_session(OrderedDict({self.key: SessionPartition(self.wanted)}))
        else:
            plan = FetchPlan(OrderedDict({self.key: self.told}), sole.session_id, is_incremental=True)
        self._handler.general.answer(request, fetch, plan)

    # -- answering -----------------------------------------------------------------------------------------------

    def respond(self, found: PartitionRead) -> None:
        if self.told is not None and not _is_news(self.told, found):
            self._respond_empty()
        else:
            self._respond(found)
        handler = self._handler
        handler.seconds.observe(handler.now() - self._began)

    def _respond(self, found: PartitionRead) -> None:
        records, high_watermark, last_stable_offset, log_start_offset, aborted = found
        sole, size_bytes = self._sole, found.size_bytes
        self._partition.traffic.sent_bytes += size_bytes
        frame = write_fetch_reply(
            sole.version,
            sole.correlation_id,
            sole.session_id,
            sole.topic,
            sole.index,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            aborted is not None,
            None if isinstance(records, FileSlice) else records or b"",
            size_bytes,
        )
        self._slot.complete([frame, records, FETCH_REPLY_END] if isinstance(records, FileSlice) else frame)

    def _respond_empty(self) -> None:
        version, correlation_id = self._sole.version, self._sole.correlation_id
        pieces, length = encode_fetch_response(version, FetchResponse(session_id=self._sole.session_id))
        start = response_start(ApiKey.FETCH, version, correlation_id, length)
        self._slot.complete(b"".join((start, *pieces)))  # type: ignore[arg-type] # without records they are bytes


@lru_cache
def _key_of(topic: str | bytes, index: int) -> PartitionKey:
    if isinstance(topic, bytes):
        return PartitionKey("", uuid_of(topic), index)
    return PartitionKey(topic, ZERO_UUID, index)


def _is_news(told: SessionPartition, found: PartitionRead) -> bool:
    """Whether a session's client has not been told all of this; it is then."""
    is_news = found.records is not None or told.is_news(found.high_watermark, found.log_start_offset)
    told.tell(found.high_watermark, found.log_start_offset)
    return is_news
