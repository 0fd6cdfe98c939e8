"""A node that runs a broker: the production code on simulated parts, over as many lives as a history has.

```
off ──start──▶ starting ──▶ serving ──stop──▶ off        SIGTERM: flushed, marked clean
                    └──────────┴──kill──▶ off        SIGKILL: the page cache stays
                    └──────────┴──power_loss──▶ off  what was not synced may be lost, and peers are not told
                    └──────────┴──by itself──▶ off   it found its environment unusable
```

The disk, the metadata and the clock belong to the node and outlive its processes. Only what a process has done by the
moment of its death counts: a dead process can neither write, nor commit metadata, nor send.
"""

import asyncio
import errno
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from fnmatch import fnmatchcase
from typing import Any, Final

from barnabas.base.errors import BarnabasError
from barnabas.base.filesystem import disk_error
from barnabas.base.ids import LeaderEpoch, TopicPartition
from barnabas.broker.app import Broker
from barnabas.broker.parts import BrokerParts
from barnabas.broker.settings import BrokerSettings
from barnabas.controller.history import ImageHistory, Place
from barnabas.metadata.image import ClusterImage, Topic
from barnabas.metadata.image import Partition as PartitionImage
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.tree import TreeNode
from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas
from barnabas.sim.disk import SimulatedDisk
from barnabas.sim.faults import Operation
from barnabas.sim.world.process import PROCESS, Process
from barnabas.sim.world.world import World
from barnabas.sim.world.zookeeper import SimulatedZooKeeper
from barnabas.sim.world.zookeeper_source import SimulatedSource
from barnabas.storage.log.log import Log
from barnabas.storage.segment.handles import Handles
from barnabas.storage.work import InlineWorkers

PORT: Final = 9092
_HANDLES_MAX: Final = 24
"""Few, so that files are closed and opened again."""


