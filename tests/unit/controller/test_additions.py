"""Replicas that are added to partitions: what is refused, what is written, and when it is complete."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from barnabas.base.uuid import ZERO_UUID
from barnabas.controller.additions import complete_additions, with_added
from barnabas.controller.alterations import AskedIsr
from barnabas.controller.controller import Controller
from barnabas.metadata.image import ClusterImage, Partition, RegisteredBroker, Topic
from barnabas.metadata.znodes import PartitionState, ReplicaAssignment
from barnabas.wire.errors import ErrorCode, KafkaError
from tests.unit.controller.test_controller import Member, cluster, create, is_led

THREE = {one: RegisteredBroker(one, 10 * one, ()) for one in (1, 2, 3)}
ONE = ReplicaAssignment((1,))


def test_added_replicas_are_new_until_they_have_joined() -> None:
    assert with_added(ONE, [1, 2, 3], THREE) == ReplicaAssignment((1, 2, 3), adding=(2, 3))
    growing = ReplicaAssignment((1, 2), adding=(2,))
    assert with_added(growing, [1, 2, 3], THREE) == ReplicaAssignment((1, 2, 3), adding=(2, 3))
    assert with_added(growing, [1, 2], THREE) == growing


def test_order_that_is_asked_for_is_taken() -> None:
    assert with_added(ReplicaAssignment((1, 2)), [3, 2, 1], THREE) == ReplicaAssignment((3, 2, 1), adding=(3,))


@pytest.mark.parametrize(
    ("before", "asked", "code", "reason"),
    [
        (ONE, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no broker"),
        (ONE, [1, 2, 2], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (ONE, [2, 3], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "moving them is not built yet"),
        (ONE, [1, 4], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 4, which is not registered"),
        (ONE, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no replica"),
        (ReplicaAssignment((1, 2), (2,)), None, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "cannot be cancelled"),
    ],
)
def test_what_is_refused(before: ReplicaAssignment, asked: Sequence[int] | None, code: ErrorCode, reason: str) -> None:
    with pytest.raises(KafkaError, match=reason) as caught:
        with_added(before, asked, THREE)
    assert caught.value.code is code


def test_replica_that_is_there_need_not_be_registered() -> None:
    assert with_added(ReplicaAssignment((4,)), [4, 1], THREE) == ReplicaAssignment((4, 1), adding=(1,))


def test_caller_who_allows_no_other_replication_factor_can_only_order() -> None:
    with pytest.raises(KafkaError) as caught:
        with_added(ONE, [1, 2], THREE, may_grow=False)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert with_added(ReplicaAssignment((1, 2)), [2, 1], THREE, may_grow=False).replicas == (2, 1)


def test_addition_is_complete_when_all_new_replicas_are_in_sync_together() -> None:
    waiting = Partition(0, (1, 2, 3), adding=(2, 3), isr=(1, 3))
    joined = Partition(1, (1, 2, 3), adding=(2, 3), isr=(2, 3))
    assert list(complete_additions(Topic("orders", ZERO_UUID, (waiting, joined, Partition(2, (1,)))))) == [1]


# -- as the controller writes it ---------------------------------------------------------------------------------------


def one(image: ClusterImage, index: int = 0) -> Partition:
    return image.topics["orders"].partitions[index]


async def join(controller: Controller, member: Member, *isr: int) -> None:
    """The leader proposes this ISR."""
    image, topic = member.history.image, member.history.image.topics["orders"]
    leader = one(image).leader
    epochs = {broker: image.brokers[broker].epoch for broker in isr}
    asked = AskedIsr(topic.id, 0, one(image).leader_epoch, one(image).partition_epoch, epochs)
    [answer] = await controller.alter_partitions(leader, image.brokers[leader].epoch, [asked])
    assert answer.error_code is ErrorCode.NONE


def test_minimum_rises_with_the_replicas_that_join_and_never_before() -> None:
    async def scenario() -> None:
        async with cluster() as (_, members):
            first = members[0]  # its topics want a minimum of 2
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await create(controller, "orders", 1)
            await first.wait_for(is_led("orders", 1))
            [leader] = one(first.history.image).replicas
            others = [broker for broker in (1, 2, 3) if broker != leader]
            assert one(first.history.image).min_insync_replicas == 1

            seen: list[tuple[int, int | None]] = []
            first.history.subscribe(lambda _, image: seen.append((len(one(image).isr), one(image).min_insync_replicas)))
            done, refusals = await controller.additions.add("orders", {0: [leader, *others]})
            assert (done, refusals) == ({0: (leader, *others)}, {})
            await first.wait_for(lambda image: len(one(image).replicas) == 3)
            assert one(first.history.image).adding == tuple(others)
            assert not controller.has_due_states(), "the minimum stays"

            await join(controller, first, leader, others[1])
            await first.wait_for(lambda image: one(image).min_insync_replicas == 2)
            assert one(first.history.image).adding == tuple(others)
            await join(controller, first, leader, *others)
            await first.wait_for(lambda image: not one(image).adding)
            assert one(first.history.image).min_insync_replicas == 2
            assert all(minimum is not None and in_sync >= minimum for in_sync, minimum in seen)

    asyncio.run(scenario())


def test_state_from_before_with_a_minimum_above_its_replicas_is_corrected_in_the_same_write() -> None:
    async def scenario() -> None:
        async with cluster() as (_, members):
            first = members[0]
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await create(controller, "orders", 1)
            await first.wait_for(is_led("orders", 1))
            [leader] = one(first.history.image).replicas
            path = PartitionState.path_of("orders", 0)
            [node] = await first.session.get_many([path])
            assert node is not None
            state = replace(PartitionState.decode(path, node.data), min_insync_replicas=2)
            controller._elections.hold = _nothing  # type: ignore[method-assign] # it would correct it first
            await first.session.set(path, state.encode())
            await first.wait_for(lambda image: one(image).min_insync_replicas == 2)

            seen: list[tuple[int, int | None]] = []
            first.history.subscribe(
                lambda _, image: seen.append((len(one(image).replicas), one(image).min_insync_replicas))
            )
            await controller.additions.add("orders", {0: [leader, *(two for two in (1, 2, 3) if two != leader)]})
            await first.wait_for(lambda image: len(one(image).replicas) == 3)
            assert (3, 2) not in seen
            assert seen[-1] == (3, 1)

    asyncio.run(scenario())


async def _nothing(*_: object) -> Sequence[object]:
    return ()


def test_partitions_are_answered_one_by_one_and_an_unknown_topic_at_once() -> None:
    async def scenario() -> None:
        async with cluster() as (_, members):
            first = members[0]
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            await create(controller, "orders", 3)
            await first.wait_for(is_led("orders", 3))
            [leader] = one(first.history.image, 2).replicas
            done, refusals = await controller.additions.add("orders", {0: [], 2: [leader], 7: [1], -1: [1], 1: None})
            assert done == {2: (leader,)}
            assert {index: error.code for index, error in refusals.items()} == {
                0: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                -1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                1: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            }
            for unknown in ("nobody", "no/path"):
                with pytest.raises(KafkaError) as caught:
                    await controller.additions.add(unknown, {0: [1]})
                assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(scenario())


def test_next_controller_completes_what_has_joined_meanwhile() -> None:
    async def scenario() -> None:
        async with cluster() as (_, (first, second, _third)):
            controller = await first.claim()
            await first.wait_for(lambda image: len(image.brokers) == 3)
            plan = controller.topics.plan_assigned(first.history.image, "orders", {0: [2]})
            await controller.topics.create(plan)
            await first.wait_for(is_led("orders", 1))
            controller.additions.complete = _nothing  # type: ignore[method-assign,assignment]
            await controller.additions.add("orders", {0: [2, 3]})
            await first.wait_for(lambda image: len(one(image).replicas) == 2)
            await join(controller, first, 2, 3)
            await first.wait_for(lambda image: one(image).min_insync_replicas == 2)
            assert one(first.history.image).adding == (3,)
            await first.die()
            await second.claim()
            await second.wait_for(lambda image: "orders" in image.topics and not one(image).adding)
            assert one(second.history.image).replicas == (2, 3)

    asyncio.run(scenario())
