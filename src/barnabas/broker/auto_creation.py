"""Creates topics because a client asked for them.

As in Kafka, the answer is that there is no such topic, and the client asks again a moment later; the topic is created
meanwhile. Each name is created once at a time, however many clients ask. The log says who asked first; failures are
logged every ten seconds at most, because clients keep asking.

Owner: the broker's event loop. `stop` ends what is under way.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.logs import RepeatedWarning, fields
from barnabas.base.tasks import Tasks
from barnabas.broker.audit import partitions_text
from barnabas.broker.topic_creation import TopicCreation
from barnabas.metadata.image import INTERNAL_TOPICS, ClusterImage
from barnabas.storage.directories.directory import CLUSTER_METADATA
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_TOGETHER_MAX: Final = 100
"""Clients that ask for more have to ask again."""


class AskedTopic(NamedTuple):
    name: str
    partition_count: int
    replication_factor: int
    asked_by: Mapping[str, object]
    """The fields of a log line that say who asked."""


class AutoCreation:
    def __init__(self, topics: TopicCreation) -> None:
        self._topics = topics
        loop = asyncio.get_running_loop()
        self._tasks = Tasks(loop)
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._refusals = RepeatedWarning(logger, loop.time)

    def begin(self, image: ClusterImage, topic: AskedTopic) -> None:
        """Internal topics are left to their coordinators; Kafka's metadata log is no topic of ours."""
        name = topic.name
        is_reserved = name in INTERNAL_TOPICS or name == CLUSTER_METADATA.topic
        if is_reserved or name in self._creating or len(self._creating) >= _TOGETHER_MAX:
            return
        task = self._creating[name] = self._tasks.start(self._create(image, topic))
        task.add_done_callback(lambda _: self._creating.pop(name, None))

    async def _create(self, image: ClusterImage, topic: AskedTopic) -> None:
        name, partition_count, replication_factor, asked_by = topic
        try:
            await self._topics.create(image, name, partition_count, replication_factor)
        except BarnabasError as error:
            if not (isinstance(error, KafkaError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                message = "cannot create topic '%s', which a client asked for: %s"
                self._refusals.warn(message, name, error, topic=name, **asked_by)
        else:
            logger.info(
                "created topic '%s' with %s, because a client asked for it",
                name,
                partitions_text(partition_count),
                extra=fields(topic=name, partitions=partition_count, **asked_by),
            )

    async def stop(self) -> None:
        await self._tasks.stop()
