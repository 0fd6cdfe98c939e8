"""What a test wants to go wrong: requests that are refused, late, dropped, or whose answers are lost.

Each fault is for one API, or for all, and for a number of requests. A request meets the oldest fault that is for it and
is not used up; the others see it no more.

A refusal is what a client would get from a broker that has this problem: an API that changes something does not do it,
and one that reads is asked and has its answer's error codes replaced. Owner: the broker's event loop, but for adding
and clearing, which any thread may do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from threading import Lock
from typing import Any, Final, TypeAlias

from barnabas.base.errors import BarnabasError
from barnabas.broker.dispatch import Dispatcher, Values
from barnabas.broker.request import Request
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codecs import REFERENCE
from barnabas.wire.commit import OffsetCommit
from barnabas.wire.errors import ErrorCode
from barnabas.wire.fetch import Fetch, FetchResult, decode_fetch
from barnabas.wire.messages import decode_request, write_response
from barnabas.wire.produce import Produce, ProduceResult

_MESSAGE: Final = "a test asked for this error"
_NO_ACKS: Final = 0


Act: TypeAlias = Callable[[Request, Any], object]
"""What is done to a request, given its request object, instead of serving it."""


class FaultInjected(BarnabasError):  # noqa: N818 - it is what happened
    """Why a connection was closed that a test wanted closed."""


class Fault:
    """One of them, to look at how often it was used. Without a limit (`times` None) it holds until it is cleared."""

    def __init__(self, api: ApiKey | None, times: int | None, act: Act) -> None:
        self._api = api
        self._times = times
        self._act = act
        self.used = 0

    @property
    def is_used_up(self) -> bool:
        return self._times is not None and self.used >= self._times

    def takes(self, request: Request, asked: Any) -> bool:
        if self.is_used_up or self._api not in (None, request.api_key):
            return False
        self.used += 1
        self._act(request, asked)
        return True


class Faults:
    """All of a broker's. They stay when it is restarted: `attach` tells them of the new dispatcher.

    The dispatcher has a fault only while one is pending: a broker without one serves as it does for users.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._faults: tuple[Fault, ...] = ()
        self._dispatcher: Dispatcher | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, dispatcher: Dispatcher) -> None:
        with self._lock:
            self._dispatcher = dispatcher
            self._keep(self._faults)

    def clear(self) -> None:
        with self._lock:
            self._keep(())

    def _keep(self, faults: tuple[Fault, ...]) -> None:
        """With the lock held: those that are pending, of which the dispatcher knows."""
        self._faults = faults
        if self._dispatcher is not None:
            self._dispatcher.fault = self._take if faults else None

    def fail(self, api: ApiKey, error: ErrorCode, times: int | None) -> Fault:
        return self._add(api, times, lambda request, asked: self._refuse(request, asked, error))

    def drop(self, api: ApiKey | None, times: int | None) -> Fault:
        return self._add(api, times, lambda request, _: request.refuse(FaultInjected("a test dropped the request")))

    def lose_answers(self, api: ApiKey | None, times: int | None) -> Fault:
        def lose(request: Request, asked: Any) -> None:
            request.lose_answer(FaultInjected("a test lost the answer"))
            self._serve(request, asked)

        return self._add(api, times, lose)

    def delay(self, api: ApiKey | None, seconds: float, times: int | None) -> Fault:
        def delay(request: Request, asked: Any) -> None:
            self._require_dispatcher().loop.call_later(seconds, self._serve, request, asked)

        return self._add(api, times, delay)

    def _add(self, api: ApiKey | None, times: int | None, act: Act) -> Fault:
        fault = Fault(api, times, act)
        with self._lock:
            self._keep((*self._faults, fault))
        return fault

    def _take(self, request: Request, asked: Any) -> bool:
        is_taken = any(fault.takes(request, asked) for fault in self._faults)
        if is_taken:
            with self._lock:
                self._keep(tuple(fault for fault in self._faults if not fault.is_used_up))
        return is_taken

    def _require_dispatcher(self) -> Dispatcher:
        assert self._dispatcher is not None, "requests come through a dispatcher"
        return self._dispatcher

    def _serve(self, request: Request, asked: Any) -> None:
        request.attempt(lambda: self._require_dispatcher().serve(request, asked))

    # -- refusals ------------------------------------------------------------------------------------------------

    def _refuse(self, request: Request, asked: Any, error: ErrorCode) -> None:
        if isinstance(asked, Produce):
            _refuse_produce(request, asked, error)
        elif request.api_key == ApiKey.FETCH:
            _refuse_fetch(request, asked, error)
        elif isinstance(asked, OffsetCommit):
            _refuse_commit(request, asked, error)
        elif request.api_key == ApiKey.HEARTBEAT:
            request.respond(write_response(request.api_key, request.version, {"error_code": error}))
        elif request.api_key in _REFUSALS:
            values = _REFUSALS[request.api_key](decode_request(request.api_key, request.version, asked), error)
            request.respond(write_response(request.api_key, request.version, values))
        elif not APIS[request.api_key].serves(request.version):
            self._serve(request, asked)
        else:
            answering = self._require_dispatcher().values_for(request, asked)
            task = asyncio.ensure_future(_answer_with(error, request, answering))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def _answer_with(error: ErrorCode, request: Request, answering: Awaitable[Values]) -> None:
    try:
        values = _with_error(await answering, error)
        request.respond(write_response(request.api_key, request.version, values))
    except BarnabasError as problem:
        request.refuse(problem)


