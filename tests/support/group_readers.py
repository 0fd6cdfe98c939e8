"""Members of our client's groups that read in tasks of their own, and what tests wait for."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import uvloop

from barnabas.base.ids import TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.client.group.group_consumer import GroupConsumer
from barnabas.client.group.member_options import GroupOptions, OffsetReset, RebalanceListener
from barnabas.client.producing.producer import Producer
from barnabas.client.reading.consumer import ConsumerOptions

PATIENCE_SECONDS = 180
GROUP_SETTINGS = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
READER = "reader"


def run(bootstrap: str, scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), Cluster(bootstrap) as cluster:
            try:
                await scenario(cluster)
            finally:
                await end_readers()

    uvloop.run(bounded())


async def end_readers() -> None:
    """Those that a failed test left behind."""
    left = [task for task in asyncio.all_tasks() if task.get_name() == READER]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def options_of(group: str, **changes: Any) -> GroupOptions:
    """Quick to notice what happens, from the beginning of the topic on."""
    quick = GroupOptions(
        group,
        heartbeat_interval_ms=20,
        auto_commit_interval_ms=50,
        auto_offset_reset=OffsetReset.EARLIEST,
        consumer=ConsumerOptions(wait_ms_max=50),
    )
    return replace(quick, **changes)


def places(topic: str, *indexes: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, index) for index in indexes)


async def fill(cluster: Cluster, topic: str, partitions: int, values: Sequence[bytes]) -> None:
    async with Producer(cluster) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=number % partitions)


class Reader(RebalanceListener):
    """A member in a task of its own, which keeps what it reads and hears. `until` waits for a fact about members."""

    def __init__(self, cluster: Cluster, options: GroupOptions, topics: Sequence[str], news: asyncio.Condition) -> None:
        self.consumer = GroupConsumer(cluster, options)
        self.consumer.subscribe(topics, listener=self)
        self.values: list[bytes | None] = []
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.may_poll = asyncio.Event()
        self.may_poll.set()
        self._is_held = asyncio.Event()
        self._news = news
        self._task = asyncio.create_task(self._read(), name=READER)

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("assigned", partitions))

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("revoked", partitions))

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("lost", partitions))

    async def _read(self) -> None:
        async with self.consumer:
            while not self.consumer.is_stopped:
                for one in await self.consumer.poll(0.05):
                    self.values += [record.value for record in one.records()]
                async with self._news:
                    self._news.notify_all()
                if not self.may_poll.is_set():
                    self._is_held.set()
                    await self.may_poll.wait()

    async def hold(self) -> None:
        """Does not poll any more until it `may_poll`; returns when the last poll is over."""
        self._is_held.clear()
        self.may_poll.clear()
        await self._is_held.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._news:
            await self._news.wait_for(lambda: condition() or self._task.done())
        if self._task.done():
            self._task.result()
        assert condition()

    async def end(self) -> None:
        self.consumer.stop()
        await self._task

    async def die(self) -> None:
        """Without a word to the coordinator."""
        self._task.cancel()
        await asyncio.wait([self._task])


def is_shared_out(topic: str, partitions: int, *readers: Reader) -> bool:
    """Whether everything has one owner, and everybody has as much as anybody."""
    owners = Counter(one for reader in readers for one in reader.consumer.assignment)
    sizes = [len(reader.consumer.assignment) for reader in readers]
    return owners == Counter(places(topic, *range(partitions))) and max(sizes) - min(sizes) <= 1
