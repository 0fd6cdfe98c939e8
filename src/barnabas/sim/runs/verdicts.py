"""The result of one history, small enough to cross processes and to keep for thousands of seeds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.sim.checkers.table import Problem
from barnabas.sim.histories.examination import Examined
from barnabas.sim.histories.plan import Plan, make_plan

Examine = Callable[[Plan], Examined]

PROCESS: Final = "process"
"""Named as the checker of a history that killed its worker process, or never ended."""


@dataclass(frozen=True, slots=True)
class Verdict:
    seed: int
    operations: int
    faults: int
    seconds: float
    """Virtual ones."""
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "operations": self.operations,
            "faults": self.faults,
            "seconds": round(self.seconds, 3),
            "problems": [[problem.checker, problem.text] for problem in self.problems],
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Verdict":
        problems = tuple(Problem(checker, text) for checker, text in content["problems"])
        return cls(content["seed"], content["operations"], content["faults"], content["seconds"], problems)


def verdict_of(examined: Examined) -> Verdict:
    plan = examined.plan
    return Verdict(
        plan.seed, len(plan.operations), len(plan.faults), examined.outcome.seconds, tuple(examined.problems)
    )


def judge_seed(seed: int, *, brokers: int, examine: Examine) -> Verdict:
    """The whole work of a worker process for one seed."""
    return verdict_of(examine(make_plan(seed, brokers=brokers)))
