"""Broker processes of one cluster, on a real ZooKeeper: killed, halted, expired, retired, moved, doubled.

Each test has a topic of its own on the one cluster of this module, writes to it all the time, and begins with all
brokers running. Afterwards all brokers agree, and everything that was acked is there.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from barnabas.wire.errors import ErrorCode
from tests.support.acked_records import Writing, check_records, read_records
from tests.support.cluster_processes import BrokerOfCluster, ClusterProcesses, View
from tests.support.kafka import wait_until
from tests.unit.testing.cluster_requests import create, delete, grow

pytestmark = pytest.mark.slow

PARTITIONS = 6


@pytest.fixture(scope="module")
def processes(
    zookeeper_server: ZooKeeperServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), f"{zookeeper_server.connect}/cluster-faults") as cluster:
        yield cluster


@pytest.fixture
def cluster(processes: ClusterProcesses) -> ClusterProcesses:
    processes.start()
    processes.agreed(3)
    return processes


@pytest.fixture
def topic(cluster: ClusterProcesses, request: pytest.FixtureRequest) -> str:
    """Led by all brokers, and written to during the test."""
    name = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
    cluster.create_topic(name, PARTITIONS)
    view = cluster.agreed(3)
    assert all(view.led_by(broker, name) for broker in cluster)
    return name


@pytest.fixture
def writing(cluster: ClusterProcesses, topic: str) -> Iterator[Writing]:
    with Writing(cluster.bootstrap, topic, PARTITIONS) as one:
        one.wait_for_more()
        yield one


def check_whole(cluster: ClusterProcesses, topic: str, writing: Writing) -> View:
    """All brokers are back, and the producer never noticed more than a delay."""
    view = cluster.agreed(3)
    assert view.offline == []
    writing.wait_for_more()
    check_records(cluster.bootstrap, topic, writing.acked)
    return view


# The controller dies


def test_killed_controller_has_a_successor_when_its_session_ends(
    cluster: ClusterProcesses, topic: str, writing: Writing
) -> None:
    old = cluster.controller
    old.kill()

    cluster.create_topic(f"{topic}-made", by=cluster.another(old))

    view = cluster.agreed(2)
    assert {index for _, index in view.offline} >= set(view.hosted_by(old, topic))
    writing.wait_for_more(index for index in range(PARTITIONS) if index not in view.hosted_by(old, topic))
    old.start()
    assert check_whole(cluster, topic, writing).controller_id == view.controller_id


def test_retired_controller_has_a_successor_at_once(cluster: ClusterProcesses, topic: str, writing: Writing) -> None:
    old = cluster.controller
    before = cluster.agreed(3)
    refused = old.retire()
    assert refused.returncode == 1
    assert "is in use by another process" in refused.stderr

    old.kill()
    retired = old.retire()

    assert (retired.returncode, retired.stdout) == (0, f"ended the session of the broker in {old.data_directory}\n")
    cluster.create_topic(f"{topic}-made", by=cluster.another(old))
    after = cluster.agreed(2)
    assert before.led_by(old, topic) == after.hosted_by(old, topic) != []
    for index in after.hosted_by(old, topic):
        one = after.partitions[topic, index]
        assert (one.leader, one.error) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert old.retire().stdout == f"the broker in {old.data_directory} has no session\n"

    old.start()
    assert check_whole(cluster, topic, writing).led_by(old, topic) == before.led_by(old, topic)


def test_halted_controller_is_deposed_and_follows_when_it_goes_on(
    cluster: ClusterProcesses, topic: str, writing: Writing
) -> None:
    old = cluster.controller
    before = cluster.agreed(3)
    old.pause()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(create, old, f"{topic}-made", 2)  # it will find it when it goes on, as the controller

        cluster.create_topic(f"{topic}-made", 5, by=cluster.another())
        meanwhile = cluster.agreed(2)
        assert meanwhile.controller_id != old.id
        assert set(meanwhile.hosted_by(old, topic)) == set(before.led_by(old, topic))

        old.resume()
        assert waiting.result() in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER)
    after = check_whole(cluster, topic, writing)
    assert after.controller_id == meanwhile.controller_id
    assert after.led_by(old, topic) == before.led_by(old, topic)
    assert sum(name == f"{topic}-made" for name, _ in after.partitions) == 5
    for index in before.led_by(old, topic):
        assert after.partitions[topic, index].leader_epoch > before.partitions[topic, index].leader_epoch


def test_broker_starts_while_the_controller_is_halted(cluster: ClusterProcesses, topic: str, writing: Writing) -> None:
    old = cluster.controller
    starting = cluster.another(old)
    starting.stop()
    old.pause()

    starting.start()

    view = cluster.agreed(2)
    assert view.controller_id != old.id
    assert view.led_by(starting, topic) != []
    old.resume()
    check_whole(cluster, topic, writing)


# Sessions


@pytest.mark.parametrize("who", ["controller", "follower"])
def test_expired_session(cluster: ClusterProcesses, topic: str, writing: Writing, who: str) -> None:
    broker = cluster.controller if who == "controller" else cluster.another(cluster.controller)
    before, key, said_before = cluster.agreed(3), broker.session_key, len(broker.said)

    broker.expire_session()

    wait_until(lambda: "registered again, with a new session" in broker.said[said_before:], "another session")
    after = check_whole(cluster, topic, writing)
    assert broker.session_key != key
    assert after.led_by(broker, topic) == before.led_by(broker, topic)
    for index in after.led_by(broker, topic):
        assert after.partitions[topic, index].leader_epoch > before.partitions[topic, index].leader_epoch
    if who == "follower":
        assert after.controller_id == before.controller_id
    cluster.create_topic(f"{topic}-made", by=broker)
    cluster.agreed(3)


def test_all_sessions_expire_together(cluster: ClusterProcesses, topic: str, writing: Writing) -> None:
    keys = [broker.session_key for broker in cluster]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(BrokerOfCluster.expire_session, cluster))

    for broker, key in zip(cluster, keys, strict=True):
        wait_until(lambda broker=broker, key=key: broker.session_key != key, "another session")  # type: ignore[misc]
    check_whole(cluster, topic, writing)


# Addresses and ids


def test_broker_restarts_on_another_port(cluster: ClusterProcesses, topic: str, writing: Writing) -> None:
    """One that follows, then the controller: clients and brokers find both."""
    for broker in (cluster.another(cluster.controller), cluster.controller):
        port = broker.bootstrap
        broker.kill()
        broker.bootstrap = "127.0.0.1:0"
        broker.start()
        assert broker.bootstrap != port
        assert check_whole(cluster, topic, writing).brokers[broker.id] == broker.bootstrap
        cluster.create_topic(f"{topic}-{broker.id}", by=broker)


def test_second_broker_with_an_id_is_refused(cluster: ClusterProcesses, topic: str, writing: Writing) -> None:
    before = cluster.agreed(3)
    second = cluster.broker("second", {"node.id": "2"})
    second.begin()
    try:
        assert second.wait_ended() == 1
    finally:
        second.end()

    refusal = "barnabas: broker id 2 is in use by another broker; give each broker its own node.id"
    assert second.said.splitlines()[-1] == refusal
    assert logs_of(second.data_directory, "") == []
    assert check_whole(cluster, topic, writing) == before


def test_second_process_on_one_directory_is_refused_and_leaves_the_key_of_the_session(
    cluster: ClusterProcesses,
) -> None:
    before, key = cluster.agreed(3), cluster[2].session_key
    second = cluster.broker("second-process", {"node.id": "2"})
    second.data_directory = cluster[2].data_directory
    second.begin()
    try:
        assert second.wait_ended() == 1
    finally:
        second.end()

    assert f"{second.data_directory} is in use by another process" in second.said
    assert cluster[2].session_key == key
    assert cluster.agreed(3) == before


# Topics


def test_topic_deleted_and_created_again_while_a_broker_is_down(cluster: ClusterProcesses) -> None:
    name = "created-again"
    cluster.create_topic(name, PARTITIONS)
    with Writing(cluster.bootstrap, name, PARTITIONS) as writing:
        writing.wait_for_more()
    before = cluster.agreed(3)
    down = cluster.another(cluster.controller)
    had = before.led_by(down, name)
    down.kill()
    down.retire()
    cluster.agreed(2)
    asked = cluster.another()

    assert delete(asked, name) is ErrorCode.NONE
    cluster.create_topic(name, 1, by=asked)
    meanwhile = cluster.agreed(2)
    assert meanwhile.topic_ids[name] != before.topic_ids[name]
    assert meanwhile.hosted_by(down, name) == []

    down.start()
    assert cluster.agreed(3).topic_ids[name] == meanwhile.topic_ids[name]
    wait_until(lambda: logs_of(down.data_directory, name) == [], "the old logs to be removed")
    assert grow(asked, name, PARTITIONS, [down.id] * (PARTITIONS - 1)) is ErrorCode.NONE
    assert set(cluster.agreed(3).led_by(down, name)) & set(had), "of the old name, and without the old records"
    assert read_records(cluster.bootstrap, name, range(PARTITIONS)) == {index: {} for index in range(PARTITIONS)}
    with Writing(cluster.bootstrap, name, PARTITIONS) as writing:
        writing.wait_for_more()
        check_whole(cluster, name, writing)
        down.kill()
        down.start()
        check_whole(cluster, name, writing)


def logs_of(directory: Path, topic: str) -> list[str]:
    return [path.name for path in directory.glob(f"{topic}*-*")]
