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
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from barnabas.base.errors import BarnabasError, DiskFailed
from barnabas.base.metrics import Histogram, Metrics
from barnabas.base.tasks import Tasks
from barnabas.broker.adoption import adopt_directories, known_cluster_id
from barnabas.broker.auto_creation import AutoCreation
from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.forwarding import Forwarder
from barnabas.broker.groups import Groups
from barnabas.broker.handlers import make_rows
from barnabas.broker.internal_topics import InternalTopics
from barnabas.broker.membership import Membership
from barnabas.broker.metadata_source import EmbeddedSource, MetadataSource, ZooKeeperSource
from barnabas.broker.offline_replicas import OfflineReplicas
from barnabas.broker.parts import BrokerParts
from barnabas.broker.rebuilding import open_metadata
from barnabas.broker.replica_sessions import ReplicaSessions
from barnabas.broker.request_measures import RequestMeasures
from barnabas.broker.services import Services
from barnabas.broker.session_file import SessionKeeper
from barnabas.broker.settings import DEFAULT_NODE_ID, BrokerConfig, BrokerSettings
from barnabas.broker.slices import Slices
from barnabas.broker.topic_creation import TopicCreation
from barnabas.broker.upkeep import keep_house
from barnabas.controller.alter_partition import AskedIsr, alter_partitions
from barnabas.controller.controller_options import ControllerOptions
from barnabas.controller.history import ImageHistory
from barnabas.controller.seat import ControllerSeat
from barnabas.controller.suspecting import Suspecting
from barnabas.groups.measures import measure_groups
from barnabas.metadata.deletions import Deletions
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.identity import ProducerIds, ensure_layout, next_broker_id
from barnabas.metadata.image import ClusterImage, RegisteredBroker
from barnabas.net.server import Server
from barnabas.replication.admission import Admission
from barnabas.replication.fetcher import Address, FollowerSide
from barnabas.replication.flushing import Flusher
from barnabas.replication.following import Following
from barnabas.replication.log_starts import LogStarts
from barnabas.replication.lost_leaders import LostLeaders
from barnabas.replication.partition import Partition
from barnabas.replication.proposals import Proposals, Proposed
from barnabas.replication.replicas import Replicas
from barnabas.replication.tick import AppendTick
from barnabas.replication.workers import perform
from barnabas.storage.directories.directory import LogDirectory
from barnabas.storage.directories.manager import LogManager
from barnabas.storage.directories.opening import OpeningProgress, OpeningReport
from barnabas.storage.directories.strays import KnownPartitions
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

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

    metadata: MetadataSource
    membership: Membership
    history: ImageHistory
    """The image of the cluster as it comes from the controller."""
    seat: ControllerSeat
    topics: TopicCreation
    deletions: Deletions
    can_suspect: bool
    """Whether the brokers end each other's sessions when a process is dead."""


async def new_node_id(settings: BrokerSettings) -> int:
    """Of a broker that has none: 1 for one that is alone, in a cluster one that nobody has had."""
    options = settings.config.zookeeper_options()
    if options is None:
        return DEFAULT_NODE_ID
    session = await ZooKeeperSource(options).session()
    try:
        await ensure_layout(session)
        return await next_broker_id(session, settings.config.reserved_broker_max_id)
    finally:
        await session.close()


async def open_cluster(site: Site) -> Cluster:
    """Joins the cluster, and knows its image; the broker is not registered yet."""
    parts, stack, config = site.parts, site.stack, site.settings.config
    source = await _open_source(site)
    stack.push_async_callback(source.close)
    history = ImageHistory()
    listener = config.inter_broker_listener
    options = ControllerOptions(
        partial(site.settings.replication_rules, site.node_id),
        config.leader_imbalance_check_interval_seconds if config.auto_leader_rebalance_enable else None,
        config.leader_imbalance_per_broker_percentage,
    )
    seat = ControllerSeat(site.node_id, history, parts.network, listener, parts.clock, parts.random, options)
    log_dirs = site.settings.log_manager_config.log_dirs
    keeper = SessionKeeper(parts.files, log_dirs[0], site.executor)
    can_suspect = _can_suspect(source, config)
    membership = Membership(source, seat, parts.random, keeper, leaves_key=can_suspect)
    stack.push_async_callback(membership.leave)
    await membership.join(known_cluster_id(parts.files, log_dirs) if source.is_shared else None)
    await membership.load()
    deletions = Deletions(membership.store, site.node_id)
    return Cluster(source, membership, history, seat, TopicCreation(seat), deletions, can_suspect)


