"""The stages of a broker, each made whole out of the ones before it.

```
Site ─▶ Cluster ─▶ LogManager ─▶ Core ─▶ Services ─▶ Dispatcher
        metadata   logs          partitions, groups, server
```

A stage is what its function returns: there is no part that is used before it is there. What has to end with the
broker is pushed onto the site's exit stack where it is begun, so that the end takes the reverse order.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.metrics import Histogram, Metrics
from barnabas.base.tasks import Tasks
from barnabas.broker.adoption import adopt_directories
from barnabas.broker.auto_creation import AutoCreation
from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.groups import Groups
from barnabas.broker.handlers import make_rows
from barnabas.broker.internal_topics import InternalTopics
from barnabas.broker.parts import BrokerParts
from barnabas.broker.rebuilding import open_metadata
from barnabas.broker.request_measures import RequestMeasures
from barnabas.broker.services import Services
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.slices import Slices
from barnabas.broker.upkeep import keep_house
from barnabas.groups.measures import measure_groups
from barnabas.metadata.controllership import Controllership, claim_controller
from barnabas.metadata.deletions import Deletions
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.errors import BadVersion, NoNode, SessionLost
from barnabas.metadata.identity import ProducerIds, ensure_cluster_id, ensure_layout
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.leadership import raise_leader_epochs
from barnabas.metadata.topics import TopicWriter
from barnabas.metadata.watcher import MetadataWatcher
from barnabas.net.server import Server
from barnabas.replication.admission import Admission
from barnabas.replication.flushing import Flusher
from barnabas.replication.log_starts import LogStarts
from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas
from barnabas.replication.tick import AppendTick
from barnabas.storage.directories.directory import LogDirectory
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.opening import OpeningProgress, OpeningReport
from barnabas.storage.directories.strays import KnownPartitions
from barnabas.storage.settings import LogConfig

logger = logging.getLogger(__name__)

FINISHING_SECONDS: Final = 5.0
SESSION_EVICTION_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class Site:
    """What every stage is made with."""

    loop: asyncio.AbstractEventLoop
    parts: BrokerParts
    settings: BrokerSettings
    node_id: int
    executor: Executor
    metrics: Metrics
    flush_seconds: Histogram
    stack: AsyncExitStack

    def tasks(self) -> Tasks:
        """Tasks that end with what is begun here."""
        tasks = Tasks(self.loop)
        self.stack.push_async_callback(tasks.stop)
        return tasks


# -- the cluster's state -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cluster:
    """The metadata store, and what this broker is in the cluster."""

    metadata: EmbeddedMetadata
    store: EmbeddedSession
    cluster_id: str
    controllership: Controllership
    watcher: MetadataWatcher
    topics: TopicWriter
    deletions: Deletions
    old_epochs: BarnabasError | None
    """Why partitions have their old leader epochs yet, in which they can only be read; None when they have new ones."""


async def open_cluster(site: Site) -> Cluster:
    parts, stack, node_id = site.parts, site.stack, site.node_id
    metadata = await _open_metadata(site)
    stack.push_async_callback(metadata.close)
    store = metadata.session()
    stack.push_async_callback(store.close)
    await ensure_layout(store)
    cluster_id, controllership = await asyncio.gather(
        ensure_cluster_id(store, parts.random), claim_controller(store, node_id, parts.clock.now_ms())
    )
    assert controllership is not None, "alone, a broker is the controller"
    watcher = MetadataWatcher(store)
    await watcher.load()
    topics = TopicWriter(controllership, parts.random)
    await _finish_interrupted(site, topics, watcher)
    old_epochs = await _raise_epochs(site, controllership, watcher)
    deletions = Deletions(store, node_id)
    return Cluster(metadata, store, cluster_id, controllership, watcher, topics, deletions, old_epochs)


async def _open_metadata(site: Site) -> EmbeddedMetadata:
    parts, log_dirs = site.parts, site.settings.log_manager_config.log_dirs
    if parts.metadata_table is not None:
        return EmbeddedMetadata.in_memory(parts.clock, parts.metadata_table)
    adopt = partial(adopt_directories, parts.files, parts.clock, parts.random, log_dirs, site.node_id)
    await site.loop.run_in_executor(site.executor, adopt)
    return await open_metadata(parts.files, parts.clock, log_dirs)


async def _finish_interrupted(site: Site, topics: TopicWriter, watcher: MetadataWatcher) -> None:
    """What a crash has left half done in the metadata. Where that cannot be written now, it is tried again."""
    try:
        await topics.finish_interrupted(watcher.image)
    except (DiskFailed, SessionLost) as error:
        logger.warning(
            "cannot yet finish the topics that a crash left half created or deleted, trying again: %s", error
        )
        site.tasks().start(_finish_later(topics, watcher))


async def _finish_later(topics: TopicWriter, watcher: MetadataWatcher) -> None:
    while True:
        await asyncio.sleep(FINISHING_SECONDS)
        with suppress(DiskFailed, SessionLost):
            await topics.finish_interrupted(watcher.image)
            return


async def _raise_epochs(site: Site, controllership: Controllership, watcher: MetadataWatcher) -> BarnabasError | None:
    """Every start is a new leadership. Where that cannot be written now, it is tried again."""
    try:
        await raise_leader_epochs(controllership, watcher.image, site.node_id)
    except (DiskFailed, SessionLost) as error:
        logger.warning("cannot raise leader epochs, and refusing to produce until that succeeds: %s", error)
        site.tasks().start(_raise_later(controllership, watcher, site.node_id))
        return error
    await watcher.load()
    return None


async def _raise_later(controllership: Controllership, watcher: MetadataWatcher, node_id: int) -> None:
    while True:
        await asyncio.sleep(FINISHING_SECONDS)
        with suppress(DiskFailed, SessionLost, BadVersion, NoNode):  # or a topic has changed: the next image has it
            await raise_leader_epochs(controllership, watcher.image, node_id)
            logger.info("raised the leader epochs: records can be produced again")
            return


# -- the logs ------------------------------------------------------------------------------------------------------


async def open_logs(
    site: Site, cluster: Cluster, on_progress: Callable[[OpeningProgress], None] | None
) -> tuple[LogManager, OpeningReport]:
    parts, settings, watcher, node_id = site.parts, site.settings, cluster.watcher, site.node_id
    logs = LogManager(
        parts.files,
        parts.clock,
        parts.random,
        settings.log_manager_config,
        cluster_id=cluster.cluster_id,
        node_id=node_id,
        handles=parts.handles,
        flush_seconds=site.flush_seconds,
        workers=parts.log_workers,
    )
    deleted = await cluster.deletions.load()
    known = KnownPartitions(
        lambda partition: watcher.image.topic_id_of(partition, node_id),
        frozenset(topic.topic_id for topic in deleted),
        frozenset(topic.topic for topic in deleted),
    )
    image = watcher.image
    config_of_topic = partial(settings.log_config, image, node_id)
    opening = await site.loop.run_in_executor(site.executor, logs.open, config_of_topic, on_progress, known)
    site.stack.callback(logs.close)
    if not (opening.offline or opening.unopened):
        cluster.deletions.confirm(topic.topic_id for topic in deleted)
    return logs, opening


# -- what serves ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Core:
    """What requests act on, and the server that they come by."""

    server: Server
    replicas: Replicas
    tick: AppendTick
    admission: Admission
    groups: Groups


async def start_core(site: Site, cluster: Cluster, logs: LogManager) -> Core:
    """Returns when every partition of the image is served."""
    core = _make_core(site, cluster, logs)
    settings, node_id, watcher = site.settings, site.node_id, cluster.watcher

    def reconfigure(image: ClusterImage) -> None:
        """Takes over the settings that were changed at run time."""
        core.server.options = settings.current_config(image, node_id).server_options()
        logs.reconfigure(settings.current_log_manager_config(image, node_id))

    def follow(old: ClusterImage, new: ClusterImage) -> None:
        """What the metadata store says now: the one way by which topics and settings change."""
        core.replicas.follow(new)
        if new.broker_configs != old.broker_configs:
            reconfigure(new)

    def drop(directory: LogDirectory) -> None:
        """Nothing of a failed directory is served any more; groups whose partitions lie there are told so."""
        core.replicas.drop(sorted(directory.lost), directory.failure)
        core.groups.follow(core.replicas.image)

    logs.on_offline = drop
    watcher.subscribe(follow)
    reconfigure(watcher.image)
    tasks = site.tasks()
    tasks.start(watcher.run())
    tasks.start(core.replicas.run())
    tasks.start(cluster.deletions.run())
    tasks.start(keep_house(site.parts.clock, core.replicas, logs, site.executor))
    if cluster.old_epochs is not None:
        core.replicas.refuse_appends(watcher.image, cluster.old_epochs)
    await core.replicas.apply(watcher.image)

    site.stack.callback(core.groups.close)
    core.groups.follow(core.replicas.image)
    group_tasks = site.tasks()
    group_tasks.start(core.groups.run())
    group_tasks.start(core.groups.keep_forgetting())
    group_tasks.start(core.groups.keep_sweeping())
    return core


def _make_core(site: Site, cluster: Cluster, logs: LogManager) -> Core:
    loop, parts, settings, executor = site.loop, site.parts, site.settings, site.executor

    def on_log_failure(partition: Partition, error: DiskFailed) -> None:
        logs.on_log_failure(partition.name, error)

    def config_of_topic(image: ClusterImage, topic: str) -> LogConfig:
        return settings.log_config(image, site.node_id, topic)

    server = Server(parts.network, settings.config.server_options(), executor, logs.on_file_failure)
    tick = AppendTick(loop, parts.clock, server.replies)
    flusher = Flusher(loop, logs, executor)
    site.stack.push_async_callback(flusher.drain)
    replicas = Replicas(
        site.node_id, logs, config_of_topic, cluster.deletions, executor, tick, flusher.flush, on_log_failure
    )
    site.stack.callback(tick.write)
    admission = Admission(loop, executor)
    site.stack.push_async_callback(admission.drain)
    internal_topics = InternalTopics(settings.config, cluster.topics, replicas)
    site.stack.push_async_callback(internal_topics.stop)
    groups = Groups(
        loop,
        parts.clock,
        parts.random,
        settings.config,
        replicas,
        tick,
        executor,
        internal_topics,
        measure_groups(site.metrics),
    )
    return Core(server, replicas, tick, admission, groups)


# -- requests ------------------------------------------------------------------------------------------------------


def make_services(site: Site, cluster: Cluster, logs: LogManager, core: Core) -> Services:
    loop, parts, stack = site.loop, site.parts, site.stack
    log_starts = LogStarts(loop, logs, site.executor)
    stack.push_async_callback(log_starts.drain)
    auto_creation = AutoCreation(cluster.topics)
    stack.push_async_callback(auto_creation.stop)
    return Services(
        broker_id=site.node_id,
        cluster_id=cluster.cluster_id,
        settings=site.settings,
        controllership=cluster.controllership,
        topics=cluster.topics,
        producer_ids=ProducerIds(cluster.store, site.node_id),
        replicas=core.replicas,
        logs=logs,
        log_starts=log_starts,
        auto_creation=auto_creation,
        groups=core.groups,
        admission=core.admission,
        fetch_sessions=FetchSessions(
            site.settings.config.max_incremental_fetch_session_cache_slots, SESSION_EVICTION_MS, parts.random
        ),
        codecs=parts.codecs,
        authorizer=parts.authorizer,
        slices=Slices(loop, parts.clock),
        clock=parts.clock,
        random=parts.random,
        loop=loop,
        workers=site.executor,
    )


def make_dispatcher(site: Site, services: Services) -> Dispatcher:
    measures = RequestMeasures(site.metrics, services.clock.monotonic)
    return Dispatcher(site.loop, make_rows(services), services.codecs, services.slices, measures)
