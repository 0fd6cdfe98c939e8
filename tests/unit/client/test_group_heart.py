"""What keeps a member in its group while another part of it waits."""

import asyncio
from contextlib import suppress

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.group.group_consumer import GroupConsumer
from barnabas.client.group.group_subscription import TopicSubscription
from barnabas.client.group.member_options import GroupOptions
from barnabas.client.group.membership import Membership
from barnabas.testing import Broker
from tests.support.network import run


def test_heart_beats_while_a_look_at_the_topics_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bootstrap: str) -> None:
        looking, beaten = asyncio.Event(), asyncio.Event()
        heartbeat = Membership.heartbeat

        async def look_for_ever(subscription: TopicSubscription) -> bool:
            looking.set()
            await asyncio.Event().wait()
            return False

        async def beat(membership: Membership) -> bool:
            lives = await heartbeat(membership)
            if looking.is_set():
                beaten.set()
            return lives

        monkeypatch.setattr(TopicSubscription, "has_other_topics", look_for_ever)
        monkeypatch.setattr(Membership, "heartbeat", beat)
        options = GroupOptions("readers", heartbeat_interval_ms=20, metadata_interval_ms=20)
        async with Cluster(bootstrap) as cluster, GroupConsumer(cluster, options) as consumer:
            consumer.subscribe(["orders"])
            polling = asyncio.create_task(consumer.poll())
            await beaten.wait()
            polling.cancel()
            with suppress(asyncio.CancelledError):
                await polling

    with Broker() as broker:
        broker.create_topic("orders")
        run(scenario(broker.bootstrap))
