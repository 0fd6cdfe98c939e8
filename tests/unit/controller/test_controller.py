"""Controllers that follow each other, on one store with a session for each broker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

import pytest

from barnabas.base.clock import ManualClock
from barnabas.base.ids import TopicPartition
from barnabas.controller.alterations import AskedIsr
from barnabas.controller.configs import update_broker_configs, update_topic_configs
from barnabas.controller.controller import Controller
from barnabas.controller.controller_options import ControllerOptions
from barnabas.controller.controllership import claim_controller
from barnabas.controller.history import ImageHistory
from barnabas.controller.in_sync import led_by_preferred
from barnabas.controller.replication_rules import ReplicationRules
from barnabas.metadata.embedded import EmbeddedMetadata
from barnabas.metadata.embedded_session import EmbeddedSession
from barnabas.metadata.errors import SessionLost
from barnabas.metadata.identity import ensure_layout, register_broker
from barnabas.metadata.image import ClusterImage, Partition, PartitionsChanged, Topic
from barnabas.metadata.store import SetData
from barnabas.metadata.znodes import NO_LEADER, PartitionState
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.support.metadata_cluster import registration

MINIMUM = "min.insync.replicas"


@dataclass
class Member:
    """What a broker has of the cluster: a session, the image that it followed, perhaps the controller's role."""

    session: EmbeddedSession
    broker_id: int
    history: ImageHistory = field(default_factory=ImageHistory)
    rules: ReplicationRules = field(default_factory=lambda: ReplicationRules(2))
    """Of topics that do not set `min.insync.replicas`."""
    rebalance_seconds: float | None = None
    controller: Controller | None = None
    running: "asyncio.Task[None] | None" = None

    async def claim(self) -> Controller:
        controllership = await claim_controller(self.session, self.broker_id, 0)
        assert controllership is not None
        self.controller = Controller(
            controllership, self.history, Random(1), ControllerOptions(self.rules_of, self.rebalance_seconds)
        )
        self.running = asyncio.create_task(self.controller.run())
        return self.controller

    def rules_of(self, image: ClusterImage, configs: Mapping[str, str]) -> ReplicationRules:
        default = image.configs_of_broker(None).get(MINIMUM, self.rules.min_insync_replicas)
        return self.rules._replace(min_insync_replicas=int(configs.get(MINIMUM, default)))

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


async def create(controller: Controller, name: str, partitions: int, replicas: int = 1) -> None:
    await controller.topics.create(controller.topics.plan(controller.history.image, name, partitions, replicas))


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
        async with cluster() as (_, (first, second, third)):
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await create(controller, "orders", 3, 2)
            await first.wait_for(is_led("orders", 3))
            index = leaders(first.history.image, "orders").index(1)
            path = PartitionState.path_of("orders", index)
            state = PartitionState.decode(path, (await second.session.get(path)).data)
            away = state.isr[1]
            alone = replace(
                state, isr=(1,), isr_epochs=state.isr_epochs[:1], elr=(away,), elr_epochs=state.isr_epochs[1:]
            )
            await second.session.set(path, alone.encode())
            await first.wait_for(lambda image: image.topics["orders"].partitions[index].elr == (away,))
            told = first.history.image.topics["orders"]
            lacking = told.partitions[index]._replace(elr=(), elr_epochs=())
            older = first.history.image.apply([PartitionsChanged("orders", told.id, (lacking,))])
            successor = third if away == 2 else second
            successor.history.restart(first.history.place, older, version=0)

            await first.die()
            await successor.claim()

            await successor.wait_for(lambda image: image.topics["orders"].partitions[index].leader == away)

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


# -- min.insync.replicas -----------------------------------------------------------------------------------------------


def minimums(image: ClusterImage, topic: str = "orders") -> list[int | None]:
    found = image.topics.get(topic)
    return [] if found is None else [one.min_insync_replicas for one in found.partitions]


