"""Topics that are made because somebody asked for them.

The client that asked is told that there is no such topic, as Kafka does, and asks again a moment later; the topic is
made meanwhile. Each name is made once at a time, however many ask. What cannot be made is said in the log, once for
each try.

Owner: the broker's event loop. `stop` ends what is under way.
"""

import asyncio
import logging
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.logs import RepeatedWarning
from barnabas.metadata.image import INTERNAL_TOPICS, ClusterImage
from barnabas.metadata.topics import TopicWriter
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_WARNING_SECONDS: Final = 60.0
_TOGETHER_MAX: Final = 100
"""Whoever asks for more has to ask again."""


class AutoCreation:
    def __init__(self, topics: TopicWriter) -> None:
        self._topics = topics
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failed = RepeatedWarning(logger, asyncio.get_running_loop().time, _WARNING_SECONDS)

    def begin(self, image: ClusterImage, name: str, partition_count: int, replication_factor: int) -> None:
        """Internal topics are left to their coordinators."""
        if name in self._tasks or name in INTERNAL_TOPICS or len(self._tasks) >= _TOGETHER_MAX:
            return
        task = asyncio.get_running_loop().create_task(self._create(image, name, partition_count, replication_factor))
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _create(self, image: ClusterImage, name: str, partition_count: int, replication_factor: int) -> None:
        try:
            await self._topics.create(self._topics.plan(image, name, partition_count, replication_factor))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.warning("topic %s was asked for and cannot be made: %s", name, error)
        except BarnabasError as error:  # clients ask again and again
            self._failed.warn("topic %s was asked for and could not be made: %s", name, error)
        else:
            logger.info("topic %s was asked for and made, with %d partitions", name, partition_count)

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
