"""Several brokers that a test owns, on one event loop, with one metadata store in memory.

```
Cluster ─┬─ ClusterBroker 1 ─┐ sessions
         ├─ ClusterBroker 2 ─┼──────────▶ EmbeddedMetadata      all of it on one LoopThread
         └─ ClusterBroker 3 ─┘
             └── sockets between them, which the test can cut or hold (`LineNetwork`)
```

Each is a `Broker` like one that is alone: it can be stopped, killed, started, and have faults of its own. When one of
them comes or goes, the call returns when all others know, so that no test has to sleep. While brokers are paused or cut
off from each other there is nothing to wait for, and `wait_until_ready` says what is still missing.

The metadata and the thread live from the first `start` to `close`. Topics have one replica by default.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from barnabas.base.clock import Clock, SystemClock
from barnabas.broker import app
from barnabas.groups.partitions import OFFSETS_TOPIC, partition_of
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.znodes import BROKER_IDS, CONTROLLER, NO_LEADER, ControllerNode
from barnabas.testing.broker import Broker
from barnabas.testing.cluster_broker import ClusterBroker
from barnabas.testing.contents import NO_SETTINGS, Contents
from barnabas.testing.loop_thread import LoopThread
from barnabas.testing.topics import is_controller, newest_among
from barnabas.testing.values import Setting

_READY_SECONDS: Final = 10.0
_LOOK_AGAIN_SECONDS: Final = 0.002

_Result = TypeVar("_Result")


class Cluster(Contents):
    """`with Cluster(brokers=3) as cluster:`; `cluster[2]` is the broker with id 2. Ids start at 1.

    `settings` are those of every broker. A given directory gets one folder for each of them, and is kept.
    """

    _store: MetadataStore
    """A session of its own, to see what is true."""

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, Setting] = NO_SETTINGS,
        *,
        data_directory: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        self.clock = SystemClock() if clock is None else clock
        super().__init__(self.clock)
        self._home: LoopThread | None = None
        self._metadata: EmbeddedMetadata | None = None
        self._cuts: set[frozenset[int]] = set()
        folder = None if data_directory is None else Path(data_directory)
        self.brokers: Final = tuple(
            ClusterBroker(self, one, settings, None if folder is None else folder / f"broker-{one}")
            for one in range(1, brokers + 1)
        )
        """All of them, running or not."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def __getitem__(self, broker_id: int) -> ClusterBroker:
        if not 1 <= broker_id <= len(self.brokers):
            raise KeyError(f"there is no broker {broker_id}; there are 1 to {len(self.brokers)}")
        return self.brokers[broker_id - 1]

    def __iter__(self) -> Iterator[ClusterBroker]:
        return iter(self.brokers)

    # -- running -------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for clients. They stay the same over restarts."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> None:
        """Starts the brokers that do not run, together; returns when all know each other."""
        stopped = [broker for broker in self.brokers if not broker.is_running]
        if self._home is None:
            self._home = LoopThread()
            self._metadata = self._home.run(self._open_metadata())
        try:
            _together(Broker.start, stopped)
            self.settle()
        except BaseException:
            _together(Broker.stop, stopped)
            if not any(broker.is_running for broker in self.brokers):
                self.close()
            raise

    async def _open_metadata(self) -> EmbeddedMetadata:
        metadata = EmbeddedMetadata.in_memory(self.clock, MemoryTable())
        self._store = metadata.session()
        return metadata

    def stop(self) -> None:
        """A clean stop of all brokers. `start` goes on with the same topics and records."""
        for broker in self.brokers:
            broker.resume()
        _together(Broker.stop, self.brokers)

    def restart(self) -> None:
        """A clean stop of all brokers, and a start of all."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops for good, and removes the data unless the directory was given."""
        try:
            self.heal()
            self.stop()
        finally:
            home, self._home = self._home, None
            metadata, self._metadata = self._metadata, None
            if home is not None:
                if metadata is not None:
                    home.run(metadata.close())
                home.end()
            for broker in self.brokers:
                broker.close()

    @property
    def home(self) -> LoopThread:
        """Where all of them live."""
        assert self._home is not None, "the cluster is not running"
        return self._home

    @property
    def metadata(self) -> EmbeddedMetadata:
        assert self._metadata is not None, "the cluster is not running"
        return self._metadata

    # -- who does what -------------------------------------------------------------------------------------------

    @property
    def controller(self) -> ClusterBroker:
        """The broker that is the controller, also while it is paused. While there is none, it waits for the next."""
        return self._run(self._wait_for_controller())

    def leader_of(self, topic: str, partition: int = 0) -> ClusterBroker | None:
        """The broker that leads a partition; None while nobody does. KeyError when there is no such partition."""
        found = self._image().partition(topic, partition)
        if found is None:
            raise KeyError(f"there is no partition {topic}-{partition}")
        return None if found.leader == NO_LEADER else self[found.leader]

    def coordinator_of(self, group: str) -> ClusterBroker | None:
        """The broker that coordinates a group; None while nobody does, or no group was ever used."""
        offsets = self._image().topics.get(OFFSETS_TOPIC)
        return None if offsets is None else self.leader_of(OFFSETS_TOPIC, partition_of(group, len(offsets.partitions)))

    def _image(self) -> ClusterImage:
        return newest_among(self.members()).running.cluster.history.image

    async def _wait_for_controller(self) -> ClusterBroker:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while True:
                    truth = await self._read_truth()
                    if truth.controller_id is not None:
                        broker = self[truth.controller_id]
                        if (served := broker.served()) is not None and is_controller(served):
                            return broker
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"after {_READY_SECONDS:g} s no broker is the controller") from None

    async def _read_truth(self) -> "_Truth":
        [controller] = await self._store.get_many([CONTROLLER])
        ids = [int(name) for name in await self._store.children(BROKER_IDS)] if controller is not None else []
        nodes = await self._store.get_many([f"{BROKER_IDS}/{one}" for one in ids])
        epochs = {one: node.stat.czxid for one, node in zip(ids, nodes, strict=True) if node is not None}
        return _Truth(None if controller is None else ControllerNode.decode(controller.data).broker_id, epochs)

    # -- cutting -------------------------------------------------------------------------------------------------

    def cut(self, one: int, other: int) -> None:
        """These two brokers cannot reach each other from now on. Clients, other brokers and the store can."""
        assert one != other, "a broker reaches itself"
        self._apply_cuts({*self._cuts, frozenset({self[one].id, self[other].id})})

    def isolate(self, broker_id: int) -> None:
        """A broker cannot reach any other."""
        others = {frozenset({broker_id, one.id}) for one in self.brokers if one.id != self[broker_id].id}
        self._apply_cuts({*self._cuts, *others})

    def heal(self) -> None:
        """All brokers can reach each other again."""
        if self._cuts:
            self._apply_cuts(set())
            self.settle()

    def _apply_cuts(self, cuts: set[frozenset[int]]) -> None:
        self._cuts = cuts
        for broker in self.brokers:
            broker.cut([other.port for other in self.brokers if frozenset({broker.id, other.id}) in cuts])

    # -- waiting -------------------------------------------------------------------------------------------------

    def wait_until_ready(self, timeout_seconds: float = _READY_SECONDS) -> None:
        """Waits until all running brokers see the same cluster, and lead what they should.

        Paused ones are left out. TimeoutError says what is still missing.
        """
        self._run(self._wait_until_ready(timeout_seconds))

    def wait_until_in_sync(self, timeout_seconds: float = _READY_SECONDS) -> None:
        """Waits until every replica on a running broker is in sync; TimeoutError says which is not."""
        self._run(self._wait_until_in_sync(timeout_seconds))

    async def _wait_until_in_sync(self, timeout_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_seconds
        while (missing := self._not_in_sync()) is not None:
            if loop.time() >= give_up_at:
                raise TimeoutError(f"after {timeout_seconds:g} s {missing}")
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _not_in_sync(self) -> str | None:
        running = {one.node_id for one in self._holders()}
        for topic in self._image().topics.values():
            for one in topic.partitions:
                for broker_id in one.replicas:
                    if broker_id in running and broker_id not in one.isr:
                        return f"broker {broker_id} is not in sync in {topic.name}-{one.index}"
        return None

    def settle(self) -> None:
        """After a change, so that tests need not wait; without effect while brokers are paused or cut off."""
        if self._home is not None and not self._cuts and not any(broker.is_paused for broker in self.brokers):
            self.wait_until_ready()

    async def _wait_until_ready(self, timeout_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_seconds
        while (missing := self._missing(await self._read_truth())) is not None:
            if loop.time() >= give_up_at:
                raise TimeoutError(f"after {timeout_seconds:g} s the cluster is not ready: {missing}")
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _missing(self, truth: "_Truth") -> str | None:
        brokers = self._holders()
        if not brokers:
            return None
        controller = next((one for one in brokers if one.node_id == truth.controller_id and is_controller(one)), None)
        if controller is None:
            return "no broker is the controller"
        history = controller.running.cluster.history
        if {one.id: one.epoch for one in history.image.brokers.values()} != truth.broker_epochs:
            return "the controller does not know yet which brokers there are"
        seated = controller.running.cluster.seat.controller
        if seated is None or seated.has_due_states():
            return "leaders are not elected yet"
        for broker in brokers:
            if broker.running.cluster.history.place != history.place:
                return f"broker {broker.node_id} does not have the newest image"
            if (problem := _problem_with(broker, history.image)) is not None:
                return f"broker {broker.node_id} {problem}"
        return None

    # -- its brokers ---------------------------------------------------------------------------------------------

    def members(self) -> list[app.Broker]:
        """Those that run and follow the controller."""
        running = self._holders()
        controller = next(filter(is_controller, running), None)
        if controller is None:
            return running
        return [one for one in running if frozenset({one.node_id, controller.node_id}) not in self._cuts]

    def _members(self) -> list[app.Broker]:
        return self.members()

    def _holders(self) -> list[app.Broker]:
        served = [broker.served() for broker in self.brokers if not broker.is_paused]
        return [one for one in served if one is not None]

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self.home.run(work)


@dataclass(frozen=True, slots=True)
class _Truth:
    """What the metadata store says, whatever a broker believes: one that is paused may have been deposed."""

    controller_id: int | None
    broker_epochs: Mapping[int, int]
    """Of those that are registered."""


def _problem_with(broker: app.Broker, image: ClusterImage) -> str | None:
    registered = image.brokers.get(broker.node_id)
    if registered is None or registered.epoch != broker.running.cluster.seat.broker_epoch:
        return "is not registered"
    if broker.services.image != image:
        return "does not serve the newest image"
    if not broker.replicas.is_granted_all(image):
        return "does not lead all its partitions yet"
    return None


def _together(work: Callable[[Broker], None], brokers: Sequence[ClusterBroker]) -> None:
    """Each in a thread of its own; raises the first error when all are done."""
    if brokers:
        with ThreadPoolExecutor(len(brokers)) as threads:
            done = [threads.submit(work, broker) for broker in brokers]
        for one in done:
            one.result()
