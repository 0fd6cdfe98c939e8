"""A simulated process: everything that runs on behalf of one start of a node.

Whatever a process schedules (callbacks, timers, tasks, work of its threads) inherits a context variable that names it.
The loop asks the process before each callback:

| the process | its callbacks |
|---|---|
| runs | are called |
| is held (SIGSTOP, or a slow call to a disk) | wait, and are called in order, all at once, when it goes on |
| is dead | are dropped, for ever |
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final

PROCESS: Final[ContextVar["Process | None"]] = ContextVar("barnabas_simulated_process", default=None)
_TASKS_LOOK: Final = 64
_CLOSINGS_MAX: Final = 4
"""A coroutine that still waits for something when it is closed, as a task group does, must be closed again."""


class Process:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self._tasks: list[asyncio.Task[Any]] = []
        """All that are not known to be done; a dead process's stay here, so that no garbage collector ends them."""
        self._look_at = _TASKS_LOOK
        self.worked = 0
        """What loops that grow with data have counted since the last callback began."""
        self.job_seconds: float | None = None
        """While a thread's job runs: how long it has slept or waited for a disk. None: the event loop's thread runs."""
        self.jobs: dict[asyncio.Future[Any], Callable[[], None]] = {}
        """What its threads have not begun yet, by who waits for it."""
        self._holds = 0
        self._held: list[Step] = []

    def __repr__(self) -> str:
        return f"<process {self.name}{' (dead)' if self.is_dead else ''}>"

    @property
    def is_held(self) -> bool:
        return self._holds > 0

    def context(self) -> Context:
        """A context in which whatever is scheduled belongs to this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context

    def hold(self) -> None:
        """Stops it; each `hold` needs a `release`."""
        self._holds += 1

    def keep(self, step: "Step") -> None:
        self._held.append(step)

    def release(self) -> list["Step"]:
        """The callbacks that may go on now, in order."""
        self._holds -= 1
        if self._holds or self.is_dead:
            return []
        due, self._held = self._held, []
        return due

    def die(self) -> None:
        self.is_dead = True
        self._held.clear()

    def add(self, task: asyncio.Task[Any]) -> None:
        self._tasks.append(task)
        if len(self._tasks) >= self._look_at:
            self._look_at = len(self.unfinished()) + _TASKS_LOOK

    def drop_tasks(self) -> None:
        """Ends the coroutines of a dead process, whatever they still want to do."""
        for task in self.unfinished():
            task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - or asyncio complains of each
            coroutine = task.get_coro()
            for _ in range(_CLOSINGS_MAX):
                with suppress(BaseException):
                    coroutine.close()
                    break
        self._tasks = []

    def unfinished(self) -> list[asyncio.Task[Any]]:
        """Its tasks that are not done."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return self._tasks


class Step:
    """A callback of a process, as the event loop sees it."""

    __slots__ = ("arguments", "callback", "context", "handle", "process")

    def __init__(self, process: Process, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        self.process = process
        self.callback = callback
        self.arguments = arguments
        self.context: Context
        self.handle: asyncio.Handle

    def __call__(self) -> None:
        process = self.process
        if process.is_held and not process.is_dead:
            process.keep(self)
            return
        del self.handle  # each holds the other, and both hold whatever the callback does, until garbage is collected
        if process.is_dead:
            return
        process.worked = 0
        self.callback(*self.arguments)

    def resumed(self) -> None:
        """Its turn came while the process was held. One that was held before it may have cancelled it since."""
        if not self.handle.cancelled():
            self()
