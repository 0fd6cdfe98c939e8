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
from typing import Any, Final, TypeAlias, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.broker.dispatch import Dispatcher, Values
from barnabas.broker.request import Request
from barnabas.wire.apis import APIS, ApiKey
from barnabas.wire.codecs import REFERENCE
from barnabas.wire.commit import OffsetCommit
from barnabas.wire.errors import ErrorCode
from barnabas.wire.fetch import Fetch, FetchResult, decode_fetch
from barnabas.wire.heartbeat import HeartbeatRequest
from barnabas.wire.join_group import decode_join_group_request
from barnabas.wire.messages import decode_view, write_response
from barnabas.wire.produce import Produce, ProduceResult
from barnabas.wire.request_views import (
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    LeaveGroupRequest,
    OffsetDeleteRequest,
)

_MESSAGE: Final = "a test asked for this error"
_NO_ACKS: Final = 0

_View = TypeVar("_View")

Act: TypeAlias = Callable[[Request, object], object]
"""What is done to a request, given its request object, instead of serving it."""
Refusal: TypeAlias = Callable[[Request, memoryview, ErrorCode], Values]
"""Makes the answer that says no, from the request's body."""


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

    def takes(self, request: Request, asked: object) -> bool:
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
        def lose(request: Request, asked: object) -> None:
            request.lose_answer(FaultInjected("a test lost the answer"))
            self._serve(request, asked)

        return self._add(api, times, lose)

    def delay(self, api: ApiKey | None, seconds: float, times: int | None) -> Fault:
        def delay(request: Request, asked: object) -> None:
            self._require_dispatcher().loop.call_later(seconds, self._serve, request, asked)

        return self._add(api, times, delay)

    def _add(self, api: ApiKey | None, times: int | None, act: Act) -> Fault:
        fault = Fault(api, times, act)
        with self._lock:
            self._keep((*self._faults, fault))
        return fault

    def _take(self, request: Request, asked: object) -> bool:
        is_taken = any(fault.takes(request, asked) for fault in self._faults)
        if is_taken:
            with self._lock:
                self._keep(tuple(fault for fault in self._faults if not fault.is_used_up))
        return is_taken

    def _require_dispatcher(self) -> Dispatcher:
        assert self._dispatcher is not None, "requests come through a dispatcher"
        return self._dispatcher

    def _serve(self, request: Request, asked: object) -> None:
        request.attempt(lambda: self._require_dispatcher().serve(request, asked))

    # -- refusals ------------------------------------------------------------------------------------------------

    def _refuse(self, request: Request, asked: object, error: ErrorCode) -> None:
        if isinstance(asked, Produce):
            _refuse_produce(request, asked, error)
        elif isinstance(asked, Fetch):
            _refuse_fetch(request, asked, error)
        elif isinstance(asked, OffsetCommit):
            _refuse_commit(request, asked, error)
        elif isinstance(asked, HeartbeatRequest):
            _respond(request, {"error_code": error})
        elif not APIS[request.api_key].serves(request.version):
            self._serve(request, asked)
        else:
            assert isinstance(asked, memoryview), "what is not decoded yet"
            self._refuse_body(request, asked, error)

    def _refuse_body(self, request: Request, body: memoryview, error: ErrorCode) -> None:
        if request.api_key == ApiKey.FETCH:
            _refuse_fetch(request, decode_fetch(request.version, body), error)
        elif request.api_key == ApiKey.JOIN_GROUP:
            _respond(request, _not_joined(decode_join_group_request(request.version, body).member_id, error))
        elif request.api_key == ApiKey.API_VERSIONS:
            _respond(request, {"error_code": error, "api_keys": []})
        elif request.api_key == ApiKey.SYNC_GROUP:
            _respond(request, {"error_code": error, "assignment": b""})
        elif request.api_key in _REFUSALS:
            _respond(request, _REFUSALS[request.api_key](request, body, error))
        else:
            answering = self._require_dispatcher().values_for(request, body)
            task = asyncio.ensure_future(_answer_with(error, request, answering))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def _respond(request: Request, values: Values) -> None:
    request.respond(write_response(request.api_key, request.version, values))


async def _answer_with(error: ErrorCode, request: Request, answering: Awaitable[Values]) -> None:
    try:
        _respond(request, _with_error(await answering, error))
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


