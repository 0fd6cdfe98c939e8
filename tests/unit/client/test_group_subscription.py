"""What a member subscribes to while its topics are being looked up, against a played cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.group.group_subscription import TopicSubscription
from tests.support.network import run
from tests.support.played_cluster import PlayedCluster


@asynccontextmanager
async def subscribing() -> AsyncIterator[tuple[PlayedCluster, TopicSubscription]]:
    """To all topics of orders, of which one is there."""
    async with PlayedCluster({"orders-a": 1, "archive": 1}) as played, Cluster(played.bootstrap) as cluster:
        subscription = TopicSubscription(cluster)
        subscription.choose((), "orders-.*")
        assert await subscription.topics() == {"orders-a"}
        yield played, subscription


def test_topic_that_matches_is_reported_once() -> None:
    async def scenario() -> None:
        async with subscribing() as (played, subscription):
            assert not await subscription.has_other_topics()
            played.add_topic("orders-b", 1)
            assert await subscription.has_other_topics()
            assert not await subscription.has_other_topics()
            assert await subscription.topics() == {"orders-a", "orders-b"}

    run(scenario())


def test_topics_chosen_by_name_during_a_look_for_others_stay_chosen() -> None:
    async def scenario() -> None:
        async with subscribing() as (played, subscription):
            played.add_topic("orders-b", 1)
            looking = asyncio.create_task(subscription.has_other_topics())
            await asyncio.sleep(0)  # it waits for the broker now
            assert not looking.done()
            subscription.choose(["archive"], None)
            assert not await looking
            assert await subscription.topics() == {"archive"}

    run(scenario())


def test_pattern_chosen_during_a_look_for_others_has_nothing_of_the_old_one() -> None:
    async def scenario() -> None:
        async with subscribing() as (played, subscription):
            played.add_topic("orders-b", 1)
            looking = asyncio.create_task(subscription.has_other_topics())
            await asyncio.sleep(0)
            assert not looking.done()
            subscription.choose((), "arch.*")
            assert not await looking
            assert await subscription.topics() == {"archive"}
            assert not await subscription.has_other_topics()

    run(scenario())


@pytest.mark.parametrize(("topics", "pattern"), [(["archive"], None), ([], "arch.*")], ids=["names", "pattern"])
def test_topics_chosen_during_a_lookup_are_its_result(topics: list[str], pattern: str | None) -> None:
    async def scenario() -> None:
        async with subscribing() as (_, subscription):
            joining = asyncio.create_task(subscription.topics())
            await asyncio.sleep(0)
            assert not joining.done()
            subscription.choose(topics, pattern)
            assert await joining == {"archive"}
            assert await subscription.topics() == {"archive"}

    run(scenario())


def test_topic_found_by_a_join_during_a_look_for_others_is_not_reported() -> None:
    async def scenario() -> None:
        async with subscribing() as (played, subscription):
            played.add_topic("orders-b", 1)
            joining = asyncio.create_task(subscription.topics())
            looking = asyncio.create_task(subscription.has_other_topics())
            assert await joining == {"orders-a", "orders-b"}
            assert not await looking

    run(scenario())


def test_resized_topic_is_reported_once() -> None:
    async def scenario() -> None:
        async with subscribing() as (_, subscription):
            subscription.watch({"orders-a": 1, "archive": 1})
            assert await subscription.resized_topic() is None
            subscription.watch({"orders-a": 1, "archive": 2})
            assert await subscription.resized_topic() == "archive"
            assert await subscription.resized_topic() is None

    run(scenario())


def test_counts_of_a_rebalance_during_a_look_for_resized_topics_are_compared_with_the_next_answer() -> None:
    async def scenario() -> None:
        async with subscribing() as (played, subscription):
            subscription.watch({"orders-a": 1})
            looking = asyncio.create_task(subscription.resized_topic())
            await asyncio.sleep(0)
            assert not looking.done()
            played.add_topic("orders-b", 1)
            subscription.watch({"orders-b": 1})
            assert await looking is None
            assert await subscription.resized_topic() is None
            subscription.watch({"orders-b": 2})
            assert await subscription.resized_topic() == "orders-b"

    run(scenario())
