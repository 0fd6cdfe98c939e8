"""A streaming query between two replicated topics, while the broker processes that it depends on are killed."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install barnabas[spark]")

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from barnabas.client.blocking import BlockingClient
from barnabas.client.group.group_offsets import committed_offsets
from tests.spark.topics import QUERY_SECONDS_MAX, stream
from tests.support.acked_records import Writing, read_records
from tests.support.cluster_processes import BrokerOfCluster, ClusterProcesses
from tests.support.kafka import wait_until
from tests.support.replica_files import check_replicas
from tests.support.replicated_load import PARTITIONS, REPLICAS, REPLICATED, kill

pytestmark = pytest.mark.slow

BATCHES_SECONDS_MAX = 600
"""Requests of the driver and of every worker to a halted broker run out of time, one after the other."""
IS_LONG = "BARNABAS_LONG_TESTS" in os.environ


@pytest.fixture(scope="module")
def cluster(zookeeper_server: ZooKeeperServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    directory, chroot = tmp_path_factory.mktemp("cluster"), f"{zookeeper_server.connect}/spark-failover"
    with ClusterProcesses(directory, chroot, REPLICAS, REPLICATED) as processes:
        yield processes


@dataclass(frozen=True)
class Copying:
    """A query from one topic to another, whose progress goes to a group."""

    query: StreamingQuery
    source: str
    target: str
    group: str


@contextmanager
def copying(
    spark: SparkSession, cluster: ClusterProcesses, directory: Path, name: str, *, may_fail_tasks: bool = False
) -> Iterator[Copying]:
    """While records are written to its source. Afterwards it has not failed, nor lost any of them, nor repeated any
    unless tasks failed, which Spark runs again."""
    source, target, group = f"{name}-measured", f"{name}-copied", f"{name}-copying"
    for topic in (source, target):
        cluster.create_topic(topic, PARTITIONS, REPLICAS)
        cluster.whole(topic)
    rows = stream(spark, cluster.bootstrap, source, startingOffsets="earliest", kafka__group__id=group)
    writer = rows.select("value", "partition").writeStream.format("barnabas")
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap).option("topic", target)
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    try:
        with Writing(cluster.bootstrap, source, PARTITIONS) as writing:
            wait_for_batches(query)
            yield Copying(query, source, target, group)
            writing.wait_for_more()
        query.processAllAvailable()
        assert (query.isActive, query.exception()) == (True, None)
        assert may_fail_tasks or failed_tasks(spark, query) == 0, "Spark would run them again, but none needs that"
    finally:
        query.stop()
    copied = read_records(cluster.bootstrap, target, range(PARTITIONS))
    for partition, values in writing.acked.items():
        found = [copied[partition][offset] for offset in sorted(copied[partition])]
        sent = [values[offset] for offset in sorted(values)]
        assert set(found) == set(sent), f"{target}-{partition}: every acked record"
        assert may_fail_tasks or found == sent, f"{target}-{partition}: once, and in order"
    check_replicas(cluster.bootstrap, target, PARTITIONS, [broker.data_directory for broker in cluster])
    assert committed(cluster, group) == {index: len(values) for index, values in writing.acked.items()}


def wait_for_batches(query: StreamingQuery) -> None:
    """Until it has finished a batch with rows that began after this call."""
    running = last_batch(query) + 1

    def is_done() -> bool:
        assert query.isActive, query.exception()
        last = query.lastProgress
        return last is not None and int(last["batchId"]) > running and bool(last["numInputRows"])

    wait_until(is_done, "the next batches", BATCHES_SECONDS_MAX)


def last_batch(query: StreamingQuery) -> int:
    last = query.lastProgress
    return -1 if last is None else int(last["batchId"])


def wait_for_running_batch(query: StreamingQuery) -> None:
    def is_running() -> bool:
        status = query.status
        return bool(status["isTriggerActive"] and status["isDataAvailable"])

    wait_until(is_running, "a batch that runs", QUERY_SECONDS_MAX)


def failed_tasks(spark: SparkSession, query: StreamingQuery) -> int:
    """Of the jobs of this query."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(str(query.runId))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    assert stages
    return sum(stage.numFailedTasks for stage in stages if stage is not None)


def outlives(
    copy: Copying, cluster: ClusterProcesses, fault: Callable[[BrokerOfCluster], None], broker: BrokerOfCluster
) -> None:
    """The query goes on with the two others, and then with all three."""
    wait_for_running_batch(copy.query)
    fault(broker)
    wait_for_batches(copy.query)
    cluster.start()
    for topic in (copy.source, copy.target):
        cluster.whole(topic)


def leader(cluster: ClusterProcesses, topic: str, partition: int = 0) -> BrokerOfCluster:
    return cluster[cluster.agreed().partitions[topic, partition].leader]


def coordinator(cluster: ClusterProcesses, group: str) -> BrokerOfCluster:
    with BlockingClient(cluster.bootstrap) as client:
        return cluster[client.wait_for(client.cluster.coordinators.find(group)).node_id]


def committed(cluster: ClusterProcesses, group: str) -> dict[int, int]:
    with BlockingClient(cluster.bootstrap) as client:
        found = client.wait_for(committed_offsets(client.cluster, group))
    return {place.partition: one.offset for place, one in found.items()}


def test_query_between_topics_outlives_killed_leaders_controllers_and_coordinators(
    spark: SparkSession, cluster: ClusterProcesses, tmp_path: Path
) -> None:
    with copying(spark, cluster, tmp_path, "killed") as copy:
        outlives(copy, cluster, kill, leader(cluster, copy.source))
        outlives(copy, cluster, kill, leader(cluster, copy.target))
        outlives(copy, cluster, kill, cluster.controller)
        outlives(copy, cluster, kill, coordinator(cluster, copy.group))


@pytest.mark.skipif(not IS_LONG, reason="set BARNABAS_LONG_TESTS=1 to run it")
@pytest.mark.timeout(1800)
def test_query_between_topics_outlives_halted_leaders(
    spark: SparkSession, cluster: ClusterProcesses, tmp_path: Path
) -> None:
    """Nobody closes their connections: requests to them end by their timeout.

    A new producer that looks its topic up at a halted broker fails its task after max.block.ms: Spark runs it again.
    """
    with copying(spark, cluster, tmp_path, "halted", may_fail_tasks=True) as copy:
        outlives(copy, cluster, BrokerOfCluster.pause, leader(cluster, copy.source))
        outlives(copy, cluster, BrokerOfCluster.pause, leader(cluster, copy.target))