def test_states_have_the_minimum_from_the_beginning_and_follow_its_changes() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, second, _)):
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            seen: list[list[int | None]] = []
            first.history.subscribe(lambda _, image: seen.append(minimums(image)))
            plan = controller.topics.plan(first.history.image, "orders", 2, 3, {MINIMUM: "3"})
            await controller.topics.create(plan)
            await first.wait_for(lambda image: MINIMUM in image.configs_of_topic("orders"))
            assert [one for one in seen if one not in ([], [3, 3])] == [], "never the default's"
            await controller.topics.add_partitions(first.history.image, "orders", 3)
            await first.wait_for(lambda image: minimums(image) == [3, 3, 3])

            await update_topic_configs(controller.controllership, "orders", lambda _: {})
            await first.wait_for(lambda image: minimums(image) == [2, 2, 2])
            await update_broker_configs(controller.controllership, None, lambda _: {MINIMUM: "1"})
            await first.wait_for(lambda image: minimums(image) == [1, 1, 1])
            assert {one.leader_epoch for one in first.history.image.topics["orders"].partitions} == {0}

            await update_broker_configs(controller.controllership, None, lambda _: {})
            await first.wait_for(lambda image: minimums(image) == [2, 2, 2])
            assert second.fetch(controller)
            await first.die()
            second.rules = ReplicationRules(3)
            await second.claim()
            await second.wait_for(lambda image: minimums(image) == [3, 3, 3])

    asyncio.run(main())


# -- AlterPartition ----------------------------------------------------------------------------------------------------


async def three_in_sync(first: Member) -> tuple[Controller, Topic, int]:
    """A controller, a topic with one partition on three brokers, and the broker that leads it."""
    controller = await first.claim()
    await first.wait_for(lambda image: len(image.brokers) == 3)
    await create(controller, "orders", 1, 3)
    await first.wait_for(is_led("orders", 1))
    topic = first.history.image.topics["orders"]
    return controller, topic, topic.partitions[0].leader


def asked(topic: Topic, partition: Partition, *members: int) -> AskedIsr:
    epochs = dict(zip(topic.partitions[0].isr, topic.partitions[0].isr_epochs, strict=True))
    isr = {one: epochs[one] for one in members}
    return AskedIsr(topic.id, 0, partition.leader_epoch, partition.partition_epoch, isr)


def test_leader_alters_its_isr_again_before_the_image_has_the_first_alteration() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, _, _)):
            controller, topic, leader = await three_in_sync(first)
            known = topic.partitions[0]
            leader_epoch = first.history.image.brokers[leader].epoch
            others = [one for one in known.replicas if one != leader]

            [shrunk] = await controller.alter_partitions(leader, leader_epoch, [asked(topic, known, leader, others[0])])
            assert shrunk.error_code is ErrorCode.NONE
            assert shrunk.partition is not None
            assert sorted(shrunk.partition.isr) == sorted([leader, others[0]])
            assert shrunk.partition.partition_epoch == known.partition_epoch + 1
            assert first.history.image.topics["orders"].partitions[0] == known, "the image comes later"

            [late] = await controller.alter_partitions(leader, leader_epoch, [asked(topic, known, leader)])
            assert late.error_code is ErrorCode.INVALID_UPDATE_VERSION
            all_again = asked(topic, shrunk.partition, leader, *others)
            [grown] = await controller.alter_partitions(leader, leader_epoch, [all_again])
            assert grown.partition is not None
            await first.wait_for(lambda image: image.topics["orders"].partitions[0] == grown.partition)

    asyncio.run(main())


def test_alterations_are_answered_one_by_one_in_the_order_in_which_they_were_asked() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, _, _)):
            controller, topic, leader = await three_in_sync(first)
            known, epoch = topic.partitions[0], first.history.image.brokers[leader].epoch
            good = asked(topic, known, leader)
            path = PartitionState.path_of("orders", 0)
            wanted = [
                good._replace(topic_id=UUID(int=7)),
                good._replace(index=5),
                good._replace(leader_epoch=good.leader_epoch + 1),
                good,
                good._replace(isr={leader: epoch, **{one: 1 for one in known.replicas if one != leader}}),
            ]
            answers = await controller.alter_partitions(leader, epoch, wanted)
            assert [one.error_code for one in answers] == [
                ErrorCode.UNKNOWN_TOPIC_ID,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NOT_CONTROLLER,
                ErrorCode.NONE,
                ErrorCode.INVALID_UPDATE_VERSION,
            ]
            state = PartitionState.decode(path, (await first.session.get(path)).data)
            assert (state.isr, len(state.elr)) == ((leader,), 2)

    asyncio.run(main())


