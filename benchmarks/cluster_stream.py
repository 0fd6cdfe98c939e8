"""The image stream of a large cluster in one process: the real controller, and stubs in the place of its brokers.

The controller, its elections, its history and its answers are a broker's own; ZooKeeper is the store in memory. A stub
knows the place that it has come to, and asks for what comes behind it, as a broker does. One broker is more than that:
it keeps the image and its history, and becomes the next controller when the first one dies.

Sockets are not part of it: an answer's bytes are counted where they would be sent.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from random import Random
from struct import Struct
from typing import Final, NamedTuple

from barnabas.base.clock import SystemClock
from barnabas.controller.controller import Controller
from barnabas.controller.controllership import Controllership, claim_controller
from barnabas.controller.following import take_answer
from barnabas.controller.history import ImageHistory, Place
from barnabas.controller.image_answers import ImageAnswers
from barnabas.controller.image_message import changes_in, whole_values_of
from barnabas.controller.topics import TopicWriter
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.identity import ensure_layout, register_broker
from barnabas.metadata.image import BrokerChanged, ClusterImage, Partition, RegisteredBroker
from barnabas.metadata.znodes import BROKER_IDS, CONTROLLER, BrokerRegistration, Endpoint, PartitionState
from barnabas.wire.apis import ALL_APIS, ApiKey
from barnabas.wire.image_messages import FETCH_IMAGE_RESPONSES
from barnabas.wire.messages import decode_response
from barnabas.wire.steps import finish
from barnabas.wire.values import write_values

VERSION: Final = ALL_APIS[ApiKey.FETCH_IMAGE].version_max
PARTITIONS_OF_A_TOPIC: Final = 10
REPLICATION_FACTOR: Final = 3
_POLL_SECONDS: Final = 600.0
_UNWATCHED: Final = "/benchmark"
_BEGINNING: Final = Struct(">hiiq?")
"""Of an answer: error code, controller, its epoch, position, whether it is a whole image."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one change, or of a takeover, for the process with the controller and all stubs."""

    cpu_seconds: float
    told_bytes: int
    """All answers together."""
    whole_images: int
    """How many of the answers were one."""
    held_seconds: float = 0.0
    """The longest turn of the event loop, in processor time."""


class WholeImage(NamedTuple):
    """In one version of the message."""

    length: int
    encode_seconds: float
    decode_seconds: float
    """To the image that a broker without one has then."""


class Stub:
    """A broker, as far as the controller can tell."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.told_bytes = 0
        self.whole_images = 0

    async def fetch(self, answers: ImageAnswers) -> None:
        """One answer, of which only the beginning is read."""
        body = await answers.answer(VERSION, self.place, _POLL_SECONDS)
        code, _, controller_epoch, position, is_whole = _BEGINNING.unpack_from(body)
        assert code == 0, f"the controller answers with error code {code}"
        self.place = Place(controller_epoch, position)
        self.told_bytes += len(body)
        self.whole_images += is_whole


class StreamScene:
    """A cluster whose first controller is broker 1, and whose next ones are 2, 3, …"""

    def __init__(self, session: EmbeddedSession, partition_count: int) -> None:
        self.session = session
        self.partition_count = partition_count
        self.history = ImageHistory()
        self.controller: Controller
        self.answers: ImageAnswers
        self.controller_id = 0
        self._running: asyncio.Task[None] | None = None

    @property
    def image(self) -> ClusterImage:
        return self.history.image

    async def claim(self) -> Controllership:
        self.controller_id += 1
        controllership = await claim_controller(self.session, self.controller_id, 0)
        assert controllership is not None, "nobody else is the controller"
        return controllership

    def begin(self, controllership: Controllership, history: ImageHistory) -> None:
        """It serves as the controller, on the image that it has followed."""
        self.history = history
        self.controller = Controller(controllership, history, Random(1))
        self.answers = ImageAnswers(self.controller)
        self._running = asyncio.create_task(self.controller.run())

    async def kill_controller(self) -> None:
        """Its session ends, and its registration with it."""
        await self.stop()
        await self.session.delete(CONTROLLER)
        await self.session.delete(f"{BROKER_IDS}/{self.controller_id}")

    async def stop(self) -> None:
        if self._running is not None:
            self.answers.close()
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    async def change_partition(self, number: int) -> None:
        """Writes another state of one partition: the same leader, in the next epoch. Returns when it is published."""
        name, index = _name_of(number)
        one = self.image.topics[name].partitions[index]
        state = _led_again(one, self.controller.controllership.epoch)
        await self.session.set(PartitionState.path_of(name, index), state.encode())
        await self.history.wait_for(lambda image: image.topics[name].partitions[index].leader_epoch > one.leader_epoch)

    def stubs(self, count: int) -> list[Stub]:
        """At the controller's place."""
        return [Stub(self.history.place) for _ in range(count)]

    async def tell(self, stubs: Sequence[Stub]) -> None:
        """One answer for each; those who are up to date wait for the next change."""
        await asyncio.gather(*[stub.fetch(self.answers) for stub in stubs])

    async def follower(self) -> ImageHistory:
        """Of a broker that has come as far as the controller."""
        history = ImageHistory()
        await self.catch_up(history)
        return history

    async def catch_up(self, history: ImageHistory) -> None:
        body = await self.answers.answer(VERSION, history.place, _POLL_SECONDS)
        await take_answer(history, history.place, decode_response(ApiKey.FETCH_IMAGE, VERSION, body), VERSION)


