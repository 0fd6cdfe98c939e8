"""The way to a cluster: connections to its brokers, what is known of it, and another try when something moved.

```
bootstrap addresses ──first answer──▶ view (brokers, topics, leaders) ──▶ connection to the broker that is needed
                                        ▲                                        │
                                        └── refreshed after errors ◀── retry ◀───┘
```

Connections are opened on demand, one for each broker and *lane*: a caller that long-polls (a consumer) brings its own
lane, so that no other request waits behind it. When every known broker has gone, the bootstrap addresses are asked
again.

`retry` is the one place that decides what is tried again: lost connections and the errors that Kafka calls retriable,
with growing pauses and fresh metadata in between, until the time is over. Requests to a group's coordinator go through
`coordinator`, which looks it up again when it moved. Transactions, which have other coordinators, are not here yet.
"""

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeVar

from barnabas.base.addresses import address_text, bracket_hint
from barnabas.base.clock import Clock, SystemClock
from barnabas.base.errors import InvalidSetting
from barnabas.base.ids import TopicPartition
from barnabas.client.broker_connection import BrokerConnection, ConnectionOptions
from barnabas.client.errors import ClusterUnreachable, UnknownTopic
from barnabas.client.group.coordinators import MOVED, Coordinators
from barnabas.client.metadata import ClusterView, TopicMetadata
from barnabas.net.buffers import ReceiveBuffers
from barnabas.net.errors import ConnectFailed, NetworkFailed
from barnabas.net.sockets import SocketNetwork
from barnabas.net.stream import Network
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import LeaderAndEpoch, NodeEndpoint
from barnabas.wire.messages import Message
from barnabas.wire.values import Values

_LOG = logging.getLogger(__name__)

DEFAULT_PORT: Final = 9092
GENERAL: Final = "general"
"""Default lane, for requests that do not long-poll."""

_ADDRESS: Final = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    retry_timeout_seconds: float = 60.0
    """How long a call is tried again before it fails."""
    backoff_seconds_min: float = 0.02
    backoff_seconds_max: float = 1.0
    metadata_age_seconds_max: float = 300.0


