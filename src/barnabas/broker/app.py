"""The broker put together: which part gets which, in what order they start, and how they stop.

```
start   metadata store > identity > logs (recovery, in threads) > image > served partitions > listeners > registration
stop    listeners (requests in flight finish) > what is being written > logs (flushed, marked clean) > metadata store
```

Everything comes in as an argument: files, network, clock, randomness, and the event loop that runs it. Many brokers may
live in one process. A task that fails for a reason of our own stops the broker: `wait_stopped` raises it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Self

from barnabas.base.clock import Clock, SystemClock
from barnabas.base.errors import DiskFailed
from barnabas.base.filesystem import FileSystem, LocalFileSystem
from barnabas.base.metrics import Metrics, measure_logs, measure_network, measure_requests
from barnabas.broker.authorizer import AllowAll
from barnabas.broker.auto_creation import AutoCreation
from barnabas.broker.dispatch import ClientConnection, Dispatcher, Shortcut
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.groups import Groups
from barnabas.broker.handlers import make_direct_handlers, make_handlers
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.handlers.offset_commit import OffsetCommitHandler
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.handlers.sole_fetch import SoleFetchHandler
from barnabas.broker.internal_topics import InternalTopics
from barnabas.broker.services import Services
from barnabas.broker.settings import BrokerSettings
from barnabas.groups.measures import measure_group_states, measure_groups
from barnabas.metadata.controllership import claim_controller
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.identity import ProducerIds, ensure_cluster_id, ensure_layout, register_broker
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.topics import TopicWriter
from barnabas.metadata.watcher import MetadataWatcher
from barnabas.metadata.znodes import BrokerRegistration, Endpoint
from barnabas.net.connection import Connection
from barnabas.net.server import Listener, Server, ServerOptions
from barnabas.net.sockets import SocketNetwork
from barnabas.net.stream import ListenAddress, Network
from barnabas.replication.admission import Admission
from barnabas.replication.log_starts import LogStarts
from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas
from barnabas.replication.tick import AppendTick
from barnabas.replication.workers import perform
from barnabas.storage.descriptors import handles_capacity, raise_descriptor_limit
from barnabas.storage.directories import AllDirectoriesOffline
from barnabas.storage.handles import Handles
from barnabas.storage.manager import LogManager
from barnabas.storage.opening import OpeningProgress, OpeningReport
from barnabas.wire.apis import APIS, ApiKey

logger = logging.getLogger(__name__)

DEFAULT_NODE_ID: Final = 1
HOUSEKEEPING_SECONDS: Final = 1.0
SESSION_EVICTION_MS: Final = 120_000
STOP_GRACE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """What a broker stands on; a test or a simulation brings its own."""

    files: FileSystem
    clock: Clock
    random: Random
    network: Network | None = None
    """None: the operating system's sockets."""
    metadata_table: MemoryTable | None = None
    """None: a file in the first log directory."""


def system_parts() -> BrokerParts:
    return BrokerParts(LocalFileSystem(), SystemClock(), Random())


