"""Whether a broker can be stopped without harm: the rules, and what brokers of a cluster say of themselves."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.broker.readiness import Harm, Readiness, harm_to, readiness_of
from barnabas.metadata.image import ClusterImage, Partition, RegisteredBroker, Topic, TopicChanged
from barnabas.testing import Cluster, ClusterBroker
from tests.support.network import run
from tests.unit.testing.cluster_requests import served

ALL = {one: RegisteredBroker(one, 10 * one, ()) for one in (1, 2, 3)}


def partition(index: int = 0, isr: tuple[int, ...] = (1, 2, 3), *, minimum: int = 2, leader: int = 1) -> Partition:
    return Partition(index, (1, 2, 3), leader=leader, leader_epoch=3, isr=isr, min_insync_replicas=minimum)


@pytest.mark.parametrize(
    ("one", "harm"),
    [
        (partition(), None),
        (partition(isr=(1, 2)), Harm.BELOW_MINIMUM),
        (partition(isr=(1, 2), minimum=1), None),
        (partition(isr=(1,), minimum=1), Harm.OFFLINE),
        (partition(isr=(2, 3), leader=2), None),
        (partition(isr=(2,), leader=2), None),
        (partition(minimum=5), Harm.BELOW_MINIMUM),
        (Partition(0, (1,), leader=1, leader_epoch=3, isr=(1,), min_insync_replicas=2), Harm.OFFLINE),
        (Partition(0, (1, 2), leader=-1, leader_epoch=3), None),
    ],
)
def test_harm_is_what_those_in_sync_elsewhere_cannot_make_up_for(one: Partition, harm: Harm | None) -> None:
    assert harm_to(one, 1, ALL) is harm


def test_harm_counts_only_brokers_that_are_registered() -> None:
    alone = {one: broker for one, broker in ALL.items() if one != 2}
    assert harm_to(partition(isr=(1, 2)), 1, alone) is Harm.OFFLINE
    assert harm_to(partition(), 1, alone) is Harm.BELOW_MINIMUM


def test_readiness_counts_all_partitions_and_names_the_first() -> None:
    async def scenario() -> tuple[Readiness, int]:
        only = Partition(20, (1,), leader=1, leader_epoch=3, isr=(1,))
        partitions = (
            *(partition(index, (1, 2)) for index in range(20)),
            only,
            *(partition(21 + n) for n in range(5_000)),
        )
        image, _ = ClusterImage(brokers=ALL).follow([TopicChanged(Topic("orders", UUID(int=1), partitions))])
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        found = await readiness_of(image, 1)
        counting.cancel()
        return found, turns

    found, turns = run(scenario())
    assert found.counts == {Harm.OFFLINE: 1, Harm.BELOW_MINIMUM: 20}
    assert not found.is_safe_to_stop
    names = [name for name, _ in found.named]
    assert names == [TopicPartition("orders", index) for index in range(10)]
    assert found.named[0][1] == "would be below its minimum in sync: 1 other replica is in sync of 2"
    assert turns >= 10, "others had their turns"


def test_readiness_with_a_problem_is_not_safe() -> None:
    found = run(readiness_of(ClusterImage(brokers=ALL), 1, ["no controller"]))
    assert found.problems == ("no controller",)
    assert not found.is_safe_to_stop
    assert run(readiness_of(ClusterImage(brokers=ALL), 1)).is_safe_to_stop


def wait_for(cluster: Cluster, broker: ClusterBroker, condition: Callable[[Readiness], bool]) -> None:
    async def is_so() -> None:
        while not condition(await served(broker).readiness()):  # noqa: ASYNC110 - an image may bring it
            await asyncio.sleep(0.01)

    cluster.home.run(asyncio.wait_for(is_so(), 120))


def test_brokers_of_a_cluster_are_safe_to_stop_one_at_a_time() -> None:
    with Cluster(brokers=3, settings={"offsets.topic.replication.factor": 3}) as cluster:
        cluster.create_topic("orders", configs={"min.insync.replicas": 2}, replicas=3)
        first, second, third = cluster
        for one in cluster:
            wait_for(cluster, one, lambda found: found.is_safe_to_stop)
        third.stop()
        for one in (first, second):
            wait_for(cluster, one, lambda found: found.counts == {Harm.OFFLINE: 0, Harm.BELOW_MINIMUM: 1})
        third.start()
        for one in cluster:
            wait_for(cluster, one, lambda found: found.is_safe_to_stop)