def _refuse_fetch(request: Request, fetch: Fetch, error: ErrorCode) -> None:
    """Of the partitions that the request names; one that relies on its session alone is refused as a whole."""
    results = [(one.key, FetchResult(None, error_code=error)) for one in fetch.wanted]
    code = ErrorCode.NONE if results else error
    frame = REFERENCE.fetched(request.version, request.correlation_id, 0, 0, results, error_code=code)
    assert isinstance(frame, bytes), "there are no records in it"
    request.answer(frame)


def _refuse_commit(request: Request, commit: OffsetCommit, error: ErrorCode) -> None:
    results = [(topic, [(one[0], error) for one in partitions]) for topic, partitions in commit.topics]
    request.answer(REFERENCE.committed(request.version, request.correlation_id, 0, results))


def _created_partitions(asked: CreatePartitionsRequest, error: ErrorCode) -> Values:
    return {"results": [{"name": one.name, "error_code": error, "error_message": _MESSAGE} for one in asked.topics]}


def _created_topics(asked: CreateTopicsRequest, error: ErrorCode) -> Values:
    return {
        "topics": [
            {"name": one.name, "error_code": error, "error_message": _MESSAGE, "configs": []} for one in asked.topics
        ]
    }


def _deleted_topics(asked: DeleteTopicsRequest, error: ErrorCode) -> Values:
    wanted = [*asked.topics, *(DeleteTopicState(name, None) for name in asked.topic_names)]
    return {
        "responses": [
            {"name": one.name, "topic_id": one.topic_id, "error_code": error, "error_message": _MESSAGE}
            for one in wanted
        ]
    }


def _deleted_records(asked: DeleteRecordsRequest, error: ErrorCode) -> Values:
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


def _no_producer_id(asked: InitProducerIdRequest, error: ErrorCode) -> Values:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}


def _altered_configs(asked: AlterConfigsRequest | IncrementalAlterConfigsRequest, error: ErrorCode) -> Values:
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


def _not_joined(member_id: str, error: ErrorCode) -> Values:
    return {"error_code": error, "protocol_name": "", "leader": "", "member_id": member_id, "members": []}


def _not_left(asked: LeaveGroupRequest, error: ErrorCode) -> Values:
    return {"error_code": error, "members": []}


def _offsets_not_deleted(asked: OffsetDeleteRequest, error: ErrorCode) -> Values:
    return {"error_code": error, "topics": []}


def _groups_not_deleted(asked: DeleteGroupsRequest, error: ErrorCode) -> Values:
    return {"results": [{"group_id": group_id, "error_code": error} for group_id in asked.groups_names]}


def _refusal(view: type[_View], make: Callable[[_View, ErrorCode], Values]) -> Refusal:
    """How an API that changes something says no."""
    return lambda request, body, error: make(decode_view(request.api_key, request.version, body, view), error)


def _not_reassigned(asked: AlterPartitionReassignmentsRequest, error: ErrorCode) -> Values:
    return {"error_code": error, "error_message": _MESSAGE, "responses": []}


_REFUSALS: Final[Mapping[int, Refusal]] = {
    ApiKey.LEAVE_GROUP: _refusal(LeaveGroupRequest, _not_left),
    ApiKey.DELETE_GROUPS: _refusal(DeleteGroupsRequest, _groups_not_deleted),
    ApiKey.OFFSET_DELETE: _refusal(OffsetDeleteRequest, _offsets_not_deleted),
    ApiKey.CREATE_TOPICS: _refusal(CreateTopicsRequest, _created_topics),
    ApiKey.DELETE_TOPICS: _refusal(DeleteTopicsRequest, _deleted_topics),
    ApiKey.CREATE_PARTITIONS: _refusal(CreatePartitionsRequest, _created_partitions),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _refusal(AlterPartitionReassignmentsRequest, _not_reassigned),
    ApiKey.DELETE_RECORDS: _refusal(DeleteRecordsRequest, _deleted_records),
    ApiKey.INIT_PRODUCER_ID: _refusal(InitProducerIdRequest, _no_producer_id),
    ApiKey.ALTER_CONFIGS: _refusal(AlterConfigsRequest, _altered_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _refusal(IncrementalAlterConfigsRequest, _altered_configs),
}
