"""Brokers that do not reach each other, while clients and ZooKeeper reach all of them: real links, cut for real."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.zookeeper.zookeeper_jars import ZooKeeperProgram
from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from tests.support.acked_records import PATIENCE_SECONDS
from tests.support.cluster_processes import PROGRAM, ClusterProcesses
from tests.support.kafka import wait_until
from tests.support.linked_brokers import HOST, LinkedBrokers, linked_brokers
from tests.support.replicated_load import REPLICAS, REPLICATED, Load, loaded

pytestmark = pytest.mark.slow


@pytest.fixture
def links() -> Iterator[LinkedBrokers]:
    with linked_brokers(REPLICAS) as made:
        yield made


@pytest.fixture
def load(links: LinkedBrokers, zookeeper_program: ZooKeeperProgram, tmp_path: Path) -> Iterator[Load]:
    """Broker N leads partition N - 1."""
    settings = {**REPLICATED, "replica.lag.time.max.ms": "4000"}
    with ZooKeeperServers(zookeeper_program, tmp_path / "zookeeper", host=HOST) as servers:
        cluster = ClusterProcesses(tmp_path, f"{servers.connect}/links", REPLICAS, settings)
        for number, broker in enumerate(cluster, 1):
            broker.program = (*links.inside(number), *PROGRAM)
            broker.bootstrap = f"{links.address(number)}:0"
        with cluster, loaded(cluster, "orders", [(1, 2, 3), (2, 3, 1), (3, 1, 2)]) as running:
            yield running


def test_cut_link_puts_followers_out_of_sync_while_writes_go_on(load: Load, links: LinkedBrokers) -> None:
    """Between two followers of the controller, and so that each leads what the other follows."""
    controller = load.cluster.controller.id
    one, another = (broker.id for broker in load.cluster if broker.id != controller)
    before = load.cluster.agreed()
    expected = {
        index: {place.leader, controller} if place.leader in (one, another) else set(place.replicas)
        for (topic, index), place in before.partitions.items()
        if topic == load.topic
    }

    with links.cut(one, another):
        wait_until(
            lambda: {index: set(ids) for index, ids in load.in_sync().items()} == expected,
            f"{expected}; it is {load.in_sync()}",
            PATIENCE_SECONDS,
        )
        load.wait_for_more()
        after = load.cluster.agreed()
        for place, partition in after.partitions.items():
            assert partition.leader == before.partitions[place].leader

    load.bring_back()


def test_cut_link_between_the_controller_and_a_follower_heals(load: Load, links: LinkedBrokers) -> None:
    """The follower lives, for ZooKeeper; it hears of nothing that the controller changes."""
    controller = load.cluster.controller
    follower, third = (broker for broker in load.cluster if broker is not controller)

    with links.cut(controller.id, follower.id):
        led = controller.id - 1
        wait_until(lambda: follower.id not in load.in_sync(third)[led], "the follower to leave", PATIENCE_SECONDS)
        load.writing.wait_for_more([led, third.id - 1])

    load.bring_back()
