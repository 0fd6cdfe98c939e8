"""How long a single callback holds the event loop, measured from the inside: in processor time, which is precise."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from barnabas.wire.apis import ApiKey
from tests.support.broker_parts import ServedBroker, new_topic, served_broker
from tests.support.loop_turns import TRIES
from tests.support.loop_waits import CALLBACK_SECONDS_MAX, LongestCallback, longest_callback

PARTITIONS = 1_000
TOPICS = 100
PATIENCE_SECONDS = 120


def _measure(directory: Path, scene: Callable[[ServedBroker], Awaitable[None]]) -> None:
    """Plays a scene on asyncio's own loop, whose callbacks can be watched; again when a busy machine disturbed it."""

    async def play(number: int) -> LongestCallback:
        async with asyncio.timeout(PATIENCE_SECONDS), served_broker(directory / str(number)) as broker:
            with longest_callback() as longest:
                await scene(broker)
        return longest

    longest = [asyncio.run(play(0))]
    while longest[-1].seconds > CALLBACK_SECONDS_MAX:
        assert len(longest) < TRIES, longest
        longest.append(asyncio.run(play(len(longest))))


async def _delete(broker: ServedBroker, names: list[str]) -> None:
    asked = [{"name": name, "topic_id": None} for name in names]
    answer = await broker.ask(ApiKey.DELETE_TOPICS, 6, topics=asked, timeout_ms=60_000)
    assert {one.error_code.value for one in answer.responses} == {0}


def test_watch_of_callbacks_notices_one_that_takes_long() -> None:
    async def hold() -> None:
        ends = time.thread_time() + 2 * CALLBACK_SECONDS_MAX
        while time.thread_time() < ends:
            pass

    with longest_callback() as longest:
        asyncio.run(hold())
    assert longest.seconds > CALLBACK_SECONDS_MAX


def test_topic_of_thousands_of_partitions_comes_and_goes_in_slices(tmp_path: Path) -> None:
    """Deleting it took half a second, in one callback; twice as many took four times as long."""

    async def scene(broker: ServedBroker) -> None:
        await broker.create("wide", PARTITIONS)
        await broker.broker.replicas.wait_for(lambda image: "wide" in image.topics)
        await _delete(broker, ["wide"])
        assert not list(broker.broker.logs)

    _measure(tmp_path, scene)


def test_many_topics_come_and_go_in_slices(tmp_path: Path) -> None:
    async def scene(broker: ServedBroker) -> None:
        names = [f"topic-{number}" for number in range(TOPICS)]
        topics = [new_topic(name, 2) for name in names]
        answer = await broker.ask(ApiKey.CREATE_TOPICS, 4, topics=topics, timeout_ms=60_000)
        assert {one.error_code.value for one in answer.topics} == {0}
        await _delete(broker, names)

    _measure(tmp_path, scene)
