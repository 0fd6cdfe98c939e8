"""Slow requests take turns."""

import asyncio
from functools import partial
from typing import Any

import pytest

from barnabas.broker.turns import Turns


async def _some_turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_few_are_done_at_once_and_many_in_order_over_several_turns() -> None:
    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop(), together_max=3)
        served: list[int] = []
        for number in range(10):
            turns.call(partial(served.append, number))
        counts = [len(served)]
        for _ in range(4):
            await asyncio.sleep(0)
            counts.append(len(served))
        assert counts == [3, 6, 9, 10, 10]
        assert served == list(range(10))

    asyncio.run(scenario())


def test_work_that_asks_for_more_work_does_not_overtake_what_waits() -> None:
    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop(), together_max=1)
        served: list[str] = []

        def first() -> None:
            served.append("first")
            turns.call(lambda: served.append("its answer"))

        turns.call(first)
        turns.call(lambda: served.append("second"))
        await _some_turns()
        assert served == ["first", "its answer", "second"]

    asyncio.run(scenario())


def test_turns_that_are_over_leave_no_task_behind() -> None:
    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop())
        turns.call(lambda: None)
        await _some_turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        served: list[str] = []
        turns.call(lambda: served.append("again"))
        assert served == ["again"]

    asyncio.run(scenario())


@pytest.mark.parametrize("turns_between", range(6))
def test_storm_that_comes_just_when_the_last_one_ends_is_served(turns_between: int) -> None:
    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop(), together_max=2)
        served: list[int] = []
        turns.call(lambda: None)
        for _ in range(turns_between):
            await asyncio.sleep(0)
        for number in range(10):
            turns.call(partial(served.append, number))
        await _some_turns()
        assert served == list(range(10))

    asyncio.run(scenario())


def test_mistake_in_work_that_waited_is_told_and_the_next_call_goes_on() -> None:
    async def scenario() -> None:
        bugs: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: bugs.append(context))
        turns = Turns(loop, together_max=1)

        def mistaken() -> None:
            raise AssertionError("a mistake")

        served: list[str] = []
        turns.call(lambda: served.append("first"))
        turns.call(mistaken)
        await _some_turns()
        assert [str(bug["exception"]) for bug in bugs] == ["a mistake"]
        turns.call(lambda: served.append("second"))
        await _some_turns()
        assert served == ["first", "second"]

    asyncio.run(scenario())
