"""The simulated world: one loop, one network, hosts with disks and clocks, and one seed that decides everything.

Each part draws from its own stream of random numbers, named after it, so that a change of one part leaves the others as
they were. `trace` is a digest of everything that happened: two runs of one seed have the same.
"""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, TypeVar

from barnabas.sim.world.clock import NodeClock
from barnabas.sim.world.loop import VirtualLoop
from barnabas.sim.world.network import SimulatedNetwork
from barnabas.sim.world.process import PROCESS, Process

_Result = TypeVar("_Result")

WORK_MAX: Final = 20_000
"""How many steps, of loops that grow with data, one callback may take before it has held up the loop."""


class World:
    def __init__(self, seed: int | str, *, seconds_max: float = 3600.0) -> None:
        self.seed = seed
        self.loop = VirtualLoop(self.random("threads"), seconds_max)
        self.violations: list[str] = []
        """What must never happen, and was seen while it happened."""
        self.network = SimulatedNetwork(self.loop, self.random("network"), self.note, self.violations.append)
        self.on_note: Callable[[float, tuple[object, ...]], object] | None = None
        """Called with everything that happens, for those who want to read along."""
        self.events = 0
        self._trace = hashlib.sha256()
        self._processes: list[Process] = []

    def random(self, name: str) -> Random:
        """A stream of its own for each name."""
        return Random(f"{self.seed}/{name}")

    def note(self, *what: object) -> None:
        """Adds to the trace what happened: names and numbers, and at the end perhaps bytes."""
        now = self.loop.time()
        self.events += 1
        last = what[-1]
        if isinstance(last, bytes):
            self._trace.update(b"%r %r" % (now, what[:-1]))
            self._trace.update(last)
        else:
            self._trace.update(b"%r %r" % (now, what))
        if self.on_note is not None:
            self.on_note(now, what)

    @property
    def trace(self) -> str:
        return self._trace.hexdigest()

    def clock(self) -> NodeClock:
        return NodeClock(self.loop, self._worked)

    def process(self, name: str) -> Process:
        process = Process(name)
        self._processes.append(process)
        return process

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        """A task that belongs to a process."""
        return self.loop.create_task(coroutine, context=process.context())

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Runs the director of a history to its end, and closes the loop."""
        try:
            return self.loop.run_until_complete(coroutine)
        finally:
            self._end_processes()
            self.loop.close()

    def _end_processes(self) -> None:
        """Drops what never came to its end, in order, and in silence: the history is over."""
        for process in self._processes:
            process.die()
            process.drop_tasks()

    def _worked(self, count: int) -> None:
        process = PROCESS.get()
        if process is None or process.job_seconds is not None:  # a thread holds nobody up
            return
        process.worked += count
        if process.worked > WORK_MAX:
            self.violations.append(
                f"{process.name} took more than {WORK_MAX} steps in one callback at {self.loop.time():.3f} s"
            )
            process.worked = 0
