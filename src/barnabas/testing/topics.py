"""Topics of a test's broker, made, deleted and written to without a client. All of it runs on the broker's own loop."""

import asyncio
from collections.abc import Mapping

from barnabas.base.ids import Offset
from barnabas.broker import app
from barnabas.replication.partition import Partition
from barnabas.replication.waiting import ALL_ACKS, FOREVER
from barnabas.storage.settings import LogConfig
from barnabas.wire.errors import ErrorCode, KafkaError


async def create_topic(broker: app.Broker, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Returns when the topic is served."""
    services = broker.services
    LogConfig().with_topic_settings(configs)
    plan = services.controller.topics.plan(services.image, name, partitions, 1, configs)
    await services.controller.topics.create(plan)
    await services.until_served(lambda image: plan.assignment.topic_id in image.topics_by_id)


async def delete_topics(broker: app.Broker, names: list[str]) -> None:
    """Returns when none of them is served any more."""
    services = broker.services
    for name in names:
        await services.controller.topics.delete(name)
    await services.until_served(lambda image: not any(name in image.topics for name in names))


async def append(broker: app.Broker, topic: str, index: int, batch: bytes, *, creates: bool) -> Offset:
    """Returns the offset of the first record when the batch is written."""
    if creates and topic not in broker.services.image.topics:
        await create_topic(broker, topic, max(index + 1, broker.settings.config.num_partitions), {})
    partition = _partition(broker, topic, index)
    done = asyncio.get_running_loop().create_future()
    appended = partition.append(bytearray(batch))
    partition.when_committed(appended.last_offset, ALL_ACKS, FOREVER, done.set_result)
    failure = await done
    if failure is not None:
        raise failure
    return appended.base_offset


def _partition(broker: app.Broker, topic: str, index: int) -> Partition:
    found = broker.replicas.get(topic, index)
    if found is not None:
        return found
    known = broker.services.image.topics.get(topic)
    if known is None:
        message = f"there is no topic {topic}; create it with create_topic, or append with create=True"
    else:
        message = f"{topic} has no partition {index}; it has {len(known.partitions)}, counted from 0"
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
