"""A failing plan becomes as short as what it needs to fail, and never one that does not fail."""

from collections.abc import Callable, Sequence

import pytest

from barnabas.base.clock import ManualClock
from barnabas.sim.checkers.table import Problem
from barnabas.sim.histories.examination import Examined
from barnabas.sim.histories.plan import Operation, Plan, make_plan
from barnabas.sim.runs.shrinking import operations_left, plan_until, reduced, shrink, without_groups
from tests.support.planted_histories import CHECKER, OTHER_CHECKER, clean, examined


def needing(wanted: Sequence[Operation], kinds: Sequence[str], text: str = "planted") -> Callable[[Plan], Examined]:
    """Fails when all of these operations, and a fault of each kind, are in the plan."""

    def examine(plan: Plan) -> Examined:
        found = {fault.kind for fault in plan.faults}
        is_failing = set(texts(wanted)) <= set(texts(plan.operations)) and all(kind in found for kind in kinds)
        return (
            examined(plan, Problem(CHECKER, text)) if is_failing else examined(plan, Problem(OTHER_CHECKER, "not it"))
        )

    return examine


def texts(operations: Sequence[Operation]) -> list[str]:
    """Without their pauses, which shrinking changes."""
    return [str(operation) for operation in operations]


def operations_of(plan: Plan, actor: str) -> list[Operation]:
    return [operation for operation in plan.operations if operation.actor == actor]


@pytest.mark.parametrize("wanted", [[], [0], [99], [3, 4], [0, 50, 99], list(range(0, 100, 9))])
def test_reduced_items_are_those_that_are_needed(wanted: list[int]) -> None:
    assert list(reduced(list(range(100)), lambda items: set(wanted) <= set(items))) == wanted


def test_groups_that_are_not_needed_go_at_once() -> None:
    runs: list[Sequence[int]] = []

    def still_fails(items: Sequence[int]) -> bool:
        runs.append(items)
        return 42 in items

    left = without_groups(list(range(100)), lambda number: number // 10, still_fails)

    assert list(left) == list(range(40, 50))
    assert len(runs) == 10


def test_shrunk_plan_has_what_the_failure_needs_and_nothing_else() -> None:
    plan = make_plan(1)
    kind = plan.faults[2].kind
    first, second = operations_of(plan, "producer-1")[20], operations_of(plan, "reader-1")[3]
    examine = needing([first, second], [kind])

    shrunk = shrink(examine(plan), examine, ManualClock())

    short = shrunk.examined.plan
    assert texts(short.operations) == texts([first, second])
    assert [fault.kind for fault in short.faults] == [kind]
    assert {actor.name for actor in short.actors} == {"producer-1", "reader-1"}
    assert [problem.checker for problem in shrunk.examined.problems] == [CHECKER]
    assert not shrunk.is_exhausted


def test_end_of_the_plan_is_cut_first_at_the_moment_that_the_problem_names() -> None:
    plan = make_plan(1)
    wanted = operations_of(plan, "producer-2")[4]
    examine = needing([wanted], [], "lost what was acknowledged at 0.500 s")
    seen: list[Plan] = []

    def watching(one: Plan) -> Examined:
        seen.append(one)
        return examine(one)

    shrink(examine(plan), watching, ManualClock())

    assert all(fault.at <= 1.0 for fault in seen[0].faults)
    assert len(operations_of(seen[0], "producer-2")) == 11  # a tenth of a second each, and one that had begun


def test_other_checker_does_not_count_as_the_same_failure() -> None:
    plan = make_plan(1)
    wanted = operations_of(plan, "producer-1")[0]
    examine = needing([wanted], [])

    shrunk = shrink(examine(plan), examine, ManualClock())

    assert texts(shrunk.examined.plan.operations) == texts([wanted])


def test_number_of_runs_is_bounded_and_the_best_so_far_is_kept() -> None:
    plan = make_plan(1)
    wanted = plan.operations[::7]
    examine = needing(wanted, [])
    told: list[int] = []

    shrunk = shrink(examine(plan), examine, ManualClock(), runs_max=25, on_run=lambda runs, _: told.append(runs))

    assert shrunk.is_exhausted
    assert shrunk.runs == 25
    assert told == list(range(1, 26))
    assert set(texts(wanted)) <= set(texts(shrunk.examined.plan.operations))
    assert shrunk.examined.problems[0].checker == CHECKER


def test_time_is_bounded() -> None:
    clock = ManualClock()
    plan = make_plan(1)
    examine = needing(plan.operations[::7], [])

    def slow(one: Plan) -> Examined:
        clock.advance(1000)
        return examine(one)

    assert shrink(examine(plan), slow, clock, seconds_max=5.0).runs == 5


def test_actor_pauses_for_what_is_left_out() -> None:
    operations = [
        Operation("a", "send", {}, pause=1.0),
        Operation("b", "poll", {"seconds": 3.0}, pause=0.5),
        Operation("a", "send", {}, pause=0.25),
        Operation("b", "poll", {"seconds": 1.0}, pause=0.125),
        Operation("a", "send", {}, pause=4.0),
    ]

    assert [(one.actor, one.pause) for one in operations_left(operations, [2, 3])] == [("a", 1.25), ("b", 3.625)]


def test_prefix_keeps_what_had_begun() -> None:
    full = clean(make_plan(2))

    short = plan_until(full, 0.35)

    for actor in full.plan.actors:
        assert operations_of(short, actor.name) == operations_of(full.plan, actor.name)[:4]
    assert [fault for fault in full.plan.faults if fault.at <= 0.35] == list(short.faults)
