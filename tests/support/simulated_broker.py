"""A whole broker on a simulated disk, in one thread: a run repeats itself, and can end at any call of the disk.

```python
def story(broker: ServedBroker) -> Awaitable[None]: ...

machine = Machine()
machine.run(story)                      # a start, the story, a clean stop
machine.run(story, dies_at=17)          # the process dies before the 17th call of the disk
machine.disk = machine.disk.crash()     # a loss of power
```

What a worker thread would do is done at once. The metadata is in memory, and dies with the disk.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, TypeVar

from barnabas.base.clock import SystemClock
from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import disk_error
from barnabas.broker.app import Broker
from barnabas.broker.parts import BrokerParts
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.tree import TreeNode
from barnabas.net.sockets import SocketListening, SocketNetwork
from barnabas.net.stream import ListenAddress
from barnabas.records.batch import split_batches
from barnabas.records.builder import BatchBuilder
from barnabas.records.reader import read_records
from barnabas.sim.disk import SimulatedDisk
from barnabas.storage.work import InlineWorkers
from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import LISTENER, NODE_ID, ServedBroker

LOG_DIRECTORY = "srv/barnabas/data"
READING = frozenset({"stat", "list", "read", "map", "prefetch"})
"""Operations that change nothing: a death before one of them is a death before the next one that does."""

_Result = TypeVar("_Result")


class InlineLoop(asyncio.SelectorEventLoop):
    """Without threads: what may block is done at once."""

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        answer = self.create_future()
        try:
            answer.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            answer.set_exception(error)
        return answer


class MortalTable(MemoryTable):
    """Takes nothing after the death of the process that uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_dead = False

    def commit(self, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
        if self.is_dead:
            raise disk_error("write", "metadata", OSError(5, "dead"))
        super().commit(zxid, nodes)

    def successor(self) -> "MortalTable":
        """What the next process finds."""
        self.is_dead = True
        found = MortalTable()
        found._zxid, found._nodes = self._zxid, dict(self._nodes)
        return found


class Machine:
    """A disk and the metadata on it, across the lives of a broker."""

    def __init__(self, seed: int = 0, *, log_dirs: tuple[str, ...] = (LOG_DIRECTORY,)) -> None:
        self.disk = SimulatedDisk(Random(seed), strict=True)
        self.table = MortalTable()
        self.log_dirs = log_dirs
        self._random = Random(seed)

    def run(
        self,
        story: Callable[[ServedBroker], Awaitable[_Result]],
        *,
        dies_at: Callable[[int, str, str], bool] | None = None,
        **settings: str,
    ) -> _Result | None:
        """What the story returns; None when the process died before its end.

        `dies_at` is asked before each call of the disk: its number, its name and its path. Settings have underscores
        for dots.
        """
        texts = {
            "node.id": str(NODE_ID),
            "listeners": f"{LISTENER}://127.0.0.1:0",
            "log.dirs": ",".join(self.log_dirs),
            "offsets.topic.replication.factor": "1",
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
        network = MortalNetwork()
        try:
            with asyncio.Runner(loop_factory=InlineLoop) as runner:
                return runner.run(self._live(BrokerSettings(texts), network, story, dies_at))
        finally:
            network.die()

    async def _live(
        self,
        settings: BrokerSettings,
        network: SocketNetwork,
        story: Callable[[ServedBroker], Awaitable[_Result]],
        dies_at: Callable[[int, str, str], bool] | None,
    ) -> _Result | None:
        disk, death = self.disk, asyncio.Event()

        def before_call(operation: str, path: str) -> None:
            if dies_at is not None and dies_at(disk.calls, operation, path):
                self.disk, self.table = disk.kill(), self.table.successor()
                death.set()

        disk.before_call = before_call
        parts = BrokerParts(
            disk,
            SystemClock(),
            self._random,
            network=network,
            metadata_table=self.table,
            log_workers=InlineWorkers(),
        )
        living = asyncio.ensure_future(self._serve(Broker(settings, parts), story))
        dying = asyncio.ensure_future(death.wait())
        await asyncio.wait([living, dying], return_when=asyncio.FIRST_COMPLETED)
        dying.cancel()
        if not death.is_set():
            disk.before_call = None
            return await living
        living.cancel()
        await asyncio.wait([living])
        living.cancelled() or living.exception()  # what a dead process would have said does not matter
        return None

    async def _serve(self, broker: Broker, story: Callable[[ServedBroker], Awaitable[_Result]]) -> _Result:
        async with broker:
            return await story(ServedBroker(broker))


class MortalNetwork(SocketNetwork):
    """Closes its ports when the process has died, as the operating system does."""

    def __init__(self) -> None:
        self._ports: list[SocketListening] = []

    async def listen(self, address: ListenAddress) -> SocketListening:
        port = await super().listen(address)
        self._ports.append(port)
        return port

    def die(self) -> None:
        for port in self._ports:
            port._socket.close()


async def produce(broker: ServedBroker, topic: str, *values: bytes, index: int = 0) -> int:
    """The base offset of one batch, once all in-sync replicas have it."""
    batch = BatchBuilder()
    for value in values:
        batch.append(SystemClock().now_ms(), None, value)
    partition = {"index": index, "records": bytes(batch.build())}
    answer = await broker.ask(
        ApiKey.PRODUCE,
        12,
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[{"name": topic, "partition_data": [partition]}],
    )
    reply = answer.responses[0].partition_responses[0]
    if reply.error_code.value:
        raise BarnabasError(f"{topic}-{index}: {reply.error_code.name}")
    return int(reply.base_offset)


def stored_values(broker: ServedBroker, topic: str, index: int = 0) -> list[bytes | None]:
    """Every record that can be read, from the first one on."""
    partition = broker.partition(topic, index)
    values: list[bytes | None] = []
    offset = partition.log_start_offset
    while (found := partition.read(offset, 1 << 20, is_committed_only=False, at_least_one=True)).size_bytes:
        records = found.records
        assert records is not None
        content = records if isinstance(records, bytes) else records.read()
        found.release()
        for header, batch in split_batches(content):
            values += [record.value for record in read_records(batch)]
            offset = header.next_offset
    return values