class Cluster:
    """`async with Cluster("localhost:9092") as cluster:`; shared by any number of admins, producers and consumers.

    `view` is what is known now. It belongs to one event loop.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        options: ClusterOptions | None = None,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        source: random.Random | None = None,
    ) -> None:
        addresses = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
        self._bootstrap = [parse_address(address) for address in addresses]
        self.options = options or ClusterOptions()
        self.clock = clock or SystemClock()
        self.source = source or random.Random()
        self.view = ClusterView()
        self.problem: KafkaError | NetworkFailed | None = None
        """Why a call is being retried, to show what it waits for; None while no call is."""
        self.coordinators = Coordinators(self.any_connection)
        self._network = network or SocketNetwork()
        self._buffers = ReceiveBuffers()
        self._connections: dict[tuple[Hashable, str, int], BrokerConnection] = {}
        self._opening: dict[tuple[Hashable, str, int], asyncio.Lock] = {}
        self._is_closed = False
        self._refreshing = asyncio.Lock()
        self._refreshed_at: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        """ClusterUnreachable at once when no bootstrap address answers."""
        try:
            await self.refresh(())
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all connections; there will be no others."""
        self._is_closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.close()

    async def close_lane(self, lane: Hashable) -> None:
        for key in [key for key in self._connections if key[0] == lane]:
            await self._connections.pop(key).close()
            self._opening.pop(key, None)

    # --- what is known --------------------------------------------------------------------------------------

    async def refresh(self, topics: Collection[str] | None, *, may_create: bool = False) -> ClusterView:
        """Asks a broker about these topics, or about all (None). A topic that is not there is in `view.problems`."""
        async with self._refreshing:
            asked = None if topics is None else sorted(topics)
            values = {
                "topics": None if asked is None else [{"name": name} for name in asked],
                "allow_auto_topic_creation": may_create,
            }
            connection = await self.any_connection()
            reply = await connection.call(ApiKey.METADATA, values)
            self.view = self.view.merged(reply, asked)
            now = self.clock.monotonic()
            for name in self.view.topics if asked is None else asked:
                self._refreshed_at[name] = now
            return self.view

    async def topic(self, name: str, *, partition: int = 0, may_create: bool = False) -> TopicMetadata:
        """UnknownTopic when the cluster has none of this name.

        Asks again when `partition` is beyond those that are known: it may have been added since.
        """
        known = self.view.topics.get(name)
        age_seconds = self.clock.monotonic() - self._refreshed_at.get(name, float("-inf"))
        is_recent = age_seconds < self.options.metadata_age_seconds_max
        if known is not None and is_recent and (partition == 0 or partition < len(known.partitions)):
            return known
        return (await self.refresh([name], may_create=may_create)).topic(name)

    def learn_leader(
        self, partition: TopicPartition, leader: LeaderAndEpoch, endpoints: Sequence[NodeEndpoint]
    ) -> bool:
        """Applies a new leader that a reply reported; returns whether that changed the view."""
        before = self.view
        self.view = before.with_leader(partition, leader, endpoints)
        return self.view is not before

    async def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions of each leader. Asks for topics that are not known yet."""
        led: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            await self.topic(partition.topic, partition=partition.partition)
            led.setdefault(self.view.leader(partition).leader_id, []).append(partition)
        return led

    # --- connections ----------------------------------------------------------------------------------------

    async def connection(self, node_id: int, lane: Hashable = GENERAL) -> BrokerConnection:
        broker = self.view.brokers.get(node_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no broker {node_id}")
        return await self._connect(broker.host, broker.port, lane)

    @contextlib.asynccontextmanager
    async def coordinator(self, group: str, lane: Hashable = GENERAL) -> AsyncIterator[BrokerConnection]:
        """A connection to a group's coordinator. An error in the block that says it moved makes us look it up again."""
        node = await self.coordinators.find(group)
        try:
            yield await self._connect(node.host, node.port, lane)
        except (NetworkFailed, KafkaError) as error:
            if isinstance(error, NetworkFailed) or error.code in MOVED:
                self.coordinators.forget(group)
            raise

    async def any_connection(self) -> BrokerConnection:
        """To a broker that answers: one that is connected, one that is known, or one of the bootstrap addresses.

        Those that last left a request without an answer, in any lane, are asked when nobody else answers.
        """
        silent = {key[1:] for key, connection in self._connections.items() if connection.is_silent}
        for key, connection in self._connections.items():
            if key[0] == GENERAL and not connection.is_closed and key[1:] not in silent:
                return connection
        known = [(broker.host, broker.port) for broker in self.view.brokers.values()]
        self.source.shuffle(known)
        addresses = sorted(dict.fromkeys([*known, *self._bootstrap]), key=silent.__contains__)
        reason = "there is no address"
        for host, port in addresses:
            try:
                return await self._connect(host, port, GENERAL)
            except NetworkFailed as error:
                reason = str(error)
                _LOG.debug("broker does not answer", extra={"host": host, "port": port, "reason": reason})
        raise ClusterUnreachable([address_text(host, port) for host, port in addresses], reason)

    async def call(self, node_id: int, api_key: int, values: Values, *, wait_seconds: float = 0.0) -> Message:
        """One request to one broker, tried once."""
        connection = await self.connection(node_id)
        return await connection.call(api_key, values, wait_seconds=wait_seconds)

    async def _connect(self, host: str, port: int, lane: Hashable) -> BrokerConnection:
        key = (lane, host, port)
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is None or connection.is_closed:
                if self._is_closed:
                    raise ConnectFailed(f"cannot connect to {address_text(host, port)}: the cluster was closed")
                options = self.options.connection
                connection = await BrokerConnection.open(self._network, host, port, options, self._buffers)
                if self._is_closed:  # in the meantime
                    await connection.close()
                self._connections[key] = connection
            return connection

    # --- trying again ---------------------------------------------------------------------------------------

    async def retry(
        self,
        what: str,
        attempt: Callable[[], Awaitable[_Result]],
        topics: Collection[str] = (),
        *,
        timeout_seconds: float | None = None,
    ) -> _Result:
        """The result of an attempt that succeeds. `what` is for the error: "the topic could not be created"."""
        if timeout_seconds is None:
            timeout_seconds = self.options.retry_timeout_seconds
        problem: KafkaError | NetworkFailed | None = None
        tries = 0
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    try:
                        if tries:
                            await self.refresh(topics)
                        return await attempt()
                    except UnknownTopic:
                        raise
                    except KafkaError as error:
                        if not error.code.is_retriable:
                            raise
                        problem = error
                    except NetworkFailed as error:
                        if self._is_closed:
                            raise
                        problem = error
                    self.problem = problem
                    _LOG.debug("trying again", extra={"what": what, "problem": str(problem)})
                    await asyncio.sleep(self.backoff_seconds(tries))
                    tries += 1
        except TimeoutError:
            message = f"{what} within {timeout_seconds:g} s"
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                message if problem is None else f"{message}; the last problem was: {problem}",
            ) from problem
        finally:
            self.problem = None

    def backoff_seconds(self, tries: int) -> float:
        """The pause after `tries` failures: doubled each time, and a little different for every client."""
        options = self.options
        pause_seconds = min(options.backoff_seconds_max, options.backoff_seconds_min * 2.0 ** min(tries, 20))
        return pause_seconds * self.source.uniform(0.8, 1.2)


def parse_address(address: str) -> tuple[str, int]:
    """HOST, HOST:PORT or [IPV6]:PORT; InvalidSetting when it is none of them."""
    found = _ADDRESS.fullmatch(address.strip())
    port = DEFAULT_PORT if found is None or found["port"] is None else int(found["port"])
    if found is None or not 0 < port < 65536:
        hint = bracket_hint(address)
        raise InvalidSetting(f"not an address of the form HOST:PORT: {address.strip()!r}{hint}")
    return found["ipv6"] or found["host"], port
