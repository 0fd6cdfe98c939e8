"""The group coordinator of a broker, put together: its partitions, its story, its internal topics.

`run` follows the image that is served here: which partitions of `__consumer_offsets` this broker leads, and which
topics are gone. Requests come in by `coordinator`.

Owner: the broker's event loop.
"""

import asyncio
from concurrent.futures import Executor
from random import Random
from uuid import UUID

from barnabas.base.clock import Clock
from barnabas.broker.group_partitions import ServedLeadership
from barnabas.broker.internal_topics import InternalTopics
from barnabas.broker.settings import BrokerConfig
from barnabas.broker.turns import Turns
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.history import HISTORY_TOPIC
from barnabas.groups.history_log import HistoryLog
from barnabas.groups.measures import GroupMeasures
from barnabas.groups.partitions import OFFSETS_TOPIC, partition_of
from barnabas.groups.settings import GroupSettings
from barnabas.metadata.image import ClusterImage
from barnabas.records.batch import Codec
from barnabas.replication.replicas import Replicas
from barnabas.replication.tick import AppendTick

_MINUTE_MS = 60_000


class Groups:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        random: Random,
        config: BrokerConfig,
        replicas: Replicas,
        tick: AppendTick,
        workers: Executor,
        internal_topics: InternalTopics,
        measures: GroupMeasures,
    ) -> None:
        self._replicas = replicas
        self._workers = workers
        self._internal_topics = internal_topics
        self._sweep_interval_ms = config.offsets_retention_check_interval_ms
        self._led: dict[tuple[str, int], ServedLeadership] = {}
        self._image = ClusterImage()
        self._gone: asyncio.Queue[dict[str, UUID]] = asyncio.Queue()
        """Deleted topics by name, whose offsets are still there."""
        self._is_closed = False
        self.turns = Turns(loop)
        """For joins and syncs, which come in storms."""
        self.history = HistoryLog(loop, clock.now_ms, lambda: internal_topics.want(HISTORY_TOPIC))
        self.coordinator = GroupCoordinator(
            loop,
            clock,
            random,
            group_settings(config),
            measures,
            codec=Codec(config.offsets_topic_compression_codec),
            load_buffer_bytes=config.offsets_load_buffer_size,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            before_write=tick.before_write,
            on_events=self.history.hear,
            on_removed=self.history.forget,
        )

    async def find_partition(self, group_id: str) -> int | None:
        """The partition of `__consumer_offsets` that a group belongs to; None when there is no such topic yet.

        Creates the topic, where that is possible.
        """
        if OFFSETS_TOPIC not in self._replicas.image.topics:
            if not await self._internal_topics.ensure(OFFSETS_TOPIC):
                return None
            self.follow(self._replicas.image)
            await self.coordinator.wait_loaded()  # there is nothing to load, and the client comes at once
        return partition_of(group_id, len(self._replicas.image.topics[OFFSETS_TOPIC].partitions))

    def want_topic(self) -> None:
        """Starts to create `__consumer_offsets`, where that is possible: a client asked for it by name."""
        self._internal_topics.want(OFFSETS_TOPIC)

    async def run(self) -> None:
        """Follows the image that is served."""
        while True:
            await self._replicas.wait_for(lambda image: image is not self._image)
            self.follow(self._replicas.image)

    async def keep_forgetting(self) -> None:
        """Removes the offsets of deleted topics."""
        while True:
            await self.coordinator.topics_deleted(await self._gone.get())

    async def keep_sweeping(self) -> None:
        await self.coordinator.keep_sweeping(self._sweep_interval_ms)

    def follow(self, image: ClusterImage) -> None:
        gone = {topic.name: topic.id for topic in image.topics_gone_since(self._image)}
        self._image = image  # also of a broker that stops: `run` waits for an image other than this
        if self._is_closed:
            return
        offsets = image.topics.get(OFFSETS_TOPIC)
        count = 0 if offsets is None else len(offsets.partitions)
        led = {index: one for index in range(count) if (one := self._leadership(OFFSETS_TOPIC, index)) is not None}
        self.coordinator.follow(led, count)
        self.history.follow(self._leadership(HISTORY_TOPIC, 0))
        if gone:
            self._gone.put_nowait(gone)

    def _leadership(self, topic: str, index: int) -> ServedLeadership | None:
        partition = self._replicas.get(topic, index)
        if partition is None:
            self._led.pop((topic, index), None)
            return None
        known = self._led.get((topic, index))
        if known is None or not known.is_of(partition):
            known = self._led[topic, index] = ServedLeadership(partition, self._workers)
        return known

    def close(self) -> None:
        """Tells all who wait for a group to look elsewhere, and writes what the story has."""
        self._is_closed = True
        self.coordinator.close()
        self.history.close()


def group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        session_timeout_min_ms=config.group_min_session_timeout_ms,
        session_timeout_max_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_size_max=config.group_max_size,
        metadata_bytes_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
    )
