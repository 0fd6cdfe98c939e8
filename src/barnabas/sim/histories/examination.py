"""One history from its plan to its verdict."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from barnabas.sim.checkers.table import Problem, check
from barnabas.sim.histories.director import Director, Outcome
from barnabas.sim.histories.plan import Plan


@dataclass(frozen=True, slots=True)
class Examined:
    plan: Plan
    outcome: Outcome
    problems: tuple[Problem, ...]


def examine(plan: Plan) -> Examined:
    """Runs a plan on a world of its own, and asks every checker."""
    with _garbage_at_the_end():
        outcome = Director(plan).run()
    return Examined(plan, outcome, tuple(check(outcome.history)))


@contextmanager
def _garbage_at_the_end() -> Iterator[None]:
    """A history is short and makes many objects: looking for garbage all the time takes a sixth of it.

    At its end what it made is still the youngest generation, so that nothing else is looked at.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if was_enabled:
            gc.enable()