def test_alteration_over_a_state_that_somebody_else_wrote_is_refused() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, _, _)):
            controller, topic, leader = await three_in_sync(first)
            path = PartitionState.path_of("orders", 0)
            theirs = PartitionState.decode(path, (await first.session.get(path)).data)
            await first.session.set(path, theirs.encode())
            epoch = first.history.image.brokers[leader].epoch
            [answer] = await controller.alter_partitions(leader, epoch, [asked(topic, topic.partitions[0], leader)])
            assert answer.error_code is ErrorCode.INVALID_UPDATE_VERSION
            assert PartitionState.decode(path, (await first.session.get(path)).data) == theirs

    asyncio.run(main())


def test_alterations_of_another_registration_are_refused_as_a_whole() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, _, _)):
            controller, topic, leader = await three_in_sync(first)
            wanted = [asked(topic, topic.partitions[0], leader)]
            for broker, epoch in ((leader, 1), (9, 1)):
                with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
                    await controller.alter_partitions(broker, epoch, wanted)

    asyncio.run(main())


def test_alteration_whose_outcome_is_unknown_is_not_answered() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, _, _)):
            controller, topic, leader = await three_in_sync(first)
            epoch = first.history.image.brokers[leader].epoch
            await first.die()
            with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
                await controller.alter_partitions(leader, epoch, [asked(topic, topic.partitions[0], leader)])

    asyncio.run(main())


# -- preferred leaders -------------------------------------------------------------------------------------------------


def test_preferred_replicas_lead_again_by_themselves_after_a_while() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, second, _)):
            first.rebalance_seconds = 0.001
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await create(controller, "orders", 3, 3)
            await first.wait_for(is_led("orders", 3))
            known = first.history.image.topics["orders"].partitions[0]
            path = PartitionState.path_of("orders", 0)
            state = PartitionState.decode(path, (await second.session.get(path)).data)
            await second.session.set(path, replace(state, leader=known.replicas[1], leader_epoch=8).encode())
            await first.wait_for(lambda image: image.topics["orders"].partitions[0].leader_epoch == 9)
            assert first.history.image.topics["orders"].partitions[0].leader == known.replicas[0]

    asyncio.run(main())


# -- brokers that stop -------------------------------------------------------------------------------------------------


def test_broker_that_stops_leads_nothing_more_and_does_not_come_back_into_an_isr() -> None:
    async def main() -> None:
        async with cluster() as (_, (first, _, _)):
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await create(controller, "orders", 3, 3)
            await controller.topics.create(
                controller.topics.plan_assigned(first.history.image, "single", {0: [2], 1: [3]})
            )
            await first.wait_for(is_led("orders", 3))
            await first.wait_for(is_led("single", 2))
            brokers = first.history.image.brokers

            await controller.let_stop(2, brokers[2].epoch)
            image = first.history.image
            assert sorted(set(leaders(image, "orders"))) == [1, 3]
            assert all(2 not in one.isr for one in image.topics["orders"].partitions)
            assert leaders(image, "single") == [2, 3], "nobody else has it"

            topic = image.topics["orders"]
            one = topic.partitions[0]
            epochs = {broker: brokers[broker].epoch for broker in (1, 2, 3)}
            joining = AskedIsr(topic.id, 0, one.leader_epoch, one.partition_epoch, epochs)
            [answer] = await controller.alter_partitions(one.leader, brokers[one.leader].epoch, [joining])
            assert answer.error_code is ErrorCode.INELIGIBLE_REPLICA
            [(_, answer)] = await controller.elect_leaders(
                [TopicPartition("orders", [one.replicas[0] for one in topic.partitions].index(2))], led_by_preferred
            )
            assert answer.error_code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

            await controller.let_stop(3, brokers[3].epoch)
            assert set(leaders(first.history.image, "orders")) == {1}
            before = first.history.image
            await controller.let_stop(1, brokers[1].epoch)
            assert first.history.image == before, "the last one keeps what it has"
            with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
                await controller.let_stop(2, brokers[2].epoch + 1)

    asyncio.run(main())
