"""A thread with an event loop of its own, on which the brokers of a test live.

Whatever the test does meanwhile, they serve: the test blocks, runs a loop of its own, or sleeps.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

_Result = TypeVar("_Result")


class LoopThread:
    """Runs from its creation until `end`. Its methods are for other threads."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._is_ending = asyncio.Event()
        self.thread = threading.Thread(target=self._serve, name="barnabas-test-broker", daemon=True)
        self.thread.start()

    def begin(self, work: Coroutine[Any, Any, _Result]) -> "concurrent.futures.Future[_Result]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self.begin(work).result()

    def end(self) -> None:
        """Returns when the thread has ended. What still runs on the loop is cancelled."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended before
            self._loop.call_soon_threadsafe(self._is_ending.set)
        self.thread.join()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._wait_for_end())

    async def _wait_for_end(self) -> None:
        await self._is_ending.wait()
