"""The files of topics that the image has no longer.

They are removed only when the metadata says that the topic was deleted; those of a topic that is merely not there are
kept: its metadata may come back. While the metadata cannot be asked, because the session was lost, a topic stays
undecided, and is asked for again with the next image.
"""

import logging
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Final
from uuid import UUID

from barnabas.base.ids import TopicPartition
from barnabas.base.pausing import in_slices
from barnabas.metadata.deletions import Deletions
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.image import ClusterImage, Topic
from barnabas.replication.workers import perform_all
from barnabas.storage.directories.manager import LogManager

logger = logging.getLogger(__name__)

SLICE_LENGTH: Final = 64
"""Partitions that are looked at before others have their turn: two or three milliseconds."""


class TopicRemoval:
    """Owner: the broker's event loop."""

    def __init__(self, broker_id: int, logs: LogManager, deletions: Deletions, workers: Executor) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._deletions = deletions
        self._workers = workers
        self._undecided: dict[UUID, Topic] = {}

    @property
    def is_undecided(self) -> bool:
        """Whether there is a topic to ask for again."""
        return bool(self._undecided)

    async def remove(self, gone: Iterable[Topic], before: ClusterImage, image: ClusterImage) -> list[Topic]:
        """The files of those that were deleted, of these topics and of undecided ones, which are returned."""
        deleted = await self._deleted_of(gone, image)
        names = ((topic, name) for topic in deleted for name in names_of(topic))
        async for together in in_slices(names, SLICE_LENGTH):
            for topic, name in together:
                if before.topics.get(name.topic, topic).id == topic.id:
                    self._logs.directories.forget_lost(name)
            left = [name for topic, name in together if self._is_left(topic, name)]
            await perform_all(self._logs.deletions(left), self._workers)
        return deleted

    async def _deleted_of(self, gone: Iterable[Topic], image: ClusterImage) -> list[Topic]:
        undecided = [topic for topic in self._undecided.values() if topic.id not in image.topics_by_id]
        topics = [*undecided, *gone]
        try:
            recorded = await self._deletions.recorded([topic.id for topic in topics])
        except SessionLost as error:
            if not self._undecided:
                logger.warning("cannot find out yet which topics were deleted, their files are kept: %s", error)
            self._undecided = {topic.id: topic for topic in topics}
            return []
        self._undecided = {}
        for topic in topics:
            if topic.id not in recorded and self._has_replica(topic):
                logger.error(
                    "topic %s is missing from the metadata, but was not deleted: its files are kept", topic.name
                )
        return [topic for topic in topics if topic.id in recorded]

    def _has_replica(self, topic: Topic) -> bool:
        """A deleted topic is remembered until the brokers with replicas confirm; others may learn of it too late."""
        return any(self._broker_id in one.replicas for one in topic.partitions)

    def _is_left(self, topic: Topic, name: TopicPartition) -> bool:
        holder = self._logs.directories.holder(name)
        return holder is not None and holder.topic_ids.get(name) == topic.id

    def confirm(self, deleted: Iterable[Topic]) -> None:
        """That nothing is left of these topics, where that is so."""
        directories = self._logs.directories
        self._deletions.confirm(topic.id for topic in deleted if not directories.may_hold(topic.id, names_of(topic)))

    async def evict(self, topics: Iterable[Topic]) -> None:
        """What is left of earlier topics of these names, whose removal has failed, is set aside once more."""
        names = ((topic, name) for topic in topics for name in names_of(topic))
        async for together in in_slices(names, SLICE_LENGTH):
            strays = [name for topic, name in together if self._is_of_another(topic, name)]
            await perform_all(self._logs.deletions(strays, is_stray=True), self._workers)

    def _is_of_another(self, topic: Topic, name: TopicPartition) -> bool:
        holder = self._logs.directories.holder(name)
        held = topic.id if holder is None else holder.topic_ids.get(name, topic.id)
        if held != topic.id:
            self._undecided.pop(held, None)  # the next start decides: the record of its deletion must stay until then
        return held != topic.id


def names_of(topic: Topic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
