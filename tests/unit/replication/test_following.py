"""Which partitions are followed, and for how long."""

import asyncio
from uuid import UUID

from barnabas.base.ids import TopicPartition
from barnabas.net.stream import Network
from barnabas.replication.fetcher import FetcherSettings, FollowerSide
from barnabas.replication.following import Following
from barnabas.replication.lost_leaders import LostLeaders
from tests.support.led_partition import LedPartition, scenario

TOPIC_ID = UUID(int=1)
SETTINGS = FetcherSettings(500, 1 << 20, 1 << 20, 1.0, 30.0)


@scenario
async def test_broker_that_is_about_to_stop_begins_to_follow_nobody() -> None:
    """A new leader would take what it fetches for a proof, and propose it as in sync."""
    led = LedPartition()
    network: Network = None  # type: ignore[assignment] # no leader has an address here
    lost = LostLeaders(led.clock, lambda broker_id: None, 6.0)
    side = FollowerSide(1, network, led.clock, lambda broker_id: None, SETTINGS, lost)
    following = Following(asyncio.get_running_loop(), side)
    known, other = TopicPartition("known", 0), TopicPartition("other", 0)
    following.follow(known, TOPIC_ID, led.log, 2, 5)
    following.is_ending = True
    following.follow(known, TOPIC_ID, led.log, 2, 5)
    following.follow(other, TOPIC_ID, led.log, 2, 5)
    assert len(following) == 1, "what was followed goes on, and nothing else begins"
    following.follow(known, TOPIC_ID, led.log, 3, 6)
    assert len(following) == 0, "another leader is another beginning"
    await following.stop()
