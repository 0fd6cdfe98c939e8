"""What a metadata store may refuse, and why. ZooKeeper's errors, under ZooKeeper's names.

A `StoreError` answers the caller, who knows what to do (retry with the new version, use what is there). The others come
from the environment: `SessionLost` goes to the session's owner, `StoreUnreachable` and `CorruptMetadata` end the start,
`CorruptNode` is logged.

```
SessionLost            the session cannot do this, now or ever: resign, answer "try again"
 ├ SessionSuspended    … now: nothing was changed, and the same call may work when the session is connected again
 └ OutcomeUnknown      … or it was changed after all: read before you answer
```
"""

from barnabas.base.errors import BarnabasError


class StoreError(BarnabasError):
    """Base of what a store refuses; `path` is the node it is about."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class NoNode(StoreError):  # noqa: N818 - facts about a node, named as ZooKeeper names them
    def __init__(self, path: str) -> None:
        super().__init__(path, "there is no such node")


class NodeExists(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node exists already")


class BadVersion(StoreError):  # noqa: N818
    """Somebody else changed the node since the caller read it. Not every store says which version it has."""

    def __init__(self, path: str, expected: int, actual: int | None = None) -> None:
        super().__init__(path, f"expected version {expected}, the node has {'another' if actual is None else actual}")


class NotEmpty(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node has children")


class NoChildrenForEphemerals(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node cannot have children")


class InvalidPath(StoreError, ValueError):  # noqa: N818
    """Not a path, or an operation that the root does not allow."""


class WriteTooLarge(StoreError):  # noqa: N818
    """ZooKeeper would drop the connection that sent it."""

    def __init__(self, path: str, size_bytes: int, bytes_max: int) -> None:
        super().__init__(path, f"a write of {size_bytes:,} bytes is too large; the limit is {bytes_max:,}")


class AccessDenied(StoreError):  # noqa: N818
    """The node's access list does not allow it to the identity of this session."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "the node's access list does not allow this")


class RequestRefused(StoreError):  # noqa: N818
    """The server answered with an error that none of our calls should meet; the message names it."""


class SessionLost(BarnabasError):  # noqa: N818
    """The session is over: its ephemeral nodes and its watches are gone. Nothing more can be done with it.

    The call that raised it changed nothing, unless it raised `OutcomeUnknown`.
    """


class SessionSuspended(SessionLost):
    """The store cannot be reached now. The call changed nothing."""


class OutcomeUnknown(SessionLost):
    """The connection broke while a write to this path was under way: it may have happened, or not."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: nobody knows whether this was written: {reason}")
        self.path = path


class StoreUnreachable(BarnabasError):  # noqa: N818
    """No session could be opened: no server answered in time."""


class CorruptMetadata(BarnabasError):  # noqa: N818
    """The store's own file cannot be read."""


class NewerMetadata(CorruptMetadata):
    """A newer Barnabas has written the store's file."""


class CorruptNode(StoreError):  # noqa: N818
    """A node's data is not what belongs there."""
