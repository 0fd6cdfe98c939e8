"""The topics that the broker makes for itself, when they are first needed, or asked for by name.

| topic | for | partitions | replicas |
|---|---|---|---|
| `__consumer_offsets` | groups, their offsets | `offsets.topic.num.partitions` | `offsets.topic.replication.factor` |
| `__barnabas_group_history` | the story of the groups | 1 | the same |

None is ever made with fewer replicas than configured because brokers are still starting: until there are enough of them
it does not exist. Without `__consumer_offsets` clients are told that there is no coordinator yet; without the history,
groups work and what happens to them is kept in memory. Each is made once at a time, however many wait for it.

Owner: the broker's event loop. `stop` ends what is under way.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from barnabas.base.errors import BarnabasError, InvalidSetting
from barnabas.base.logs import fields
from barnabas.base.tasks import Tasks
from barnabas.broker.settings import BrokerConfig
from barnabas.broker.topic_creation import TopicCreation
from barnabas.groups.history import HISTORY_TOPIC
from barnabas.groups.partitions import OFFSETS_TOPIC
from barnabas.replication.replicas import Replicas
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

INTERNAL_TOPIC_CONFIGS: Final = {
    name: {"cleanup.policy": "compact", "compression.type": "producer"}
    for name in (OFFSETS_TOPIC, HISTORY_TOPIC, "__transaction_state")
}

_SERVED_SECONDS_MAX: Final = 5.0
_POLICY: Final = "cleanup.policy"
_COMPACTED: Final = {_POLICY: "compact"}


def internal_defaults(name: str) -> Mapping[str, str]:
    """Settings that a topic of this name cannot be without."""
    return _COMPACTED if name == OFFSETS_TOPIC else {}


def check_internal_config(name: str, config: LogConfig) -> None:
    """Refuses settings with which groups would lose what they have committed."""
    if name == OFFSETS_TOPIC and (config.is_deleted or not config.is_compacted):
        raise InvalidSetting(
            f"{_POLICY} of {OFFSETS_TOPIC} must be compact: with any other, groups lose their committed offsets"
        )


class InternalTopics:
    def __init__(self, config: BrokerConfig, topics: TopicCreation, replicas: Replicas) -> None:
        self._config = config
        self._topics = topics
        self._replicas = replicas
        self._tasks = Tasks(asyncio.get_running_loop())
        self._making: dict[str, asyncio.Task[None]] = {}
        self._refusals: dict[str, str] = {}

    def want(self, name: str) -> None:
        """Begins to make the topic, unless it exists or is being made."""
        if name not in self._replicas.image.topics and name not in self._making:
            task = self._making[name] = self._tasks.start(self._make(name))
            task.add_done_callback(lambda _: self._making.pop(name, None))

    async def ensure(self, name: str) -> bool:
        """Whether the topic is there, made for this if it was not."""
        self.want(name)
        task = self._making.get(name)
        if task is not None:
            await asyncio.wait([task])
        return name in self._replicas.image.topics

    async def _make(self, name: str) -> None:
        try:
            await self._create(name)
            logger.info("created topic '%s' for the broker's own use", name, extra=fields(topic=name))
        except BarnabasError as error:
            if not (isinstance(error, KafkaError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                self._say(name, str(error))
                return
        self._refusals.pop(name, None)
        try:
            async with asyncio.timeout(_SERVED_SECONDS_MAX):
                await self._replicas.wait_for(lambda image: name in image.topics)
        except TimeoutError:
            logger.warning("topic '%s' is created, but not yet in use on this broker", name, extra=fields(topic=name))

    def _say(self, name: str, reason: str) -> None:
        """Clients keep asking: each reason is said once."""
        if self._refusals.get(name) != reason:
            self._refusals[name] = reason
            logger.warning("cannot create topic '%s' yet: %s", name, reason, extra=fields(topic=name))

    async def _create(self, name: str) -> None:
        config, image = self._config, self._replicas.image
        replica_count = config.offsets_topic_replication_factor
        if name == OFFSETS_TOPIC:
            configs = INTERNAL_TOPIC_CONFIGS[name] | {"segment.bytes": str(config.offsets_topic_segment_bytes)}
            await self._topics.create(image, name, config.offsets_topic_num_partitions, replica_count, configs)
            return
        assert name == HISTORY_TOPIC, f"{name} is no internal topic of ours"
        await self._topics.create(image, name, 1, replica_count, INTERNAL_TOPIC_CONFIGS[name])

    async def stop(self) -> None:
        await self._tasks.stop()
