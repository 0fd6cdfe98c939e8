"""Which broker coordinates which group: the FindCoordinator API, and a memory of its answers.

A group has one coordinator, which keeps its members and its committed offsets; any broker says which one it is. The
answer is kept until somebody reports that it is not true any more (`forget`): `Cluster.coordinator` does, for every
error that says so. Brokers that know several groups in one request (version 4 on) are asked for all at once.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Final

from barnabas.client.broker_connection import BrokerConnection
from barnabas.client.errors import raise_for
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from barnabas.wire.leaders import NodeEndpoint
from barnabas.wire.messages import Message

MOVED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""After these a coordinator is looked up again: it is another one, or may soon be."""

_GROUP: Final = 0
_BATCHED_FROM: Final = 4
_REMEMBERED_MAX: Final = 10_000


class Coordinators:
    """Belongs to a `Cluster`, which gives the way to some broker."""

    def __init__(self, any_connection: Callable[[], Awaitable[BrokerConnection]]) -> None:
        self._any_connection = any_connection
        self._known: dict[str, NodeEndpoint] = {}

    async def find(self, group: str) -> NodeEndpoint:
        """COORDINATOR_NOT_AVAILABLE, which is worth another try, while the cluster has none for it yet."""
        return (await self.find_all([group]))[group]

    async def find_all(self, groups: Collection[str]) -> dict[str, NodeEndpoint]:
        missing = sorted({group for group in groups if group not in self._known})
        if missing:
            await self._ask(missing)
        return {group: self._known[group] for group in groups}

    def forget(self, group: str) -> None:
        self._known.pop(group, None)

    async def _ask(self, groups: list[str]) -> None:
        connection = await self._any_connection()
        if connection.version(ApiKey.FIND_COORDINATOR) >= _BATCHED_FROM:
            values = {"key_type": _GROUP, "coordinator_keys": groups}
            reply = await connection.call(ApiKey.FIND_COORDINATOR, values)
            for answer in reply.coordinators:
                self._take(answer.key, answer)
            return
        for group in groups:
            self._take(group, await connection.call(ApiKey.FIND_COORDINATOR, {"key": group, "key_type": _GROUP}))

    def _take(self, group: str, answer: Message) -> None:
        message = getattr(answer, "error_message", None)
        raise_for(answer.error_code.value, f"the coordinator of group '{group}'", message)
        while len(self._known) >= _REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        self._known[group] = NodeEndpoint(answer.node_id, answer.host, answer.port)
