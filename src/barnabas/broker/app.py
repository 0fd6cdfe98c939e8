"""The broker put together: which part gets which, in what order they start, and how they stop.

```
start   what Kafka left > metadata store > identity > logs (recovery, in threads) > image > served partitions >
        ports > registration > accepting
stop    listeners (requests in flight finish) > what is being written > logs (flushed, marked clean) > metadata store
```

Everything comes in as an argument: files, network, clock, randomness, and the event loop that runs it. Many brokers may
live in one process. A task that fails for a reason of our own stops the broker: `wait_stopped` raises it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Self

from barnabas.base.addresses import address_text
from barnabas.base.clock import Clock, SystemClock
from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.filesystem import FileSystem, LocalFileSystem
from barnabas.base.metric_table import FLUSH_SECONDS
from barnabas.base.metrics import Metrics
from barnabas.broker.adoption import adopt_directories, choose_node_id
from barnabas.broker.authorizer import AllowAll
from barnabas.broker.auto_creation import AutoCreation
from barnabas.broker.dispatch import ClientConnection, Dispatcher, Shortcut
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.group_lag import GroupLags
from barnabas.broker.groups import Groups
from barnabas.broker.handlers import make_direct_handlers, make_handlers
from barnabas.broker.handlers.fetch import FetchHandler
from barnabas.broker.handlers.offset_commit import OffsetCommitHandler
from barnabas.broker.handlers.produce import ProduceHandler
from barnabas.broker.handlers.sole_fetch import SoleFetchHandler
from barnabas.broker.health import BrokerState, Health, health_of
from barnabas.broker.internal_topics import InternalTopics
from barnabas.broker.measures import measure_broker, measure_lags
from barnabas.broker.rebuilding import open_metadata
from barnabas.broker.request_measures import RequestMeasures
from barnabas.broker.services import Services
from barnabas.broker.settings import DEFAULT_NODE_ID, BrokerSettings
from barnabas.broker.slices import Slices
from barnabas.groups.measures import measure_group_states, measure_groups
from barnabas.metadata.controllership import Controllership, claim_controller
from barnabas.metadata.deletions import Deletions
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.errors import BadVersion, NoNode, SessionLost
from barnabas.metadata.identity import ProducerIds, ensure_cluster_id, ensure_layout, register_broker
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.leadership import raise_leader_epochs
from barnabas.metadata.table import MemoryTable
from barnabas.metadata.topics import TopicWriter
from barnabas.metadata.watcher import MetadataWatcher
from barnabas.metadata.znodes import BrokerRegistration, Endpoint
from barnabas.net.connection import Connection
from barnabas.net.server import Listener, Server, ServerOptions
from barnabas.net.sockets import SocketNetwork
from barnabas.net.stream import Network
from barnabas.replication.admission import Admission
from barnabas.replication.flushing import Flusher
from barnabas.replication.log_starts import LogStarts
from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas
from barnabas.replication.tick import AppendTick
from barnabas.replication.workers import perform
from barnabas.storage.descriptors import handles_capacity, raise_descriptor_limit
from barnabas.storage.directory import LogDirectory
from barnabas.storage.handles import Handles
from barnabas.storage.manager import LogManager
from barnabas.storage.opening import OpeningProgress, OpeningReport
from barnabas.storage.strays import KnownPartitions
from barnabas.storage.work import Workers
from barnabas.wire.apis import ApiKey

logger = logging.getLogger(__name__)

HOUSEKEEPING_SECONDS: Final = 1.0
FINISHING_SECONDS: Final = 5.0
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
    log_workers: Workers | None = None
    """What opens and closes the logs; None: threads."""


def system_parts() -> BrokerParts:
    return BrokerParts(LocalFileSystem(), SystemClock(), Random())


class Broker:
    """`async with Broker(settings):` serves until the block ends."""

    def __init__(
        self,
        settings: BrokerSettings,
        parts: BrokerParts | None = None,
        *,
        on_progress: Callable[[OpeningProgress], None] | None = None,
    ) -> None:
        self.settings = settings
        self._parts = parts or system_parts()
        self._on_progress = on_progress
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_ready = False
        self._is_stopping = False
        self.node_id = DEFAULT_NODE_ID
        """Known once it has begun to start."""
        self.listeners: tuple[Listener, ...] = ()
        self.metrics = Metrics()
        self._flush_seconds = self.metrics.histogram(FLUSH_SECONDS)
        self._group_lags: GroupLags | None = None
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
        return ",".join(address_text(one.advertised_host, one.advertised_port) for one in self.listeners)

    @property
    def server_options(self) -> ServerOptions:
        """The limits of its listeners that hold now."""
        return self._server.options

    @property
    def health(self) -> Health:
        if self._is_stopping:
            return Health(BrokerState.STOPPING)
        if not self._is_ready:
            return Health(BrokerState.STARTING)
        metadata = self._metadata
        return health_of(self.logs.directories, metadata.problem, is_metadata_lost=metadata.is_lost)

    # -- starting ------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        parts, settings, stack = self._parts, self.settings, self._stack
        loop = asyncio.get_running_loop()
        self._bug: asyncio.Future[None] = loop.create_future()
        executor = ThreadPoolExecutor(settings.config.background_threads, thread_name_prefix="barnabas")
        stack.callback(executor.shutdown)
        loop.set_default_executor(executor)
        await self._listen_for_metrics(executor)
        log_dirs = settings.log_manager_config.log_dirs
        self.node_id = choose_node_id(parts.files, log_dirs, settings.config.node_id)
        if parts.metadata_table is not None:
            metadata = EmbeddedMetadata.in_memory(parts.clock, parts.metadata_table)
        else:
            adopt = partial(adopt_directories, parts.files, parts.clock, parts.random, log_dirs, self.node_id)
            await loop.run_in_executor(executor, adopt)
            metadata = await open_metadata(parts.files, parts.clock, log_dirs)
        self._metadata = metadata
        stack.push_async_callback(metadata.close)
        store = metadata.session()
        stack.push_async_callback(store.close)
        await ensure_layout(store)
        cluster_id, controllership = await asyncio.gather(
            ensure_cluster_id(store, parts.random), claim_controller(store, self.node_id, parts.clock.now_ms())
        )
        assert controllership is not None, "alone, a broker is the controller"
        watcher = MetadataWatcher(store)
        await watcher.load()
        writer = TopicWriter(controllership, parts.random)
        await self._finish_interrupted(writer, watcher)
        old_epochs = await self._raise_epochs(controllership, watcher)
        image = watcher.image

        deletions = Deletions(store, self.node_id)
        deleted = await deletions.load()
        known = KnownPartitions(
            lambda partition: watcher.image.topic_id_of(partition, self.node_id),
            frozenset(topic.topic_id for topic in deleted),
            frozenset(topic.topic for topic in deleted),
        )
        self.logs = await self._open_logs(cluster_id, image, known, executor)
        if not (self.opening.offline or self.opening.unopened):
            deletions.confirm(topic.topic_id for topic in deleted)
        server = Server(
            parts.network or SocketNetwork(),
            self._connect,
            settings.config.server_options(),
            executor,
            self.logs.on_file_failure,
        )
        self._server = server
        self.tick = AppendTick(loop, parts.clock, server.flush_replies)
        flusher = Flusher(loop, self.logs, executor, self._on_bug)
        stack.push_async_callback(flusher.drain)
        log_config = partial(settings.log_config, broker_id=self.node_id)
        self.replicas = Replicas(
            self.node_id,
            self.logs,
            lambda image, topic: log_config(image, topic=topic),
            deletions,
            executor,
            self.tick,
            flusher.flush,
            self._on_log_failure,
        )
        self.logs.on_offline = lambda directory: self.replicas.drop(directory.lost, directory.failure)
        stack.callback(self.tick.write)
        self.admission = Admission(loop, executor, self._on_bug)
        stack.push_async_callback(self.admission.drain)
        watcher.subscribe(self._follow)
        self._reconfigure(image)
        self._run(watcher.run())
        self._run(self.replicas.run())
        self._run(deletions.run())
        self._run(self._keep_house(executor))
        if old_epochs is not None:
            self.replicas.refuse_appends(image, old_epochs)
        await self.replicas.apply(image)

        log_starts = LogStarts(self.logs, executor, self._on_bug)
        stack.push_async_callback(log_starts.drain)
        auto_creation = AutoCreation(writer)
        stack.push_async_callback(auto_creation.stop)
        self.groups = self._make_groups(loop, writer)
        self.logs.on_offline = self._on_offline
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
            slices=Slices(loop, parts.clock),
            clock=parts.clock,
            random=parts.random,
            workers=executor,
        )
        self.dispatcher = self._make_dispatcher(loop)
        self._measure(executor)
        stack.push_async_callback(self._stop_serving)  # last to start, first to stop
        self.listeners = tuple([await server.listen(spec) for spec in settings.config.listeners])
        await register_broker(store, self._registration())
        await self.replicas.wait_for(lambda image: self.node_id in image.brokers)
        server.accept()  # not before: a client's first question is who the brokers are
        self._is_ready = True

    async def _finish_interrupted(self, writer: TopicWriter, watcher: MetadataWatcher) -> None:
        """What a crash has left half done in the metadata. Where that cannot be written now, it is tried again."""
        try:
            await writer.finish_interrupted(watcher.image)
        except (DiskFailed, SessionLost) as error:
            logger.warning("topics that a crash left half created or deleted have to wait: %s", error)
            task = asyncio.create_task(_finish_later(writer, watcher))
            self._stack.push_async_callback(_cancel, task)

    async def _raise_epochs(self, controllership: Controllership, watcher: MetadataWatcher) -> BarnabasError | None:
        """Why partitions have their old epochs yet, in which they can only be read: it is tried again."""
        try:
            await raise_leader_epochs(controllership, watcher.image, self.node_id)
        except (DiskFailed, SessionLost) as error:
            logger.warning("nothing can be produced until leader epochs can be raised: %s", error)
            task = asyncio.create_task(_raise_later(controllership, watcher, self.node_id))
            self._stack.push_async_callback(_cancel, task)
            return error
        await watcher.load()
        return None

    async def _open_logs(
        self, cluster_id: str, image: ClusterImage, known: KnownPartitions, executor: ThreadPoolExecutor
    ) -> LogManager:
        parts, settings = self._parts, self.settings
        logs = LogManager(
            parts.files,
            parts.clock,
            parts.random,
            settings.log_manager_config,
            cluster_id=cluster_id,
            node_id=self.node_id,
            handles=Handles(handles_capacity(raise_descriptor_limit())),
            flush_seconds=self._flush_seconds,
            workers=parts.log_workers,
        )
        loop = asyncio.get_running_loop()
        open_all = partial(
            logs.open, lambda topic: settings.log_config(image, self.node_id, topic), self._on_progress, known
        )
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
        clock = self._parts.clock
        measures = RequestMeasures(self.metrics, clock.monotonic)
        produce = ProduceHandler(self.replicas, self.admission, measures)
        fetch = FetchHandler(loop, clock, self.replicas, sessions, self.services.slices, config.fetch_max_bytes)
        sole_fetch = SoleFetchHandler(fetch, loop, clock, self.replicas, sessions, measures)
        commit = OffsetCommitHandler(self.services, measures)
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
            slices=self.services.slices,
            measures=measures,
            on_bug=self._on_bug,
        )

    def _measure(self, executor: ThreadPoolExecutor) -> None:
        metrics, coordinator = self.metrics, self.groups.coordinator
        measure_broker(metrics, self._server.counters, self.replicas, self.logs)
        measure_group_states(metrics, coordinator.counts)
        self._group_lags = GroupLags(coordinator, self.replicas, executor)
        self._stack.push_async_callback(self._group_lags.close)
        measure_lags(metrics, self._group_lags, self._parts.clock)

    async def _listen_for_metrics(self, executor: ThreadPoolExecutor) -> None:
        address = self.settings.config.metrics_listen
        if address is None:
            return
        from barnabas.broker.http import http_port  # only a broker with this port pays for it

        async def prepare() -> None:
            if self._group_lags is not None:
                await self._group_lags.refresh()

        network = self._parts.network or SocketNetwork()
        listening = await self._stack.enter_async_context(
            http_port(network, address, self.metrics, lambda: self.health, prepare, executor)
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
                now_ms = self._parts.clock.steady_ms()
                self.replicas.retry(now_ms)
                for work in self.logs.due_in_slices(now_ms):
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

    def _on_log_failure(self, partition: Partition, error: DiskFailed) -> None:
        self.logs.on_log_failure(partition.name, error)

    def _on_offline(self, directory: LogDirectory) -> None:
        """Nothing of a failed directory is served any more; groups whose partitions lie there are told so."""
        self.replicas.drop(directory.lost, directory.failure)
        self.groups.follow(self.replicas.image)

    # -- stopping ------------------------------------------------------------------------------------------------

    async def _stop_serving(self) -> None:
        self._is_stopping = True
        self.listeners = ()
        self.groups.close()  # members that wait for others are told to look for another coordinator
        self.tick.write()  # what was taken before is in the log, and its producers are told so
        self.replicas.resign_all()  # a fetch that waits for records is answered now
        await self._server.stop(STOP_GRACE_SECONDS)
        await self.dispatcher.stop()

    def drop_connections(self) -> None:
        """Ends every connection at once; answers that are on their way are lost."""
        self._server.drop_connections()


async def _finish_later(writer: TopicWriter, watcher: MetadataWatcher) -> None:
    while True:
        await asyncio.sleep(FINISHING_SECONDS)
        with suppress(DiskFailed, SessionLost):
            await writer.finish_interrupted(watcher.image)
            return


async def _raise_later(controllership: Controllership, watcher: MetadataWatcher, node_id: int) -> None:
    while True:
        await asyncio.sleep(FINISHING_SECONDS)
        with suppress(DiskFailed, SessionLost, BadVersion, NoNode):  # or a topic has changed: the next image has it
            await raise_leader_epochs(controllership, watcher.image, node_id)
            logger.info("leader epochs are raised: records can be produced again")
            return


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
