"""FetchImage as the controller answers it: to brokers that are behind, up to date, of another history, or new."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from barnabas.controller.controller import Controller
from barnabas.controller.following import take_answer
from barnabas.controller.history import NOWHERE, ImageHistory, Place
from barnabas.controller.image_answers import ImageAnswers
from barnabas.metadata.identity import register_broker
from barnabas.wire.image_messages import FETCH_IMAGE_RESPONSES
from barnabas.wire.reader import message_reader
from tests.support.metadata_cluster import MetadataCluster, registration, run_in_cluster

LONG = 60.0
NEWEST = len(FETCH_IMAGE_RESPONSES) - 1


def decoded(body: bytes, version: int = NEWEST) -> Any:
    return message_reader(FETCH_IMAGE_RESPONSES[version])(body, 0)[0]


async def take(history: ImageHistory, body: bytes, version: int = NEWEST) -> None:
    """What a broker does with an answer."""
    await take_answer(history, history.place, decoded(body, version), version)


def run_with_answers(
    scenario: Callable[[MetadataCluster, Controller, ImageAnswers], Awaitable[None]], *, is_running: bool = True
) -> None:
    async def main(cluster: MetadataCluster) -> None:
        controller = Controller(cluster.controllership, ImageHistory(), Random(1))
        answers = ImageAnswers(controller)
        running = asyncio.create_task(controller.run()) if is_running else None
        if running is not None:
            await controller.is_whole.wait()
        try:
            async with asyncio.timeout(20):
                await scenario(cluster, controller, answers)
        finally:
            answers.close()
            if running is not None:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running

    run_in_cluster(main, (1, 2, 3))


def test_new_broker_gets_everything_and_then_changes() -> None:
    async def scenario(cluster: MetadataCluster, controller: Controller, answers: ImageAnswers) -> None:
        broker = ImageHistory()
        await cluster.create("orders", 4, **{"retention.ms": "1000"})
        await take(broker, await answers.answer(NEWEST, broker.place, LONG))
        await cluster.create("payments", 2)
        while broker.image.topics.keys() != {"orders", "payments"} or broker.image != controller.history.image:
            body = await answers.answer(NEWEST, broker.place, LONG)
            assert not decoded(body).is_whole
            await take(broker, body)
        assert broker.image.configs_of_topic("orders") == {"retention.ms": "1000"}

    run_with_answers(scenario)


def test_broker_that_is_up_to_date_waits_for_a_change_or_until_its_time_is_over() -> None:
    async def scenario(cluster: MetadataCluster, controller: Controller, answers: ImageAnswers) -> None:
        place = controller.history.place
        nothing = decoded(await answers.answer(NEWEST, place, 0.01))
        assert (nothing.controller_epoch, nothing.position, nothing.topics) == (*place, ())
        waiting = asyncio.create_task(answers.answer(NEWEST, place, LONG))
        await cluster.create("orders")
        assert [one.name for one in decoded(await waiting).topics] == ["orders"]

    run_with_answers(scenario)


def test_brokers_at_the_same_place_are_told_the_same_bytes() -> None:
    async def scenario(cluster: MetadataCluster, controller: Controller, answers: ImageAnswers) -> None:
        place = controller.history.place
        waiting = [asyncio.create_task(answers.answer(NEWEST, place, LONG)) for _ in range(100)]
        await cluster.create("orders")
        bodies = await asyncio.gather(*waiting)
        assert len({id(body) for body in bodies}) == 1
        wholes = await asyncio.gather(*[answers.answer(NEWEST, NOWHERE, LONG) for _ in range(100)])
        assert len({id(body) for body in wholes}) == 1

    run_with_answers(scenario)


def test_older_version_is_answered_in_its_own_form() -> None:
    async def scenario(cluster: MetadataCluster, controller: Controller, answers: ImageAnswers) -> None:
        await cluster.create("orders")
        old, new = [decoded(await answers.answer(version, NOWHERE, LONG), version) for version in (0, NEWEST)]
        assert old.topics[0].partitions[0].index == 0
        assert (new.topics[0].partition_count, new.blocks[0].numbers[0]) == (1, 0)

    run_with_answers(scenario)


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "followed before"])
def test_broker_that_followed_in_an_older_version_lacks_nothing_when_it_follows_in_a_newer_one(is_new: bool) -> None:
    async def scenario(cluster: MetadataCluster, controller: Controller, answers: ImageAnswers) -> None:
        broker = ImageHistory()
        if not is_new:
            await take(broker, await answers.answer(NEWEST, broker.place, LONG))
        await register_broker(cluster.session, replace(registration(4), previous_epoch=17, intact_since=12))
        await controller.history.wait_for(lambda image: 4 in image.brokers)
        while broker.place != controller.history.place:
            await take(broker, await answers.answer(0, broker.place_in(0), LONG), 0)
        assert broker.image.brokers[4].previous_epoch is None
        assert broker.place_in(0) == broker.place

        await take(broker, await answers.answer(NEWEST, broker.place_in(NEWEST), LONG))

        assert broker.image == controller.history.image
        assert broker.place_in(NEWEST) == broker.place == controller.history.place

    run_with_answers(scenario)


def test_controller_that_has_not_read_the_tree_yet_gives_no_whole_image() -> None:
    async def scenario(cluster: MetadataCluster, controller: Controller, answers: ImageAnswers) -> None:
        controller.history.begin_epoch(2, 1)
        ahead = Place(1, 17)
        answer = decoded(await answers.answer(NEWEST, ahead, 0.01))
        assert (answer.is_whole, answer.controller_epoch, answer.position) == (False, *ahead)
        waiting = asyncio.create_task(answers.answer(NEWEST, ahead, LONG))
        await asyncio.sleep(0)
        assert not waiting.done()
        controller.is_whole.set()
        assert decoded(await waiting).is_whole

    run_with_answers(scenario, is_running=False)
