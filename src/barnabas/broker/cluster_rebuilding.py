"""A cluster whose ZooKeeper has lost its topics: restored from the log directories of its brokers.

`survey_brokers` reads the directories, `plan` compares them with the store, `write` writes what is missing
(`barnabas.metadata.cluster_rebuild` has the rules). Until it is written no broker starts
(`barnabas.metadata.construction`); a crash leaves a part of it, and the next run goes on. No log is touched. The caller
holds the locks of the directories.

Only what lies in the directories comes back: settings of topics and brokers, users, quotas and access rules were in
ZooKeeper alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from uuid import UUID

from barnabas.base.clock import Clock
from barnabas.base.filesystem import FileSystem
from barnabas.base.uuid import parse_uuid
from barnabas.base.wording import first_few
from barnabas.broker.adoption import choose_node_id
from barnabas.broker.internal_topics import INTERNAL_TOPIC_CONFIGS
from barnabas.broker.rebuilding import survey_logs
from barnabas.metadata.cluster_rebuild import (
    ClusterRebuild,
    PresentCluster,
    PresentTopic,
    RebuildOptions,
    plan_cluster_rebuild,
)
from barnabas.metadata.construction import Construction, require_idle, stored_cluster_id
from barnabas.metadata.errors import NoNode
from barnabas.metadata.rebuild import CannotRebuild, FoundLogs
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.znodes import (
    BROKER_SEQUENCE,
    CLUSTER_ID,
    CONFIG_TOPICS,
    DELETED_TOPICS,
    PRODUCER_ID_BLOCK,
    TOPICS,
    ClusterId,
    PartitionState,
    ProducerIdBlock,
    TopicAssignment,
)
from barnabas.storage.directories.meta_properties import META_PROPERTIES


@dataclass(frozen=True, slots=True)
class BrokerDirectories:
    """The log directories of one broker."""

    log_dirs: Sequence[str]
    node_id: int | None = None
    """As it is configured; the directories know it, too."""


@dataclass(frozen=True, slots=True)
class SurveyedBrokers:
    cluster_id: str
    found: Sequence[FoundLogs]
    notes: Sequence[str]
    """Small files that could not be read, and why."""


def survey_brokers(files: FileSystem, brokers: Sequence[BrokerDirectories]) -> SurveyedBrokers:
    """What all the directories say. `CannotRebuild` unless they belong to brokers of one cluster."""
    notes: list[str] = []
    found = []
    clusters: dict[str, str] = {}
    for broker in brokers:
        node_id = choose_node_id(files, broker.log_dirs, broker.node_id)
        logs = None if node_id is None else survey_logs(files, broker.log_dirs, node_id, notes)
        if logs is None or logs.cluster_id is None:
            raise CannotRebuild(
                f"{broker.log_dirs[0]} has no {META_PROPERTIES} that names its cluster and its broker: restore that "
                "file, or leave the directory out if no broker has used it"
            )
        clusters.setdefault(logs.cluster_id, broker.log_dirs[0])
        found.append(logs)
    if len(clusters) > 1:
        described = "; ".join(f"{path}: cluster {cluster_id}" for cluster_id, path in clusters.items())
        raise CannotRebuild(f"the directories belong to different clusters ({described}): give those of one cluster")
    return SurveyedBrokers(next(iter(clusters)), found, notes)


class ClusterRebuilding:
    """One rebuilding into one store."""

    def __init__(
        self, brokers: SurveyedBrokers, options: RebuildOptions, clock: Clock, random: Random, *, replaces_id: bool
    ) -> None:
        """`replaces_id`: the store may be that of another cluster that has no topics."""
        self._brokers = brokers
        self._options = replace(options, known_configs={**INTERNAL_TOPIC_CONFIGS, **options.known_configs})
        self._clock = clock
        self._random = random
        self._replaces_id = replaces_id

    async def plan(self, store: MetadataStore) -> ClusterRebuild:
        """What would be written now. Changes nothing."""
        await require_idle(store)
        await self._require_cluster(store)
        return await self._plan(store)

    async def write(self, store: MetadataStore) -> ClusterRebuild:
        """What was written."""
        await self._require_cluster(store)
        construction = Construction(store, self._brokers.cluster_id)
        await construction.begin()
        plan = await self._plan(store)
        await construction.write(plan.operations)
        await construction.finish()
        return plan

    async def _plan(self, store: MetadataStore) -> ClusterRebuild:
        present = await read_present(store)
        return plan_cluster_rebuild(self._brokers.found, present, self._options, self._random, self._clock.now_ms())

    async def _require_cluster(self, store: MetadataStore) -> None:
        stored, own = await stored_cluster_id(store), self._brokers.cluster_id
        if stored in (None, own):
            return
        topics = await _children(store, TOPICS)
        if topics:
            raise CannotRebuild(
                f"the metadata store is that of cluster {stored}, which has topics ({first_few(topics)}), but the "
                f"directories belong to cluster {own}: correct zookeeper.connect, or give this cluster a path of its "
                "own there (HOST:PORT/PATH)"
            )
        if not self._replaces_id:
            raise CannotRebuild(
                f"the metadata store is that of cluster {stored}, which has no topics; the directories belong to "
                f"cluster {own}: correct zookeeper.connect, or put cluster {own} in its place with --replace-cluster-id"
            )


async def read_present(store: MetadataStore) -> PresentCluster:
    """What the store has. Nobody changes it meanwhile."""
    names = await _children(store, TOPICS)
    nodes = await store.get_many([TopicAssignment.path_of(name) for name in names])
    topics = {}
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            assignment = TopicAssignment.decode(name, node.data)
            topics[name] = PresentTopic(assignment, node.stat.version, await _read_states(store, assignment))
    cluster, block, sequence = await store.get_many([CLUSTER_ID, PRODUCER_ID_BLOCK, BROKER_SEQUENCE])
    return PresentCluster(
        None if cluster is None else ClusterId.decode(cluster.data),
        topics,
        frozenset(await _children(store, CONFIG_TOPICS)),
        frozenset(await _deleted_ids(store)),
        None if block is None or not block.data else ProducerIdBlock.decode(block.data),
        0 if sequence is None else sequence.stat.version,
    )


async def _read_states(store: MetadataStore, topic: TopicAssignment) -> dict[int, tuple[PartitionState, int]]:
    paths = [PartitionState.path_of(topic.topic, index) for index in range(len(topic.partitions))]
    nodes = await store.get_many(paths)
    return {
        index: (PartitionState.decode(path, node.data), node.stat.version)
        for index, (path, node) in enumerate(zip(paths, nodes, strict=True))
        if node is not None
    }


async def _deleted_ids(store: MetadataStore) -> list[UUID]:
    ids = []
    for name in await _children(store, DELETED_TOPICS):
        try:
            ids.append(parse_uuid(name))
        except ValueError:  # brokers report it
            continue
    return ids


async def _children(store: MetadataStore, path: str) -> list[str]:
    """None of a node that is not there."""
    try:
        return await store.children(path)
    except NoNode:
        return []