class Broker:
    """`async with Broker(settings):` serves until the block ends."""

    def __init__(
        self,
        settings: BrokerSettings,
        parts: BrokerParts | None = None,
        *,
        metrics_address: ListenAddress | None = None,
        on_progress: Callable[[OpeningProgress], None] | None = None,
    ) -> None:
        self.settings = settings
        self._parts = parts or system_parts()
        self._metrics_address = metrics_address
        self._on_progress = on_progress
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_ready = False
        self._is_stopping = False
        self.node_id = DEFAULT_NODE_ID if settings.config.node_id is None else settings.config.node_id
        self.listeners: tuple[Listener, ...] = ()
        self.metrics = Metrics()
        self.metrics_port: int | None = None
        self.opening = OpeningReport()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return ",".join(f"{one.advertised_host}:{one.advertised_port}" for one in self.listeners)

    @property
    def server_options(self) -> ServerOptions:
        """The limits of its listeners that hold now."""
        return self._server.options

    # -- starting ------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        parts, settings, stack = self._parts, self.settings, self._stack
        loop = asyncio.get_running_loop()
        self._bug: asyncio.Future[None] = loop.create_future()
        executor = ThreadPoolExecutor(settings.config.background_threads, thread_name_prefix="barnabas")
        stack.callback(executor.shutdown)
        loop.set_default_executor(executor)
        await self._listen_for_metrics(executor)
        data_directory = settings.log_manager_config.log_dirs[0]
        parts.files.make_directory(data_directory)
        if parts.metadata_table is not None:
            metadata = EmbeddedMetadata.in_memory(parts.clock, parts.metadata_table)
        else:
            metadata = await EmbeddedMetadata.open(data_directory, parts.files, parts.clock)
        stack.push_async_callback(metadata.close)
        store = metadata.session()
        stack.push_async_callback(store.close)
        await ensure_layout(store)
        cluster_id, controllership = await asyncio.gather(
            ensure_cluster_id(store, parts.random), claim_controller(store, self.node_id, parts.clock.now_ms())
        )
        assert controllership is not None, "alone, a broker is the controller"
        watcher = MetadataWatcher(store)
        image = await watcher.load()
        writer = TopicWriter(controllership, parts.random)
        await writer.finish_interrupted(image)

        self.logs = await self._open_logs(cluster_id, image, executor)
        log_config = partial(settings.log_config, broker_id=self.node_id)
        self.replicas = Replicas(self.node_id, self.logs, lambda image, topic: log_config(image, topic=topic), executor)
        server = Server(parts.network or SocketNetwork(), self._connect, settings.config.server_options(), executor)
        self._server = server
        self.tick = AppendTick(loop, parts.clock, self._on_write_failure, server.flush_replies, self._on_bug)
        stack.push_async_callback(self.tick.drain)
        self.admission = Admission(loop, executor, self.tick, self._on_bug)
        stack.push_async_callback(self.admission.drain)
        watcher.subscribe(self._follow)
        self._reconfigure(image)
        self._run(watcher.run())
        self._run(self.replicas.run())
        self._run(self._keep_house(executor))
        await self.replicas.apply(image)

        log_starts = LogStarts(self.logs, executor, self._on_bug)
        stack.push_async_callback(log_starts.drain)
        auto_creation = AutoCreation(writer)
        stack.push_async_callback(auto_creation.stop)
        self.groups = self._make_groups(loop, writer)
        self.services = Services(
            broker_id=self.node_id,
            cluster_id=cluster_id,
            settings=settings,
            controllership=controllership,
            topics=writer,
            producer_ids=ProducerIds(store, self.node_id),
            replicas=self.replicas,
            logs=self.logs,
            log_starts=log_starts,
            auto_creation=auto_creation,
            groups=self.groups,
            authorizer=AllowAll(),
            clock=parts.clock,
            random=parts.random,
            workers=executor,
        )
        self.dispatcher = self._make_dispatcher(loop)
        self._measure()
        stack.push_async_callback(self._stop_serving)  # last to start, first to stop
        self.listeners = tuple([await server.listen(spec) for spec in settings.config.listeners])
        await register_broker(store, self._registration())
        await self.replicas.wait_for(lambda image: self.node_id in image.brokers)
        self._is_ready = True

    async def _open_logs(self, cluster_id: str, image: ClusterImage, executor: ThreadPoolExecutor) -> LogManager:
        parts, settings = self._parts, self.settings
        logs = LogManager(
            parts.files,
            parts.clock,
            parts.random,
            settings.log_manager_config,
            cluster_id=cluster_id,
            node_id=self.node_id,
            handles=Handles(handles_capacity(raise_descriptor_limit())),
            on_offline=lambda directory: self.replicas.drop_offline(),
        )
        loop = asyncio.get_running_loop()
        open_all = partial(logs.open, lambda topic: settings.log_config(image, self.node_id, topic), self._on_progress)
        self.opening = await loop.run_in_executor(executor, open_all)
        self._stack.callback(logs.close)
        return logs

    def _make_groups(self, loop: asyncio.AbstractEventLoop, writer: TopicWriter) -> Groups:
        config = self.settings.config
        internal_topics = InternalTopics(config, writer, self.replicas)
        self._stack.push_async_callback(internal_topics.stop)
        groups = Groups(
            loop,
            self._parts.clock,
            self._parts.random,
            config,
            self.replicas,
            self.tick,
            internal_topics,
            measure_groups(self.metrics),
            self._on_bug,
        )
        self._stack.callback(groups.close)
        groups.follow(self.replicas.image)
        self._run(groups.run())
        self._run(groups.keep_sweeping())
        return groups

    def _make_dispatcher(self, loop: asyncio.AbstractEventLoop) -> Dispatcher:
        config = self.settings.config
        sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, SESSION_EVICTION_MS, self._parts.random
        )
        seconds = measure_requests(self.metrics)
        produce = ProduceHandler(loop, self.replicas, self.tick, self.admission, seconds.of(APIS[ApiKey.PRODUCE].name))
        clock = self._parts.clock
        fetch = FetchHandler(loop, clock, self.replicas, sessions, config.fetch_max_bytes)
        sole_fetch = SoleFetchHandler(fetch, loop, clock, self.replicas, sessions, seconds.of(APIS[ApiKey.FETCH].name))
        commit = OffsetCommitHandler(self.services, loop, seconds.of(APIS[ApiKey.OFFSET_COMMIT].name))
        # A shortcut knows the frame alone, and an authorizer wants to know who sent it.
        shortcuts: dict[int, Shortcut] = {
            ApiKey.PRODUCE: produce.take_sole,
            ApiKey.FETCH: sole_fetch.take,
            ApiKey.OFFSET_COMMIT: commit.take_sole,
        }
        return Dispatcher(
            loop,
            shortcuts=shortcuts if self.services.authorizer.allows_all else {},
            direct={
                ApiKey.PRODUCE: produce,
                ApiKey.OFFSET_COMMIT: commit,
                ApiKey.FETCH: fetch,
                **make_direct_handlers(self.services),
            },
            handlers=make_handlers(self.services),
            seconds_of={key: seconds.of(api.name) for key, api in APIS.items()},
            on_bug=self._on_bug,
        )

    def _measure(self) -> None:
        measure_network(self.metrics, self._server.counters)
        measure_logs(
            self.metrics,
            lambda: ((log.partition, log.size_bytes) for log in self.logs),
            lambda: len(self.logs.offline_directories),
        )
        measure_group_states(self.metrics, self.groups.coordinator.counts)

    async def _listen_for_metrics(self, executor: ThreadPoolExecutor) -> None:
        if self._metrics_address is None:
            return
        from barnabas.broker.http import BrokerState, Health, http_port  # only a broker with this port pays for it

        def health() -> Health:
            if self._is_stopping:
                return Health(BrokerState.STOPPING)
            if not self._is_ready:
                return Health(BrokerState.STARTING)
            return Health(BrokerState.READY, tuple([one.path for one in self.logs.offline_directories]))

        network = self._parts.network or SocketNetwork()
        listening = await self._stack.enter_async_context(
            http_port(network, self._metrics_address, self.metrics, health, executor)
        )
        self.metrics_port = listening.port

    def _registration(self) -> BrokerRegistration:
        endpoints = [
            Endpoint(one.name, "PLAINTEXT", one.advertised_host, one.advertised_port) for one in self.listeners
        ]
        return BrokerRegistration(
            self.node_id,
            tuple(endpoints),
            rack=self.settings.config.broker_rack,
            timestamp_ms=self._parts.clock.now_ms(),
        )

    def _connect(self, connection: Connection) -> ClientConnection:
        return self.dispatcher.connect(connection)

    # -- running -------------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        self._stack.push_async_callback(_cancel, task)

    async def wait_stopped(self) -> None:
        """Returns never; raises what ended one of the broker's tasks, or the mistake of ours that must end it."""
        ends = [*self._tasks, self._bug]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in done:
            end.result()

    def _on_bug(self, bug: BaseException) -> None:
        logger.critical("a mistake of the broker's own, which ends it", exc_info=bug)
        if not self._bug.done():
            self._bug.set_exception(bug)
            self._bug.exception()  # looked at here, for brokers that nobody waits for

    async def _keep_house(self, executor: ThreadPoolExecutor) -> None:
        """Flushes, retention, checkpoints, compaction: what is due, with its blocking part in a worker."""
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(HOUSEKEEPING_SECONDS)
                for work in self.logs.due_in_slices(self._parts.clock.now_ms()):
                    if work is None:
                        await asyncio.sleep(0)
                        continue
                    task = asyncio.create_task(perform(work, executor))
                    running.add(task)
                    task.add_done_callback(running.discard)
        finally:
            self.logs.stop_cleaning()
            if running:
                await asyncio.wait(running)

    def _follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """What the metadata store says now: the one way by which topics and settings change."""
        self.replicas.follow(new)
        if new.broker_configs != old.broker_configs:
            self._reconfigure(new)

    def _reconfigure(self, image: ClusterImage) -> None:
        """Takes over the settings that were changed at run time."""
        self._server.options = self.settings.current_config(image, self.node_id).server_options()
        self.logs.reconfigure(self.settings.current_log_manager_config(image, self.node_id))

    def _on_write_failure(self, partition: Partition, error: DiskFailed) -> None:
        logger.error("%s: %s", partition.name, error)
        try:
            self.logs.on_write_failure(partition.name, error)
        except AllDirectoriesOffline as failure:
            logger.critical("%s", failure)

    # -- stopping ------------------------------------------------------------------------------------------------

    async def _stop_serving(self) -> None:
        self._is_stopping = True
        self.listeners = ()
        self.groups.close()  # members that wait for others are told to look for another coordinator
        for partition in self.replicas:
            partition.close()  # a fetch that waits for records is answered now
        await self._server.stop(STOP_GRACE_SECONDS)
        await self.dispatcher.stop()

    def drop_connections(self) -> None:
        """Ends every connection at once; answers that are on their way are lost."""
        self._server.drop_connections()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