def _name_of(number: int) -> tuple[str, int]:
    return f"topic-{number // PARTITIONS_OF_A_TOPIC:05}", number % PARTITIONS_OF_A_TOPIC


@asynccontextmanager
async def stream_scene(broker_count: int, partition_count: int) -> AsyncIterator[StreamScene]:
    """Its partitions have three replicas, and are led by live brokers."""
    async with EmbeddedMetadata.in_memory(SystemClock()) as store:
        session = store.session()
        await ensure_layout(session)
        await session.create(_UNWATCHED)
        registered = []
        for broker_id in range(1, broker_count + 1):
            endpoints = (Endpoint("PLAINTEXT", "PLAINTEXT", f"host-{broker_id}", 9092),)
            epoch = await register_broker(session, BrokerRegistration(broker_id, endpoints))
            registered.append(RegisteredBroker(broker_id, epoch, endpoints))
        brokers = ClusterImage().apply(map(BrokerChanged, registered))
        scene = StreamScene(session, partition_count)
        controllership = await scene.claim()
        writer = TopicWriter(controllership, Random(1), lambda: brokers)
        factor = min(REPLICATION_FACTOR, broker_count)
        for number in range(0, partition_count, PARTITIONS_OF_A_TOPIC):
            await writer.create(writer.plan(brokers, _name_of(number)[0], PARTITIONS_OF_A_TOPIC, factor))
        scene.begin(controllership, ImageHistory())
        try:
            await scene.controller.is_whole.wait()
            yield scene
        finally:
            await scene.stop()


def _led_again(one: Partition, controller_epoch: int) -> PartitionState:
    """The state of its next leadership, by the same broker."""
    epochs, minimum = one.isr_epochs, one.min_insync_replicas
    return PartitionState(
        one.leader, one.leader_epoch + 1, one.isr, controller_epoch, isr_epochs=epochs, min_insync_replicas=minimum
    )


def undisturbed(seconds: Sequence[float]) -> float:
    """What a tenth of them is below: whatever else the machine does only adds to it, threefold at times."""
    return sorted(seconds)[len(seconds) // 10]


async def cost_of_change(scene: StreamScene, stub_count: int, changes: int) -> Cost:
    """Noticed, read, published, encoded, and told to the stubs that wait for it; without the write."""
    stubs = scene.stubs(stub_count)
    one = scene.image.topics[_name_of(0)[0]].partitions[0]
    state = _led_again(one, 1).encode()
    spent = []
    for number in range(changes):
        began = time.process_time()
        await scene.session.set(_UNWATCHED, state)
        written = time.process_time()
        telling = asyncio.ensure_future(scene.tell(stubs))
        await asyncio.sleep(0)  # they begin to wait
        await scene.change_partition(number % scene.partition_count)
        await telling
        spent.append(time.process_time() - written - (written - began))
    told, wholes = sum(stub.told_bytes for stub in stubs), sum(stub.whole_images for stub in stubs)
    return Cost(undisturbed(spent), told // changes, wholes)


async def cost_of_takeover(scene: StreamScene, stub_count: int) -> Cost:
    """The controller dies, and the next one has elected leaders for what it led, and told all stubs.

    A third of the stubs has not heard of the last change before the death.
    """
    next_history = await scene.follower()
    behind = scene.stubs(stub_count // 3)
    await scene.change_partition(0)
    await scene.catch_up(next_history)
    stubs = behind + scene.stubs(stub_count - len(behind))
    dead = scene.controller_id
    led = [
        (topic.name, one.index)
        for topic in scene.image.topics.values()
        for one in topic.partitions
        if one.leader == dead
    ]
    await scene.kill_controller()
    gauge = _HoldGauge()
    before = time.process_time()
    scene.begin(await scene.claim(), next_history)
    await scene.controller.is_whole.wait()
    await scene.history.wait_for(
        lambda image: all(image.topics[name].partitions[index].leader != dead for name, index in led)
    )
    while late := [stub for stub in stubs if stub.place != scene.history.place]:
        await scene.tell(late)
    cpu_seconds = time.process_time() - before
    await gauge.stop()
    told, wholes = sum(stub.told_bytes for stub in stubs), sum(stub.whole_images for stub in stubs)
    return Cost(cpu_seconds, told, wholes, gauge.held_seconds)


def cost_of_whole_image(image: ClusterImage, version: int, rounds: int) -> WholeImage:
    """In processor time, the shortest of the rounds."""
    schema = FETCH_IMAGE_RESPONSES[version]
    encode, decode = [], []
    for _ in range(rounds):
        began = time.process_time()
        body = write_values(schema, {**whole_values_of(image), "is_whole": True})
        encoded = time.process_time()
        changes = finish(changes_in(decode_response(ApiKey.FETCH_IMAGE, version, body)))
        finish(ClusterImage().replaced_by(changes))
        encode.append(encoded - began)
        decode.append(time.process_time() - encoded)
    return WholeImage(len(body), min(encode), min(decode))


class _HoldGauge:
    """Looks at each turn of the event loop how long the last one was, in processor time of the thread."""

    def __init__(self) -> None:
        self.held_seconds = 0.0
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.held_seconds = max(self.held_seconds, now - last)
            last = now

    async def stop(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