def _can_suspect(source: MetadataSource, config: BrokerConfig) -> bool:
    if not config.broker_suspicion_enable:
        return False
    if not source.keeps_secrets and config.zookeeper_options() is not None:
        logger.info(
            "the session of a broker whose process dies ends by its timeout: without zookeeper.digest.identity the "
            "other brokers are not given the key to end it"
        )
    return source.keeps_secrets


async def _open_source(site: Site) -> MetadataSource:
    parts, log_dirs = site.parts, site.settings.log_manager_config.log_dirs
    if parts.metadata is not None:
        return parts.metadata
    options = site.settings.config.zookeeper_options()
    if options is not None:
        return ZooKeeperSource(options)
    if parts.metadata_table is not None:
        return EmbeddedSource(EmbeddedMetadata.in_memory(parts.clock, parts.metadata_table))
    adopt = partial(adopt_directories, parts.files, parts.clock, parts.random, log_dirs, site.node_id)
    await site.loop.run_in_executor(site.executor, adopt)
    return EmbeddedSource(await open_metadata(parts.files, parts.clock, log_dirs))


# -- the logs ------------------------------------------------------------------------------------------------------


async def open_logs(
    site: Site, cluster: Cluster, on_progress: Callable[[OpeningProgress], None] | None
) -> tuple[LogManager, OpeningReport]:
    parts, settings, node_id = site.parts, site.settings, site.node_id
    logs = LogManager(
        parts.files,
        parts.clock,
        parts.random,
        settings.log_manager_config,
        cluster_id=cluster.membership.cluster_id,
        node_id=node_id,
        handles=parts.handles,
        flush_seconds=site.flush_seconds,
        workers=parts.log_workers,
        boot_id=parts.boot_id,
    )
    deleted = await cluster.deletions.load()
    known = KnownPartitions(
        lambda partition: cluster.history.image.topic_id_of(partition, node_id),
        frozenset(topic.topic_id for topic in deleted),
        frozenset(topic.topic for topic in deleted),
    )
    image = cluster.history.image
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
    proposals = _make_proposals(site, cluster, core.replicas)
    offline = OfflineReplicas(cluster.seat, core.replicas, logs)
    settings, node_id, history = site.settings, site.node_id, cluster.history

    def reconfigure(image: ClusterImage) -> None:
        """Takes over the settings that were changed at run time."""
        core.server.options = settings.current_config(image, node_id).server_options()
        logs.reconfigure(settings.current_log_manager_config(image, node_id))

    def follow(old: ClusterImage, new: ClusterImage) -> None:
        """What the controller says now: the one way by which topics and settings change."""
        core.replicas.follow(new)
        if new.brokers is not old.brokers:
            proposals.brokers_changed()
        if new.broker_configs != old.broker_configs:
            reconfigure(new)

    def drop(directory: LogDirectory) -> None:
        """Nothing of a failed directory is served any more; groups whose partitions lie there are told so."""
        core.replicas.drop(sorted(directory.lost), directory.failure)
        core.groups.follow(core.replicas.image)
        offline.look()

    def registered(broker_epoch: int) -> None:
        core.replicas.registered(broker_epoch)
        core.groups.follow(core.replicas.image)
        offline.look()

    def resign() -> None:
        """Others may lead by now what this broker led."""
        core.tick.write()
        core.replicas.resign_all()
        core.groups.follow(core.replicas.image)

    def read_only(problem: BarnabasError) -> None:
        core.replicas.serve_ungranted(problem)
        core.groups.follow(core.replicas.image)

    async def remember(broker_epoch: int) -> None:
        for work in logs.remembering(broker_epoch):
            await perform(work, site.executor)

    logs.on_offline = drop
    cluster.membership.remember = remember
    cluster.membership.on_registered = registered
    cluster.membership.on_lost = resign
    cluster.seat.on_problem = read_only
    history.subscribe(follow)
    reconfigure(history.image)
    tasks = site.tasks()
    tasks.start(core.replicas.run())
    tasks.start(proposals.run())
    if cluster.metadata.is_shared:  # alone, nobody else could lead
        history.subscribe(offline.follow)
        tasks.start(offline.run())
    tasks.start(cluster.deletions.run())
    tasks.start(keep_house(site.parts.clock, core.replicas, logs, site.executor))
    await core.replicas.apply(history.image)

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
    following = Following(loop, _follower_side(site, cluster, logs, flusher))
    site.stack.push_async_callback(following.stop)
    replicas = Replicas(
        site.node_id, logs, config_of_topic, cluster.deletions, executor, tick, flusher.flush, on_log_failure, following
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


def _follower_side(site: Site, cluster: Cluster, logs: LogManager, flusher: Flusher) -> FollowerSide:
    """How this broker reaches those that lead what it follows."""
    parts, config = site.parts, site.settings.config

    def address_of(broker_id: int) -> Address | None:
        endpoint = cluster.history.image.endpoint(broker_id, config.inter_broker_listener)
        return None if endpoint is None else Address(endpoint.host, endpoint.port)

    def broker_of(broker_id: int) -> RegisteredBroker | None:
        return cluster.history.image.brokers.get(broker_id)

    lost_leaders = LostLeaders(parts.clock, broker_of, config.zookeeper_session_timeout_ms / 1000)
    side = FollowerSide(site.node_id, parts.network, parts.clock, address_of, config.fetcher_settings(), lost_leaders)
    side.flush = flusher.flush
    side.on_failure = logs.on_log_failure
    return side


def _make_proposals(site: Site, cluster: Cluster, replicas: Replicas) -> Proposals:
    """How leaders here ask for another ISR."""

    async def alter(proposed: Sequence[Proposed]) -> Sequence[ErrorCode]:
        asked = [
            AskedIsr(one.topic_id, one.name.partition, one.leader_epoch, proposal.partition_epoch, proposal.isr)
            for one, proposal in proposed
        ]
        return await alter_partitions(cluster.seat, asked)

    lag_ms_max = site.settings.config.replica_lag_time_max_ms

    def is_over(broker_id: int, broker_epoch: int) -> bool:
        registered = cluster.history.image.brokers.get(broker_id)
        return registered is None or registered.epoch > broker_epoch

    proposals = Proposals(site.parts.clock, replicas.with_followers, lag_ms_max, alter, is_over)
    replicas.on_joinable, replicas.on_taken_out = proposals.add, proposals.taken_out
    return proposals


def _make_suspecting(site: Site, cluster: Cluster) -> Suspecting:
    """How this broker finds out that another one is dead."""
    suspecting = Suspecting(
        cluster.seat,
        cluster.membership.store,
        site.parts.network,
        site.settings.config.inter_broker_listener,
        site.parts.clock,
        site.tasks(),
        cluster.metadata.end_session if cluster.can_suspect else None,
    )
    cluster.seat.on_link_failed = suspecting.link_failed
    return suspecting


# -- requests ------------------------------------------------------------------------------------------------------


def make_services(site: Site, cluster: Cluster, logs: LogManager, core: Core) -> Services:
    loop, parts, stack = site.loop, site.parts, site.stack
    log_starts = LogStarts(loop, logs, site.executor)
    stack.push_async_callback(log_starts.drain)
    auto_creation = AutoCreation(cluster.topics)
    stack.push_async_callback(auto_creation.stop)
    return Services(
        broker_id=site.node_id,
        cluster_id=cluster.membership.cluster_id,
        settings=site.settings,
        seat=cluster.seat,
        suspecting=_make_suspecting(site, cluster),
        producer_ids=ProducerIds(cluster.membership.store, site.node_id),
        replicas=core.replicas,
        logs=logs,
        log_starts=log_starts,
        auto_creation=auto_creation,
        groups=core.groups,
        admission=core.admission,
        fetch_sessions=FetchSessions(
            site.settings.config.max_incremental_fetch_session_cache_slots, SESSION_EVICTION_MS, parts.random
        ),
        replica_sessions=ReplicaSessions(parts.random),
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
    forward = Forwarder(services.seat, services.replicas, services.clock)
    return Dispatcher(site.loop, make_rows(services), services.codecs, services.slices, measures, forward)
