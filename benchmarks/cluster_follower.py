"""What one changed partition costs a broker that follows the image of a large cluster.

The broker is a whole one, in this process. Its share of the partitions has logs; the others are led elsewhere. Each
change comes as the bytes of a controller's answer, and has been followed when the broker serves the next image.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.broker.app import Broker
from barnabas.broker.settings import BrokerSettings
from barnabas.controller.following import take_answer
from barnabas.controller.history import ImageHistory
from barnabas.controller.image_message import values_of
from barnabas.metadata.image import (
    BrokerChanged,
    Change,
    Partition,
    PartitionsChanged,
    RegisteredBroker,
    Topic,
    TopicChanged,
)
from barnabas.metadata.znodes import Endpoint
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages import decode_response_in_steps, write_response
from barnabas.wire.steps import finish_in_turns
from benchmarks.cluster_stream import PARTITIONS_OF_A_TOPIC, REPLICATION_FACTOR, VERSION, undisturbed

_DECODED_TOGETHER: Final = 64
_TURNS_AFTER: Final = 3
"""Of those who wait for the image that is served."""


class Following(NamedTuple):
    cpu_seconds: float
    wall_seconds: float


async def cost_of_following(broker_count: int, partition_count: int, changes: int) -> Following:
    """Of one change, undisturbed."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        settings = {"log.dirs": directory, "listeners": "PLAINTEXT://127.0.0.1:0", "broker.id": "1"}
        async with Broker(BrokerSettings(settings)) as broker:
            history = broker.running.cluster.history
            epoch = broker.running.cluster.seat.broker_epoch
            history.publish(*history.image.follow(_large_cluster(broker_count, partition_count, epoch)))
            await broker.replicas.wait_for(lambda image: image is history.image)
            measured = [await _follow(broker, history, number % partition_count) for number in range(changes)]
    return Following(
        undisturbed([one.cpu_seconds for one in measured]), undisturbed([one.wall_seconds for one in measured])
    )


def _large_cluster(broker_count: int, partition_count: int, broker_epoch: int) -> Iterator[Change]:
    """Around broker 1, whose registration has this epoch."""
    for one in range(2, broker_count + 1):
        yield BrokerChanged(RegisteredBroker(one, one, (Endpoint("PLAINTEXT", "PLAINTEXT", f"host-{one}", 9092),)))
    epochs = {1: broker_epoch}
    for number in range(partition_count // PARTITIONS_OF_A_TOPIC):
        partitions = []
        for index in range(PARTITIONS_OF_A_TOPIC):
            first = number * PARTITIONS_OF_A_TOPIC + index
            replicas = tuple(1 + (first + one) % broker_count for one in range(min(REPLICATION_FACTOR, broker_count)))
            isr_epochs = tuple(epochs.get(one, one) for one in replicas)
            partitions.append(
                Partition(
                    index,
                    replicas,
                    leader=replicas[0],
                    leader_epoch=1,
                    isr=replicas,
                    partition_epoch=1,
                    isr_epochs=isr_epochs,
                )
            )
        yield TopicChanged(Topic(f"topic-{number:05}", UUID(int=number + 1), tuple(partitions)))


async def _follow(broker: Broker, history: ImageHistory, number: int) -> Following:
    body = _answer(history, number)
    since = history.place
    cpu, wall = time.process_time(), time.perf_counter()
    steps = decode_response_in_steps(ApiKey.FETCH_IMAGE, VERSION, body)
    await take_answer(history, since, await finish_in_turns(steps, _DECODED_TOGETHER), VERSION)
    await broker.replicas.wait_for(lambda image: image is history.image)
    for _ in range(_TURNS_AFTER):
        await asyncio.sleep(0)
    assert history.place != since, "the change was taken"
    return Following(time.process_time() - cpu, time.perf_counter() - wall)


def _answer(history: ImageHistory, number: int) -> bytes:
    """The next epoch of one partition; every hundredth or so is led here."""
    topic = history.image.topics[f"topic-{number // PARTITIONS_OF_A_TOPIC:05}"]
    one = topic.partitions[number % PARTITIONS_OF_A_TOPIC]
    changed = one._replace(leader_epoch=one.leader_epoch + 1, partition_epoch=one.partition_epoch + 1)
    values = {
        **values_of([PartitionsChanged(topic.name, topic.id, (changed,))]),
        "controller_id": history.image.controller_id,
        "controller_epoch": history.place.controller_epoch,
        "position": history.place.position + 1,
        "is_whole": False,
    }
    return write_response(ApiKey.FETCH_IMAGE, VERSION, values)
