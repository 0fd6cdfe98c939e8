"""One history from its plan to its verdict."""

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
    outcome = Director(plan).run()
    return Examined(plan, outcome, tuple(check(outcome.history)))
