"""Worker processes that run histories, one seed at a time each.

A history that kills its process (a fault in compiled code) or does not end (a loop that never yields) is a finding like
any other: the worker is replaced, and its seed gets a verdict that says so. A checker that raises has a verdict, too.
Workers are also replaced after a few hundred histories, so that memory which a history leaves behind does not add up.

Workers ignore Ctrl-C; the process that started them ends them.
"""

import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final, Self

from barnabas.base.clock import Clock
from barnabas.sim.checkers.table import Problem
from barnabas.sim.runs.verdicts import PROCESS, Verdict

Job = Callable[[int], Verdict]
"""From a seed. It is sent to other processes: a function of a module, or a `partial` of one."""

HISTORY_SECONDS_MAX: Final = 300.0
"""Real ones, a hundred times what a history takes."""
HISTORIES_PER_PROCESS: Final = 250


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    connection: Connection
    seed: int | None = None
    began: float = 0.0
    histories: int = 0


class Workers:
    def __init__(self, job: Job, count: int, clock: Clock, *, seconds_max: float = HISTORY_SECONDS_MAX) -> None:
        self._job = job
        self._count = count
        self._clock = clock
        self._seconds_max = seconds_max
        self._context = get_context("spawn")
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        self._workers = [self._start() for _ in range(self._count)]
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            self._end(worker)
        self._workers = []

    @property
    def has_idle(self) -> bool:
        return any(worker.seed is None for worker in self._workers)

    @property
    def has_busy(self) -> bool:
        return any(worker.seed is not None for worker in self._workers)

    def give(self, seed: int) -> None:
        """Only while one is idle."""
        worker = next(worker for worker in self._workers if worker.seed is None)
        if worker.histories >= HISTORIES_PER_PROCESS:
            worker = self._replace(worker)
        worker.seed, worker.began = seed, self._clock.monotonic()
        worker.histories += 1
        with suppress(BrokenPipeError):  # it died while it was idle: `collect` finds out
            worker.connection.send(seed)

    def collect(self, seconds: float) -> list[Verdict]:
        """What is finished by now; waits up to `seconds` for the first."""
        busy = [worker for worker in self._workers if worker.seed is not None]
        ready = wait([worker.connection for worker in busy], timeout=seconds)
        verdicts = []
        for worker in busy:
            if worker.connection in ready:
                verdicts.append(self._result_of(worker))
            elif self._clock.monotonic() - worker.began > self._seconds_max:
                verdicts.append(self._failed(worker, f"did not end within {self._seconds_max:g} s of real time"))
        return verdicts

    def _result_of(self, worker: _Worker) -> Verdict:
        try:
            verdict: Verdict = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            worker.process.join()
            return self._failed(worker, f"ended its process with exit code {worker.process.exitcode}")
        worker.seed = None
        return verdict

    def _failed(self, worker: _Worker, what: str) -> Verdict:
        assert worker.seed is not None
        seed = worker.seed
        self._replace(worker)
        return _no_history(seed, what)

    def _replace(self, worker: _Worker) -> _Worker:
        self._end(worker)
        successor = self._start()
        self._workers[self._workers.index(worker)] = successor
        return successor

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, self._job), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _end(self, worker: _Worker) -> None:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()


def _work(connection: Connection, job: Job) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    with suppress(EOFError):
        while True:
            seed = connection.recv()
            try:
                verdict = job(seed)
            except Exception as error:  # noqa: BLE001 - a bug of the simulation: the seed's verdict tells it
                verdict = _no_history(seed, f"raised {type(error).__name__}: {error}")
            connection.send(verdict)


def _no_history(seed: int, what: str) -> Verdict:
    return Verdict(seed, 0, 0, 0.0, (Problem(PROCESS, f"the history of seed {seed} {what}"),))
