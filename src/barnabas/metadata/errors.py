"""What a metadata store may refuse, and why. ZooKeeper's errors, under ZooKeeper's names.

The first group answers the caller, who knows what to do (retry with the new version, use what is there). The second
comes from the environment: `SessionLost` goes to the session's owner, `CorruptMetadata` ends the start, `CorruptNode`
is logged.
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
    """Somebody else changed the node since the caller read it."""

    def __init__(self, path: str, expected: int, actual: int) -> None:
        super().__init__(path, f"expected version {expected}, the node has {actual}")


class NotEmpty(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "the node has children")


class NoChildrenForEphemerals(StoreError):  # noqa: N818
    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node cannot have children")


class InvalidPath(StoreError, ValueError):  # noqa: N818
    """Not a path, or an operation that the root does not allow."""


class SessionLost(BarnabasError):  # noqa: N818
    """The session is over: its ephemeral nodes and its watches are gone. Nothing more can be done with it."""


class CorruptMetadata(BarnabasError):  # noqa: N818
    """The store's own file cannot be read."""


class NewerMetadata(CorruptMetadata):
    """A newer Barnabas has written the store's file."""


class CorruptNode(StoreError):  # noqa: N818
    """A node's data is not what belongs there."""
