"""Looks for the first seed whose history catches a mutant.

A history catches a mutant when a checker that is right to do so has a problem with it, and with the same seed none
without the mutant. Seeds are tried in this order: those that have caught other mutants, so that tests need few runs;
those whose plan has the faults or settings that the bug needs; all others.
"""

import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final

from barnabas.sim.checkers.table import Problem
from barnabas.sim.histories.examination import examine
from barnabas.sim.histories.plan import Plan, make_plan
from tests.sim.examined import problems_of
from tests.sim.mutants.planting import Mutant

HISTORY_SECONDS_MAX: Final = 30
"""Real ones: a bug may make an endless loop, in which no virtual time passes."""


@dataclass(frozen=True, slots=True)
class Found:
    mutant: str
    seed: int | None
    """None: no seed has caught it."""
    checker: str
    problem: str
    tried: int
    seconds: float
    others: tuple[str, ...]
    """Checkers that had problems, but not those that should have them."""


def find_seed(mutant: Mutant, seeds: Iterable[int], on_try: Callable[[int], object] = lambda seed: None) -> Found:
    began, tried = time.perf_counter(), 0
    others: dict[str, None] = {}
    for seed in seeds:
        on_try(seed)
        tried += 1
        problems = problems_with(mutant, seed)
        for problem in problems:
            if problem.checker in mutant.checkers and not has_problems(mutant, seed):
                seconds = time.perf_counter() - began
                return Found(mutant.name, seed, problem.checker, problem.text, tried, seconds, ())
            others[f"{seed} {problem.checker}: {problem.text[:150]}"] = None
    return Found(mutant.name, None, "", "", tried, time.perf_counter() - began, tuple(others))


def problems_with(mutant: Mutant, seed: int) -> Sequence[Problem]:
    """What the checkers say of a history in which the mutant lives; nothing of one that does not end."""
    try:
        with _bounded(HISTORY_SECONDS_MAX), mutant.planted():
            return examine(plan_of(seed, mutant.brokers)).problems
    except _TooLong:
        return ()


def has_problems(mutant: Mutant, seed: int) -> bool:
    """Whether the history has any without the mutant: then it proves nothing."""
    return bool(problems_of(seed, mutant.brokers))


def order_of_seeds(mutant: Mutant, count: int, known: Collection[int]) -> Iterator[int]:
    yield from known
    rest = [seed for seed in range(count) if seed not in known]
    telling = {seed for seed in rest if mutant.telling(plan_of(seed, mutant.brokers))}
    yield from (seed for seed in rest if seed in telling)
    yield from (seed for seed in rest if seed not in telling)


@cache
def plan_of(seed: int, brokers: int) -> Plan:
    return make_plan(seed, brokers=brokers)


class _TooLong(BaseException):
    pass


@contextmanager
def _bounded(seconds: int) -> Iterator[None]:
    """Ends the block by an exception when it takes longer."""

    def end(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
