"""An event loop whose time is virtual: it never waits, and jumps to the next timer when nothing is left to do.

It is asyncio's own selector loop with another selector and another clock. What would run in a thread runs on the loop,
after a delay that the seed decides; so one seed gives one order of events. Each callback belongs to a `Process`.

A loop on which nothing can happen any more raises `Deadlock` and says who waits for what. One whose time passes the
limit raises `TimeIsUp`; one that calls back without end at the same moment raises `Spinning`.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextvars import Context, copy_context
from functools import partial
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from barnabas.sim.world.process import PROCESS, Process, Step

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")

JOB_SECONDS_MAX: Final = 0.002
"""How long a worker thread takes at most before it does its work."""
_TURNS_PER_MOMENT_MAX: Final = 50_000
_RESOLUTION_SECONDS: Final = 1e-7
"""Timers are due a little early, or after weeks of virtual time the smallest step of a float would be too small."""
_STACK_DEPTH: Final = 6


class Deadlock(Exception):  # noqa: N818 - named as the fact that it is
    """Nothing will ever happen again, and somebody still waits."""


class TimeIsUp(Exception):  # noqa: N818 - named as the fact that it is
    """The history did not come to its end in the virtual time that it was given."""


class Spinning(Exception):  # noqa: N818 - named as the fact that it is
    """Callbacks follow each other without time passing."""


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, random: Random, seconds_max: float) -> None:
        self._now = 0.0
        self._random = random
        self._seconds_max = seconds_max
        self._turns_at_moment = 0
        self._owners: WeakKeyDictionary[asyncio.Task[Any], Process] = WeakKeyDictionary()
        super().__init__(_NoDescriptors(self))
        self._clock_resolution = _RESOLUTION_SECONDS
        self.set_task_factory(self._make_task)  # type: ignore[arg-type] # the stub wants positional names

    def time(self) -> float:
        return self._now

    def pass_time(self, seconds: float | None) -> None:
        """What the selector does instead of waiting."""
        if seconds is None:
            raise Deadlock(f"nothing will ever happen again\n{self.describe_tasks()}")
        if seconds > 0:
            self._now += seconds
            self._turns_at_moment = 0
            if self._now > self._seconds_max:
                raise TimeIsUp(f"not over after {self._seconds_max:g} s of virtual time\n{self.describe_tasks()}")
            return
        self._turns_at_moment += 1
        if self._turns_at_moment > _TURNS_PER_MOMENT_MAX:
            raise Spinning(f"callbacks without end at {self._now:.6f} s\n{self.describe_tasks()}")

    # Callbacks

    def call_soon(
        self,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        process = context.get(PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        step = Step(process, callback, args)
        step.context = context
        step.handle = super().call_soon(step, context=context)
        return step.handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        process = context.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        step = Step(process, callback, args)
        step.context = context
        handle = super().call_at(when, step, context=context)
        step.handle = handle
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, _Result],
        context: Context | None = None,
        **named: Any,
    ) -> asyncio.Task[_Result]:
        task = asyncio.Task(coroutine, loop=loop, context=context, **named)
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            self._owners[task] = process
            process.add(task)
        return task

    # Processes

    def hold(self, process: Process, seconds: float) -> None:
        """Stops a process for a while."""
        process.hold()
        self.call_later(seconds, self.release, process, context=Context())

    def release(self, process: Process) -> None:
        for step in process.release():
            super().call_soon(step.resumed, context=step.context)

    def timers_of(self, process: Process) -> list[str]:
        """What is due at some time and was not cancelled: the names of the callbacks."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined] # asyncio's own heap
        return sorted(
            f"{getattr(step.callback, '__qualname__', step.callback)} at {timer.when():.3f} s"
            for timer in scheduled
            if not timer.cancelled()
            and isinstance(step := timer._callback, Step)  # type: ignore[attr-defined] # noqa: SLF001
            and step.process is process
        )

    # Threads

    def run_in_executor(  # type: ignore[override] # asyncio's stub names a coroutine
        self, executor: Executor | None, func: Callable[..., _Result], *args: Any
    ) -> asyncio.Future[_Result]:
        """Runs it on the loop, a little later. The executor, if any, is only whose thread it would have been."""
        answer: asyncio.Future[_Result] = self.create_future()
        waiting = self.call_later(self._random.random() * JOB_SECONDS_MAX, self._run_job, answer, func, args)
        answer.add_done_callback(lambda _: waiting.cancel())
        process = PROCESS.get()
        if process is not None:
            process.jobs[answer] = partial(self._run_job, answer, func, args)
            answer.add_done_callback(lambda _: process.jobs.pop(answer, None))
        return answer

    def finish_jobs(self, process: Process) -> None:
        """What a pool of threads does when it is shut down: everything that was asked for is done."""
        jobs, process.jobs = process.jobs, {}
        for run in jobs.values():
            run()

    def _run_job(self, answer: asyncio.Future[_Result], function: Callable[..., _Result], arguments: Any) -> None:
        if answer.done():  # cancelled: a thread pool drops what had not begun
            return
        process = PROCESS.get()
        if process is not None:
            process.jobs.pop(answer, None)
            process.job_seconds = 0.0
        outcome: Callable[[], None]
        try:
            result = function(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised to the task that waits
            failure = error
            outcome = lambda: None if answer.done() else answer.set_exception(failure)  # noqa: E731
        else:
            outcome = lambda: None if answer.done() else answer.set_result(result)  # noqa: E731
        seconds = 0.0
        if process is not None:
            seconds, process.job_seconds = process.job_seconds or 0.0, None
            if process.is_dead:  # by what the job itself came upon: nobody waits for it any more
                return
        if seconds:
            self.call_later(seconds, outcome)
        else:
            outcome()

    def set_default_executor(self, executor: Any) -> None:
        """No thread is ever started."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's name
        """There is none."""

    # Reports

    def describe_tasks(self) -> str:
        """Every task that waits, and where."""
        waiting = []
        for task in asyncio.all_tasks(self):
            process = self._owners.get(task)
            if process is None or not process.is_dead:
                name = "the simulation" if process is None else process.name
                waiting.append(f"  {name}: {_where(task.get_coro())}")
        return "\n".join(sorted(waiting))


def _where(coroutine: Any) -> str:
    """The chain of coroutines that wait for each other, the innermost last."""
    places: list[str] = []
    while coroutine is not None and len(places) < _STACK_DEPTH:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            break
        places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        coroutine = getattr(coroutine, "cr_await", None)
    return " > ".join(places)


class _NoDescriptors(selectors.BaseSelector):
    """Lets time pass instead of waiting for sockets: there are none but the loop's own."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._keys[descriptor] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.pass_time(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys
