"""What a report of replicas in a failed log directory does: who takes it, and what all brokers say afterwards.

How a disk comes to fail is in the scenarios, `tests/sim/scenarios/cluster_failed_directory_*.txt`.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.testing import Cluster, ClusterBroker
from barnabas.wire.apis import ApiKey
from barnabas.wire.errors import ErrorCode
from tests.unit.testing.cluster_requests import another, ask, create, image_of, metadata, partition_in, served

TOPIC = "orders"
NOBODY = -1


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as one:
        assert create(one[1], TOPIC, 1, 3) is ErrorCode.NONE
        one.wait_until_ready()
        yield one


def report(cluster: Cluster, broker: ClusterBroker, topic: str = TOPIC) -> dict[str, Any]:
    known = image_of(broker)
    return {
        "broker_id": broker.id,
        "broker_epoch": known.brokers[broker.id].epoch,
        "topics": [{"topic_id": known.topics[topic].id, "partitions": [0, 7]}],
    }


def tell(to: ClusterBroker, values: dict[str, Any]) -> ErrorCode:
    return ErrorCode(ask(to, ApiKey.REPORT_OFFLINE_REPLICAS, values).error_code)


def wait_in_sync(cluster: Cluster, *brokers: int) -> None:
    async def is_so() -> None:
        for one in cluster:
            history = served(one).running.cluster.history
            await history.wait_for(lambda image: set(image.topics[TOPIC].partitions[0].isr) == set(brokers))

    cluster.home.run(asyncio.wait_for(is_so(), 120))


def test_controller_alone_takes_a_report_of_this_registration(cluster: Cluster) -> None:
    broker = another(cluster, cluster.controller)
    values, before = report(cluster, broker), partition_in(cluster.controller, TOPIC)
    assert tell(broker, values) is ErrorCode.NOT_CONTROLLER
    stale = {**values, "broker_epoch": values["broker_epoch"] - 1}
    assert tell(cluster.controller, stale) is ErrorCode.STALE_BROKER_EPOCH
    assert partition_in(cluster.controller, TOPIC) == before
    assert tell(cluster.controller, values) is ErrorCode.NONE
    after = partition_in(cluster.controller, TOPIC)
    assert after.offline == (broker.id,)
    assert tell(cluster.controller, values) is ErrorCode.NONE
    assert partition_in(cluster.controller, TOPIC) == after, "it was known"


def test_reported_leader_is_followed_by_another_and_clients_are_told_it_is_offline(cluster: Cluster) -> None:
    first = partition_in(cluster.controller, TOPIC).leader
    leader, others = cluster[first], {one.id for one in cluster} - {first}
    assert tell(cluster.controller, report(cluster, leader)) is ErrorCode.NONE
    wait_in_sync(cluster, *others)
    for one in cluster:
        [told] = metadata(one, TOPIC).topics[0].partitions
        assert told.leader_id in others
        assert told.offline_replicas == (leader.id,)


def test_broker_that_registers_again_joins_again(cluster: Cluster) -> None:
    broker = another(cluster, cluster.controller)
    assert tell(cluster.controller, report(cluster, broker)) is ErrorCode.NONE
    wait_in_sync(cluster, *({one.id for one in cluster} - {broker.id}))
    broker.expire_session()
    wait_in_sync(cluster, 1, 2, 3)
    assert partition_in(cluster.controller, TOPIC).offline == ()


def test_only_replica_that_is_reported_leads_nothing(cluster: Cluster) -> None:
    assert create(cluster[1], "single", 1, 1) is ErrorCode.NONE
    cluster.wait_until_ready()
    broker = cluster[partition_in(cluster.controller, "single").leader]
    assert tell(cluster.controller, report(cluster, broker, "single")) is ErrorCode.NONE
    assert partition_in(cluster.controller, "single").leader == NOBODY
    [told] = metadata(cluster.controller, "single").topics[0].partitions
    assert ErrorCode(told.error_code) is ErrorCode.LEADER_NOT_AVAILABLE
    broker.expire_session()
    cluster.wait_until_ready()
    assert partition_in(cluster.controller, "single").leader == broker.id
