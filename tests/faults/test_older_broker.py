"""A broker of an older version in a cluster, under load: it joins, is the controller, and comes back as a new one.

What it does not know of an image, it does not tell: that nothing is missing afterwards is tested beside the controller
(`tests/unit/controller`). Here all brokers must say the same to clients, and serve it.
"""

from pathlib import Path

import pytest

from barnabas.cli.zookeeper.zookeeper_servers import ZooKeeperServers
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.support.acked_records import Writing, check_records
from tests.support.cluster_processes import OLDER_PROGRAM, PROGRAM, BrokerOfCluster, ClusterProcesses
from tests.support.kafka import wait_until
from tests.unit.testing.cluster_requests import TOPIC_RESOURCE, ask, delete, grow, set_config

pytestmark = pytest.mark.slow

PARTITIONS = 12


def retention_ms(broker: BrokerOfCluster, topic: str) -> str | None:
    """As this broker says."""
    wanted = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    values = {"resources": [wanted], "include_synonyms": False, "include_documentation": False}
    [result] = ask(broker, ApiKey.DESCRIBE_CONFIGS, values).results
    return next((one.value for one in result.configs), None)


def change_everything(cluster: ClusterProcesses, name: str, by: BrokerOfCluster) -> None:
    """A topic is created, grown and configured, another one deleted: each of these reaches every broker."""
    cluster.create_topic(name, 3, by=by)
    assert grow(by, name, 6) is ErrorCode.NONE
    assert set_config(by, name, "retention.ms", "1234567") is ErrorCode.NONE
    cluster.create_topic(f"{name}-gone", 3, by=by)
    assert delete(by, f"{name}-gone") is ErrorCode.NONE
    view = cluster.agreed(3)
    assert [index for topic, index in view.partitions if topic == name] == list(range(6))
    assert f"{name}-gone" not in view.topic_ids
    wait_until(lambda: {retention_ms(one, name) for one in cluster} == {"1234567"}, "all brokers know the config")


def restart_as(broker: BrokerOfCluster, program: tuple[str, ...]) -> None:
    broker.stop()
    broker.program = program
    broker.start()


def test_older_broker_joins_is_the_controller_and_comes_back_as_a_new_one(
    zookeeper_server: ZooKeeperServers, tmp_path: Path
) -> None:
    with ClusterProcesses(tmp_path, f"{zookeeper_server.connect}/older-broker") as cluster:
        cluster.create_topic("orders", PARTITIONS)
        cluster.agreed(3)
        with Writing(cluster.bootstrap, "orders", PARTITIONS) as writing:
            writing.wait_for_more()
            older = cluster.another(cluster.controller)
            newer = [broker for broker in cluster if broker is not older]
            restart_as(older, OLDER_PROGRAM)
            change_everything(cluster, "joined", by=older)

            for broker in newer:
                broker.stop()
            assert cluster.controller is older
            for broker in newer:
                broker.start()
            change_everything(cluster, "controlled", by=newer[0])
            restart_as(newer[1], PROGRAM)  # it has the image by the older version alone
            assert cluster.controller is older
            writing.wait_for_more()

            restart_as(older, PROGRAM)
            assert cluster.controller in newer
            change_everything(cluster, "back", by=older)
            writing.wait_for_more()
        check_records(cluster.bootstrap, "orders", writing.acked)
