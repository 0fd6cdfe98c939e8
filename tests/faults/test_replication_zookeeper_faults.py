"""Replicas under load whose ZooKeeper is killed, or has no quorum; then a leader dies, and the cluster acts again.

No server can say that a session is over meanwhile: leaders lead on, and followers fetch. `BARNABAS_LONG_TESTS=1` makes
the outage last for a minute.
"""

import os
import time
from collections.abc import Iterator, Sequence

import pytest

from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.cli.zookeeper.zookeeper_node import ZooKeeperNode
from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from tests.support.cluster_processes import ClusterProcesses
from tests.support.kafka import wait_until
from tests.support.replicated_load import REPLICAS, REPLICATED, Load, kill, loaded

pytestmark = pytest.mark.slow

SESSION_TIMEOUT_MS = 4000
OUTAGE_SECONDS = 60.0 if "BARNABAS_LONG_TESTS" in os.environ else 1.5 * SESSION_TIMEOUT_MS / 1000
"""Longer than sessions last."""


@pytest.fixture(scope="module")
def ensemble(
    zookeeper_program: ZooKeeperProgram, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServers]:
    """Three servers that tests may kill."""
    with ZooKeeperServers(zookeeper_program, tmp_path_factory.mktemp("zookeeper"), 3) as servers:
        yield servers


@pytest.fixture(scope="module")
def processes(ensemble: ZooKeeperServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {**REPLICATED, "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
    directory, chroot = tmp_path_factory.mktemp("cluster"), f"{ensemble.connect}/replication"
    with ClusterProcesses(directory, chroot, REPLICAS, settings) as cluster:
        yield cluster


def start_again(nodes: Sequence[ZooKeeperNode]) -> None:
    """On the same data and the same ports."""
    for node in nodes:
        node.start()
    wait_until(lambda: all(node.is_ready for node in nodes), "ZooKeeper")


@pytest.fixture
def cluster(ensemble: ZooKeeperServers, processes: ClusterProcesses) -> ClusterProcesses:
    """With all that belongs to it, however the last test ended."""
    start_again([node for node in ensemble.nodes if not node.is_running])
    processes.start()
    return processes


def check_outage(load: Load, killed: Sequence[ZooKeeperNode]) -> None:
    """Nobody loses anything while it lasts; afterwards a leader that dies has a successor."""
    before = load.cluster.agreed(REPLICAS)
    for node in killed:
        node.kill()
    ends = time.monotonic() + OUTAGE_SECONDS
    while time.monotonic() < ends:
        load.wait_for_more()
    assert load.cluster.agreed(REPLICAS) == before

    start_again(killed)
    kill(load.leader())

    load.wait_for_more()
    assert load.cluster.agreed(2).offline == []
    load.bring_back()


def test_replicas_outlive_zookeeper_that_is_killed(cluster: ClusterProcesses, ensemble: ZooKeeperServers) -> None:
    with loaded(cluster, "without-zookeeper") as load:
        check_outage(load, ensemble.nodes)


def test_replicas_outlive_zookeeper_without_a_quorum(cluster: ClusterProcesses, ensemble: ZooKeeperServers) -> None:
    with loaded(cluster, "without-quorum") as load:
        leading = [node for node in ensemble.nodes if b"Mode: leader" in node.ask(b"srvr")]
        following = [node for node in ensemble.nodes if node not in leading]

        check_outage(load, [*leading, following[0]])
