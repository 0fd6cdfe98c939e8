"""Long work in steps: a generator that pauses where others may be served, and returns its result at the end.

Messages are read and written this way, because a request or an answer may be long. A caller that serves nobody else
takes all steps at once.
"""

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

_Result = TypeVar("_Result")

Steps: TypeAlias = Generator[None, None, _Result]


def finish_soon(steps: Steps[_Result], steps_max: int) -> _Result | None:
    """The result if it takes at most `steps_max` steps; else None, and the work is abandoned."""
    for _ in range(steps_max + 1):
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
    steps.close()
    return None


def finish(steps: Steps[_Result]) -> _Result:
    """Takes all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result


async def finish_in_turns(steps: Steps[_Result], together: int) -> _Result:
    """Takes `together` steps in each turn of the event loop."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
        count += 1
        if count % together == 0:
            await asyncio.sleep(0)
