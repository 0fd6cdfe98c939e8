"""Broker processes whose ZooKeeper is killed and comes back: alone, with all brokers, or one of three servers.

Disconnected is not expired: while no server can say that a session is over, what was led is led on. Clients write, read
and commit all the time.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.acked_records import GroupReading, Writing, check_records
from tests.support.cluster_processes import RETRIABLE, SESSION_TIMEOUT_MS, BrokerOfCluster, ClusterProcesses
from tests.support.kafka import wait_until
from tests.unit.testing.cluster_requests import TOPIC_RESOURCE, ask, create, set_config

pytestmark = pytest.mark.slow

IS_LONG = "BARNABAS_LONG_TESTS" in os.environ
OUTAGE_SECONDS = 60.0 if IS_LONG else 2.2 * SESSION_TIMEOUT_MS / 1000
"""More than two timeouts of a session."""
PARTITIONS = 6
LOST = "the session with the metadata store is lost"


@pytest.fixture(scope="module")
def zookeeper_node(
    zookeeper_program: ZooKeeperProgram, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServers]:
    """A server that tests may kill."""
    with ZooKeeperServers(zookeeper_program, tmp_path_factory.mktemp("zookeeper")) as servers:
        yield servers


@pytest.fixture(scope="module")
def processes(zookeeper_node: ZooKeeperServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Brokers that are given no ids."""
    zookeeper = f"{zookeeper_node.connect}/faults"
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), zookeeper, has_ids=False) as cluster:
        yield cluster


@pytest.fixture
def cluster(zookeeper_node: ZooKeeperServers, processes: ClusterProcesses) -> ClusterProcesses:
    """With all that belongs to it, however the last test ended."""
    if not zookeeper_node.nodes[0].is_running:
        start_again(zookeeper_node)
    processes.start()
    processes.agreed(3)
    return processes


def start_again(servers: ZooKeeperServers) -> None:
    """On the same data and the same port."""
    [node] = servers.nodes
    node.start()
    wait_until(lambda: node.is_ready, "ZooKeeper")


def is_lost(cluster: ClusterProcesses) -> list[bool]:
    return [LOST in broker.said for broker in cluster]


def test_zookeeper_is_down_for_longer_than_sessions_last(
    cluster: ClusterProcesses, zookeeper_node: ZooKeeperServers
) -> None:
    topic, group = "outage", "outage-readers"
    cluster.create_topic(topic, PARTITIONS)
    with (
        Writing(cluster.bootstrap, topic, PARTITIONS) as writing,
        GroupReading(cluster.bootstrap, topic, group) as reading,
    ):
        reading.wait_for_more()
        before = cluster.agreed(3)
        zookeeper_node.nodes[0].kill()
        ends = time.monotonic() + OUTAGE_SECONDS
        refusals = [create(broker, "during-the-outage") for broker in cluster]
        while time.monotonic() < ends:
            writing.wait_for_more()
            reading.wait_for_more()
        assert is_lost(cluster) == [False] * 3
        assert [code for code in refusals if code not in RETRIABLE] == []
        assert cluster.agreed(3) == before
        with GroupReading(cluster.bootstrap, topic, "late-readers") as late:
            late.wait_for_more()

        start_again(zookeeper_node)
        for broker in cluster:
            cluster.create_topic(f"after-the-outage-{broker.id}", by=broker)
        cluster.create_topic("during-the-outage")
        assert cluster.agreed(3).offline == []
        writing.wait_for_more()
        reading.wait_for_more()
    assert reading.rebalances == 1
    check_records(cluster.bootstrap, topic, writing.acked)
    check_committed(cluster, topic, group, reading)


def check_committed(cluster: ClusterProcesses, topic: str, group: str, reading: GroupReading) -> None:
    """Nothing that was acknowledged is forgotten; the last commit may have been made without an answer."""
    assert set(reading.committed) == set(range(PARTITIONS))
    with closing(Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})) as consumer:
        places = consumer.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], timeout=60)
    offsets = {place.partition: place.offset for place in places}
    for partition, offset in reading.committed.items():
        assert offsets[partition] in (offset, offset + 1)


def test_all_brokers_and_zookeeper_are_killed_together(
    cluster: ClusterProcesses, zookeeper_node: ZooKeeperServers
) -> None:
    topic, group = "whole", "whole-readers"
    cluster.create_topic(topic, PARTITIONS)
    assert set_config(cluster.another(), topic, "retention.ms", "123456789") is ErrorCode.NONE
    before = cluster.agreed(3)
    assert sorted(before.brokers) == [1001, 1002, 1003]
    with (
        Writing(cluster.bootstrap, topic, PARTITIONS) as writing,
        GroupReading(cluster.bootstrap, topic, group) as reading,
    ):
        wait_until(lambda: len(reading.committed) == PARTITIONS, "a commit in every partition")
        reading.wait_for_more()
        for broker in cluster:
            os.kill(broker.pid, signal.SIGKILL)
        zookeeper_node.nodes[0].kill()
        for broker in cluster:
            broker.wait_ended()

        start_again(zookeeper_node)  # before the reader ends: a commit that is under way waits for its coordinator
        cluster.start()
        after = cluster.agreed(3)
        writing.wait_for_more()
    assert (after.cluster_id, after.brokers) == (before.cluster_id, before.brokers)
    assert after.topic_ids.items() >= before.topic_ids.items()
    for name, one in before.partitions.items():
        assert after.partitions[name].leader == one.leader
    assert [retention_of(broker, topic) for broker in cluster] == ["123456789"] * 3
    check_records(cluster.bootstrap, topic, writing.acked)
    check_committed(cluster, topic, group, reading)


def retention_of(broker: BrokerOfCluster, topic: str) -> str:
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    values = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    value: str = ask(broker, ApiKey.DESCRIBE_CONFIGS, values).results[0].configs[0].value
    return value


def test_ensemble_of_three_loses_its_leader(zookeeper_program: ZooKeeperProgram, tmp_path: Path) -> None:
    with (
        ZooKeeperServers(zookeeper_program, tmp_path / "zookeeper", 3) as servers,
        ClusterProcesses(tmp_path, f"{servers.connect}/faults", 2) as cluster,
    ):
        cluster.create_topic("orders", PARTITIONS)
        with Writing(cluster.bootstrap, "orders", PARTITIONS) as writing:
            writing.wait_for_more()
            [leader] = [node for node in servers.nodes if b"Mode: leader" in node.ask(b"srvr")]
            leader.kill()
            writing.wait_for_more()
            for broker in cluster:
                cluster.create_topic(f"made-{broker.id}", by=broker)
            assert cluster.agreed(2).offline == []
            writing.wait_for_more()
        check_records(cluster.bootstrap, "orders", writing.acked)
