"""Our operations as kazoo's requests, and its answers and errors as ours. Pure.

Every write is a ZooKeeper transaction, also of a single operation: one way to send it, and one way to read its answer.
That answer is a list: of a refused transaction it has `RolledBackError` for the operations before the refused one,
whose own error follows, and `RuntimeInconsistency` for those behind it. None of kazoo's errors says which path it is
about.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo import exceptions as kazoo_errors  # type: ignore[import-untyped]
from kazoo.protocol.serialization import (  # type: ignore[import-untyped]
    CheckVersion,
    Exists,
    GetChildren,
    GetData,
    Transaction,
)
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.serialization import Delete as DeleteRequest
from kazoo.protocol.serialization import SetData as SetDataRequest
from kazoo.protocol.states import EventType as KazooEventType  # type: ignore[import-untyped]
from kazoo.protocol.states import WatchedEvent, ZnodeStat
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE  # type: ignore[import-untyped]

from barnabas.base.errors import BarnabasError
from barnabas.metadata.errors import (
    AccessDenied,
    BadVersion,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    OutcomeUnknown,
    RequestRefused,
    SessionLost,
    SessionSuspended,
    StoreError,
)
from barnabas.metadata.paths import ROOT, parent_of
from barnabas.metadata.store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    EventType,
    Node,
    Operation,
    Result,
    SetData,
    Stat,
)
from barnabas.metadata.zookeeper.zookeeper_calls import Call, ReadCall, ReadKind, WriteCall
from barnabas.metadata.zookeeper.zookeeper_options import Access, ZooKeeperOptions

EVENT_TYPES: Final = {
    KazooEventType.CREATED: EventType.CREATED,
    KazooEventType.CHANGED: EventType.CHANGED,
    KazooEventType.DELETED: EventType.DELETED,
    KazooEventType.CHILD: EventType.CHILDREN,
}

_EPHEMERAL: Final = 1
_SEQUENTIAL: Final = 2
_ACCESS_LISTS: Final = {
    Access.OPEN: OPEN_ACL_UNSAFE,
    Access.READABLE: CREATOR_ALL_ACL + READ_ACL_UNSAFE,
    Access.SECRET: CREATOR_ALL_ACL,
}
_CONSEQUENCES: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""Of operations that were not refused themselves."""
_NO_ANSWER: Final = "the connection to ZooKeeper was lost before the answer came"
_UNANSWERED: Final = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.SessionMovedError,
    kazoo_errors.AuthFailedError,
)


_READ_REQUESTS: Final = {ReadKind.DATA: GetData, ReadKind.EXISTENCE: Exists, ReadKind.CHILDREN: GetChildren}


def request_of(call: Call, options: ZooKeeperOptions, watcher: Callable[[WatchedEvent], None]) -> Any:
    """kazoo's request; `watcher` is what it calls when a watch fires."""
    if isinstance(call, ReadCall):
        return _READ_REQUESTS[call.kind](options.full_path(call.path), watcher if call.is_watched else None)
    return Transaction([_operation_request(operation, options) for operation in call.operations])


def result_of(call: Call, answer: Any, options: ZooKeeperOptions) -> Any | BarnabasError:
    """What the call returns, or the error that it raises."""
    if isinstance(call, WriteCall):
        return _write_results(call.operations, answer, options)
    match call.kind:
        case ReadKind.DATA:
            data, stat = answer
            return Node(data or b"", _stat(stat))
        case ReadKind.EXISTENCE:
            return None if answer is None else _stat(answer)
        case ReadKind.CHILDREN:
            return sorted(answer)


def error_of(call: Call, error: Exception) -> BarnabasError:
    """For a call without a result. Only a write may have happened all the same."""
    is_read = isinstance(call, ReadCall) or not call.operations
    path = call.path if isinstance(call, ReadCall) else call.operations[0].path if call.operations else ROOT
    is_refused = isinstance(error, kazoo_errors.ZookeeperError) and not isinstance(error, _UNANSWERED)
    match error:
        case kazoo_errors.NoNodeError():
            return NoNode(path)
        case kazoo_errors.NoAuthError():
            return AccessDenied(path)
        case kazoo_errors.SessionExpiredError():
            return SessionLost("the ZooKeeper session has expired")
        case _ if is_refused:
            return _unexpected(path, error)
        case _ if is_read:
            return SessionSuspended(f"{path}: {_NO_ANSWER}")
        case _:
            return OutcomeUnknown(path, _NO_ANSWER)


def _operation_request(operation: Operation, options: ZooKeeperOptions) -> Any:
    path = options.full_path(operation.path)
    match operation:
        case Create():
            flags = operation.ephemeral * _EPHEMERAL + operation.sequential * _SEQUENTIAL
            return CreateRequest(path, operation.data, _ACCESS_LISTS[options.access_to(operation.path)], flags)
        case SetData():
            return SetDataRequest(path, operation.data, operation.version)
        case Delete():
            return DeleteRequest(path, operation.version)
        case Check():
            return CheckVersion(path, operation.version)


def _write_results(
    operations: Sequence[Operation], answers: Sequence[Any], options: ZooKeeperOptions
) -> list[Result] | StoreError:
    """Of a refused transaction the error of the operation that was refused."""
    results: list[Result] = []
    for operation, answer in zip(operations, answers, strict=True):
        if isinstance(answer, _CONSEQUENCES):
            continue
        if isinstance(answer, kazoo_errors.ZookeeperError):
            return _refusal(operation, answer)
        if isinstance(operation, Create):
            results.append(options.own_path(answer))
        else:
            results.append(_stat(answer) if isinstance(operation, SetData) else None)
    return results


def _refusal(operation: Operation, error: Exception) -> StoreError:
    path = operation.path
    match error:
        case kazoo_errors.NoNodeError():
            return NoNode(parent_of(path) if isinstance(operation, Create) else path)
        case kazoo_errors.NodeExistsError():
            return NodeExists(path)
        case kazoo_errors.BadVersionError():
            return BadVersion(path, ANY_VERSION if isinstance(operation, Create) else operation.version)
        case kazoo_errors.NotEmptyError():
            return NotEmpty(path)
        case kazoo_errors.NoChildrenForEphemeralsError():
            return NoChildrenForEphemerals(parent_of(path))
        case kazoo_errors.NoAuthError():  # who may create and delete is said by the parent
            return AccessDenied(parent_of(path) if isinstance(operation, Create | Delete) else path)
        case _:
            return _unexpected(path, error)


def _unexpected(path: str, error: Exception) -> RequestRefused:
    return RequestRefused(path, f"ZooKeeper answered {type(error).__name__} {error}".rstrip())


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        pzxid=stat.pzxid,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        children_version=stat.cversion,
        children_count=stat.numChildren,
        ephemeral_owner=stat.ephemeralOwner,
    )
