"""Brokers of a real ZooKeeper that are killed, and whose sessions nobody but the other brokers ends.

The session timeout is a minute, and each wait here ends long before: what happens is no time-out.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from barnabas.metadata.errors import AccessDenied
from barnabas.metadata.session_keys import decode_session_key, session_key_path
from barnabas.metadata.store import Node
from barnabas.metadata.zookeeper.zookeeper_options import SESSION_KEYS, ZooKeeperOptions
from barnabas.metadata.zookeeper.zookeeper_store import ZooKeeperStore
from tests.support.cluster_processes import BrokerOfCluster, ClusterProcesses
from tests.support.kafka import wait_until

pytestmark = pytest.mark.slow

SESSION_SECONDS = 60
PATIENCE_SECONDS = 40
"""Below the session timeout: a session that ends within it was ended."""
IDENTITY = "brokers:s3cret"
TOPIC = "orders"
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_SECONDS * 1000),
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
    # A leader that is halted must not lose its followers here.
    "replica.lag.time.max.ms": "120000",
}


@pytest.fixture
def options(zookeeper: ZooKeeperOptions) -> ZooKeeperOptions:
    return replace(zookeeper, identity=IDENTITY)


@pytest.fixture
def cluster(options: ZooKeeperOptions, tmp_path: Path) -> Iterator[ClusterProcesses]:
    settings = {**SETTINGS, "zookeeper.digest.identity": IDENTITY}
    with ClusterProcesses(tmp_path, f"{options.hosts}{options.chroot}", 3, settings) as processes:
        processes.create_topic(TOPIC, 6, 3)
        processes.whole(TOPIC)
        yield processes


def read(options: ZooKeeperOptions, path: str) -> Node | None:
    async def main() -> Node | None:
        store = await ZooKeeperStore.open(options)
        try:
            return (await store.get_many([path]))[0]
        finally:
            await store.close()

    return asyncio.run(main())


def names(options: ZooKeeperOptions, path: str) -> list[str]:
    async def main() -> list[str]:
        store = await ZooKeeperStore.open(options)
        try:
            return [] if await store.exists(path) is None else await store.children(path)
        finally:
            await store.close()

    return asyncio.run(main())


def wait_for_death_of(broker: BrokerOfCluster, options: ZooKeeperOptions) -> None:
    """Until its registration is gone, with the broker killed: well before its session would time out."""
    path = f"/brokers/ids/{broker.id}"
    wait_until(lambda: read(options, path) is None, f"the end of {path}", PATIENCE_SECONDS, 0.1)


def test_killed_brokers_are_replaced_long_before_their_sessions_time_out(
    cluster: ClusterProcesses, options: ZooKeeperOptions
) -> None:
    leader = cluster.another(cluster.controller)
    assert cluster.agreed().led_by(leader, TOPIC)
    leader.kill()
    wait_for_death_of(leader, options)
    view = cluster.agreed(2)
    assert view.offline == []
    assert not view.led_by(leader, TOPIC)
    assert any("its session was ended" in broker.said for broker in cluster.awake)

    cluster.start()
    cluster.whole(TOPIC)
    controller = cluster.controller
    controller.kill()
    wait_for_death_of(controller, options)
    view = cluster.agreed(2)
    assert view.controller_id != controller.id
    assert view.offline == []
    cluster.start()
    cluster.whole(TOPIC)


def test_brokers_that_stop_in_order_are_not_taken_for_dead(
    cluster: ClusterProcesses, options: ZooKeeperOptions
) -> None:
    for broker in (cluster.another(cluster.controller), cluster.controller):
        broker.stop()
        cluster.agreed(2)
        cluster.start()
        cluster.whole(TOPIC)

    assert all("dead" not in broker.log_file.read_text() for broker in cluster)


def test_halted_brokers_keep_their_sessions(cluster: ClusterProcesses, options: ZooKeeperOptions) -> None:
    """The others are cut off from it, and can connect: only what refuses connections is dead."""
    halted, victim = cluster.controller, cluster.another(cluster.controller)
    before = read(options, f"/brokers/ids/{halted.id}")
    halted.pause()
    victim.kill()
    victim.begin()  # it cannot follow a controller that does not answer, and asks it again and again
    halted.resume()
    victim.wait_ready()
    cluster.whole(TOPIC)

    after = read(options, f"/brokers/ids/{halted.id}")
    assert before is not None
    assert after is not None
    assert after.stat.czxid == before.stat.czxid


def test_keys_are_for_brokers_alone_and_go_with_the_session(
    cluster: ClusterProcesses, options: ZooKeeperOptions
) -> None:
    stranger = replace(options, identity="stranger:s3cret")
    for broker in cluster:
        path = session_key_path(broker.id)
        with pytest.raises(AccessDenied):
            read(stranger, path)
        with pytest.raises(AccessDenied):
            read(replace(options, identity=None), path)
        registration, left = read(options, f"/brokers/ids/{broker.id}"), read(options, path)
        assert registration is not None
        assert left is not None
        assert decode_session_key(path, left.data) == broker.session_key
        assert left.stat.czxid == registration.stat.czxid

    cluster.another(cluster.controller).stop()
    assert len(names(options, SESSION_KEYS)) == 2


@pytest.mark.parametrize(
    ("settings", "is_said"),
    [({}, True), ({"zookeeper.digest.identity": IDENTITY, "broker.suspicion.enable": "false"}, False)],
    ids=["without an identity", "switched off"],
)
def test_no_key_is_left_where_nobody_is_to_be_suspected(
    zookeeper_server: ZooKeeperServers,
    zookeeper: ZooKeeperOptions,
    tmp_path: Path,
    settings: dict[str, str],
    is_said: bool,
) -> None:
    with ClusterProcesses(tmp_path, f"{zookeeper.hosts}{zookeeper.chroot}", 1, settings) as cluster:
        assert names(zookeeper, SESSION_KEYS) == []
        assert ("without zookeeper.digest.identity" in cluster[1].said) == is_said
