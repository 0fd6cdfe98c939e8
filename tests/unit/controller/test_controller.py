"""Controllers that follow each other, on one store with a session for each broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from barnabas.base.clock import ManualClock
from barnabas.controller.controller import Controller
from barnabas.controller.controllership import claim_controller
from barnabas.controller.history import ImageHistory
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.identity import ensure_layout, register_broker
from barnabas.metadata.image import ClusterImage, PartitionsChanged
from barnabas.metadata.store import SetData
from barnabas.metadata.znodes import NO_LEADER, PartitionState
from barnabas.wire.errors import KafkaError
from tests.support.metadata_cluster import registration


@dataclass
class Member:
    """What a broker has of the cluster: a session, the image that it followed, perhaps the controller's role."""

    session: EmbeddedSession
    broker_id: int
    history: ImageHistory = field(default_factory=ImageHistory)
    controller: Controller | None = None
    running: "asyncio.Task[None] | None" = None

    async def claim(self) -> Controller:
        controllership = await claim_controller(self.session, self.broker_id, 0)
        assert controllership is not None
        self.controller = Controller(controllership, self.history, Random(1))
        self.running = asyncio.create_task(self.controller.run())
        return self.controller

    def fetch(self, controller: Controller) -> bool:
        """What FetchImage does; whether there was an answer."""
        told = controller.history
        changes = told.since(self.history.place)
        if changes is not None:
            self.history.follow(self.history.place, told.place, *self.history.image.follow(changes))
        elif controller.is_whole.is_set():
            self.history.restart(told.place, told.image)
        return changes is not None or controller.is_whole.is_set()

    async def wait_for(self, predicate: Callable[[ClusterImage], bool]) -> None:
        async with asyncio.timeout(120):
            await self.history.wait_for(predicate)

    async def die(self) -> None:
        """As with SIGKILL, when its session is closed for it."""
        if self.running is not None:
            self.running.cancel()
            with suppress(asyncio.CancelledError):
                await self.running
            self.running = None
        await self.session.close()


@asynccontextmanager
async def cluster(count: int = 3) -> AsyncIterator[tuple[EmbeddedMetadata, list[Member]]]:
    async with EmbeddedMetadata.in_memory(ManualClock()) as store:
        members = []
        for broker_id in range(1, count + 1):
            session = store.session()
            await ensure_layout(session)
            await register_broker(session, registration(broker_id))
            members.append(Member(session, broker_id))
        try:
            yield store, members
        finally:
            for member in members:
                if member.running is not None:
                    member.running.cancel()
                    with suppress(asyncio.CancelledError, SessionLost, ExceptionGroup):
                        await member.running


def leaders(image: ClusterImage, topic: str) -> list[int]:
    return [one.leader for one in image.topics[topic].partitions]


def is_led(topic: str, count: int) -> Callable[[ClusterImage], bool]:
    """Whether all partitions are granted to registrations."""

    def check(image: ClusterImage) -> bool:
        found = image.topics.get(topic)
        return (
            found is not None
            and sum(bool(one.isr_epochs) and one.leader != NO_LEADER for one in found.partitions) == count
        )

    return check


async def create(controller: Controller, name: str, partitions: int) -> None:
    await controller.topics.create(controller.topics.plan(controller.history.image, name, partitions, 1))


def test_topics_are_spread_granted_and_go_offline_with_their_broker() -> None:
    async def main() -> None:
        async with cluster() as (store, (first, second, third)):
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await create(controller, "orders", 6)
            await first.wait_for(is_led("orders", 6))
            assert sorted(leaders(first.history.image, "orders")) == [1, 1, 2, 2, 3, 3]
            assert second.fetch(controller)
            assert second.history.image == first.history.image
            await third.die()
            await first.wait_for(lambda image: leaders(image, "orders").count(NO_LEADER) == 2)
            session = store.session()
            await register_broker(session, registration(3))
            await first.wait_for(is_led("orders", 6))
            assert second.fetch(controller)
            assert second.history.image == first.history.image

    asyncio.run(main())


def test_next_controller_goes_on_from_the_image_that_it_followed() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, second, third)):
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await create(controller, "orders", 3)
            await first.wait_for(is_led("orders", 3))
            assert second.fetch(controller)
            assert third.fetch(controller)
            place = third.history.place
            await first.die()
            successor = await second.claim()
            await second.wait_for(lambda image: image.controller_id == 2 and NO_LEADER in leaders(image, "orders"))
            assert successor.history.since(place) is not None, "who was as far as it was needs no whole image"
            assert third.fetch(successor)
            assert third.history.image == second.history.image
            assert 1 not in third.history.image.brokers

    asyncio.run(main())


def test_next_controller_writes_no_state_without_what_an_older_version_did_not_tell_it() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, second, _)):
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await create(controller, "orders", 3)
            await first.wait_for(is_led("orders", 3))
            index = leaders(first.history.image, "orders").index(1)
            path = PartitionState.path_of("orders", index)
            state = PartitionState.decode(path, (await second.session.get(path)).data)
            await second.session.set(path, replace(state, elr=(7,), elr_epochs=(70,)).encode())
            await first.wait_for(lambda image: image.topics["orders"].partitions[index].elr == (7,))
            told = first.history.image.topics["orders"]
            lacking = told.partitions[index]._replace(elr=(), elr_epochs=())
            older = first.history.image.apply([PartitionsChanged("orders", told.id, (lacking,))])
            second.history.restart(first.history.place, older, version=0)

            await first.die()
            await second.claim()

            await second.wait_for(lambda image: image.topics["orders"].partitions[index].leader == NO_LEADER)
            assert second.history.image.topics["orders"].partitions[index].elr == (7,)

    asyncio.run(main())


def test_broker_that_is_ahead_of_a_new_controller_waits_until_that_has_read_the_tree() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, second, third)):
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            assert second.fetch(controller)
            await create(controller, "orders", 3)
            await first.wait_for(is_led("orders", 3))
            assert third.fetch(controller)
            await first.die()
            successor = await second.claim()
            while not successor.is_whole.is_set():
                assert not third.fetch(successor)
                assert "orders" in third.history.image.topics
                await asyncio.sleep(0)
            await second.wait_for(lambda image: "orders" in image.topics)
            assert third.fetch(successor)
            await second.wait_for(lambda image: leaders(image, "orders").count(NO_LEADER) == 1)

    asyncio.run(main())


def test_deposed_controller_writes_nothing_more() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, second, _)):
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await first.session.delete("/controller")  # as when its session was closed, and it does not know yet
            successor = await second.claim()
            with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
                await create(controller, "theirs", 1)
            await second.wait_for(lambda image: len(image.brokers) == 3)
            await create(successor, "ours", 1)
            await second.wait_for(is_led("ours", 1))
            assert "theirs" not in second.history.image.topics

    asyncio.run(main())


def test_what_somebody_writes_into_the_tree_reaches_the_image() -> None:
    async def main() -> None:
        async with cluster() as (store, (first, _, _)):
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await create(controller, "orders", 1)
            await first.wait_for(is_led("orders", 1))
            other = store.session()
            theirs = PartitionState(NO_LEADER, 40, first.history.image.topics["orders"].partitions[0].isr, 1)
            await other.multi([SetData(PartitionState.path_of("orders", 0), theirs.encode())])
            await first.wait_for(lambda image: image.topics["orders"].partitions[0].leader_epoch == 41)
            assert is_led("orders", 1)(first.history.image)

    asyncio.run(main())
