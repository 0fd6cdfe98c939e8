"""Replicas of broker processes on a real ZooKeeper: leaders, followers and controllers that are killed, halted, wiped.

Each test has a topic of its own on the one cluster of this module, with three replicas of which two must be in sync. An
idempotent producer writes to it with acks=all, and a group reads it, while things fail. Afterwards all that was acked
was consumed, once and in order, and the files of all replicas are equal. `BARNABAS_LONG_TESTS=1` adds many faults at
random under one load.
"""

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from tests.support.acked_records import GroupReading, Writing, check_records
from tests.support.cluster_processes import BrokerOfCluster, ClusterProcesses
from tests.support.replica_files import check_replicas

pytestmark = pytest.mark.slow

IS_LONG = "BARNABAS_LONG_TESTS" in os.environ
RANDOM_FAULTS = 30
REPLICAS = 3
PARTITIONS = 3
SETTINGS = {
    "offsets.topic.replication.factor": str(REPLICAS),
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture(scope="module")
def processes(
    zookeeper_server: ZooKeeperServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcesses]:
    directory, chroot = tmp_path_factory.mktemp("cluster"), f"{zookeeper_server.connect}/replication-faults"
    with ClusterProcesses(directory, chroot, REPLICAS, SETTINGS) as cluster:
        yield cluster


@dataclass(frozen=True)
class Load:
    """A topic of the cluster, its producer and its group."""

    cluster: ClusterProcesses
    topic: str
    writing: Writing
    reading: GroupReading

    def leader(self, partition: int = 0) -> BrokerOfCluster:
        return self.cluster[self.cluster.agreed().partitions[self.topic, partition].leader]

    def wait_for_more(self) -> None:
        """Both go on, in all partitions."""
        self.writing.wait_for_more()
        self.reading.wait_for_more()

    def bring_back(self) -> None:
        """Every broker runs, every replica is in sync, and the load goes on."""
        self.cluster.start()
        self.cluster.whole(self.topic)
        self.wait_for_more()


@pytest.fixture
def load(processes: ClusterProcesses, request: pytest.FixtureRequest) -> Iterator[Load]:
    """When the test is over, the load stops, and what it left is checked."""
    processes.start()
    topic = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
    processes.create_topic(topic, PARTITIONS, REPLICAS)
    processes.whole(topic)
    bootstrap = processes.bootstrap
    with GroupReading(bootstrap, topic, f"readers-of-{topic}") as reading:
        with Writing(bootstrap, topic, PARTITIONS) as writing:
            running = Load(processes, topic, writing, reading)
            running.wait_for_more()
            yield running
        reading.wait_for_all(writing.acked)
    check(running)


def check(load: Load) -> None:
    acked = {index: [values[offset] for offset in sorted(values)] for index, values in load.writing.acked.items()}
    assert load.reading.consumed == acked, "consumed is what was acked, once and in order"
    assert load.reading.rebalances == 1, "the group did not notice"
    check_records(load.cluster.bootstrap, load.topic, load.writing.acked)
    check_replicas(load.cluster.bootstrap, load.topic, PARTITIONS, [broker.data_directory for broker in load.cluster])


def kill(broker: BrokerOfCluster) -> None:
    """And end its session, as a supervisor does."""
    broker.kill()
    retired = broker.retire()
    assert retired.returncode == 0, retired.stderr


def test_killed_leader_has_a_successor(load: Load) -> None:
    leader = next(one for one in map(load.leader, range(PARTITIONS)) if one is not load.cluster.controller)

    kill(leader)

    load.wait_for_more()
    assert leader.id not in {one.leader for one in load.cluster.agreed(2).partitions.values()}
    load.bring_back()


def test_killed_controller_that_leads_has_a_successor_for_both(load: Load) -> None:
    controller = load.cluster.controller
    assert load.cluster.agreed().led_by(controller, load.topic)

    kill(controller)

    load.wait_for_more()
    view = load.cluster.agreed(2)
    assert view.controller_id != controller.id
    assert view.offline == []
    load.bring_back()


def test_killed_follower_leaves_and_comes_back(load: Load) -> None:
    leader = load.leader()
    follower = load.cluster.another(leader, load.cluster.controller)

    kill(follower)

    load.wait_for_more()
    view = load.cluster.agreed(2)
    assert view.partitions[load.topic, 0].leader == leader.id
    assert all(follower.id not in one.in_sync for (name, _), one in view.partitions.items() if name == load.topic)
    load.bring_back()


def test_halted_leader_is_deposed_and_follows_when_it_goes_on(load: Load) -> None:
    """Nobody closes its connections, and clients wait for it: its session ends by its timeout."""
    leader = load.leader()

    leader.pause()

    load.wait_for_more()
    assert load.leader() is not leader
    leader.resume()
    load.bring_back()


def test_wiped_follower_fetches_everything_again(load: Load) -> None:
    follower = load.cluster.another(load.leader(), load.cluster.controller)
    kill(follower)
    load.wait_for_more()

    shutil.rmtree(follower.data_directory)
    load.bring_back()


def test_leader_that_was_wiped_does_not_lead_what_it_lost(load: Load) -> None:
    leader = load.leader()
    kill(leader)
    shutil.rmtree(leader.data_directory)
    load.bring_back()

    kill(load.leader())

    load.wait_for_more()
    load.bring_back()


@pytest.mark.skipif(not IS_LONG, reason="set BARNABAS_LONG_TESTS=1 to run it")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_many_faults_one_after_the_other(load: Load, seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(RANDOM_FAULTS):
        broker = chosen.choice(list(load.cluster))
        match chosen.choice(("kill", "kill and wait for the session", "halt", "stop", "wipe")):
            case "kill":
                kill(broker)
            case "kill and wait for the session":
                broker.kill()
            case "halt":
                broker.pause()
            case "stop":
                broker.stop()
            case "wipe":
                kill(broker)
                shutil.rmtree(broker.data_directory)
        load.writing.wait_for_more()
        load.bring_back()
