"""Topics of a test's brokers, created, deleted and written to without a client. All of it runs on the brokers' own
loop, and asks anew which brokers there are whenever it waits: a test may stop one meanwhile."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from barnabas.base.ids import Offset
from barnabas.broker import app
from barnabas.broker.services import Services
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.znodes import NO_LEADER
from barnabas.replication.partition import Partition
from barnabas.replication.waiting import ALL_ACKS, FOREVER
from barnabas.storage.settings import LogConfig
from barnabas.testing.records import Brokers
from barnabas.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_ATTEMPTS_MAX: Final = 1000
_CONTROLLER_SECONDS: Final = 10.0
_LOOK_AGAIN_SECONDS: Final = 0.002


async def controller_among(brokers: Brokers) -> app.Broker:
    """The broker that is the controller. While there is none, because the last one was just stopped, it waits."""
    try:
        async with asyncio.timeout(_CONTROLLER_SECONDS):
            while True:
                if (found := next(filter(is_controller, brokers()), None)) is not None:
                    return found
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"after {_CONTROLLER_SECONDS:g} s no broker is the controller") from None


def newest_among(brokers: Sequence[app.Broker]) -> app.Broker:
    """The broker whose image of the cluster is the newest one."""
    assert brokers, "no broker is running"
    return max(brokers, key=lambda broker: broker.running.cluster.history.place)


def is_controller(broker: app.Broker) -> bool:
    controller = broker.running.cluster.seat.controller
    return controller is not None and controller.is_whole.is_set()


async def create_topic(
    brokers: Brokers, name: str, partitions: int, configs: Mapping[str, str], replicas: int | None = None
) -> None:
    """Returns when every broker serves the topic."""
    LogConfig().with_topic_settings(configs)

    async def create(services: Services) -> UUID:
        factor = services.settings.config.default_replication_factor if replicas is None else replicas
        plan = services.controller.topics.plan(services.image, name, partitions, factor, configs)
        await services.controller.topics.create(plan)
        return plan.assignment.topic_id

    topic_id = await _as_controller(brokers, create)
    await _until_served(brokers, lambda image: topic_id in image.topics_by_id)


async def ensure_topic(brokers: Brokers, name: str, index: int) -> None:
    """Creates a topic with at least this partition, unless there is one of that name."""
    controller = await controller_among(brokers)
    if name not in controller.services.image.topics:
        await create_topic(brokers, name, max(index + 1, controller.settings.config.num_partitions), {})


async def delete_topics(brokers: Brokers, names: list[str]) -> None:
    """Returns when no broker serves any of them any more."""

    async def delete(name: str, services: Services) -> None:
        await services.controller.topics.delete(name)

    for name in names:
        await _as_controller(brokers, partial(delete, name))
    await _until_served(brokers, lambda image: not any(name in image.topics for name in names))


async def _as_controller(brokers: Brokers, write: Callable[[Services], Awaitable[_Result]]) -> _Result:
    """By the next controller, where the one that was asked is deposed before it has written anything."""
    for _ in range(_ATTEMPTS_MAX):
        services = (await controller_among(brokers)).services
        try:
            return await write(services)
        except SessionLost as error:
            logger.info("the controller has lost its session, another one is asked: %s", error)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    raise KafkaError(ErrorCode.NOT_CONTROLLER, "no broker stays the controller")


async def _until_served(brokers: Brokers, is_served: Callable[[ClusterImage], bool]) -> None:
    await asyncio.gather(*(broker.services.until_served(is_served) for broker in brokers()))


async def append(brokers: Brokers, topic: str, index: int, batch: bytes) -> Offset:
    """Returns the offset of the first record when the batch is written."""
    partition = _partition(brokers(), topic, index)
    done = asyncio.get_running_loop().create_future()
    appended = partition.append(bytearray(batch))
    partition.when_committed(appended.last_offset, ALL_ACKS, FOREVER, done.set_result)
    failure = await done
    if failure is not None:
        raise failure
    return appended.base_offset


def _partition(brokers: Sequence[app.Broker], topic: str, index: int) -> Partition:
    for broker in brokers:
        if (found := broker.replicas.get(topic, index)) is not None:
            return found
    known = next((one for broker in brokers if (one := broker.services.image.topics.get(topic)) is not None), None)
    led = None if known is None else known.partition(index)
    if known is None:
        message = f"there is no topic {topic}; create it with create_topic, or append with create=True"
    elif led is None:
        message = f"{topic} has no partition {index}; it has {len(known.partitions)}, counted from 0"
    elif led.leader == NO_LEADER:
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader now")
    else:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {led.leader} leads {topic}-{index}")
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
