"""Slow requests take turns."""

import asyncio

from barnabas.broker.turns import Turns


def test_few_go_on_at_once_and_many_in_order_over_several_turns() -> None:
    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop(), together_max=3)
        served: list[tuple[int, int]] = []
        turn_number = 0

        async def work(number: int) -> None:
            await turns.take()
            served.append((turn_number, number))

        tasks = [asyncio.create_task(work(number)) for number in range(10)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            turn_number += 1
        assert [number for _, number in served] == list(range(10))
        by_turn = [turn for turn, _ in served]
        assert max(by_turn.count(turn) for turn in by_turn) == 3

    asyncio.run(scenario())


def test_who_has_gone_takes_no_turn() -> None:
    async def scenario() -> None:
        turns = Turns(asyncio.get_running_loop(), together_max=1)
        tasks = [asyncio.create_task(turns.take()) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [task.cancelled() for task in tasks] == [False, True, False, False]
        await turns.take()

    asyncio.run(scenario())