class BrokerNode:
    def __init__(
        self,
        world: World,
        node_id: int,
        settings: Mapping[str, str],
        directories: int = 1,
        zookeeper: SimulatedZooKeeper | None = None,
    ) -> None:
        """Without ZooKeeper it is a broker on its own."""
        self.name = f"broker-{node_id}"
        self.node_id = node_id
        self.clock = world.clock()
        self.directories = [f"disk-{number}" for number in range(1, directories + 1)]
        self.disk = self._prepare(SimulatedDisk(world.random(f"{self.name}/disk"), clock=self.clock))
        self.table = _NodeTable()
        self._zookeeper = zookeeper
        self.on_image: Callable[[Place, ClusterImage], None] = lambda place, image: None
        """Called with every image of the cluster that its broker follows."""
        self.on_leading: Callable[[TopicPartition, LeaderEpoch], None] = lambda partition, epoch: None
        """Called when its broker begins to lead a partition."""
        self.broker: Broker | None = None
        """While it serves."""
        self.exit_reason: BaseException | None = None
        """Why the last process ended by itself."""
        self.lives = 0
        self.process: Process | None = None
        self._world = world
        self._settings = dict(settings)
        self._starting: asyncio.Event = asyncio.Event()
        self._stop_asked: asyncio.Event | None = None
        self._ended: asyncio.Event = asyncio.Event()
        self._random = world.random(f"{self.name}/broker")
        self._boots = 1
        """How often the host was switched on."""
        self._crash_in_calls: int | None = None
        self._crash_operation: Operation | None = None
        self._crash_pattern = "*"
        self._is_power_loss = False
        self._note_crash: Callable[[], None] = lambda: None
        self._slow_seconds = 0.0
        self._slow_operation: Operation | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.name}:{PORT}"

    @property
    def is_off(self) -> bool:
        return self.process is None

    # Its life

    def start(self) -> None:
        assert self.process is None, f"{self.name} runs"
        self.lives += 1
        self._world.network.power_back(self.name)
        self.exit_reason = None
        self.clock.restart()
        self.process = self._world.process(f"{self.name}/{self.lives}")
        self._stop_asked, self._starting, self._ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._world.note("start", self.name)
        self._world.spawn(self.process, self._serve(self.process, self._stop_asked, self._starting, self._ended))

    async def until_serving(self) -> bool:
        """Waits for the start; False when the process ended instead."""
        while self.process is not None and self.broker is None:
            await self._starting.wait()
            await asyncio.sleep(0)
        return self.broker is not None

    async def stop(self) -> None:
        """As on SIGTERM; returns when the process has ended."""
        if self._stop_asked is not None:
            self._world.note("stop", self.name)
            self._stop_asked.set()
            await self._ended.wait()

    def kill(self) -> None:
        """As by SIGKILL: what was written is in the page cache."""
        if self.process is not None:
            self._world.note("kill", self.name)
            self._world.network.process_ended(self.process)
            self.disk = self._prepare(self.disk.kill())
            self._die()

    def power_loss(self, *, loses_all: bool = False) -> None:
        """The host goes dark: unsynced bytes and names may be lost (or surely are), and peers are not told."""
        self._world.note("power loss", self.name)
        self._world.network.power_lost(self.name, self.process)
        self.disk = self._prepare(self.disk.crash(loses_all=loses_all))
        self._boots += 1
        self._die()

    async def until_off(self) -> None:
        """Returns when no process runs."""
        while self.process is not None:
            await self._ended.wait()

    def crash_at_disk_call(
        self,
        calls: int,
        *,
        is_power_loss: bool,
        note: Callable[[], None],
        operation: Operation | None = None,
        path_pattern: str = "*",
    ) -> None:
        """Lets this many calls to the disk that change something pass; the process dies before the next one.

        Only calls of this operation, on paths that match, count.
        """
        self._crash_in_calls, self._is_power_loss, self._note_crash = calls, is_power_loss, note
        self._crash_operation, self._crash_pattern = operation, path_pattern

    def _is_crash_counted(self, operation: Operation, path: str) -> bool:
        is_wanted = operation not in _READING if self._crash_operation is None else operation == self._crash_operation
        return is_wanted and fnmatchcase(path, self._crash_pattern)

    def wipe(self) -> None:
        """A new, empty disk takes the place of the old one. The metadata stays: it is the cluster's."""
        assert self.process is None, "only of a node that is off"
        self._world.note("wipe", self.name)
        self.disk = self._prepare(SimulatedDisk(self._world.random(f"{self.name}/disk/{self.lives}"), clock=self.clock))

    def slow_disk(self, seconds: float, operation: Operation | None = None) -> None:
        """Each call to the disk, or each of this operation, takes this long from now on; 0: none does."""
        self._slow_seconds, self._slow_operation = seconds, operation

    def heal(self) -> None:
        """Its disk works again, fast and with room; its clock runs evenly."""
        self.disk.heal()
        self.disk.capacity_bytes = None
        self._slow_seconds = 0.0
        self._crash_in_calls = None
        self.clock.set_drift(0.0)

    def _die(self) -> None:
        if self.process is not None:
            self.process.die()
        self.table = self.table.successor()
        self.process = self.broker = self._stop_asked = None
        self._crash_in_calls = None
        self._starting.set()
        self._ended.set()

    # Its process

    async def _serve(
        self, process: Process, stop_asked: asyncio.Event, starting: asyncio.Event, ended: asyncio.Event
    ) -> None:
        handles = Handles(_HANDLES_MAX)
        parts = BrokerParts(
            self.disk,
            self.clock,
            self._random,
            network=self._world.network.at(self.name),
            handles=handles,
            log_workers=InlineWorkers(),
            make_executor=lambda count: _NoThreads(lambda: self._world.loop.finish_jobs(process)),
            metadata_table=self.table,
            metadata=None if self._zookeeper is None else SimulatedSource(self._zookeeper, self.name),
            boot_id=f"{self.name}/{self._boots}",
        )
        try:
            async with Broker(BrokerSettings(self._texts()), parts) as broker:
                self.broker = broker
                self._tell_images(broker.running.cluster.history)
                self._tell_leaderships(broker.replicas)
                self._world.note("serving", self.name)
                starting.set()
                await _first_of(stop_asked.wait(), broker.wait_stopped())
        except BarnabasError as error:  # it cannot start, or cannot go on, with the disk that it has
            self.exit_reason = error
            self._world.note("exit", self.name, repr(error))
        except Exception as error:  # noqa: BLE001 - a bug: whatever it is, the history tells it
            if process.is_dead:
                return
            self.exit_reason = error
            self._world.violations.append(f"a bug ended {self.name}: {error!r}")
        else:
            self._look_for_leftovers(process, handles)
        if not process.is_dead:
            self._world.network.process_ended(process)
            self.disk = self._prepare(self.disk.kill())
            self._die()

    def _tell_images(self, history: ImageHistory) -> None:
        history.subscribe(lambda _, image: self.on_image(history.place, image))
        self.on_image(history.place, history.image)

    def _tell_leaderships(self, replicas: Replicas) -> None:
        for partition in replicas:
            self.on_leading(partition.name, partition.leader_epoch)
        begin = replicas._begin_serving  # noqa: SLF001 - the one place that all leaderships pass

        def told(topic: Topic, name: TopicPartition, log: Log, one: PartitionImage) -> Partition:
            partition = begin(topic, name, log, one)
            self.on_leading(name, one.leader_epoch)
            return partition

        replicas._begin_serving = told  # type: ignore[method-assign] # noqa: SLF001

    def _look_for_leftovers(self, process: Process, handles: Handles) -> None:
        """After a clean stop nothing of the process is left."""
        this = asyncio.current_task()
        tasks = [task for task in process.unfinished() if task is not this]
        timers = self._world.loop.timers_of(process)
        connections = self._world.network.open_connections(process)
        for count, what in (
            (len(tasks), f"tasks ({', '.join(sorted(task.get_name() for task in tasks))})"),
            (len(timers), f"timers ({', '.join(timers)})"),
            (connections, "connections"),
            (len(handles), "open files in its cache"),
            (self.disk.open_files, "open files"),
        ):
            if count:
                self._world.violations.append(f"{self.name} left {count} {what} behind after its stop")

    def _texts(self) -> dict[str, str]:
        return {
            "node.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{self.name}:{PORT}",
            "log.dirs": ",".join(self.directories),
            "network.awake.us": "0",
            "offsets.topic.replication.factor": "1",
            **self._settings,
        }

    # Its disk

    def _prepare(self, disk: SimulatedDisk) -> SimulatedDisk:
        disk.before_call = self._before_disk_call
        return disk

    def _before_disk_call(self, operation: Operation, path: str) -> None:
        self._world.note("disk", self.name, operation, path)
        process = PROCESS.get()
        if process is None or process is not self.process:
            return
        if self._slow_seconds and self._slow_operation in (None, operation):
            if process.job_seconds is not None:
                process.job_seconds += self._slow_seconds
            else:  # the event loop itself waits in the call
                self._world.loop.hold(process, self._slow_seconds)
        if self._crash_in_calls is not None and self._is_crash_counted(operation, path):
            if self._crash_in_calls == 0:
                self._crash_in_calls = None
                self._note_crash()
                if self._is_power_loss:
                    self.power_loss()
                else:
                    self.kill()
            else:
                self._crash_in_calls -= 1


_READING: Final = frozenset({"stat", "list", "read", "map", "prefetch"})


class _NodeTable(MemoryTable):
    """Takes nothing after the death of the process that uses it."""

    _is_dead = False

    def commit(self, zxid: int, nodes: Mapping[str, TreeNode | None]) -> None:
        if self._is_dead:
            raise disk_error("write", "metadata", OSError(errno.ESTALE, "the process is dead"))
        super().commit(zxid, nodes)

    def successor(self) -> "_NodeTable":
        """What the next process finds."""
        self._is_dead = True
        found = _NodeTable()
        found._zxid, found._nodes = self._zxid, dict(self._nodes)
        return found


class _NoThreads(Executor):
    """The loop does the work of threads; this knows only how it ends."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish

    def submit(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("work for threads goes through the event loop")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._finish()


async def _first_of(*awaitables: Any) -> None:
    """Returns, or raises, what the first of them does; the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
