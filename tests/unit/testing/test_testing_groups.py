"""What the broker for test-suites tells of consumer groups."""

import asyncio
from collections.abc import Iterator

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.blocking import BlockingClient
from barnabas.client.cluster import Cluster
from barnabas.client.group.group_consumer import GroupConsumer
from barnabas.client.group.group_offsets import commit_offsets
from barnabas.client.group.member_options import GroupOptions, OffsetReset
from barnabas.testing import Broker

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
OPTIONS = GroupOptions("billing", auto_offset_reset=OffsetReset.EARLIEST, auto_commit_interval_ms=None)


@pytest.fixture(scope="module")
def one_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(one_broker: Broker) -> Iterator[Broker]:
    one_broker.create_topic("orders", partitions=2)
    one_broker.append("orders", [b"a", b"b", b"c"])
    yield one_broker
    one_broker.delete_all_topics()


def test_group_that_nobody_has_used_has_committed_nothing(broker: Broker) -> None:
    assert broker.committed("billing") == {}
    with pytest.raises(TimeoutError) as late:
        broker.wait_for_group("billing", timeout_seconds=0.01)
    assert str(late.value) == (
        "after 0.01 s group billing is Dead with 0 members and unknown lag; waited for state Stable"
    )


def test_committed_offsets_are_told_also_after_a_restart(broker: Broker) -> None:
    with BlockingClient(broker.bootstrap) as client:
        client.wait_for(commit_offsets(client.cluster, "billing", {FIRST: 2, SECOND: 0}))

    assert broker.committed("billing") == {("orders", 0): 2, ("orders", 1): 0}
    broker.restart()
    assert broker.committed("billing") == {FIRST: 2, SECOND: 0}
    assert broker.committed("other") == {}


def test_lag_that_is_waited_for_counts_what_was_never_committed(broker: Broker) -> None:
    async def scenario() -> None:
        async with Cluster(broker.bootstrap) as cluster, GroupConsumer(cluster, OPTIONS) as consumer:
            consumer.subscribe(["orders"])
            await consumer.poll(10)
            stable = await asyncio.to_thread(broker.wait_for_group, "billing", members=1, state="Stable")
            assert (stable.state, stable.lag, stable.committed) == ("Stable", 3, {})
            assert [(one.client_id, one.partitions) for one in stable.members] == [("barnabas", (FIRST, SECOND))]

            with pytest.raises(
                TimeoutError, match="Stable with 1 member and a lag of 3; waited for a lag of at most 0"
            ):
                await asyncio.to_thread(broker.wait_for_group, "billing", lag=0, timeout_seconds=0.01)

            waiting = asyncio.create_task(asyncio.to_thread(broker.wait_for_group, "billing", lag=0))
            await consumer.commit({FIRST: 3})
            assert (await waiting).committed == {FIRST: 3}
        left = await asyncio.to_thread(broker.wait_for_group, "billing", state="Empty", lag=0)
        assert left.members == ()

    asyncio.run(scenario())


def test_two_members_are_waited_for(broker: Broker) -> None:
    async def scenario() -> None:
        async with (
            Cluster(broker.bootstrap) as cluster,
            GroupConsumer(cluster, OPTIONS) as first,
            GroupConsumer(cluster, OPTIONS) as second,
        ):
            polls = []
            for consumer in (first, second):
                consumer.subscribe(["orders"])
                polls.append(asyncio.create_task(consumer.poll(20)))
            group = await asyncio.to_thread(broker.wait_for_group, "billing", state="Stable", members=2)
            assert sorted(one.partitions for one in group.members) == [(FIRST,), (SECOND,)]
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)

    asyncio.run(scenario())


def test_deleted_topics_take_the_commits_with_them(broker: Broker) -> None:
    with BlockingClient(broker.bootstrap) as client:
        client.wait_for(commit_offsets(client.cluster, "billing", {FIRST: 2}))
    broker.delete_all_topics()

    assert broker.committed("billing") == {}
    broker.create_topic("orders")
    assert broker.committed("billing") == {}


def test_state_that_does_not_exist_is_refused(broker: Broker) -> None:
    with pytest.raises(ValueError, match=r"there is no group state 'stable'; they are Empty, .*, Stable, Dead"):
        broker.wait_for_group("billing", state="stable")
