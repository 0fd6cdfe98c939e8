"""The partitions that this broker serves, brought in line with the cluster's image.

The image says which topics there are, who leads their partitions and how they are configured; it changes through the
metadata store's watches, alone and in a cluster alike. `run` takes each new image in turn: logs of new partitions are
made (in worker threads), those of deleted ones are taken out of service and removed, changed settings are swapped in.
What handlers find here is always served; what is still on its way is not there yet.

Owner: the broker's event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from typing import Final, TypeAlias
from uuid import UUID

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import NO_EPOCH, TopicPartition
from barnabas.base.pausing import in_slices
from barnabas.base.uuid import ZERO_UUID
from barnabas.metadata.image import INTERNAL_TOPICS, ClusterImage, Topic
from barnabas.metadata.image import Partition as PartitionImage
from barnabas.replication.partition import Partition
from barnabas.replication.workers import perform
from barnabas.storage.manager import LogManager
from barnabas.storage.settings import LogConfig
from barnabas.storage.work import Work
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.leaders import NO_LEADER, LeaderAndEpoch, NodeEndpoint
from barnabas.wire.primitives import uuid_of

logger = logging.getLogger(__name__)

ConfigOfTopic: TypeAlias = Callable[[ClusterImage, str], LogConfig]

_SLICE_LENGTH: Final = 64
"""Partitions that are looked at before others have their turn: two or three milliseconds."""


class Replicas:
    """See the module's text."""

    def __init__(self, broker_id: int, logs: LogManager, config_of_topic: ConfigOfTopic, workers: Executor) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._config_of_topic = config_of_topic
        self._workers = workers
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._found: dict[tuple[str | bytes, int], Partition] = {}
        """What `get_sole` was asked for since something changed."""
        self._wanted: asyncio.Queue[ClusterImage] = asyncio.Queue()
        self._applied = asyncio.Condition()
        self.image = ClusterImage()
        """The image that is served."""
        self._coming = self.image
        """The one that is being brought about; mostly the same. What goes in it is not served any more."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    # -- finding -------------------------------------------------------------------------------------------------

    def find(self, name: str, topic_id: UUID, index: int) -> Partition:
        """The partition that a client names or gives the id of; refused when it is not served here."""
        if topic_id is not ZERO_UUID and topic_id != ZERO_UUID:
            topic = self.image.topics_by_id.get(topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
            name = topic.name
            if topic_id not in self._coming.topics_by_id:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"the topic with the id {topic_id} is being deleted")
        partition = self._partitions.get((name, index))
        if partition is None:
            raise self._problem_with(name, index)
        return partition

    def _problem_with(self, name: str, index: int) -> KafkaError:
        known = self.image.partition(name, index) and self._coming.partition(name, index)
        if known is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{index} does not exist")
        if known.leader != self._broker_id:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {known.leader} leads {name}-{index}")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}-{index} lies in a directory that is offline")

    def get(self, name: str, index: int) -> Partition | None:
        return self._partitions.get((name, index))

    def get_sole(self, topic: str | bytes, index: int) -> Partition | None:
        """The partition that is served here, by its topic's name or the bytes of its id."""
        return self._found.get((topic, index)) or self._find_sole(topic, index)

    def _find_sole(self, topic: str | bytes, index: int) -> Partition | None:
        name = topic
        if isinstance(name, bytes):
            known = self.image.topics_by_id.get(uuid_of(name))
            if known is None:
                return None
            name = known.name
        partition = self._partitions.get((name, index))
        if partition is not None:
            self._found[topic, index] = partition
        return partition

    def leader_of(self, name: str, topic_id: UUID, index: int) -> LeaderAndEpoch:
        """Who leads a partition as far as this broker knows, to tell a client that asked the wrong one."""
        topic = self.image.topics_by_id.get(topic_id) or self.image.topics.get(name)
        known = topic.partition(index) if topic else None
        return NO_LEADER if known is None else LeaderAndEpoch(known.leader, known.leader_epoch)

    def endpoints_of(self, leaders: Iterable[LeaderAndEpoch], listener: str) -> list[NodeEndpoint]:
        """Where a client of this listener finds the leaders that an answer names, each once."""
        endpoints = []
        for broker_id in dict.fromkeys(leader.leader_id for leader in leaders):
            broker = self.image.broker(broker_id)
            endpoint = broker.endpoint(listener) if broker else None
            if broker and endpoint:
                endpoints.append(NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
        return endpoints

    def is_internal(self, topic: str) -> bool:
        return topic in INTERNAL_TOPICS

    # -- following the image -------------------------------------------------------------------------------------

    def follow(self, image: ClusterImage) -> None:
        """There is a newer image; it is served as soon as `run` has come to it."""
        self._wanted.put_nowait(image)

    async def run(self) -> None:
        while True:
            image = await self._wanted.get()
            while not self._wanted.empty():
                image = self._wanted.get_nowait()
            await self.apply(image)

    async def wait_for(self, predicate: Callable[[ClusterImage], bool]) -> None:
        """Waits until an image is served that the predicate holds for."""
        async with self._applied:
            await self._applied.wait_for(lambda: predicate(self.image))

    async def apply(self, image: ClusterImage) -> None:
        """Brings about what the image says; in slices, because a topic may have ten thousand partitions."""
        self._coming = image
        changed = [topic for name, topic in image.topics.items() if self.image.topics.get(name) is not topic]
        gone = [
            topic
            for name, topic in self.image.topics.items()
            if name not in image.topics or image.topics[name].id != topic.id
        ]
        await self._remove(gone)
        await self._create(image, changed)
        partitions = ((topic, one) for topic in changed for one in topic.partitions)
        async for together in in_slices(partitions, _SLICE_LENGTH):
            for topic, one in together:
                self._lead(topic, one)
        await self._configure(image)
        self.image = image
        self._found.clear()
        async with self._applied:
            self._applied.notify_all()

    async def _perform(self, works: Iterable[Work]) -> None:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(perform(work, self._workers))

    async def _remove(self, topics: Iterable[Topic]) -> None:
        names = ((topic.name, index) for topic in topics for index in range(len(topic.partitions)))
        async for together in in_slices(names, _SLICE_LENGTH):
            stopped = [self._stop_serving(name) for name in together]
            await self._perform(self._logs.deletions(one.name for one in stopped if one is not None))

    async def _create(self, image: ClusterImage, topics: Iterable[Topic]) -> None:
        missing = ((topic, one) for topic in topics for one in topic.partitions if self._is_missing(topic, one))
        configs: dict[str, LogConfig] = {}
        async for together in in_slices(missing, _SLICE_LENGTH):
            works: list[Work] = []
            for topic, one in together:
                name = TopicPartition(topic.name, one.index)
                if topic.name not in configs:
                    configs[topic.name] = self._config_of_topic(image, topic.name)
                try:
                    works.append(self._logs.creation(name, topic.id, configs[topic.name]))
                except BarnabasError as error:
                    logger.error("%s: cannot be created: %s", name, error)
            await self._perform(works)

    def _is_missing(self, topic: Topic, one: PartitionImage) -> bool:
        return self._broker_id in one.replicas and self._logs.get(TopicPartition(topic.name, one.index)) is None

    def _lead(self, topic: Topic, one: PartitionImage) -> None:
        name = TopicPartition(topic.name, one.index)
        log = self._logs.get(name)
        if log is None or one.leader != self._broker_id or one.leader_epoch == NO_EPOCH:
            self._stop_serving(name)
            return
        partition = self._partitions.get(name)
        if partition is None:
            partition = self._partitions[name] = Partition(name, topic.id, log)
        partition.lead(one.leader, one.leader_epoch, one.isr, one.replicas)

    def _stop_serving(self, name: tuple[str, int]) -> Partition | None:
        """Another broker leads it, or its log is gone: whoever waits here is told so."""
        partition = self._partitions.pop(name, None)
        if partition is not None:
            self._found.clear()
            partition.close()
        return partition

    async def _configure(self, image: ClusterImage) -> None:
        """Swaps in the settings of topics whose own, or the broker's, have changed."""
        before, after = self.image.topic_configs, image.topic_configs
        if image.broker_configs != self.image.broker_configs:
            names = [*image.topics]
        elif after is not before:
            names = [name for name in {**before, **after} if before.get(name) is not after.get(name)]
        else:
            return
        topics = (image.topics[name] for name in names if name in image.topics)
        async for together in in_slices(topics, _SLICE_LENGTH):
            for topic in together:
                config = self._config_of_topic(image, topic.name)
                for one in topic.partitions:
                    partition = self._partitions.get((topic.name, one.index))
                    if partition is not None:
                        partition.log.config = config

    def drop_offline(self) -> None:
        """A directory has failed: its partitions are not served any more."""
        for name in [name for name, one in self._partitions.items() if self._logs.get(one.name) is not one.log]:
            self._stop_serving(name)
