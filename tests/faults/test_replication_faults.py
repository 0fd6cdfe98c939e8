"""Replicas of broker processes on a real ZooKeeper: brokers that are killed, halted, wiped, stopped, added.

Each test has a topic of its own on the one cluster of this module, with three replicas of which two must be in sync,
under the load of `tests.support.replicated_load`, which ends with a check of all records and replicas.
`BARNABAS_LONG_TESTS=1` adds many faults at random under one load. Faults of disks and networks are in
test_replication_full_disk.py and test_replication_cut_links.py, those of ZooKeeper in
test_replication_zookeeper_faults.py.
"""

import os
import random
import shutil
from collections.abc import Iterator

import pytest

from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from tests.support.cluster_processes import ClusterProcesses
from tests.support.replicated_load import PARTITIONS, REPLICAS, REPLICATED, Load, kill, loaded

pytestmark = pytest.mark.slow

IS_LONG = "BARNABAS_LONG_TESTS" in os.environ
RANDOM_FAULTS = 30


@pytest.fixture(scope="module")
def processes(
    zookeeper_server: ZooKeeperServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcesses]:
    directory, chroot = tmp_path_factory.mktemp("cluster"), f"{zookeeper_server.connect}/replication-faults"
    with ClusterProcesses(directory, chroot, REPLICAS, REPLICATED) as cluster:
        yield cluster


@pytest.fixture
def load(processes: ClusterProcesses, request: pytest.FixtureRequest) -> Iterator[Load]:
    processes.start()
    with loaded(processes, topic_of(request)) as running:
        yield running


def topic_of(request: pytest.FixtureRequest) -> str:
    """Every test has its own."""
    name: str = request.node.name
    return name.removeprefix("test_").replace("[", "-").rstrip("]")


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


def test_halted_follower_leaves_and_comes_back(load: Load) -> None:
    leader = load.leader()
    follower = load.cluster.another(leader, load.cluster.controller)
    follower.pause()

    load.wait_until_left(follower)

    assert load.leader() is leader
    load.wait_for_more()
    follower.resume()
    load.bring_back()


def test_halted_controller_that_leads_nothing_is_deposed(
    processes: ClusterProcesses, request: pytest.FixtureRequest
) -> None:
    processes.start()
    controller = processes.controller
    others = [broker.id for broker in processes if broker is not controller]
    placed_on = [(*others, controller.id), (*reversed(others), controller.id)]
    with loaded(processes, topic_of(request), placed_on) as load:
        before = load.cluster.agreed()
        controller.pause()

        load.wait_until_left(controller)

        view = load.cluster.agreed(2)
        assert view.controller_id in others
        for index in range(len(placed_on)):
            place = (load.topic, index)
            assert view.partitions[place].leader == before.partitions[place].leader
        load.wait_for_more()
        controller.resume()
        load.bring_back()


def test_all_brokers_are_restarted_one_after_the_other(load: Load) -> None:
    """As for an upgrade: each hands over what it leads, stops in order, and comes back."""
    for broker in load.cluster:
        broker.stop()
        assert load.cluster.agreed(2).offline == []
        load.wait_for_more()
        load.bring_back()


def test_fourth_broker_joins_and_leads_in_place_of_a_killed_one(
    processes: ClusterProcesses, request: pytest.FixtureRequest
) -> None:
    processes.start()
    processes.agreed()
    with processes.one_more("broker-4", {"node.id": "4"}) as fourth:
        assert processes.agreed(4).brokers[4] == fourth.bootstrap
        with loaded(processes, topic_of(request), [(1, 4, 2, 3), (4, 2, 3, 1), (2, 3, 1, 4)], replicas=4) as load:
            assert load.leader(1) is fourth
            kill(processes[1])

            load.wait_for_more()

            assert load.leader(0) is fourth
            load.bring_back()
        fourth.stop()
    assert processes.agreed(3).offline == []


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
