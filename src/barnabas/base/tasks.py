"""The tasks of one owner: none is lost, none fails in silence.

asyncio reports an exception that nobody awaits when the task is garbage-collected, if ever. These tasks report at once
to the event loop's exception handler (`barnabas.base.supervision`), in the context in which `Tasks` was made, not that
of the caller of `start`. They are kept in the order of their start: effects of a stop never depend on hashes.

Owner: the event loop.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextvars import copy_context
from typing import Any, TypeVar

from barnabas.base.supervision import report_bug

_Result = TypeVar("_Result")


class Tasks:
    """`start` them; `drain` waits for them, `stop` cancels them."""

    __slots__ = ("_context", "_loop", "_tasks")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = copy_context()
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        """Those that have not ended, the oldest first."""
        return iter(tuple(self._tasks))

    def start(self, work: Coroutine[Any, Any, _Result]) -> "asyncio.Task[_Result]":
        context = self._context.copy()
        task = self._loop.create_task(work, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._ended, context=context)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (bug := task.exception()) is not None:
            report_bug(self._loop, f"{task.get_coro()!r} failed", bug)

    async def drain(self) -> None:
        """Waits until none is left, also of those that are started meanwhile."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def stop(self) -> None:
        """Cancels each and waits for its end, the latest first."""
        while self._tasks:
            task = next(reversed(self._tasks))
            task.cancel()
            await asyncio.wait([task])
            await asyncio.sleep(0)  # `_ended` is called
