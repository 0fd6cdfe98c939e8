"""Histories of the code as it is, each run once: the seeds that catch planted bugs are among those of `test_seeds`."""

from functools import cache

from barnabas.sim.checkers.table import Problem
from barnabas.sim.histories.examination import examine
from barnabas.sim.histories.plan import make_plan


@cache
def problems_of(seed: int, brokers: int = 1) -> tuple[Problem, ...]:
    """What the checkers say of this seed's history. Never call it while a bug is planted."""
    return examine(make_plan(seed, brokers=brokers)).problems