def _with_error(value: Any, error: ErrorCode) -> Any:
    """The same values with every error code replaced."""
    if isinstance(value, Mapping):
        return {name: error if name == "error_code" else _with_error(one, error) for name, one in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [_with_error(one, error) for one in value]
    return value


def _refuse_produce(request: Request, produce: Produce, error: ErrorCode) -> None:
    if produce.acks == _NO_ACKS:
        request.refuse(FaultInjected(f"a test asked for {error.name}"))
        return
    results = [ProduceResult(error, error_message=_MESSAGE) for _ in produce.batches]
    request.answer(REFERENCE.produced(request.version, request.correlation_id, 0, produce.batches, results))


def _refuse_fetch(request: Request, asked: Fetch | memoryview, error: ErrorCode) -> None:
    """Of the partitions that the request names; one that relies on its session alone is refused as a whole."""
    fetch = decode_fetch(request.version, asked) if isinstance(asked, memoryview) else asked
    results = [(one.key, FetchResult(None, error_code=error)) for one in fetch.wanted]
    code = ErrorCode.NONE if results else error
    frame = REFERENCE.fetched(request.version, request.correlation_id, 0, 0, results, error_code=code)
    assert isinstance(frame, bytes), "there are no records in it"
    request.answer(frame)


def _refuse_commit(request: Request, commit: OffsetCommit, error: ErrorCode) -> None:
    results = [(topic, [(one[0], error) for one in partitions]) for topic, partitions in commit.topics]
    request.answer(REFERENCE.committed(request.version, request.correlation_id, 0, results))


def _created_partitions(asked: Any, error: ErrorCode) -> Values:
    return {"results": [{"name": one.name, "error_code": error, "error_message": _MESSAGE} for one in asked.topics]}


def _created_topics(asked: Any, error: ErrorCode) -> Values:
    return {
        "topics": [
            {"name": one.name, "error_code": error, "error_message": _MESSAGE, "configs": []} for one in asked.topics
        ]
    }


def _deleted_topics(asked: Any, error: ErrorCode) -> Values:
    if hasattr(asked, "topic_names"):
        wanted = [(name, None) for name in asked.topic_names]
    else:
        wanted = [(one.name, one.topic_id) for one in asked.topics]
    return {
        "responses": [
            {"name": name, "topic_id": topic_id, "error_code": error, "error_message": _MESSAGE}
            for name, topic_id in wanted
        ]
    }


def _deleted_records(asked: Any, error: ErrorCode) -> Values:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": one.partition_index, "low_watermark": -1, "error_code": error}
                    for one in topic.partitions
                ],
            }
            for topic in asked.topics
        ]
    }


def _no_producer_id(asked: Any, error: ErrorCode) -> Values:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}


def _altered_configs(asked: Any, error: ErrorCode) -> Values:
    return {
        "responses": [
            {
                "error_code": error,
                "error_message": _MESSAGE,
                "resource_type": one.resource_type,
                "resource_name": one.resource_name,
            }
            for one in asked.resources
        ]
    }


def _not_joined(asked: Any, error: ErrorCode) -> Values:
    return {"error_code": error, "protocol_name": "", "leader": "", "member_id": asked.member_id, "members": []}


def _not_synced(asked: Any, error: ErrorCode) -> Values:
    return {"error_code": error, "assignment": b""}


def _not_left(asked: Any, error: ErrorCode) -> Values:
    return {"error_code": error, "members": []}


def _offsets_not_deleted(asked: Any, error: ErrorCode) -> Values:
    return {"error_code": error, "topics": []}


def _groups_not_deleted(asked: Any, error: ErrorCode) -> Values:
    return {"results": [{"group_id": group_id, "error_code": error} for group_id in asked.groups_names]}


_REFUSALS: Final[Mapping[int, Callable[[Any, ErrorCode], Values]]] = {
    ApiKey.JOIN_GROUP: _not_joined,
    ApiKey.LEAVE_GROUP: _not_left,
    ApiKey.SYNC_GROUP: _not_synced,
    ApiKey.DELETE_GROUPS: _groups_not_deleted,
    ApiKey.OFFSET_DELETE: _offsets_not_deleted,
    ApiKey.CREATE_TOPICS: _created_topics,
    ApiKey.DELETE_TOPICS: _deleted_topics,
    ApiKey.CREATE_PARTITIONS: _created_partitions,
    ApiKey.DELETE_RECORDS: _deleted_records,
    ApiKey.INIT_PRODUCER_ID: _no_producer_id,
    ApiKey.ALTER_CONFIGS: _altered_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _altered_configs,
}
"""APIs that change something, and how they say no."""
