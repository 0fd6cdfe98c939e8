"""Makes a failing plan as short as it can be: fewer faults and operations, with the same checker still failing.

1. Cut the end: what comes after the moment of the failure is left out (the moment that the problem names, then halves).
2. Leave out faults, then all operations of an actor at once, then chunks of operations, then single ones.
3. Leave out the clients that have nothing left to do.

An actor that does less pauses longer, so that the rest happens at about the same time. Still, what is left out changes
the timing of everything else, and a failure may hide: the result is the shortest plan that was found within the bounds,
not the shortest there is. Each attempt is a whole history, and every accepted plan has failed.
"""

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from barnabas.base.clock import Clock
from barnabas.cli.output import plural
from barnabas.sim.checkers.table import Problem
from barnabas.sim.histories.events import OperationEnded
from barnabas.sim.histories.examination import Examined
from barnabas.sim.histories.plan import Actor, Operation, Plan
from barnabas.sim.runs.verdicts import Examine

_Item = TypeVar("_Item")

RUNS_MAX: Final = 250
SECONDS_MAX: Final = 180.0
_BISECTIONS: Final = 6
_MARGIN_SECONDS: Final = 0.5
_MOMENT: Final = re.compile(r"(\d+\.\d+) s\b")


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The last plan that failed, as examined, and how much work it was."""

    examined: Examined
    runs: int
    is_exhausted: bool
    """The bounds were reached: it may be possible to shorten it further."""


class _OutOfBudget(Exception):  # noqa: N818 - named as the fact that it is
    """No more runs, or no more time."""


def shrink(
    failed: Examined,
    examine: Examine,
    clock: Clock,
    *,
    runs_max: int = RUNS_MAX,
    seconds_max: float = SECONDS_MAX,
    on_run: Callable[[int, str], None] = lambda runs, details: None,
) -> Shrunk:
    """`failed` has problems; `on_run` gets the number of runs and how short the plan is."""
    assert failed.problems, "only a plan that fails can be shrunk"
    attempts = _Attempts(failed, examine, clock, runs_max, clock.monotonic() + seconds_max, on_run)
    try:
        _cut_the_end(attempts)
        length = -1
        while length != _length(attempts.plan):
            length = _length(attempts.plan)
            attempts.reduce_faults()
            attempts.reduce_operations()
        attempts.drop_idle_actors()
    except _OutOfBudget:
        return Shrunk(attempts.best, attempts.runs, is_exhausted=True)
    return Shrunk(attempts.best, attempts.runs, is_exhausted=False)


def reduced(items: Sequence[_Item], still_fails: Callable[[Sequence[_Item]], bool]) -> Sequence[_Item]:
    """Delta debugging: leaves out halves, quarters and so on down to single items, as long as it still fails."""
    size = len(items)
    while size:
        start = 0
        while start < len(items):
            shorter = [*items[:start], *items[start + size :]]
            if still_fails(shorter):
                items = shorter
            else:
                start += size
        size //= 2
    return items


def without_groups(
    items: Sequence[_Item], key: Callable[[_Item], Hashable], still_fails: Callable[[Sequence[_Item]], bool]
) -> Sequence[_Item]:
    """Leaves out all items of one key at once, where it still fails."""
    for group in dict.fromkeys(map(key, items)):
        shorter = [item for item in items if key(item) != group]
        if still_fails(shorter):
            items = shorter
    return items


class _Attempts:
    """The shortest failing plan so far."""

    def __init__(
        self,
        failed: Examined,
        examine: Examine,
        clock: Clock,
        runs_max: int,
        deadline: float,
        on_run: Callable[[int, str], None],
    ) -> None:
        self.best = failed
        self.runs = 0
        self._checkers = {problem.checker for problem in failed.problems}
        self._examine = examine
        self._clock = clock
        self._runs_max = runs_max
        self._deadline = deadline
        self._on_run = on_run

    @property
    def plan(self) -> Plan:
        return self.best.plan

    def problems_of(self, examined: Examined) -> list[Problem]:
        """Those of the checkers that failed at first."""
        return [problem for problem in examined.problems if problem.checker in self._checkers]

    def fails(self, plan: Plan) -> bool:
        if self.runs >= self._runs_max or self._clock.monotonic() >= self._deadline:
            raise _OutOfBudget
        self.runs += 1
        examined = self._examine(plan)
        is_failing = bool(self.problems_of(examined))
        if is_failing:
            self.best = examined
        operations, faults = len(self.plan.operations), len(self.plan.faults)
        self._on_run(self.runs, f"{plural(operations, 'operation')}, {plural(faults, 'fault')}")
        return is_failing

    def reduce_faults(self) -> None:
        reduced(self.plan.faults, lambda faults: self.fails(self.plan.with_parts(self.plan.operations, faults)))

    def reduce_operations(self) -> None:
        before = self.plan.operations

        def still_fails(kept: Sequence[int]) -> bool:
            return self.fails(self.plan.with_parts(operations_left(before, kept), self.plan.faults))

        left = without_groups(range(len(before)), lambda index: before[index].actor, still_fails)
        reduced(left, still_fails)

    def drop_idle_actors(self) -> None:
        busy = {operation.actor for operation in self.plan.operations}
        idle = [actor for actor in self.plan.actors if actor.name not in busy]

        def still_fails(kept: Sequence[Actor]) -> bool:
            actors = tuple(one for one in self.plan.actors if one.name in busy or one in kept)
            return self.fails(replace(self.plan, actors=actors))

        reduced(idle, still_fails)


def operations_left(operations: Sequence[Operation], kept: Sequence[int]) -> list[Operation]:
    """Those at the indexes, at about the time at which they were: an actor pauses for what it does not do any more."""
    wanted = set(kept)
    idle_seconds: dict[str, float] = {}
    left = []
    for index, operation in enumerate(operations):
        if index in wanted:
            pause = operation.pause + idle_seconds.pop(operation.actor, 0.0)
            left.append(replace(operation, pause=pause))
        else:
            seconds = operation.arguments.get("seconds", 0.0)
            own = operation.pause + (seconds if isinstance(seconds, float) else 0.0)
            idle_seconds[operation.actor] = idle_seconds.get(operation.actor, 0.0) + own
    return left


def _length(plan: Plan) -> int:
    return len(plan.operations) + len(plan.faults)


def _cut_the_end(attempts: _Attempts) -> None:
    full = attempts.best
    low, high = 0.0, full.outcome.seconds
    named = _named_moment(attempts.problems_of(full))
    if named is not None and named < high and attempts.fails(plan_until(full, named)):
        high = named
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        shorter = plan_until(full, middle)
        if _length(shorter) == _length(attempts.plan) or attempts.fails(shorter):
            high = middle
        else:
            low = middle


def _named_moment(problems: Sequence[Problem]) -> float | None:
    """The time that the first problem speaks of, with a margin."""
    moments = [float(found) for problem in problems[:1] for found in _MOMENT.findall(problem.text)]
    return max(moments) + _MARGIN_SECONDS if moments else None


def plan_until(examined: Examined, moment: float) -> Plan:
    """The plan without faults after the moment, and without operations that had not begun by then."""
    plan = examined.plan
    ended: dict[str, list[str]] = {}
    for event in examined.outcome.history.of(OperationEnded):
        if event.at <= moment:
            ended.setdefault(event.client, []).append(event.operation)
    operations: list[Operation] = []
    for actor in plan.actors:
        own = [operation for operation in plan.operations if operation.actor == actor.name]
        operations += own[: _begun(own, ended.get(actor.name, []))]
    return plan.with_parts(operations, [fault for fault in plan.faults if fault.at <= moment])


def _begun(operations: Sequence[Operation], ended: Sequence[str]) -> int:
    """How many an actor had begun when these had ended. One that a kill interrupted never ended."""
    position = 0
    for action in ended:
        while position < len(operations) and operations[position].action != action:
            position += 1
        position += 1
    return position + 1
